//! Who is compared with whom: a routing policy, a list of scorers, or a bundle, on top of everything
//! else that a configuration says.

use std::path::Path;

use super::config::{RunConfig, as_in_blis};
use super::error::Failure;
use super::parse;
use crate::config::policy::{Bundle, Choices, Named as _, PolicyError, PolicySettings, RoutingName, Source, Sourced};

/// What becomes of the policies that a contestant given by name does not name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Others {
    /// They are those of the configuration.
    Kept,
    /// They are the defaults: a baseline must not inherit what it is there to judge.
    Defaults,
}

impl RunConfig {
    /// The same configuration with `contestant` in the place of its policies. Flags that were typed
    /// still win over a bundle.
    pub(super) fn with_contestant(&self, contestant: &str, others: Others) -> Result<Self, Failure> {
        let (policies, warnings) = as_in_blis(self.policies_of(contestant, others)?, self.engine.semantics);
        let mut config = Self { warnings, ..self.clone() };
        config.engine.follow(&policies);
        config.cluster.policies = policies;
        Ok(config)
    }

    fn policies_of(&self, contestant: &str, others: Others) -> Result<PolicySettings, Failure> {
        let routed = |choices: Choices| match others {
            Others::Kept => PolicySettings::choose(&choices, self.bundle.as_ref()),
            Others::Defaults => PolicySettings::choose(
                &Choices {
                    routing: choices.routing,
                    scorers: choices.scorers,
                    scheduler: choices.scheduler,
                    preemption: choices.preemption,
                    ..Choices::default()
                },
                None,
            ),
        };
        let base = Choices { scorers: None, cache_weight: None, load_weight: None, ..self.choices.clone() };
        let source = || Source::Told(format!("contestant {contestant}").into());
        let told = |name| Some(Sourced { value: name, source: source() });
        let usage = |error: PolicyError| Failure::usage(error);
        if let Some(name) = RoutingName::find(contestant) {
            return routed(Choices { routing: told(name), ..base }).map_err(usage);
        }
        if contestant.contains(':') && !Path::new(contestant).exists() {
            let list = parse::scorers(contestant)
                .map_err(|told| Failure::usage(format_args!("`{contestant}` is no list of scorers: {told}")))?;
            let scorers = list.0.into_iter().map(|scorer| Sourced { value: scorer, source: source() });
            let choices = Choices { routing: told(RoutingName::Weighted), scorers: Some(scorers.collect()), ..base };
            return routed(choices).map_err(usage);
        }
        if !Path::new(contestant).exists() {
            let hint = RoutingName::hint(contestant);
            return Err(
                Failure::usage(format_args!("`{contestant}` is neither a routing policy nor a file")).hint(hint)
            );
        }
        let bundle = Bundle::load(Path::new(contestant)).map_err(Failure::usage)?;
        let flags = match others {
            Others::Kept => self.choices.clone(),
            Others::Defaults => Choices::default(),
        };
        PolicySettings::choose(&flags, Some(&bundle)).map_err(usage)
    }
}
