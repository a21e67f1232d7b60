//! What values an expression has: from those of its inputs in a first run, each drawn by itself. Rows of one call are not
//! known together, so that the lowest and the highest of them are values like the others.

use super::grammar::{DecisionGrammar, InputRange, Operator};
use super::program::Expr;

/// Values of an expression that are drawn.
const SAMPLES: usize = 41;
/// What a sum over the rows is taken for, as a multiple of a value.
const ROWS: f64 = 4.0;

/// The range of `expr`; `None` if it reads an input that was not measured, or a table, or has an infinite value.
pub(super) fn range(decision: &DecisionGrammar, expr: &Expr) -> Option<InputRange> {
    let values: Option<Vec<f64>> = (0..SAMPLES).map(|sample| value(decision, expr, sample)).collect();
    let mut values = values?;
    values.sort_by(f64::total_cmp);
    let at = |quarter: usize| values[quarter * (SAMPLES - 1) / 4];
    Some(InputRange([at(0), at(1), at(2), at(3), at(4)]))
}

/// How far the values of `expr` are apart: its middle half, or all if that is one value; the size of a constant. `None` as for [`range`].
pub(super) fn spread(decision: &DecisionGrammar, expr: &Expr) -> Option<f64> {
    let InputRange([lowest, low, _, high, highest]) = range(decision, expr)?;
    let spread = [high - low, highest - lowest, highest.abs()];
    spread.into_iter().find(|one| *one > 0.0)
}

fn value(decision: &DecisionGrammar, expr: &Expr, sample: usize) -> Option<f64> {
    let value = match expr {
        Expr::Constant(value) => *value,
        Expr::Input(name) => {
            let at = decision.inputs.iter().position(|input| input.name == *name)?;
            // A sequence of its own for each input, with an irrational step: even over the range, and unlike those of the others.
            let step = ((at + 2) as f64).sqrt() * 0.618_034;
            decision.inputs[at].measured?.at((0.5 + step * (sample + 1) as f64).fract())
        }
        Expr::EventTable(_) => return None,
        Expr::Apply(function, arguments) => {
            let arguments: Option<Vec<f64>> = arguments.iter().map(|one| value(decision, one, sample)).collect();
            applied(*function, &arguments?, sample)?
        }
    };
    value.is_finite().then_some(value)
}

fn applied(function: Operator, arguments: &[f64], sample: usize) -> Option<f64> {
    let share = sample as f64 / (SAMPLES - 1) as f64;
    Some(match (function, arguments) {
        (Operator::Lowest | Operator::Highest | Operator::Mean, [a]) => *a,
        (Operator::Sum, [a]) => ROWS * a,
        (Operator::FewestBest | Operator::MostBest, [_]) => share,
        (Operator::IfLess, [a, b, then, otherwise]) => *(if a < b { then } else { otherwise }),
        _ => return function.of_numbers(arguments),
    })
}

#[cfg(test)]
mod tests {
    use blis_plugin::Kind;

    use super::super::grammar::Grammar;
    use super::*;

    /// Routing, of which two inputs are measured.
    fn measured() -> DecisionGrammar {
        let mut decision = Grammar::new(&[Kind::Routing]).expect("routing").decisions.remove(0);
        for (name, range) in
            [("s.queue_depth", [0.0, 10.0, 20.0, 30.0, 40.0]), ("r.input_tokens", [100.0, 200.0, 300.0, 400.0, 1000.0])]
        {
            let input = decision.inputs.iter_mut().find(|one| one.name == name).expect("an input");
            input.measured = Some(InputRange(range));
        }
        decision
    }

    fn input(name: &str) -> Expr {
        Expr::Input(name.to_owned())
    }

    #[test]
    fn an_input_has_its_measured_values() {
        let decision = measured();
        let InputRange([lowest, low, middle, high, highest]) =
            range(&decision, &input("s.queue_depth")).expect("measured");
        assert!((0.0..3.0).contains(&lowest) && (37.0..=40.0).contains(&highest), "{lowest} {highest}");
        for (found, expected) in [(low, 10.0), (middle, 20.0), (high, 30.0)] {
            assert!((found - expected).abs() < 2.5, "{found}, not about {expected}");
        }
        let spread = spread(&decision, &input("s.queue_depth")).expect("measured");
        assert!((spread - 20.0).abs() < 3.0, "{spread}");
    }

    #[test]
    fn a_sum_spreads_as_its_larger_term() {
        let decision = measured();
        let both = Expr::Apply(Operator::Add, vec![input("s.queue_depth"), input("r.input_tokens")]);
        let [one, both] = [input("r.input_tokens"), both].map(|expr| spread(&decision, &expr).expect("measured"));
        assert!((0.8..1.3).contains(&(both / one)), "{both} {one}");
    }

    #[test]
    fn what_was_not_measured_has_no_range() {
        let decision = measured();
        assert_eq!(range(&decision, &input("s.batch_size")), None);
        assert_eq!(range(&decision, &Expr::EventTable(0)), None);
        let infinite = Expr::Apply(Operator::Multiply, vec![Expr::Constant(1e200), Expr::Constant(1e200)]);
        assert_eq!(range(&decision, &infinite), None);
        assert_eq!(range(&decision, &Expr::Constant(7.0)), Some(InputRange([7.0; 5])));
        assert_eq!(spread(&decision, &Expr::Constant(-7.0)), Some(7.0));
    }
}
