//! Patterns over sampled decisions: rules on one signal that separate decisions with regret from those without.
//!
//! A rule says where decisions are wrong: the value of one signal is above a threshold, or not above it. Every threshold
//! between two values is tried, and the rule with the largest standardised difference of rank sums of the regret wins (Wilcoxon;
//! ranks, so that one large regret makes no rule). Because the largest of many is chosen, its significance is that of
//! the largest among permuted regrets (Westfall, Young 1993): the error probability holds for all signals and thresholds
//! together. The next rule is searched among the decisions that the rules before it leave.

use std::collections::BTreeMap;

use blis_sim::rng::Stream;
use rand::seq::SliceRandom as _;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, Normal};

use super::regret::{DecisionColumn, DecisionKind, DecisionRegret, SignalOf, Stratum};

/// A smaller regret is no wrong decision, request-seconds.
pub const WRONG_S: f64 = 0.005;
/// Decisions on both sides of a threshold, at least.
const LEAST: usize = 5;
/// Rules of a kind of decisions.
const RULES: usize = 3;
/// Permutations of the regrets.
const PERMUTATIONS: u64 = 499;
/// Error probability of a rule.
const LEVEL: f64 = 0.05;

/// Decisions of one kind in one run, drawn at random, of which the regret was computed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DecisionPatterns {
    /// Kind of the decisions.
    pub kind: String,
    /// What was decided, of admission and loads from the CPU tier; absent for other kinds. One of `admitted`,
    /// `rejected`, `loaded`, `computed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<String>,
    /// Name of the scenario.
    pub scenario: String,
    /// Decisions in the sample. Unit: decisions.
    pub decisions: usize,
    /// Of these, with a regret of 0.005 request-seconds or more. Unit: decisions.
    pub wrong: usize,
    /// Time after a decision in which its effects count. Unit: s, 0 or more.
    pub window_s: f64,
    /// Sum of the regrets. Unit: request-seconds, 0 or more.
    pub regret_s: f64,
    /// Signals of which rules were tried, in each form in which a rule may read it. Unit: signals.
    pub signals: usize,
    /// Where decisions are wrong, at most three; each is searched among the decisions that those before it leave.
    pub rules: Vec<PatternRule>,
    /// The signal that tells the best alternatives to wrong decisions from the others; `null` if none does.
    pub better_alternative: Option<BetterAlternative>,
    /// What the best reference policy would have decided; absent if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<ReferenceDecisions>,
}

/// A rule on one signal, and the decisions of which it holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PatternRule {
    /// Field of scripts, as `queue_depth`.
    pub signal: String,
    /// What is compared with the threshold: the value of the choice, the same less the lowest or below the highest of
    /// all that could be chosen, the value of the request or of the group of replicas, or the lowest, highest or mean
    /// over the instances.
    pub of: SignalOf,
    /// Whether the value is above the threshold; else at most as large.
    pub above: bool,
    /// The threshold. Unit: of the signal.
    pub threshold: f64,
    /// Unit of the threshold.
    pub unit: String,
    /// Decisions of which the rule holds. Unit: decisions, 5 or more.
    pub decisions: usize,
    /// Wrong ones among them. Unit: decisions.
    pub wrong: usize,
    /// Their mean regret. Unit: request-seconds, 0 or more.
    pub mean_regret_s: f64,
    /// Their part of the regret of all decisions of the kind. Unit: share, 0 to 1.
    pub regret_share: f64,
    /// Decisions of which neither this rule nor one before holds. Unit: decisions, 5 or more.
    pub others: usize,
    /// Wrong ones among them. Unit: decisions.
    pub others_wrong: usize,
    /// Probability of as good a rule, on any signal, if none has to do with the regret. Unit: probability, 0 to 0.05.
    pub p: f64,
    /// What the best reference policy would have decided where the rule holds; absent if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<ReferenceDecisions>,
}

/// How the best alternatives to wrong decisions differ from the choices, beside any of the alternatives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BetterAlternative {
    /// The field of scripts.
    pub signal: String,
    /// Whether it is more often lower, or less often higher, than in any alternative; else the reverse.
    pub prefers_lower: bool,
    /// Wrong decisions to which the best alternative has a lower value than the choice. Unit: decisions.
    pub lower: usize,
    /// The same with a higher value. Unit: decisions.
    pub higher: usize,
    /// All wrong decisions. Unit: decisions, 5 or more.
    pub wrong: usize,
    /// Mean of `lower` if the best alternative were any of them. Unit: decisions, 0 or more.
    pub expected_lower: f64,
    /// Mean of `higher`, likewise. Unit: decisions, 0 or more.
    pub expected_higher: f64,
    /// Probability of as large a difference in any signal if none tells the best alternative. Unit: probability, 0 to
    /// 0.05.
    pub p: f64,
}

/// What a reference policy would have decided instead of the candidate, one decision at a time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReferenceDecisions {
    /// The reference policy with the best score in the scenario.
    pub policy: String,
    /// Decisions of which its own is known. Unit: decisions, 1 or more.
    pub known: usize,
    /// Of these, those in which it would have decided otherwise. Unit: decisions.
    pub other: usize,
    /// Of these, with a cost lower by 0.005 request-seconds or more. Unit: decisions.
    pub better: usize,
    /// Of these, with a cost higher by 0.005 request-seconds or more. Unit: decisions.
    pub worse: usize,
    /// What its decisions would have saved less what they would have cost. Unit: request-seconds.
    pub saved_s: f64,
}

/// The patterns of all `decisions` of `scenario`, drawn at random from each kind, in the order in which they were made. `reference` is
/// the policy of [`DecisionRegret::advised`]. Decisions with two choices are apart by what was chosen.
#[must_use]
pub fn find(scenario: &str, decisions: &[DecisionRegret], window_s: f64, reference: &str) -> Vec<DecisionPatterns> {
    let mut groups: BTreeMap<(DecisionKind, Option<&str>), Vec<&DecisionRegret>> = BTreeMap::new();
    for one in decisions.iter().filter(|one| one.stratum == Stratum::Uniform) {
        let is_split = matches!(one.kind, DecisionKind::Admission | DecisionKind::Load);
        let choice = one.branches.first().filter(|_| is_split).map(|branch| &*branch.decision);
        groups.entry((one.kind, choice)).or_default().push(one);
    }
    let found = groups.into_iter().map(|((kind, choice), those)| {
        let decision = choice.map(str::to_owned);
        DecisionPatterns { decision, window_s, ..of_kind(kind.name(), scenario, &those, reference) }
    });
    found.collect()
}

fn of_kind(kind: &str, scenario: &str, decisions: &[&DecisionRegret], reference: &str) -> DecisionPatterns {
    let regrets: Vec<f64> = decisions.iter().map(|one| one.regret_s).collect();
    let signals = signals(decisions);
    let total: f64 = regrets.iter().sum();
    let mut left: Vec<usize> = (0..decisions.len()).collect();
    let mut rules = Vec::new();
    while let Some(found) = (rules.len() < RULES).then(|| best_rule(&signals, &regrets, &left)).flatten() {
        let Cut { signal, above, threshold, members, p } = found;
        left.retain(|index| !members.contains(index));
        let those: Vec<&DecisionRegret> = members.iter().map(|&index| decisions[index]).collect();
        let regret: f64 = members.iter().map(|&index| regrets[index]).sum();
        let key = &signals[signal].key;
        rules.push(PatternRule {
            signal: key.signal.to_owned(),
            of: key.of,
            above,
            threshold,
            unit: key.unit.to_owned(),
            decisions: members.len(),
            wrong: wrong(&regrets, &members),
            mean_regret_s: regret / members.len() as f64,
            regret_share: regret / total,
            others: left.len(),
            others_wrong: wrong(&regrets, &left),
            p,
            reference: advised(&those, reference),
        });
    }
    DecisionPatterns {
        kind: kind.to_owned(),
        decision: None,
        scenario: scenario.to_owned(),
        decisions: decisions.len(),
        wrong: regrets.iter().filter(|&&regret| regret >= WRONG_S).count(),
        window_s: 0.0,
        regret_s: total,
        signals: signals.len(),
        rules,
        better_alternative: better_alternative(decisions),
        reference: advised(decisions, reference),
    }
}

fn wrong(regrets: &[f64], members: &[usize]) -> usize {
    members.iter().filter(|&&index| regrets[index] >= WRONG_S).count()
}

/// What a rule reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SignalKey {
    /// Position in the order of the interface: of equal rules that of the first one wins.
    position: usize,
    of: SignalOf,
    signal: &'static str,
    unit: &'static str,
}

/// A value that rules may read, of every decision.
struct SignalValues {
    key: SignalKey,
    values: Vec<f64>,
}

/// The values that vary, of those that all decisions have.
fn signals(decisions: &[&DecisionRegret]) -> Vec<SignalValues> {
    let mut all: BTreeMap<SignalKey, Vec<f64>> = BTreeMap::new();
    for one in decisions {
        let of_decision = &one.signals;
        let mut add = |key, value| all.entry(key).or_default().push(value);
        for (position, number) in of_decision.numbers.iter().enumerate() {
            let key = SignalKey { position, of: number.of, signal: number.signal, unit: number.unit };
            add(key, number.value);
        }
        let Some(&Some(chosen)) = of_decision.rows.first() else { continue };
        for (position, column) in of_decision.columns.iter().enumerate() {
            let Some(&value) = column.values.get(chosen) else { continue };
            let lowest = column.values.iter().copied().fold(f64::INFINITY, f64::min);
            let highest = column.values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let key = |of| SignalKey { position, of, signal: column.signal, unit: column.unit };
            add(key(SignalOf::Chosen), value);
            add(key(SignalOf::AboveLowest), value - lowest);
            add(key(SignalOf::BelowHighest), highest - value);
        }
    }
    let varies = |values: &Vec<f64>| values.windows(2).any(|pair| pair[0] != pair[1]);
    let usable = |values: &Vec<f64>| {
        values.len() == decisions.len() && values.iter().all(|value| value.is_finite()) && varies(values)
    };
    all.into_iter().filter(|(_, values)| usable(values)).map(|(key, values)| SignalValues { key, values }).collect()
}

/// A rule that was found.
struct Cut {
    /// Index of the signal.
    signal: usize,
    above: bool,
    threshold: f64,
    /// The decisions of which it holds.
    members: Vec<usize>,
    p: f64,
}

/// The decisions in the order of a signal, and where thresholds may lie.
struct SortedDecisions {
    order: Vec<usize>,
    /// Numbers of decisions below a threshold.
    cuts: Vec<usize>,
}

/// The rule that separates the regrets of the decisions `left` best, if that is significant.
fn best_rule(signals: &[SignalValues], regrets: &[f64], left: &[usize]) -> Option<Cut> {
    if left.len() < 2 * LEAST || wrong(regrets, left) < LEAST {
        return None;
    }
    let of_left: Vec<f64> = left.iter().map(|&index| regrets[index]).collect();
    let mut ranks = ranks(&of_left);
    let sorted: Vec<SortedDecisions> = signals.iter().map(|signal| sorted(&signal.values, left)).collect();
    let (signal, below, z) = largest_difference(&sorted, &ranks)?;
    let SortedDecisions { order, .. } = &sorted[signal];
    let above = z < 0.0;
    let members: Vec<usize> =
        if above { &order[below..] } else { &order[..below] }.iter().map(|&at| left[at]).collect();
    let values = &signals[signal].values;
    let threshold = between(values[left[order[below - 1]]], values[left[order[below]]]);
    let stream = Stream::new(0, "patterns");
    let mut as_large = 0;
    for turn in 0..PERMUTATIONS {
        ranks.shuffle(&mut stream.at(turn));
        let (.., other) = largest_difference(&sorted, &ranks)?;
        as_large += u64::from(other.abs() >= z.abs() - 1e-9);
        if as_large as f64 > LEVEL * PERMUTATIONS as f64 {
            return None;
        }
    }
    let p = (as_large + 1) as f64 / (PERMUTATIONS + 1) as f64;
    (p <= LEVEL).then_some(Cut { signal, above, threshold, members, p })
}

/// Positions in `left` by value, and the thresholds with enough decisions on both sides.
fn sorted(values: &[f64], left: &[usize]) -> SortedDecisions {
    let value = |at: usize| values[left[at]];
    let mut order: Vec<usize> = (0..left.len()).collect();
    order.sort_by(|&one, &other| value(one).total_cmp(&value(other)));
    let is_cut = |&below: &usize| value(order[below - 1]) < value(order[below]);
    let cuts = (LEAST..=left.len() - LEAST).filter(is_cut).collect();
    SortedDecisions { order, cuts }
}

/// The signal and the threshold with the largest standardised difference of rank sums: the number of decisions below it, and the
/// difference, above 0 if the ranks below are higher than those above.
fn largest_difference(sorted: &[SortedDecisions], ranks: &[f64]) -> Option<(usize, usize, f64)> {
    let count = ranks.len() as f64;
    let mean = ranks.iter().sum::<f64>() / count;
    let variance = ranks.iter().map(|rank| (rank - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let mut best: Option<(usize, usize, f64)> = None;
    for (signal, SortedDecisions { order, cuts }) in sorted.iter().enumerate() {
        let (mut sum, mut at) = (0.0, 0);
        for &below in cuts {
            sum += order[at..below].iter().map(|&one| ranks[one] - mean).sum::<f64>();
            at = below;
            let inside = below as f64;
            let z = sum / (inside * (count - inside) / count * variance).sqrt();
            if best.is_none_or(|(.., other)| z.abs() > other.abs() + 1e-9) {
                best = Some((signal, below, z));
            }
        }
    }
    best.filter(|_| variance > 0.0)
}

/// Ranks from 1; equal values have the mean of theirs.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&one, &other| values[one].total_cmp(&values[other]));
    let mut ranks = vec![0.0; values.len()];
    for ties in order.chunk_by(|&one, &other| values[one] == values[other]) {
        let Some(&first) = ties.first() else { continue };
        let before = order.iter().position(|&one| one == first).unwrap_or(0);
        let rank = before as f64 + (ties.len() as f64 + 1.0) / 2.0;
        ties.iter().for_each(|&one| ranks[one] = rank);
    }
    ranks
}

/// The shortest decimal number that is at least `low` and below `high`.
fn between(low: f64, high: f64) -> f64 {
    let largest = (high - low).log10().floor() as i32 + 2;
    let steps = (0..20).map(|finer| largest - finer);
    let rounded = |power: i32| {
        if power >= 0 {
            let step = 10f64.powi(power);
            (low / step).ceil() * step
        } else {
            let factor = 10f64.powi(-power);
            (low * factor).ceil() / factor
        }
    };
    steps.map(rounded).find(|&number| number >= low && number < high).unwrap_or(low)
}

/// The signal by which the best alternatives to wrong decisions differ most from any of the alternatives.
fn better_alternative(decisions: &[&DecisionRegret]) -> Option<BetterAlternative> {
    let those: Vec<&DecisionRegret> = decisions.iter().copied().filter(|one| one.regret_s >= WRONG_S).collect();
    let columns = &those.first()?.signals.columns;
    if those.len() < LEAST {
        return None;
    }
    let compared = columns.iter().enumerate().filter_map(|(at, column)| Some((column, signs(&those, at)?)));
    let (column, found) = compared.fold(None, |best: Option<(&DecisionColumn, SignCounts)>, one| match best {
        Some(best) if best.1.z.abs() >= one.1.z.abs() - 1e-9 => Some(best),
        _ => Some(one),
    })?;
    let p = (2.0 * Normal::standard().sf(found.z.abs()) * columns.len() as f64).min(1.0);
    let SignCounts { lower, higher, expected_lower, expected_higher, z } = found;
    (p <= LEVEL).then(|| BetterAlternative {
        signal: column.signal.to_owned(),
        prefers_lower: z < 0.0,
        lower,
        higher,
        wrong: those.len(),
        expected_lower,
        expected_higher,
        p,
    })
}

/// How often a signal of the best alternative is lower and higher than that of the choice.
#[derive(Default)]
struct SignCounts {
    lower: usize,
    higher: usize,
    /// The means of the two if the best alternative is any of them.
    expected_lower: f64,
    expected_higher: f64,
    /// `higher` − `lower` above its mean, in standard deviations.
    z: f64,
}

/// The counts of one column; `None` if they are certain, or a decision has no such signal.
fn signs(wrong: &[&DecisionRegret], column: usize) -> Option<SignCounts> {
    let mut found = SignCounts::default();
    let (mut excess, mut variance) = (0.0, 0.0);
    for one in wrong {
        let (rows, values) = (&one.signals.rows, &one.signals.columns.get(column)?.values);
        let value = |branch: usize| rows.get(branch).copied().flatten().and_then(|row| values.get(row)).copied();
        let chosen = value(0)?;
        // A branch that chooses none has no value: neither lower nor higher.
        let sign = |branch: usize| {
            value(branch).map_or(0.0, |value| f64::from(i8::from(value > chosen) - i8::from(value < chosen)))
        };
        let alternatives = one.branches.len() - 1;
        let share =
            |of: f64| (1..=alternatives).filter(|&branch| sign(branch) == of).count() as f64 / alternatives as f64;
        let (lower, higher, best) = (share(-1.0), share(1.0), sign(one.best()));
        found.lower += usize::from(best < 0.0);
        found.higher += usize::from(best > 0.0);
        found.expected_lower += lower;
        found.expected_higher += higher;
        excess += best - (higher - lower);
        variance += higher + lower - (higher - lower).powi(2);
    }
    let z = excess / variance.sqrt();
    (variance > 0.0).then_some(SignCounts { z, ..found })
}

/// What `policy` would have decided; `None` if that is known of no decision.
fn advised(decisions: &[&DecisionRegret], policy: &str) -> Option<ReferenceDecisions> {
    let mut sum = ReferenceDecisions { policy: policy.to_owned(), ..ReferenceDecisions::default() };
    for one in decisions {
        let Some(advised) = one.advised else { continue };
        let saved = one.branches[0].cost_s - one.branches[advised].cost_s;
        sum.known += 1;
        sum.other += usize::from(advised > 0);
        sum.better += usize::from(saved >= WRONG_S);
        sum.worse += usize::from(saved <= -WRONG_S);
        sum.saved_s += saved;
    }
    (sum.known > 0).then_some(sum)
}

#[cfg(test)]
mod tests;
