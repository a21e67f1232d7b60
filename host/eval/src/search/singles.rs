//! Every input alone: the programs that a search begins with after the built-in policies. A score or a rank is the input or its
//! negative; what is decided by `> 0` is a comparison of the input with one of the quartiles that it had.

use rand::seq::SliceRandom as _;

use super::grammar::{DecisionGrammar, DecisionOutput, Grammar, Input, InputRange, Operator, PatternSignal};
use super::program::{Expr, Program, rounded};
use super::seeds::neutral;
use super::variation::is_named;
use blis_sim::rng::Generator;

/// The programs, each once, in a random order. The other decisions do nothing.
pub(super) fn singles(grammar: &Grammar, draw: &mut Generator) -> Vec<Program> {
    let nothing = neutral(grammar);
    let mut all: Vec<Program> = Vec::new();
    for (at, decision) in grammar.decisions.iter().enumerate() {
        for value in decision.inputs.iter().flat_map(|input| values(decision, input)) {
            let mut program = nothing.clone();
            program.values[at] = value;
            let program = program.simplified(grammar);
            if program != nothing && !all.contains(&program) {
                all.push(program);
            }
        }
    }
    all.shuffle(draw);
    all
}

/// Moves the programs to the front that read an input which `patterns` name, in the direction that they name, if they do.
pub(super) fn put_named_first(programs: &mut [Program], grammar: &Grammar, patterns: &[PatternSignal]) {
    let is_first = |program: &Program| {
        program.values.iter().zip(&grammar.decisions).any(|(value, decision)| {
            let (rises, name) = match value {
                Expr::Input(name) => (true, name),
                Expr::Apply(Operator::Negative, of) => match &of[..] {
                    [Expr::Input(name)] => (false, name),
                    _ => return false,
                },
                Expr::Apply(_, of) => match &of[..] {
                    [Expr::Input(name), _] => (true, name),
                    [_, Expr::Input(name)] => (false, name),
                    _ => return false,
                },
                Expr::Constant(_) | Expr::EventTable(_) => return false,
            };
            let input = decision.inputs.iter().find(|input| input.name == *name);
            let names = |one: &PatternSignal, input: &Input| {
                is_named(one, decision, input) && one.rises.is_none_or(|wanted| wanted == rises)
            };
            input.is_some_and(|input| patterns.iter().any(|one| names(one, input)))
        })
    };
    programs.sort_by_key(|program| !is_first(program));
}

/// The expressions of one input.
fn values(decision: &DecisionGrammar, input: &Input) -> Vec<Expr> {
    let alone = Expr::Input(input.name.clone());
    match decision.output {
        DecisionOutput::Truth | DecisionOutput::Truths => comparisons(input.measured, &alone),
        DecisionOutput::NotNegative => match input.measured {
            // Full at the upper quartile.
            Some(InputRange([.., high, _])) if high > 0.0 => {
                vec![Expr::Apply(Operator::Divide, vec![alone, Expr::Constant(rounded(high))])]
            }
            _ => Vec::new(),
        },
        // How many replicas follow from one input has no scale that is known.
        DecisionOutput::Replicas => Vec::new(),
        DecisionOutput::Column | DecisionOutput::Choice | DecisionOutput::Number => {
            vec![alone.clone(), Expr::Apply(Operator::Negative, vec![alone])]
        }
    }
}

/// More, and less, than each of the quartiles.
fn comparisons(measured: Option<InputRange>, input: &Expr) -> Vec<Expr> {
    let Some(InputRange([_, low, middle, high, _])) = measured else { return Vec::new() };
    let mut limits = vec![low, middle, high];
    limits.dedup();
    let both = |limit: f64| {
        let limit = Expr::Constant(rounded(limit));
        [[input.clone(), limit.clone()], [limit, input.clone()]]
            .map(|parts| Expr::Apply(Operator::Subtract, parts.into()))
    };
    limits.into_iter().flat_map(both).collect()
}

#[cfg(test)]
mod tests {
    use blis_plugin::Kind;
    use blis_sim::rng::Stream;

    use super::*;

    fn measured(kind: Kind) -> Grammar {
        let mut grammar = Grammar::new(&[kind]).expect("a kind of the grammar");
        for input in grammar.decisions.iter_mut().flat_map(|decision| &mut decision.inputs) {
            input.measured = Some(InputRange([0.0, 1.0, 1.0, 4.0, 9.0]));
        }
        grammar
    }

    #[test]
    fn scores_are_an_input_or_its_negative() {
        let grammar = measured(Kind::Routing);
        let all = singles(&grammar, &mut Stream::new(1, "test").at(0));
        let columns = grammar.decisions[0].inputs.iter().filter(|input| input.is_column).count();
        assert_eq!(all.len(), 2 * columns, "what is equal for all instances decides nothing");
        let negative = Expr::Apply(Operator::Negative, vec![Expr::Input("s.in_flight".to_owned())]);
        assert!(all.iter().any(|program| program.values[0] == negative));
    }

    #[test]
    fn truths_are_comparisons_with_quartiles() {
        let grammar = measured(Kind::Admission);
        let all = singles(&grammar, &mut Stream::new(1, "test").at(0));
        let of = |parts: [Expr; 2]| Expr::Apply(Operator::Subtract, parts.into());
        let input = || Expr::Input("r.input_tokens".to_owned());
        let expected = [
            of([input(), Expr::Constant(4.0)]),
            of([Expr::Constant(1.0), input()]),
            of([input(), Expr::Constant(1.0)]),
        ];
        for value in expected {
            assert_eq!(all.iter().filter(|program| program.values[0] == value).count(), 1, "{value:?}");
        }
        assert_eq!(all, singles(&grammar, &mut Stream::new(1, "test").at(0)));
        assert_ne!(all, singles(&grammar, &mut Stream::new(2, "test").at(0)));
    }

    #[test]
    fn what_patterns_name_comes_first() {
        let grammar = measured(Kind::Routing);
        let mut all = singles(&grammar, &mut Stream::new(1, "test").at(0));
        let signal =
            |signal: &str, rises| PatternSignal { kind: "routing".to_owned(), signal: signal.to_owned(), rises };
        put_named_first(&mut all, &grammar, &[signal("in_flight", Some(false)), signal("queue_depth", None)]);
        let input = |name: &str| Expr::Input(name.to_owned());
        let negative = |name: &str| Expr::Apply(Operator::Negative, vec![input(name)]);
        let mut first: Vec<&Expr> = all[..3].iter().map(|program| &program.values[0]).collect();
        first.sort_by_key(|value| value.size());
        assert_eq!(first[0], &input("s.queue_depth"));
        assert!(first.contains(&&negative("s.queue_depth")) && first.contains(&&negative("s.in_flight")), "{first:?}");
    }

    #[test]
    fn what_was_not_measured_has_no_quartiles() {
        let grammar = Grammar::new(&[Kind::Admission]).expect("admission");
        assert_eq!(singles(&grammar, &mut Stream::new(1, "test").at(0)), []);
    }
}
