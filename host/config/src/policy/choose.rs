//! Flag before bundle before default, and what contradicts itself.

use super::error::PolicyError;
use super::{
    AdmissionName, AdmissionSettings, Bundle, Named, Outside, PluginUse, PolicySettings, PreemptionName, PriorityName,
    RoutingName, RoutingSettings, SchedulerName, Scorer, Source, Sourced, TOO_LARGE, Unusable, Weights, Word,
    built_in_names,
};
use blis_diag::{name_hint, quoted};
use blis_plugin::Kind;

/// What flags or a bundle say of policies: whatever was not said is `None` or empty.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs, reason = "the fields of `PolicySettings`")]
pub struct Choices {
    pub admission: Option<Sourced<AdmissionName>>,
    pub token_bucket_capacity: Option<Sourced<f64>>,
    pub token_bucket_refill_rate: Option<Sourced<f64>>,
    pub tier_shed_threshold: Option<Sourced<u64>>,
    pub tier_shed_min_priority: Option<Sourced<i32>>,
    pub gaie_qd_threshold: Option<Sourced<f64>>,
    pub gaie_kv_threshold: Option<Sourced<f64>>,
    pub slo_priorities: Vec<(String, Sourced<i32>)>,
    pub tenant_budgets: Vec<(String, Sourced<f64>)>,
    pub routing: Option<Sourced<RoutingName>>,
    pub scorers: Option<Vec<Sourced<Scorer>>>,
    pub cache_weight: Option<Sourced<f64>>,
    pub load_weight: Option<Sourced<f64>>,
    pub priority: Option<Sourced<PriorityName>>,
    pub scheduler: Option<Sourced<SchedulerName>>,
    pub preemption: Option<Sourced<PreemptionName>>,
    /// A latency model was named that is built in.
    pub latency_is_built_in: bool,
    /// Names that are not built in, by kind; none where the field above says something.
    pub plugins: Vec<(Kind, Sourced<String>)>,
    /// Values of plugins' parameters.
    pub parameters: Vec<(Kind, String, Sourced<f64>)>,
}

impl PolicySettings {
    /// What `flags` and `bundle` come to: of every value the flag, else the bundle's, else the
    /// default. A policy chosen by flag does without the bundle's parameters of another.
    ///
    /// # Errors
    /// If something was given that can have no effect, two things exclude each other, or a policy that
    /// is not built in is not `outside` either.
    pub fn choose(flags: &Choices, bundle: Option<&Bundle>, outside: &dyn Outside) -> Result<Self, PolicyError> {
        let nothing = Choices::default();
        let file = bundle.map_or(&nothing, Bundle::choices);
        let admission = first(&flags.admission, &file.admission, AdmissionName::AlwaysAdmit);
        let routing = first(&flags.routing, &file.routing, RoutingName::RoundRobin);
        let weights = weights(flags, file);
        for said in [flags, file] {
            let checked = said.check_admission(*admission).and_then(|()| said.check_routing(*routing));
            checked.and_then(|()| said.check_weights()).map_err(|fault| fault.told(bundle))?;
        }
        if let Weights::CacheAndLoad { cache, load } = &weights {
            check_pair(cache, load).map_err(|fault| fault.told(bundle))?;
        }
        let plugins = plugins(flags, file, outside).map_err(|fault| fault.told(bundle))?;
        Ok(Self {
            plugins,
            admission: admission.map(|name| admission_settings(name, flags, file)),
            slo_priorities: over(&flags.slo_priorities, &file.slo_priorities),
            tenant_budgets: over(&flags.tenant_budgets, &file.tenant_budgets),
            routing: routing.map(|name| match name {
                RoutingName::RoundRobin => RoutingSettings::RoundRobin,
                RoutingName::LeastLoaded => RoutingSettings::LeastLoaded,
                RoutingName::Weighted => RoutingSettings::Weighted(weights),
                RoutingName::PrefixAffinity => RoutingSettings::PrefixAffinity,
                RoutingName::AlwaysBusiest => RoutingSettings::AlwaysBusiest,
            }),
            priority: first(&flags.priority, &file.priority, PriorityName::Class),
            scheduler: first(&flags.scheduler, &file.scheduler, SchedulerName::Fcfs),
            preemption: first(&flags.preemption, &file.preemption, PreemptionName::Fcfs),
        })
    }
}

impl Default for PolicySettings {
    /// BLIS's.
    fn default() -> Self {
        Self::choose(&Choices::default(), None, &super::NoPlugins).expect("nothing contradicts nothing")
    }
}

/// The plugins that take the place of built-in policies, by kind.
fn plugins(flags: &Choices, file: &Choices, outside: &dyn Outside) -> Result<Vec<PluginUse>, Fault> {
    let mut plugins = Vec::new();
    for kind in Kind::ALL {
        let by_file = || file.plugin(kind).filter(|_| !flags.names_built_in(kind));
        let given: Vec<_> = [file, flags].into_iter().flat_map(|said| said.parameters(kind)).collect();
        let Some(name) = flags.plugin(kind).or_else(by_file) else {
            if let Some((name, value)) = given.first() {
                let what = format!("{} is set, but the {} is built in", told(&value.source, name), kind.what());
                return Err(Fault::new(&value.source, what, "parameters are those of plugins; leave it out"));
            }
            continue;
        };
        let loaded = outside.plugin(kind, name).map_err(|unusable| unusable_fault(kind, name, unusable))?;
        let used = PluginUse::new(kind, loaded, &given);
        plugins.push(used.map_err(|(source, what, hint)| Fault::new(&source, what, hint))?);
    }
    Ok(plugins)
}

fn unusable_fault(kind: Kind, name: &Sourced<String>, unusable: Unusable) -> Fault {
    match unusable {
        Unusable::Broken { what, hint } => Fault::new(&name.source, what, hint),
        Unusable::Unknown { hint } => {
            let hint = if hint.is_empty() { name_hint(name, &built_in_names(kind)) } else { hint };
            Fault::new(&name.source, format!("unknown {} {}", kind.what(), quoted(name.as_bytes())), hint)
        }
    }
}

fn first<T: Clone>(flag: &Option<Sourced<T>>, file: &Option<Sourced<T>>, usual: T) -> Sourced<T> {
    flag.clone().or_else(|| file.clone()).unwrap_or_else(|| Sourced::default_value(usual))
}

/// All of `file` that `flags` do not name, and all of `flags`.
fn over<T: Clone>(flags: &[(String, Sourced<T>)], file: &[(String, Sourced<T>)]) -> Vec<(String, Sourced<T>)> {
    let kept = file.iter().filter(|(name, _)| flags.iter().all(|(other, _)| other != name));
    kept.chain(flags).cloned().collect()
}

fn admission_settings(name: AdmissionName, flags: &Choices, file: &Choices) -> AdmissionSettings {
    match name {
        AdmissionName::AlwaysAdmit => AdmissionSettings::AlwaysAdmit,
        AdmissionName::RejectAll => AdmissionSettings::RejectAll,
        AdmissionName::TokenBucket => AdmissionSettings::TokenBucket {
            capacity: first(&flags.token_bucket_capacity, &file.token_bucket_capacity, 10_000.0),
            refill_rate: first(&flags.token_bucket_refill_rate, &file.token_bucket_refill_rate, 1_000.0),
        },
        AdmissionName::TierShed => {
            // BLIS fills in 3 when it reads a bundle that names the policy, and only then.
            let in_bundle = file.admission.as_ref().is_some_and(|name| **name == AdmissionName::TierShed);
            AdmissionSettings::TierShed {
                threshold: first(&flags.tier_shed_threshold, &file.tier_shed_threshold, 0),
                min_priority: first(
                    &flags.tier_shed_min_priority,
                    &file.tier_shed_min_priority,
                    if in_bundle { 3 } else { 0 },
                ),
            }
        }
        AdmissionName::GaieLegacy => AdmissionSettings::GaieLegacy {
            queue_depth: first(&flags.gaie_qd_threshold, &file.gaie_qd_threshold, 5.0),
            kv_utilization: first(&flags.gaie_kv_threshold, &file.gaie_kv_threshold, 0.8),
        },
    }
}

/// The flags' list or pair, else the bundle's, else the usual list.
fn weights(flags: &Choices, file: &Choices) -> Weights {
    for said in [flags, file] {
        if let Some(scorers) = &said.scorers {
            return Weights::Scorers(scorers.clone());
        }
        if said.cache_weight.is_some() || said.load_weight.is_some() {
            return Weights::CacheAndLoad {
                cache: first(&said.cache_weight, &file.cache_weight, 0.0),
                load: first(&said.load_weight, &file.load_weight, 0.0),
            };
        }
    }
    Weights::Scorers(Scorer::USUAL.into_iter().map(Sourced::default_value).collect())
}

fn check_pair(cache: &Sourced<f64>, load: &Sourced<f64>) -> Result<(), Fault> {
    let given = if cache.source == Source::Default { load } else { cache };
    let sum = **cache + **load;
    if sum == 0.0 {
        return Err(Fault::new(&given.source, "the cache weight and the load weight are both 0", "raise one of them"));
    }
    if sum.is_finite() { Ok(()) } else { Err(Fault::new(&given.source, "the weights add up to infinity", TOO_LARGE)) }
}

impl Choices {
    /// What `word` says of `kind`: the built-in it names, if it names one.
    pub fn word<N>(&mut self, kind: Kind, word: Option<Sourced<Word<N>>>) -> Option<Sourced<N>> {
        let Sourced { value, source } = word?;
        match value {
            Word::BuiltIn(name) => Some(Sourced { value: name, source }),
            Word::Outside(name) => {
                self.plugins.push((kind, Sourced { value: name, source }));
                None
            }
        }
    }

    /// The same without a word about routing.
    #[must_use]
    pub fn without_routing(&self) -> Self {
        let mut choices = Self { routing: None, scorers: None, cache_weight: None, load_weight: None, ..self.clone() };
        choices.plugins.retain(|(kind, _)| *kind != Kind::Routing);
        choices.parameters.retain(|(kind, ..)| *kind != Kind::Routing);
        choices
    }

    fn plugin(&self, kind: Kind) -> Option<&Sourced<String>> {
        self.plugins.iter().find(|(other, _)| *other == kind).map(|(_, name)| name)
    }

    fn parameters(&self, kind: Kind) -> impl Iterator<Item = (String, Sourced<f64>)> + '_ {
        let parameters = self.parameters.iter().filter(move |(other, ..)| *other == kind);
        parameters.map(|(_, name, value)| (name.clone(), value.clone()))
    }

    fn names_built_in(&self, kind: Kind) -> bool {
        match kind {
            Kind::Admission => self.admission.is_some(),
            Kind::Routing => self.routing.is_some(),
            Kind::Priority => self.priority.is_some(),
            Kind::Scheduling => self.scheduler.is_some(),
            Kind::Preemption => self.preemption.is_some(),
            Kind::Latency => self.latency_is_built_in,
        }
    }

    /// Parameters must belong to the policy named beside them, or to the one that is `chosen`.
    fn check_admission(&self, chosen: AdmissionName) -> Result<(), Fault> {
        use AdmissionName::{GaieLegacy, TierShed, TokenBucket};
        let parameters = [
            ("token_bucket_capacity", TokenBucket, source(&self.token_bucket_capacity)),
            ("token_bucket_refill_rate", TokenBucket, source(&self.token_bucket_refill_rate)),
            ("tier_shed_threshold", TierShed, source(&self.tier_shed_threshold)),
            ("tier_shed_min_priority", TierShed, source(&self.tier_shed_min_priority)),
            ("gaie_qd_threshold", GaieLegacy, source(&self.gaie_qd_threshold)),
            ("gaie_kv_threshold", GaieLegacy, source(&self.gaie_kv_threshold)),
        ];
        for (key, owner, source) in parameters {
            check_owner(key, owner, source, self.admission.as_deref().copied(), chosen)?;
        }
        Ok(())
    }

    fn check_routing(&self, chosen: RoutingName) -> Result<(), Fault> {
        let scorers = self.scorers.as_ref().and_then(|scorers| scorers.first()).map(|scorer| &scorer.source);
        let parameters = [
            ("scorers", scorers),
            ("cache_weight", source(&self.cache_weight)),
            ("load_weight", source(&self.load_weight)),
        ];
        for (key, source) in parameters {
            check_owner(key, RoutingName::Weighted, source, self.routing.as_deref().copied(), chosen)?;
        }
        Ok(())
    }

    /// Scorers or the pair, not both.
    fn check_weights(&self) -> Result<(), Fault> {
        if self.scorers.is_none() {
            return Ok(());
        }
        let pair = [("cache_weight", source(&self.cache_weight)), ("load_weight", source(&self.load_weight))];
        for (key, source) in pair {
            if let Some(source) = source {
                let what = format!("{} cannot be used with a list of scorers", told(source, key));
                return Err(Fault::new(source, what, "in a list, kv-utilization and load-balance come next to it"));
            }
        }
        Ok(())
    }
}

fn source<T>(value: &Option<Sourced<T>>) -> Option<&Source> {
    value.as_ref().map(|value| &value.source)
}

/// `key` was given at `source` and only means something to `owner`.
fn check_owner<N: Named>(
    key: &str,
    owner: N,
    source: Option<&Source>,
    beside: Option<N>,
    chosen: N,
) -> Result<(), Fault> {
    let Some(source) = source else { return Ok(()) };
    if beside == Some(owner) || chosen == owner {
        return Ok(());
    }
    let (what, owner, chosen) = (N::WHAT, owner.name(), beside.unwrap_or(chosen).name());
    let told = told(source, key);
    Err(Fault::new(
        source,
        format!("{told} only makes sense with the {what} `{owner}`, not `{chosen}`"),
        format!("leave it out, or choose `{owner}`"),
    ))
}

/// What the user wrote: the flag, or the key.
fn told(source: &Source, key: &str) -> String {
    match source {
        Source::Flag(name) => format!("`{name}`"),
        _ => format!("`{key}`"),
    }
}

/// A contradiction, before it is known what the file looks like.
struct Fault {
    source: Source,
    what: String,
    hint: String,
}

impl Fault {
    fn new(source: &Source, what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { source: source.clone(), what: what.into(), hint: hint.into() }
    }

    fn told(self, bundle: Option<&Bundle>) -> PolicyError {
        let Self { source, what, hint } = self;
        match (source, bundle) {
            (Source::File(spot), Some(bundle)) => PolicyError::at(spot, bundle.text(), what, hint),
            _ => PolicyError::said(what, hint),
        }
    }
}
