//! Parts of decisions as queries of Prometheus.

use super::super::term::{DecisionTerm, ScriptTerm, TermForm, literal};
use super::table::{FieldMeaning, ONE_GROUP, SignalTable};
use crate::Fault;
use crate::script::Operation;

/// Writes queries that give one number without labels.
pub(super) struct QueryWriter<'a> {
    pub signals: &'a SignalTable<'a>,
    pub decision: &'a DecisionTerm,
}

/// A query, or a part of one.
pub(super) struct QueryText {
    pub text: String,
    /// The same with the names of the columns, for a comment.
    pub about: String,
    /// Whether it is a number, which some functions of Prometheus do not take, rather than a result of metrics.
    is_number: bool,
}

impl QueryWriter<'_> {
    pub fn value(&self, term: &ScriptTerm) -> Result<QueryText, Fault> {
        match &term.form {
            TermForm::Number(number) => Ok(constant(*number)),
            TermForm::Field(_, name) => Ok(match self.signals.of_field(name) {
                FieldMeaning::Constant(value) => constant(*value),
                FieldMeaning::Metric(signal) => QueryText {
                    text: format!("({})", signal.query(self.signals.settings)),
                    about: signal.field.to_owned(),
                    is_number: false,
                },
            }),
            TermForm::Parameter(_) => Err(self.signals.refused(term.at, "a parameter has no value")),
            TermForm::Variable(number) => self.value(&self.decision.variables[*number].1),
            TermForm::OrElse(parts) => self.value(&parts.0),
            TermForm::Apply(operation, arguments) => self.applied(*operation, arguments, term),
        }
    }

    fn applied(&self, operation: Operation, arguments: &[ScriptTerm], term: &ScriptTerm) -> Result<QueryText, Fault> {
        let over_groups = matches!(operation, Operation::FewestBest | Operation::MostBest)
            || (operation.is_over_rows() && operation != Operation::First);
        if over_groups && !self.signals.settings.one_group {
            return Err(self.signals.refused(term.at, ONE_GROUP));
        }
        let parts: Vec<QueryText> = arguments.iter().map(|one| self.value(one)).collect::<Result<_, _>>()?;
        let about = self.about(operation, &parts);
        let is_number = parts.iter().all(|one| one.is_number);
        let text = match (operation, &parts[..]) {
            (Operation::FewestBest | Operation::MostBest, _) => return Ok(constant(1.0)),
            (Operation::Negative, [a]) => format!("(-1 * {})", a.text),
            (Operation::Power, [a, b]) => format!("({} ^ {})", a.text, b.text),
            (Operation::Smaller | Operation::Larger, [a, b]) => bounded(operation, a, b),
            (Operation::And, [a, b]) => format!("(({} != bool 0) * ({} != bool 0))", a.text, b.text),
            (Operation::Or, [a, b]) => format!("((({} != bool 0) + ({} != bool 0)) > bool 0)", a.text, b.text),
            (Operation::Not, [a]) => format!("({} == bool 0)", a.text),
            (Operation::Select, [condition, then, otherwise]) => {
                format!("(({0} != bool 0) * {1} + ({0} == bool 0) * {2})", condition.text, then.text, otherwise.text)
            }
            (_, [a, b]) if let Some(sign) = operation.sign() => {
                let sign = if operation.is_truth() { format!("{sign} bool") } else { sign.to_owned() };
                format!("({} {sign} {})", a.text, b.text)
            }
            (_, [a]) if let Some(function) = function(operation) => {
                let argument = if a.is_number { format!("vector({})", a.text) } else { a.text.clone() };
                return Ok(QueryText { text: format!("{function}({argument})"), about, is_number: false });
            }
            (Operation::Round, _) => {
                let text = "Prometheus rounds halves up, scripts away from 0: use floor or ceil within ln and exp";
                return Err(self.signals.refused(term.at, text));
            }
            (_, [a]) => a.text.clone(),
            _ => return Err(self.signals.refused(term.at, "this has no form in a query of Prometheus")),
        };
        Ok(QueryText { text, about, is_number })
    }

    fn about(&self, operation: Operation, parts: &[QueryText]) -> String {
        let texts: Vec<&str> = parts.iter().map(|one| one.about.as_str()).collect();
        match (operation.sign(), &texts[..]) {
            (Some(sign), [a, b]) => format!("({a} {sign} {b})"),
            _ => format!("{}({})", name(operation), texts.join(", ")),
        }
    }
}

fn constant(value: f64) -> QueryText {
    QueryText { text: literal(value), about: literal(value), is_number: true }
}

/// The smaller or the larger of two.
fn bounded(operation: Operation, a: &QueryText, b: &QueryText) -> String {
    let (clamp, sign) = if operation == Operation::Smaller { ("clamp_max", "<") } else { ("clamp_min", ">") };
    match (a.is_number, b.is_number) {
        (false, true) => format!("{clamp}({}, {})", a.text, b.text),
        (true, false) => format!("{clamp}({}, {})", b.text, a.text),
        _ => format!("(({0} {sign} bool {1}) * {0} + (1 - ({0} {sign} bool {1})) * {1})", a.text, b.text),
    }
}

/// Functions of Prometheus of one result.
fn function(operation: Operation) -> Option<&'static str> {
    Some(match operation {
        Operation::Absolute => "abs",
        Operation::Root => "sqrt",
        Operation::Exponential => "exp",
        Operation::Logarithm => "ln",
        Operation::Floor => "floor",
        Operation::Ceiling => "ceil",
        _ => return None,
    })
}

fn name(operation: Operation) -> &'static str {
    match operation {
        Operation::Negative => "-",
        Operation::Power => "pow",
        Operation::Smaller => "min",
        Operation::Larger => "max",
        Operation::And => "and",
        Operation::Or => "or",
        Operation::Not => "not",
        Operation::Select => "select",
        Operation::Round => "round",
        other => function(other).unwrap_or(""),
    }
}
