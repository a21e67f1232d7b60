//! An endpoint picker as a policy bundle, and back.

use std::fmt::Write as _;

use super::config::decider_type;
use super::plugins::{Meaning, ProfileRole};
use super::{EndpointPicker, Profile, RoleProfiles, Saturation, WHOLE_MAX, disaggregation};
use crate::policy::registry::{EPP_DEFAULT, PREFIX_CAPACITY, TOKEN_AWARE, WEIGHTED};
use crate::policy::{
    BuiltIn, BuiltInFilter, Bundle, FilterSetting, NoPlugins, PolicyError, PolicySettings, PolicyUse, PoolChoice,
    ScorerKind, SettingSource, Sourced, WeightedScorer,
};
use blis_diag::quoted;
use blis_plugin::Kind;
use blis_plugin::decisions::Area;
use blis_sim::policy::{DEFAULT_PROFILE, EPP_PROFILE};

impl EndpointPicker {
    /// The bundle in the one form that import writes.
    #[must_use]
    pub fn to_bundle(&self) -> String {
        let mut text = "# What llm-d's endpoint picker decides, as `blis import llm-d` writes it.\n".to_owned();
        if let Some(Saturation { queue_depth, kv_utilization }) = self.shedding {
            text.push_str("admission:\n  policy: gaie-legacy\n");
            let _ = writeln!(text, "  gaie_qd_threshold: {queue_depth}\n  gaie_kv_threshold: {kv_utilization}");
        }
        text.extend(self.admitter.as_ref().map(super::admitter::to_bundle));
        let gateway = self.gateway.as_ref().map(super::gateway::to_bundle).unwrap_or_default();
        text.push_str("routing:\n  policy: weighted\n");
        if let Some(blocks) = self.sent_blocks {
            let _ = writeln!(text, "  parameters: {{{PREFIX_CAPACITY}: {blocks}}}");
        }
        self.profile.to_bundle(&mut text, "  ");
        text.extend(self.disaggregation.as_ref().map(disaggregation::to_bundle));
        text.push_str(&gateway);
        text
    }

    /// The endpoint picker that `bundle` describes.
    ///
    /// # Errors
    /// If the bundle contradicts itself, or has anything that llm-d's configuration cannot say.
    pub fn of_bundle(bundle: &Bundle) -> Result<Self, PolicyError> {
        let reader = ExportedBundle { bundle };
        reader.check_plugins()?;
        let settings = PolicySettings::choose(&Default::default(), Some(bundle), &NoPlugins)?;
        reader.check_rest(&settings)?;
        let used = |kind| settings.used(kind).expect("all kinds but latency have a policy");
        let routing = reader.routing(used(Kind::Routing))?;
        let (profile, disaggregation) = reader.disaggregation(settings.used(Kind::Disaggregation), routing)?;
        let further = disaggregation.iter().flat_map(|apart| apart.prefill.iter().chain(&apart.encode));
        let profiles = std::iter::once(&profile).chain(further);
        let sent_blocks = sent_blocks(used(Kind::Routing), profiles.flat_map(|profile| &profile.scorers));
        let gateway = bundle.choices().gateway.as_deref().map(super::gateway::of_bundle).transpose();
        let gateway = gateway.map_err(|(value, what, hint)| reader.refuse(&value.source, what, hint))?;
        let admission = used(Kind::Admission);
        let (shedding, admitter) = reader.admission(admission)?;
        if shedding.is_some() && gateway.is_some() {
            let hint = "with flow control llm-d rejects no request that may be shed; leave out one of them";
            return Err(reader.refuse(&admission.source, "`gaie-legacy` beside `gateway` has no counterpart", hint));
        }
        Ok(Self { shedding, admitter, gateway, profile, disaggregation, sent_blocks })
    }
}

impl Profile {
    /// Its lines in a bundle, each behind `indent`.
    pub(super) fn to_bundle(&self, text: &mut String, indent: &str) {
        if !self.filters.is_empty() {
            let _ = writeln!(text, "{indent}filters:");
        }
        for filter in &self.filters {
            let values: Vec<String> =
                filter.parameters().map(|(parameter, value)| format!("{}: {value}", parameter.name)).collect();
            let _ = writeln!(text, "{indent}  - {{name: {}, parameters: {{{}}}}}", filter.name(), values.join(", "));
        }
        let _ = writeln!(text, "{indent}scorers:");
        for WeightedScorer { name, weight, .. } in &self.scorers {
            let _ = writeln!(text, "{indent}  - {{name: {name}, weight: {weight}}}");
        }
    }
}

/// A bundle, for errors that show its lines.
struct ExportedBundle<'a> {
    bundle: &'a Bundle,
}

impl ExportedBundle<'_> {
    fn check_plugins(&self) -> Result<(), PolicyError> {
        let policies = &self.bundle.choices().policies;
        let policy = policies.iter().find(|(kind, name)| BuiltIn::find(*kind, name).is_none());
        let policy = policy.map(|(kind, name)| (kind.what(), name.as_str(), &name.source));
        let choices = self.bundle.choices();
        let pools = || choices.pools.iter();
        let filters = choices.filters.iter().chain(pools().filter_map(|pool| pool.filters.as_ref())).flatten();
        let scorers = choices.scorers.iter().chain(pools().filter_map(|pool| pool.scorers.as_ref())).flatten();
        let filter = { filters }.find(|filter| filter.built_in().is_none());
        let scorer = { scorers }.find(|scorer| scorer.kind().is_none());
        let step = filter.map(|one| ("filter", one.name(), &one.source));
        let step = step.or_else(|| scorer.map(|one| ("scorer", one.name.name(), &one.source)));
        let step = step.or_else(|| choices.picker.as_ref().map(|one| ("picker", one.as_str(), &one.source)));
        match policy.or(step) {
            Some((what, name, source)) => {
                let what = format!("{what} {} is not built in", quoted(name.as_bytes()));
                let hint = "llm-d has no counterpart of scripts and components; for routing, `weighted` with built-in \
                            scorers and filters can be exported";
                Err(self.refuse(source, what, hint))
            }
            None => Ok(()),
        }
    }

    /// What a bundle says about other things than admission and routing.
    fn check_rest(&self, settings: &PolicySettings) -> Result<(), PolicyError> {
        for kind in Kind::ALL {
            let hint = match (kind, kind.area()) {
                (Kind::Priority, _) => {
                    "llm-d takes the priority of a request from its InferenceObjective: that is `class`"
                }
                (_, Area::Engine) => {
                    "it is a setting of the engine, such as vLLM's `--scheduling-policy`; leave it out"
                }
                (_, Area::KvTiers) => "it is a setting of the engine: vLLM's `kv_connector_extra_config`; leave it out",
                (Kind::Drain, _) => "Kubernetes chooses the replica; leave it out",
                (_, Area::Replicas) => "Kubernetes chooses the node; leave it out",
                (_, Area::Front | Area::FlowControl | Area::Roles) => continue,
            };
            let Some(used) = settings.used(kind) else { continue };
            if kind.row().on_demand || used.name() != BuiltIn::default_of(kind).name {
                return Err(self.no_counterpart(used, hint));
            }
        }
        if let Some(scaling) = &self.bundle.choices().scaling {
            let what = format!("the autoscaler `{}` has no counterpart in llm-d's configuration", scaling.name.value);
            return Err(self.refuse(
                &scaling.name.source,
                what,
                "autoscalers are configured apart from it; leave it out",
            ));
        }
        let sections = [
            ("priorities of classes", first(&settings.slo_priorities), "they are InferenceObjectives in llm-d"),
            ("budgets of tenants", first(&settings.tenant_budgets), "llm-d's fairness policies have no budgets"),
            ("coefficients of latency", first(&settings.latency_parameters), "a configuration of a router has none"),
        ];
        match sections.into_iter().find_map(|(what, source, hint)| Some((what, source?, hint))) {
            Some((what, source, hint)) => {
                let what = format!("{what} have no counterpart in llm-d's configuration");
                Err(self.refuse(source, what, format!("{hint}; leave them out")))
            }
            None => Ok(()),
        }
    }

    fn admission(&self, used: &PolicyUse) -> Result<(Option<Saturation>, Option<PolicyUse>), PolicyError> {
        let value = |name: &str| used.parameters.iter().find(|(known, _)| known == name).map(|(_, value)| value);
        if let Some(row) = super::admitter::type_of(used) {
            for (name, value) in &used.parameters {
                let theirs = row.counterparts().find(|(_, ours)| ours == name).map(|(theirs, _)| theirs);
                match theirs.map(|theirs| theirs.meaning) {
                    Some(Meaning::Whole(_)) if value.fract() != 0.0 || value.value > WHOLE_MAX => {
                        return Err(self.not_whole(&format!("`{name}`"), value.value, &value.source));
                    }
                    None if value.source != SettingSource::Default => {
                        let what = format!("`{name}` of `{}` has no counterpart in llm-d", used.name());
                        return Err(self.refuse(&value.source, what, "leave it out"));
                    }
                    _ => {}
                }
            }
            return Ok((None, Some(used.clone())));
        }
        match (used.name(), value("queue-depth"), value("kv-utilization")) {
            ("always-admit", ..) => Ok((None, None)),
            ("gaie-legacy", Some(queue_depth), Some(kv_utilization)) => {
                if queue_depth.fract() != 0.0 || queue_depth.value > WHOLE_MAX {
                    return Err(self.not_whole("the queue depth", queue_depth.value, &queue_depth.source));
                }
                let saturation = Saturation { queue_depth: queue_depth.value, kv_utilization: kv_utilization.value };
                Ok((Some(saturation), None))
            }
            _ => {
                let hint = "`always-admit`, `gaie-legacy`, `probabilistic` and `latency-slo` have one";
                Err(self.no_counterpart(used, hint))
            }
        }
    }

    fn routing(&self, used: &PolicyUse) -> Result<Profile, PolicyError> {
        let name = used.built_in.map_or("", |row| row.name);
        let (filters, scorers) = match name {
            WEIGHTED => {
                let scorers = used.parameters.iter().filter(|(_, weight)| weight.value > 0.0);
                let scorers = scorers.filter_map(|(name, weight)| {
                    let kind = ScorerKind::find(name)?;
                    Some(weight.clone().map(|weight| WeightedScorer::built_in(kind, weight)))
                });
                (built_in_filters(&used.filters), scorers.collect())
            }
            TOKEN_AWARE => self.token_aware(used)?,
            EPP_DEFAULT => (Vec::new(), scorers_of(&EPP_PROFILE)),
            _ => return Err(self.no_counterpart(used, "`weighted`, `token-aware` and `epp-default` have one")),
        };
        self.profile(filters, scorers)
    }

    /// The profile of these filters and scorers, if llm-d has all of them.
    fn profile(
        &self,
        filters: Vec<Sourced<BuiltInFilter>>,
        scorers: Vec<Sourced<WeightedScorer>>,
    ) -> Result<Profile, PolicyError> {
        for Sourced { value: scorer, source } in &scorers {
            let name = &scorer.name;
            let kind = scorer.kind().filter(|kind| *kind != ScorerKind::Random);
            if kind.is_some_and(|kind| super::plugins::PluginType::of_scorer(kind).is_none()) {
                let what = format!("scorer `{name}` has no counterpart in llm-d");
                return Err(self.refuse(source, what, "`active-requests` and `queue-depth` have one"));
            }
        }
        if let Some(random) = scorers.iter().find(|one| one.kind() == Some(ScorerKind::Random) && scorers.len() > 1) {
            let what =
                "scorer `random` beside others has no counterpart in llm-d, whose `random-picker` reads no scores";
            return Err(self.refuse(&random.source, what, "keep it alone, or leave it out"));
        }
        for filter in &filters {
            self.check_whole_numbers(filter)?;
        }
        Ok(Profile {
            filters: filters.into_iter().map(|one| one.value).collect(),
            scorers: scorers.into_iter().map(|one| one.value).collect(),
        })
    }

    /// The profile of the instances that decode, where `routing` is that of all, and what other instances compute for them.
    fn disaggregation(
        &self,
        used: Option<&PolicyUse>,
        routing: Profile,
    ) -> Result<(Profile, Option<RoleProfiles>), PolicyError> {
        let choices = self.bundle.choices();
        let pool = |role: ProfileRole| -> Result<Option<Profile>, PolicyError> {
            let Some(pool) = choices.pools.iter().find(|pool| pool.role == role.into_str()) else { return Ok(None) };
            let filters = pool.filters.as_deref().map(built_in_filters).unwrap_or_default();
            let scorers = pool.scorers.clone().unwrap_or_else(|| scorers_of(&DEFAULT_PROFILE));
            self.profile(filters, scorers).map(Some)
        };
        let prefill_first = choices.stage_order.as_deref().is_some_and(|order| order == "prefill-first");
        if let Some(decider) = choices.encode_decider.as_ref().filter(|decider| *decider.value == *"always") {
            let what = "`encode_decider: always` has no counterpart in llm-d";
            return Err(self.refuse(&decider.source, what, "`multimodal` has one"));
        }
        let encodes = choices.encode_decider.as_deref().is_some_and(|decider| decider == "multimodal");
        let decider = match used {
            Some(used) if used.name() == "never" => None,
            Some(used) if decider_type(used).is_none() => {
                return Err(self.no_counterpart(used, "`never`, `always` and `prefix-threshold` have one"));
            }
            used => used.cloned(),
        };
        let prefills = decider.is_some() || prefill_first;
        let of_prefill = choices.pools.iter().find(|pool| pool.role == ProfileRole::Prefill.into_str());
        if let Some(source) = of_prefill.and_then(PoolChoice::source).filter(|_| !prefills && used.is_none()) {
            let what = "`prefill` has no counterpart without a policy that says which requests are prefilled elsewhere";
            return Err(self.refuse(source, what, "add `policy: always` or `policy: prefix-threshold`"));
        }
        let prefill = pool(ProfileRole::Prefill)?.unwrap_or_else(|| routing.clone());
        let encode = pool(ProfileRole::Encode)?.unwrap_or_else(|| routing.clone());
        let apart = RoleProfiles {
            decider,
            prefill_first,
            prefill: prefills.then_some(prefill),
            encode: encodes.then_some(encode),
        };
        let apart = Some(apart).filter(|apart| *apart != RoleProfiles::default());
        Ok((pool(ProfileRole::Decode)?.unwrap_or(routing), apart))
    }

    /// `token-aware` is a filter and a scorer of `weighted`.
    fn token_aware(&self, used: &PolicyUse) -> Result<FiltersAndScorers, PolicyError> {
        let mut filter = BuiltInFilter::named("prefix-cache-affinity").expect("it is built in");
        for (name, value) in &used.parameters {
            filter.set(name, value.value).map_err(|(what, hint)| self.refuse(&value.source, what, hint))?;
        }
        let scorer = WeightedScorer::built_in(ScorerKind::TokenLoad, 1.0);
        let source = || used.source.clone();
        Ok((vec![Sourced { value: filter, source: source() }], vec![Sourced { value: scorer, source: source() }]))
    }

    /// Some numbers of llm-d are whole.
    fn check_whole_numbers(&self, filter: &Sourced<BuiltInFilter>) -> Result<(), PolicyError> {
        let row = super::config::type_of(filter);
        for (parameter, value) in filter.parameters() {
            let whole = row
                .counterparts()
                .any(|(theirs, ours)| matches!(theirs.meaning, Meaning::Whole(_)) && ours == parameter.name);
            if whole && value.fract() != 0.0 {
                let what = format!("`{}` of filter `{}`", parameter.name, filter.name());
                return Err(self.not_whole(&what, value, &filter.source));
            }
        }
        Ok(())
    }

    fn not_whole(&self, what: &str, value: f64, source: &SettingSource) -> PolicyError {
        self.refuse(source, format!("{what} is {value}"), "llm-d takes whole numbers, here up to 1e15")
    }

    fn no_counterpart(&self, used: &PolicyUse, hint: &str) -> PolicyError {
        let by_default = if used.source == SettingSource::Default { ", the default," } else { "" };
        let what = format!("{} `{}`{by_default} has no counterpart in llm-d", used.kind.what(), used.name());
        self.refuse(&used.source, what, hint)
    }

    fn refuse(&self, source: &SettingSource, what: impl Into<String>, hint: impl Into<String>) -> PolicyError {
        match source {
            SettingSource::File(location) => PolicyError::at(location.clone(), self.bundle.text(), what, hint),
            _ => PolicyError::new(what, hint),
        }
    }
}

/// Filters and scorers, with the location of each.
type FiltersAndScorers = (Vec<Sourced<BuiltInFilter>>, Vec<Sourced<WeightedScorer>>);

/// The capacity of the record that the scorer `prefix-affinity` reads, if it is among `scorers`.
fn sent_blocks<'a>(used: &PolicyUse, mut scorers: impl Iterator<Item = &'a WeightedScorer>) -> Option<f64> {
    let has_record = scorers.any(|scorer| scorer.kind() == Some(ScorerKind::PrefixAffinity));
    let capacity = used.parameters.iter().find(|(name, _)| name == PREFIX_CAPACITY).map(|(_, value)| value.value);
    capacity.filter(|_| has_record)
}

fn built_in_filters(filters: &[Sourced<FilterSetting>]) -> Vec<Sourced<BuiltInFilter>> {
    let built_in = |filter: &Sourced<FilterSetting>| {
        Some(Sourced { value: filter.built_in()?.clone(), source: filter.source.clone() })
    };
    filters.iter().filter_map(built_in).collect()
}

fn scorers_of(profile: &[(ScorerKind, f64)]) -> Vec<Sourced<WeightedScorer>> {
    let scorer = |&(kind, weight): &(ScorerKind, f64)| WeightedScorer::built_in(kind, weight);
    profile.iter().map(scorer).map(Sourced::default_value).collect()
}

fn first<T>(entries: &[(String, Sourced<T>)]) -> Option<&SettingSource> {
    entries.first().map(|(_, value)| &value.source)
}
