//! A policy of every kind, called by a host through the table of a native library.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::ptr;

use blis_abi::table::{self, CHost, CModelFact, CText, CTexts, CValue, PolicyTable};
use blis_sdk::{
    Admission, AdmissionDecision, Ages, Band, Ceilings, ChunkOffer, Cluster, Description, Disaggregation, Drain,
    DrainGroup, Event, EventSet, Eviction, Fairness, Flow, Group, InFlight, InstanceInfo, KvCache, KvChunk, KvHit,
    Latency, LatencyConstants, Lifecycle, Node, NumberTable, Ordering, Placement, Policy, PoolInstance, Preemption,
    PrefillChoice, Priority, Queued, Replica, Request, RoutedRequest, Routing, Running, Saturation, Scaling,
    Scheduling, Setup, StartingReplica, Step,
};
use serde::{Deserialize, Serialize};

/// A policy with results that show its inputs.
#[derive(Serialize, Deserialize)]
struct Everything {
    offset: f64,
    routed: u32,
}

blis_sdk::signals! {
    struct TestSignals { cached_blocks, queue_depth }
}

impl Policy for Everything {
    type Signals = TestSignals;

    fn describe() -> Description {
        Description::new("everything")
            .version("1.2.3")
            .events(EventSet::ROUTED | EventSet::BLOCKS)
            .scores()
            .parameter("offset", 5.0, 0.0..=10.0, "added to ranks")
            .text_parameter("label", "usual", "a text")
            .table_parameter("steps", NumberTable { columns: 2, numbers: vec![1.0, 2.0] }, 0.0..=9.0, "a table")
    }

    fn new(setup: &Setup) -> Result<Self, String> {
        let offset = setup.parameter("offset");
        let rows: Vec<&[f64]> = setup.table("steps").rows().collect();
        assert!(setup.text("label") == "other" && rows == [[1.0, 2.0], [3.0, 4.0]], "label and steps as given");
        if setup.model_fact("num_layers") != Some(32.0) || setup.instances.len() != 1 {
            return Err(format!("the model facts are {:?}", setup.model_facts().collect::<Vec<_>>()));
        }
        Ok(Self { offset, routed: 0 })
    }
}

impl Admission for Everything {
    fn admit(&mut self, request: &Request, cluster: &Cluster<'_, TestSignals>) -> AdmissionDecision {
        if request.class_priority < 0 {
            return AdmissionDecision::Reject(format!("{} in {}", request.class_priority, cluster.ages.periodic_us));
        }
        AdmissionDecision::Admit
    }
}

impl Routing for Everything {
    fn route(&mut self, _: &Request, cluster: &Cluster<'_, TestSignals>) -> usize {
        blis_sdk::log!("{} instances", cluster.instances.len());
        // With four instances any row may have changed.
        let expected: Option<&[u32]> = (cluster.instances.len() != 4).then_some(&[2, 0]);
        blis_sdk::changed(|indices| assert!(indices == expected, "changed are {indices:?}"));
        let blocks = blis_sdk::prompt_blocks();
        assert!(blocks == [7, 8], "blocks are {blocks:?}");
        assert!(blis_sdk::text(3) == "gold" && blis_sdk::random() == 99);
        blis_sdk::argmin(cluster.instances.iter().map(|instance| instance.queue_depth))
    }

    fn scores(&self, _: &Request, cluster: &Cluster<'_, TestSignals>, scores: &mut Vec<f64>) {
        scores.extend(cluster.instances.iter().map(|instance| -instance.queue_depth));
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
    fn victim(&mut self, now_us: u64, requester: usize, batch: &[Running]) -> usize {
        now_us as usize * 100 + requester * 10 + batch.len()
    }
}

impl Latency for Everything {
    fn step_time(&self, step: &Step) -> u64 {
        10 * step.prefill_requests + step.decode_context
    }

    fn queueing_time(&self, input_tokens: u32) -> u64 {
        u64::from(input_tokens)
    }

    fn constants(&self) -> LatencyConstants {
        LatencyConstants { shortest_step_us: 2, preemption_us: 6, ..LatencyConstants::default() }
    }
}

impl Saturation for Everything {
    fn saturation(&mut self, now_us: u64, cluster: &Cluster<'_, TestSignals>) -> f64 {
        let queued: f64 = cluster.instances.iter().map(|instance| instance.queue_depth).sum();
        self.offset + now_us as f64 + cluster.ages.periodic_us as f64 + queued
    }
}

impl Ceilings for Everything {
    fn ceilings(&mut self, now_us: u64, saturation: f64, bands: &[Band], ceilings: &mut Vec<f64>) {
        ceilings.extend(bands.iter().map(|band| now_us as f64 + saturation + f64::from(band.priority)));
        ceilings.truncate(2);
    }
}

impl Fairness for Everything {
    fn fair_pick(&mut self, now_us: u64, saturation: f64, band: &Band, flows: &[Flow]) -> usize {
        let flow = flows.last().expect("there is one");
        now_us as usize + saturation as usize + band.queued as usize + flow.head_slo_class as usize + flows.len()
    }
}

impl Ordering for Everything {
    fn order(&mut self, request: &Request, expires_us: u64) -> f64 {
        f64::from(request.id) + expires_us as f64
    }
}

impl Scaling for Everything {
    fn scale(&mut self, now_us: u64, groups: &[Group], history: &[Group], replicas: &mut Vec<f64>) {
        let before = history.iter().map(|group| group.replicas).sum::<u32>();
        replicas.extend(groups.iter().map(|group| now_us as f64 + group.kv_used + f64::from(group.completed + before)));
        replicas.truncate(2);
    }
}

impl Eviction for Everything {
    fn evict(&mut self, now_us: u64, demand: &Band, in_flight: &[InFlight]) -> Option<usize> {
        let newest = in_flight.last().expect("there is one");
        (demand.priority > 0).then_some((now_us - newest.dispatched_us) as usize + newest.tenant as usize)
    }
}

impl Drain for Everything {
    fn drain(&mut self, group: &DrainGroup, replicas: &[Replica]) -> usize {
        let last = replicas.last().expect("there is one");
        group.now_us as usize + (group.replicas + last.state) as usize + last.kv_utilization as usize + replicas.len()
    }
}

impl Placement for Everything {
    fn placement(&mut self, replica: &StartingReplica, nodes: &[Node]) -> Option<usize> {
        let last = nodes.last().expect("there is one");
        (last.free_gpus > replica.gpus).then_some(replica.created_us as usize + last.group_replicas as usize)
    }
}

impl KvCache for Everything {
    fn keep(&mut self, now_us: u64, chunks: &[KvChunk], ranks: &mut Vec<f64>) {
        ranks.extend(chunks.iter().map(|chunk| (now_us + u64::from(chunk.uses)) as f64));
    }

    fn store(&mut self, offer: &ChunkOffer, chunks: &[KvChunk], stored: &mut Vec<f64>) {
        stored.extend(chunks.iter().map(|chunk| f64::from(chunk.offers) - offer.fill));
    }

    fn load(&mut self, hit: &KvHit) -> bool {
        hit.tokens > hit.prefill_tokens
    }
}

impl Disaggregation for Everything {
    fn disaggregate(
        &mut self,
        request: &RoutedRequest,
        decode: &[PoolInstance],
        prefill: &[PoolInstance],
    ) -> PrefillChoice {
        let remote = decode[request.chosen as usize].uncached_tokens > request.input_tokens / 2;
        PrefillChoice::new(remote).prefilled_by(prefill.len() - 1)
    }
}

impl Lifecycle for Everything {
    fn observe(&mut self, event: &Event) {
        assert!(event.request != 13, "bad luck");
        self.routed += 1;
    }
}

blis_sdk::export_policy!(
    Everything: Admission, Routing, Priority, Scheduling, Preemption, Latency, Saturation, Ceilings, Fairness, Ordering,
    Eviction, Scaling, Drain, Placement, KvCache, Disaggregation, Lifecycle
);

type StatePointer = *mut c_void;

/// Calls a function of the table.
macro_rules! call {
    ($table:expr, $function:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: the arguments are as the header requires; the tests pass wrong ones only where the SDK checks them.
        unsafe { $table.$function.expect("filled in")($($argument),*) }
    };
}

unsafe extern "C" {
    safe fn blis_plugin_v1() -> *const PolicyTable;
}

/// Records the calls of host functions.
#[derive(Default)]
struct HostRecord {
    log: Vec<(u32, String)>,
    failures: Vec<String>,
    picks: Vec<u32>,
    /// Whether `changed` reports that any row may have changed.
    any_changed: bool,
}

fn string(text: CText) -> String {
    // SAFETY: the library's texts are valid during the call.
    String::from_utf8(unsafe { std::slice::from_raw_parts(text.data, text.len) }.to_vec()).unwrap()
}

fn record_of(context: *mut c_void) -> &'static mut HostRecord {
    // SAFETY: every host of this file has such a context, leaked, used by one thread.
    unsafe { &mut *context.cast() }
}

extern "C" fn log(context: *mut c_void, level: u32, text: CText) {
    record_of(context).log.push((level, string(text)));
}

extern "C" fn fail(context: *mut c_void, text: CText) {
    record_of(context).failures.push(string(text));
}

extern "C" fn random(_: *mut c_void) -> u64 {
    99
}

extern "C" fn pick(context: *mut c_void, n: u32) -> u32 {
    record_of(context).picks.push(n);
    n - 1
}

extern "C" fn prompt_blocks(_: *mut c_void, blocks: *mut *const u32) -> usize {
    static BLOCKS: [u32; 2] = [7, 8];
    // SAFETY: the library passes valid memory for the pointer.
    unsafe { *blocks = BLOCKS.as_ptr() };
    2
}

extern "C" fn text(_: *mut c_void, name: u32) -> CText {
    let text = if name == 3 { "gold" } else { "" };
    CText::of(text)
}

extern "C" fn changed(context: *mut c_void, indices: *mut *const u32) -> usize {
    static INDICES: [u32; 2] = [2, 0];
    if record_of(context).any_changed {
        return usize::MAX;
    }
    // SAFETY: as above.
    unsafe { *indices = INDICES.as_ptr() };
    2
}

fn host() -> CHost {
    let context = ptr::from_mut(Box::leak(Box::new(HostRecord::default()))).cast();
    CHost { context, log, fail, random, pick, prompt_blocks, text, changed }
}

fn exported() -> &'static PolicyTable {
    // SAFETY: a static of this program.
    unsafe { &*blis_plugin_v1() }
}

fn created(host: &CHost, offset: f64, layers: f64) -> StatePointer {
    let info = InstanceInfo { id: 0, max_num_seqs: 8, total_kv_blocks: 100, block_size: 16 };
    let model_fact = CModelFact { name: CText::of("num_layers"), value: layers };
    let numbers = [1.0, 2.0, 3.0, 4.0];
    let nothing = CValue::number(0.0);
    let parameters = [
        CValue::number(offset),
        CValue { kind: CValue::TEXT, text: CText::of("other"), ..nothing },
        CValue { kind: CValue::TABLE, columns: 2, numbers: numbers.as_ptr(), count: 4, ..nothing },
    ];
    let setup = table::CSetup {
        kind: CText::of("routing"),
        instances: &raw const info,
        instance_count: 1,
        parameters: parameters.as_ptr(),
        model_facts: &raw const model_fact,
        model_fact_count: 1,
    };
    call!(exported(), create(host, &raw const setup))
}

#[test]
fn the_table_is_that_of_the_header() {
    let table = exported();
    assert_eq!((table.abi_version, table.size as usize), (1, size_of::<PolicyTable>()));
    assert_eq!(table.struct_sizes, [112, 32, 24, 64, 64, 64, 48]);
    let described = call!(table, describe());
    // SAFETY: lives as long as the program.
    let described = unsafe { &*described };
    assert_eq!((string(described.name).as_str(), string(described.version).as_str()), ("everything", "1.2.3"));
    let names = |list: CTexts| {
        // SAFETY: the same.
        let texts = unsafe { std::slice::from_raw_parts(list.items, list.count) };
        texts.iter().map(|&text| string(text)).collect::<Vec<_>>().join(" ")
    };
    let kinds = "admission routing priority scheduling preemption latency saturation ceilings fairness ordering eviction \
                 scaling drain placement kv-cache disaggregation";
    assert_eq!(names(described.kinds), kinds);
    assert_eq!(names(described.reads), "cached-blocks queue-depth", "in the order of the fields");
    assert_eq!((names(described.events).as_str(), described.scores), ("routed blocks", 1));
    // SAFETY: the same.
    let parameters = unsafe { std::slice::from_raw_parts(described.parameters, described.parameter_count) };
    let [offset, label, steps] = parameters else { panic!("three parameters") };
    assert_eq!((string(offset.name).as_str(), string(offset.about).as_str()), ("offset", "added to ranks"));
    let default = offset.default_value;
    assert_eq!((default.kind, default.number, offset.min, offset.max), (CValue::NUMBER, 5.0, 0.0, 10.0));
    assert_eq!((label.default_value.kind, string(label.default_value.text).as_str()), (CValue::TEXT, "usual"));
    let table = steps.default_value;
    assert_eq!((table.kind, table.columns, table.count, steps.max), (CValue::TABLE, 2, 2, 9.0));
}

#[test]
fn every_kind_gets_its_arguments_and_returns_its_result() {
    let (host, table) = (host(), exported());
    let state = created(&host, 0.5, 32.0);
    let request = Request { id: 40, class_priority: 1, ..Request::default() };
    let ages = Ages { periodic_us: 77, ..Ages::default() };
    let instance = |queue_depth| TestSignals { queue_depth, ..TestSignals::default() };
    let instances = [instance(3.0), instance(1.0), instance(1.0)];
    let rows: *const c_void = instances.as_ptr().cast();
    let mut reason = CText::EMPTY;
    assert_eq!(call!(table.functions, admit(&host, state, &request, &ages, rows, 3, 16, &mut reason)), 1);
    let hopeless = Request { class_priority: -2, ..request };
    assert_eq!(call!(table.functions, admit(&host, state, &hopeless, &ages, rows, 3, 16, &mut reason)), 0);
    assert_eq!(string(reason), "-2 in 77");
    assert_eq!(call!(table.functions, route(&host, state, &request, &ages, rows, 3, 16)), 2);
    let mut scores = [0.0; 3];
    call!(table.functions, scores(&host, state, &request, &ages, rows, 3, 16, scores.as_mut_ptr()));
    assert_eq!(scores, [-3.0, -1.0, -1.0]);
    assert_eq!(call!(table.functions, priority(&host, state, &request)), -40);
    let queued = Queued { turn: 3, ..Queued::default() };
    assert_eq!(call!(table.functions, rank(&host, state, &request, &queued)), 43.5);
    let batch = [Running::default(); 2];
    assert_eq!(call!(table.functions, victim(&host, state, 3, 1, batch.as_ptr().cast(), 2, 64)), 312);
    let mut constants = LatencyConstants::default();
    call!(table.functions, constants(&host, state, &mut constants));
    assert_eq!((constants.shortest_step_us, constants.preemption_us), (2, 6));
    assert_eq!(call!(table.functions, queueing_time(&host, state, 9)), 9);
    let step = Step { prefill_requests: 4, decode_context: 2, ..Step::default() };
    assert_eq!(call!(table.functions, step_time(&host, state, &step)), 42);
    assert_eq!(record_of(host.context).log, [(2, "3 instances".to_owned())]);
    assert_eq!(record_of(host.context).picks, [2]);
    assert!(record_of(host.context).failures.is_empty());
    call!(table, destroy(state));
}

#[test]
fn flow_control_gets_its_arguments_and_returns_its_result() {
    let (host, table) = (host(), exported());
    let state = created(&host, 0.5, 32.0);
    let ages = Ages { periodic_us: 20, ..Ages::default() };
    let instances = [TestSignals { queue_depth: 3.0, ..TestSignals::default() }; 2];
    assert_eq!(call!(table.functions, saturation(&host, state, 100, &ages, instances.as_ptr().cast(), 2, 16)), 126.5);
    let band = |priority| Band { priority, queued: 30, oldest_wait_us: 5 };
    let bands = [band(4), band(-1), band(-2)];
    let mut limits = [0.0; 3];
    call!(table.functions, ceilings(&host, state, 1, 0.25, bands.as_ptr().cast(), 2, 16, limits.as_mut_ptr()));
    assert_eq!(limits, [5.25, 0.25, 0.0]);
    let flows = [Flow { head_slo_class: 7, ..Flow::default() }; 2];
    let picked = call!(table.functions, fair_pick(&host, state, 1000, 200.9, &bands[0], flows.as_ptr().cast(), 2, 104));
    assert_eq!(picked, 1239);
    assert_eq!(call!(table.functions, order(&host, state, &Request { id: 3, ..Request::default() }, 40)), 43.0);
    let in_flight = [InFlight { dispatched_us: 90, tenant: 2, ..InFlight::default() }; 2];
    let evicted =
        |demand: &Band| call!(table.functions, evict(&host, state, 100, demand, in_flight.as_ptr().cast(), 2, 24));
    assert_eq!((evicted(&bands[0]), evicted(&bands[1])), (12, u32::MAX));
    let group = |completed| Group { completed, kv_used: 0.5, ..Group::default() };
    let (groups, before) = ([group(1), group(2), group(3)], [Group { replicas: 20, ..group(0) }; 4]);
    let mut replicas = [0.0; 3];
    let rows = [groups.as_ptr().cast(), before.as_ptr().cast()];
    call!(table.functions, scale(&host, state, 100, rows[0], 2, rows[1], 4, 200, replicas.as_mut_ptr()));
    assert_eq!(replicas, [181.5, 182.5, 0.0]);
    let group = DrainGroup { now_us: 100, replicas: 20, ..DrainGroup::default() };
    let replicas = [Replica { state: 3, kv_utilization: 1.0, ..Replica::default() }; 2];
    assert_eq!(call!(table.functions, drain(&host, state, &group, replicas.as_ptr().cast(), 2, 72)), 126);
    let replica = StartingReplica { created_us: 7, gpus: 4, ..StartingReplica::default() };
    let placed = |free_gpus| {
        let nodes = [Node { free_gpus, group_replicas: 2, ..Node::default() }; 2];
        call!(table.functions, placement(&host, state, &replica, nodes.as_ptr().cast(), 2, 40))
    };
    assert_eq!((placed(8), placed(4)), (9, u32::MAX));
    let chunks = [1, 2].map(|count| KvChunk { uses: count, offers: count, ..KvChunk::default() });
    let mut numbers = [0.0; 3];
    call!(table.functions, keep(&host, state, 100, chunks.as_ptr().cast(), 2, 80, numbers.as_mut_ptr()));
    assert_eq!(numbers, [101.0, 102.0, 0.0]);
    let offer = ChunkOffer { fill: 0.5, ..ChunkOffer::default() };
    call!(table.functions, store(&host, state, &offer, chunks.as_ptr().cast(), 2, 80, numbers.as_mut_ptr()));
    assert_eq!(numbers, [0.5, 1.5, 0.0]);
    let loads =
        |tokens| call!(table.functions, load(&host, state, &KvHit { tokens, prefill_tokens: 4, ..KvHit::default() }));
    assert_eq!([loads(5), loads(4)], [1, 0]);
    let decode = [5, 6].map(|uncached_tokens| PoolInstance { uncached_tokens, ..PoolInstance::default() });
    let prefilled = |chosen| {
        let request = RoutedRequest { chosen, input_tokens: 10, ..RoutedRequest::default() };
        let mut choice = PrefillChoice::new(false);
        let (start, all) = (decode.as_ptr().cast(), decode[..1].as_ptr().cast());
        call!(table.functions, disaggregate(&host, state, &request, start, 2, all, 1, 48, &raw mut choice));
        choice
    };
    assert_eq!(prefilled(0), PrefillChoice { remote: 0, decode: u32::MAX, prefill: 0 });
    assert_eq!(prefilled(1), PrefillChoice { remote: 1, decode: u32::MAX, prefill: 0 });
    assert!(record_of(host.context).failures.is_empty());
    call!(table.functions, ceilings(&host, state, 1, 0.25, bands.as_ptr().cast(), 3, 16, limits.as_mut_ptr()));
    assert!(record_of(host.context).failures[0].contains("2 numbers for 3 bands"));
    call!(table, destroy(state));
}

#[test]
fn rows_of_a_later_host_are_longer() {
    #[repr(C)]
    struct Longer(TestSignals, u64);
    let host = host();
    let state = created(&host, 0.5, 32.0);
    record_of(host.context).any_changed = true;
    let longer = |queue_depth| Longer(TestSignals { queue_depth, ..TestSignals::default() }, u64::MAX);
    let instances = [longer(3.0), longer(2.0), longer(1.0), longer(4.0)];
    let route = |stride| {
        let request = Request::default();
        call!(
            exported().functions,
            route(&host, state, &request, &Ages::default(), instances.as_ptr().cast(), 4, stride)
        )
    };
    assert_eq!(route(size_of::<Longer>()), 2);
    assert_eq!((route(8), record_of(host.context).failures.len()), (u32::MAX, 1), "shorter ones are refused");
    call!(exported(), destroy(state));
}

#[test]
fn a_saved_state_continues_elsewhere() {
    let (host, table) = (host(), exported());
    let (a, b) = (created(&host, 7.0, 32.0), created(&host, 1.0, 32.0));
    for _ in 0..300 {
        call!(table.functions, observe(&host, a, &Event::default()));
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
    assert!(record_of(host.context).failures.iter().all(|text| text.starts_with("not a state of this policy")));
    call!(table, destroy(a));
    call!(table, destroy(b));
}

#[test]
fn refusals_and_panics_reach_the_host() {
    let host = host();
    assert!(created(&host, 5.0, 31.0).is_null());
    let state = created(&host, 5.0, 32.0);
    call!(exported().functions, observe(&host, state, &Event { request: 13, ..Event::default() }));
    let failures = &record_of(host.context).failures;
    assert_eq!(failures[0], r#"the model facts are [("num_layers", 31.0)]"#);
    assert!(failures[1].starts_with("panicked at "), "{failures:?}");
    assert!(failures[1].contains("table.rs:") && failures[1].ends_with("bad luck"), "{failures:?}");
    call!(exported(), destroy(state));
}
