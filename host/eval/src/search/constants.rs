//! The constants of a program by CMA-ES, a generation at a time: what the next generation is follows from the scores of all
//! before it, so that a search can be resumed anywhere.

use std::cell::RefCell;

use cmaes::{CMAESOptions, DVector, Mode};

use super::program::Program;

/// Standard deviation of the first generation, in ln of a constant.
const STEP: f64 = 0.4;

/// The tuning of the constants of one program.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ConstantTuning {
    /// Number of the evaluation of the program.
    pub parent: usize,
    program: Program,
    constants: Vec<f64>,
    seed: u64,
    /// Scores of the generations so far.
    scores: Vec<Vec<f64>>,
}

impl ConstantTuning {
    /// The tuning of `program`; `None` if it has no constants.
    pub fn new(parent: usize, program: &Program, seed: u64) -> Option<Self> {
        let constants = program.constants();
        let program = program.clone();
        (!constants.is_empty()).then_some(Self { parent, program, constants, seed, scores: Vec::new() })
    }

    /// Adds the scores of the last generation, in its order.
    pub fn add(&mut self, scores: Vec<f64>) {
        self.scores.push(scores);
    }

    /// The programs of the next generation; none if the search has ended.
    pub fn generation(&self) -> Vec<Program> {
        let known = self.scores.concat();
        let points: RefCell<Vec<DVector<f64>>> = RefCell::default();
        let objective = |x: &DVector<f64>| {
            let mut points = points.borrow_mut();
            points.push(x.clone());
            known.get(points.len() - 1).copied().unwrap_or(0.0)
        };
        let start = vec![0.0; self.constants.len()];
        let options = CMAESOptions::new(start, STEP).mode(Mode::Maximize).seed(self.seed);
        let Ok(mut search) = options.build(objective) else { return Vec::new() };
        for _ in &self.scores {
            if search.next().is_some() {
                return Vec::new();
            }
        }
        // This one has no scores yet: what the search makes of it is not used.
        let _ = search.next();
        drop(search);
        let points = points.into_inner();
        points.get(known.len()..).unwrap_or_default().iter().map(|point| self.at(point)).collect()
    }

    fn at(&self, point: &DVector<f64>) -> Program {
        // Constants of 0 have no order of magnitude.
        let moved = |(constant, x): (&f64, &f64)| match *constant == 0.0 {
            true => *x,
            false => constant * x.clamp(-20.0, 20.0).exp(),
        };
        let constants: Vec<f64> = self.constants.iter().zip(point.iter()).map(moved).collect();
        self.program.with_constants(&constants)
    }
}

#[cfg(test)]
mod tests {
    use super::super::grammar::Operator;
    use super::super::program::Expr;
    use super::*;

    fn tuning() -> ConstantTuning {
        let value = Expr::Apply(Operator::Add, vec![Expr::Constant(10.0), Expr::Constant(0.5)]);
        ConstantTuning::new(4, &Program { values: vec![value], memories: Vec::new() }, 1).expect("two constants")
    }

    /// Scores 0 at the constants 2 and 3, less elsewhere.
    fn score(program: &Program) -> f64 {
        let constants = program.constants();
        -(constants[0] / 2.0).ln().powi(2) - (constants[1] / 3.0).ln().powi(2)
    }

    #[test]
    fn constants_approach_the_best_ones() {
        let mut tuning = tuning();
        let mut best = f64::NEG_INFINITY;
        for _ in 0..40 {
            let scores: Vec<f64> = tuning.generation().iter().map(score).collect();
            best = scores.iter().copied().fold(best, f64::max);
            tuning.add(scores);
        }
        assert!(best > -0.01, "{best}");
    }

    #[test]
    fn a_generation_follows_from_the_scores_before_it() {
        let (mut one, mut other) = (tuning(), tuning());
        for _ in 0..3 {
            let (first, second) = (one.generation(), other.generation());
            assert_eq!(first, second);
            one.add(first.iter().map(score).collect());
            other.add(second.iter().map(score).collect());
        }
        assert_eq!(one.generation(), one.clone().generation());
    }

    #[test]
    fn a_program_without_constants_has_nothing_to_tune() {
        let program = Program { values: vec![Expr::Input("s.id".to_owned())], memories: Vec::new() };
        assert_eq!(ConstantTuning::new(0, &program, 1), None);
    }
}
