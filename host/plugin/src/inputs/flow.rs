//! The queue of the gateway at a dispatch cycle, for the kinds of flow control.

use blis_sim::policy::flow::{Band, Flow, InFlight};
use blis_sim::units::Micros;

use super::point::NAMES;
use super::shapes;
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

impl GatewayState {
    /// State number `item`, with `n` bands, flows and requests in flight.
    #[must_use]
    pub fn plausible(n: usize, item: u64) -> Self {
        let [ceilings, pick, evict] = [Function::Ceilings, Function::FairPick, Function::Evict]
            .map(|function| shapes::plausible(function, n, item));
        Self {
            now: ceilings.now,
            saturation: f64::from_bits(ceilings.number),
            bands: ceilings.rows_at(0).to_vec(),
            flows: pick.rows_at(1).to_vec(),
            in_flight: evict.rows_at(1).to_vec(),
        }
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

    /// The first band: that of the flows, or the one that waits.
    fn band(&self) -> Band {
        self.bands.first().copied().unwrap_or_default()
    }
}
