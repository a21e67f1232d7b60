//! What the fields that a decision reads are in production.

use rhai::Position;

use super::super::source::ExportedScript;
use super::super::term::DecisionTerm;
use super::settings::KedaSettings;
use super::signals::{FACTS, KedaSignal, NO_METRIC, SIGNALS};
use crate::Fault;

/// A trigger of the type `prometheus`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct KedaTrigger {
    pub name: String,
    pub query: String,
    /// What it is, for the comment above it.
    pub about: String,
}

pub(super) const ONE_GROUP: &str = "this is over all groups of replicas, and a ScaledObject scales one Deployment: if the service has one group, \
                         say --one-group; else decide by the columns of each group alone";

/// What the fields that a decision reads are in production.
pub(super) struct SignalTable<'a> {
    pub script: &'a ExportedScript,
    pub settings: &'a KedaSettings,
    pub signals: Vec<(String, FieldMeaning)>,
}

/// What a field is in production.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum FieldMeaning {
    Metric(&'static KedaSignal),
    Constant(f64),
}

impl<'a> SignalTable<'a> {
    pub fn of(script: &'a ExportedScript, decision: &DecisionTerm, settings: &'a KedaSettings) -> Result<Self, Fault> {
        let mut table = Self { script, settings, signals: Vec::new() };
        table.check_facts()?;
        for (name, at) in decision.fields(0) {
            let meaning = table.meaning(&name, at)?;
            table.signals.push((name, meaning));
        }
        Ok(table)
    }

    fn check_facts(&self) -> Result<(), Fault> {
        match self.settings.facts.iter().find(|(name, _)| !FACTS.contains(&name.as_str())) {
            Some((name, _)) => {
                let text =
                    format!("`{name}` is nothing that is fixed about a deployment: there are {}", FACTS.join(", "));
                Err(self.refused(Position::NONE, &text))
            }
            None => Ok(()),
        }
    }

    /// What the field `name` is, which is read at `at`.
    pub fn meaning(&self, name: &str, at: Position) -> Result<FieldMeaning, Fault> {
        let base = name.strip_suffix("_us").unwrap_or(name);
        if let Some(signal) = SIGNALS.iter().find(|signal| signal.field == base) {
            return Ok(FieldMeaning::Metric(signal));
        }
        match base {
            "min_replicas" => return Ok(FieldMeaning::Constant(self.settings.min_replicas.into())),
            "max_replicas" => return Ok(FieldMeaning::Constant(self.settings.max_replicas.into())),
            "len" | "n" | "count" if self.settings.one_group => return Ok(FieldMeaning::Constant(1.0)),
            "len" | "n" | "count" => return Err(self.refused(at, ONE_GROUP)),
            _ => {}
        }
        if let Some((_, value)) = self.settings.facts.iter().rev().find(|(known, _)| known == base) {
            return Ok(FieldMeaning::Constant(*value));
        }
        if FACTS.contains(&base) {
            let text = format!("`{name}` is fixed for a deployment, and no metric: give it, as in --fact {base}=VALUE");
            return Err(self.refused(at, &text));
        }
        let why = NO_METRIC.iter().find(|(known, _)| *known == base).map_or("", |(_, why)| why);
        let known: Vec<&str> = SIGNALS.iter().map(|signal| signal.field).collect();
        let text = format!("`{name}` has no metric in production{why}: decide by others ({})", known.join(", "));
        Err(self.refused(at, &text))
    }

    pub fn of_field(&self, name: &str) -> &FieldMeaning {
        // All fields of the decision are in the table.
        let found = self.signals.iter().find(|(known, _)| known == name);
        found.map_or(&FieldMeaning::Constant(0.0), |(_, meaning)| meaning)
    }

    pub fn refused(&self, at: Position, text: &str) -> Fault {
        self.script.refused(at, text)
    }

    /// `file:line:column` of a term.
    pub fn location(&self, at: Position) -> String {
        format!("{}:{}:{}", self.script.file, at.line().unwrap_or(1), at.position().unwrap_or(1))
    }
}
