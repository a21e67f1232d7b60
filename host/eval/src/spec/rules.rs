//! What settings need and what they exclude: one check for flags, files, suites and requests.

use super::settings::{ExperimentSpec, KEYS, SettingKey};
use crate::error::RunError;

/// What other settings must say, or must not say.
#[derive(Clone, Copy)]
pub enum RuleCondition {
    /// The setting has another value than its default.
    Set(&'static str),
    /// The setting has this value, set or by default.
    Is(&'static str, &'static str),
    /// Anything else, as messages call it.
    That(&'static str, fn(&ExperimentSpec) -> bool),
}

/// A condition, and what to do about it.
#[derive(Clone, Copy)]
pub struct Rule {
    condition: RuleCondition,
    hint: &'static str,
    /// Whether it is about which policy is used, although it names no setting that chooses one.
    of_policy: bool,
}

pub(super) const fn set(name: &'static str) -> Rule {
    Rule { condition: RuleCondition::Set(name), hint: "", of_policy: false }
}

pub(super) const fn is(name: &'static str, value: &'static str) -> Rule {
    Rule { condition: RuleCondition::Is(name, value), hint: "", of_policy: false }
}

/// `text` is what messages say after "needs" or "cannot be used with".
pub(super) const fn that(text: &'static str, holds: fn(&ExperimentSpec) -> bool) -> Rule {
    Rule { condition: RuleCondition::That(text, holds), hint: "", of_policy: false }
}

impl Rule {
    pub(super) const fn hint(self, hint: &'static str) -> Self {
        Self { hint, ..self }
    }

    pub(super) const fn of_policy(self) -> Self {
        Self { of_policy: true, ..self }
    }

    /// Whether a candidate that a suite evaluates may be what is needed.
    fn is_about_a_policy(&self) -> bool {
        match self.condition {
            RuleCondition::Set(name) | RuleCondition::Is(name, _) => SettingKey::named(name).chooses.is_some(),
            RuleCondition::That(..) => self.of_policy,
        }
    }

    fn holds(&self, spec: &ExperimentSpec) -> bool {
        match self.condition {
            RuleCondition::Set(name) => spec.differs(SettingKey::named(name)),
            RuleCondition::Is(name, value) => spec.texts_of(SettingKey::named(name)) == [value],
            RuleCondition::That(_, holds) => holds(spec),
        }
    }

    fn text(&self) -> String {
        match self.condition {
            RuleCondition::Set(name) | RuleCondition::Is(name, "true") => format!("`--{name}`"),
            RuleCondition::Is(name, "false") => format!("`--no-{name}`"),
            RuleCondition::Is(name, value) => format!("`--{name} {value}`"),
            RuleCondition::That(text, _) => text.to_owned(),
        }
    }

    fn hint_or(&self, usual: &'static str) -> &'static str {
        if self.hint.is_empty() { usual } else { self.hint }
    }
}

impl SettingKey {
    fn needs(&self) -> impl Iterator<Item = &Rule> {
        self.group.needs.iter().chain(self.needs)
    }

    fn apart(&self) -> impl Iterator<Item = &Rule> {
        self.group.apart.iter().chain(self.apart)
    }

    /// The settings that it needs or excludes.
    pub fn related(&self) -> impl Iterator<Item = &'static Self> {
        self.needs().chain(self.apart()).filter_map(|rule| match rule.condition {
            RuleCondition::Set(name) | RuleCondition::Is(name, _) => Some(Self::named(name)),
            RuleCondition::That(..) => None,
        })
    }
}

impl ExperimentSpec {
    /// Refuses a setting that has no effect without another one, or that excludes another one. A setting with the value of its
    /// default counts as not set: an explained configuration has them all. In a suite, a candidate may be the policy that a setting
    /// needs.
    ///
    /// # Errors
    /// The first in the order of help.
    pub(crate) fn check(&self) -> Result<(), RunError> {
        let counts = |rule: &&Rule| self.beside.is_none() || !rule.is_about_a_policy();
        for key in KEYS.iter().filter(|key| self.differs(key) || key.strict && self.has(key.name)) {
            if let Some(rule) = key.needs().filter(counts).find(|rule| !rule.holds(self)) {
                let what = format!("needs {}", rule.text());
                return Err(self.misplaced(key.name, &what, rule.hint_or("set both, or neither")));
            }
            if let Some(rule) = key.apart().find(|rule| rule.holds(self)) {
                let what = format!("cannot be used with {}", rule.text());
                return Err(self.misplaced(key.name, &what, rule.hint_or("leave out one of them")));
            }
        }
        Ok(())
    }

    /// Whether `key` has an effect beside the other settings.
    #[must_use]
    pub fn allows(&self, key: &SettingKey) -> bool {
        key.needs().all(|rule| rule.holds(self)) && !key.apart().any(|rule| rule.holds(self))
    }
}
