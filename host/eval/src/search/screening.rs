//! Which new programs are evaluated, by decisions of the best program of which the signals and the costs of the alternatives are
//! known: none that decides all of them as one that was evaluated, and of several the one that would have decided best.
//!
//! A sample is measured once in a cycle of batches, under the best program of that time, and is used with those before it. What a
//! program would have decided there takes no simulation. Its cost is an estimate, because every decision is changed alone: a
//! policy that sends all requests to one instance is cheap there. So it chooses among few.

use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use blis_plugin::Kind;

use super::grammar::{DecisionGrammar, Grammar, Operator};
use super::program::{Expr, Program};
use crate::decision_costs::DecisionCosts;

/// Samples that are used, the latest ones.
const SAMPLES: usize = 2;
/// New programs of which one is evaluated, in half of the cases.
pub(super) const OFFERED: usize = 4;
/// Share of the new programs of a batch that are chosen by their costs.
pub(super) const CHOSEN: f64 = 0.5;

/// Decisions with known costs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Screening {
    samples: Vec<Vec<DecisionCosts>>,
    /// Programs that were evaluated.
    evaluated: Vec<Program>,
    /// What they would have decided, without those that read what is not known.
    choices: HashSet<u64>,
}

impl Screening {
    /// Whether there are decisions to choose by.
    pub fn is_empty(&self) -> bool {
        self.samples.iter().all(Vec::is_empty)
    }

    /// Adds the routing decisions of a sample, and leaves the oldest sample out. Of other decisions too few inputs are known.
    pub fn add(&mut self, mut sample: Vec<DecisionCosts>, grammar: &Grammar) {
        sample.retain(|one| one.kind == Kind::Routing.name());
        self.samples.push(sample);
        let old = self.samples.len().saturating_sub(SAMPLES);
        self.samples.drain(..old);
        self.choices = self.evaluated.iter().filter_map(|program| self.choices_of(program, grammar)).collect();
    }

    /// Adds a program that is evaluated.
    pub fn add_evaluated(&mut self, program: &Program, grammar: &Grammar) {
        self.choices.extend(self.choices_of(program, grammar));
        self.evaluated.push(program.clone());
    }

    /// Whether a program decides all that is known as one that was evaluated.
    pub fn is_known(&self, program: &Program, grammar: &Grammar) -> bool {
        self.choices_of(program, grammar).is_some_and(|choices| self.choices.contains(&choices))
    }

    /// A hash of the rows with the highest score of each decision; `None` if the program reads what is not known of them, or if none
    /// are known, or if it decides other kinds, too.
    fn choices_of(&self, program: &Program, grammar: &Grammar) -> Option<u64> {
        if self.is_empty() || grammar.decisions.len() > 1 {
            return None;
        }
        let mut hasher = DefaultHasher::new();
        for one in self.samples.iter().flatten() {
            let scores = values(&grammar.decisions[0], &program.values[0], one)?.column(one);
            let highest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            scores.iter().for_each(|score| (*score == highest).hash(&mut hasher));
        }
        Some(hasher.finish())
    }

    /// What the choices of `program` cost more than the best ones, as a share of the difference between the worst and the best:
    /// the mean over scenarios, 0 to 1. `None` if it reads what is not known of these decisions.
    pub fn loss(&self, program: &Program, grammar: &Grammar) -> Option<f64> {
        let mut by_scenario: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
        for one in self.samples.iter().flatten() {
            let at = grammar.decisions.iter().position(|decision| decision.kind.name() == one.kind)?;
            let scores = values(&grammar.decisions[at], &program.values[at], one)?.column(one);
            let [lowest, highest] = [f64::min, f64::max].map(|of| one.costs_s.iter().copied().reduce(of));
            let (lowest, highest) = (lowest?, highest?);
            let all = by_scenario.entry(&one.scenario).or_default();
            all.0 += chosen_cost(one, &scores)? - lowest;
            all.1 += highest - lowest;
        }
        let shares = by_scenario.values().map(|(lost, possible)| if *possible > 0.0 { lost / possible } else { 0.0 });
        (!by_scenario.is_empty()).then(|| shares.sum::<f64>() / by_scenario.len() as f64)
    }
}

/// The cost of the tried row with the highest score; of rows with equal scores the mean. `None` if a score is not a number.
fn chosen_cost(one: &DecisionCosts, scores: &[f64]) -> Option<f64> {
    let tried = || one.rows.iter().zip(&one.costs_s).filter_map(|(&row, &cost)| Some((*scores.get(row)?, cost)));
    if tried().any(|(score, _)| score.is_nan()) {
        return None;
    }
    let highest = tried().map(|(score, _)| score).reduce(f64::max)?;
    let chosen: Vec<f64> = tried().filter(|(score, _)| *score == highest).map(|(_, cost)| cost).collect();
    Some(chosen.iter().sum::<f64>() / chosen.len() as f64)
}

/// The value of an expression: a number for each row, or the same for all.
enum Values {
    Number(f64),
    Rows(Vec<f64>),
}

impl Values {
    fn at(&self, row: usize) -> f64 {
        match self {
            Self::Number(value) => *value,
            Self::Rows(values) => values.get(row).copied().unwrap_or(f64::NAN),
        }
    }

    fn column(self, one: &DecisionCosts) -> Vec<f64> {
        (0..rows(one)).map(|row| self.at(row)).collect()
    }
}

fn rows(one: &DecisionCosts) -> usize {
    one.columns.values().next().map_or(0, Vec::len)
}

/// The column of signals with the name `field`, or what scripts add up of them.
fn column(one: &DecisionCosts, field: &str) -> Option<Vec<f64>> {
    if field != "effective_load" {
        return one.columns.get(field).cloned();
    }
    let parts = ["queue_depth", "batch_size", "in_flight"].map(|part| one.columns.get(part));
    let [Some(waiting), Some(running), Some(sent)] = parts else { return None };
    Some(waiting.iter().zip(running).zip(sent).map(|((waiting, running), sent)| waiting + running + sent).collect())
}

/// The value of `expr` at the decision; `None` if it reads a table, a random number or what is not known.
fn values(decision: &DecisionGrammar, expr: &Expr, one: &DecisionCosts) -> Option<Values> {
    match expr {
        Expr::Constant(value) => Some(Values::Number(*value)),
        Expr::EventTable(_) => None,
        Expr::Input(name) => {
            let input = decision.input(name)?;
            let (_, field) = name.split_once('.')?;
            // Inputs that are times are in ms, signals in the units of scripts, µs.
            let scale = if input.unit.starts_with("ms") { 1e-3 } else { 1.0 };
            if input.is_column {
                return Some(Values::Rows(column(one, field)?.iter().map(|value| value * scale).collect()));
            }
            if field == "len" {
                return Some(Values::Number(rows(one) as f64));
            }
            Some(Values::Number(one.numbers.get(field)? * scale))
        }
        Expr::Apply(function, arguments) => {
            let arguments: Vec<Values> =
                arguments.iter().map(|argument| values(decision, argument, one)).collect::<Option<_>>()?;
            applied(*function, &arguments, rows(one))
        }
    }
}

fn applied(function: Operator, arguments: &[Values], rows: usize) -> Option<Values> {
    if let [Values::Rows(values)] = arguments
        && let Some(found) = over_rows(function, values)
    {
        return Some(found);
    }
    let is_column = arguments.iter().any(|one| matches!(one, Values::Rows(_)));
    let at = |row: usize| {
        let numbers: Vec<f64> = arguments.iter().map(|one| one.at(row)).collect();
        match (function, &numbers[..]) {
            (Operator::IfLess, [one, other, then, otherwise]) => Some(if one < other { *then } else { *otherwise }),
            // What is over the rows, of a number.
            (_, [number]) if function.is_over_rows() => Some(*number),
            (Operator::FewestBest | Operator::MostBest, [_]) => Some(1.0),
            _ => function.of_numbers(&numbers),
        }
    };
    if !is_column {
        return at(0).map(Values::Number);
    }
    (0..rows).map(at).collect::<Option<_>>().map(Values::Rows)
}

/// The functions over the rows; `None` for others.
fn over_rows(function: Operator, values: &[f64]) -> Option<Values> {
    let lowest = values.iter().copied().fold(f64::INFINITY, f64::min);
    let highest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = values.iter().sum();
    let scaled = |of: &dyn Fn(f64) -> f64| {
        let scale = |value: &f64| if lowest == highest { 1.0 } else { of(*value) / (highest - lowest) };
        Values::Rows(values.iter().map(scale).collect())
    };
    Some(match function {
        Operator::Lowest => Values::Number(lowest),
        Operator::Highest => Values::Number(highest),
        Operator::Sum => Values::Number(sum),
        Operator::Mean => Values::Number(sum / values.len().max(1) as f64),
        Operator::FewestBest => scaled(&|value| highest - value),
        Operator::MostBest => scaled(&|value| value - lowest),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(name: &str) -> Expr {
        Expr::Input(name.to_owned())
    }

    fn program(value: Expr) -> Program {
        Program { values: vec![value], memories: Vec::new() }
    }

    /// Three instances, of which the first and the third were tried: the third costs less.
    fn known() -> DecisionCosts {
        let columns = [("queue_depth", [4.0, 0.0, 1.0]), ("ttft_ewma", [2e3, 3e3, 3e3]), ("in_flight", [5.0; 3])];
        DecisionCosts {
            kind: "routing".to_owned(),
            scenario: "one".to_owned(),
            columns: columns.map(|(name, values)| (name.to_owned(), values.to_vec())).into(),
            numbers: [("input_tokens".to_owned(), 100.0)].into(),
            rows: vec![0, 2],
            costs_s: vec![3.0, 1.0],
        }
    }

    fn loss(value: Expr) -> Option<f64> {
        let grammar = Grammar::new(&[Kind::Routing]).expect("routing");
        let mut screening = Screening::default();
        screening.add(vec![known()], &grammar);
        screening.loss(&program(value), &grammar)
    }

    #[test]
    fn the_loss_is_that_of_the_highest_score_of_what_was_tried() {
        let negative = |one: Expr| Expr::Apply(Operator::Negative, vec![one]);
        assert_eq!(loss(input("s.queue_depth")), Some(1.0));
        assert_eq!(loss(negative(input("s.queue_depth"))), Some(0.0));
        assert_eq!(loss(Expr::Constant(2.0)), Some(0.5), "any of them");
        assert_eq!(loss(Expr::EventTable(0)), None);
        assert_eq!(loss(input("s.kv_utilization")), None, "not known of this decision");
        assert_eq!(loss(input("random()")), None);
    }

    #[test]
    fn functions_are_those_of_scripts() {
        let of = |function, arguments| loss(Expr::Apply(function, arguments));
        assert_eq!(of(Operator::FewestBest, vec![input("s.queue_depth")]), Some(0.0));
        assert_eq!(of(Operator::MostBest, vec![input("s.queue_depth")]), Some(1.0));
        assert_eq!(of(Operator::MostBest, vec![input("s.in_flight")]), Some(0.5), "1 for all");
        assert_eq!(of(Operator::Mean, vec![input("s.queue_depth")]), Some(0.5), "the same for all");
        // 2 and 3 ms against 2.5: times are in ms.
        let limit = vec![Expr::Constant(2.5), input("s.ttft_ewma"), Expr::Constant(1.0), Expr::Constant(0.0)];
        assert_eq!(of(Operator::IfLess, limit), Some(0.0));
        let difference = vec![input("r.input_tokens"), input("s.queue_depth")];
        assert_eq!(of(Operator::Subtract, difference), Some(0.0));
    }

    #[test]
    fn a_program_that_decides_as_another_is_known() {
        let grammar = Grammar::new(&[Kind::Routing]).expect("routing");
        let twice = Expr::Apply(Operator::Multiply, vec![input("s.queue_depth"), Expr::Constant(2.0)]);
        let mut screening = Screening::default();
        screening.add_evaluated(&program(input("s.queue_depth")), &grammar);
        assert!(!screening.is_known(&program(twice.clone()), &grammar), "nothing is known yet");
        screening.add(vec![known()], &grammar);
        assert!(screening.is_known(&program(twice), &grammar));
        assert!(!screening.is_known(&program(input("s.ttft_ewma")), &grammar));
        let unknown = [input("random()"), input("s.kv_utilization"), Expr::EventTable(0)];
        for one in unknown.map(program) {
            screening.add_evaluated(&one, &grammar);
            assert!(!screening.is_known(&one, &grammar), "{one:?}");
        }
        screening.add_evaluated(&program(input("s.ttft_ewma")), &grammar);
        assert!(screening.is_known(&program(input("s.ttft_ewma")), &grammar));
    }

    /// Regression: in suites that decide other kinds, too, no program was compared.
    #[test]
    fn decisions_of_other_kinds_are_left_out() {
        let grammar = Grammar::new(&[Kind::Routing]).expect("routing");
        let mut screening = Screening::default();
        screening.add(vec![DecisionCosts { kind: "scheduling".to_owned(), ..known() }], &grammar);
        assert!(screening.is_empty());
        screening.add(vec![DecisionCosts { kind: "scheduling".to_owned(), ..known() }, known()], &grammar);
        assert_eq!(screening.loss(&program(input("s.queue_depth")), &grammar), Some(1.0));
    }

    #[test]
    fn the_latest_samples_are_used() {
        let mut screening = Screening::default();
        assert!(screening.is_empty());
        let grammar = Grammar::new(&[Kind::Routing]).expect("routing");
        let other = DecisionCosts { costs_s: vec![1.0, 3.0], ..known() };
        (0..SAMPLES).for_each(|_| screening.add(vec![other.clone()], &grammar));
        assert_eq!(screening.loss(&program(input("s.queue_depth")), &grammar), Some(0.0));
        (0..SAMPLES).for_each(|_| screening.add(vec![known()], &grammar));
        assert_eq!(screening.loss(&program(input("s.queue_depth")), &grammar), Some(1.0));
    }
}
