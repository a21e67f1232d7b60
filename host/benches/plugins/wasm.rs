//! The cost of plugins that are WebAssembly components.

use std::path::Path;
use std::sync::Arc;

use blis_plugin::wasm::{CompileCache, WasmSettings, componentize, load};
use blis_plugin::{Guest, GuestSetup, Kind, Limits, Plugin};
use blis_sim::policy::Ties;
use blis_sim::rng::Stream;
use divan::Bencher;

use crate::view::{BenchCluster, SIZES};

/// The policy `least-loaded`, written by hand: the cost of the call into a guest and back, with a minimum of work.
fn component() -> Vec<u8> {
    let core = wat::parse_str(include_str!("../../plugin/src/wasm/fixtures/least_loaded.wat")).expect("assembles");
    componentize(Path::new("least_loaded.wasm"), &core).expect("becomes a component")
}

fn settings() -> WasmSettings {
    WasmSettings {
        // What canonical NaNs cost: once with this variable, once without.
        raw_nan: std::env::var_os("BLIS_BENCH_RAW_NAN").is_some(),
        cache: CompileCache::Folder(std::env::temp_dir().join("blis-bench-plugins")),
    }
}

fn plugin(component: &[u8]) -> Arc<dyn Plugin> {
    load(Path::new("least_loaded.wasm"), component, &Limits::default(), &settings()).expect("loads")
}

fn start(plugin: &dyn Plugin) -> Box<dyn Guest> {
    let setup = GuestSetup {
        kind: Kind::Routing,
        parameters: vec![1.0],
        others: Vec::new(),
        instances: [].into(),
        names: [].into(),
        model_facts: [].into(),
        stream: Stream::new(42, "plugin"),
        explain: false,
        limits: Limits::default(),
        abort: blis_sim::cluster::Abort::default(),
    };
    plugin.start(&setup).expect("starts")
}

fn route(bencher: Bencher, n: usize, fresh: bool) {
    let mut guest = start(plugin(&component()).as_ref());
    let mut scores = Vec::new();
    BenchCluster::new(n).bench(bencher, fresh, |request, cluster| {
        scores.clear();
        guest.route(request, cluster, &Ties::LowestIndex, &mut scores).expect("routes")
    });
}

/// One call, where only the requests in flight have changed since the last call.
#[divan::bench(args = SIZES)]
fn component_routes(bencher: Bencher, n: usize) {
    route(bencher, n, false);
}

/// One call, where all signals were refreshed since the last call.
#[divan::bench(args = SIZES)]
fn component_routes_by_fresh_signals(bencher: Bencher, n: usize) {
    route(bencher, n, true);
}

/// Loading the bytes of a component that was compiled before, including its description.
#[divan::bench]
fn load_compiled_before(bencher: Bencher) {
    let component = component();
    plugin(&component);
    bencher.bench(|| plugin(&component));
}

/// Starting a guest for a simulation.
#[divan::bench]
fn start_component(bencher: Bencher) {
    let plugin = plugin(&component());
    bencher.bench(|| start(plugin.as_ref()));
}
