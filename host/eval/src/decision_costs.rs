//! What decisions would have cost if another alternative had been chosen, with what could be read: data from which rules can be
//! learnt without a simulation.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::regret::{DecisionRegret, SignalOf};

/// A decision drawn at random in the first run of a scenario, with what could be read and the costs of the alternatives
/// that were tried.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DecisionCosts {
    /// Kind of the decision.
    pub kind: String,
    /// Name of the scenario.
    pub scenario: String,
    /// By the field of scripts, in the units of scripts: a value for each instance or request that could be chosen.
    /// Unit: that of the signal.
    pub columns: BTreeMap<String, Vec<f64>>,
    /// Numbers of the request, by the field of scripts; a limit on output tokens that is not set is a million. Unit:
    /// that of the field.
    pub numbers: BTreeMap<String, f64>,
    /// The row of each alternative that was tried, that of the actual decision first. Unit: index.
    pub rows: Vec<usize>,
    /// The cost of each of these alternatives within the window of the regret. Unit: request-seconds, 0 or more.
    pub costs_s: Vec<f64>,
}

/// The `decisions` of `scenario` that choose a row; those that choose none, or between two actions, are left out.
#[must_use]
pub fn decision_costs(scenario: &str, decisions: &[DecisionRegret]) -> Vec<DecisionCosts> {
    decisions.iter().filter_map(|one| of_decision(scenario, one)).collect()
}

fn of_decision(scenario: &str, one: &DecisionRegret) -> Option<DecisionCosts> {
    let signals = &one.signals;
    let rows: Vec<usize> = signals.rows.iter().copied().collect::<Option<_>>()?;
    let costs_s: Vec<f64> = one.branches.iter().map(|branch| branch.cost_s).collect();
    let of_request = signals.numbers.iter().filter(|number| number.of == SignalOf::Request);
    (rows.len() > 1 && rows.len() == costs_s.len()).then(|| DecisionCosts {
        kind: one.kind.name().to_owned(),
        scenario: scenario.to_owned(),
        columns: signals.columns.iter().map(|column| (column.signal.to_owned(), column.values.clone())).collect(),
        numbers: of_request
            .map(|number| (number.signal, number.value))
            .chain(signals.more.iter().copied())
            .map(|(signal, value)| (signal.to_owned(), value))
            .collect(),
        rows,
        costs_s,
    })
}
