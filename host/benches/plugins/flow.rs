//! The cost of a script that picks flows, which keeps numbers for each tenant in its state.

use std::path::Path;

use blis_plugin::check::setup;
use blis_plugin::inputs::GatewayState;
use blis_plugin::{Kind, Limits, script};
use divan::Bencher;

use crate::view::SIZES;

/// A decision among `n` flows, each about another state of the queue.
#[divan::bench(args = SIZES)]
fn virtual_token_counter_script(bencher: Bencher, n: usize) {
    let source = include_str!("../../../examples/built-ins/virtual-token-counter.rhai");
    let limits = Limits::default();
    let plugin = script::load(Path::new("virtual-token-counter.rhai"), source, &limits).expect("loads");
    let setup = setup(plugin.as_ref(), Kind::Fairness, n, &limits);
    let guest = plugin.start(&setup);
    let mut guest = guest.expect("starts");
    let states: Vec<GatewayState> = (0..64).map(|item| GatewayState::plausible(n, item)).collect();
    let mut states = states.iter().cycle();
    bencher.bench_local(|| states.next().map(|state| state.decide(&mut *guest, &mut Vec::new())));
}
