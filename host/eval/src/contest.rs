//! Who is compared with whom: a routing policy (built in or a plugin), a list of scorers, or a bundle,
//! on top of everything else that a configuration says.

use std::path::Path;

use crate::experiment::{Experiment, as_in_blis};
use crate::error::Failure;
use crate::spec::parse;
use blis_config::policy::{
    Bundle, Choices, Named as _, Outside as _, PolicyError, PolicySettings, RoutingName, Source, Sourced, Unusable,
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
        let source = || Source::Told(format!("contestant {contestant}").into());
        let told = |name| Some(Sourced { value: name, source: source() });
        let usage = |error: PolicyError| Failure::refused(error);
        let base = self.choices.without_routing();
        if let Some(name) = RoutingName::find(contestant) {
            return self.routed(Choices { routing: told(name), ..base }, others).map_err(usage);
        }
        let file = Path::new(contestant);
        if contestant.contains(':') && !file.exists() {
            let list = parse::scorers(contestant)
                .map_err(|told| Failure::usage(format_args!("`{contestant}` is no list of scorers: {told}")))?;
            let scorers = list.0.into_iter().map(|scorer| Sourced { value: scorer, source: source() });
            let choices = Choices { routing: told(RoutingName::Weighted), scorers: Some(scorers.collect()), ..base };
            return self.routed(choices, others).map_err(usage);
        }
        if file.is_file() && !is_plugin(file) {
            let bundle = Bundle::load(file).map_err(Failure::refused)?;
            let flags = match others {
                Others::Kept => self.choices.clone(),
                Others::Defaults => Choices::default(),
            };
            return PolicySettings::choose(&flags, Some(&bundle), &*self.catalog).map_err(usage);
        }
        if let Err(Unusable::Unknown { hint }) = self.catalog.plugin(Kind::Routing, contestant) {
            return Err(
                Failure::usage(format_args!("`{contestant}` is neither a routing policy nor a file")).hint(hint)
            );
        }
        let mut choices = base;
        choices.plugins.push((Kind::Routing, Sourced { value: contestant.to_owned(), source: source() }));
        self.routed(choices, others).map_err(usage)
    }

    fn routed(&self, choices: Choices, others: Others) -> Result<PolicySettings, PolicyError> {
        let catalog = &*self.catalog;
        match others {
            Others::Kept => PolicySettings::choose(&choices, self.bundle.as_ref(), catalog),
            Others::Defaults => {
                // The requests, and the engine that serves them, are the same for all.
                let kept = [Kind::Routing, Kind::Scheduling, Kind::Preemption, Kind::Latency];
                let choices = Choices {
                    routing: choices.routing,
                    scorers: choices.scorers,
                    scheduler: choices.scheduler,
                    preemption: choices.preemption,
                    latency_is_built_in: choices.latency_is_built_in,
                    plugins: choices.plugins.into_iter().filter(|(kind, _)| kept.contains(kind)).collect(),
                    parameters: choices.parameters.into_iter().filter(|(kind, ..)| kept.contains(kind)).collect(),
                    ..Choices::default()
                };
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
