//! A policy given by its name in a comparison: a routing policy (built in or a plugin), a list of scorers, or a
//! bundle, combined with the other settings of an experiment.

use std::path::{Path, PathBuf};

use crate::disaggregation;
use crate::error::RunError;
use crate::experiment::{Experiment, as_in_blis};
use crate::flow;
use crate::kv_cache;
use crate::scaling;
use crate::spec::parse;
use blis_config::policy::{
    Ambiguous, BuiltIn, Bundle, Choices, PluginLookup as _, PluginLookupError, PolicyError, PolicySettings,
    ScalingChoice, SettingSource, Sourced,
};
use blis_plugin::Kind;

/// Where the policies come from that the named policy does not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherPolicies {
    /// They are those of the configuration.
    Kept,
    /// They are the defaults: a baseline must not inherit the policies that it is compared with.
    Defaults,
}

impl Experiment {
    /// The same experiment with `name` as its policy. Flags of the command line still win over a bundle.
    pub fn with_policy(&self, name: &str, others: OtherPolicies) -> Result<Self, RunError> {
        let (policies, warnings) = as_in_blis(self.policies_of(name, others)?, self.spec.parity());
        let mut config = Self { warnings, ..self.clone() };
        config.engine.follow(&policies);
        config.cluster.policies = policies;
        Ok(config)
    }

    /// The same experiment with the policies `names`: as [`Self::with_policy`] takes it, or built-in policies of any
    /// kinds, joined by ` + `, as `weighted + sjf`. What they do not decide is kept.
    pub fn with_policies(&self, names: &str) -> Result<Self, RunError> {
        let parts: Vec<&str> = names.split(JOINT).map(str::trim).collect();
        let only_routing =
            |part: &str| !BuiltIn::named(part).is_ok_and(|row| row.is_some_and(|row| row.kind != Kind::Routing));
        if let ([part], true) = (&parts[..], only_routing(parts[0])) {
            return self.with_policy(part, OtherPolicies::Kept);
        }
        let mut choices = self.choices.clone();
        for part in parts {
            let row = built_in(part)?;
            let source = SettingSource::Other(format!("policy {part}").into());
            choices = choices.without(row.kind).with(row.kind, Sourced { value: row.name.to_owned(), source });
        }
        let policies = PolicySettings::choose(&choices, self.bundle.as_ref(), &*self.catalog);
        let mut config = self.clone();
        let policies = policies.map_err(|error: PolicyError| RunError::refused(error))?;
        flow::check(&policies, &self.spec)?;
        scaling::check_policies(&policies, self.cluster.scaling.as_ref())?;
        kv_cache::check(&policies, &self.spec)?;
        disaggregation::check_policy(&policies, self.cluster.disaggregation.as_ref())?;
        config.engine.follow(&policies);
        config.cluster.policies = policies;
        Ok(config)
    }

    fn policies_of(&self, policy: &str, others: OtherPolicies) -> Result<PolicySettings, RunError> {
        let source = || SettingSource::Other(format!("policy {policy}").into());
        let routed_by = |name: &str, choices: Choices| {
            choices.with(Kind::Routing, Sourced { value: name.to_owned(), source: source() })
        };
        let usage = |error: PolicyError| RunError::refused(error);
        let base = self.choices.without(Kind::Routing);
        if BuiltIn::find(Kind::Routing, policy).is_some() {
            return self.routed(&routed_by(policy, base), others).map_err(usage);
        }
        let located = match &self.spec.beside {
            Some(beside) => beside
                .find(Path::new(policy))
                .map_err(|message| RunError::usage(format_args!("`{policy}` {message}")))?,
            _ => PathBuf::from(policy),
        };
        let file = located.as_path();
        if policy.contains(':') && !file.exists() {
            let list = parse::scorers(policy)
                .map_err(|message| RunError::usage(format_args!("`{policy}` is not a list of scorers: {message}")))?;
            let scorers = list.0.into_iter().map(|scorer| Sourced { value: scorer, source: source() });
            let choices = routed_by("weighted", Choices { scorers: Some(scorers.collect()), ..base });
            return self.routed(&choices, others).map_err(usage);
        }
        if file.is_file() && !is_plugin(file) {
            let bundle = Bundle::load(file).map_err(RunError::refused)?;
            // All candidates have the same service, and the same number of replicas or what decides it.
            if bundle.choices().has_deployment {
                return Err(RunError::usage(format_args!("`{policy}` has a section `deployment`"))
                    .hint("candidates are policies of one service: leave it out of the bundle, and set it for all with `--config FILE`"));
            }
            if let Some(ScalingChoice { name, .. }) = &bundle.choices().scaling {
                return Err(RunError::usage(format_args!("`{policy}` names the autoscaler `{}`", **name))
                    .hint(format!("name it for all candidates: `--autoscaler {}`", **name)));
            }
            if let Some((flag, value)) = bundle.choices().disaggregation_settings().into_iter().next() {
                return Err(RunError::usage(format_args!(
                    "`{policy}` sets `{}` of instances by role",
                    flag.replace('-', "_")
                ))
                .hint(format!("set it for all candidates: `--{flag} {}`", value.value)));
            }
            let flags = match others {
                OtherPolicies::Kept => self.choices.clone(),
                OtherPolicies::Defaults => Choices::default(),
            };
            let settings = PolicySettings::choose(&flags, Some(&bundle), &*self.catalog).map_err(usage)?;
            // The deployment, and with it the latency model, is the same for all candidates.
            let of_bundle = |(_, value): &&(String, Sourced<f64>)| matches!(value.source, SettingSource::File(_));
            if let Some((name, _)) = settings.latency_parameters.iter().find(of_bundle) {
                return Err(RunError::usage(format_args!("`{policy}` sets `{name}` of the latency model"))
                    .hint(format!("set it for all candidates: `--policy-param latency.{name}=VALUE`")));
            }
            return Ok(settings);
        }
        if let Err(PluginLookupError::Unknown { hint }) = self.catalog.plugin(Kind::Routing, policy) {
            return Err(RunError::usage(format_args!("`{policy}` is neither a routing policy nor a file")).hint(hint));
        }
        self.routed(&routed_by(policy, base), others).map_err(usage)
    }

    fn routed(&self, choices: &Choices, others: OtherPolicies) -> Result<PolicySettings, PolicyError> {
        let catalog = &*self.catalog;
        match others {
            OtherPolicies::Kept => PolicySettings::choose(choices, self.bundle.as_ref(), catalog),
            OtherPolicies::Defaults => {
                // The requests, and the engine that serves them, are the same for all policies.
                let kept = [Kind::Routing, Kind::Scheduling, Kind::Preemption, Kind::Latency];
                let choices = choices.only(&kept);
                PolicySettings::choose(&choices, None, catalog)
            }
        }
    }
}

/// Joins names of policies of several kinds.
pub const JOINT: &str = " + ";

/// The built-in policy called `name`, of any kind but the latency model.
fn built_in(name: &str) -> Result<&'static BuiltIn, RunError> {
    let found = BuiltIn::named(name).map_err(|Ambiguous { what, hint }| RunError::usage(what).hint(hint))?;
    let decides = found.filter(|row| row.kind != Kind::Latency);
    decides.ok_or_else(|| {
        RunError::usage(format_args!("`{name}` is no built-in policy"))
            .hint("`blis plugin list` names them; only built-in policies can be joined by ` + `")
    })
}

/// Whether the extension of `file` is that of a plugin.
fn is_plugin(file: &Path) -> bool {
    let extension = file.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    ["rhai", "wasm", "so", "dylib", "dll"].contains(&extension)
}
