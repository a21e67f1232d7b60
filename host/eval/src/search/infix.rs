//! Expressions as people and language models write them: with operators between their arguments, and inputs by their names. How
//! inputs are converted, and what keeps functions defined everywhere, is left to [`super::program`].

use blis_plugin::script::{self, ExpressionError, ExpressionForm, ScriptExpression};

use super::grammar::{DecisionGrammar, Operator};
use super::program::{Expr, literal, rounded};

/// Functions by the names that they have here, with what they are.
pub(super) const FUNCTIONS: [(&str, Operator, &str); 12] = [
    ("min", Operator::Min, "min(x, y)"),
    ("max", Operator::Max, "max(x, y)"),
    ("sqrt_abs", Operator::Root, "sqrt_abs(x): the square root of |x|"),
    ("log1p_abs", Operator::Log, "log1p_abs(x): ln(1 + |x|)"),
    ("if_less", Operator::IfLess, "if_less(a, b, x, y): x if a < b, else y"),
    ("lowest", Operator::Lowest, "lowest(c): the smallest value of a column, the same for all rows"),
    ("highest", Operator::Highest, "highest(c)"),
    ("mean", Operator::Mean, "mean(c)"),
    ("sum", Operator::Sum, "sum(c)"),
    (
        "fewest_best",
        Operator::FewestBest,
        "fewest_best(c): scaled over the rows, 1 for the smallest, 0 for the largest",
    ),
    ("most_best", Operator::MostBest, "most_best(c): 0 for the smallest, 1 for the largest"),
    ("-", Operator::Negative, "-x"),
];

/// Operators between two arguments.
const BETWEEN: [(&str, Operator); 4] =
    [("+", Operator::Add), ("-", Operator::Subtract), ("*", Operator::Multiply), ("/", Operator::Divide)];

/// The text of an expression; tables are `m0`, `m1` …
pub(super) fn infix(value: &Expr) -> String {
    match value {
        Expr::Constant(number) => literal(*number),
        Expr::Input(name) => name.clone(),
        Expr::EventTable(number) => format!("m{number}"),
        Expr::Apply(function, arguments) => {
            let texts: Vec<String> = arguments.iter().map(infix).collect();
            let between = BETWEEN.iter().find(|(_, known)| known == function);
            match (between, &texts[..]) {
                (Some((sign, _)), [one, other]) => format!("({one} {sign} {other})"),
                _ => format!("{}({})", name(*function), texts.join(", ")),
            }
        }
    }
}

fn name(function: Operator) -> &'static str {
    FUNCTIONS.iter().find(|(_, known, _)| *known == function).map_or("", |(name, ..)| name)
}

/// The expression that `text` is, for `decision` of a program with `tables` tables.
///
/// # Errors
/// The first part that is none of the grammar.
pub(super) fn parsed(text: &str, decision: &DecisionGrammar, tables: usize) -> Result<Expr, ExpressionError> {
    InfixReader { decision, tables }.read(&script::expression(text)?)
}

struct InfixReader<'a> {
    decision: &'a DecisionGrammar,
    tables: usize,
}

impl InfixReader<'_> {
    fn read(&self, written: &ScriptExpression) -> Result<Expr, ExpressionError> {
        let refused = |message: String| Err(ExpressionError { at: written.at, message });
        match &written.form {
            ExpressionForm::Number(number) if number.is_finite() => Ok(Expr::Constant(rounded(*number))),
            ExpressionForm::Number(_) => refused("the number is too large".to_owned()),
            ExpressionForm::Name(name) => match self.named(name) {
                Some(found) => Ok(found),
                None => refused(format!("there is no input `{name}`")),
            },
            ExpressionForm::Call(name, arguments) => {
                if arguments.is_empty()
                    && let Some(input) = self.named(&format!("{name}()"))
                {
                    return Ok(input);
                }
                let count = arguments.len();
                let Some(function) = function(name, count) else {
                    return refused(match FUNCTIONS.iter().find(|(known, ..)| known == name) {
                        Some((.., about)) => format!("`{name}` has {count} arguments: it is {about}"),
                        None => format!("there is no function `{name}`"),
                    });
                };
                let arguments = arguments.iter().map(|one| self.read(one)).collect::<Result<_, _>>()?;
                Ok(Expr::Apply(function, arguments))
            }
        }
    }

    /// The input or the table called `name`.
    fn named(&self, name: &str) -> Option<Expr> {
        if self.decision.inputs.iter().any(|input| input.name == name) {
            return Some(Expr::Input(name.to_owned()));
        }
        let table = (0..self.tables).filter(|_| self.decision.has_memory).find(|number| format!("m{number}") == name);
        table.map(Expr::EventTable)
    }
}

fn function(name: &str, arguments: usize) -> Option<Operator> {
    let between = BETWEEN.iter().map(|&(known, function)| (known, function));
    let mut all = between.chain(FUNCTIONS.iter().map(|&(known, function, _)| (known, function)));
    all.find(|(known, function)| *known == name && function.arguments() == arguments).map(|(_, function)| function)
}

#[cfg(test)]
mod tests {
    use blis_plugin::Kind;
    use blis_sim::rng::Stream;

    use super::super::grammar::Grammar;
    use super::super::variation::{ProgramGenerator, decided_kinds};
    use super::*;

    fn routing(text: &str) -> Result<String, String> {
        let grammar = Grammar::new(&[Kind::Routing]).expect("routing");
        let read = parsed(text, &grammar.decisions[0], 1);
        read.map(|value| infix(&value)).map_err(|error| error.to_string())
    }

    #[test]
    fn expressions_that_are_written_are_read_as_the_same() {
        for kind in decided_kinds() {
            let grammar = Grammar::new(&[kind]).expect("a kind of the grammar");
            let draw = Stream::new(1, kind.name()).at(0);
            let mut made = ProgramGenerator::new(&grammar, draw);
            let mut program = made.random();
            for _ in 0..60 {
                let other = made.random();
                program = made.crossed(&program, &other);
                program = made.mutated(&program);
                let same = program.clone().simplified(&grammar);
                for (value, decision) in same.values.iter().zip(&grammar.decisions) {
                    let text = infix(value);
                    assert_eq!(parsed(&text, decision, same.memories.len()).as_ref(), Ok(value), "{text}");
                }
            }
        }
    }

    #[test]
    fn what_is_not_of_the_grammar_is_refused_with_its_location() {
        assert_eq!(
            routing("2 * most_best(s.cached_blocks) - m0").as_deref(),
            Ok("((2.0 * most_best(s.cached_blocks)) - m0)")
        );
        let refused = ["s.in_flight + s.speed", "1 + abs(s.in_flight)", "min(1, 2, 3)", "m0 + m1", "1e999", "s.id"];
        let reasons: Vec<String> = refused.into_iter().filter_map(|text| routing(text).err()).collect();
        assert_eq!(
            reasons,
            [
                "1:15: there is no input `s.speed`",
                "1:5: there is no function `abs`",
                "1:1: `min` has 3 arguments: it is min(x, y)",
                "1:6: there is no input `m1`",
                "1:1: the number is too large",
                "1:1: there is no input `s.id`",
            ]
        );
    }
}
