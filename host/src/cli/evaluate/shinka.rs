//! `blis evaluate shinka-evaluate`: the program that ShinkaEvolve starts for each candidate, with its spelling of flags.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use blis_eval::error::RunError;
use blis_eval::evaluation::candidate::CandidatePolicy;
use blis_eval::evaluation::context::EvaluationSuite;
use blis_eval::evaluation::isolated;
use blis_eval::evaluation::options::{EvaluationOptions, NativeCode};
use blis_eval::evaluation::shinka::{correct, metrics};
use blis_eval::result::EvaluationStatus;
use blis_plugin::Technology;
use clap::Args;

use super::super::counts::feedback_bytes;
use super::super::grant_flags::GrantFlags;
use super::super::workers::{default_worker_settings, run_cache};
use super::candidates::{StageName, patterns};

#[derive(Debug, Args)]
pub(in crate::cli) struct ShinkaArgs {
    /// Candidate: a Rhai script, unless its name ends with .wasm
    #[arg(long = "program_path", value_name = "FILE")]
    program_path: String,
    /// Folder for metrics.json and correct.json
    #[arg(long = "results_dir", value_name = "DIR")]
    results_dir: PathBuf,
    /// Suite of scenarios: chat, shared-prefix, agentic, stale-signals, slo-tiers, long-context, gateway, tenants, overload, kv-eviction, kv-offload, disaggregation, or a file
    #[arg(long, value_name = "SUITE", default_value = "chat")]
    suite: String,
    /// Last stage for a candidate that passes the earlier ones: smoke or train. Prompts show the score, so select is
    /// for the end of a search
    #[arg(long, value_enum, value_name = "STAGE", default_value_t = StageName::Train)]
    stage: StageName,
    /// Epoch: other seeds for each number [default: one for every ten generations, by the folder gen_N in --results_dir]
    #[arg(long, value_name = "N")]
    epoch: Option<u64>,
    /// Maximum feedback, bytes
    #[arg(long = "feedback_bytes", alias = "feedback-bytes", value_name = "N", default_value_t = 8000, value_parser = feedback_bytes)]
    feedback_bytes: usize,
    /// Patterns over N decisions of each kind, 128 if no number is given: where they are wrong, by which signal, and what the best
    /// reference policy would do; 0 for none. Takes about half as long again as an evaluation in train
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_value_t = 0, default_missing_value = "128",
        value_parser = patterns)]
    patterns: u32,
    #[command(flatten)]
    grants: GrantFlags,
}

/// Generations of ShinkaEvolve with the same epoch, so that candidates close to each other serve the same requests.
const GENERATIONS_PER_EPOCH: u64 = 10;

pub(super) fn shinka(args: &ShinkaArgs) -> Result<(), RunError> {
    if args.stage == StageName::Select {
        return Err(RunError::usage("the scores of select would become part of prompts").hint(
            "search with `--stage train`; at the end, `blis evaluate FILE --stage select` chooses among the best policies",
        ));
    }
    let suite = EvaluationSuite::new(args.grants.open(&args.suite)?)?;
    let suite = suite.with_run_cache(run_cache().as_deref());
    let is_component = args.program_path.ends_with(".wasm");
    let lang = if is_component { Technology::Component } else { Technology::Script };
    let candidate = CandidatePolicy::read(&args.program_path, Some(lang))?;
    let options = EvaluationOptions {
        until: args.stage.into(),
        epoch: args.epoch.unwrap_or_else(|| epoch_of(&args.results_dir)),
        train_seeds: None,
        wall: Duration::from_secs_f64(suite.suite.limits.wall_s),
        feedback_bytes: args.feedback_bytes,
        patterns: args.patterns,
        decisions: 0,
        parallel: true,
        only: None,
        parameters: Vec::new(),
        native: NativeCode::Refused,
    };
    let document = isolated::start(&suite, &candidate, None, &options, None, &default_worker_settings(None))?.wait();
    let cannot = |error: std::io::Error| {
        RunError::runtime(format_args!("cannot write into `{}`: {error}", args.results_dir.display()))
    };
    fs::create_dir_all(&args.results_dir).map_err(cannot)?;
    for (name, value) in [("metrics.json", metrics(&document)), ("correct.json", correct(&document))] {
        let text = serde_json::to_vec_pretty(&value).map_err(RunError::runtime)?;
        fs::write(args.results_dir.join(name), text).map_err(cannot)?;
    }
    match document.status {
        EvaluationStatus::HostError => {
            Err(RunError::runtime("the candidate could not be evaluated").hint(document.artifacts.error))
        }
        _ => Ok(()),
    }
}

/// The epoch of the generation that a path of ShinkaEvolve names, as in `run/gen_12/results`; 0 for other paths.
fn epoch_of(results_dir: &Path) -> u64 {
    let mut folders =
        results_dir.iter().filter_map(|folder| folder.to_str()?.strip_prefix("gen_")?.parse::<u64>().ok());
    folders.next_back().unwrap_or(0) / GENERATIONS_PER_EPOCH
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_have_epochs() {
        let epochs = ["run/gen_9/results", "run/gen_10/results", "gen_3/run/gen_42/results", "out"];
        assert_eq!(epochs.map(|path| epoch_of(Path::new(path))), [0, 1, 4, 0]);
    }
}
