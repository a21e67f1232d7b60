//! `blis regret`: counterfactual regret of sampled decisions.

use blis_eval::counterfactual::{BoundReport, LookAheadReport, RegretExtras, RegretReport, survey};
use blis_eval::envelope::Envelope;
use blis_eval::error::RunError;
use blis_eval::experiment::{Experiment, OutputFiles};
use blis_eval::regret::Regret;
use blis_eval::spec::RegretName;
use blis_report::{Concludes, Conclusion};
use clap::Args;
use serde::Serialize;

use super::envelope::print_result;
use super::progress::Spinner;
use super::run_args::{REGRET, RunArgs};

#[derive(Debug, Args)]
pub(super) struct RegretArgs {
    #[command(flatten)]
    run: RunArgs,
    /// Clairvoyant bound: also the latencies that no policy undercuts, from relaxations of the run
    #[arg(long, help_heading = REGRET)]
    bound: bool,
    /// Look-ahead: also run the workload with every routing decision chosen by simulating alternatives with the policy
    /// itself; an improvement of this policy, no bound of others
    #[arg(long, help_heading = REGRET)]
    look_ahead: bool,
}

/// `blis regret`.
pub(super) fn dispatch(args: RegretArgs) -> Result<(), RunError> {
    let RegretArgs { run, bound, look_ahead } = args;
    run.output.begin();
    let form = run.output.output;
    if run.files() != OutputFiles::default() {
        return Err(RunError::usage("`blis regret` writes no results or exports of the run")
            .hint("`blis run … --regret outcome` does; `--regret-path` writes the sampled decisions"));
    }
    let mut spec = run.spec()?;
    spec.regret = Some(RegretName::Outcome);
    let config = Experiment::new(spec, OutputFiles::default())?;
    let spinner = Spinner::start("sampling decisions", run.output.no_progress);
    let surveyed = survey(&config, RegretExtras { look_ahead, bound });
    drop(spinner);
    let RegretReport { regret, look_ahead, bound, warnings } = surveyed?;
    for (what, hint) in warnings {
        tracing::warn!("{what} (hint: {hint})");
    }
    let extras = [bound.as_ref().map(BoundReport::text), look_ahead.as_ref().map(LookAheadReport::text)];
    let extras: String = extras.into_iter().flatten().map(|text| format!("\n{text}")).collect();
    let text = format!("{regret}{extras}");
    let about = Envelope::of_service(&config, &[config.seed], &[])?;
    print_result(form, &RegretDocument { regret, bound, look_ahead }, &about, text)
}

impl Concludes for RegretDocument {
    fn conclusion(&self) -> Conclusion {
        self.regret.conclusion()
    }
}

/// What `blis regret` prints with `--output json`.
#[derive(Serialize)]
struct RegretDocument {
    /// Regret of the sampled decisions.
    regret: Regret,
    /// The policy beside a bound, with `--bound`.
    #[serde(skip_serializing_if = "Option::is_none")]
    bound: Option<BoundReport>,
    /// The policy beside a look-ahead, with `--look-ahead`.
    #[serde(skip_serializing_if = "Option::is_none")]
    look_ahead: Option<LookAheadReport>,
}
