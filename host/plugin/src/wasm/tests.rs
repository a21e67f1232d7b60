mod bounds;
mod compiling;
mod faults;
mod lowering;
mod ways;

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Mutex;

use blis_sim::cluster::Abort;
use blis_sim::ids::{InstanceIndex, RequestId};
use blis_sim::policy::{
    ClusterView, InstanceInfo, RequestView, RoutingPolicy as _, Signals, Staleness, Ties, Versions,
};
use blis_sim::request::{Content, Request, Span};
use blis_sim::rng::Stream;
use blis_sim::units::Micros;
use wasmtime::Store;

use super::host::WasmLog;
use super::*;
use crate::Kind;
use crate::adapt::PluginPolicy;
use crate::incidents::{Incidents, OnError};
use crate::inputs::GuestCall;

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
    WasmSettings { cache: CompileCache::Disabled, ..WasmSettings::default() }
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
        BinaryFormat::CoreModule => componentize::of_module(&file, bytes, &Limits::default())?,
    };
    let exports = inspect::component(&file, &component)?;
    let engine = engine::engine(&settings)?;
    let kept = code_cache::CachedCode::of(&engine, "", &settings, &Limits::default());
    Ok(Arc::new(typed(&file, &component, &exports, &engine, &kept, &limits)?))
}

fn load_text(text: &str) -> Result<Arc<dyn Plugin>, Fault> {
    load_bytes(&wat::parse_str(text).expect("the fixture assembles"))
}

fn setup(kind: Kind) -> GuestSetup {
    GuestSetup {
        kind,
        parameters: vec![2.0],
        others: Vec::new(),
        instances: [InstanceInfo {
            id: InstanceIndex(0),
            max_num_seqs: 256,
            total_kv_blocks: 1000,
            block_size: 16,
            ..InstanceInfo::default()
        }]
        .into(),
        names: ["".into(), "gold".into()].into(),
        model_facts: [("num_layers".to_owned(), 32.0)].into(),
        stream: Stream::new(42, "plugin"),
        explain: false,
        limits: Limits::default(),
        abort: Abort::default(),
    }
}

fn start(text: &str) -> Result<Box<dyn Guest>, Fault> {
    router(load_text(text)?.as_ref(), &setup(Kind::Routing))
}

fn router(plugin: &dyn Plugin, setup: &GuestSetup) -> Result<Box<dyn Guest>, Fault> {
    plugin.start(setup)
}

/// Calls `guest` to route among instances with these numbers of requests in flight.
fn route(guest: &mut dyn Guest, in_flight: &[u32], scores: &mut Vec<f64>) -> Result<usize, Fault> {
    with_view(in_flight, |request, cluster| guest.number_of_route(request, cluster, &Ties::LowestIndex, scores))
}

fn with_view<T>(in_flight: &[u32], call: impl FnOnce(&RequestView<'_>, &ClusterView<'_>) -> T) -> T {
    let n = in_flight.len();
    let mut request = Request::new(RequestId(7), Micros(100), 512, 64);
    request.content = Content::shared(&[Span { first: 10, len: 2 }, Span { first: 40, len: 1 }]);
    let signals = Signals {
        queue_depth: vec![1; n],
        batch_size: vec![2; n],
        kv_utilization: vec![0.5; n],
        cache_hit_rate: vec![0.25; n],
        in_flight: in_flight.to_vec(),
        ..Signals::idle(vec![500; n])
    };
    let info =
        |id| InstanceInfo { id, max_num_seqs: 256, total_kv_blocks: 1000, block_size: 16, ..InstanceInfo::default() };
    let instances: Vec<_> = (0..n).map(InstanceIndex::at).map(info).collect();
    let cluster = ClusterView {
        now: Micros(200),
        instances: &instances,
        signals: &signals,
        staleness: Staleness::default(),
        versions: Versions::default(),
        in_flight_changes: blis_sim::policy::Changes::UNKNOWN,
        tenants_in_flight: &[],
        scores: &[],
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
        columns: [
            QueueDepth,
            BatchSize,
            InFlight,
        ],
        reads: Reads {
            load: true,
            in_flight: true,
            cached_blocks: false,
            cpu_cached_blocks: false,
            tokens: false,
            latencies: false,
            waiting_tokens: false,
            adapters: false,
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
        others: [],
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
    let call = |guest: &mut dyn Guest| route(guest, &[1, 0], &mut Vec::new()).expect("routes");
    call(guest.as_mut());
    let mut copy = guest.fork().expect("forks");
    call(copy.as_mut());
    let count = |guest: &mut Box<dyn Guest>| guest.save().expect("saves")[0];
    assert_eq!((count(&mut guest), count(&mut copy)), (1, 2));
    copy.restore(&guest.save().expect("saves")).expect("restores");
    assert_eq!(count(&mut copy), 1);
}

#[test]
fn after_a_trap_it_begins_anew() {
    // With 3 instances the guest traps.
    let text = routing("", "(if (i32.eq (i32.load offset=144 (local.get $at)) (i32.const 3)) (then (unreachable)))");
    let mut guest = start(&text).expect("starts");
    assert_eq!(route(guest.as_mut(), &[1, 0], &mut Vec::new()), Ok(1));
    let fault = route(guest.as_mut(), &[1, 0, 2], &mut Vec::new()).expect_err("traps");
    assert_eq!(fault.kind, FaultKind::Trap);
    assert_eq!(guest.save().expect("saves")[0], 0, "its state is gone");
    assert_eq!(route(guest.as_mut(), &[1, 0], &mut Vec::new()), Ok(1));
}

#[test]
fn a_guest_serves_its_kind_only() {
    let guest = load_text(LEAST_LOADED).and_then(|plugin| plugin.start(&setup(Kind::Routing)));
    let mut guest = guest.expect("starts");
    assert_eq!(guest.kind(), Kind::Routing);
    let question = GuestCall::plausible(Kind::Admission, 1, 0);
    let fault = question.run(&mut *guest, &Ties::LowestIndex).expect_err("no admission");
    assert_eq!(fault.kind, FaultKind::MissingExport);
    let fault = guest.constants().expect_err("no latency");
    assert_eq!(fault.kind, FaultKind::MissingExport);
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

/// 100 000 lines in one decision were counted for seconds.
#[test]
fn a_flood_of_log_lines_uses_up_the_fuel() {
    let flood = "(loop $again (call $log (i32.const 1) (i32.const 256) (i32.const 12))
          (br_if $again (local.tee $count (i32.add (local.get $count) (i32.const 1)))))";
    logged(|| {
        let mut guest =
            start(&routing(LOG, &format!("(local.set $count (i32.const -100000)) {flood}"))).expect("starts");
        let fault = route(guest.as_mut(), &[1, 0], &mut Vec::new()).expect_err("too many");
        assert_eq!(fault.kind, FaultKind::OutOfFuel, "{fault}");
    });
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
