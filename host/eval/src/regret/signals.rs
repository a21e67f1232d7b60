//! What a policy could read at a decision, for rules on one signal.

use blis_plugin::rows::{column_values, reads_of};
use blis_plugin::{Column, ColumnGroup};
use blis_sim::cluster::{AnyTimeline, ForcedDecision};
use blis_sim::ids::RequestId;
use blis_sim::outcome::SignalColumns;
use blis_sim::policy::{ClusterView, RequestView};
use blis_sim::request::Request;
use blis_sim::units::Micros;
use serde::{Deserialize, Serialize};

use super::instance_states::InstanceStates;

/// What was known when a decision was made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KnownSignals {
    /// Columns over the instances or requests that could be chosen.
    pub columns: Vec<DecisionColumn>,
    /// The row of each branch, the actual one first; `None` of a branch that chooses none.
    pub rows: Vec<Option<usize>>,
    /// Other numbers: of the request, or over all instances.
    pub numbers: Vec<DecisionNumber>,
    /// More numbers of the request, which follow from the others in most workloads: no rule reads them.
    pub more: Vec<(&'static str, f64)>,
}

/// A column of signals with a value for each instance or request that could be chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct DecisionColumn {
    /// The field of scripts, as `queue_depth`.
    pub signal: &'static str,
    /// The unit of the values.
    pub unit: &'static str,
    pub values: Vec<f64>,
}

/// A number that does not depend on the choice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DecisionNumber {
    /// The field of scripts.
    pub signal: &'static str,
    pub of: SignalOf,
    /// The unit of the value.
    pub unit: &'static str,
    pub value: f64,
}

/// What a rule compares with its threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignalOf {
    /// The value of the instance or request that was chosen.
    Chosen,
    /// That value − the lowest of all that could be chosen, at least 0.
    AboveLowest,
    /// The highest of all that could be chosen − that value, at least 0.
    BelowHighest,
    /// The value of the request that the decision is about.
    Request,
    /// The lowest over the instances.
    Lowest,
    /// The highest over the instances.
    Highest,
    /// The mean over the instances.
    Mean,
    /// The value of the group of replicas.
    Group,
}

impl KnownSignals {
    /// The columns of the instances that are up to date in `cluster`, and the numbers of `request`. `rows` is for the branches.
    pub(super) fn of_instances(
        request: &RequestView<'_>,
        cluster: &ClusterView<'_>,
        SignalColumns { current, .. }: SignalColumns,
    ) -> Self {
        let is_signal = |column: &Column| {
            !matches!(column.group(), ColumnGroup::Constant)
                && !matches!(column, Column::Score | Column::CachedTokensRemote)
        };
        let known = Column::ALL.iter().copied().filter(is_signal);
        let known = known.filter(|&column| current.and(reads_of(&[column])) == current);
        let column = |column: Column| DecisionColumn {
            signal: column.field(),
            unit: column.unit(),
            values: column_values(column, Some(request), cluster),
        };
        let columns = known.map(column).filter(|column| column.values.len() == cluster.len()).collect();
        let numbers = vec![of_request("input_tokens", "tokens", f64::from(request.input_tokens))];
        let more = vec![
            ("prompt_blocks", f64::from(request.prompt_blocks)),
            ("shared_blocks", f64::from(request.shared_block_count())),
            ("class_priority", f64::from(request.class_priority)),
            ("max_output_tokens", request.max_output_tokens.map_or(1e6, f64::from)),
        ];
        Self { columns, rows: Vec::new(), numbers, more }
    }

    /// Numbers over all instances instead of the columns: the decision chooses none of them.
    pub(super) fn over_instances(mut self) -> Self {
        let columns = std::mem::take(&mut self.columns);
        self.numbers.extend(columns.iter().flat_map(|column| over_all(column.signal, column.unit, &column.values)));
        self
    }

    /// Columns over the `requests` of the branches, as they were at `at`: for decisions between requests.
    pub(super) fn of_requests(requests: &[Option<&Request>], state: &InstanceStates, at: Micros) -> Self {
        let mut rows = Vec::with_capacity(requests.len());
        let (mut lengths, mut waits) = (Vec::new(), Vec::new());
        for request in requests {
            rows.push(request.map(|_| lengths.len()));
            if let Some(request) = request {
                lengths.push(f64::from(request.input_tokens));
                waits.push(at.saturating_sub(request.arrival).0 as f64 / 1e3);
            }
        }
        let columns = vec![
            DecisionColumn { signal: "input_tokens", unit: "tokens", values: lengths },
            DecisionColumn { signal: "wait", unit: "ms", values: waits },
        ];
        Self { columns, rows, numbers: of_state(state), more: Vec::new() }
    }

    /// Numbers of `request` and of the state of the instances.
    pub(super) fn of_state(request: &Request, state: &InstanceStates) -> Self {
        let mut numbers = vec![of_request("input_tokens", "tokens", f64::from(request.input_tokens))];
        numbers.extend(of_state(state));
        Self { numbers, ..Self::default() }
    }

    /// Numbers of a group of replicas, which had `replicas` before the decision.
    pub(super) fn of_group(replicas: u32, state: &InstanceStates) -> Self {
        let of = SignalOf::Group;
        let mut numbers = vec![DecisionNumber { signal: "replicas", of, unit: "replicas", value: f64::from(replicas) }];
        numbers.extend(of_state(state));
        Self { numbers, ..Self::default() }
    }
}

fn of_request(signal: &'static str, unit: &'static str, value: f64) -> DecisionNumber {
    DecisionNumber { signal, of: SignalOf::Request, unit, value }
}

fn of_state(state: &InstanceStates) -> Vec<DecisionNumber> {
    let of = |signal, unit, column: &[u32]| {
        let values: Vec<f64> = column.iter().copied().map(f64::from).collect();
        over_all(signal, unit, &values)
    };
    let columns = [("queue_depth", "requests", &state.queue_depth), ("batch_size", "requests", &state.batch_size)];
    let more = [("free_kv_blocks", "blocks", &state.free_kv_blocks), ("cached_blocks", "blocks", &state.cached_blocks)];
    columns.into_iter().chain(more).flat_map(|(signal, unit, column)| of(signal, unit, column)).collect()
}

/// The lowest, the highest and the mean of `values`; nothing of no values.
fn over_all(signal: &'static str, unit: &'static str, values: &[f64]) -> Vec<DecisionNumber> {
    if values.is_empty() {
        return Vec::new();
    }
    let lowest = values.iter().copied().fold(f64::INFINITY, f64::min);
    let highest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let number = |(of, value)| DecisionNumber { signal, of, unit, value };
    [(SignalOf::Lowest, lowest), (SignalOf::Highest, highest), (SignalOf::Mean, mean)].map(number).to_vec()
}

/// The request of each decision between requests; `None` for one that chooses none.
pub(super) fn dispatched(
    decisions: impl Iterator<Item = ForcedDecision>,
    timeline: &dyn AnyTimeline,
) -> Vec<Option<&Request>> {
    let of = |decision: ForcedDecision| -> Option<RequestId> {
        match decision {
            ForcedDecision::Dispatch(id) => Some(id),
            ForcedDecision::Evict(id) => id,
            ForcedDecision::Admit(_) | ForcedDecision::Route(_) | ForcedDecision::Prefill(_) => None,
        }
    };
    decisions.map(|decision| of(decision).and_then(|id| timeline.request(id))).collect()
}
