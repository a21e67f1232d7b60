//! A policy of every kind, called by a host through the table of a native library.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::ptr;

use blis_abi::table::{self, Fact, Host, Parameter, Table, Text};
use blis_sdk::{
    Admission, Ages, Cluster, Constants, Description, Event, Events, Instance, InstanceInfo, Latency, Lifecycle,
    Policy, Preemption, Priority, Queued, Reads, Request, Routing, Running, Scheduling, Setup, Step, Verdict,
};
use serde::{Deserialize, Serialize};

/// A policy whose results show its inputs.
#[derive(Serialize, Deserialize)]
struct Everything {
    offset: f64,
    routed: u32,
}

impl Policy for Everything {
    fn describe() -> Description {
        Description::new("everything")
            .version("1.2.3")
            .reads(Reads::LOAD | Reads::CACHED_BLOCKS)
            .events(Events::ROUTED | Events::BLOCKS)
            .scores()
            .parameter("offset", 5.0, 0.0..=10.0, "added to ranks")
    }

    fn new(setup: &Setup) -> Result<Self, String> {
        let offset = setup.parameter("offset");
        if setup.fact("num_layers") != Some(32.0) || setup.instances.len() != 1 {
            return Err(format!("the facts are {:?}", setup.facts().collect::<Vec<_>>()));
        }
        Ok(Self { offset, routed: 0 })
    }
}

impl Admission for Everything {
    fn admit(&mut self, request: &Request, cluster: &Cluster<'_>) -> Verdict {
        if request.urgency < 0 {
            return Verdict::Reject(format!("{} in {}", request.urgency, cluster.ages.load_us));
        }
        Verdict::Admit
    }
}

impl Routing for Everything {
    fn route(&mut self, _: &Request, cluster: &Cluster<'_>) -> usize {
        blis_sdk::log!("{} instances", cluster.instances.len());
        // With four instances any row may have changed.
        let expected: Option<&[u32]> = (cluster.instances.len() != 4).then_some(&[2, 0]);
        blis_sdk::changed(|places| assert!(places == expected, "changed are {places:?}"));
        let blocks = blis_sdk::prompt_blocks();
        assert!(blocks == [7, 8], "blocks are {blocks:?}");
        assert!(blis_sdk::text(3) == "gold" && blis_sdk::random() == 99);
        blis_sdk::argmin(cluster.instances.iter().map(|instance| instance.queue_depth))
    }

    fn scores(&self, _: &Request, cluster: &Cluster<'_>, scores: &mut Vec<f64>) {
        scores.extend(cluster.instances.iter().map(|instance| -f64::from(instance.queue_depth)));
    }
}

impl Priority for Everything {
    fn priority(&mut self, request: &Request) -> i64 {
        -i64::from(request.id)
    }
}

impl Scheduling for Everything {
    fn rank(&mut self, request: &Request, queued: &Queued) -> f64 {
        self.offset + f64::from(request.id) + queued.turn as f64
    }
}

impl Preemption for Everything {
    fn victim(&mut self, now_us: u64, wanting: usize, batch: &[Running]) -> usize {
        now_us as usize * 100 + wanting * 10 + batch.len()
    }
}

impl Latency for Everything {
    fn step_time(&self, step: &Step) -> u64 {
        10 * step.prefill_requests + step.decode_context
    }

    fn queueing_time(&self, input_tokens: u32) -> u64 {
        u64::from(input_tokens)
    }

    fn constants(&self) -> Constants {
        Constants { shortest_step: 2, preemption: 6, ..Constants::default() }
    }
}

impl Lifecycle for Everything {
    fn notice(&mut self, event: &Event) {
        assert!(event.request != 13, "bad luck");
        self.routed += 1;
    }
}

blis_sdk::export_policy!(
    Everything: Admission, Routing, Priority, Scheduling, Preemption, Latency, Lifecycle
);

type State = *mut c_void;

/// Calls a function of the table.
macro_rules! call {
    ($table:expr, $function:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: the arguments are as the header requires; the tests pass wrong ones only where the SDK checks them.
        unsafe { $table.$function.expect("filled in")($($argument),*) }
    };
}

unsafe extern "C" {
    safe fn blis_plugin_v1() -> *const Table;
}

/// Records the calls of host functions.
#[derive(Default)]
struct Heard {
    log: Vec<(u32, String)>,
    failures: Vec<String>,
    picks: Vec<u32>,
    /// Whether `changed` reports that any row may have changed.
    any_changed: bool,
}

fn string(text: Text) -> String {
    // SAFETY: the library's texts are valid during the call.
    String::from_utf8(unsafe { std::slice::from_raw_parts(text.data, text.len) }.to_vec()).unwrap()
}

fn heard(context: *mut c_void) -> &'static mut Heard {
    // SAFETY: every host of this file has such a context, leaked, used by one thread.
    unsafe { &mut *context.cast() }
}

extern "C" fn log(context: *mut c_void, level: u32, text: Text) {
    heard(context).log.push((level, string(text)));
}

extern "C" fn fail(context: *mut c_void, text: Text) {
    heard(context).failures.push(string(text));
}

extern "C" fn random(_: *mut c_void) -> u64 {
    99
}

extern "C" fn pick(context: *mut c_void, n: u32) -> u32 {
    heard(context).picks.push(n);
    n - 1
}

extern "C" fn prompt_blocks(_: *mut c_void, blocks: *mut *const u32) -> usize {
    static BLOCKS: [u32; 2] = [7, 8];
    // SAFETY: the library passes valid memory for the pointer.
    unsafe { *blocks = BLOCKS.as_ptr() };
    2
}

extern "C" fn text(_: *mut c_void, name: u32) -> Text {
    let text = if name == 3 { "gold" } else { "" };
    Text::of(text)
}

extern "C" fn changed(context: *mut c_void, places: *mut *const u32) -> usize {
    static PLACES: [u32; 2] = [2, 0];
    if heard(context).any_changed {
        return usize::MAX;
    }
    // SAFETY: as above.
    unsafe { *places = PLACES.as_ptr() };
    2
}

fn host() -> Host {
    let context = ptr::from_mut(Box::leak(Box::new(Heard::default()))).cast();
    Host { context, log, fail, random, pick, prompt_blocks, text, changed }
}

fn exported() -> &'static Table {
    // SAFETY: a static of this program.
    unsafe { &*blis_plugin_v1() }
}

fn created(host: &Host, offset: f64, layers: f64) -> State {
    let info = InstanceInfo { id: 0, max_num_seqs: 8, total_kv_blocks: 100, block_size: 16 };
    let fact = Fact { name: Text::of("num_layers"), value: layers };
    let setup = table::Setup {
        kind: 2,
        instance_count: 1,
        instances: &raw const info,
        parameters: &raw const offset,
        facts: &raw const fact,
        fact_count: 1,
    };
    call!(exported(), create(host, &raw const setup))
}

#[test]
fn the_table_is_that_of_the_header() {
    let table = exported();
    assert_eq!((table.abi_version, table.size as usize), (1, size_of::<Table>()));
    assert_eq!(table.struct_sizes, [88, 16, 48, 24, 64, 64, 64]);
    let described = call!(table, describe());
    // SAFETY: lives as long as the program.
    let described = unsafe { &*described };
    assert_eq!((string(described.name).as_str(), string(described.version).as_str()), ("everything", "1.2.3"));
    assert_eq!((described.kinds, described.reads, described.events, described.scores), (63, 5, 33, 1));
    // SAFETY: the same.
    let parameter = unsafe { &*described.parameters };
    assert_eq!((string(parameter.name).as_str(), string(parameter.about).as_str()), ("offset", "added to ranks"));
    let Parameter { default_value, min, max, .. } = *parameter;
    assert_eq!((described.parameter_count, default_value, min, max), (1, 5.0, 0.0, 10.0));
}

#[test]
fn every_kind_gets_its_arguments_and_gives_its_answer() {
    let (host, table) = (host(), exported());
    let state = created(&host, 0.5, 32.0);
    let request = Request { id: 40, urgency: 1, ..Request::default() };
    let ages = Ages { load_us: 77, cached_blocks_us: 0 };
    let instance = |queue_depth| Instance { queue_depth, ..Instance::default() };
    let instances = [instance(3), instance(1), instance(1)];
    let rows: *const c_void = instances.as_ptr().cast();
    let mut reason = Text::EMPTY;
    assert_eq!(call!(table, admit(&host, state, &request, &ages, rows, 3, 48, &mut reason)), 1);
    let hopeless = Request { urgency: -2, ..request };
    assert_eq!(call!(table, admit(&host, state, &hopeless, &ages, rows, 3, 48, &mut reason)), 0);
    assert_eq!(string(reason), "-2 in 77");
    assert_eq!(call!(table, route(&host, state, &request, &ages, rows, 3, 48)), 2);
    let mut scores = [0.0; 3];
    call!(table, scores(&host, state, &request, &ages, rows, 3, 48, scores.as_mut_ptr()));
    assert_eq!(scores, [-3.0, -1.0, -1.0]);
    assert_eq!(call!(table, priority(&host, state, &request)), -40);
    let queued = Queued { turn: 3, ..Queued::default() };
    assert_eq!(call!(table, rank(&host, state, &request, &queued)), 43.5);
    let batch = [Running::default(); 2];
    assert_eq!(call!(table, victim(&host, state, 3, 1, batch.as_ptr().cast(), 2, 64)), 312);
    let mut constants = Constants::default();
    call!(table, constants(&host, state, &mut constants));
    assert_eq!((constants.shortest_step, constants.preemption), (2, 6));
    assert_eq!(call!(table, queueing_time(&host, state, 9)), 9);
    let step = Step { prefill_requests: 4, decode_context: 2, ..Step::default() };
    assert_eq!(call!(table, step_time(&host, state, &step)), 42);
    assert_eq!(heard(host.context).log, [(2, "3 instances".to_owned())]);
    assert_eq!(heard(host.context).picks, [2]);
    assert!(heard(host.context).failures.is_empty());
    call!(table, destroy(state));
}

#[test]
fn rows_of_a_later_host_are_longer() {
    #[repr(C)]
    struct Longer(Instance, u64);
    let host = host();
    let state = created(&host, 0.5, 32.0);
    heard(host.context).any_changed = true;
    let longer = |queue_depth| Longer(Instance { queue_depth, ..Instance::default() }, u64::MAX);
    let instances = [longer(3), longer(2), longer(1), longer(4)];
    let route = |stride| {
        let request = Request::default();
        call!(exported(), route(&host, state, &request, &Ages::default(), instances.as_ptr().cast(), 4, stride))
    };
    assert_eq!(route(size_of::<Longer>()), 2);
    assert_eq!((route(40), heard(host.context).failures.len()), (u32::MAX, 1), "shorter ones are refused");
    call!(exported(), destroy(state));
}

#[test]
fn a_saved_state_goes_on_elsewhere() {
    let (host, table) = (host(), exported());
    let (a, b) = (created(&host, 7.0, 32.0), created(&host, 1.0, 32.0));
    for _ in 0..300 {
        call!(table, notice(&host, a, &Event::default()));
    }
    let mut bytes = [0_u8; 64];
    let len = call!(table, save(&host, a, bytes.as_mut_ptr(), 0));
    assert_eq!((len, bytes), (10, [0; 64]), "8 of a number and 2 of a small one; nothing is written");
    assert_eq!(call!(table, save(&host, a, bytes.as_mut_ptr(), 64)), len);
    assert_eq!(call!(table, restore(&host, b, bytes.as_ptr(), len)), 1);
    let mut again = [0_u8; 64];
    call!(table, save(&host, b, again.as_mut_ptr(), 64));
    assert_eq!(bytes, again);
    for bad in [0, len - 1, len + 1] {
        assert_eq!(call!(table, restore(&host, b, bytes.as_ptr(), bad)), 0);
    }
    assert!(heard(host.context).failures.iter().all(|text| text.starts_with("not a state of this policy")));
    call!(table, destroy(a));
    call!(table, destroy(b));
}

#[test]
fn refusals_and_panics_reach_the_host() {
    let host = host();
    assert!(created(&host, 5.0, 31.0).is_null());
    let state = created(&host, 5.0, 32.0);
    call!(exported(), notice(&host, state, &Event { request: 13, ..Event::default() }));
    let failures = &heard(host.context).failures;
    assert_eq!(failures[0], r#"the facts are [("num_layers", 31.0)]"#);
    assert!(failures[1].starts_with("panicked at "), "{failures:?}");
    assert!(failures[1].contains("table.rs:") && failures[1].ends_with("bad luck"), "{failures:?}");
    call!(exported(), destroy(state));
}
