//! Components.

use std::path::Path;
use std::sync::Arc;

use blis_plugin::wasm::{CompileCache, WasmSettings, componentize, load};
use blis_plugin::{Kind, Limits, Plugin, RoutingGuest, GuestSetup, StartedGuest};
use blis_sim::policy::Ties;
use blis_sim::rng::Stream;
use divan::Bencher;

use crate::view::{Cluster, SIZES};

/// Least loaded, by hand: what the way into a guest and back costs, with as little work as there is.
fn component() -> Vec<u8> {
    let core = wat::parse_str(include_str!("../../plugin/src/wasm/fixtures/least_loaded.wat")).expect("assembles");
    componentize(Path::new("least_loaded.wasm"), &core).expect("becomes a component")
}

fn settings() -> WasmSettings {
    WasmSettings { strict: false, cache: CompileCache::Folder(std::env::temp_dir().join("blis-bench-plugins")) }
}

fn plugin(component: &[u8]) -> Arc<dyn Plugin> {
    load(Path::new("least_loaded.wasm"), component, &Limits::default(), &settings()).expect("loads")
}

fn start(plugin: &dyn Plugin) -> Box<dyn RoutingGuest> {
    let setup = GuestSetup {
        kind: Kind::Routing,
        parameters: vec![1.0],
        instances: [].into(),
        names: [].into(),
        model_facts: [].into(),
        stream: Stream::new(42, "plugin"),
        explain: false,
        limits: Limits::default(),
        abort: blis_sim::cluster::Abort::default(),
    };
    plugin.start(&setup).and_then(StartedGuest::into_kind).expect("starts")
}

fn route(bencher: Bencher, n: usize, fresh: bool) {
    let mut guest = start(plugin(&component()).as_ref());
    let mut scores = Vec::new();
    Cluster::new(n).bench(bencher, fresh, |request, cluster| {
        guest.route(request, cluster, &Ties::LowestIndex, &mut scores).expect("routes")
    });
}

/// One call, with signals that are as they were but for the requests in flight.
#[divan::bench(args = SIZES)]
fn component_routes(bencher: Bencher, n: usize) {
    route(bencher, n, false);
}

/// One call, with signals that are all new.
#[divan::bench(args = SIZES)]
fn component_routes_by_fresh_signals(bencher: Bencher, n: usize) {
    route(bencher, n, true);
}

/// From the bytes of a component that was compiled before to a plugin that has described itself.
#[divan::bench]
fn load_compiled_before(bencher: Bencher) {
    let component = component();
    plugin(&component);
    bencher.bench(|| plugin(&component));
}

/// A state for a simulation.
#[divan::bench]
fn start_component(bencher: Bencher) {
    let plugin = plugin(&component());
    bencher.bench(|| start(plugin.as_ref()));
}
