//! Guests: plugins with a state. Every decision is one [`Guest::call`], with the function of the table of decisions
//! ([`blis_abi::decisions`]) that it calls, its inputs, and its output; what a technology does to pass the ones and to read
//! the other is written once for all functions. The methods of `dyn Guest` name the inputs and the output of each:
//!
//! ```
//! # use blis_plugin::Guest;
//! # use blis_sim::policy::{ClusterView, RequestView, Ties};
//! fn decide(guest: &mut dyn Guest, request: &RequestView<'_>, cluster: &ClusterView<'_>) {
//!     let _ = guest.route(request, cluster, &Ties::LowestIndex, &mut Vec::new());
//! }
//! ```

use std::fmt::Debug;

use blis_abi::{AnyRows, Row};
use blis_sim::ids::RequestId;
use blis_sim::latency::Batch;
use blis_sim::policy::flow::{Band, Flow, InFlight};
use blis_sim::policy::kv_cache::{ChunkOffer, KvCacheDecisions, KvChunk, KvHit};
use blis_sim::policy::{AdmissionDecision, BatchView, ClusterView, Event, QueuedView, RequestView, StepMemory, Ties};
use blis_sim::scaling::{DrainGroup, Node, Replica, StartingReplica};
use blis_sim::units::Micros;

use super::call::{Inputs, Output};
use super::ranges::OutputRange;
use super::rows::{
    GroupRow, PoolInstanceRow, PrefillChoiceRow, RoutedRequestRow, canonical, queued_row, running_rows, step_row,
};
use super::{Fault, FaultKind, Function, Kind, LatencyConstants};

/// A plugin with a state, started for one kind. After a fault the guest is in the state that `start` gives it (a WebAssembly
/// instance cannot continue after a trap) or in the state before the call; further calls are allowed.
pub trait Guest: Debug + Send {
    /// The kind for which it was started.
    fn kind(&self) -> Kind;

    /// Calls `function`, which must be one of its kind. Lists of numbers are appended to `numbers`, which is empty: where the
    /// output is [`Output::Numbers`], and of [`Function::Route`] the scores of a guest that computes them anyway or was
    /// started with `explain`. The caller checks ranges.
    ///
    /// # Errors
    /// If the guest fails, or has no such function.
    fn call(&mut self, function: Function, inputs: Inputs<'_>, numbers: &mut Vec<f64>) -> Result<Output, Fault>;

    /// Whether it has `function`, which may be missing, rather than what holds without it.
    fn has(&self, function: Function) -> bool {
        let _ = function;
        true
    }

    /// Delivers an event that the plugin subscribes to.
    ///
    /// # Errors
    /// If the guest fails.
    fn observe(&mut self, event: &Event) -> Result<(), Fault> {
        let _ = event;
        Ok(())
    }

    /// The state as bytes, for comparison and for [`Self::restore`] in a guest of the same plugin.
    ///
    /// # Errors
    /// If the guest fails, or the state is larger than the limit.
    fn save(&mut self) -> Result<Vec<u8>, Fault>;

    /// Replaces the state of this guest by `state`, which a guest of the same plugin saved.
    ///
    /// # Errors
    /// If the guest fails or refuses the state.
    fn restore(&mut self, state: &[u8]) -> Result<(), Fault>;

    /// A copy of the guest, which continues exactly as the original would.
    ///
    /// # Errors
    /// If the guest fails or refuses the state.
    fn fork(&mut self) -> Result<Box<dyn Guest>, Fault>;

    /// Fuel or operations that the latest call used; `None` if the technology does not count.
    fn used(&self) -> Option<u64> {
        None
    }
}

/// The output of a call, if it is in range and has the form that its function says.
macro_rules! expect {
    ($self:ident, $function:ident, $inputs:expr, $numbers:expr, $form:pat => $output:expr) => {
        match $self.checked(Function::$function, $inputs, $numbers)? {
            $form => Ok($output),
            other => Err(other_form(Function::$function, &other)),
        }
    };
}

#[cold]
fn other_form(function: Function, output: &Output) -> Fault {
    Fault::new(FaultKind::OutOfRange, format!("{} returned {output:?}, which is no output of it", function.name()))
}

/// The functions by name, each with the types of its inputs and of its output. They fail if the guest fails, and if it was
/// started for another kind, and if an output is out of range; of durations no range is checked.
#[allow(clippy::missing_errors_doc, reason = "the comment above has them, once for all")]
impl dyn Guest + '_ {
    /// As [`Guest::call`], with the range of the output checked.
    #[inline]
    pub(crate) fn checked(
        &mut self,
        function: Function,
        inputs: Inputs<'_>,
        numbers: &mut Vec<f64>,
    ) -> Result<Output, Fault> {
        let range = OutputRange::of(function, &inputs);
        let output = self.call(function, inputs, numbers)?;
        range.check(&output, numbers)?;
        Ok(output)
    }

    /// The record that `function` returns for `row` at `now`.
    pub fn record<R: Row, O: Row>(&mut self, function: Function, now: Micros, row: &R) -> Result<O, Fault> {
        match self.checked(function, Inputs::at(now, &[AnyRows::one(row)]), &mut Vec::new())? {
            Output::Record(words) => Ok(O::from_words(&words)),
            other => Err(other_form(function, &other)),
        }
    }

    /// Admits or rejects `request`.
    pub fn admit(&mut self, request: &RequestView<'_>, cluster: &ClusterView<'_>) -> Result<AdmissionDecision, Fault> {
        let inputs = Inputs::of_cluster(request, cluster);
        expect!(self, Admit, inputs, &mut Vec::new(), Output::Decision(decision) => decision)
    }

    /// The index of the chosen instance in the columns; scores as [`Guest::call`] has them.
    #[inline]
    pub fn route(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        ties: &Ties,
        scores: &mut Vec<f64>,
    ) -> Result<usize, Fault> {
        let inputs = Inputs { ties: Some(ties), ..Inputs::of_cluster(request, cluster) };
        expect!(self, Route, inputs, scores, Output::Index(index) => index)
    }

    /// Appends a score for each instance to `scores` without choosing one: the guest is a scorer of a pipeline.
    pub fn scores(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        ties: &Ties,
        memory: Option<&mut StepMemory>,
        scores: &mut Vec<f64>,
    ) -> Result<(), Fault> {
        let inputs = Inputs { ties: Some(ties), memory, ..Inputs::of_cluster(request, cluster) };
        expect!(self, Scores, inputs, scores, Output::Numbers => ())
    }

    /// Appends a number for each instance to `kept`: 0 if it is left out, anything else if it is kept.
    pub fn filter(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        ties: &Ties,
        memory: Option<&mut StepMemory>,
        kept: &mut Vec<f64>,
    ) -> Result<(), Fault> {
        let inputs = Inputs { ties: Some(ties), memory, ..Inputs::of_cluster(request, cluster) };
        expect!(self, Filter, inputs, kept, Output::Numbers => ())
    }

    /// The priority: a request with a higher value goes first.
    pub fn priority(&mut self, request: &RequestView<'_>, now: Micros) -> Result<i64, Fault> {
        let inputs = Inputs::about(request, now);
        expect!(self, Priority, inputs, &mut Vec::new(), Output::Integer(priority) => priority)
    }

    /// The rank: the request with the smallest rank is scheduled first.
    pub fn rank(&mut self, queued: &QueuedView<'_>) -> Result<f64, Fault> {
        let row = queued_row(queued);
        let inputs = Inputs { rows: &[AnyRows::one(&row)], ..Inputs::about(&queued.request, queued.now) };
        expect!(self, Rank, inputs, &mut Vec::new(), Output::Number(rank) => rank)
    }

    /// The index of the victim in the columns.
    pub fn victim(&mut self, batch: &BatchView) -> Result<usize, Fault> {
        let (about, ties) = (batch.id.get(batch.requester).copied(), batch.ties());
        let number = u64::from(u32::try_from(batch.requester).unwrap_or(u32::MAX));
        let rows = running_rows(batch);
        let rows = [AnyRows::new(&rows)];
        let inputs = Inputs { now: batch.now, about, ties: Some(&ties), number, rows: &rows, ..Inputs::NOTHING };
        expect!(self, Victim, inputs, &mut Vec::new(), Output::Index(index) => index)
    }

    /// The duration of a step, µs.
    pub fn step_time(&mut self, batch: &Batch) -> Result<u64, Fault> {
        let row = step_row(batch);
        let inputs = Inputs { rows: &[AnyRows::one(&row)], ..Inputs::NOTHING };
        expect!(self, StepTime, inputs, &mut Vec::new(), Output::Duration(us) => us)
    }

    /// The time from arrival to the waiting queue, µs.
    pub fn queueing_time(&mut self, input_tokens: u32) -> Result<u64, Fault> {
        let inputs = Inputs { number: input_tokens.into(), ..Inputs::NOTHING };
        expect!(self, QueueingTime, inputs, &mut Vec::new(), Output::Duration(us) => us)
    }

    /// The constants of the latency model, µs.
    pub fn constants(&mut self) -> Result<LatencyConstants, Fault> {
        expect!(self, Constants, Inputs::NOTHING, &mut Vec::new(), Output::Record(words) =>
            LatencyConstants::from_words(&words))
    }

    /// The saturation: 0 empty, 1 full.
    pub fn saturation(&mut self, cluster: &ClusterView<'_>) -> Result<f64, Fault> {
        let inputs = Inputs { cluster: Some(cluster), ..Inputs::at(cluster.now, &[]) };
        expect!(self, Saturation, inputs, &mut Vec::new(), Output::Number(saturation) => saturation)
    }

    /// Appends a ceiling for each of `bands` to `ceilings`.
    pub fn ceilings(
        &mut self,
        now: Micros,
        saturation: f64,
        bands: &[Band],
        ceilings: &mut Vec<f64>,
    ) -> Result<(), Fault> {
        let rows = [AnyRows::new(bands)];
        let inputs = Inputs { number: canonical(saturation).to_bits(), ..Inputs::at(now, &rows) };
        expect!(self, Ceilings, inputs, ceilings, Output::Numbers => ())
    }

    /// The index of a flow of `flows`, all of `band`.
    pub fn fair_pick(&mut self, now: Micros, saturation: f64, band: Band, flows: &[Flow]) -> Result<usize, Fault> {
        let rows = [AnyRows::one(&band), AnyRows::new(flows)];
        let inputs = Inputs { number: canonical(saturation).to_bits(), ..Inputs::at(now, &rows) };
        expect!(self, FairPick, inputs, &mut Vec::new(), Output::Index(index) => index)
    }

    /// The rank of `request`, which is enqueued at `now` and expires at `expires` ([`Micros::MAX`] if never): the smallest
    /// goes first.
    pub fn order(&mut self, request: &RequestView<'_>, now: Micros, expires: Micros) -> Result<f64, Fault> {
        let inputs = Inputs { number: expires.0, ..Inputs::about(request, now) };
        expect!(self, Order, inputs, &mut Vec::new(), Output::Number(rank) => rank)
    }

    /// The index of a request of `in_flight`, or `None`.
    pub fn evict(&mut self, now: Micros, demand: Band, in_flight: &[InFlight]) -> Result<Option<usize>, Fault> {
        let rows = [AnyRows::one(&demand), AnyRows::new(in_flight)];
        expect!(self, Evict, Inputs::at(now, &rows), &mut Vec::new(), Output::Chosen(index) => index)
    }

    /// Appends a number of replicas for each of `groups` to `targets`; below 0 it says none. `history` has the groups of
    /// earlier decisions, oldest first, as many rows for each as `groups` has.
    pub fn scale(
        &mut self,
        now: Micros,
        groups: &[GroupRow],
        history: &[GroupRow],
        targets: &mut Vec<f64>,
    ) -> Result<(), Fault> {
        let rows = [AnyRows::new(groups), AnyRows::new(history)];
        expect!(self, Scale, Inputs::at(now, &rows), targets, Output::Numbers => ())
    }

    /// The index of a replica of `replicas`, all of `group`.
    pub fn drain(&mut self, group: &DrainGroup, replicas: &[Replica]) -> Result<usize, Fault> {
        let rows = [AnyRows::one(group), AnyRows::new(replicas)];
        let inputs = Inputs::at(Micros(group.now_us), &rows);
        expect!(self, Drain, inputs, &mut Vec::new(), Output::Index(index) => index)
    }

    /// The index of a node of `nodes`, or `None`.
    pub fn placement(&mut self, replica: &StartingReplica, nodes: &[Node]) -> Result<Option<usize>, Fault> {
        let rows = [AnyRows::one(replica), AnyRows::new(nodes)];
        let inputs = Inputs::at(Micros(replica.now_us), &rows);
        expect!(self, Placement, inputs, &mut Vec::new(), Output::Chosen(index) => index)
    }

    /// What it decides about the chunks of a KV tier besides ranks.
    #[must_use]
    pub fn decides(&self) -> KvCacheDecisions {
        KvCacheDecisions { store: self.has(Function::Store), load: self.has(Function::Load) }
    }

    /// Appends a rank for each chunk.
    pub fn keep(&mut self, now: Micros, chunks: &[KvChunk], ranks: &mut Vec<f64>) -> Result<(), Fault> {
        expect!(self, Keep, Inputs::at(now, &[AnyRows::new(chunks)]), ranks, Output::Numbers => ())
    }

    /// Appends for each chunk whether it is stored, 0 for no.
    pub fn store(&mut self, offer: &ChunkOffer, chunks: &[KvChunk], stored: &mut Vec<f64>) -> Result<(), Fault> {
        let rows = [AnyRows::one(offer), AnyRows::new(chunks)];
        expect!(self, Store, Inputs::at(Micros(offer.now_us), &rows), stored, Output::Numbers => ())
    }

    /// Whether a request loads what was found.
    pub fn load(&mut self, hit: &KvHit) -> Result<bool, Fault> {
        let rows = [AnyRows::one(hit)];
        let inputs = Inputs::at(Micros(hit.now_us), &rows);
        expect!(self, Load, inputs, &mut Vec::new(), Output::Flag(loads) => loads)
    }

    /// Where `request` is prefilled, with indices of `decode` and of `prefill`.
    pub fn disaggregate(
        &mut self,
        request: &RoutedRequestRow,
        decode: &[PoolInstanceRow],
        prefill: &[PoolInstanceRow],
    ) -> Result<PrefillChoiceRow, Fault> {
        let rows = [AnyRows::one(request), AnyRows::new(decode), AnyRows::new(prefill)];
        let inputs = Inputs { about: Some(RequestId(request.request)), ..Inputs::at(Micros(request.now_us), &rows) };
        expect!(self, Disaggregate, inputs, &mut Vec::new(), Output::Record(words) =>
            PrefillChoiceRow::from_words(&words))
    }
}

#[cfg(test)]
impl dyn Guest + '_ {
    /// As [`Self::route`], of a guest that returns another number than an index.
    pub(crate) fn number_of_route(
        &mut self,
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        ties: &Ties,
        scores: &mut Vec<f64>,
    ) -> Result<usize, Fault> {
        let inputs = Inputs { ties: Some(ties), ..Inputs::of_cluster(request, cluster) };
        match self.call(Function::Route, inputs, scores)? {
            Output::Index(number) => Ok(number),
            other => panic!("{other:?}"),
        }
    }
}
