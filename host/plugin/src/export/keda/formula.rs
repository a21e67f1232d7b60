//! Decisions in the language of KEDA's formulas, expr-lang: <https://expr-lang.org/docs/language-definition>.

use super::super::term::{DecisionTerm, ScriptTerm, TermForm, TermOperation, literal};
use super::promql::QueryWriter;
use super::table::{FieldMeaning, KedaTrigger, ONE_GROUP, SignalTable};
use crate::Fault;

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

    fn applied(
        &mut self,
        operation: TermOperation,
        arguments: &[ScriptTerm],
        term: &ScriptTerm,
    ) -> Result<String, Fault> {
        if operation.is_truth() {
            return Ok(format!("({} ? 1.0 : 0.0)", self.condition(term)?));
        }
        if let (TermOperation::Select, [condition, then, otherwise]) = (operation, arguments) {
            let condition = self.condition(condition)?;
            return Ok(format!("({condition} ? {} : {})", self.value(then)?, self.value(otherwise)?));
        }
        if matches!(operation, TermOperation::Logarithm | TermOperation::Exponential) {
            return self.computed(operation, term);
        }
        let rows = operation.is_over_rows() && operation != TermOperation::First;
        if (rows || matches!(operation, TermOperation::FewestBest | TermOperation::MostBest))
            && !self.signals.settings.one_group
        {
            return Err(self.signals.refused(term.at, ONE_GROUP));
        }
        if let (TermOperation::Add, [ScriptTerm { form: TermForm::Apply(TermOperation::Repeated, zeros), .. }, value]) =
            (operation, arguments)
            && let [ScriptTerm { form: TermForm::Number(0.0), .. }] = &zeros[..]
        {
            return self.value(value);
        }
        let texts: Vec<String> = arguments.iter().map(|one| self.value(one)).collect::<Result<_, _>>()?;
        Ok(match (operation, &texts[..]) {
            (TermOperation::Negative, [a]) => format!("(-{a})"),
            (TermOperation::Min, [a, b]) => format!("min({a}, {b})"),
            (TermOperation::Max, [a, b]) => format!("max({a}, {b})"),
            (TermOperation::Absolute, [a]) => format!("abs({a})"),
            (TermOperation::Floor, [a]) => format!("floor({a})"),
            (TermOperation::Ceiling, [a]) => format!("ceil({a})"),
            (TermOperation::Round, [a]) => format!("round({a})"),
            (TermOperation::Root, [a]) => format!("({a} ** 0.5)"),
            (TermOperation::Power, [a, b]) => format!("({a} ** {b})"),
            // The only value of a column is the smallest and the largest.
            (TermOperation::FewestBest | TermOperation::MostBest, _) => "1.0".to_owned(),
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
            TermForm::Apply(TermOperation::And, parts) => {
                Ok(format!("({} && {})", self.condition(&parts[0])?, self.condition(&parts[1])?))
            }
            TermForm::Apply(TermOperation::Or, parts) => {
                Ok(format!("({} || {})", self.condition(&parts[0])?, self.condition(&parts[1])?))
            }
            TermForm::Apply(TermOperation::Not, parts) => Ok(format!("!{}", self.condition(&parts[0])?)),
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
    fn computed(&mut self, operation: TermOperation, term: &ScriptTerm) -> Result<String, Fault> {
        let query = QueryWriter { signals: self.signals, decision: self.decision }.value(term)?;
        if let Some(known) = self.triggers.iter().find(|one| one.query == query.text) {
            return Ok(known.name.clone());
        }
        self.computed += 1;
        let function = if operation == TermOperation::Logarithm { "ln" } else { "exp" };
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
            TermForm::Apply(TermOperation::Ceiling | TermOperation::Floor | TermOperation::Round, _) => true,
            TermForm::Apply(TermOperation::Select, parts) => parts[1..].iter().all(|one| self.is_whole(one)),
            TermForm::Apply(TermOperation::Min | TermOperation::Max | TermOperation::Add, parts) => {
                parts.iter().all(|one| self.is_whole(one))
            }
            TermForm::Apply(operation, parts) if operation.is_over_rows() => parts.iter().all(|one| self.is_whole(one)),
            TermForm::Apply(TermOperation::Repeated, _) => true,
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
                TermOperation::Absolute
                | TermOperation::Root
                | TermOperation::Exponential
                | TermOperation::Repeated
                | TermOperation::FewestBest
                | TermOperation::MostBest => false,
                TermOperation::Max => parts.iter().all(|one| self.may_be_negative(one)),
                TermOperation::Select => any(&parts[1..]),
                TermOperation::Add
                | TermOperation::Multiply
                | TermOperation::Divide
                | TermOperation::Min
                | TermOperation::Floor
                | TermOperation::Ceiling
                | TermOperation::Round => any(parts),
                operation if operation.is_truth() => false,
                operation if operation.is_over_rows() => any(parts),
                _ => true,
            },
        }
    }
}
