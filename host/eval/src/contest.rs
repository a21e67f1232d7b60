//! Who is compared with whom: a routing policy (built in or a plugin), a list of scorers, or a bundle,
//! on top of everything else that a configuration says.

use std::path::Path;

use crate::error::Failure;
use crate::experiment::{Experiment, as_in_blis};
use crate::spec::parse;
use blis_config::policy::{
    BuiltIn, Bundle, Choices, PluginLookup as _, PluginLookupError, PolicyError, PolicySettings, SettingSource, Sourced,
};
use blis_plugin::Kind;

/// What becomes of the policies that a contestant given by name does not name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// They are those of the configuration.
    Kept,
    /// They are the defaults: a baseline must not inherit what it is there to judge.
    Defaults,
}

impl Experiment {
    /// The same configuration with `contestant` in the place of its policies. Flags that were typed
    /// still win over a bundle.
    pub fn with_contestant(&self, contestant: &str, others: Others) -> Result<Self, Failure> {
        let (policies, warnings) = as_in_blis(self.policies_of(contestant, others)?, self.engine.semantics);
        let mut config = Self { warnings, ..self.clone() };
        config.engine.follow(&policies);
        config.cluster.policies = policies;
        Ok(config)
    }

    fn policies_of(&self, contestant: &str, others: Others) -> Result<PolicySettings, Failure> {
        let source = || SettingSource::Other(format!("contestant {contestant}").into());
        let routed_by = |name: &str, choices: Choices| {
            choices.with(Kind::Routing, Sourced { value: name.to_owned(), source: source() })
        };
        let usage = |error: PolicyError| Failure::refused(error);
        let base = self.choices.without(Kind::Routing);
        if BuiltIn::find(Kind::Routing, contestant).is_some() {
            return self.routed(&routed_by(contestant, base), others).map_err(usage);
        }
        let file = Path::new(contestant);
        if contestant.contains(':') && !file.exists() {
            let list = parse::scorers(contestant)
                .map_err(|told| Failure::usage(format_args!("`{contestant}` is no list of scorers: {told}")))?;
            let scorers = list.0.into_iter().map(|scorer| Sourced { value: scorer, source: source() });
            let choices = routed_by("weighted", Choices { scorers: Some(scorers.collect()), ..base });
            return self.routed(&choices, others).map_err(usage);
        }
        if file.is_file() && !is_plugin(file) {
            let bundle = Bundle::load(file).map_err(Failure::refused)?;
            let flags = match others {
                Others::Kept => self.choices.clone(),
                Others::Defaults => Choices::default(),
            };
            let settings = PolicySettings::choose(&flags, Some(&bundle), &*self.catalog).map_err(usage)?;
            // The deployment, and with it the latency model, is the same for all candidates.
            let of_bundle = |(_, value): &&(String, Sourced<f64>)| matches!(value.source, SettingSource::File(_));
            if let Some((name, _)) = settings.latency_parameters.iter().find(of_bundle) {
                return Err(Failure::usage(format_args!("`{contestant}` sets `{name}` of the latency model"))
                    .hint(format!("set it for all candidates: `--policy-param latency.{name}=VALUE`")));
            }
            return Ok(settings);
        }
        if let Err(PluginLookupError::Unknown { hint }) = self.catalog.plugin(Kind::Routing, contestant) {
            return Err(
                Failure::usage(format_args!("`{contestant}` is neither a routing policy nor a file")).hint(hint)
            );
        }
        self.routed(&routed_by(contestant, base), others).map_err(usage)
    }

    fn routed(&self, choices: &Choices, others: Others) -> Result<PolicySettings, PolicyError> {
        let catalog = &*self.catalog;
        match others {
            Others::Kept => PolicySettings::choose(choices, self.bundle.as_ref(), catalog),
            Others::Defaults => {
                // The requests, and the engine that serves them, are the same for all.
                let kept = [Kind::Routing, Kind::Scheduling, Kind::Preemption, Kind::Latency];
                let choices = choices.only(&kept);
                PolicySettings::choose(&choices, None, catalog)
            }
        }
    }
}

/// By its name.
fn is_plugin(file: &Path) -> bool {
    let extension = file.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    ["rhai", "wasm", "so", "dylib", "dll"].contains(&extension)
}
