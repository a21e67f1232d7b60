//! Requests that may be prefilled elsewhere, and the instances that decode and prefill.

use std::sync::Arc;

use blis_abi::Row as _;
use blis_sim::units::Micros;
use rand::RngExt as _;

use super::call_inputs::{CallInputs, largest};
use super::point::generator;
use crate::rows::{PoolInstanceRow, RoutedRequestRow};

/// A request for which an instance that decodes was chosen, and the instances that decode and prefill, at least one each.
fn of_pools(request: RoutedRequestRow, decode: Vec<PoolInstanceRow>, prefill: Vec<PoolInstanceRow>) -> CallInputs {
    CallInputs::at(Micros(request.now_us), vec![Arc::new(vec![request]), Arc::new(decode), Arc::new(prefill)])
}

/// Inputs number `item`, with `n` instances that prefill and half as many that decode.
pub(super) fn plausible(n: usize, item: u64) -> CallInputs {
    let mut rng = generator("pools", item);
    let input_tokens = rng.random_range(100..20_000);
    let decodes = n.div_ceil(2) as u32;
    let mut instance = |number: usize| {
        let (queue_depth, batch_size) = (rng.random_range(0..20), rng.random_range(0..200));
        let cached = rng.random_range(0..=input_tokens / 16);
        let transfers = rng.random_range(0..4);
        PoolInstanceRow {
            in_flight_tokens: rng.random_range(0..100_000),
            kv_utilization: f64::from(rng.random_range(0..=1000)) / 1000.0,
            instance: number as u32,
            queue_depth,
            batch_size,
            in_flight: queue_depth + batch_size,
            uncached_tokens: input_tokens - 16 * cached,
            free_kv_blocks: rng.random_range(0..20_000),
            transfers,
            transfer_tokens: transfers * rng.random_range(0..5000),
        }
    };
    let prefill = (0..n).map(&mut instance).collect();
    let decode = (n..n + decodes as usize).map(&mut instance).collect();
    let transfers = rng.random_range(0..10);
    let request = RoutedRequestRow {
        now_us: 1_000_000_000 + 250_000 * item,
        transfer_us_per_token: f64::from(rng.random_range(0..20_u32)) / 4.0,
        request: item as u32,
        input_tokens,
        chosen: rng.random_range(0..decodes.max(1)),
        transfers,
        transfer_tokens: transfers * rng.random_range(0..5000),
        slo_class: 0,
        tenant: 0,
        session: 0,
        prefix_group: 0,
        round: rng.random_range(0..4),
    };
    of_pools(request, decode, prefill)
}

/// Inputs with values at the limits of their ranges, by name.
pub(super) fn extreme(n: usize) -> Vec<(&'static str, CallInputs)> {
    let zero = vec![PoolInstanceRow::ZERO; n];
    let request = RoutedRequestRow { chosen: n as u32 - 1, ..largest() };
    let instances = vec![PoolInstanceRow { kv_utilization: 1.0, ..largest() }; n];
    vec![
        ("everything 0", of_pools(RoutedRequestRow::ZERO, zero.clone(), zero)),
        ("everything as large as it can be", of_pools(request, instances.clone(), instances)),
    ]
}
