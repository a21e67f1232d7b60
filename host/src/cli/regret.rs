//! `blis regret`: counterfactual regret of sampled decisions.

use blis_eval::counterfactual::{LookAheadBound, RegretReport, survey};
use blis_eval::error::RunError;
use blis_eval::experiment::{Experiment, OutputFiles};
use blis_eval::regret::Regret;
use blis_eval::spec::RegretName;
use clap::Args;
use serde::Serialize;

use super::args::{REGRET, RunArgs};
use super::output::{print_document, print_text, start_log, wants_text_form};
use super::progress::Spinner;

#[derive(Debug, Args)]
pub(super) struct RegretArgs {
    #[command(flatten)]
    run: RunArgs,
    /// Oracle: also run the workload with every routing decision chosen by look-ahead, a bound for better policies
    #[arg(long, help_heading = REGRET)]
    oracle: bool,
}

/// `blis regret`.
pub(super) fn dispatch(args: RegretArgs) -> Result<(), RunError> {
    let RegretArgs { run, oracle } = args;
    start_log(run.output.log.into());
    let form = run.output.output;
    if run.files() != OutputFiles::default() {
        return Err(RunError::usage("`blis regret` writes no results or exports of the run")
            .hint("`blis run … --regret outcome` does; `--regret-path` writes the sampled decisions"));
    }
    let mut spec = run.spec()?;
    spec.regret = Some(RegretName::Outcome);
    let config = Experiment::new(spec, OutputFiles::default())?;
    let spinner = Spinner::start("sampling decisions", run.output.no_progress);
    let surveyed = survey(&config, oracle);
    drop(spinner);
    let RegretReport { regret, bound, warnings } = surveyed?;
    for (what, hint) in warnings {
        tracing::warn!("{what} (hint: {hint})");
    }
    if wants_text_form(form) {
        print_text(&regret)?;
        bound.map_or(Ok(()), |bound| print_text(format_args!("\n{}", bound.text())))
    } else {
        print_document(&Printed { regret, oracle: bound })
    }
}

#[derive(Serialize)]
struct Printed {
    regret: Regret,
    #[serde(skip_serializing_if = "Option::is_none")]
    oracle: Option<LookAheadBound>,
}
