//! What flags or a bundle say of policies, before anything is chosen.

use super::registry::BuiltIn;
use super::{Scorer, Sourced};
use blis_plugin::Kind;

/// What flags or a bundle say of policies: whatever was not said is `None` or empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Choices {
    /// Names, built in or not, at most one of a kind.
    pub policies: Vec<(Kind, Sourced<String>)>,
    /// Values of parameters. Of several of a name the last counts.
    pub parameters: Vec<Given>,
    /// A list takes the place of all weights of `weighted`.
    pub scorers: Option<Vec<Sourced<Scorer>>>,
    /// As in [`PolicySettings`](super::PolicySettings).
    pub slo_priorities: Vec<(String, Sourced<i32>)>,
    /// As in [`PolicySettings`](super::PolicySettings).
    pub tenant_budgets: Vec<(String, Sourced<f64>)>,
}

/// The value of a parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Given {
    /// What the policy decides.
    pub kind: Kind,
    /// The parameter.
    pub name: String,
    /// Its value.
    pub value: Sourced<f64>,
    /// BLIS's key that stands for it, and for one policy only; `None` where a parameter was named.
    pub key: Option<&'static str>,
}

impl Choices {
    /// Names `policy` for `kind`, in place of what was named.
    #[must_use]
    pub fn with(mut self, kind: Kind, policy: Sourced<String>) -> Self {
        self.policies.retain(|(other, _)| *other != kind);
        self.policies.push((kind, policy));
        self
    }

    /// Sets the parameter that BLIS calls `key`, if there is a value.
    pub fn set(&mut self, key: &'static str, value: Option<Sourced<f64>>) {
        let (Some(value), Some((row, parameter))) = (value, BuiltIn::by_key(key)) else { return };
        self.parameters.push(Given { kind: row.kind, name: parameter.name.to_owned(), value, key: Some(key) });
    }

    /// The same without a word about `kind`.
    #[must_use]
    pub fn without(&self, kind: Kind) -> Self {
        let mut choices = self.clone();
        choices.policies.retain(|(other, _)| *other != kind);
        choices.parameters.retain(|given| given.kind != kind);
        choices.scorers = choices.scorers.filter(|_| kind != Kind::Routing);
        choices
    }

    /// The same without what it says of policies that are not of `kinds`, classes or tenants.
    #[must_use]
    pub fn only(&self, kinds: &[Kind]) -> Self {
        let mut choices = Self { slo_priorities: Vec::new(), tenant_budgets: Vec::new(), ..self.clone() };
        choices.policies.retain(|(kind, _)| kinds.contains(kind));
        choices.parameters.retain(|given| kinds.contains(&given.kind));
        choices
    }

    /// What it names for `kind`.
    pub(super) fn name(&self, kind: Kind) -> Option<&Sourced<String>> {
        self.policies.iter().find(|(other, _)| *other == kind).map(|(_, name)| name)
    }

    /// What it gives by BLIS's keys of parameters of `row`.
    pub(super) fn by_key(&self, row: &BuiltIn) -> impl Iterator<Item = &Given> {
        self.parameters.iter().filter(move |given| given.owner().is_some_and(|owner| std::ptr::eq(owner, row)))
    }

    /// What it gives by the names of parameters.
    pub(super) fn by_name(&self, kind: Kind) -> Vec<(String, Sourced<f64>)> {
        let given = self.parameters.iter().filter(|given| given.kind == kind && given.key.is_none());
        given.map(|given| (given.name.clone(), given.value.clone())).collect()
    }
}

impl Given {
    /// The policy whose parameter it is, if a key says so.
    pub(super) fn owner(&self) -> Option<&'static BuiltIn> {
        self.key.and_then(BuiltIn::by_key).map(|(row, _)| row)
    }
}
