//! The queue of the gateway at a dispatch cycle, for the kinds of flow control.

use std::sync::Arc;

use blis_sim::policy::flow::{Band, Flow, InFlight, ServedTokens};
use blis_sim::units::Micros;
use rand::RngExt as _;

use super::call_inputs::{CallInputs, OwnedRows};
use super::point::{NAMES, generator};
use crate::fields::rows::{flow, in_flight};
use crate::rows::{NONE_U64, canonical};
use crate::{Fault, Function, Guest, Kind, Output};

/// The queue and what is in flight.
#[derive(Clone, Debug, PartialEq)]
pub struct GatewayState {
    pub(crate) now: Micros,
    pub(crate) saturation: f64,
    /// Highest priority first; never empty.
    pub(crate) bands: Vec<Band>,
    /// Those of the first band.
    pub(crate) flows: Vec<Flow>,
    pub(crate) in_flight: Vec<InFlight>,
}

/// The names of the tenants in a state of `n` flows, those of [`NAMES`] included.
#[must_use]
pub fn names(kind: Kind, n: usize) -> Vec<Box<str>> {
    let tenants = if kind.is_flow_control() { n } else { 0 };
    let more = (0..tenants).map(|index| format!("tenant-{index:04}").into());
    NAMES.into_iter().map(Box::from).chain(more).collect()
}

fn tenant(index: usize) -> u32 {
    (NAMES.len() + index) as u32
}

impl GatewayState {
    /// State number `item`, with `n` bands, flows and requests in flight.
    #[must_use]
    pub fn plausible(n: usize, item: u64) -> Self {
        let mut rng = generator("gateway", item);
        let rng = &mut rng;
        let now = Micros(100_000_000 + 1_000 * item);
        let bands = (0..n).map(|rank| Band {
            priority: 4 - rank as i32,
            queued: rng.random_range(0..40),
            oldest_wait_us: rng.random_range(0..5_000_000),
        });
        let bands = bands.collect();
        let saturation = rng.random_range(0.0..1.5);
        let flows = (0..n).map(|index| Flow {
            tenant: tenant(index),
            tenant_order: index as u32,
            queued: rng.random_range(1..40),
            head_id: 1_000 * item as u32 + index as u32,
            head_rank: rng.random_range(0.0..1e6),
            head_turn: 1_000 * item + rng.random_range(0..1_000),
            head_wait_us: rng.random_range(0..5_000_000),
            head_input_tokens: rng.random_range(1..4_000),
            head_max_output_tokens: if rng.random_bool(0.5) { rng.random_range(1..2_000) } else { u32::MAX },
            head_deadline_us: match rng.random_bool(0.3) {
                true => now.0 + rng.random_range(0..60_000_000),
                false => NONE_U64,
            },
            head_slo_class: rng.random_range(1..4),
            in_flight: rng.random_range(0..20),
            dispatched: rng.random_range(0..1_000),
            served_input: rng.random_range(0..1_000_000),
            served_output: rng.random_range(0..1_000_000),
            served_decayed: rng.random_range(0.0..1e6),
            served_as_of_us: now.0 - rng.random_range(0..60_000_000),
        });
        let flows = flows.collect();
        let requests = (0..n).map(|index| InFlight {
            id: index as u32 + item as u32,
            priority: rng.random_range(-5..=-1),
            dispatched_us: now.0 - rng.random_range(0..30_000_000),
            input_tokens: rng.random_range(1..4_000),
            tenant: tenant(rng.random_range(0..n.max(1))),
        });
        let mut in_flight: Vec<InFlight> = requests.collect();
        in_flight.sort_by_key(|request| request.dispatched_us);
        Self { now, saturation, bands, flows, in_flight }
    }

    /// States with values at the limits of their ranges, by name.
    #[must_use]
    pub fn extreme(n: usize) -> Vec<(&'static str, Self)> {
        let smallest = Self {
            now: Micros::ZERO,
            saturation: 0.0,
            bands: vec![Band { priority: i32::MIN, ..Band::default() }; n],
            flows: (0..n).map(|index| flow(index, Micros::ZERO)).collect(),
            in_flight: (0..n).map(in_flight).collect(),
        };
        let mut largest = smallest.clone();
        largest.now = Micros(i64::MAX.cast_unsigned());
        largest.saturation = 1e300;
        largest.bands.fill(Band { priority: i32::MAX, queued: u32::MAX, oldest_wait_us: largest.now.0 });
        for flow in &mut largest.flows {
            (flow.queued, flow.in_flight, flow.dispatched) = (u32::MAX, u32::MAX, u64::MAX);
            ServedTokens { input: u64::MAX, output: u64::MAX, decayed: 1e300, as_of: largest.now }.write_to(flow);
            flow.head_rank = f64::INFINITY;
            (flow.head_wait_us, flow.head_deadline_us) = (largest.now.0, largest.now.0);
            (flow.head_input_tokens, flow.head_max_output_tokens) = (u32::MAX, u32::MAX - 1);
        }
        for request in &mut largest.in_flight {
            (request.dispatched_us, request.input_tokens) = (largest.now.0, u32::MAX);
        }
        let mut equal = Self::plausible(n, 7);
        if let Some(first) = equal.flows.first().copied() {
            for flow in &mut equal.flows {
                let Flow { tenant, tenant_order, queued, .. } = *flow;
                *flow = Flow { tenant, tenant_order, queued, ..first };
            }
        }
        vec![("everything 0", smallest), ("everything as large as it can be", largest), ("all flows equal", equal)]
    }

    /// Advances to the next decision, 1 ms later and number `number` of a run: one flow was served, a request of another one
    /// has ended, and the heads of all have waited on.
    pub fn advance(&mut self, number: usize) {
        const PASSED: Micros = Micros(1_000);
        self.now += PASSED;
        for flow in &mut self.flows {
            flow.head_wait_us += PASSED.0;
        }
        let flows = self.flows.len().max(1);
        if let Some(served) = self.flows.get_mut(number * 7 % flows) {
            served.served_input += u64::from(served.head_input_tokens);
            (served.dispatched, served.in_flight) = (served.dispatched + 1, served.in_flight + 1);
            (served.head_turn, served.head_wait_us) = (served.head_turn + flows as u64, 0);
        }
        if let Some(ended) = self.flows.get_mut(number * 13 % flows) {
            ended.served_output += 500;
            ended.in_flight = ended.in_flight.saturating_sub(1);
        }
        if !self.in_flight.is_empty() {
            let ended = self.in_flight.remove(number * 13 % self.in_flight.len());
            self.in_flight.push(InFlight { dispatched_us: self.now.0, ..ended });
        }
    }

    /// The decision of `guest`, of ceilings, fairness or eviction, without a check of the output; ceilings are appended to `numbers`.
    ///
    /// # Errors
    /// If the guest fails, or is of another kind.
    pub fn decide(&self, guest: &mut dyn Guest, numbers: &mut Vec<f64>) -> Result<Output, Fault> {
        match guest.kind() {
            Kind::Ceilings => guest.ceilings(self.now, self.saturation, &self.bands, numbers).map(|()| Output::Numbers),
            Kind::Fairness => guest.fair_pick(self.now, self.saturation, self.band(), &self.flows).map(Output::Index),
            _ => guest.evict(self.now, self.band(), &self.in_flight).map(Output::Chosen),
        }
    }

    /// The inputs of `function`: the ceilings of bands, a pick among flows, or an eviction.
    pub(super) fn inputs(self, function: Function) -> CallInputs {
        let band = vec![self.band()];
        let rows: Vec<Arc<dyn OwnedRows>> = match function {
            Function::Ceilings => vec![Arc::new(self.bands)],
            Function::FairPick => vec![Arc::new(band), Arc::new(self.flows)],
            _ => vec![Arc::new(band), Arc::new(self.in_flight)],
        };
        CallInputs { number: canonical(self.saturation).to_bits(), ..CallInputs::at(self.now, rows) }
    }

    /// The first band: that of the flows, or the one that waits.
    fn band(&self) -> Band {
        self.bands.first().copied().unwrap_or_default()
    }
}
