//! Scripts that are careless, wrong or hostile: each a named fault, and the host goes on.

use super::*;

fn load_fault(source: &str) -> Fault {
    script(source).map(|plugin| panic!("{plugin:?} was loaded")).unwrap_err()
}

/// What asking the script for a place among four instances ends with.
fn route_fault(source: &str) -> Fault {
    let mut guest = guest(Kind::Routing, source);
    let service = Service::idle(4);
    let fault = route_on(guest.as_mut(), &service).expect_err(source);
    // It can be asked again.
    let again = route_on(guest.as_mut(), &service).expect_err("again");
    assert_eq!(fault.kind, again.kind);
    fault
}

fn body_fault(body: &str) -> Fault {
    route_fault(&format!("fn route(r, s) {{\n    {body}\n}}"))
}

fn all(faults: &[Fault]) -> String {
    faults.iter().map(|fault| format!("{fault}\n")).collect()
}

#[test]
fn what_does_not_end_is_ended() {
    insta::assert_snapshot!(all(&[
        body_fault("loop { }"),
        body_fault("let x = 0; while true { x += 1; }"),
        body_fault("try { loop {} } catch { } 0"),
        route_fault("fn f(n) { f(n + 1) }\nfn route(r, s) { f(0) }"),
        route_fault("fn f(n) { 1 + (2 * (3 + (4 * (5 + (6 * f(n + 1)))))) }\nfn route(r, s) { f(0) }"),
        body_fault("let f = |g| g.call(g); f.call(f)"),
        body_fault("let c = s.places; for i in 0..300000 { c = c + column(65536, 1.0).sum(); }"),
        body_fault("for i in range(0, 1000000000000) { } 0"),
    ]), @"");
}

#[test]
fn what_grows_without_bound_is_stopped() {
    insta::assert_snapshot!(all(&[
        body_fault("let x = \"x\"; loop { x += x; }"),
        body_fault("let a = [0]; loop { a.push(a); }"),
        body_fault("let a = []; loop { a = [a]; }"),
        body_fault("let m = #{}; loop { m = #{ m: m }; }"),
        body_fault("let m = #{}; let i = 0; loop { m[`k${i}`] = i; i += 1; }"),
        body_fault("column(1000000000, 0.0)"),
        body_fault("zeros(-1)"),
        body_fault("let a = []; a.pad(1000000000, 0); 0"),
        body_fault("let a = []; a.pad(4000, 0); a.map(|x| a); 0"),
        body_fault("let t = \"\"; t.pad(60000, 'x'); t.replace(\"x\", t); 0"),
        body_fault("let all = []; loop { all.push(column(65536, 1.0)); }"),
    ]), @"");
}

#[test]
fn a_state_has_its_size() {
    let source = "fn init() { #{ all: [] } } fn route(r, s) { this.all.push(column(65000, 1.0)); 0 }";
    let mut guest = guest(Kind::Routing, source);
    let service = Service::idle(4);
    let faults: Vec<_> = (0..100).filter_map(|_| route_on(guest.as_mut(), &service).err()).collect();
    assert!(faults.len() > 1 && faults.len() < 10, "the state is fresh after each: {}", faults.len());
    assert!(guest.save().unwrap().len() < Limits::default().state_bytes);
    insta::assert_snapshot!(faults[0], @"");
}

#[test]
fn answers_of_the_wrong_form_are_named() {
    insta::assert_snapshot!(all(&[
        body_fault("s.queue_depth / s.batch_size"),
        body_fault("0.0 / 0.0"),
        body_fault("99"),
        body_fault("-1"),
        body_fault("1.5"),
        body_fault("\"instance_1\""),
        body_fault("true"),
        body_fault("let x = -s.queue_depth;"),
        body_fault("[1, 2]"),
        body_fault("[1, 2, \"x\", 4]"),
        body_fault("this = 5; 0"),
        body_fault("()"),
    ]), @"");
}

#[test]
fn errors_of_the_script_come_with_their_line() {
    insta::assert_snapshot!(all(&[
        body_fault("throw \"I give up\";"),
        body_fault("throw #{ code: 5 };"),
        body_fault("s.queue_depht"),
        body_fault("r.prompt"),
        body_fault("fewest_bets(s.queue_depth)"),
        body_fault("sqrt(s.queue_depth, 2)"),
        body_fault("s.queue_depth + \"x\" * 2"),
        body_fault("s.queue_depth && true"),
        body_fault("if s.queue_depth > 1 { 0 } else { 1 }"),
        body_fault("s.queue_depth[4]"),
        body_fault("s.queue_depth[-1]"),
        body_fault("s[9].queue_depth"),
        body_fault("let a = [1, 2]; a[7]"),
        body_fault("s.queue_depth + r.blocks"),
        body_fault("this.turns + 1"),
        body_fault("this.homes.x.y"),
        body_fault("s.queue_depth = 1; 0"),
        body_fault("9223372036854775807 + r.id"),
        body_fault("1 / (r.id - 9)"),
        body_fault("r.id % (r.id - 9)"),
        body_fault("sleep(1000)"),
        body_fault("exit()"),
        body_fault("timestamp()"),
        body_fault("log(2.0)"),
        body_fault("pick(0)"),
        body_fault("call(\"route\")"),
        route_fault("fn helper(x) {\n    x.nothing\n}\nfn route(r, s) {\n    helper(s.queue_depth)\n}"),
        route_fault("fn helper() { this.x }\nfn route(r, s) {\n    helper()\n}"),
        body_fault("let a = [1.0, 0.0/0.0, 2.0]; a.sort(|x, y| x / 0.0); a.sort(); throw a;"),
    ]), @"");
}

#[test]
fn what_does_not_compile_says_why() {
    let deep = format!("fn route(r, s) {{ {}1{} }}", "(".repeat(2000), ")".repeat(2000));
    let nested = format!("fn route(r, s) {{ {}0{} }}", "if true { ".repeat(500), " }".repeat(500));
    let sum = format!("fn route(r, s) {{ {}1 }}", "1 + ".repeat(2000));
    insta::assert_snapshot!(all(&[
        load_fault("fn route(r, s) { 1 + }"),
        load_fault("fn route(r, s) {\n    let x = 1\n    x\n}"),
        load_fault("fn route(r, s) { 0"),
        load_fault("fn route(r, s) { alhpa * 2 }\n// @param alpha 1 0 2"),
        load_fault("let x = 5;\nfn route(r, s) { x }"),
        load_fault("fn route(r, s) { eval(\"1\") }"),
        load_fault("fn route(r, s) { print(1); 0 }"),
        load_fault("import \"x\" as y;\nfn route(r, s) { 0 }"),
        load_fault("const A = 1;\nfn route(r, s) { A = 2; 0 }"),
        load_fault("const A = [1][3];\nfn route(r, s) { A }"),
        load_fault("loop { }\nfn route(r, s) { 0 }"),
        load_fault(&deep),
        load_fault(&nested),
        load_fault(&sum),
        load_fault("// @parm alpha 1 0 2\nfn route(r, s) { 0 }"),
    ]), @"");
}

#[test]
fn what_is_no_policy_is_named() {
    insta::assert_snapshot!(all(&[
        load_fault(""),
        load_fault("fn rout(r, s) { 0 }"),
        load_fault("fn route(r, s, x) { 0 }"),
        load_fault("fn priority() { 0 }"),
        load_fault("fn route(r, s) { 0 }\nfn notice(e) { }"),
        load_fault("// @events routed\nfn route(r, s) { 0 }"),
        load_fault("fn route(r, s) { 0 }\nfn constants() { #{} }"),
        load_fault(&"x".repeat(10 << 20)),
    ]), @"");
}

#[test]
fn a_script_that_cannot_start_says_so() {
    let start = |source: &str| {
        let plugin = script(source).unwrap();
        plugin.start(&setup(Kind::Routing, plugin.as_ref())).unwrap_err()
    };
    insta::assert_snapshot!(all(&[
        start("fn init() { 5 } fn route(r, s) { 0 }"),
        start("fn init(info) {\n    info.facts.nothing * 2\n}\nfn route(r, s) { 0 }"),
        start("fn init() { loop {} } fn route(r, s) { 0 }"),
    ]), @"");
    let mut guest = guest(Kind::Routing, "fn route(r, s) { this.f = |x| x; this.view = s; 0 }");
    route_on(guest.as_mut(), &Service::idle(4)).unwrap();
    insta::assert_snapshot!(all(&[
        guest.save().unwrap_err(),
        guest.fork().map(|_| ()).unwrap_err(),
        guest.restore(b"nonsense").unwrap_err(),
        guest.admit(&seen(&request(1)), &Service::idle(1).view()).unwrap_err(),
    ]), @"");
}

#[test]
fn files_are_checked_before_they_are_read() {
    let folder = std::env::temp_dir().join(format!("blis-scripts-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let fault = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        fs::write(&path, bytes).unwrap();
        let fault = load_file(&path, &Limits::default()).map(|_| ()).unwrap_err();
        format!("{fault}\n").replace(&folder.display().to_string(), "…")
    };
    let faults = [
        fault("latin.rhai", b"// fine\n// caf\xe9\n"),
        fault("large.rhai", &vec![b' '; 10 << 20]),
        load_file(&folder.join("none.rhai"), &Limits::default())
            .map(|_| ())
            .unwrap_err()
            .to_string()
            .replace(&folder.display().to_string(), "…"),
    ];
    fs::remove_dir_all(&folder).unwrap();
    insta::assert_snapshot!(faults.concat(), @"");
}

/// Simulations run on threads with small stacks.
#[test]
fn nothing_takes_more_than_a_small_stack() {
    let attacks = || {
        for body in [
            "let a = []; loop { a = [a]; }",
            "let m = #{}; loop { m = #{ m: m }; }",
            "for i in 0..4000 { this.a = [this.a]; } 99",
            "for i in 0..4000 { this.m = #{ m: this.m }; } 99",
        ] {
            let _ = body_fault(body);
        }
        let nested =
            format!("fn f(n) {{ {}f(n + 1){} }}\nfn route(r, s) {{ f(0) }}", "1 + (".repeat(40), ")".repeat(40));
        assert_eq!(route_fault(&nested).kind, FaultKind::TooDeep);
        let blocks = format!(
            "fn f(n) {{ {}f(n + 1){} }}\nfn route(r, s) {{ f(0) }}",
            "if n >= 0 { ".repeat(40),
            " }".repeat(40)
        );
        assert_eq!(route_fault(&blocks).kind, FaultKind::TooDeep);
        for source in ["(".repeat(100_000), "[".repeat(100_000), "{".repeat(100_000), "fn f() { if x { ".repeat(10_000)]
        {
            assert!(matches!(load_fault(&source).kind, FaultKind::Syntax | FaultKind::TooDeep));
        }
    };
    std::thread::Builder::new().stack_size(2 << 20).spawn(attacks).unwrap().join().unwrap();
}

proptest! {
    #[test]
    fn any_text_is_a_script_or_a_fault(source in r#"(fn |route|\(r, s\)|\{|\}|;|let x = |[a-z]|[0-9]|"|`|'|\$|\.|\(|\)|\||#|// @param |\n| |é|=|\+){0,60}"#) {
        if let Err(fault) = script(&source) {
            prop_assert!(fault.message.starts_with("test.rhai:"), "{}", fault);
        }
    }
}
