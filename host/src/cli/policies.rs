//! What a command that runs several policies says of each.

use blis_eval::error::RunError;
use blis_eval::experiment::Experiment;
use blis_eval::explain::explain;
use blis_eval::open;

use super::output::print;

/// The configuration under each policy, for `--explain-config`.
pub(super) fn explain_policies(policies: &[(String, Experiment)]) -> Result<(), RunError> {
    let page =
        |(name, config): &(String, Experiment)| Ok(format!("# {name}\n{}", explain(config, &open::resolve(config)?)));
    print(policies.iter().map(page).collect::<Result<Vec<_>, RunError>>()?.join("---\n"))
}

/// The warnings about the settings of each policy.
pub(super) fn warn_of_policies(policies: &[(String, Experiment)]) {
    for (name, experiment) in policies {
        experiment.warnings.iter().for_each(|(what, hint)| tracing::warn!("{name}: {what} (hint: {hint})"));
    }
}
