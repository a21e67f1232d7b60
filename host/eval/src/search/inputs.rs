//! Which columns differ between the rows of a decision in a suite: the others are left out of new expressions.

use super::archive::{Candidate, Phase, SearchOutcome};
use super::grammar::{DecisionOutput, Grammar};
use super::program::{Expr, Program};
use super::run::SearchRun;
use super::seeds::neutral;
use super::variation::Operation;
use crate::error::RunError;

impl SearchRun<'_> {
    /// The grammar without columns that are equal for all rows, as those of features that the suite does not use: a program that
    /// scores by one alone does in smoke exactly what one without scores does.
    pub(super) fn used_grammar(&mut self) -> Result<Grammar, RunError> {
        let mut used = self.grammar.clone();
        let of = |program| Candidate { program, operation: Operation::Seed, parents: [None; 2] };
        let mut candidates = vec![of(neutral(self.grammar))];
        let mut columns: Vec<(usize, String)> = Vec::new();
        for (at, decision) in self.grammar.decisions.iter().enumerate() {
            let scored =
                decision.inputs.iter().filter(|one| one.is_column && decision.output == DecisionOutput::Column);
            for input in scored {
                let mut program: Program = neutral(self.grammar);
                program.values[at] = Expr::Input(input.name.clone());
                candidates.push(of(program));
                columns.push((at, input.name.clone()));
            }
        }
        let jobs: Vec<(usize, &Candidate)> = candidates.iter().enumerate().collect();
        let outcomes = self.evaluate(Phase::Inputs, 0, 1, &jobs)?;
        let (without, with) = (&outcomes[0], &outcomes[1..]);
        for ((at, name), outcome) in columns.iter().zip(with) {
            if is_same(without, outcome) {
                used.decisions[*at].inputs.retain(|input| input.name != *name);
            }
        }
        Ok(used)
    }
}

fn is_same(one: &SearchOutcome, other: &SearchOutcome) -> bool {
    let figures = |of: &SearchOutcome| [of.promotion, of.imbalance, of.mean_ttft_ms, of.p99_ttft_ms, of.mean_e2e_ms];
    one.promotion > 0.0 && figures(one) == figures(other)
}
