//! What the inputs of a suite are: columns that are equal for all rows, and inputs that are never set, are left out of new
//! expressions; of the others the values are measured, so that constants have their size.

use std::fmt::Write as _;

use super::archive::{Candidate, Phase, RungBatch, SearchOutcome};
use super::grammar::{DecisionGrammar, DecisionOutput, Grammar, Input, InputRange};
use super::program::{Expr, Program};
use super::run::SearchRun;
use super::rung::Rung;
use super::seeds::neutral;
use super::variation::Operation;
use crate::error::RunError;

/// Values of each input that are kept.
const SAMPLES: usize = 64;
/// Calls between two of them. A run with too few calls ends before the script has all values, so that fewer are used.
const STRIDES: [usize; 3] = [64, 8, 1];
/// Inputs that one script measures: their figures fit the text.
const MEASURED_TOGETHER: usize = 30;
/// The word in front of the figures.
const MARK: &str = "measured:";

impl SearchRun<'_> {
    /// The grammar without inputs that the suite does not use, and with the values of the others.
    ///
    /// # Errors
    /// If the host fails in an evaluation, or the archive cannot be written.
    pub(super) fn used_grammar(&mut self) -> Result<Grammar, RunError> {
        let mut used = self.grammar.clone();
        let columns = self.columns_alone(&mut used)?;
        self.measure_inputs(&mut used, columns)?;
        Ok(used)
    }

    /// Leaves columns out of `used` that are equal for all rows, as those of features that the suite does not use: a program that
    /// scores by one alone does in smoke exactly what one without scores does. Returns the number of evaluations.
    fn columns_alone(&mut self, used: &mut Grammar) -> Result<usize, RunError> {
        let mut candidates = vec![neutral_candidate(self.grammar)];
        let mut columns: Vec<(usize, String)> = Vec::new();
        for (at, decision) in self.grammar.decisions.iter().enumerate() {
            let scored =
                decision.inputs.iter().filter(|one| one.is_column && decision.output == DecisionOutput::Column);
            for input in scored {
                let mut program: Program = neutral(self.grammar);
                program.values[at] = Expr::Input(input.name.clone());
                candidates.push(Candidate { program, ..neutral_candidate(self.grammar) });
                columns.push((at, input.name.clone()));
            }
        }
        let jobs: Vec<(usize, &Candidate)> = candidates.iter().enumerate().collect();
        let outcomes = self.evaluate(RungBatch { phase: Phase::Inputs, batch: 0, rung: Rung::Smoke }, &jobs)?;
        let (without, with) = (&outcomes[0], &outcomes[1..]);
        for ((at, name), outcome) in columns.iter().zip(with) {
            if is_same(without, outcome) {
                used.decisions[*at].inputs.retain(|input| input.name != *name);
            }
        }
        Ok(jobs.len())
    }

    /// Runs scripts that decide nothing and keep the values of all inputs; `first` is the number of the first evaluation.
    fn measure_inputs(&mut self, used: &mut Grammar, first: usize) -> Result<(), RunError> {
        let parts: Vec<(usize, Vec<String>)> = (0..used.decisions.len())
            .flat_map(|at| {
                let names: Vec<String> = used.decisions[at].inputs.iter().map(|input| input.name.clone()).collect();
                names.chunks(MEASURED_TOGETHER).map(|names| (at, names.to_vec())).collect::<Vec<_>>()
            })
            .collect();
        let scripts = parts.iter().flat_map(|(at, names)| STRIDES.map(|stride| (*at, names, stride)));
        let sources: Vec<String> = scripts
            .map(|(at, names, stride)| {
                let decision = &used.decisions[at];
                let inputs: Vec<&Input> = decision.inputs.iter().filter(|one| names.contains(&one.name)).collect();
                measuring(self.grammar, decision, &inputs, stride)
            })
            .collect();
        let candidate = neutral_candidate(self.grammar);
        let jobs: Vec<(usize, &Candidate)> =
            (first..first + sources.len()).map(|number| (number, &candidate)).collect();
        let of = RungBatch { phase: Phase::Inputs, batch: 1, rung: Rung::Smoke };
        let outcomes = self.evaluate_sources(of, &jobs, &sources)?;
        for ((at, names), outcomes) in parts.iter().zip(outcomes.chunks(STRIDES.len())) {
            let Some(ranges) = outcomes.iter().find_map(|outcome| ranges(&outcome.error, names.len())) else {
                continue;
            };
            let inputs = &mut used.decisions[*at].inputs;
            for (name, range) in names.iter().zip(ranges) {
                inputs.iter_mut().filter(|one| one.name == *name).for_each(|one| one.measured = Some(range));
            }
            inputs.retain(|one| one.measured.is_none_or(|range| !range.is_unused()));
        }
        Ok(())
    }
}

fn neutral_candidate(grammar: &Grammar) -> Candidate {
    Candidate { program: neutral(grammar), operation: Operation::Seed, parents: [None; 2] }
}

fn is_same(one: &SearchOutcome, other: &SearchOutcome) -> bool {
    let figures = |of: &SearchOutcome| [of.promotion, of.imbalance, of.mean_ttft_ms, of.p99_ttft_ms, of.mean_e2e_ms];
    one.promotion > 0.0 && figures(one) == figures(other)
}

/// A script that decides nothing, keeps `inputs` of `decision` at every call that `stride` divides, and ends with an error that
/// has their figures.
fn measuring(grammar: &Grammar, decision: &DecisionGrammar, inputs: &[&Input], stride: usize) -> String {
    let mut body = format!(
        "    this.calls += 1;\n    if this.calls % {stride} == 0 {{\n        let at = this.calls / {stride} - 1;\n"
    );
    for (number, input) in inputs.iter().enumerate() {
        let value = if input.is_column { format!("entry({}, at)", input.text) } else { input.text.clone() };
        // Writing to a text does not fail.
        let _ = writeln!(body, "        this.x[{} + at] = {value};", number * SAMPLES);
    }
    let _ = writeln!(body, "        if at == {} {{ throw figures(this.x) }}\n    }}", SAMPLES - 1);
    let head = format!("fn {}({}) {{\n", decision.function, decision.arguments.join(", "));
    let decides_nothing = neutral(grammar).source(grammar);
    let function = decides_nothing.replacen(&head, &format!("{head}{body}"), 1);
    format!(
        "{function}
fn init() {{ #{{ calls: 0, x: zeros({}) }} }}

fn entry(c, at) {{ if c.len == 0 {{ 0.0 }} else {{ c[at % c.len] }} }}

fn figures(x) {{
    let text = \"{MARK}\";
    for i in 0..{} {{
        let c = zeros({SAMPLES});
        for j in 0..{SAMPLES} {{ c[j] = x[i * {SAMPLES} + j]; }}
        text += ` ${{min(c)}} ${{quantile(c, 0.25)}} ${{median(c)}} ${{quantile(c, 0.75)}} ${{max(c)}}`;
    }}
    text
}}
",
        inputs.len() * SAMPLES,
        inputs.len()
    )
}

/// The figures of `count` inputs in the error of a measuring script; `None` if it has not ended with them.
fn ranges(error: &str, count: usize) -> Option<Vec<InputRange>> {
    let (_, text) = error.split_once(MARK)?;
    let numbers: Vec<f64> = text.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let ranges: Vec<InputRange> = numbers.as_chunks().0.iter().map(|&figures| InputRange(figures)).collect();
    (ranges.len() >= count).then_some(ranges)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use blis_plugin::inputs::{GuestCall, ties};
    use blis_plugin::{Limits, check, script};

    use super::super::variation::decided_kinds;
    use super::*;

    #[test]
    fn scripts_measure_the_inputs_of_every_kind() {
        for kind in decided_kinds() {
            let grammar = Grammar::new(&[kind]).expect("a kind of the grammar");
            for decision in &grammar.decisions {
                let inputs: Vec<&Input> = decision.inputs.iter().take(MEASURED_TOGETHER).collect();
                let source = measuring(&grammar, decision, &inputs, 1);
                let limits = Limits::default();
                let plugin = script::load(Path::new("measuring.rhai"), &source, &limits);
                let plugin = plugin.unwrap_or_else(|fault| panic!("{fault:?}\n{source}"));
                let mut guest = plugin.start(&check::setup(&*plugin, kind, 4, &limits)).expect("it starts");
                let found = (0..4 * SAMPLES as u64).find_map(|item| {
                    let called = GuestCall::plausible(kind, 4, item).run(&mut *guest, &ties());
                    called.err().map(|fault| fault.to_string())
                });
                let found = found.unwrap_or_else(|| panic!("{}: no figures\n{source}", decision.function));
                assert!(ranges(&found, inputs.len()).is_some(), "{}: {found}\n{source}", decision.function);
            }
        }
    }

    /// Regression: bytes, which are always more than a million, were taken for absent.
    #[test]
    fn large_numbers_are_used() {
        assert!(!InputRange([5e7, 2e8, 6e8, 1e9, 3e9]).is_unused());
        assert!(!InputRange([1e9, 2e9, 3e9, 4e9, 5e9]).is_unused());
    }

    #[test]
    fn ranges_are_read_from_the_error_of_a_script() {
        let error = "trap: candidate.rhai:9:13: in `admit`: it threw: measured: 0.0 1.0 2.0 3.0 4.5 0.0 0.0 0.0 0.0 0.0\n  9 | throw";
        let found = ranges(error, 2).expect("two inputs");
        assert_eq!(found, [InputRange([0.0, 1.0, 2.0, 3.0, 4.5]), InputRange([0.0; 5])]);
        assert_eq!((found[0].is_unused(), found[1].is_unused()), (false, true));
        assert_eq!([0.0, 0.375, 1.0].map(|share| (1000.0 * found[0].at(share)).round()), [0.0, 1500.0, 4500.0]);
        assert!(
            InputRange([1e9; 5]).is_unused() && InputRange([1e6; 5]).is_unused(),
            "what stands for an absent value"
        );
        assert_eq!((ranges(error, 3), ranges("it took too long", 1)), (None, None));
    }
}
