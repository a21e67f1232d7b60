//! The cost of a decision in a Rhai script, beside the built-in policy with the same rule, and the cost of loading a
//! script.
//!
//! `cargo bench --bench scripts [-- FILTER]`

use std::path::Path;
use std::sync::Arc;

use blis_plugin::{Guest, GuestSetup, Kind, Limits, Plugin, script};
use blis_sim::ids::{InstanceIndex, RequestId};
use blis_sim::policy::{
    ClusterView, Event, EventKind, InstanceInfo, RequestView, RoutingPolicy, Signals, Staleness, Ties, Versions,
    Weighted,
};
use blis_sim::request::{Request, Tags};
use blis_sim::rng::Stream;
use blis_sim::units::Micros;
use divan::{Bencher, black_box};

const SIZES: [u32; 3] = [4, 64, 256];

const COLUMNS: &str = "fn route(r, s) {
    2.0*most_best(s.cached_blocks) + fewest_best(s.queue_depth) + (1.0 - s.kv_utilization)
}";

/// The same policy in a loop, which is slower.
const ROWS: &str = "fn route(r, s) {
    let best = 0;
    let highest = -1e9;
    for i in 0..s.len {
        let score = 2.0*s.cached_blocks[i] - s.queue_depth[i] + (1.0 - s.kv_utilization[i]);
        if score > highest { best = i; highest = score; }
    }
    best
}";

/// Keeps a state, and receives the events of requests.
const STATEFUL: &str = include_str!("track-latency.rhai");

fn main() {
    divan::main();
}

#[divan::bench(args = SIZES)]
fn built_in(bencher: Bencher, n: u32) {
    let service = BenchService::new(n);
    let mut policy = Weighted::default();
    let mut scores = Vec::new();
    let request = Request::new(RequestId(1), Micros(5), 1000, 100);
    bencher.bench_local(|| {
        scores.clear();
        policy.route(&RequestView::new(&request, 0, 16), &service.view(), &ties(), &mut scores)
    });
}

#[divan::bench(args = SIZES)]
fn columns(bencher: Bencher, n: u32) {
    routing(bencher, n, COLUMNS);
}

#[divan::bench(args = SIZES)]
fn rows(bencher: Bencher, n: u32) {
    routing(bencher, n, ROWS);
}

#[divan::bench(args = SIZES)]
fn stateful(bencher: Bencher, n: u32) {
    routing(bencher, n, STATEFUL);
}

#[divan::bench]
fn three_events(bencher: Bencher) {
    let mut guest = start(&BenchService::new(4), STATEFUL);
    let event = |kind| Event {
        at: Micros(9),
        kind,
        request: RequestId(1),
        instance: Some(InstanceIndex(1)),
        input_tokens: 100,
        generated_tokens: 5,
        ttft: Some(Micros(7)),
        e2e: Some(Micros(70)),
        tags: Tags::default(),
        block: 0,
    };
    let events = [EventKind::Routed, EventKind::FirstToken, EventKind::Completed].map(event);
    bencher.bench_local(|| {
        for event in &events {
            guest.observe(black_box(event)).expect("it observes");
        }
    });
}

#[divan::bench]
fn empty_call(bencher: Bencher) {
    routing(bencher, 4, "fn route(r, s) { 0 }");
}

#[divan::bench]
fn load_first_time(bencher: Bencher) {
    // Other limits need another engine; a few hundred engines are kept.
    let mut operations_per_call = Limits::default().operations_per_call;
    bencher.bench_local(|| {
        operations_per_call += 1;
        load(COLUMNS, &Limits { operations_per_call, ..Limits::default() })
    });
}

#[divan::bench]
fn load_again(bencher: Bencher) {
    bencher.bench_local(|| load(black_box(COLUMNS), &Limits::default()));
}

fn routing(bencher: Bencher, n: u32, source: &str) {
    let service = BenchService::new(n);
    let mut guest = start(&service, source);
    let mut scores = Vec::new();
    let request = Request::new(RequestId(1), Micros(5), 1000, 100);
    bencher.bench_local(|| {
        scores.clear();
        guest.route(&RequestView::new(&request, 0, 16), &service.view(), &ties(), &mut scores).expect("it routes")
    });
}

fn ties() -> Ties {
    Ties::Random(Stream::new(42, "router"))
}

fn load(source: &str, limits: &Limits) -> Arc<dyn Plugin> {
    script::load(Path::new("bench.rhai"), source, limits).expect("it compiles")
}

fn start(service: &BenchService, source: &str) -> Box<dyn Guest> {
    let plugin = load(source, &Limits::default());
    let setup = GuestSetup {
        kind: Kind::Routing,
        parameters: plugin.description().parameters.iter().map(|parameter| parameter.default).collect(),
        others: Vec::new(),
        instances: service.instances.clone().into(),
        names: [Box::from("")].into(),
        model_facts: [].into(),
        stream: Stream::new(42, "plugin"),
        explain: false,
        limits: Limits::default(),
        abort: blis_sim::cluster::Abort::default(),
    };
    plugin.start(&setup).expect("it starts")
}

/// Instances with different loads.
struct BenchService {
    instances: Vec<InstanceInfo>,
    signals: Signals,
}

impl BenchService {
    fn new(n: u32) -> Self {
        let info = |id| InstanceInfo {
            id,
            max_num_seqs: 256,
            total_kv_blocks: 10_000,
            block_size: 16,
            ..InstanceInfo::default()
        };
        let some = |step: u32, most: u32| (0..n).map(|i| (i + 1).wrapping_mul(step) % most).collect::<Vec<_>>();
        Self {
            instances: (0..n).map(InstanceIndex).map(info).collect(),
            signals: Signals {
                queue_depth: some(7919, 40),
                batch_size: some(104_729, 256),
                kv_utilization: some(1_299_709, 1000).iter().map(|&x| f64::from(x) / 1000.0).collect(),
                free_kv_blocks: some(15_485_863, 10_000),
                cache_hit_rate: some(611_953, 1000).iter().map(|&x| f64::from(x) / 1000.0).collect(),
                preemption_count: some(7, 3).iter().map(|&x| u64::from(x)).collect(),
                in_flight: some(31, 60),
                cached_blocks: some(224_737, 62),
                ..Signals::idle(vec![0; n as usize])
            },
        }
    }

    /// The view without versions, so that all signals count as refreshed each time.
    fn view(&self) -> ClusterView<'_> {
        ClusterView {
            now: Micros(1000),
            instances: &self.instances,
            signals: &self.signals,
            staleness: Staleness::default(),
            versions: Versions::default(),
            in_flight_changes: blis_sim::policy::Changes::UNKNOWN,
            tenants_in_flight: &[],
            scores: &[],
        }
    }
}
