//! The policy settings of the flags or of a bundle, before they are combined.

use super::registry::BuiltIn;
use super::scorers::WeightedScorer;
use super::{FilterSetting, ParameterInput, SettingSource, Sourced};
use blis_plugin::Kind;

/// The policy settings of the flags or of a bundle; what is not set is `None` or empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Choices {
    /// Names of built-in policies or plugins, at most one per kind.
    pub policies: Vec<(Kind, Sourced<String>)>,
    /// Values of parameters. If a parameter occurs several times, the last value counts.
    pub parameters: Vec<ParameterSetting>,
    /// A list of scorers, which replaces all weights of `weighted`.
    pub scorers: Option<Vec<Sourced<WeightedScorer>>>,
    /// The filters of `weighted`, in their order.
    pub filters: Option<Vec<Sourced<FilterSetting>>>,
    /// The plugin that chooses among the scored instances of `weighted`.
    pub picker: Option<Sourced<String>>,
    /// As in [`PolicySettings`](super::PolicySettings).
    pub slo_priorities: Vec<(String, Sourced<i32>)>,
    /// As in [`PolicySettings`](super::PolicySettings).
    pub tenant_budgets: Vec<(String, Sourced<f64>)>,
    /// The policies of flow control that flags and their defaults select; empty without flow control.
    pub flow: Vec<FlowPolicy>,
    /// The autoscaler of a bundle.
    pub scaling: Option<ScalingChoice>,
    /// Whether a bundle has the section `deployment`.
    pub has_deployment: bool,
    /// How instances of a role are chosen, if not as all; no role twice.
    pub pools: Vec<PoolChoice>,
    /// Which instance is chosen first, as `--pd-stage-order`.
    pub stage_order: Option<Sourced<String>>,
    /// Which requests are encoded elsewhere, as `--encode-decider`.
    pub encode_decider: Option<Sourced<String>>,
    /// Settings of flow control by the names of their flags, as texts. `Some` turns flow control on.
    pub gateway: Option<Vec<(String, Sourced<String>)>>,
}

/// An autoscaler that a bundle names: built in or a plugin.
#[derive(Clone, Debug, PartialEq)]
pub struct ScalingChoice {
    pub name: Sourced<String>,
    /// Values of its parameters, in the order of the file.
    pub parameters: Vec<(String, Sourced<ParameterInput>)>,
}

/// How instances of a role are chosen: a profile of llm-d's endpoint picker.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolChoice {
    /// `prefill`, `decode` or `encode`.
    pub role: &'static str,
    /// In their order; `None` for none.
    pub filters: Option<Vec<Sourced<FilterSetting>>>,
    /// `None` for those of `weighted` without a setting.
    pub scorers: Option<Vec<Sourced<WeightedScorer>>>,
}

impl PoolChoice {
    /// Where its first filter or scorer is from.
    #[must_use]
    pub fn source(&self) -> Option<&SettingSource> {
        let filter = self.filters.iter().flatten().next().map(|one| &one.source);
        filter.or_else(|| self.scorers.iter().flatten().next().map(|one| &one.source))
    }

    /// The flags that say the same, with their values as texts.
    fn flags(&self) -> impl Iterator<Item = (String, Sourced<String>)> {
        let text = |texts: Vec<String>, source: Option<&SettingSource>| {
            Some(Sourced { value: texts.join(","), source: source?.clone() })
        };
        let filters = self.filters.as_deref().unwrap_or_default();
        let scorers = self.scorers.as_deref().unwrap_or_default();
        let filter_texts = filters.iter().map(|filter| filter.value.to_string()).collect();
        let scorer_texts = scorers.iter().map(|scorer| scorer.value.to_string()).collect();
        let filters = text(filter_texts, filters.first().map(|one| &one.source));
        let scorers = text(scorer_texts, scorers.first().map(|one| &one.source));
        let role = self.role;
        [("filters", filters), ("scorers", scorers)]
            .into_iter()
            .filter_map(move |(what, text)| Some((format!("{role}-routing-{what}"), text?)))
    }
}

/// A built-in policy of flow control as flags select it. Flags such as `--queue-depth-threshold` set its parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowPolicy {
    pub kind: Kind,
    /// The name; that of the default if no flag names a policy. It may be a plugin.
    pub name: String,
    /// Values of parameters, also of those that other policies of the kind have.
    pub values: Vec<(&'static str, Sourced<f64>)>,
}

/// A value that was given for a parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct ParameterSetting {
    /// Kind of the policy that has the parameter.
    pub kind: Kind,
    pub name: String,
    pub value: Sourced<ParameterInput>,
    /// BLIS's key for the parameter, which belongs to one policy only; `None` if the parameter itself was named.
    pub key: Option<&'static str>,
}

impl Choices {
    /// Selects `policy` for `kind` instead of any other.
    #[must_use]
    pub fn with(mut self, kind: Kind, policy: Sourced<String>) -> Self {
        self.policies.retain(|(other, _)| *other != kind);
        self.policies.push((kind, policy));
        self
    }

    /// Sets the parameter with BLIS's key `key`, if there is a value.
    pub fn set(&mut self, key: &'static str, value: Option<Sourced<f64>>) {
        let (Some(value), Some((row, parameter))) = (value, BuiltIn::by_key(key)) else { return };
        self.parameters.push(ParameterSetting {
            kind: row.kind,
            name: parameter.name.to_owned(),
            value: value.map(ParameterInput::Number),
            key: Some(key),
        });
    }

    /// The same settings without those of `kind`.
    #[must_use]
    pub fn without(&self, kind: Kind) -> Self {
        let mut choices = self.clone();
        choices.policies.retain(|(other, _)| *other != kind);
        choices.parameters.retain(|given| given.kind != kind);
        choices.scorers = choices.scorers.filter(|_| kind != Kind::Routing);
        choices.filters = choices.filters.filter(|_| kind != Kind::Routing);
        choices.picker = choices.picker.filter(|_| kind != Kind::Routing);
        if kind == Kind::Disaggregation {
            (choices.pools, choices.stage_order, choices.encode_decider) = (Vec::new(), None, None);
        }
        choices
    }

    /// Settings of prefill apart from decode by the names of their flags, as texts.
    #[must_use]
    pub fn disaggregation_settings(&self) -> Vec<(String, Sourced<String>)> {
        let order = self.stage_order.iter().map(|order| ("pd-stage-order".to_owned(), order.clone()));
        let encode = self.encode_decider.iter().map(|decider| ("encode-decider".to_owned(), decider.clone()));
        order.chain(encode).chain(self.pools.iter().flat_map(PoolChoice::flags)).collect()
    }

    /// The settings of policies of `kinds` alone, without classes and tenants.
    #[must_use]
    pub fn only(&self, kinds: &[Kind]) -> Self {
        let mut choices = Self { slo_priorities: Vec::new(), tenant_budgets: Vec::new(), ..self.clone() };
        choices.policies.retain(|(kind, _)| kinds.contains(kind));
        choices.parameters.retain(|given| kinds.contains(&given.kind));
        choices
    }

    /// The name of the policy for `kind`.
    pub(super) fn name(&self, kind: Kind) -> Option<&Sourced<String>> {
        self.policies.iter().find(|(other, _)| *other == kind).map(|(_, name)| name)
    }

    /// The policy of flow control for `kind` as flags select it.
    pub(super) fn flow(&self, kind: Kind) -> Option<&FlowPolicy> {
        self.flow.iter().find(|policy| policy.kind == kind)
    }

    /// The parameters of `row` that are set by BLIS's keys.
    pub(super) fn by_key(&self, row: &BuiltIn) -> impl Iterator<Item = &ParameterSetting> {
        self.parameters.iter().filter(move |given| given.owner().is_some_and(|owner| std::ptr::eq(owner, row)))
    }

    /// The parameters of the policy for `kind` that are set by their own names.
    pub(super) fn by_name(&self, kind: Kind) -> Vec<(String, Sourced<ParameterInput>)> {
        let given = self.parameters.iter().filter(|given| given.kind == kind && given.key.is_none());
        given.map(|given| (given.name.clone(), given.value.clone())).collect()
    }
}

impl ParameterSetting {
    /// The policy that owns the parameter, if it was set by BLIS's key.
    pub(super) fn owner(&self) -> Option<&'static BuiltIn> {
        self.key.and_then(BuiltIn::by_key).map(|(row, _)| row)
    }
}
