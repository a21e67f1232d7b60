//! Inputs with which plugins are checked and measured: situations generated from a seed, equal on every machine, some
//! plausible and some extreme.

use blis_abi::Row as _;
use blis_sim::ids::{InstanceIndex, RequestId};
use blis_sim::policy::{ClusterView, Event, EventKind, Events, RequestView, StepMemory, Ties, Versions};
use blis_sim::request::Tags;
use blis_sim::units::Micros;
use rand::RngExt as _;

use self::engine::extreme_steps;
use self::point::{generator, tags};
use super::rows::QueuedRow;
use super::{Fault, Function, Guest, Kind, Output};

mod call_inputs;
mod engine;
mod flow;
mod output;
mod point;
mod service;
mod shapes;

pub(crate) use call_inputs::AnyOwnedRows;
pub use call_inputs::{CallInputs, OwnedRows};
pub(crate) use engine::step;
pub use flow::{GatewayState, names};
pub use output::GuestOutput;
pub use point::{DecisionPoint, NAMES, instances, ties};
pub use service::SyntheticService;

/// A call of a guest, with its inputs.
#[derive(Clone, Debug)]
pub enum GuestCall {
    /// A function of the table of decisions.
    Decide(Function, Box<CallInputs>),
    /// An event for the guest.
    Observe(Event),
}

impl GuestCall {
    /// Call number `item` of a plugin of `kind`, with `n` instances or requests.
    #[must_use]
    pub fn plausible(kind: Kind, n: usize, item: u64) -> Self {
        let function = match (kind, item % 16) {
            // A chunk is ranked more often than it is stored or loaded, and a step is longer than a queueing time.
            (Kind::KvCache, 0 | 4 | 8 | 12) => Function::Load,
            (Kind::KvCache, 1 | 5 | 9 | 13) => Function::Store,
            (Kind::Latency, 15) => Function::QueueingTime,
            _ => kind.functions()[0],
        };
        Self::Decide(function, Box::new(plausible(function, n, item)))
    }

    /// Calls with inputs at the limits of their ranges.
    #[must_use]
    pub fn extreme(kind: Kind, n: usize) -> Vec<(&'static str, Self)> {
        let functions = kind.functions().iter().filter(|&&function| function != Function::Scores);
        let calls = functions.flat_map(|&function| {
            extreme(function, n).into_iter().map(move |(name, inputs)| (name, Self::Decide(function, Box::new(inputs))))
        });
        calls.collect()
    }

    /// The function that it calls; `None` for an event.
    #[must_use]
    pub fn function(&self) -> Option<Function> {
        match self {
            Self::Decide(function, _) => Some(*function),
            Self::Observe(_) => None,
        }
    }

    /// Calls `guest` without a check of the output; numbers are appended to `numbers`, which is empty. `None` for an event.
    ///
    /// # Errors
    /// If the guest fails, or was started for another kind.
    pub fn make(&self, guest: &mut dyn Guest, ties: &Ties, numbers: &mut Vec<f64>) -> Result<Option<Output>, Fault> {
        match self {
            Self::Decide(function, inputs) => {
                inputs.with(*function, ties, |inputs| guest.call(*function, inputs, numbers)).map(Some)
            }
            Self::Observe(event) => guest.observe(event).map(|()| None),
        }
    }

    /// Calls `guest`, and checks the range of its output as the simulator does.
    ///
    /// # Errors
    /// If the guest fails, or its output cannot be used.
    pub fn run(&self, guest: &mut dyn Guest, ties: &Ties) -> Result<GuestOutput, Fault> {
        match self {
            Self::Decide(function, inputs) => {
                let mut numbers = Vec::new();
                let output = inputs.with(*function, ties, |inputs| guest.checked(*function, inputs, &mut numbers))?;
                GuestOutput::of(*function, output, numbers)
            }
            Self::Observe(event) => guest.observe(event).map(|()| GuestOutput::None),
        }
    }
}

/// The inputs of call number `item` of `function`, with `n` instances, requests or rows.
fn plausible(function: Function, n: usize, item: u64) -> CallInputs {
    let point = || DecisionPoint::plausible(n, item);
    match function {
        Function::Rank => {
            let (priority, turn) = ((item % 11) as i64 - 5, item as i64 + 1);
            CallInputs::queued(point(), QueuedRow { priority, turn, ..QueuedRow::ZERO })
        }
        Function::StepTime => CallInputs::of_step(&step(n, item)),
        Function::QueueingTime => CallInputs { number: item * 37 % 4_000, ..CallInputs::default() },
        Function::Order => {
            let point = point();
            let expires = if item % 8 == 7 { Micros::MAX } else { point.now.saturating_add(Micros(60_000_000)) };
            CallInputs { number: expires.0, ..CallInputs::about(point) }
        }
        _ if function.row().inputs.request || function.row().inputs.cluster => CallInputs::about(point()),
        _ => shapes::plausible(function, n, item),
    }
}

/// Inputs of `function` with values at the limits of their ranges, by name.
fn extreme(function: Function, n: usize) -> Vec<(&'static str, CallInputs)> {
    let points = |make: fn(DecisionPoint) -> CallInputs| {
        DecisionPoint::extreme(n).into_iter().map(|(name, point)| (name, make(point))).collect::<Vec<_>>()
    };
    let usual = || DecisionPoint::plausible(n, 3);
    match function {
        Function::Rank => {
            let queued = |point, priority, turn| {
                // A turn below 0 is that of a preempted request.
                let generated_tokens = if turn < 0 { 17 } else { 0 };
                let preemptions = u32::from(turn < 0);
                CallInputs::queued(point, QueuedRow { priority, turn, generated_tokens, preemptions })
            };
            let all = DecisionPoint::extreme(n).into_iter().map(|(name, point)| (name, queued(point, 0, 1)));
            let lowest = ("the lowest priority", queued(usual(), i64::MAX, i64::MAX));
            all.chain([lowest, ("the highest priority", queued(usual(), i64::MIN, i64::MIN))]).collect()
        }
        Function::StepTime => {
            extreme_steps().into_iter().map(|(name, batch)| (name, CallInputs::of_step(&batch))).collect()
        }
        Function::QueueingTime => {
            let tokens = |number| CallInputs { number, ..CallInputs::default() };
            vec![("no tokens", tokens(0)), ("the longest prompt", tokens(u32::MAX.into()))]
        }
        Function::Order => {
            let mut all = points(|point| CallInputs { number: Micros::MAX.0, ..CallInputs::about(point) });
            all.push(("expired at once", CallInputs::about(usual())));
            all
        }
        _ if function.row().inputs.request || function.row().inputs.cluster => points(CallInputs::about),
        // The constants of a latency model have no inputs.
        _ if function.row().parameters.is_empty() => Vec::new(),
        _ => shapes::extreme(function, n),
    }
}

/// Calls for measuring. Those that read the instances use as many services in turn ("cold"): their signals lie far
/// apart in memory, and the indices that changed are unknown.
#[must_use]
pub fn traffic(kind: Kind, n: usize) -> Vec<GuestCall> {
    const CALLS: u64 = 64;
    const PER_REPORT: u64 = 16;
    let call = |item: u64| {
        let report = item / PER_REPORT;
        let versions = Versions { load: 1 + report, cached_blocks: 1 + item, instances: 0 };
        let mut call = GuestCall::plausible(kind, n, item);
        if let GuestCall::Decide(function, inputs) = &mut call
            && function.row().inputs.cluster
            && let Some(point) = &mut inputs.point
        {
            let reported = DecisionPoint::plausible(n, report * PER_REPORT);
            *point = point.clone().with_load_of(&reported, versions);
        }
        call
    };
    // A simulation calls a latency model for steps far more often than for queueing times.
    (0..CALLS).map(call).filter(|call| call.function() != Some(Function::QueueingTime)).collect()
}

/// The decision of `guest`, of a kind that reads the instances, without a check of the output; scores and the numbers of a filter,
/// for which `memory` is that of its pipeline, are appended to `numbers`.
///
/// # Errors
/// If the guest fails, or is of another kind.
pub fn decide(
    guest: &mut dyn Guest,
    request: &RequestView<'_>,
    cluster: &ClusterView<'_>,
    memory: &mut StepMemory,
    numbers: &mut Vec<f64>,
) -> Result<Output, Fault> {
    let ties = &ties();
    match guest.kind() {
        Kind::Admission => guest.admit(request, cluster).map(Output::Decision),
        Kind::RoutingFilter => guest.filter(request, cluster, ties, Some(memory), numbers).map(|()| Output::Numbers),
        Kind::Saturation => guest.saturation(cluster).map(Output::Number),
        _ => guest.route(request, cluster, ties, numbers).map(Output::Index),
    }
}

/// Event number `item` in a service of `n` instances, of one of the kinds in `wanted`.
#[must_use]
pub fn event(n: usize, item: u64, wanted: Events) -> Option<Event> {
    use EventKind::{BlockEvicted, BlockStored, Completed, Ended, FirstToken, Rejected, Routed};
    let kinds: Vec<_> = [Routed, FirstToken, Completed, Ended, Rejected, BlockStored, BlockEvicted]
        .into_iter()
        .filter(|&kind| wanted.include(kind))
        .collect();
    let mut rng = generator("event", item);
    let kind = *kinds.get(rng.random_range(0..kinds.len().max(1)))?;
    let (block, n) = (matches!(kind, BlockStored | BlockEvicted), n as u32);
    let of_request = |number: u32| if block { 0 } else { number };
    let ttft = Micros(rng.random_range(1_000..2_000_000));
    Some(Event {
        at: Micros(1_000 * item),
        kind,
        request: RequestId(of_request(item as u32)),
        instance: (kind != Rejected && n > 0).then(|| InstanceIndex(rng.random_range(0..n))),
        input_tokens: of_request(rng.random_range(1..4_000)),
        generated_tokens: if kind == Completed { rng.random_range(1..500) } else { 0 },
        ttft: matches!(kind, FirstToken | Completed).then_some(ttft),
        e2e: (kind == Completed).then(|| Micros(ttft.0 + 1_000_000)),
        tags: if block { Tags::default() } else { tags(&mut rng) },
        block: if block { rng.random_range(0..8_000) } else { 0 },
    })
}
