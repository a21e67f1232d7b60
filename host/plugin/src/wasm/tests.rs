mod lowering;
mod ways;

use std::io;
use std::path::PathBuf;
use std::sync::Mutex;

use blis_sim::cluster::Abort;
use blis_sim::policy::{
    ClusterView, InstanceInfo, RequestView, RoutingPolicy as _, Signals, Staleness, Ties, Versions,
};
use blis_sim::request::{Content, Request, Span};
use blis_sim::rng::Stream;
use blis_sim::units::Micros;
use wasmtime::Store;

use super::host::WasmLog;
use super::*;
use crate::adapt::PluginPolicy;
use crate::incidents::{Incidents, OnError};
use crate::inputs::GuestCall;
use crate::{Kind, LatencyGuest, RoutingGuest};

const LEAST_LOADED: &str = include_str!("fixtures/least_loaded.wat");

/// The fixture with parts of its text replaced.
fn changed(changes: &[(&str, &str)]) -> String {
    changes.iter().fold(LEAST_LOADED.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "the fixture has no {from:?}");
        text.replace(from, to)
    })
}

/// The fixture with other instructions at the start of `route`, and other imports.
fn routing(imports: &str, body: &str) -> String {
    changed(&[(";; imports", imports), (";; begin", body)])
}

fn settings() -> WasmSettings {
    WasmSettings { strict: false, cache: CompileCache::Disabled }
}

fn load_bytes(bytes: &[u8]) -> Result<Arc<dyn Plugin>, Fault> {
    load(Path::new("router.wasm"), bytes, &Limits::default(), &settings())
}

/// The two ways to call functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Directly (`direct.rs`) if possible.
    Fastest,
    /// Always through `typed.rs`.
    Typed,
}

/// As `load`, but with the given way to call functions.
fn load_by(way: Way, name: &str, bytes: &[u8]) -> Result<Arc<dyn Plugin>, Fault> {
    let (path, limits) = (Path::new(name), Limits::default());
    let settings = settings();
    if way == Way::Fastest {
        return load(path, bytes, &limits, &settings);
    }
    let file = PluginPath::new(path);
    let component = match inspect::format(&file, bytes)? {
        BinaryFormat::Component => bytes.to_vec(),
        BinaryFormat::CoreModule => componentize::of_module(&file, bytes)?,
    };
    let exports = inspect::component(&file, &component)?;
    let engine = engine::engine(&settings)?;
    let kept = code_cache::CachedCode::of(&engine, "", &settings);
    Ok(Arc::new(typed(&file, &component, &exports, &engine, &kept, &limits)?))
}

fn load_text(text: &str) -> Result<Arc<dyn Plugin>, Fault> {
    load_bytes(&wat::parse_str(text).expect("the fixture assembles"))
}

fn setup(kind: Kind) -> GuestSetup {
    GuestSetup {
        kind,
        parameters: vec![2.0],
        instances: [InstanceInfo { id: 0, max_num_seqs: 256, total_kv_blocks: 1000, block_size: 16 }].into(),
        names: ["".into(), "gold".into()].into(),
        model_facts: [("num_layers".to_owned(), 32.0)].into(),
        stream: Stream::new(42, "plugin"),
        explain: false,
        limits: Limits::default(),
        abort: Abort::default(),
    }
}

fn start(text: &str) -> Result<Box<dyn RoutingGuest>, Fault> {
    router(load_text(text)?.as_ref(), &setup(Kind::Routing))
}

fn router(plugin: &dyn Plugin, setup: &GuestSetup) -> Result<Box<dyn RoutingGuest>, Fault> {
    plugin.start(setup).and_then(StartedGuest::into_kind)
}

/// Calls `guest` to route among instances with these numbers of requests in flight.
fn route(guest: &mut dyn RoutingGuest, in_flight: &[u32], scores: &mut Vec<f64>) -> Result<usize, Fault> {
    with_view(in_flight, |request, cluster| guest.route(request, cluster, &Ties::LowestIndex, scores))
}

fn with_view<T>(in_flight: &[u32], call: impl FnOnce(&RequestView<'_>, &ClusterView<'_>) -> T) -> T {
    let n = in_flight.len();
    let mut request = Request::new(7, Micros(100), 512, 64);
    request.content = Content::shared(&[Span { first: 10, len: 2 }, Span { first: 40, len: 1 }]);
    let signals = Signals {
        queue_depth: vec![1; n],
        batch_size: vec![2; n],
        kv_utilization: vec![0.5; n],
        free_kv_blocks: vec![500; n],
        cache_hit_rate: vec![0.25; n],
        preemption_count: vec![0; n],
        in_flight: in_flight.to_vec(),
        cached_blocks: vec![0; n],
    };
    let info = |id| InstanceInfo { id, max_num_seqs: 256, total_kv_blocks: 1000, block_size: 16 };
    let instances: Vec<_> = (0..).take(n).map(info).collect();
    let cluster = ClusterView {
        now: Micros(200),
        instances: &instances,
        signals: &signals,
        staleness: Staleness::default(),
        versions: Versions::default(),
        in_flight_changes: blis_sim::policy::Changes::UNKNOWN,
        tenants_in_flight: &[],
    };
    call(&RequestView::new(&request, 0, 16), &cluster)
}

#[test]
fn a_core_module_says_what_it_is() {
    let plugin = load_text(LEAST_LOADED).expect("loads");
    assert_eq!(plugin.technology(), Technology::Component);
    insta::assert_debug_snapshot!(plugin.description(), @r#"
    PolicyDescription {
        name: "least-loaded",
        version: "1.0.0",
        about: "fewest requests",
        kinds: [
            Routing,
        ],
        reads: Reads {
            load: true,
            in_flight: true,
            cached_blocks: false,
        },
        events: Events {
            routed: false,
            first_token: false,
            completed: false,
            ended: false,
            rejected: false,
            blocks: false,
        },
        scores: true,
        every_step: false,
        parameters: [
            PolicyParameter {
                name: "weight",
                default: 1.0,
                min: 0.0,
                max: 10.0,
                about: "",
            },
        ],
    }
    "#);
}

#[test]
fn it_routes() {
    let mut guest = start(LEAST_LOADED).expect("starts");
    let mut scores = Vec::new();
    assert_eq!(route(guest.as_mut(), &[3, 1, 4, 1], &mut scores), Ok(1), "the first of equals");
    assert!(scores.is_empty(), "they were not requested");
    let few = guest.used().expect("counted");
    assert_eq!(route(guest.as_mut(), &[0; 1000], &mut scores), Ok(0));
    assert!(guest.used().expect("counted") > few, "fuel of the latest call");
    assert_eq!(route(guest.as_mut(), &[9, 8], &mut scores), Ok(1), "a smaller cluster");
}

#[test]
fn scores_are_returned_if_they_are_recorded() {
    let explain = GuestSetup { explain: true, ..setup(Kind::Routing) };
    let mut guest = load_text(LEAST_LOADED).and_then(|plugin| router(plugin.as_ref(), &explain)).expect("starts");
    let mut scores = Vec::new();
    assert_eq!(route(guest.as_mut(), &[3, 1], &mut scores), Ok(1));
    assert_eq!(scores, [-12.0, -8.0], "load times the parameter");
}

#[test]
fn a_copy_goes_on_and_shares_nothing() {
    let mut guest = start(LEAST_LOADED).expect("starts");
    let call = |guest: &mut dyn RoutingGuest| route(guest, &[1, 0], &mut Vec::new()).expect("routes");
    call(guest.as_mut());
    let mut copy = guest.fork().and_then(StartedGuest::into_kind::<dyn RoutingGuest>).expect("forks");
    call(copy.as_mut());
    let count = |guest: &mut Box<dyn RoutingGuest>| guest.save().expect("saves")[0];
    assert_eq!((count(&mut guest), count(&mut copy)), (1, 2));
    copy.restore(&guest.save().expect("saves")).expect("restores");
    assert_eq!(count(&mut copy), 1);
}

#[test]
fn after_a_trap_it_begins_anew() {
    // With 3 instances the guest traps.
    let text = routing("", "(if (i32.eq (i32.load offset=108 (local.get $at)) (i32.const 3)) (then (unreachable)))");
    let mut guest = start(&text).expect("starts");
    assert_eq!(route(guest.as_mut(), &[1, 0], &mut Vec::new()), Ok(1));
    let fault = route(guest.as_mut(), &[1, 0, 2], &mut Vec::new()).expect_err("traps");
    assert_eq!(fault.kind, FaultKind::Trap);
    assert_eq!(guest.save().expect("saves")[0], 0, "its state is gone");
    assert_eq!(route(guest.as_mut(), &[1, 0], &mut Vec::new()), Ok(1));
}

#[test]
fn a_guest_serves_its_kind_only() {
    let start = || load_text(LEAST_LOADED).and_then(|plugin| plugin.start(&setup(Kind::Routing))).expect("starts");
    let mut guest = start();
    assert_eq!(guest.kind(), Kind::Routing);
    let question = GuestCall::plausible(Kind::Admission, 1, 0);
    let fault = question.run(&mut guest, &Ties::LowestIndex).expect_err("no admission");
    assert_eq!(fault.kind, FaultKind::MissingExport);
    let fault = start().into_kind::<dyn LatencyGuest>().expect_err("no latency");
    assert_eq!(fault.kind, FaultKind::MissingExport);
    let mut guest = guest.into_kind::<dyn RoutingGuest>().expect("but routing");
    assert_eq!(route(guest.as_mut(), &[1, 0], &mut Vec::new()), Ok(1));
}

#[test]
fn host_functions_return_values() {
    // pick of 3, blocks of the prompt, a name of 4 letters, random numbers: the index combines all.
    let text = routing(
        r#"(import "blis:policy/host@1.0.0" "pick" (func $pick (param i32) (result i32)))
        (import "blis:policy/host@1.0.0" "random" (func $random (result i64)))
        (import "blis:policy/host@1.0.0" "text" (func $text (param i32 i32)))
        (import "blis:policy/host@1.0.0" "prompt-blocks" (func $blocks (param i32)))"#,
        "(call $blocks (i32.const 700))
        (call $text (i32.const 1) (i32.const 720))
        (return
          (i32.add
            (i32.mul (call $pick (i32.const 3)) (i32.const 1000000))
            (i32.add
              (i32.mul (i32.load (i32.const 704)) (i32.const 100000))
              (i32.add
                (i32.mul (i32.load offset=8 (i32.load (i32.const 700))) (i32.const 1000))
                (i32.add
                  (i32.mul (i32.load (i32.const 724)) (i32.const 100))
                  (i32.wrap_i64 (i64.rem_u (call $random) (i64.const 100))))))))",
    );
    let mut guest = start(&text).expect("starts");
    let result = route(guest.as_mut(), &[0], &mut Vec::new()).expect("a result");
    let random = rand::Rng::next_u64(&mut Stream::new(42, "plugin").at(7)) % 100;
    assert_eq!(result as u64, 340_400 + random, "3 blocks, the last is 40; gold has 4 letters; the first is picked");
    assert_eq!(route(guest.as_mut(), &[0], &mut Vec::new()), Ok(result), "the same request, the same result");
}

#[derive(Clone, Default)]
struct LogLines(Arc<Mutex<Vec<u8>>>);

impl io::Write for LogLines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("unpoisoned").extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The log output of `work`.
fn logged(work: impl FnOnce()) -> String {
    let lines = LogLines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .without_time()
        .with_target(false)
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::with_default(subscriber, work);
    let bytes = lines.0.lock().expect("unpoisoned").clone();
    String::from_utf8(bytes).expect("text")
}

const LOG: &str = r#"(import "blis:policy/host@1.0.0" "log" (func $log (param i32 i32 i32)))"#;

#[test]
fn a_flood_of_log_lines_is_cut_and_counted() {
    let flood = "(local.set $count (i32.const 500))
        (loop $again
          (call $log (i32.const 1) (i32.const 256) (i32.const 12))
          (br_if $again (local.tee $count (i32.sub (local.get $count) (i32.const 1)))))";
    let log = logged(|| {
        let mut guest = start(&routing(LOG, flood)).expect("starts");
        assert_eq!(route(guest.as_mut(), &[1, 0], &mut Vec::new()), Ok(1));
    });
    assert_eq!(log.lines().filter(|line| line.contains("router.wasm: least-loaded")).count(), 200);
    insta::assert_snapshot!(log.lines().last().unwrap_or(""), @" WARN router.wasm: 300 further lines of its log are left out");
}

#[test]
fn a_long_log_line_is_cut() {
    let long = "(call $log (i32.const 2) (i32.const 65536) (i32.const 65536))";
    let log = logged(|| {
        let mut guest = start(&routing(LOG, long)).expect("starts");
        assert_eq!(route(guest.as_mut(), &[1, 0], &mut Vec::new()), Ok(1));
    });
    // All bytes are zero, which are control characters.
    assert_eq!(log.trim(), "INFO router.wasm: …", "{} bytes", log.len());
}

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
        ("built for the future", changed(&[("@1.0.0#", "@1.2.0#")])),
        ("built for the past", changed(&[("@1.0.0#", "@0.9.1#")])),
        ("built for no version", changed(&[("@1.0.0#", "#")])),
        ("component built for the future", r#"(component (instance (export "blis:policy/plugin@1.2.0")))"#.to_owned()),
        ("exports an unknown interface", changed(&[("routing@1.0.0#", "teleport@1.0.0#")])),
        ("lacks describe", changed(&[("plugin@1.0.0#describe", "describe")])),
        ("lacks scores", changed(&[("routing@1.0.0#scores", "scores")])),
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
    router.wasm: imports functions of the host with wrong types: component imports instance `blis:policy/host@1.0.0`, but a matching implementation was not found in the linker: instance export `random` has the wrong type: type mismatch with results: expected `u64` found `u32` [forbidden-import]
    # built for the future
    router.wasm: built for blis:policy 1.2, this host offers 1.0: rebuild it with sdk 1.0, or use a newer blis [version-skew]
    # built for the past
    router.wasm: built for blis:policy 0.9, this host offers 1.0: rebuild it with sdk 1.0 [version-skew]
    # built for no version
    router.wasm: does not say for which version of blis:policy it was built (""), this host offers 1.0: rebuild it with sdk 1.0 [version-skew]
    # component built for the future
    router.wasm: built for blis:policy 1.2, this host offers 1.0: rebuild it with sdk 1.0, or use a newer blis [version-skew]
    # exports an unknown interface
    router.wasm: exports blis:policy/teleport@1.0.0, which blis:policy 1.0.0 does not have [version-skew]
    # lacks describe
    router.wasm: does not export blis:policy/plugin@1.0.0#describe [missing-export]
    # lacks scores
    router.wasm: does not export blis:policy/routing@1.0.0#scores [missing-export]
    # lacks cabi_realloc
    router.wasm: does not export cabi_realloc [missing-export]
    # lacks the memory
    router.wasm: does not export memory [missing-export]
    # lacks routing
    router.wasm: does not export blis:policy/routing, which its description requires [missing-export]
    # route takes two numbers
    router.wasm: no component can be made of it: failed to validate export for `blis:policy/routing@1.0.0`: type mismatch for function `route`: expected `[I32] -> [I32]` but found `[I32, I32] -> [I32]` [missing-export]
    # exports nothing
    router.wasm: exports nothing of blis:policy, so it is no policy; build it with sdk/rust or sdk/c [missing-export]
    # component that exports nothing
    router.wasm: exports nothing of blis:policy, so it is no policy; build it with sdk/rust or sdk/c [missing-export]
    # component without describe
    router.wasm: blis:policy/plugin@1.0.0 lacks the function describe [missing-export]
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
    router.wasm: broken WebAssembly at byte 534: unexpected end-of-file; build or download it again [syntax]
    # component cut in the middle
    router.wasm: broken WebAssembly at byte 3076: unexpected end-of-file; build or download it again [syntax]
    # no functions in a component
    router.wasm: broken WebAssembly at byte 10: unexpected end-of-file; build or download it again [syntax]
    # code that does not validate
    router.wasm: no component can be made of it: failed to validate component output: type mismatch: expected i32 but nothing on stack (at offset 0x39d) [syntax]
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
        ("no kind", describe(r#""\02" "\03""#, r#""\00" "\03""#)),
        ("a kind that it has no functions for", describe(r#""\02" "\03""#, r#""\03" "\03""#)),
        ("events that it has no function for", describe(r#""\03" "\00" "\01""#, r#""\03" "\01" "\01""#)),
        ("a default outside its limits", describe(r#""\00\00\00\00\00\00\f0\3f""#, r#""\00\00\00\00\00\00\34\40""#)),
        ("a limit that is NaN", describe(r#""\00\00\00\00\00\00\24\40""#, r#""\00\00\00\00\00\00\f8\7f""#)),
        (
            "a parameter twice",
            describe(parameters, r#""\00\02\00\00" "\02\00\00\00")"#).replace(
                r#"(data (i32.const 640)"#,
                r#"(data (i32.const 552)
    "\40\01\00\00" "\06\00\00\00" "\00\00\00\00\00\00\f0\3f" "\00\00\00\00\00\00\00\00" "\00\00\00\00\00\00\24\40"
    "\00\00\00\00" "\00\00\00\00")
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
    router.wasm: describe: no kind of policy; name at least one of admission, routing, priority, scheduling, preemption, latency [out-of-range]
    # a kind that it has no functions for
    router.wasm: does not export blis:policy/admission, which its description requires [missing-export]
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
      (local.set $at (i32.add (local.get $at) (i32.const 40)))
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
    let mut policy = PluginPolicy::new("router.wasm", plugin.description(), guest, &incidents);
    let choice =
        with_view(&[1, 0], |request, cluster| policy.route(request, cluster, &Ties::LowestIndex, &mut Vec::new()));
    assert_eq!(choice.target, 1, "the least loaded instead");
    let fault = incidents.first().expect("recorded").fault;
    insta::assert_snapshot!(fault, @"router.wasm: route returned 4294967295; it must be an index from 0 to 1 [out-of-range]");
}

#[test]
fn large_files_are_refused_before_they_are_read() {
    let folder = tempfile("large");
    let path = folder.join("large.wasm");
    let file = fs::File::create(&path).expect("writable");
    // A sparse file: it needs no disk space, but reading it would need memory.
    file.set_len(50 << 20).expect("writable");
    let fault = open(&path, &Limits::default(), &settings()).map(|_| ()).expect_err("too large");
    let message = fault.to_string().replace(&folder.display().to_string(), "DIR");
    insta::assert_snapshot!(message, @"DIR/large.wasm: has 52428800 bytes; at most 33554432 are allowed. Strip debug information, build for size [unreadable]");
    let fault = open(&folder, &Limits::default(), &settings()).map(|_| ()).expect_err("a folder");
    assert_eq!(fault.kind, FaultKind::Unreadable);
    let fault = open(&folder.join("none.wasm"), &Limits::default(), &settings()).map(|_| ()).expect_err("missing");
    assert_eq!(fault.kind, FaultKind::Unreadable);
    fs::remove_dir_all(folder).expect("ours");
}

/// An empty folder for this test.
fn tempfile(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("blis-wasm-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("writable");
    folder
}

/// Checks that the fixture routes, with compiled code cached in `folder`.
fn routes_with_code_in(folder: &Path) {
    let settings = WasmSettings { strict: true, cache: CompileCache::Folder(folder.to_owned()) };
    let core = wat::parse_str(LEAST_LOADED).expect("assembles");
    let plugin = load(Path::new("router.wasm"), &core, &Limits::default(), &settings).expect("loads");
    let mut guest = router(plugin.as_ref(), &setup(Kind::Routing)).expect("starts");
    assert_eq!(route(guest.as_mut(), &[1, 0], &mut Vec::new()), Ok(1));
}

fn files_in(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).expect("made").map(|entry| entry.expect("readable").path()).collect()
}

#[test]
fn compiled_code_is_kept() {
    let folder = tempfile("kept").join("made");
    routes_with_code_in(&folder);
    let files = files_in(&folder);
    assert_eq!(files.len(), 1, "{files:?}");
    let written = |file: &Path| fs::metadata(file).and_then(|known| known.modified()).expect("readable");
    let before = written(&files[0]);
    routes_with_code_in(&folder);
    assert_eq!((files_in(&folder), written(&files[0])), (files.clone(), before), "and used");
    // A file without compiled code is not run, but replaced.
    fs::write(&files[0], "nonsense").expect("ours");
    routes_with_code_in(&folder);
    assert!(fs::metadata(&files[0]).expect("there").len() > 1000);
    fs::remove_dir_all(folder).expect("ours");
}

/// Damaged code was run, and crashed the host.
#[test]
fn damaged_code_is_compiled_anew() {
    let folder = tempfile("damaged").join("made");
    routes_with_code_in(&folder);
    let file = &files_in(&folder)[0];
    let mut damaged = fs::read(file).expect("ours");
    let apart = (damaged.len() - 2000) / 64;
    for i in 0..64 {
        damaged[1000 + i * apart] ^= 0xff;
    }
    fs::write(file, &damaged).expect("ours");
    routes_with_code_in(&folder);
    assert!(fs::read(file).expect("there") != damaged, "it was replaced");
    fs::remove_dir_all(folder).expect("ours");
}

/// A module for a later version of the same interface was refused.
#[test]
fn versions_with_another_third_number_are_the_same_interface() {
    let core = wat::parse_str(LEAST_LOADED.replace("@1.0.0", "@1.0.7")).expect("assembles");
    let mut guest =
        load_bytes(&core).and_then(|plugin| router(plugin.as_ref(), &setup(Kind::Routing))).expect("starts");
    assert_eq!(route(guest.as_mut(), &[1, 0], &mut Vec::new()), Ok(1));
}

/// A small module took the compiler a minute and a gigabyte.
#[test]
fn code_that_compiles_for_ever_is_refused() {
    let loops = "(loop ".repeat(100);
    let sets: String = (0..1000).map(|i| format!("(local.set {i} (i32.add (local.get {i}) (i32.const 1)))")).collect();
    let body = format!("{loops}{sets}{}", ")".repeat(100));
    let text = LEAST_LOADED.trim_end().strip_suffix(')').expect("a module").to_owned();
    let text = format!("{text} (func (local {}) {} {}))", "i32 ".repeat(1000), body.repeat(2), body);
    let fault = load_bytes(&wat::parse_str(text).expect("assembles")).map(|_| ()).expect_err("too much work");
    insta::assert_snapshot!(fault, @r"router.wasm: has 30000029 local variables × blocks × nesting, over all functions; the compiler takes 4000000: split functions, and optimise for size [out-of-fuel]");
}

#[cfg(unix)]
#[test]
fn compiled_code_is_not_taken_from_where_others_may_write() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile("open");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).expect("ours");
    routes_with_code_in(&folder);
    assert_eq!(files_in(&folder), Vec::<PathBuf>::new());
    fs::remove_dir_all(folder).expect("ours");
}

#[test]
fn components_are_not_componentized_again() {
    let component =
        componentize(Path::new("router.wasm"), &wat::parse_str(LEAST_LOADED).expect("assembles")).expect("a component");
    let mut guest =
        load_bytes(&component).and_then(|plugin| router(plugin.as_ref(), &setup(Kind::Routing))).expect("starts");
    assert_eq!(route(guest.as_mut(), &[1, 0], &mut Vec::new()), Ok(1));
    let fault = componentize(Path::new("router.wasm"), &component).expect_err("is one");
    insta::assert_snapshot!(fault, @"router.wasm: is a component already; use it as it is [syntax]");
}
