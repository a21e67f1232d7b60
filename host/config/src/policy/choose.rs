//! Combines flags, bundle and defaults, and refuses contradictions.

use std::sync::Arc;

use super::error::{Contradiction, PolicyError};
use super::outside::put;
use super::parameter::number_of;
use super::registry::{CACHE_AND_LOAD, PREFIX_CAPACITY, WEIGHTED};
use super::scorers::TOO_LARGE;
use super::{
    BuiltIn, Bundle, Choices, FilterSetting, ParameterInput, ParameterSetting, PipelineStep, PluginLookup,
    PluginLookupError, PolicySettings, PolicyUse, ScorerName, SettingSource, Sourced, StepRole, WeightedScorer,
    built_in_names, scorer_hint,
};
use blis_diag::{Diagnostic, name_hint, quoted};
use blis_plugin::{Kind, LoadedPlugin};

impl PolicySettings {
    /// The settings that result from `flags` and `bundle`: the flag's value, else the bundle's, else the default. If a
    /// flag selects another policy than the bundle, the bundle's parameters for that kind are not used.
    ///
    /// # Errors
    /// If a setting could have no effect, two settings exclude each other, or a policy is neither built in nor known to
    /// `plugins`.
    pub fn choose(flags: &Choices, bundle: Option<&Bundle>, plugins: &dyn PluginLookup) -> Result<Self, PolicyError> {
        let nothing = Choices::default();
        let sources = SettingSources { flags, file: bundle.map_or(&nothing, Bundle::choices) };
        let used = |kind| sources.used(kind, plugins).map_err(|fault| fault.into_error(bundle));
        Ok(Self {
            uses: Kind::ALL.into_iter().filter_map(|kind| used(kind).transpose()).collect::<Result<_, _>>()?,
            slo_priorities: over(&flags.slo_priorities, &sources.file.slo_priorities),
            tenant_budgets: over(&flags.tenant_budgets, &sources.file.tenant_budgets),
            latency_parameters: sources.latency_parameters().map_err(|fault| fault.into_error(bundle))?,
        })
    }
}

impl Default for PolicySettings {
    /// The policies that BLIS uses without flags and bundle.
    fn default() -> Self {
        Self::choose(&Choices::default(), None, &super::NoPlugins).expect("the defaults do not contradict each other")
    }
}

impl Choices {
    /// A key must belong to the policy that the same source names, or to the `chosen` one.
    fn check_owners(&self, kind: Kind, chosen: &str) -> Result<(), Contradiction> {
        let scorers = self.scorers.iter().flatten().next().filter(|_| kind == Kind::Routing);
        let filters = self.filters.iter().flatten().next().filter(|_| kind == Kind::Routing);
        let picker = self.picker.as_ref().filter(|_| kind == Kind::Routing);
        let lists = [
            ("scorers", scorers.map(|one| &one.source)),
            ("filters", filters.map(|one| &one.source)),
            ("picker", picker.map(|one| &one.source)),
        ];
        let list = lists.into_iter().filter_map(|(key, source)| Some((key, source?, BuiltIn::find(kind, WEIGHTED))));
        let keys = self.parameters.iter().filter(|given| given.kind == kind);
        let keys = keys.filter_map(|given| Some((given.key?, &given.value.source, given.owner())));
        for (key, source, owner) in list.chain(keys) {
            let Some(owner) = owner else { continue };
            let beside = self.name(kind).map(|name| name.value.as_str());
            let is_owner = |name: &str| name == owner.name || name == owner.blis_name();
            if beside.is_some_and(is_owner) || is_owner(chosen) {
                continue;
            }
            let (setting, what, owner) = (setting_name(source, key), kind.what(), owner.blis_name());
            let what =
                format!("{setting} only makes sense with the {what} `{owner}`, not `{}`", beside.unwrap_or(chosen));
            return Err(Contradiction::new(source, what, format!("leave it out, or choose `{owner}`")));
        }
        Ok(())
    }

    /// Whether it sets a part of a pipeline.
    fn has_pipeline(&self) -> bool {
        self.scorers.is_some() || self.filters.is_some() || self.picker.is_some()
    }

    /// The parts of a pipeline and BLIS's two weights exclude each other.
    fn check_weights(&self) -> Result<(), Contradiction> {
        let pair = BuiltIn::find(Kind::Routing, CACHE_AND_LOAD);
        let list = match (&self.scorers, &self.filters, &self.picker) {
            (Some(_), ..) => "a list of scorers",
            (None, Some(_), _) => "a list of filters",
            (None, None, Some(_)) => "a picker",
            (None, None, None) => return Ok(()),
        };
        match pair.and_then(|pair| self.by_key(pair).next()) {
            Some(ParameterSetting { value: Sourced { source, .. }, key, .. }) => {
                let what = format!("{} cannot be used with {list}", setting_name(source, key.unwrap_or_default()));
                Err(Contradiction::new(source, what, "in a list, use the scorers kv-utilization and load-balance"))
            }
            None => Ok(()),
        }
    }
}

/// The two sources of settings; the file counts only where the flags are silent.
#[derive(Clone, Copy)]
struct SettingSources<'a> {
    flags: &'a Choices,
    file: &'a Choices,
}

impl SettingSources<'_> {
    /// The policy for `kind` with its parameters; `None` for a latency model of the deployment.
    fn used(self, kind: Kind, plugins: &dyn PluginLookup) -> Result<Option<PolicyUse>, Contradiction> {
        let Self { flags, file } = self;
        if kind == Kind::Scaling {
            return self.scaling(plugins);
        }
        if kind.row().on_demand && flags.name(kind).or(file.name(kind)).is_none() && self.by_name(kind).is_empty() {
            return Ok(None);
        }
        let usual = flags.flow(kind).map_or(BuiltIn::default_of(kind).name, |policy| &policy.name);
        let usual = Sourced::default_value(usual.to_owned());
        let name = flags.name(kind).or(file.name(kind)).unwrap_or(&usual);
        for choices in [flags, file] {
            choices
                .check_owners(kind, name)
                .and_then(|()| if kind == Kind::Routing { choices.check_weights() } else { Ok(()) })?;
        }
        if kind.is_step() {
            return Ok(None);
        }
        let Some(row) = BuiltIn::find(kind, name) else {
            let loaded = plugins.plugin(kind, name).map_err(|unusable| unusable_fault(kind, name, unusable))?;
            let mut used = PolicyUse::new(kind, name.source.clone(), Arc::clone(&loaded));
            used.set(&self.by_name(kind))?;
            if kind == Kind::Routing && loaded.plugin.description().kinds.contains(&Kind::RoutingFilter) {
                used.steps.push(own_filter(&used, name, loaded));
            }
            return Ok(Some(used));
        };
        match kind {
            _ if kind.is_flow_control() && self.is_by_flags(kind, name) => Ok(None),
            Kind::Latency => Ok(None),
            Kind::Routing if row.name == WEIGHTED => self.weighted(row, name, plugins).map(Some),
            _ => self.built_in(row, name).map(Some),
        }
    }

    /// Whether flags alone say everything about the built-in policy of flow control `name`.
    fn is_by_flags(self, kind: Kind, name: &Sourced<String>) -> bool {
        let by_flags = match name.source {
            SettingSource::Other(_) => false,
            SettingSource::Default => true,
            SettingSource::Flag(_) | SettingSource::File(_) => self.flags.name(kind).is_some(),
        };
        by_flags && self.by_name(kind).is_empty()
    }

    /// The plugin that scales; `None` without an autoscaler, and for one that is built in ([`super::ScalingUse`]).
    fn scaling(self, plugins: &dyn PluginLookup) -> Result<Option<PolicyUse>, Contradiction> {
        let kind = Kind::Scaling;
        let Some(name) = self.flags.name(kind) else { return Ok(None) };
        let loaded = plugins.plugin(kind, name).map_err(|unusable| unusable_fault(kind, name, unusable))?;
        let mut used = PolicyUse::new(kind, name.source.clone(), loaded);
        used.set(&self.by_name(kind))?;
        Ok(Some(used))
    }

    fn built_in(self, row: &'static BuiltIn, name: &Sourced<String>) -> Result<PolicyUse, Contradiction> {
        let mut used = PolicyUse::built_in(row, name.source.clone());
        self.change_defaults(row, &mut used);
        self.put_flow_values(&mut used, |_| true);
        for choices in [self.file, self.flags] {
            if std::ptr::eq(choices, self.flags) {
                // A flag wins over the bundle.
                self.put_flow_values(&mut used, |source| matches!(source, SettingSource::Flag(_)));
            }
            for given in choices.by_key(row) {
                let number = number_of(row.name, &given.name, &given.value.value);
                let number = number.map_err(|(what, hint)| Contradiction::new(&given.value.source, what, hint))?;
                put(&mut used.parameters, &given.name, given.value.clone().map(|_| number));
            }
            used.set(&self.inputs(choices, row.kind))?;
        }
        if row.name == CACHE_AND_LOAD {
            check_pair(&used)?;
        }
        Ok(used)
    }

    /// Sets the parameters that flags such as `--queue-depth-threshold` have, of these sources.
    fn put_flow_values(self, used: &mut PolicyUse, from: impl Fn(&SettingSource) -> bool) {
        for (name, value) in self.flags.flow(used.kind).iter().flat_map(|policy| &policy.values) {
            let known = used.parameters.iter_mut().find(|(known, _)| known == name);
            known.filter(|_| from(&value.source)).into_iter().for_each(|(_, known)| *known = value.clone());
        }
    }

    /// Defaults that depend, as in BLIS, on which settings are given.
    fn change_defaults(self, row: &'static BuiltIn, used: &mut PolicyUse) {
        let file_names = |name: &str| self.file.name(row.kind).is_some_and(|known| known.value == name);
        if row.name == "tier-shed" && file_names(row.name) {
            // BLIS fills in 3 when it reads a bundle that names the policy, and only then.
            put(&mut used.parameters, "min-priority", Sourced::default_value(3.0));
        }
        if row.name == CACHE_AND_LOAD && self.pair() {
            // One weight alone leaves the other at 0.
            used.parameters.iter_mut().for_each(|(_, weight)| *weight = Sourced::default_value(0.0));
        }
    }

    /// `weighted` is one policy with a list of scorers and another with BLIS's two weights: the settings of the flags
    /// decide, then those of the bundle.
    fn weighted(
        self,
        row: &'static BuiltIn,
        name: &Sourced<String>,
        plugins: &dyn PluginLookup,
    ) -> Result<PolicyUse, Contradiction> {
        if self.pair()
            && let Some(pair) = BuiltIn::find(Kind::Routing, CACHE_AND_LOAD)
        {
            return self.built_in(pair, name);
        }
        let mut used = PolicyUse::built_in(row, name.source.clone());
        used.filters = self.flags.filters.as_ref().or(self.file.filters.as_ref()).cloned().unwrap_or_default();
        let scorers = self.flags.scorers.as_ref().or(self.file.scorers.as_ref());
        let picker = self.flags.picker.as_ref().or(self.file.picker.as_ref());
        used.steps = self.steps(&used.filters, scorers.map_or(&[][..], Vec::as_slice), picker, plugins)?;
        for choices in [self.file, self.flags] {
            if let Some(scorers) = &choices.scorers {
                used.parameters = listed(row, scorers);
            }
            used.set(&self.inputs(choices, Kind::Routing))?;
        }
        // Scorers without a weight add nothing to the sum; they follow in the order of the registry.
        let is_weighed = |(name, weight): &(String, Sourced<f64>)| name != PREFIX_CAPACITY && **weight > 0.0;
        let (weighed, rest): (Vec<_>, Vec<_>) = used.parameters.drain(..).partition(is_weighed);
        let zeros = rest.iter().filter(|(name, _)| name != PREFIX_CAPACITY).map(|(_, weight)| &weight.source);
        let last = { zeros }.rfind(|source| **source != SettingSource::Default);
        if weighed.is_empty() {
            let source = last.unwrap_or(&name.source);
            return Err(Contradiction::new(source, "every scorer of `weighted` has the weight 0", "raise one of them"));
        }
        let without = |name: &str| rest.iter().find(|(known, _)| known == name).cloned();
        used.parameters = weighed;
        used.parameters.extend(row.parameters().iter().filter_map(|parameter| without(&parameter.name)));
        Ok(used)
    }

    /// The plugins among the steps of a pipeline, with the values that the lists give for their parameters.
    fn steps(
        self,
        filters: &[Sourced<FilterSetting>],
        scorers: &[Sourced<WeightedScorer>],
        picker: Option<&Sourced<String>>,
        plugins: &dyn PluginLookup,
    ) -> Result<Vec<PipelineStep>, Contradiction> {
        let mut steps = Vec::new();
        for filter in filters {
            if let FilterSetting::Plugin { name, given } = &filter.value {
                steps.push(step(StepRole::Filter, name, given, &filter.source, plugins)?);
            }
        }
        for scorer in scorers {
            if let ScorerName::Plugin(name) = &scorer.name {
                steps.push(step(StepRole::Scorer, name, &scorer.given, &scorer.source, plugins)?);
            }
        }
        if let Some(picker) = picker {
            steps.push(step(StepRole::Picker, picker, &[], &picker.source, plugins)?);
        }
        Ok(steps)
    }

    /// Whether BLIS's two weights are in effect.
    fn pair(self) -> bool {
        let pair = |choices: &Choices| {
            BuiltIn::find(Kind::Routing, CACHE_AND_LOAD).is_some_and(|row| choices.by_key(row).next().is_some())
        };
        let lists = Choices::has_pipeline;
        pair(self.flags) || (!lists(self.flags) && !lists(self.file) && pair(self.file))
    }

    /// The values that are set by the names of parameters of the selected policy.
    fn by_name(self, kind: Kind) -> Vec<(String, Sourced<ParameterInput>)> {
        [self.file, self.flags].into_iter().flat_map(|choices| self.inputs(choices, kind)).collect()
    }

    /// The values of one source. A bundle's values belong to the policy that the bundle names, if it names one.
    fn inputs(self, choices: &Choices, kind: Kind) -> Vec<(String, Sourced<ParameterInput>)> {
        let other = self.flags.name(kind).zip(self.file.name(kind)).is_some_and(|(flag, file)| flag != file);
        if std::ptr::eq(choices, self.file) && other { Vec::new() } else { choices.by_name(kind) }
    }

    /// The coefficients of the built-in latency model that are set by name, each once: the last value counts.
    fn latency_parameters(self) -> Result<Vec<(String, Sourced<f64>)>, Contradiction> {
        let name = self.flags.name(Kind::Latency).or(self.file.name(Kind::Latency));
        if name.is_some_and(|name| BuiltIn::find(Kind::Latency, name).is_none()) {
            return Ok(Vec::new());
        }
        let mut parameters: Vec<(String, Sourced<f64>)> = Vec::new();
        for (name, value) in self.by_name(Kind::Latency) {
            let number = number_of("latency", &name, &value.value);
            let number = number.map_err(|(what, hint)| Contradiction::new(&value.source, what, hint))?;
            parameters.retain(|(other, _)| *other != name);
            parameters.push((name, value.map(|_| number)));
        }
        Ok(parameters)
    }
}

/// The plugin `name` as the step `role` of a pipeline, with the values that were `given` for its parameters.
fn step(
    role: StepRole,
    name: &str,
    given: &[(String, ParameterInput)],
    source: &SettingSource,
    plugins: &dyn PluginLookup,
) -> Result<PipelineStep, Contradiction> {
    let kind = role.kind();
    let loaded = plugins.plugin(kind, name).map_err(|unusable| match unusable {
        PluginLookupError::Broken { what, hint } => Contradiction::new(source, what, hint),
        PluginLookupError::Unknown { hint } => {
            let built_in = match role {
                StepRole::Filter => name_hint(name, &built_in_names(kind)),
                StepRole::Scorer => scorer_hint(name),
                StepRole::Picker => String::new(),
            };
            let hint = if built_in.contains("did you mean") || hint.is_empty() { built_in } else { hint };
            Contradiction::new(source, format!("unknown {} {}", role.into_str(), quoted(name.as_bytes())), hint)
        }
    })?;
    if role == StepRole::Scorer && !loaded.plugin.description().scores {
        let what = format!("`{name}` computes no scores, so it cannot be a scorer");
        return Err(Contradiction::new(source, what, "it can be the picker: `--routing-picker`"));
    }
    let mut used = PolicyUse::new(kind, source.clone(), loaded);
    let given: Vec<_> = given
        .iter()
        .map(|(name, value)| (name.clone(), Sourced { value: value.clone(), source: source.clone() }))
        .collect();
    used.set(&given)?;
    Ok(PipelineStep { role, name: name.to_owned(), used })
}

/// The filter of a plugin that filters first and then chooses, with the values of `used`.
fn own_filter(used: &PolicyUse, name: &str, loaded: Arc<LoadedPlugin>) -> PipelineStep {
    let filter = PolicyUse {
        parameters: used.parameters.clone(),
        others: used.others.clone(),
        ..PolicyUse::new(Kind::RoutingFilter, used.source.clone(), loaded)
    };
    PipelineStep { role: StepRole::Filter, name: name.to_owned(), used: filter }
}

/// The weights of the `scorers` in their order, then all other scorers with weight 0, and the parameter that is no weight.
fn listed(row: &BuiltIn, scorers: &[Sourced<WeightedScorer>]) -> Vec<(String, Sourced<f64>)> {
    let mut parameters: Vec<_> = scorers
        .iter()
        .map(|scorer| (scorer.name.name().to_owned(), scorer.clone().map(|scorer| scorer.weight)))
        .collect();
    for parameter in row.parameters() {
        if parameters.iter().all(|(name, _)| *name != parameter.name) {
            let value = if parameter.name == PREFIX_CAPACITY { parameter.default } else { 0.0 };
            parameters.push((parameter.name, Sourced::default_value(value)));
        }
    }
    parameters
}

fn unusable_fault(kind: Kind, name: &Sourced<String>, unusable: PluginLookupError) -> Contradiction {
    match unusable {
        PluginLookupError::Broken { what, hint } => Contradiction::new(&name.source, what, hint),
        PluginLookupError::Unknown { hint } => {
            let hint = if hint.is_empty() { name_hint(name, &built_in_names(kind)) } else { hint };
            Contradiction::new(&name.source, format!("unknown {} {}", kind.what(), quoted(name.as_bytes())), hint)
        }
    }
}

/// The entries of `file` that `flags` do not have, then those of `flags`.
fn over<T: Clone>(flags: &[(String, Sourced<T>)], file: &[(String, Sourced<T>)]) -> Vec<(String, Sourced<T>)> {
    let kept = file.iter().filter(|(name, _)| flags.iter().all(|(other, _)| other != name));
    kept.chain(flags).cloned().collect()
}

fn check_pair(used: &PolicyUse) -> Result<(), Contradiction> {
    let given =
        used.parameters.iter().map(|(_, weight)| &weight.source).find(|source| **source != SettingSource::Default);
    let source = given.unwrap_or(&used.source);
    let sum: f64 = used.parameters.iter().map(|(_, weight)| weight.value).sum();
    if sum == 0.0 {
        return Err(Contradiction::new(source, "the cache weight and the load weight are both 0", "raise one of them"));
    }
    if sum.is_finite() { Ok(()) } else { Err(Contradiction::new(source, "the weights add up to infinity", TOO_LARGE)) }
}

/// The name of the setting as the user wrote it: the flag or the key.
fn setting_name(source: &SettingSource, key: &str) -> String {
    match source {
        SettingSource::Flag(name) => format!("`{name}`"),
        _ => format!("`{key}`"),
    }
}

impl Contradiction {
    /// The error for users; `bundle` has the text of its file.
    fn into_error(self, bundle: Option<&Bundle>) -> PolicyError {
        let Self { source, what, hint } = self;
        match (source, bundle) {
            (SettingSource::File(location), Some(bundle)) if bundle.has_line(&location) => {
                PolicyError::at(location, bundle.text(), what, hint)
            }
            // A setting of a configuration file, of which a bundle has the policies at most.
            (SettingSource::File(location), _) => PolicyError::from(Diagnostic::new(what).at(location).hint(hint)),
            _ => PolicyError::new(what, hint),
        }
    }
}
