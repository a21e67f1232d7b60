//! Scripts that are careless, wrong or hostile: each ends in a named fault, and the host continues.

use super::*;

fn load_fault(source: &str) -> Fault {
    script(source).map(|plugin| panic!("{plugin:?} was loaded")).unwrap_err()
}

/// The fault of loading the script, or of routing among four instances with it.
fn route_fault(source: &str) -> Fault {
    let mut guest = match script(source) {
        Err(fault) => return fault,
        Ok(plugin) => start(Kind::Routing, plugin.as_ref()),
    };
    let service = ScriptService::idle(4);
    let fault = route_on(guest.as_mut(), &service).expect_err(source);
    // The guest accepts further calls.
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
        body_fault("let c = s.indices; for i in 0..300000 { c = c + column(65536, 1.0).sum(); }"),
        body_fault("for i in range(0, 1000000000000) { } 0"),
    ]), @r"
    test.rhai:2:5: in `route`: more than 1000000 steps in one call: does a loop not end?
      2 |     loop { }
        |     ^^^^ [out-of-fuel]
    test.rhai:2:16: in `route`: more than 1000000 steps in one call: does a loop not end?
      2 |     let x = 0; while true { x += 1; }
        |                ^^^^^ [out-of-fuel]
    test.rhai:2:11: in `route`: more than 1000000 steps in one call: does a loop not end?
      2 |     try { loop {} } catch { } 0
        |           ^^^^ [out-of-fuel]
    test.rhai:2:4: in `route`: more than 32 functions called inside each other
      2 | fn route(r, s) { f(0) }
        |    ^^^^^ [too-deep]
    test.rhai:2:4: in `route`: more than 32 functions called inside each other
      2 | fn route(r, s) { f(0) }
        |    ^^^^^ [too-deep]
    test.rhai:1:4: in `route`: more than 32 functions called inside each other
      1 | fn route(r, s) {
        |    ^^^^^ [too-deep]
    test.rhai:2:24: in `route`: it handled more than 16000000 numbers of columns in one call
      2 |     let c = s.indices; for i in 0..300000 { c = c + column(65536, 1.0).sum(); }
        |                        ^^^ [out-of-fuel]
    test.rhai:2:5: in `route`: more than 1000000 steps in one call: does a loop not end?
      2 |     for i in range(0, 1000000000000) { } 0
        |     ^^^ [out-of-fuel]
    ");
}

#[test]
fn what_grows_without_bound_is_stopped() {
    insta::assert_snapshot!(all(&[
        body_fault("let x = \"x\"; loop { x += x; }"),
        body_fault("let a = [0]; loop { a.push(a); }"),
        body_fault("let a = []; loop { a = [a]; }"),
        body_fault("let m = #{}; let i = 0; loop { m[`k${i}`] = i; i += 1; }"),
        body_fault("column(1000000000, 0.0)"),
        body_fault("zeros(-1)"),
        body_fault("let a = []; a.pad(1000000000, 0); 0"),
        body_fault("let a = []; a.pad(4000, 0); a.map(|x| { let b = []; b.pad(4000, 0); b }); 0"),
        body_fault("let t = \"\"; t.pad(8000, 'x'); t.replace(\"x\", t); 0"),
        body_fault("let all = []; loop { all.push(column(65536, 1.0)); }"),
        body_fault("let t = table(); let i = 0; loop { t[i] = 1; i += 1; }"),
        body_fault("let t = table(); t[0] = 1; loop { let u = t; u[1] = 2; t[0] += 1; }"),
    ]), @r"
    test.rhai:1:4: in `route`: a text of more than 8192 bytes
      1 | fn route(r, s) {
        |    ^^^^^ [out-of-memory]
    test.rhai:1:4: in `route`: an array of more than 4096 entries, those of arrays inside counted
      1 | fn route(r, s) {
        |    ^^^^^ [out-of-memory]
    test.rhai:1:4: in `route`: an array of more than 4096 entries, those of arrays inside counted
      1 | fn route(r, s) {
        |    ^^^^^ [out-of-memory]
    test.rhai:2:29: in `route`: its arrays and object maps are too large for so many steps (does a loop not end?): whenever a method is called on one or an entry changes, the interpreter looks at all entries inside; use columns and tables, at which it does not
      2 |     let m = #{}; let i = 0; loop { m[`k${i}`] = i; i += 1; }
        |                             ^^^^ [out-of-fuel]
    test.rhai:1:4: in `route`: a column of 1000000000 numbers; the longest has 65536
      1 | fn route(r, s) {
        |    ^^^^^ [out-of-memory]
    test.rhai:2:5: in `route`: a column has a length of 0 or more, not -1
      2 |     zeros(-1)
        |     ^^^^^ [trap]
    test.rhai:1:4: in `route`: an array of more than 4096 entries, those of arrays inside counted
      1 | fn route(r, s) {
        |    ^^^^^ [out-of-memory]
    test.rhai:1:4: in `route`: an array of more than 4096 entries, those of arrays inside counted
      1 | fn route(r, s) {
        |    ^^^^^ [out-of-memory]
    test.rhai:1:4: in `route`: a text of more than 8192 bytes
      1 | fn route(r, s) {
        |    ^^^^^ [out-of-memory]
    test.rhai:1:4: in `route`: it holds more than 64 MiB in one call
      1 | fn route(r, s) {
        |    ^^^^^ [out-of-memory]
    test.rhai:1:4: in `route`: a table of more than 65536 numbers
      1 | fn route(r, s) {
        |    ^^^^^ [out-of-memory]
    test.rhai:2:32: in `route`: more than 1000000 steps in one call: does a loop not end?
      2 |     let t = table(); t[0] = 1; loop { let u = t; u[1] = 2; t[0] += 1; }
        |                                ^^^^ [out-of-fuel]
    ");
}

/// Regression: in a function with several loops the first one was named, whichever did not end.
#[test]
fn the_loop_that_does_not_end_is_named() {
    const ENDLESS: [&str; 8] = [
        "loop { }",
        "loop { for i in 0..3 { x += i; } }",
        "while x > 0 { x += 1; let z = x * 3; x = z / 3; }",
        "while x > 0 { }",
        "loop { let y = column(64, 1.0); y + y; }",
        "do { x = 1; } while x == 1;",
        "loop { if x > 0 { continue; } }",
        "loop { three(); }",
    ];
    for endless in ENDLESS {
        let source = format!(
            "fn three() {{ let n = 0; for i in 0..3 {{ n += i; }} n }}\n\
             fn route(r, s) {{\n    let x = 1; for i in 0..3 {{ x += i; }}\n    {endless}\n    x\n}}"
        );
        let fault = route_fault(&source).to_string();
        assert!(fault.starts_with("test.rhai:4:5: in `route`"), "{endless}: {fault}");
    }
    insta::assert_snapshot!(all(&[
        route_fault("fn f(x) { loop { } }\nfn route(r, s) {\n    for i in 0..3 { f(i); }\n}"),
        route_fault("fn test_it() { while false { } }\nfn route(r, s) {\n    loop { }\n}"),
        body_fault("let x = 1; while x < 3 { x += 1; }\n    while x > 2 { x += 1; }"),
        body_fault("for i in 0..3 { } for i in range(0, 1000000000000) { }"),
    ]), @r"
    test.rhai:1:11: in `f`: more than 1000000 steps in one call: does a loop not end?
      1 | fn f(x) { loop { } }
        |           ^^^^ [out-of-fuel]
    test.rhai:3:5: in `route`: more than 1000000 steps in one call: does a loop not end?
      3 |     loop { }
        |     ^^^^ [out-of-fuel]
    test.rhai:1:4: in `route`: more than 1000000 steps in one call: does a loop not end? (there are loops in lines 2 and 3)
      1 | fn route(r, s) {
        |    ^^^^^ [out-of-fuel]
    test.rhai:2:5: in `route`: more than 1000000 steps in one call: does a loop not end?
      2 |     for i in 0..3 { } for i in range(0, 1000000000000) { }
        |     ^^^ [out-of-fuel]
    ");
}

/// The chain of captured closures was dropped recursively: the stack overflowed, and the process aborted.
#[test]
fn closures_capture_nothing() {
    insta::assert_snapshot!(all(&[
        load_fault("fn route(r, s) { let f = 0; for i in 0..20000 { let g = f; f = || g; } 0 }"),
        load_fault("fn route(r, s) { let m = #{}; let f = || m.c; m.f = f; -s.in_flight }"),
        load_fault("fn route(r, s) { let f = |x| x + 1; for i in 0..9 { f = f.curry(f); } 0 }"),
    ]), @r"
    test.rhai:1:67: there is no `g` here: a function or closure sees what it is given, `this`, parameters (`// @param`) and constants (`const x = …;` outside of functions), and no variable around it
      1 | fn route(r, s) { let f = 0; for i in 0..20000 { let g = f; f = || g; } 0 }
        |                                                                   ^ [syntax]
    test.rhai:1:42: there is no `m` here: a function or closure sees what it is given, `this`, parameters (`// @param`) and constants (`const x = …;` outside of functions), and no variable around it
      1 | fn route(r, s) { let m = #{}; let f = || m.c; m.f = f; -s.in_flight }
        |                                          ^ [syntax]
    test.rhai:1:59: expected name of a property
      1 | fn route(r, s) { let f = |x| x + 1; for i in 0..9 { f = f.curry(f); } 0 }
        |                                                           ^^^^^ [syntax]
    ");
    let mut works = guest(
        Kind::Routing,
        "// @param w 2 0 9 weight\nconst C = 1.0;\nfn route(r, s) { let f = |x| w * x + C; [f.call(1), f.call(3)] }",
    );
    let service = ScriptService::idle(2);
    assert_eq!(route_on(works.as_mut(), &service).expect("it routes").1, [3.0, 7.0]);
}

/// A wrong number of arguments in a branch that was not taken passed the check.
#[test]
fn numbers_of_arguments_are_checked_in_every_branch() {
    let loads = |body: &str| {
        let source = format!("fn two(a, b) {{ a + b }}\nfn route(r, s) {{ if r.id > 9 {{ {body} }} 0 }}");
        script(&source).map_or_else(|fault| fault.to_string(), |_| "loads".to_owned())
    };
    for body in
        ["two(1, 2);", "let f = |x| x; f(1);", "two(1, if r.id > 3 { 2 } else { 3 },);", "max(1, 2);", "pick(3);"]
    {
        assert_eq!(loads(body), "loads", "{body}");
    }
    insta::assert_snapshot!(["two(1);", "two(1, 2, 3);", "pick();", "column(1, 2, 3);"].map(loads).join("\n"), @r"
    test.rhai:2:32: `two` takes 2 arguments, not 1
      2 | fn route(r, s) { if r.id > 9 { two(1); } 0 }
        |                                ^^^ [unknown-name]
    test.rhai:2:32: `two` takes 2 arguments, not 3
      2 | fn route(r, s) { if r.id > 9 { two(1, 2, 3); } 0 }
        |                                ^^^ [unknown-name]
    test.rhai:2:32: `pick` takes 1 argument, not 0
      2 | fn route(r, s) { if r.id > 9 { pick(); } 0 }
        |                                ^^^^ [unknown-name]
    test.rhai:2:32: `column` takes 1 or 2 arguments, not 3
      2 | fn route(r, s) { if r.id > 9 { column(1, 2, 3); } 0 }
        |                                ^^^^^^ [unknown-name]
    ");
}

/// A misspelt field in a branch that was not taken passed the check.
#[test]
fn names_are_checked_in_every_branch() {
    insta::assert_snapshot!(all(&[
        load_fault("fn route(r, s) {\n    if r.id > 1000000 { return s.queue_depht; }\n    0\n}"),
        load_fault("fn route(request, cluster) { if request.id < 0 { cluster.in_flight } else { -request.input_token } }"),
        load_fault("fn helper(x) { x }\nfn route(r, s) { if r.id < 0 { return helpr(1); } 0 }"),
        load_fault("fn rank(r, q) { if q.turn < 0 { q.priorty } else { 0 } }"),
    ]), @r"
    test.rhai:2:34: a cluster has no field `queue_depht`; did you mean `queue_depth`?
      2 |     if r.id > 1000000 { return s.queue_depht; }
        |                                  ^^^^^^^^^^^ [unknown-name]
    test.rhai:1:86: a request has no field `input_token`; did you mean `input_tokens`?
      1 | fn route(request, cluster) { if request.id < 0 { cluster.in_flight } else { -request.input_token } }
        |                                                                                      ^^^^^^^^^^^ [unknown-name]
    test.rhai:2:39: there is no function `helpr`; did you mean `helper`?
      2 | fn route(r, s) { if r.id < 0 { return helpr(1); } 0 }
        |                                       ^^^^^ [unknown-name]
    test.rhai:1:35: a queued request has no field `priorty`; did you mean `priority`?
      1 | fn rank(r, q) { if q.turn < 0 { q.priorty } else { 0 } }
        |                                   ^^^^^^^ [unknown-name]
    ");
    for fine in [
        "fn route(r, s) { let q = #{ any: 1 }; q.any + s.indices }",
        "fn route(r, s) { for s in s { if s.in_flight == 0 { return s.index; } } 0 }",
        "fn route(r, s) { this.count = (this.count ?? 0) + 1; if (this.count > 2) { return 1; } min(r.id, 1) }",
        "fn route(r, s) { s.indices.map(|r| r * 2) }",
    ] {
        script(fine).unwrap_or_else(|fault| panic!("{fault}"));
    }
}

/// `pad` with an empty text ran for ever within one operation, which no limit ends.
#[test]
fn padding_with_nothing_is_an_error() {
    let fault = body_fault("let t = \"\"; t.pad(100, \"\"); 0");
    assert_eq!(
        (fault.kind, fault.diagnostic.what.as_str()),
        (FaultKind::Trap, "in `route`: `pad` needs characters to append")
    );
}

/// Scripts wrote escape sequences to the terminal and began lines of the log.
#[test]
fn what_a_script_throws_is_plain() {
    let fault = body_fault("throw \"\\x1b[31mred\\n[ERROR] forged\"");
    assert!(fault.to_string().contains("it threw:  [31mred [ERROR] forged"), "{fault}");
}

/// The compiler puts the values of constants instead of their names: 24 of these took gigabytes.
#[test]
fn constants_of_constants_are_limited() {
    let doubled = |first: &str, n: usize, value: fn(usize) -> String| {
        let rest: String = (0..n).map(|i| format!("const A{} = {};", i + 1, value(i))).collect();
        format!("const A0 = {first};{rest}")
    };
    let array = |i| format!("[A{i}, A{i}]");
    let map = |i| format!("#{{ a: {{ ; A{i} }}, b: A{i} }}");
    let text = |i| format!("`${{A{i}}}${{A{i}}}`");
    for value in [array as fn(usize) -> String, map, text] {
        let fault = load_fault(&format!("{} fn route(r, s) {{ 0 }}", doubled("[1, 2]", 24, value)));
        assert!(fault.to_string().contains("with constants written out"), "{fault}");
        load_fault(&format!("fn route(r, s) {{ {} 0 }}", doubled("[1, 2]", 24, value)));
        script(&format!("{} fn route(r, s) {{ 0 }}", doubled("[1]", 8, value))).unwrap();
    }
    let made = format!(
        "fn f() {{ let a = []; a.pad(4000, 1); a }} const T = f(); fn route(r, s) {{ {} 0 }}",
        "T[0];".repeat(90)
    );
    let fault = load_fault(&made);
    assert!(fault.to_string().contains("keep large tables in the state"), "{fault}");
    let numbers = ["1.5"; 1000].join(", ");
    script(&format!("const T = [{numbers}]; fn route(r, s) {{ {} 0 }}", "T[0];".repeat(50))).unwrap();
}

/// A column is not an array: what `map` makes was charged as one.
#[test]
fn columns_that_map_makes_are_no_arrays() {
    let fault = body_fault("let c = zeros(65536); loop { c.map(|x| x + 1.0); }").to_string();
    assert!(fault.contains("more than 1000000 steps"), "{fault}");
}

/// The name of a parameter reached messages with its escape sequences.
#[test]
fn what_a_header_says_is_plain() {
    for header in ["@param \u{1b}]0;x\u{7} 1 0 2", "@name a \u{1b}[31m", "@events \u{1b}[31m"] {
        let fault = load_fault(&format!("// {header}\nfn route(r, s) {{ 0 }}")).to_string();
        assert!(!fault.contains(|c: char| c.is_control() && c != '\n'), "{fault:?}");
    }
    let fault = load_fault(&format!("// @param 1{} 1 0 2\nfn route(r, s) {{ 0 }}", "x".repeat(20_000))).to_string();
    assert!(fault.len() < 12_000, "{}", fault.len());
}

#[test]
fn a_state_has_its_size() {
    let source = "fn init() { #{ all: [] } } fn route(r, s) { this.all.push(column(65000, 1.0)); 0 }";
    let mut guest = guest(Kind::Routing, source);
    let service = ScriptService::idle(4);
    let faults: Vec<_> = (0..100).filter_map(|_| route_on(guest.as_mut(), &service).err()).collect();
    assert!(faults.len() > 1 && faults.len() < 10, "the state is fresh after each: {}", faults.len());
    assert!(guest.save().unwrap().len() < Limits::default().state_bytes);
    insta::assert_snapshot!(faults[0], @r"
    test.rhai:1:1: the state, `this`, takes more than 16777216 bytes: forget what is old
      1 | fn init() { #{ all: [] } } fn route(r, s) { this.all.push(column(65000, 1.0)); 0 }
        | ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ [out-of-memory]
    ");
}

#[test]
fn results_of_the_wrong_type_are_named() {
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
    ]), @r#"
    test.rhai:2:5: route returned not-a-number (NaN) as score of index 0; look for 0/0, infinity minus infinity, or a root or logarithm of a negative number
      2 |     s.queue_depth / s.batch_size
        |     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^ [not-a-number]
    test.rhai:2:5: route returned not-a-number (NaN); look for 0/0, infinity minus infinity, or a root or logarithm of a negative number
      2 |     0.0 / 0.0
        |     ^^^^^^^^^ [not-a-number]
    test.rhai:2:5: route returned 99; it must be an index from 0 to 3
      2 |     99
        |     ^^ [out-of-range]
    test.rhai:2:5: route returned -1; it must be an index from 0 to 3
      2 |     -1
        |     ^^ [out-of-range]
    test.rhai:2:5: route returned 1.5; it must be an index from 0 to 3
      2 |     1.5
        |     ^^^ [out-of-range]
    test.rhai:2:5: route returned a text; it must return a column of scores, or an index
      2 |     "instance_1"
        |     ^^^^^^^^^^^^ [trap]
    test.rhai:2:5: route returned a truth value; it must return a column of scores, or an index
      2 |     true
        |     ^^^^ [trap]
    test.rhai:2:5: route returned nothing; it must return a column of scores, or an index: does its last line end in `;`?
      2 |     let x = -s.queue_depth;
        |     ^^^^^^^^^^^^^^^^^^^^^^^ [trap]
    test.rhai:2:5: route returned 2 scores; it must return one for each of 4
      2 |     [1, 2]
        |     ^^^^^^ [out-of-range]
    test.rhai:1:4: in `route`: entry 2 of the array is not a number but a text
      1 | fn route(r, s) {
        |    ^^^^^ [trap]
    test.rhai:2:5: `this` became a whole number; it stays an object map
      2 |     this = 5; 0
        |     ^^^^^^^^^^^ [trap]
    test.rhai:2:5: route returned nothing; it must return a column of scores, or an index: does its last line end in `;`?
      2 |     ()
        |     ^^ [trap]
    "#);
}

#[test]
fn errors_of_the_script_come_with_their_line() {
    insta::assert_snapshot!(all(&[
        body_fault("throw \"no decision\";"),
        body_fault("throw #{ code: 5 };"),
        body_fault("s.queue_depht"),
        body_fault("r.prompt"),
        body_fault("fewest_bets(s.queue_depth)"),
        body_fault("sqrt(s.queue_depth, 2)"),
        body_fault("s.queue_depth + \"x\" * 2"),
        body_fault("s.queue_depth && s.batch_size"),
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
        route_fault("const A = 1;\nfn route(r, s) { A = 2; 0 }"),
        route_fault("// @param alpha 1 0 2\nfn route(r, s) { alpha += 2; 0 }"),
        body_fault("sleep(1000)"),
        body_fault("exit()"),
        body_fault("timestamp()"),
        body_fault("log(2.0)"),
        body_fault("pick(0)"),
        body_fault("call(\"route\")"),
        route_fault("fn helper(x) {\n    x.nothing\n}\nfn route(r, s) {\n    helper(s.queue_depth)\n}"),
        route_fault("fn helper() { this.x }\nfn route(r, s) {\n    helper()\n}"),
        body_fault("let a = [1.0, 0.0/0.0, 2.0]; a.sort(|x, y| x / 0.0); a.sort(); throw a;"),
    ]), @r#"
    test.rhai:2:5: in `route`: it threw: no decision
      2 |     throw "no decision";
        |     ^^^^^ [trap]
    test.rhai:2:5: in `route`: it threw: #{"code": 5}
      2 |     throw #{ code: 5 };
        |     ^^^^^ [trap]
    test.rhai:2:7: a cluster has no field `queue_depht`; did you mean `queue_depth`?
      2 |     s.queue_depht
        |       ^^^^^^^^^^^ [unknown-name]
    test.rhai:2:7: a request has no field `prompt`; did you mean `prompt_tokens`?
      2 |     r.prompt
        |       ^^^^^^ [unknown-name]
    test.rhai:2:5: there is no function `fewest_bets`; did you mean `fewest_best`?
      2 |     fewest_bets(s.queue_depth)
        |     ^^^^^^^^^^^ [unknown-name]
    test.rhai:2:5: `sqrt` takes 1 argument, not 2
      2 |     sqrt(s.queue_depth, 2)
        |     ^^^^ [unknown-name]
    test.rhai:2:25: in `route`: `*` does not work on a text and a whole number
      2 |     s.queue_depth + "x" * 2
        |                         ^ [unknown-name]
    test.rhai:2:6: in `route`: a truth value is needed here, not a column; `&` and `|` combine columns, `any(column)` and `all(column)` make a truth value of one
      2 |     s.queue_depth && s.batch_size
        |      ^ [trap]
    test.rhai:2:22: in `route`: a truth value is needed here, not a column; `&` and `|` combine columns, `any(column)` and `all(column)` make a truth value of one
      2 |     if s.queue_depth > 1 { 0 } else { 1 }
        |                      ^ [trap]
    test.rhai:2:18: in `route`: there is no index 4: the column has the indices 0 to 3
      2 |     s.queue_depth[4]
        |                  ^ [trap]
    test.rhai:2:18: in `route`: there is no index -1: the column has the indices 0 to 3
      2 |     s.queue_depth[-1]
        |                  ^ [trap]
    test.rhai:2:6: in `route`: there is no instance 9: there are 4
      2 |     s[9].queue_depth
        |      ^ [trap]
    test.rhai:2:23: in `route`: there is no index 7: the array has the indices 0 to 1
      2 |     let a = [1, 2]; a[7]
        |                       ^ [trap]
    test.rhai:2:19: in `route`: one column has 4 entries and the other 2; only columns over the same things go together
      2 |     s.queue_depth + r.blocks
        |                   ^ [trap]
    test.rhai:2:16: in `route`: `+` does not work on nothing and a whole number; nothing, `()`, is what a missing entry or field holds: give another value with `??`
      2 |     this.turns + 1
        |                ^ [unknown-name]
    test.rhai:2:16: in `route`: nothing has no field `x`: nothing, `()`, is what a missing entry or field holds
      2 |     this.homes.x.y
        |                ^ [unknown-name]
    test.rhai:2:7: in `route`: `queue_depth` of a cluster cannot be changed
      2 |     s.queue_depth = 1; 0
        |       ^^^^^^^^^^^ [unknown-name]
    test.rhai:2:25: in `route`: Addition overflow: 9223372036854775807 + 9; whole numbers have 64 bits: count in numbers with a fraction (`float(x)`)
      2 |     9223372036854775807 + r.id
        |                         ^ [trap]
    test.rhai:2:7: in `route`: Division by zero: 1 / 0; whole numbers cannot be divided by zero: check first, or divide by a number with a fraction (`x / float(y)`)
      2 |     1 / (r.id - 9)
        |       ^ [trap]
    test.rhai:2:10: in `route`: Modulo division by zero or overflow: 9 % 0; whole numbers cannot be divided by zero: check first, or divide by a number with a fraction (`x / float(y)`)
      2 |     r.id % (r.id - 9)
        |          ^ [trap]
    test.rhai:2:18: in `route`: `A` is a constant and cannot be changed
      2 | fn route(r, s) { A = 2; 0 }
        |                  ^ [trap]
    test.rhai:2:18: in `route`: `alpha` is a constant and cannot be changed
      2 | fn route(r, s) { alpha += 2; 0 }
        |                  ^^^^^ [trap]
    test.rhai:2:5: there is no function `sleep`; did you mean `select`?
      2 |     sleep(1000)
        |     ^^^^^ [unknown-name]
    test.rhai:2:5: there is no function `exit`; did you mean `extract`?
      2 |     exit()
        |     ^^^^ [unknown-name]
    test.rhai:2:5: there is no function `timestamp`
      2 |     timestamp()
        |     ^^^^^^^^^ [unknown-name]
    test.rhai:2:5: in `route`: `log` of one argument writes a text to the log of the run; logarithms are ln(x), log10(x), log2(x)
      2 |     log(2.0)
        |     ^^^ [trap]
    test.rhai:2:5: in `route`: `pick` needs 1 choice or more, not 0
      2 |     pick(0)
        |     ^^^^ [trap]
    test.rhai:2:10: in `route`: a function is needed here, not a text
      2 |     call("route")
        |          ^ [trap]
    test.rhai:2:7: in `helper`: a column has no field `nothing`
      2 |     x.nothing
        |       ^^^^^^^
      called from `route` in line 5 [unknown-name]
    test.rhai:1:15: in `helper`: `this` is known in functions that the host calls; call a helper as `this.helper(…)` to hand it on
      1 | fn helper() { this.x }
        |               ^^^^
      called from `route` in line 3 [trap]
    test.rhai:2:68: in `route`: it threw: [1.0, 2.0, NaN]
      2 |     let a = [1.0, 0.0/0.0, 2.0]; a.sort(|x, y| x / 0.0); a.sort(); throw a;
        |                                                                    ^^^^^ [trap]
    "#);
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
        load_fault("const A = [1][3];\nfn route(r, s) { A }"),
        load_fault("loop { }\nfn route(r, s) { 0 }"),
        load_fault(&deep),
        load_fault(&nested),
        load_fault(&sum),
        load_fault("// @parm alpha 1 0 2\nfn route(r, s) { 0 }"),
    ]), @r#"
    test.rhai:1:22: Unexpected '}'
      1 | fn route(r, s) { 1 + }
        |                      ^ [syntax]
    test.rhai:3:5: expected ';' to terminate this statement: is the `;` missing?
      3 |     x
        |     ^ [syntax]
    test.rhai:1:19: expected ';' to terminate this statement: is the `;` missing?
      1 | fn route(r, s) { 0
        |                   ^ [syntax]
    test.rhai:1:18: there is no `alhpa` here; did you mean `alpha`? a function or closure sees what it is given, `this`, parameters (`// @param`) and constants (`const x = …;` outside of functions), and no variable around it
      1 | fn route(r, s) { alhpa * 2 }
        |                  ^^^^^ [syntax]
    test.rhai:2:18: there is no `x` here: a function or closure sees what it is given, `this`, parameters (`// @param`) and constants (`const x = …;` outside of functions), and no variable around it
      2 | fn route(r, s) { x }
        |                  ^ [syntax]
    test.rhai:1:18: `eval` is not available to policies
      1 | fn route(r, s) { eval("1") }
        |                  ^^^^ [syntax]
    test.rhai:1:18: there is no `print`: `log(text)` writes to the log of the run
      1 | fn route(r, s) { print(1); 0 }
        |                  ^^^^^ [syntax]
    test.rhai:1:1: `import` is not available to policies
      1 | import "x" as y;
        | ^^^^^^ [syntax]
    test.rhai:1:15: in `the script`: there is no index 3: the array has the indices 0 to 0
      1 | const A = [1][3];
        |               ^ [trap]
    test.rhai:1:1: in `the script`: more than 1000000 steps in one call: does a loop not end?
      1 | loop { }
        | ^^^^ [out-of-fuel]
    test.rhai:1:40: expressions or blocks are nested too deeply: use more variables
      1 | fn route(r, s) { (((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((…
        |                                        ^ [too-deep]
    test.rhai:1:168: expressions or blocks are nested too deeply: use more variables
      1 | …if true { if true { if true { if true { if true { if true { if true { if true { if true { if true { …
        |                                                    ^^ [too-deep]
    test.rhai:1:192: expressions or blocks are nested too deeply: use more variables
      1 | …1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + …
        |                                                    ^ [too-deep]
    test.rhai:1:1: there is no `@parm`; did you mean `@param`?
      1 | // @parm alpha 1 0 2
        | ^^^^^^^^^^^^^^^^^ [syntax]
    "#);
}

#[test]
fn what_is_no_policy_is_named() {
    insta::assert_snapshot!(all(&[
        load_fault(""),
        load_fault("fn rout(r, s) { 0 }"),
        load_fault("fn route(r, s, x) { 0 }"),
        load_fault("fn priority() { 0 }"),
        load_fault("fn route(r, s) { 0 }\nfn observe(e) { }"),
        load_fault("// @events routed\nfn route(r, s) { 0 }"),
        load_fault("fn route(r, s) { 0 }\nfn constants() { #{} }"),
        load_fault(&"x".repeat(10 << 20)),
    ]), @r"
    test.rhai: it has none of the functions that policies are made of: admit(r, s), route(r, s), filter(r, s), priority(r), rank(r, q), victim(b), step_time(b), budget(v), and for flow control saturation(s), ceilings(saturation, b), fair_pick(b, f), order(r, expires), evict(b, f), and for autoscaling scale(g), drain(g, r), placement(r, n), and for KV tiers keep(c), store(t, c), load(h), and for prefill apart from decode disaggregate(r, d, p, link) [missing-export]
    test.rhai:1:4: it has none of the functions that policies are made of: admit(r, s), route(r, s), filter(r, s), priority(r), rank(r, q), victim(b), step_time(b), budget(v), and for flow control saturation(s), ceilings(saturation, b), fair_pick(b, f), order(r, expires), evict(b, f), and for autoscaling scale(g), drain(g, r), placement(r, n), and for KV tiers keep(c), store(t, c), load(h), and for prefill apart from decode disaggregate(r, d, p, link); did you mean `route`?
      1 | fn rout(r, s) { 0 }
        |    ^^^^ [missing-export]
    test.rhai:1:4: route takes 2 parameters (r, s); line 1 has 3
      1 | fn route(r, s, x) { 0 }
        |    ^^^^^ [missing-export]
    test.rhai:1:4: priority takes 1 parameter (r); line 1 has 0
      1 | fn priority() { 0 }
        |    ^^^^^^^^ [missing-export]
    test.rhai:2:4: `observe` is never called: name its events, as in `// @events completed, routed`
      2 | fn observe(e) { }
        |    ^^^^^^^ [missing-export]
    test.rhai: it subscribes to events (`// @events`) but has no function `observe(e)` [missing-export]
    test.rhai:2:4: `constants` belongs to a latency model, which has `step_time(b)`
      2 | fn constants() { #{} }
        |    ^^^^^^^^^ [missing-export]
    test.rhai: it has more than 262144 bytes, which is more than a script may have [unreadable]
    ");
}

#[test]
fn a_script_that_cannot_start_says_so() {
    let start = |source: &str| {
        let plugin = script(source).unwrap();
        plugin.start(&setup(Kind::Routing, plugin.as_ref())).unwrap_err()
    };
    insta::assert_snapshot!(all(&[
        start("fn init() { 5 } fn route(r, s) { 0 }"),
        start("fn init(info) {\n    info.model_facts.nothing * 2\n}\nfn route(r, s) { 0 }"),
        start("fn init() { loop {} } fn route(r, s) { 0 }"),
    ]), @r"
    test.rhai:1:1: init returned a whole number; it must return the state, an object map `#{…}`
      1 | fn init() { 5 } fn route(r, s) { 0 }
        | ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ [refused]
    test.rhai:2:30: in `init`: `*` does not work on nothing and a whole number; nothing, `()`, is what a missing entry or field holds: give another value with `??`
      2 |     info.model_facts.nothing * 2
        |                              ^ [unknown-name]
    test.rhai:1:13: in `init`: more than 1000000 steps in one call: does a loop not end?
      1 | fn init() { loop {} } fn route(r, s) { 0 }
        |             ^^^^ [out-of-fuel]
    ");
    let mut guest = guest(Kind::Routing, "fn route(r, s) { 0 }");
    insta::assert_snapshot!(all(&[
        guest.restore(b"nonsense").unwrap_err(),
    ]), @r"
    test.rhai: the state cannot be restored: it is damaged, or not a state of a script [refused]
    ");
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
    insta::assert_snapshot!(faults.concat(), @r"
    …/latin.rhai: line 2 is not UTF-8 text: is this a script? [unreadable]
    …/large.rhai: it has more than 262144 bytes, which is more than a script may have [unreadable]
    …/none.rhai: it cannot be read: No such file or directory (os error 2) [unreadable]
    ");
}

/// Simulations run on threads with small stacks.
#[test]
fn nothing_takes_more_than_a_small_stack() {
    let attacks = || {
        let service = ScriptService::idle(4);
        for body in [
            "let a = []; loop { a = [a]; }",
            "let m = #{}; loop { m = #{ m: m }; }",
            "for i in 0..1000 { this.a = [this.a ?? 0]; } 0",
            "for i in 0..500 { this.m = #{ m: this.m ?? 0 }; } 0",
        ] {
            let mut guest = router(body);
            for _ in 0..2 {
                let _ = route_on(guest.as_mut(), &service);
                let _ = guest.save();
            }
        }
        let nested =
            format!("fn f(n) {{ {}f(n + 1){} }}\nfn route(r, s) {{ f(0) }}", "1 + (".repeat(18), ")".repeat(18));
        assert_eq!(route_fault(&nested).kind, FaultKind::TooDeep);
        let blocks = format!(
            "fn f(n) {{ {}f(n + 1){} }}\nfn route(r, s) {{ f(0) }}",
            "if n >= 0 { ".repeat(10),
            " }".repeat(10)
        );
        assert_eq!(route_fault(&blocks).kind, FaultKind::TooDeep);
        for source in ["(".repeat(40_000), "[".repeat(40_000), "{".repeat(40_000), "fn f() { if x { ".repeat(200)] {
            assert!(matches!(load_fault(&source).kind, FaultKind::Syntax | FaultKind::TooDeep));
        }
    };
    std::thread::Builder::new().stack_size(2 << 20).spawn(attacks).unwrap().join().unwrap();
}

proptest! {
    #[test]
    fn any_text_is_a_script_or_a_fault(source in r#"(fn |route|\(r, s\)|\{|\}|;|let x = |[a-z]|[0-9]|"|`|'|\$|\.|\(|\)|\||#|// @param |\n| |é|=|\+){0,60}"#) {
        if let Err(fault) = script(&source) {
            prop_assert!(fault.message().starts_with("test.rhai:"), "{}", fault);
        }
    }
}

/// The bounds were compared as numbers with a fraction, in which these are equal; then the standard library panicked.
#[test]
fn bounds_of_clamp_are_compared_exactly() {
    let fault = body_fault("clamp(0, 9007199254740993, 9007199254740992)");
    assert!(fault.to_string().contains("`clamp` needs two numbers, the smaller first"), "{fault}");
}

/// These looked at 65536 numbers or bytes for the price of one operation: a loop of them took longer than the wall clock
/// allows.
#[test]
fn what_looks_at_all_of_a_value_is_charged_for_it() {
    for (value, call) in [
        ("zeros(65536)", "any(x)"),
        ("ones(65536)", "all(x)"),
        ("ones(65536)", "x.count()"),
        ("ones(65536)", "x.contains(2)"),
        ("ones(65536)", "2.5 in x"),
        ("{ let t = \"\"; t.pad(8000, 'x'); t }", "hash(x)"),
        ("{ let t = \"\"; t.pad(8000, ' '); t }", "{ let y = x; y.trim(); }"),
        ("{ let t = \"\"; t.pad(8000, 'x'); t }", "x.get(7999)"),
        ("{ let t = \"\"; t.pad(8000, '0'); t }", "parse_int(x)"),
        ("{ let t = \"\"; t.pad(8000, '0'); t }", "parse_float(x)"),
    ] {
        // With fewer operations than usual, and as many numbers for each: the loop ends sooner.
        let limits = Limits { operations_per_call: 50_000, ..Limits::default() };
        let source = format!("fn route(r, s) {{ let x = {value}; loop {{ {call}; }} }}");
        let plugin = load(Path::new("test.rhai"), &source, &limits).expect("it compiles");
        let fault = route_on(start(Kind::Routing, plugin.as_ref()).as_mut(), &ScriptService::idle(4));
        let fault = fault.expect_err(call);
        assert_eq!(fault.kind, FaultKind::OutOfFuel, "{call}: {fault}");
        assert!(!fault.to_string().contains("steps"), "charged by what they look at: {call}: {fault}");
    }
}

/// The text of the fault of loading `source`.
fn load_text(source: &str) -> String {
    load_fault(source).to_string()
}

/// Only names behind `r` and `s` themselves were checked.
#[test]
fn names_in_branches_that_are_not_taken_are_checked() {
    let bad = [
        ("s[0].nosuch", "test.rhai:1:34: an instance has no field `nosuch`"),
        ("s[ s.len - 1 ] .queue_dept", "did you mean `queue_depth`?"),
        ("for x in s { x.nosuch; }", "an instance has no field `nosuch`"),
        ("for (x, i) in s { x.nosuch; }", "an instance has no field `nosuch`"),
        ("let z = s; z.nosuch", "a cluster has no field `nosuch`"),
        ("let z = s; let y = z[0]; y.nosuch", "an instance has no field `nosuch`"),
        ("s.in_flight.nosuch()", "test.rhai:1:41: there is no function `nosuch`"),
        ("s.in_flight.medain()", "did you mean `median`?"),
        ("this.helper(1)", "there is no function `helper`"),
        ("s[0].queue_depth.nosuch()", "there is no function `nosuch`"),
    ];
    for (body, expected) in bad {
        let text = load_text(&format!("fn route(r, s) {{ if false {{ {body} }} -s.in_flight }}"));
        assert!(text.contains(expected), "{body}: {text}");
    }
    let good = [
        "let m = #{ r: #{ any: 1 } }; m.r.any",
        "let m = #{ f: |x| x }; m.f(1)",
        "let m = #{}; m.f = |x| x; m.f(1)",
        "let m = #{}; m[\"f\"] = |x| x; m.f(1)",
        "let z = s; z = #{ a: 1 }; z.a",
        "let s = #{ a: 1 }; s.a",
        "let z = s; if true { let z = #{ a: 1 }; z.a }",
        "let z = s; [#{ a: 1 }].map(|z| z.a); [#{ a: 1 }].map(|y, z| z); z.len",
        "let z = #{ a: [#{ b: 1 }] }; z.a[0].b",
        "for x in [#{ a: 1 }] { x.a; }",
        "for (x, i) in [#{ a: 1 }] { x.a; }",
        "s[0].queue_depth.sqrt(); s[0].index",
    ];
    for body in good {
        let source = format!("fn route(r, s) {{ if false {{ {body} }} -s.in_flight }}");
        script(&source).unwrap_or_else(|fault| panic!("{body}: {fault}"));
    }
}

/// The compiler takes the square of some of it.
#[test]
fn what_takes_long_to_load_is_refused_before() {
    let body = |body: String| format!("fn route(r, s) {{ {body} -s.in_flight }}");
    let list = |n: usize, one: &dyn Fn(usize) -> String| (0..n).map(one).collect::<String>();
    let sources = [
        (body(list(8_000, &|_| "let v=s.queue_depth;".to_owned())), "words, numbers and signs"),
        (
            body(format!("switch r.id {{ {} _ => 0 }};", list(15_000, &|i| format!("{i}=>0,")))),
            "words, numbers and signs",
        ),
        (list(257, &|i| format!("fn f{i}(){{}}")) + "fn route(r, s) { 0 }", "has 258 functions"),
        (list(300, &|i| format!("const C{i}=0;")) + "fn route(r, s) { 0 }", "has 300 constants"),
        (
            format!("fn f({}) {{}} fn route(r, s) {{ 0 }}", list(33, &|i| format!("a{i},"))),
            "parameters of one function",
        ),
        (format!("//{}", "x".repeat(256 << 10)), "more than 262144 bytes"),
    ];
    for (source, expected) in sources {
        let text = load_text(&source);
        assert!(text.contains(expected), "{text}");
    }
}

/// Each of these took seconds within all limits.
#[test]
fn loops_and_comparisons_are_charged_by_what_they_touch() {
    let sorted = "let a = []; for i in 0..4000 { a.push(hash(i)); } a.sort_by(|x, y| x - y); 0";
    let logged = "for i in 0..20000 { log(\"a line that is long\"); } 0";
    let looped = "for i in 0..40000 { for x in s { break; } } 0";
    for body in [sorted, logged, looped] {
        let fault = body_fault(body);
        assert_eq!(fault.kind, FaultKind::OutOfFuel, "{fault}");
        assert!(fault.to_string().contains("16000000 numbers"), "{fault}");
    }
}

/// `to_int` of not-a-number was 0, and that of 2^63 the largest number.
#[test]
fn to_int_refuses_what_does_not_fit() {
    for x in ["0.0/0.0", "9223372036854775808.0", "-1e300", "1.0/0.0"] {
        assert!(body_fault(&format!("to_int({x})")).to_string().contains("whole numbers have 64 bits"), "{x}");
    }
}

/// The index of not-a-number was 0 if it came first.
#[test]
fn not_a_number_has_no_index() {
    for body in ["argmax(column([0.0/0.0, 2, 3]))", "argmin(column([1, 0.0/0.0]))"] {
        assert!(body_fault(body).to_string().contains("not-a-number (NaN) at index"), "{body}");
    }
}

/// Invisible characters and those that change the order of text came through, in excerpts as well.
#[test]
fn invisible_characters_are_not_shown() {
    let text = body_fault("/* \u{202e}\u{200b} */ throw \"\u{2066}a\u{ad}b\u{feff}\"").to_string();
    assert!(!text.contains(crate::text::is_invisible), "{text:?}");
    assert!(text.contains("a b"), "{text}");
    script("\u{feff}fn route(r, s) { 0 }").unwrap_or_else(|fault| panic!("a mark of editors: {fault}"));
}

/// Names of Rust types and hundreds of digits were shown.
#[test]
fn messages_name_what_scripts_know() {
    let messages = [
        ("throw column(3, 0.5);", "it threw: [0.5, 0.5, 0.5]"),
        ("throw r;", "it threw: a request"),
        ("throw s;", "it threw: a cluster"),
        ("throw [s[0], |x| x];", "it threw: [an instance, a function]"),
        ("1e300", "route returned 1e300;"),
        ("let t = \"\"; t.pad(9223372036854775807, \"bc\"); 0", "a text of more than 8192 bytes"),
        ("let f = |a, b| a; f.call(1)", "the closure does not take 1 argument"),
    ];
    for (body, expected) in messages {
        let text = body_fault(body).to_string();
        assert!(text.contains(expected) && !text.contains("::"), "{text}");
    }
}

/// One of the two hid the other.
#[test]
fn names_that_hide_others_are_refused() {
    let sources = [
        ("// @param s 1 0 2\nfn route(r, s) { 0 }", "`route` has the argument `s`, which hides the parameter"),
        ("// @param x 1 0 2\nconst x = 5;\nfn route(r, s) { 0 }", "test.rhai:2:7: `x` is a parameter of the script"),
        ("// @param x 1 0 2\nlet x = 5;\nfn route(r, s) { 0 }", "`x` is a parameter of the script"),
        ("// @name ../x\nfn route(r, s) { 0 }", "a name has letters, digits"),
        ("fn max(x) { 7.0 }\nfn route(r, s) { 0 }", "test.rhai:1:4: `max` is a function of the host"),
    ];
    for (source, expected) in sources {
        let text = load_text(source);
        assert!(text.contains(expected), "{text}");
    }
}

/// Such scripts ended at the limit of wall-clock time only.
#[test]
fn texts_of_large_values_are_priced() {
    let limits = Limits { operations_per_call: 20_000, ..Limits::default() };
    let fault = |setup: &str, body: &str| {
        let source = format!(
            "fn route(r, s) {{ 0 }}\nfn test_text() {{ let a = []; {setup} {body} assert(false, `no limit`); }}"
        );
        let tests = load(Path::new("test.rhai"), &source, &limits).and_then(|plugin| plugin.run_tests(&limits));
        tests.unwrap().remove(0).outcome.unwrap_err()
    };
    let large = "let c = column(65536, 1.5); for i in 0..200 { a = [a]; }";
    for endless in ["`${a}`", "a.to_string()", "\"\" + a", "`${c}`", "log(a)"] {
        let fault = fault(large, &format!("loop {{ {endless}; }}"));
        assert!(fault.contains("it handled more than") || fault.contains("it copied more than"), "{endless}: {fault}");
    }
    let long = "a.pad(40, column(256, 1.5));";
    for text in ["`${a}`", "a.to_string()", "\"\" + a", "`${#{ a: a }}`"] {
        let fault = fault(long, &format!("let t = {text};"));
        assert!(fault.contains("a text of more than 8192 bytes"), "{text}: {fault}");
    }
}

#[test]
fn a_state_keeps_nothing_that_cannot_be_saved() {
    insta::assert_snapshot!(all(&[
        route_fault("fn init() { #{ calls: 0 } }\nfn route(r, s) {\n    this.f = |x| x;\n    0\n}"),
        route_fault("fn init() { #{ seen: [] } }\nfn route(r, s) {\n    this.seen.push(#{ by: r });\n    0\n}"),
        route_fault("fn route(r, s) {\n    // this.last = 0\n    this.last = s;\n    0\n}"),
        load_or_start_fault("fn init() {\n    #{ score: |s| s.in_flight }\n}\nfn route(r, s) { 0 }"),
        body_fault("let a = []; for i in 0..100 { a = [a]; } this.deep = a; 0"),
    ]), @r"
    test.rhai:3:5: in `route`: the state keeps what it cannot: this.f is a function, which cannot be saved or copied: keep numbers, texts, arrays, maps, columns and tables
      3 |     this.f = |x| x;
        |     ^^^^^^^^^^^^^^^ [refused]
    test.rhai:4:5: in `route`: the state keeps what it cannot: this.seen[0].by is a view of the host, which cannot be saved or copied: keep numbers, texts, arrays, maps, columns and tables
      4 |     0
        |     ^ [refused]
    test.rhai:3:5: in `route`: the state keeps what it cannot: this.last is a view of the host, which cannot be saved or copied: keep numbers, texts, arrays, maps, columns and tables
      3 |     this.last = s;
        |     ^^^^^^^^^^^^^^ [refused]
    test.rhai:2:5: in `init`: the state keeps what it cannot: this.score is a function, which cannot be saved or copied: keep numbers, texts, arrays, maps, columns and tables
      2 |     #{ score: |s| s.in_flight }
        |     ^^^^^^^^^^^^^^^^^^^^^^^^^^^ [refused]
    test.rhai:2:5: in `route`: the state keeps what it cannot: this.deep[0][0][0] … is nested deeper than 64 levels
      2 |     let a = []; for i in 0..100 { a = [a]; } this.deep = a; 0
        |     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ [refused]
    ");
}

fn load_or_start_fault(source: &str) -> Fault {
    let plugin = script(source).unwrap_or_else(|fault| panic!("{fault}"));
    let setup = setup(Kind::Routing, plugin.as_ref());
    plugin.start(&setup).map(|_| panic!("it started")).unwrap_err()
}

/// The language makes a number with a fraction, or a negative one, of them.
#[test]
fn whole_numbers_of_more_than_64_bits_are_refused() {
    insta::assert_snapshot!(all(&[
        load_fault("fn route(r, s) {\n    9223372036854775808\n}"),
        load_fault("fn route(r, s) {\n    let t = `is ${99999999999999999999}`;\n    0\n}"),
        load_fault("const X = 0xffff_ffff_ffff_ffff;\nfn route(r, s) { X }"),
        load_fault("fn route(r, s) { 0x1_0000_0000_0000_0000 }"),
        load_fault("fn route(r, s) {\n    let t = `0xffffffffffffffff ${`${\"0xffffffffffffffff\"} ${1 + 0xffff_ffff_ffff_ffff}`}`;\n    0\n}"),
    ]), @r#"
    test.rhai:2:5: `9223372036854775808` is more than whole numbers hold, up to 9223372036854775807: write one with a fraction, as in `1e19`
      2 |     9223372036854775808
        |     ^^^^^^^^^^^^^^^^^^^ [syntax]
    test.rhai:2:19: `99999999999999999999` is more than whole numbers hold, up to 9223372036854775807: write one with a fraction, as in `1e19`
      2 |     let t = `is ${99999999999999999999}`;
        |                   ^^^^^^^^^^^^^^^^^^^^ [syntax]
    test.rhai:1:11: `0xffff_ffff_ffff_ffff` is more than whole numbers hold, up to 9223372036854775807: write one with a fraction, as in `1e19`
      1 | const X = 0xffff_ffff_ffff_ffff;
        |           ^^^^^^^^^^^^^^^^^^^^^ [syntax]
    test.rhai:1:18: `0x1_0000_0000_0000_0000` is more than whole numbers hold, up to 9223372036854775807: write one with a fraction, as in `1e19`
      1 | fn route(r, s) { 0x1_0000_0000_0000_0000 }
        |                  ^^^^^^^^^^^^^^^^^^^^^^^ [syntax]
    test.rhai:2:66: `0xffff_ffff_ffff_ffff` is more than whole numbers hold, up to 9223372036854775807: write one with a fraction, as in `1e19`
      2 |     let t = `0xffffffffffffffff ${`${"0xffffffffffffffff"} ${1 + 0xffff_ffff_ffff_ffff}`}`;
        |                                                                  ^^^^^^^^^^^^^^^^^^^^^ [syntax]
    "#);
    assert_eq!(value_of("-9223372036854775808"), "-9223372036854775808");
    assert_eq!(value_of("-1"), "-1");
    assert_eq!(value_of("9223372036854775807"), "9223372036854775807");
    assert_eq!(value_of("0x7fff_ffff_ffff_ffff"), "9223372036854775807");
    assert_eq!(value_of("1e19"), "1e19");
}

#[test]
fn a_number_has_the_same_text_everywhere() {
    for number in ["-0.0", "0.0", "1e21", "1e-14", "0.0000001", "-1.5", "12345678901.0", "inf", "-inf"] {
        let written = match number {
            "inf" => "(1.0 / 0.0)",
            "-inf" => "(-1.0 / 0.0)",
            number => number,
        };
        let number = if number == "-0.0" { "0.0" } else { number };
        assert_eq!(value_of(written), number);
        assert_eq!(value_of(&format!("({written}).to_string()")), number);
        assert_eq!(value_of(&format!("\"\" + {written}")), number);
        assert_eq!(value_of(&format!("let x = {written}; [x, column(1, x)]")), format!("[{number}, [{number}]]"));
        let thrown = body_fault(&format!("throw {written}")).to_string();
        assert!(thrown.contains(&format!("it threw: {number}\n")), "{thrown}");
    }
    // The compiler evaluates texts of constants, with other texts of numbers inside of arrays.
    let loads = |source: &str| script(source).map(|_| ()).map_err(|fault| fault.to_string());
    for source in [
        "fn route(r, s) { log(`${[1.5, 2e9, 0.25]} ${#{ a: [7] }}`); 0 }",
        "fn route(r, s) { let list = [1e15]; log(`${list}`); log(`100000000000000.0 ${r.id}`); 0 }",
        "fn route(r, s) { log(`${[1e15]} ${r.id}`); 0 }",
    ] {
        assert_eq!(loads(source), Ok(()), "{source}");
    }
    insta::assert_snapshot!(all(&[
        load_fault("fn route(r, s) {\n    log(`é ${[1e15]}`);\n    0\n}"),
        load_fault("const A = #{ a: 1e-6 };\nfn route(r, s) { log(`${A}`); 0 }"),
        load_fault("// @param big 1e15 0 1e16\nfn route(r, s) { log(`${[big]}`); 0 }"),
    ]), @r"
    test.rhai:2:9: numbers of this array or object map would be written in another way than elsewhere, because the whole text is constant: write a variable into it, as in let list = [1e15]; log(`${list}`)
      2 |     log(`é ${[1e15]}`);
        |         ^ [syntax]
    test.rhai:2:22: numbers of this array or object map would be written in another way than elsewhere, because the whole text is constant: write a variable into it, as in let list = [1e15]; log(`${list}`)
      2 | fn route(r, s) { log(`${A}`); 0 }
        |                      ^ [syntax]
    test.rhai:2:22: numbers of this array or object map would be written in another way than elsewhere, because the whole text is constant: write a variable into it, as in let list = [1e15]; log(`${list}`)
      2 | fn route(r, s) { log(`${[big]}`); 0 }
        |                      ^ [syntax]
    ");
    assert_eq!(
        value_of("#{ a: \"it's \\\"so\\\"\", b: ['x', (), true] }"),
        r#"#{"a": "it's \"so\"", "b": ['x', (), true]}"#
    );
}

/// One message named a day as the limit, another an hour.
#[test]
fn constants_of_latency_models_have_one_limit() {
    let fault = |constants: &str| {
        let source = format!("fn step_time(b) {{ 100 }}\nfn constants() {{\n    {constants}\n}}");
        guest(Kind::Latency, &source).constants().unwrap_err()
    };
    insta::assert_snapshot!(all(&[
        fault("#{ output_token_us: 3_600_000_001 }"),
        fault("#{ shortest_step_us: 0 }"),
        fault("#{ shortest_step_us: 1e15 }"),
        fault("#{ preemption_us: -1 }"),
    ]), @r"
    test.rhai:3:5: output_token_us is 3600000001; it must be from 0 to 3600000000 µs
      3 |     #{ output_token_us: 3_600_000_001 }
        |     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ [out-of-range]
    test.rhai:3:5: shortest_step_us is 0; it must be from 1 to 86400000000 µs
      3 |     #{ shortest_step_us: 0 }
        |     ^^^^^^^^^^^^^^^^^^^^^^^^ [out-of-range]
    test.rhai:3:5: shortest_step_us is 1e15; it must be from 1 to 86400000000 µs
      3 |     #{ shortest_step_us: 1e15 }
        |     ^^^^^^^^^^^^^^^^^^^^^^^^^^^ [out-of-range]
    test.rhai:3:5: preemption_us is -1; it must be from 0 to 3600000000 µs
      3 |     #{ preemption_us: -1 }
        |     ^^^^^^^^^^^^^^^^^^^^^^ [out-of-range]
    ");
}

/// 9 000 parameters in 64 kB took the compiler 0.4 s, 24 000 took it 2.7 s: it takes the square of them, and of variables.
#[test]
fn lists_that_the_compiler_takes_the_square_of_are_refused() {
    let many = |count: usize, one: &str| (0..count).map(|i| one.replace('#', &i.to_string())).collect::<String>();
    let sources = [
        format!("fn f({}z) {{}} fn route(r, s) {{ 0 }}", many(24_000, "p#,")),
        format!("fn route(r, s) {{ let f = |{}z| 1; 0 }}", many(24_000, "p#,")),
        format!("fn route(r, s) {{ {} 0 }}", many(9_900, "let a# = 1;")),
    ];
    for source in sources {
        let fault = load_fault(&source);
        assert_eq!(fault.kind, FaultKind::OutOfFuel, "{fault}");
        assert!(fault.to_string().contains("a script may have"), "{fault}");
    }
    let fits = format!("fn f({}z) {{ z }} fn route(r, s) {{ 0 }}", many(31, "p#, "));
    assert!(script(&fits).is_ok());
}
