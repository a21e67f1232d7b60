//! Requests that may be prefilled elsewhere, and the instances that decode and prefill.

use blis_abi::Row as _;
use rand::RngExt as _;

use super::{GuestOutput, generator, out_of_range};
use crate::Fault;
use crate::rows::{NONE_U32, PoolInstanceRow, PrefillChoiceRow, RoutedRequestRow};

/// A request for which an instance that decodes was chosen, and the instances.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolsState {
    pub(crate) request: RoutedRequestRow,
    /// At least one, as in `prefill`.
    pub(crate) decode: Vec<PoolInstanceRow>,
    pub(crate) prefill: Vec<PoolInstanceRow>,
}

const LATEST: u64 = i64::MAX.cast_unsigned();

impl PoolsState {
    /// State number `item`, with `n` instances that prefill and half as many that decode.
    #[must_use]
    pub fn plausible(n: usize, item: u64) -> Self {
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
        Self { request, decode, prefill }
    }

    /// States with values at the limits of their ranges, by name.
    #[must_use]
    pub fn extreme(n: usize) -> Vec<(&'static str, Self)> {
        let zero = vec![PoolInstanceRow::ZERO; n];
        let smallest = Self { request: RoutedRequestRow::ZERO, decode: zero.clone(), prefill: zero };
        let request = RoutedRequestRow {
            now_us: LATEST,
            transfer_us_per_token: 1e300,
            request: u32::MAX,
            input_tokens: u32::MAX,
            chosen: n as u32 - 1,
            transfers: u32::MAX,
            transfer_tokens: u32::MAX,
            slo_class: 0,
            tenant: 0,
            session: 0,
            prefix_group: 0,
            round: u32::MAX,
        };
        let instance = PoolInstanceRow {
            in_flight_tokens: LATEST,
            kv_utilization: 1.0,
            instance: u32::MAX,
            queue_depth: u32::MAX,
            batch_size: u32::MAX,
            in_flight: u32::MAX,
            uncached_tokens: u32::MAX,
            free_kv_blocks: u32::MAX,
            transfers: u32::MAX,
            transfer_tokens: u32::MAX,
        };
        let largest = Self { request, decode: vec![instance; n], prefill: vec![instance; n] };
        vec![("everything 0", smallest), ("everything as large as it can be", largest)]
    }

    /// The output for a choice, if it names instances that exist.
    pub(super) fn chosen(&self, choice: &PrefillChoiceRow) -> Result<GuestOutput, Fault> {
        let index = |what: &str, index: u32, pool: &[PoolInstanceRow]| match index {
            NONE_U32 => Ok(None),
            index if (index as usize) < pool.len() => Ok(Some(index as usize)),
            index => {
                let last = pool.len().saturating_sub(1);
                out_of_range(format!("disaggregate returned {index} for {what}; it must be none, or from 0 to {last}"))
            }
        };
        let decode = index("decode", choice.decode, &self.decode)?;
        Ok(GuestOutput::Prefilled(choice.remote != 0, decode, index("prefill", choice.prefill, &self.prefill)?))
    }
}
