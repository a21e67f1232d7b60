//! Decisions in the language of KEDA's formulas, expr-lang: <https://expr-lang.org/docs/language-definition>.

use super::super::term::{DecisionTerm, ScriptTerm, TermForm, literal};
use super::promql::QueryWriter;
use super::table::{FieldMeaning, KedaTrigger, ONE_GROUP, SignalTable};
use crate::Fault;
use crate::script::Operation;

/// Writes a formula, and the triggers that it needs.
pub(super) struct FormulaWriter<'a> {
    signals: &'a SignalTable<'a>,
    decision: &'a DecisionTerm,
    triggers: Vec<KedaTrigger>,
    /// Triggers with a function that formulas do not have.
    computed: usize,
}

impl<'a> FormulaWriter<'a> {
    pub fn new(signals: &'a SignalTable<'a>, decision: &'a DecisionTerm) -> Self {
        Self { signals, decision, triggers: Vec::new(), computed: 0 }
    }

    /// The triggers, and the formula of the number of replicas.
    ///
    /// # Errors
    /// The first part that has no form.
    pub fn written(mut self) -> Result<(Vec<KedaTrigger>, String), Fault> {
        let value = &self.decision.value;
        let text = self.value(value)?;
        let whole = if self.is_whole(value) { text } else { format!("ceil({text})") };
        // A script says with a number below 0 that nothing is to change.
        let formula = if self.may_be_negative(value) {
            let replicas = self.trigger_of("replicas", value)?;
            format!("({whole} < 0.0 ? {replicas} : {whole})")
        } else {
            whole
        };
        if self.triggers.is_empty() {
            let text = "it reads no signal: for a fixed number of replicas, set `replicas` of the Deployment";
            return Err(self.signals.refused(value.at, text));
        }
        Ok((self.triggers, formula))
    }

    fn value(&mut self, term: &ScriptTerm) -> Result<String, Fault> {
        Ok(match &term.form {
            TermForm::Number(number) => literal(*number),
            TermForm::Field(_, name) => match self.signals.of_field(name) {
                FieldMeaning::Constant(value) => literal(*value),
                FieldMeaning::Metric(_) => self.trigger_of(name, term)?,
            },
            TermForm::Parameter(_) => return Err(self.signals.refused(term.at, "a parameter has no value")),
            TermForm::Variable(number) => {
                let (_, value) = &self.decision.variables[*number];
                self.value(value)?
            }
            // The columns of groups are never absent.
            TermForm::OrElse(parts) => self.value(&parts.0)?,
            TermForm::Apply(operation, arguments) => self.applied(*operation, arguments, term)?,
        })
    }

    fn applied(&mut self, operation: Operation, arguments: &[ScriptTerm], term: &ScriptTerm) -> Result<String, Fault> {
        if operation.is_truth() {
            return Ok(format!("({} ? 1.0 : 0.0)", self.condition(term)?));
        }
        if let (Operation::Select, [condition, then, otherwise]) = (operation, arguments) {
            let condition = self.condition(condition)?;
            return Ok(format!("({condition} ? {} : {})", self.value(then)?, self.value(otherwise)?));
        }
        if matches!(operation, Operation::Logarithm | Operation::Exponential) {
            return self.computed(operation, term);
        }
        let rows = operation.is_over_rows() && operation != Operation::First;
        if (rows || matches!(operation, Operation::FewestBest | Operation::MostBest))
            && !self.signals.settings.one_group
        {
            return Err(self.signals.refused(term.at, ONE_GROUP));
        }
        if let (Operation::Add, [ScriptTerm { form: TermForm::Apply(Operation::Repeated, zeros), .. }, value]) =
            (operation, arguments)
            && let [ScriptTerm { form: TermForm::Number(0.0), .. }] = &zeros[..]
        {
            return self.value(value);
        }
        let texts: Vec<String> = arguments.iter().map(|one| self.value(one)).collect::<Result<_, _>>()?;
        Ok(match (operation, &texts[..]) {
            (Operation::Negative, [a]) => format!("(-{a})"),
            (Operation::Smaller, [a, b]) => format!("min({a}, {b})"),
            (Operation::Larger, [a, b]) => format!("max({a}, {b})"),
            (Operation::Absolute, [a]) => format!("abs({a})"),
            (Operation::Floor, [a]) => format!("floor({a})"),
            (Operation::Ceiling, [a]) => format!("ceil({a})"),
            (Operation::Round, [a]) => format!("round({a})"),
            (Operation::Root, [a]) => format!("({a} ** 0.5)"),
            (Operation::Power, [a, b]) => format!("({a} ** {b})"),
            // The only value of a column is the smallest and the largest.
            (Operation::FewestBest | Operation::MostBest, _) => "1.0".to_owned(),
            (_, [a, b]) if let Some(sign) = operation.sign() => format!("({a} {sign} {b})"),
            // Over one group, and the same for each group.
            (_, [a]) => a.clone(),
            _ => return Err(self.signals.refused(term.at, "this has no form in a formula")),
        })
    }

    /// As a truth value.
    fn condition(&mut self, term: &ScriptTerm) -> Result<String, Fault> {
        match &term.form {
            TermForm::Variable(number) => {
                let (_, value) = &self.decision.variables[*number];
                self.condition(value)
            }
            TermForm::Apply(Operation::And, parts) => {
                Ok(format!("({} && {})", self.condition(&parts[0])?, self.condition(&parts[1])?))
            }
            TermForm::Apply(Operation::Or, parts) => {
                Ok(format!("({} || {})", self.condition(&parts[0])?, self.condition(&parts[1])?))
            }
            TermForm::Apply(Operation::Not, parts) => Ok(format!("!{}", self.condition(&parts[0])?)),
            TermForm::Apply(operation, parts) if operation.is_truth() => {
                let sign = operation.sign().unwrap_or("!=");
                Ok(format!("({} {sign} {})", self.value(&parts[0])?, self.value(&parts[1])?))
            }
            _ => Ok(format!("({} != 0.0)", self.value(term)?)),
        }
    }

    /// The name of the trigger of a signal.
    fn trigger_of(&mut self, name: &str, term: &ScriptTerm) -> Result<String, Fault> {
        let FieldMeaning::Metric(signal) = self.signals.meaning(name, term.at)? else {
            return Err(self.signals.refused(term.at, "this is no metric"));
        };
        if self.triggers.iter().all(|one| one.name != signal.field) {
            let location = self.signals.location(term.at);
            self.triggers.push(KedaTrigger {
                name: signal.field.to_owned(),
                query: signal.query(self.signals.settings),
                about: format!("{} ({location})", signal.about),
            });
        }
        Ok(signal.field.to_owned())
    }

    /// The name of a trigger with a function that Prometheus computes.
    fn computed(&mut self, operation: Operation, term: &ScriptTerm) -> Result<String, Fault> {
        let query = QueryWriter { signals: self.signals, decision: self.decision }.value(term)?;
        if let Some(known) = self.triggers.iter().find(|one| one.query == query.text) {
            return Ok(known.name.clone());
        }
        self.computed += 1;
        let function = if operation == Operation::Logarithm { "ln" } else { "exp" };
        let name = format!("{function}_{}", self.computed);
        let about = format!(
            "{} ({}), which Prometheus computes: formulas have no such function",
            query.about,
            self.signals.location(term.at)
        );
        self.triggers.push(KedaTrigger { name: name.clone(), query: query.text, about });
        Ok(name)
    }

    /// Whether the value is a whole number in any case.
    fn is_whole(&self, term: &ScriptTerm) -> bool {
        match &term.form {
            TermForm::Number(number) => number.fract() == 0.0,
            TermForm::Variable(number) => self.is_whole(&self.decision.variables[*number].1),
            TermForm::Field(_, name) => matches!(name.as_str(), "replicas" | "ready" | "min_replicas" | "max_replicas"),
            TermForm::Apply(Operation::Ceiling | Operation::Floor | Operation::Round, _) => true,
            TermForm::Apply(Operation::Select, parts) => parts[1..].iter().all(|one| self.is_whole(one)),
            TermForm::Apply(Operation::Smaller | Operation::Larger | Operation::Add, parts) => {
                parts.iter().all(|one| self.is_whole(one))
            }
            TermForm::Apply(operation, parts) if operation.is_over_rows() => parts.iter().all(|one| self.is_whole(one)),
            TermForm::Apply(Operation::Repeated, _) => true,
            _ => false,
        }
    }

    /// Whether the value may be below 0, as far as its operations tell.
    fn may_be_negative(&self, term: &ScriptTerm) -> bool {
        let any = |parts: &[ScriptTerm]| parts.iter().any(|one| self.may_be_negative(one));
        match &term.form {
            TermForm::Number(number) => *number < 0.0,
            TermForm::Variable(number) => self.may_be_negative(&self.decision.variables[*number].1),
            TermForm::Field(_, name) => match self.signals.of_field(name) {
                FieldMeaning::Constant(value) => *value < 0.0,
                FieldMeaning::Metric(signal) => signal.may_be_negative,
            },
            TermForm::OrElse(parts) => self.may_be_negative(&parts.0),
            TermForm::Parameter(_) => true,
            TermForm::Apply(operation, parts) => match operation {
                Operation::Absolute
                | Operation::Root
                | Operation::Exponential
                | Operation::Repeated
                | Operation::FewestBest
                | Operation::MostBest => false,
                Operation::Larger => parts.iter().all(|one| self.may_be_negative(one)),
                Operation::Select => any(&parts[1..]),
                Operation::Add
                | Operation::Multiply
                | Operation::Divide
                | Operation::Smaller
                | Operation::Floor
                | Operation::Ceiling
                | Operation::Round => any(parts),
                operation if operation.is_truth() => false,
                operation if operation.is_over_rows() => any(parts),
                _ => true,
            },
        }
    }
}
