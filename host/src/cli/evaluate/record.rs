//! `blis evaluate --record`: whether a claim about a policy holds.

use std::num::NonZeroUsize;
use std::time::Duration;

use blis_eval::envelope::Envelope;
use blis_eval::error::RunError;
use blis_eval::evaluation::context::EvaluationSuite;
use blis_eval::evaluation::record::PolicyRecord;
use blis_eval::worker::{self, TimeLimit};

use super::super::envelope::print_result;
use super::super::output::start_log;
use super::super::progress::Spinner;
use super::super::workers::{run_cache, worker_settings};
use super::candidates::EvaluateArgs;

/// Exit code of a record that does not hold: that of a candidate that failed a gate.
const DOES_NOT_HOLD: u8 = 5;

/// Evaluates the policy of the record `name` again. The exit code is 0 if the record holds.
pub(super) fn check(args: &EvaluateArgs, name: &str) -> Result<(), RunError> {
    start_log(args.log.into());
    let record = PolicyRecord::open(name)?;
    let suite = EvaluationSuite::new(args.grants.open(&record.suite)?)?;
    let suite = suite.with_run_cache(run_cache().as_deref());
    let threads = args.threads.map_or(0, NonZeroUsize::get);
    let limit = TimeLimit::BetweenSimulations(Duration::from_secs_f64(suite.suite.limits.wall_s));
    let settings = worker_settings(args.threads, args.worker_memory_gib);
    let worker = worker::start(&settings, limit, || record.check(&suite, threads))?;
    let spinner = Spinner::start("evaluating on the held-out split", false);
    let result = worker.wait().map_err(|failure| failure.error("a simulation"));
    drop(spinner);
    let result = result??;
    let about = Envelope::in_words(format!("{name} on the held-out scenarios of {}", record.suite));
    print_result(args.output, &result, &about, result.text())?;
    if result.holds() { Ok(()) } else { Err(RunError::status(DOES_NOT_HOLD)) }
}
