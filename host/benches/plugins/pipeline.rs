//! The cost of a routing pipeline of plugins beside one call of a plugin that routes alone.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use blis_plugin::adapt::PluginPolicy;
use blis_plugin::incidents::{Incidents, OnError};
use blis_plugin::inputs::SyntheticService;
use blis_plugin::wasm::{CompileCache, WasmSettings, load};
use blis_plugin::{GuestSetup, Kind, Limits, Plugin, script};
use blis_sim::policy::{
    BlockIds, FilterStep, PrefixCacheFilter, RoutingFilter, RoutingPolicy, SaturationFilter, ScorerKind, ScorerStep,
    Ties, Weighted,
};
use blis_sim::rng::Stream;
use divan::Bencher;

use crate::view::SIZES;

/// The names of tenants and the like: those of a run, one list for all plugins.
static NAMES: LazyLock<Arc<[Box<str>]>> = LazyLock::new(|| [].into());

/// The committed component of `token-aware`, which filters, scores and routes.
fn component() -> Arc<dyn Plugin> {
    let bytes = include_bytes!("../../../policies/rust-token-aware.wasm");
    let cache = CompileCache::Folder(std::env::temp_dir().join("blis-bench-plugins"));
    let settings = WasmSettings { cache, ..WasmSettings::default() };
    load(Path::new("rust-token-aware.wasm"), bytes, &Limits::default(), &settings).expect("loads")
}

/// Its filter and its scorer as scripts.
fn scripts() -> [Arc<dyn Plugin>; 2] {
    let load = |name: &str, source: &str| script::load(Path::new(name), source, &Limits::default()).expect("loads");
    [
        load("sticky.rhai", include_str!("../../../examples/built-ins/sticky.rhai")),
        load("token-load.rhai", include_str!("../../../examples/built-ins/token-load.rhai")),
    ]
}

fn policy(kind: Kind, plugin: &Arc<dyn Plugin>) -> PluginPolicy {
    let description = plugin.description();
    let setup = GuestSetup {
        kind,
        parameters: description.parameters.iter().map(|parameter| parameter.default).collect(),
        others: Vec::new(),
        instances: [].into(),
        names: Arc::clone(&NAMES),
        model_facts: [].into(),
        stream: Stream::new(42, "plugin"),
        explain: false,
        limits: Limits::default(),
        abort: blis_sim::cluster::Abort::default(),
    };
    let guest = plugin.start(&setup).expect("starts");
    let incidents = Incidents::new(OnError::Fail, setup.abort.clone());
    PluginPolicy::new("plugin", description, guest, BlockIds::KEYS, &incidents)
}

/// Two filters and three scorers.
fn pipeline(filter: &Arc<dyn Plugin>, scorer: &Arc<dyn Plugin>) -> Weighted {
    let filters = (0..2).map(|_| FilterStep::Step(Box::new(policy(Kind::RoutingFilter, filter)))).collect();
    let scorer = || ScorerStep::Step(Box::new(policy(Kind::Routing, scorer)));
    Weighted::pipeline(filters, (1..=3).map(|weight| (scorer(), f64::from(weight))).collect(), None).expect("is valid")
}

/// Measures decisions of `policy` in the course of a run.
fn bench(bencher: Bencher, n: usize, mut policy: impl RoutingPolicy) {
    let mut service = SyntheticService::new(n);
    let reads = policy.reads();
    let mut scores = Vec::new();
    bencher.bench_local(|| {
        service.advance(reads);
        scores.clear();
        policy.route(&service.request(), &service.cluster(), &Ties::LowestIndex, &mut scores)
    });
}

/// One call of the component that routes, to which the pipeline is compared.
#[divan::bench(args = SIZES)]
fn component_alone(bencher: Bencher, n: usize) {
    bench(bencher, n, policy(Kind::Routing, &component()));
}

#[divan::bench(args = SIZES)]
fn component_pipeline(bencher: Bencher, n: usize) {
    let plugin = component();
    bench(bencher, n, pipeline(&plugin, &plugin));
}

/// One call of a script that routes.
#[divan::bench(args = SIZES)]
fn script_alone(bencher: Bencher, n: usize) {
    bench(bencher, n, policy(Kind::Routing, &scripts()[1]));
}

/// One call of a script that routes as its filter and its scorer together do.
#[divan::bench(args = SIZES)]
fn script_of_both(bencher: Bencher, n: usize) {
    let source = include_str!("../../../examples/built-ins/token-aware.rhai");
    let plugin = script::load(Path::new("token-aware.rhai"), source, &Limits::default()).expect("loads");
    bench(bencher, n, policy(Kind::Routing, &plugin));
}

#[divan::bench(args = SIZES)]
fn script_pipeline(bencher: Bencher, n: usize) {
    let [filter, scorer] = scripts();
    bench(bencher, n, pipeline(&filter, &scorer));
}

/// A built-in scorer, for comparison: the floor, in which the course of the run is included.
#[divan::bench(args = SIZES)]
fn built_in_alone(bencher: Bencher, n: usize) {
    bench(bencher, n, Weighted::new(vec![(ScorerKind::TokenLoad, 1.0)]).expect("is valid"));
}

/// One scorer that is a plugin beside two filters and two scorers of this program.
fn mixed(scorer: &Arc<dyn Plugin>) -> Weighted {
    let filters = [
        RoutingFilter::PrefixCache(PrefixCacheFilter {
            affinity: 0.8,
            peak_prefill: 15_928.0,
            max_penalty_ms: 18_000.0,
        }),
        RoutingFilter::Saturation(SaturationFilter { queue_depth: 5.0, kv_utilization: 0.8, headroom: 0.0 }),
    ];
    let built_in = [ScorerKind::QueueDepth, ScorerKind::KvUtilization].map(|kind| (ScorerStep::BuiltIn(kind), 1.0));
    let plugin = (ScorerStep::Step(Box::new(policy(Kind::Routing, scorer))), 2.0);
    let scorers = [plugin].into_iter().chain(built_in).collect();
    Weighted::pipeline(filters.map(FilterStep::BuiltIn).into(), scorers, None).expect("is valid")
}

#[divan::bench(args = SIZES)]
fn component_beside_built_ins(bencher: Bencher, n: usize) {
    bench(bencher, n, mixed(&component()));
}

#[divan::bench(args = SIZES)]
fn script_beside_built_ins(bencher: Bencher, n: usize) {
    bench(bencher, n, mixed(&scripts()[1]));
}
