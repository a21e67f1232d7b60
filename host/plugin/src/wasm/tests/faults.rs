//! Plugins that are wrong or hostile: each ends with a reason, and the host goes on.

use super::*;

/// The fault of a file that does not load, or of its guest's first decision.
fn fault_of(way: Way, text: &str) -> Fault {
    let bytes = wat::parse_str(text).expect("the fixture assembles");
    let plugin = load_by(way, "router.wasm", &bytes);
    let guest = plugin.and_then(|plugin| router(plugin.as_ref(), &setup(Kind::Routing)));
    let Ok(mut guest) = guest else { return guest.expect_err("just looked") };
    route(guest.as_mut(), &[1, 0], &mut Vec::new()).expect_err("a hostile guest fails")
}

/// Checks that a correct guest still works in this process.
fn assert_alive() {
    let mut guest = start(LEAST_LOADED).expect("starts");
    assert_eq!(route(guest.as_mut(), &[1, 0], &mut Vec::new()), Ok(1));
}

#[test]
fn calls_that_go_wrong_end_with_a_reason() {
    let host = |function: &str, ty: &str| format!(r#"(import "blis:policy/host@1.0.0" "{function}" {ty})"#);
    let attacks: Vec<(&str, String)> = vec![
        ("loops for ever", routing("", "(loop $again (br $again))")),
        ("traps", routing("", "(unreachable)")),
        (
            "logs the reason, and traps",
            routing(LOG, "(call $log (i32.const 0) (i32.const 256) (i32.const 12)) (unreachable)"),
        ),
        (
            "calls itself",
            routing("(func $deeper (result i32) (i32.add (call $deeper) (i32.const 1)))", "(return (call $deeper))"),
        ),
        ("reads outside its memory", routing("", "(return (i32.load (i32.const 2000000000)))")),
        ("divides by zero", routing("", "(return (i32.div_u (i32.const 1) (local.get $count)))")),
        ("makes an integer of NaN", routing("", "(return (i32.trunc_f64_u (f64.const nan)))")),
        (
            "calls a function that is not there",
            routing(
                "(table 1 funcref) (type $f (func (result i32)))",
                "(return (call_indirect (type $f) (i32.const 0)))",
            ),
        ),
        ("allocates 2 GB", routing("", "(drop (memory.grow (i32.const 32768)))")),
        (
            "allocates a large table",
            routing("(table $t 1 funcref)", "(drop (table.grow $t (ref.null func) (i32.const 10000000)))"),
        ),
        (
            "fills its memory again and again",
            routing("", "(loop $again (memory.fill (i32.const 4096) (i32.const 1) (i32.const 120000)) (br $again))"),
        ),
        (
            "calls the host again and again",
            routing(&host("random", "(func $random (result i64))"), "(loop $again (drop (call $random)) (br $again))"),
        ),
        (
            "picks of nothing",
            routing(&host("pick", "(func $pick (param i32) (result i32))"), "(return (call $pick (i32.const 0)))"),
        ),
        (
            "logs what is not text",
            routing(
                LOG,
                "(i32.store (i32.const 4096) (i32.const 0xffff)) (call $log (i32.const 0) (i32.const 4096) (i32.const 2))",
            ),
        ),
        (
            "logs what it does not have",
            routing(LOG, "(call $log (i32.const 0) (i32.const 4096) (i32.const 2000000000))"),
        ),
        (
            "takes rows where there is no memory",
            changed(&[(
                "    (local.get $at))\n\n  (func $describe (export",
                "    (i32.const 0x7ffffff8))\n\n  (func $describe (export",
            )]),
        ),
        (
            "takes rows at odd addresses",
            changed(&[(
                "    (local.get $at))\n\n  (func $describe (export",
                "    (i32.const 4097))\n\n  (func $describe (export",
            )]),
        ),
    ];
    insta::assert_snapshot!(messages(&attacks), @r"
    # loops for ever
    router.wasm: route: used more than 50000000 instructions (fuel); look for a loop that does not end
      at route [out-of-fuel]
    # traps
    router.wasm: route: trapped (a panic, an abort, or `unreachable`)
      at route [trap]
    # logs the reason, and traps
    router.wasm: route: trapped (a panic, an abort, or `unreachable`)
      it logged: least-loaded
      at route [trap]
    # calls itself
    router.wasm: route: called functions too deeply; look for a recursion that does not end
      at deeper
      at deeper
      at deeper
      at deeper
      at deeper [too-deep]
    # reads outside its memory
    router.wasm: route: read or wrote outside its memory
      at route [trap]
    # divides by zero
    router.wasm: route: divided a whole number by zero
      at route [trap]
    # makes an integer of NaN
    router.wasm: route: made a whole number of one that has none (NaN, or too large)
      at route [trap]
    # calls a function that is not there
    router.wasm: route: called a function that is not there
      at route [trap]
    # allocates 2 GB
    router.wasm: route: needed 2147614720 bytes of memory; the limit is 67108864
      at route [out-of-memory]
    # allocates a large table
    router.wasm: route: needed 10000001 elements of tables; the limit is 100000
      at route [out-of-memory]
    # fills its memory again and again
    router.wasm: route: used more than 50000000 instructions (fuel); look for a loop that does not end
      at route [out-of-fuel]
    # calls the host again and again
    router.wasm: route: used more than 50000000 instructions (fuel); look for a loop that does not end
      at route [out-of-fuel]
    # picks of nothing
    router.wasm: route: violated its interface: host.pick(0): there must be something to choose from
      at route [trap]
    # logs what is not text
    router.wasm: route: violated its interface: invalid utf-8 sequence of 1 bytes from index 0
      at route [trap]
    # logs what it does not have
    router.wasm: route: violated its interface: string pointer/length out of bounds of memory
      at route [trap]
    # takes rows where there is no memory
    router.wasm: configure: violated its interface: realloc return: beyond end of memory [trap]
    # takes rows at odd addresses
    router.wasm: configure: violated its interface: realloc return: result not aligned [trap]
    ");
}

/// The messages for each of `attacks`, which are equal for both ways to call functions.
fn messages(attacks: &[(&str, String)]) -> String {
    let line = |(name, text): &(&str, String)| {
        let fault = fault_of(Way::Fastest, text);
        // A component has a frame of its own around host functions.
        let mut typed = fault_of(Way::Typed, text);
        let excerpt = typed.diagnostic.excerpt.take().map(|lines| lines.replace("\n  at function 0", ""));
        typed.diagnostic.excerpt = excerpt.filter(|lines| !lines.is_empty()).map(Into::into);
        assert_eq!(fault, typed, "{name}");
        assert_alive();
        format!("# {name}\n{fault}\n")
    };
    attacks.iter().map(line).collect()
}

#[test]
fn files_that_do_not_fit_are_refused_with_a_reason() {
    let attacks: Vec<(&str, String)> = vec![
        (
            "imports WASI",
            routing(
                r#"(import "wasi_snapshot_preview1" "clock_time_get" (func (param i32 i64 i32) (result i32)))"#,
                "",
            ),
        ),
        ("imports another interface", routing(r#"(import "blis:policy/clock@1.0.0" "now" (func (result i64)))"#, "")),
        ("imports another function", routing(r#"(import "blis:policy/host@1.0.0" "time" (func (result i64)))"#, "")),
        ("imports another type", routing(r#"(import "blis:policy/host@1.0.0" "random" (func (result i32)))"#, "")),
        (
            "component that imports WASI",
            r#"(component (import "wasi:cli/environment@0.2.0" (instance (export "get-environment" (func)))))"#
                .to_owned(),
        ),
        (
            "component that imports another function",
            r#"(component
                (import "blis:policy/host@1.0.0" (instance (export "time" (func (result u64)))))
                (instance (export "blis:policy/plugin@1.0.0")))"#
                .to_owned(),
        ),
        (
            "component that imports another type",
            r#"(component
                (import "blis:policy/host@1.0.0" (instance (export "random" (func (result u32)))))
                (instance (export "blis:policy/plugin@1.0.0")))"#
                .to_owned(),
        ),
        ("built for the future", changed(&[("@1.0.0#", "@2.0.0#")])),
        ("built for the past", changed(&[("@1.0.0#", "@0.9.1#")])),
        ("built for no version", changed(&[("@1.0.0#", "#")])),
        ("component built for the future", r#"(component (instance (export "blis:policy/plugin@2.0.0")))"#.to_owned()),
        ("exports an unknown interface", changed(&[("routing@1.0.0#", "teleport@1.0.0#")])),
        ("lacks describe", changed(&[("plugin@1.0.0#describe", "describe")])),
        ("lacks scores", changed(&[("routing-scores@1.0.0#scores", "scores")])),
        ("reads a column of a later version", changed(&[("\"queue-depth\"", "\"queue-width\"")])),
        (
            "built for a later version, of which it reads a column",
            changed(&[("@1.0.0#", "@1.2.0#"), ("\"queue-depth\"", "\"queue-width\"")]),
        ),
        ("lacks cabi_realloc", changed(&[("(export \"cabi_realloc\")", "")])),
        ("lacks the memory", changed(&[("(export \"memory\")", "")])),
        ("lacks routing", changed(&[("blis:policy/routing@1.0.0#", "")])),
        (
            "route takes two numbers",
            changed(&[("#route\") (param $at i32)", "#route\") (param $at i32) (param $more i32)")]),
        ),
        ("exports nothing", "(module)".to_owned()),
        ("component that exports nothing", "(component)".to_owned()),
        ("component without describe", r#"(component (instance (export "blis:policy/plugin@1.0.0")))"#.to_owned()),
        (
            "starts for ever",
            changed(&[("(global $top", "(func $begin (loop $again (br $again))) (start $begin)\n  (global $top")]),
        ),
        ("begins with 2 GB", changed(&[("(export \"memory\") 2)", "(export \"memory\") 32768)")])),
        ("begins with data outside its memory", changed(&[("(data (i32.const 256)", "(data (i32.const 200000)")])),
    ];
    insta::assert_snapshot!(messages(&attacks), @r#"
    # imports WASI
    router.wasm: imports wasi_snapshot_preview1/clock_time_get: policies get no files, clock or network, only blis:policy/host; build it for wasm32-unknown-unknown [forbidden-import]
    # imports another interface
    router.wasm: imports blis:policy/clock@1.0.0, which does not exist; a policy may import blis:policy/host and nothing else [forbidden-import]
    # imports another function
    router.wasm: imports host.time, which does not exist; there are log, random, pick, prompt-blocks, text, changed [forbidden-import]
    # imports another type
    router.wasm: no component can be made of it: failed to validate import interface `blis:policy/host@1.0.0`: type mismatch for function `random`: expected `[] -> [I64]` but found `[] -> [I32]` [forbidden-import]
    # component that imports WASI
    router.wasm: imports wasi:cli/environment@0.2.0: policies get no files, clock or network, only blis:policy/host; build it for wasm32-unknown-unknown [forbidden-import]
    # component that imports another function
    router.wasm: imports host.time, which does not exist; there are log, random, pick, prompt-blocks, text, changed [forbidden-import]
    # component that imports another type
    router.wasm: speaks blis:policy 1.0.0, this host 1.1.0, and the two do not fit: imports functions of the host with other types: component imports instance `blis:policy/host@1.0.0`, but a matching implementation was not found in the linker: instance export `random` has the wrong type: type mismatch with results: expected `u64` found `u32`
    hint: rebuild it with sdk 1.1.0 (`blis plugin build`), or run it with the blis that it was built for [version-skew]
    # built for the future
    router.wasm: built for blis:policy 2.0, this host offers 1.1: rebuild it with sdk 1.1, or use a newer blis [version-skew]
    # built for the past
    router.wasm: built for blis:policy 0.9, this host offers 1.1: rebuild it with sdk 1.1 [version-skew]
    # built for no version
    router.wasm: does not say for which version of blis:policy it was built (""), this host offers 1.1: rebuild it with sdk 1.1 [version-skew]
    # component built for the future
    router.wasm: built for blis:policy 2.0, this host offers 1.1: rebuild it with sdk 1.1, or use a newer blis [version-skew]
    # exports an unknown interface
    router.wasm: exports blis:policy/teleport@1.0.0, which blis:policy 1.0.0 does not have [version-skew]
    # lacks describe
    router.wasm: speaks blis:policy 1.0.0, this host 1.1.0, and the two do not fit: does not export blis:policy/plugin@1.0.0#describe
    hint: rebuild it with sdk 1.1.0 (`blis plugin build`), or run it with the blis that it was built for [version-skew]
    # lacks scores
    router.wasm: does not export blis:policy/routing-scores, which its description requires [missing-export]
    # reads a column of a later version
    router.wasm: describe: column `queue-width` is not one of this host (interface 1.1): id, total-kv-blocks, max-num-seqs, queue-depth, batch-size, kv-utilization, free-kv-blocks, cache-hit-rate, preemption-count, in-flight, cached-blocks, in-flight-tokens, in-flight-output, cached-tokens-gpu, cached-tokens-cpu, cached-tokens-remote, waiting-tokens, running-tokens, role, group, price, ttft-ewma, itl-ewma, staleness, score, adapter-active, adapter-waiting, free-adapter-slots; correct the name, or use a newer blis [version-skew]
    # built for a later version, of which it reads a column
    router.wasm: describe: column `queue-width` is not one of this host (interface 1.1): id, total-kv-blocks, max-num-seqs, queue-depth, batch-size, kv-utilization, free-kv-blocks, cache-hit-rate, preemption-count, in-flight, cached-blocks, in-flight-tokens, in-flight-output, cached-tokens-gpu, cached-tokens-cpu, cached-tokens-remote, waiting-tokens, running-tokens, role, group, price, ttft-ewma, itl-ewma, staleness, score, adapter-active, adapter-waiting, free-adapter-slots; correct the name, or use a newer blis [version-skew]
    # lacks cabi_realloc
    router.wasm: does not export cabi_realloc [missing-export]
    # lacks the memory
    router.wasm: does not export memory [missing-export]
    # lacks routing
    router.wasm: does not export blis:policy/routing, which its description requires [missing-export]
    # route takes two numbers
    router.wasm: speaks blis:policy 1.0.0, this host 1.1.0, and the two do not fit: no component can be made of it: failed to validate export for `blis:policy/routing@1.0.0`: type mismatch for function `route`: expected `[I32] -> [I32]` but found `[I32, I32] -> [I32]`
    hint: rebuild it with sdk 1.1.0 (`blis plugin build`), or run it with the blis that it was built for [version-skew]
    # exports nothing
    router.wasm: exports nothing of blis:policy, so it is no policy; build it with sdk/rust or sdk/c [missing-export]
    # component that exports nothing
    router.wasm: exports nothing of blis:policy, so it is no policy; build it with sdk/rust or sdk/c [missing-export]
    # component without describe
    router.wasm: speaks blis:policy 1.0.0, this host 1.1.0, and the two do not fit: blis:policy/plugin@1.0.0 lacks the function describe
    hint: rebuild it with sdk 1.1.0 (`blis plugin build`), or run it with the blis that it was built for [version-skew]
    # starts for ever
    router.wasm: start: used more than 50000000 instructions (fuel); look for a loop that does not end
      at begin [out-of-fuel]
    # begins with 2 GB
    router.wasm: start: needed 2147483648 bytes of memory; the limit is 67108864 [out-of-memory]
    # begins with data outside its memory
    router.wasm: start: read or wrote outside its memory [trap]
    "#);
}

#[test]
fn what_is_not_webassembly_is_refused() {
    let good = wat::parse_str(LEAST_LOADED).expect("assembles");
    let component = componentize(Path::new("router.wasm"), &good).expect("becomes one");
    let unbalanced = wat::parse_str(routing("", "(i32.add)")).expect("assembles");
    let files: [(&str, &[u8]); 8] = [
        ("empty", b""),
        ("a script", b"fn route() { 0 }"),
        ("another format", b"\0asm\x0e\0\0\0"),
        ("cut in its head", &good[..6]),
        ("cut in the middle", &good[..good.len() / 2]),
        ("component cut in the middle", &component[..component.len() / 2]),
        ("no functions in a component", b"\0asm\x0d\0\x01\0\x08\xff"),
        ("code that does not validate", &unbalanced),
    ];
    let line = |(name, bytes): (&str, &[u8])| {
        let fault = load_bytes(bytes).map(|_| ()).expect_err(name);
        format!("# {name}\n{fault}\n")
    };
    insta::assert_snapshot!(files.into_iter().map(line).collect::<String>(), @r"
    # empty
    router.wasm: too short for a WebAssembly file [unreadable]
    # a script
    router.wasm: not a WebAssembly file: it must begin with the bytes 00 61 73 6d [unreadable]
    # another format
    router.wasm: WebAssembly of an unknown format, [0e, 00, 00, 00]; this host reads 1 and components (0d) [unreadable]
    # cut in its head
    router.wasm: too short for a WebAssembly file [unreadable]
    # cut in the middle
    router.wasm: broken WebAssembly at byte 555: unexpected end-of-file; build or download it again [syntax]
    # component cut in the middle
    router.wasm: broken WebAssembly at byte 3231: unexpected end-of-file; build or download it again [syntax]
    # no functions in a component
    router.wasm: broken WebAssembly at byte 10: unexpected end-of-file; build or download it again [syntax]
    # code that does not validate
    router.wasm: no component can be made of it: failed to validate component output: type mismatch: expected i32 but nothing on stack (at offset 0x34b) [syntax]
    ");
    assert_alive();
}

#[test]
fn nonsense_about_itself_is_refused() {
    let describe = |from: &str, to: &str| changed(&[(from, to)]);
    let about = r#""\20\01\00\00" "\0f\00\00\00""#;
    let parameters = r#""\00\02\00\00" "\01\00\00\00")"#;
    let attacks: Vec<(&str, String)> = vec![
        ("a name that is no text", describe("\"least-loaded\"", r#""\ff\fe\fdst-loaded""#)),
        ("a name with a bell in it", describe("\"least-loaded\"", r#""least\07loaded""#)),
        ("no name", describe(r#""\00\01\00\00" "\0c\00\00\00""#, r#""\00\01\00\00" "\00\00\00\00""#)),
        ("text outside its memory", describe(about, r#""\20\01\00\00" "\0f\00\00\70""#)),
        ("a long version", describe(r#""\10\01\00\00" "\05\00\00\00""#, r#""\00\10\00\00" "\00\00\01\00""#)),
        ("2^32 parameters", describe(parameters, r#""\00\02\00\00" "\ff\ff\ff\ff")"#)),
        // 5000 records of zeros within the memory.
        ("many parameters", describe(parameters, r#""\00\10\00\00" "\88\13\00\00")"#).replace("\") 2)", "\") 64)")),
        // Each record has the same text of 64 KB.
        ("text many times over", bomb()),
        ("no kind", describe(r#""\c0\02\00\00" "\01\00\00\00""#, r#""\c0\02\00\00" "\00\00\00\00""#)),
        ("a kind that it has no functions for", describe("\"routing\"", "\"latency\"")),
        ("a kind of a later version", describe("\"routing\"", "\"cooking\"")),
        (
            "events that it has no function for",
            describe(
                r#""\03\00\00\00" "\00\00\00\00" "\00\00\00\00""#,
                r#""\03\00\00\00" "\00\03\00\00" "\01\00\00\00""#,
            )
            .replace(
                "(data (i32.const 704)",
                "(data (i32.const 768) \"\\08\\03\\00\\00\" \"\\06\\00\\00\\00\" \"routed\")\n  (data (i32.const 704)",
            ),
        ),
        ("a default outside its limits", describe(r#""\00\00\00\00\00\00\f0\3f""#, r#""\00\00\00\00\00\00\34\40""#)),
        ("a limit that is NaN", describe(r#""\00\00\00\00\00\00\24\40""#, r#""\00\00\00\00\00\00\f8\7f""#)),
        (
            "a parameter twice",
            describe(parameters, r#""\00\02\00\00" "\02\00\00\00")"#).replace(
                r#"(data (i32.const 640)"#,
                r#"(data (i32.const 568)
    "\40\01\00\00" "\06\00\00\00" "\00\00\00\00" "\00\00\00\00"
    "\00" "\00\00\00\00\00\00\00" "\00\00\00\00\00\00\f0\3f" "\00\00\00\00\00\00\00\00"
    "\00\00\00\00\00\00\00\00" "\00\00\00\00\00\00\24\40")
  (data (i32.const 640)"#,
            ),
        ),
        (
            "refuses to be configured",
            changed(&[(
                "(data (i32.const 640)",
                "(data (i32.const 672) \"\\01\\00\\00\\00\" \"\\00\\01\\00\\00\" \"\\0c\\00\\00\\00\")\n  (data (i32.const 640)",
            )]),
        ),
    ];
    insta::assert_snapshot!(messages(&attacks), @r#"
    # a name that is no text
    router.wasm: describe: violated its interface: invalid utf-8 sequence of 1 bytes from index 0 [trap]
    # a name with a bell in it
    router.wasm: describe: "least loaded" is no name; use 1 to 64 of a-z A-Z 0-9 _ - . [out-of-range]
    # no name
    router.wasm: describe: "" is no name; use 1 to 64 of a-z A-Z 0-9 _ - . [out-of-range]
    # text outside its memory
    router.wasm: describe: violated its interface: string pointer/length out of bounds of memory [trap]
    # a long version
    router.wasm: describe: the version has 65536 bytes, at most 64 are allowed [out-of-range]
    # 2^32 parameters
    router.wasm: describe: violated its interface: list pointer/length out of bounds of memory [trap]
    # many parameters
    router.wasm: describe: returned more data than allowed [out-of-memory]
    # text many times over
    router.wasm: describe: returned more data than allowed [out-of-memory]
    # no kind
    router.wasm: describe: no kind of policy; name at least one of admission, routing, routing-filter, priority, scheduling, preemption, latency, saturation, ceilings, fairness, ordering, eviction, scaling, drain, placement, kv-cache, disaggregation, batching [out-of-range]
    # a kind that it has no functions for
    router.wasm: does not export blis:policy/latency, which its description requires [missing-export]
    # a kind of a later version
    router.wasm: describe: kind `cooking` is not one of this host (interface 1.1): admission, routing, routing-filter, priority, scheduling, preemption, latency, saturation, ceilings, fairness, ordering, eviction, scaling, drain, placement, kv-cache, disaggregation, batching; correct the name, or use a newer blis [version-skew]
    # events that it has no function for
    router.wasm: does not export blis:policy/lifecycle, which its description requires [missing-export]
    # a default outside its limits
    router.wasm: describe: parameter weight: its default 20 must lie between its limits, 0 and 10 [out-of-range]
    # a limit that is NaN
    router.wasm: describe: parameter weight: 1, 0 to NaN: NaN is no value [not-a-number]
    # a parameter twice
    router.wasm: describe: two parameters are called "weight" [out-of-range]
    # refuses to be configured
    router.wasm: configure: least-loaded [refused]
    "#);
}

/// 5000 parameters with the same text of 64 KB as name: 320 MB for the host.
fn bomb() -> String {
    changed(&[
        (r#""\00\02\00\00" "\01\00\00\00")"#, r#""\00\10\00\00" "\88\13\00\00")"#),
        ("\") 2)", "\") 64)"),
        (
            "#describe\") (result i32)\n",
            "#describe\") (result i32)
    (local $at i32) (local $left i32)
    (local.set $at (i32.const 4096))
    (local.set $left (i32.const 5000))
    (memory.fill (i32.const 1048576) (i32.const 120) (i32.const 65536))
    (loop $next
      (i32.store (local.get $at) (i32.const 1048576))
      (i32.store offset=4 (local.get $at) (i32.const 65536))
      (local.set $at (i32.add (local.get $at) (i32.const 56)))
      (br_if $next (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))\n",
        ),
    ])
}

#[test]
fn states_have_limits() {
    let save = "#save\") (result i32)\n";
    let gigabyte =
        changed(&[("\"\\90\\02\\00\\00\" \"\\08\\00\\00\\00\")", "\"\\90\\02\\00\\00\" \"\\00\\00\\00\\40\")")]);
    let large = changed(&[
        (save, "#save\") (result i32)\n    (drop (memory.grow (i32.const 512)))\n"),
        ("\"\\90\\02\\00\\00\" \"\\08\\00\\00\\00\")", "\"\\90\\02\\00\\00\" \"\\00\\00\\00\\01\")"),
    ]);
    let refuses = changed(&[(
        "(i64.store (i32.const 656) (i64.load (local.get $state)))",
        "(i32.store (i32.const 800) (i32.const 1)) (i32.store (i32.const 804) (i32.const 272)) (i32.store (i32.const 808) (i32.const 5)) (return (i32.const 800))",
    )]);
    let messages = [("a gigabyte that is not there", gigabyte), ("more than allowed", large), ("refuses it", refuses)]
        .map(|(name, text)| {
            let limits = Limits { state_bytes: 1 << 20, ..Limits::default() };
            let mut guest = load_text(&text)
                .and_then(|plugin| router(plugin.as_ref(), &GuestSetup { limits, ..setup(Kind::Routing) }))
                .expect("starts");
            let fault = guest.fork().map(|_| ()).expect_err(name);
            assert_eq!(route(guest.as_mut(), &[1, 0], &mut Vec::new()), Ok(1), "it accepts further calls");
            format!("# {name}\n{fault}\n")
        });
    insta::assert_snapshot!(messages.concat(), @r"
    # a gigabyte that is not there
    router.wasm: save: violated its interface: list pointer/length out of bounds of memory [trap]
    # more than allowed
    router.wasm: save: the state has 16777216 bytes; it may have 1048576 [out-of-memory]
    # refuses it
    router.wasm: restore: 1.0.0 [refused]
    ");
}

#[test]
fn an_index_outside_the_cluster_is_an_incident() {
    let plugin = load_text(&routing("", "(return (i32.const -1))")).expect("loads");
    let guest = router(plugin.as_ref(), &setup(Kind::Routing)).expect("starts");
    let incidents = Incidents::new(OnError::Fallback, Abort::default());
    let mut policy =
        PluginPolicy::new("router.wasm", plugin.description(), guest, blis_sim::policy::BlockIds::KEYS, &incidents);
    let choice =
        with_view(&[1, 0], |request, cluster| policy.route(request, cluster, &Ties::LowestIndex, &mut Vec::new()));
    assert_eq!(choice.target, 1, "the least loaded instead");
    let fault = incidents.first().expect("recorded").fault;
    insta::assert_snapshot!(fault, @"router.wasm: route returned 4294967295; it must be an index from 0 to 1 [out-of-range]");
}
