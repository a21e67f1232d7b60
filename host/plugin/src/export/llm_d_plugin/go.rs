//! Decisions in Go.

use std::fmt::Write as _;

use super::super::term::{DecisionTerm, ScriptTerm, TermForm};
use crate::script::Operation;

/// Writes the body of `decide`.
pub(super) struct GoWriter<'a> {
    decision: &'a DecisionTerm,
    /// Variables of the script that are written, with their names in Go.
    variables: Vec<Option<String>>,
    body: String,
    /// Variables that the script does not have: values over the endpoints.
    made: usize,
}

impl<'a> GoWriter<'a> {
    /// The statements of a function that returns a number for each endpoint.
    pub fn body(decision: &'a DecisionTerm) -> String {
        let count = decision.variables.len();
        let mut writer = Self { decision, variables: vec![None; count], body: String::new(), made: 0 };
        let value = writer.value(&decision.value);
        let _ = writeln!(writer.body, "\treturn column(n, func(i int) float64 {{ return {value} }})");
        writer.body
    }

    /// An expression, which has the index `i` of an endpoint in it if the value is a column.
    fn value(&mut self, term: &ScriptTerm) -> String {
        if let Some(number) = constant(term) {
            return literal(number);
        }
        match &term.form {
            TermForm::Number(number) => literal(*number),
            TermForm::Field(0, name) => format!("r.{}", camel(name)),
            TermForm::Field(_, name) if COUNTS.contains(&name.as_str()) => "float64(n)".to_owned(),
            TermForm::Field(_, name) if term.is_column() => format!("s[i].{}", camel(name)),
            TermForm::Field(_, name) => format!("r.{}", camel(&format!("service_{name}"))),
            TermForm::Parameter(name) => format!("parameters.{}", exported(name)),
            TermForm::Variable(number) => self.variable(*number),
            TermForm::OrElse(parts) => {
                let (value, instead) = (self.value(&parts.0), self.value(&parts.1));
                format!("orElse({value}, {instead})")
            }
            TermForm::Apply(operation, arguments) => self.applied(*operation, arguments, term),
        }
    }

    fn variable(&mut self, number: usize) -> String {
        let (name, value) = &self.decision.variables[number];
        let is_column = value.is_column();
        let name = match &self.variables[number] {
            Some(known) => known.clone(),
            None => {
                let text = self.value(value);
                let name = format!("{}{number}", camel(name));
                self.define(&name, &text, is_column);
                self.variables[number] = Some(name.clone());
                name
            }
        };
        if is_column { format!("{name}[i]") } else { name }
    }

    fn define(&mut self, name: &str, text: &str, is_column: bool) {
        let _ = match is_column {
            true => writeln!(self.body, "\t{name} := column(n, func(i int) float64 {{ return {text} }})"),
            false => writeln!(self.body, "\t{name} := {text}"),
        };
    }

    fn applied(&mut self, operation: Operation, arguments: &[ScriptTerm], term: &ScriptTerm) -> String {
        if operation.is_truth() {
            return format!("truth({})", self.condition(term));
        }
        if let Some(function) = over_rows(operation) {
            return self.over_endpoints(function, operation, &arguments[0]);
        }
        if let (Operation::Select, [condition, then, otherwise]) = (operation, arguments) {
            let condition = self.condition(condition);
            return format!("choose({condition}, {}, {})", self.value(then), self.value(otherwise));
        }
        let texts: Vec<String> = arguments.iter().map(|one| self.value(one)).collect();
        match (operation, &texts[..]) {
            // The conversion keeps Go from rounding a product and a sum once only.
            (Operation::Multiply, [a, b]) => format!("float64({a} * {b})"),
            (Operation::Negative, [a]) => format!("(-{a})"),
            (Operation::Smaller, [a, b]) => format!("smaller({a}, {b})"),
            (Operation::Larger, [a, b]) => format!("larger({a}, {b})"),
            (Operation::Power, [a, b]) => format!("math.Pow({a}, {b})"),
            (_, [a, b]) => format!("({a} {} {b})", operation.sign().unwrap_or("+")),
            (_, [a]) => format!("{}({a})", function(operation)),
            _ => texts.concat(),
        }
    }

    /// A variable with a value over the endpoints.
    fn over_endpoints(&mut self, function: &str, operation: Operation, argument: &ScriptTerm) -> String {
        let text = self.value(argument);
        self.made += 1;
        let name = format!("{function}{}", self.made);
        let _ = writeln!(self.body, "\t{name} := {function}(column(n, func(i int) float64 {{ return {text} }}))");
        if operation.is_over_rows() { name } else { format!("{name}[i]") }
    }

    /// An expression of the type `bool`.
    fn condition(&mut self, term: &ScriptTerm) -> String {
        match &term.form {
            TermForm::Apply(Operation::And, parts) => {
                format!("({} && {})", self.condition(&parts[0]), self.condition(&parts[1]))
            }
            TermForm::Apply(Operation::Or, parts) => {
                format!("({} || {})", self.condition(&parts[0]), self.condition(&parts[1]))
            }
            TermForm::Apply(Operation::Not, parts) => format!("!{}", self.condition(&parts[0])),
            TermForm::Apply(operation, parts) if operation.is_truth() => {
                let (a, b) = (self.value(&parts[0]), self.value(&parts[1]));
                format!("({a} {} {b})", operation.sign().unwrap_or("!="))
            }
            _ => format!("({} != 0)", self.value(term)),
        }
    }
}

/// Names of the number of instances.
pub(super) const COUNTS: [&str; 3] = ["len", "n", "count"];

fn over_rows(operation: Operation) -> Option<&'static str> {
    Some(match operation {
        Operation::Sum => "sum",
        Operation::Mean => "mean",
        Operation::Smallest => "lowest",
        Operation::Largest => "highest",
        Operation::FewestBest => "fewestBest",
        Operation::MostBest => "mostBest",
        _ => return None,
    })
}

fn function(operation: Operation) -> &'static str {
    match operation {
        Operation::Absolute => "math.Abs",
        Operation::Root => "math.Sqrt",
        Operation::Exponential => "math.Exp",
        Operation::Logarithm => "math.Log",
        Operation::Floor => "math.Floor",
        Operation::Ceiling => "math.Ceil",
        Operation::Round => "math.Round",
        // As many numbers as endpoints: each has the number itself.
        _ => "",
    }
}

/// The value of arithmetic on numbers alone, which Go would compute without rounding.
fn constant(term: &ScriptTerm) -> Option<f64> {
    let TermForm::Apply(operation, arguments) = &term.form else {
        return match term.form {
            TermForm::Number(number) => Some(number),
            _ => None,
        };
    };
    let values: Vec<f64> = arguments.iter().map(constant).collect::<Option<_>>()?;
    Some(match (operation, &values[..]) {
        (Operation::Add, [a, b]) => a + b,
        (Operation::Subtract, [a, b]) => a - b,
        (Operation::Multiply, [a, b]) => a * b,
        (Operation::Divide, [a, b]) => a / b,
        (Operation::Negative, [a]) => -a,
        (Operation::Absolute, [a]) => a.abs(),
        (Operation::Repeated, [a]) => *a,
        _ => return None,
    })
}

fn literal(value: f64) -> String {
    match value {
        _ if value.is_nan() => "math.NaN()".to_owned(),
        _ if value.is_infinite() => format!("math.Inf({})", if value > 0.0 { 1 } else { -1 }),
        _ => super::super::term::literal(value),
    }
}

/// A name as Go has it within a package: `queue_depth` becomes `queueDepth`.
pub(super) fn camel(name: &str) -> String {
    let exported = exported(name);
    let mut letters = exported.chars();
    letters.next().map_or_else(String::new, |first| first.to_ascii_lowercase().to_string() + letters.as_str())
}

/// A name as Go has it for other packages: `queue_depth` becomes `QueueDepth`.
pub(super) fn exported(name: &str) -> String {
    let capitalized = |word: &str| {
        let mut letters = word.chars();
        letters.next().map_or_else(String::new, |first| first.to_ascii_uppercase().to_string() + letters.as_str())
    };
    name.split(|c: char| !c.is_ascii_alphanumeric()).map(capitalized).collect()
}
