//! Evaluation of one candidate. It always produces a document: errors are part of it.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::bench::{Bench, Sitting};
use super::cache::{self, Cache};
use super::candidate::Candidate;
use super::native;
use super::terms::{NativeCode, Terms, host, pulled};
use crate::cancel::{Hand, Pull};
use crate::cascade::{Course, Judgement, Who, judge, judge_part};
use crate::error::Failure;
use crate::feedback::{self, Lesson};
use crate::suite::Split;
use crate::timer::Timer;
use crate::verdict::{CostDocument, Hashes, Status, Traits, VerdictDocument};
use blis_plugin::{FaultKind, Technology};

/// The more severe status of two.
pub fn worse(one: Status, other: Status) -> Status {
    const BLAME: [Status; 6] =
        [Status::HostError, Status::Rejected, Status::Trap, Status::Limit, Status::GateFailed, Status::Ok];
    BLAME.into_iter().find(|&status| status == one || status == other).unwrap_or(Status::Ok)
}

/// Compares two evaluations of the same candidate. A difference is a defect of the program.
pub fn verify(document: &mut VerdictDocument, again: &VerdictDocument) {
    if document.clocked || again.clocked {
        tracing::warn!("not compared: time was up (`--wall-s` gives more)");
        return;
    }
    if document.hashes.result != again.hashes.result {
        let (one, two) = (&document.hashes.result, &again.hashes.result);
        let told = format!("two evaluations differ: {one} and {two}; please report it with the candidate");
        document.status = Status::HostError;
        document.combined_score = 0.0;
        document.artifacts.error = told;
    }
}

/// As [`evaluate`], but reads the result from `cache` if it is there. Results that depend on the clock, and host
/// errors, are not stored.
pub fn evaluate_known(
    bench: &Bench,
    candidate: &Candidate,
    incumbent: Option<&Candidate>,
    terms: &Terms,
    hand: &Arc<Hand>,
    cache: Option<&Cache>,
) -> VerdictDocument {
    let Some(cache) = cache else { return evaluate(bench, candidate, incumbent, terms, hand) };
    let start = Instant::now();
    let key = cache::key(bench, candidate, incumbent, terms);
    if let Some(mut document) = cache.get(&key) {
        let wall_ms = start.elapsed().as_secs_f64() * 1e3;
        document.cost = CostDocument { cache: "hit".to_owned(), wall_ms, cpu_ms: 0.0, ops: document.cost.ops };
        return document;
    }
    let document = evaluate(bench, candidate, incumbent, terms, hand);
    if document.status != Status::HostError && !document.clocked {
        cache.put(&key, &document);
    }
    document
}

/// Evaluates `candidate`. Never fails: errors are part of the document.
pub fn evaluate(
    bench: &Bench,
    candidate: &Candidate,
    incumbent: Option<&Candidate>,
    terms: &Terms,
    hand: &Arc<Hand>,
) -> VerdictDocument {
    let _span = tracing::debug_span!("candidate", sha256 = &candidate.sha256[..8]).entered();
    let start = Instant::now();
    let timer = if terms.parallel { Timer::start() } else { Timer::of_thread() };
    let in_child = candidate.technology == Technology::Native && terms.native == NativeCode::InChild;
    let mut document = if in_child {
        native::evaluate(bench, candidate, terms, hand)
    } else {
        let _watch = Watch::new(hand, terms.wall);
        judged(bench, candidate, incumbent, terms, hand).unwrap_or_else(|document| *document)
    };
    if hand.pulled() == Some(Pull::Cancelled) {
        document = pulled(Pull::Cancelled, candidate.traits());
    }
    if document.status == Status::Limit && hand.pulled() == Some(Pull::Late) {
        document.stopped = Some(format!("it took more than {} s", terms.wall.as_secs_f64()));
    }
    let cpu_ms = if in_child { document.cost.cpu_ms } else { timer.elapsed().as_secs_f64() * 1e3 };
    let mut document = finish(document, &candidate.sha256, bench, terms.feedback_bytes);
    document.cost = CostDocument {
        cpu_ms,
        wall_ms: start.elapsed().as_secs_f64() * 1e3,
        cache: "miss".to_owned(),
        ops: document.cost.ops,
    };
    document
}

/// Adds the hashes of the inputs, and cuts the texts to `feedback_bytes`.
pub fn finish(mut document: VerdictDocument, candidate: &str, bench: &Bench, feedback_bytes: usize) -> VerdictDocument {
    feedback::cut(&mut document.artifacts, feedback_bytes.max(LEAST_BYTES));
    document.hashes =
        Hashes { candidate: candidate.to_owned(), suite: bench.hash().to_owned(), host: host(), result: String::new() };
    document.sealed()
}

/// Bytes that the error text may use even if `feedback_bytes` is smaller.
const LEAST_BYTES: usize = 500;

/// A candidate that is compiled and configured.
pub struct Ready<'a> {
    pub sitting: Sitting<'a>,
    pub traits: Traits,
}

/// Compiles and configures a candidate. The error is the document of a candidate that cannot run.
pub fn ready<'a>(
    bench: &'a Bench,
    candidate: &Candidate,
    incumbent: Option<&Candidate>,
    terms: &Terms,
    hand: &Arc<Hand>,
) -> Result<Ready<'a>, Box<VerdictDocument>> {
    let suite = &bench.suite;
    let traits = candidate.traits();
    let failed = |who: Who, failure: &Failure| Box::new(invalid(who, failure, traits, hand));
    let loaded = match terms.native {
        NativeCode::Here => candidate.load_here(&suite.limits),
        NativeCode::InChild | NativeCode::Refused => candidate.load(&suite.limits),
    };
    let loaded = loaded.map_err(|fault| failed(Who::Candidate, &Failure::from(fault)))?;
    let kinds = &loaded.plugin.description().kinds;
    if !suite.decides.iter().any(|kind| kinds.contains(kind)) {
        let names: Vec<&str> = suite.decides.iter().map(|kind| kind.name()).collect();
        let told = format!("it decides nothing that this suite asks for: {}", names.join(", "));
        return Err(Box::new(VerdictDocument::invalid(Status::Rejected, told, traits)));
    }
    let player = bench.candidate(&loaded, &terms.parameters).map_err(|failure| failed(Who::Candidate, &failure))?;
    let baseline = bench.named(&suite.baseline).map_err(|failure| failed(Who::Baseline, &failure))?;
    let incumbent = incumbent.map(|incumbent| {
        let loaded = incumbent.load(&suite.limits).map_err(Failure::from)?;
        bench.candidate(&loaded, &[])
    });
    let incumbent = incumbent.transpose().map_err(|failure| failed(Who::Incumbent, &failure))?;
    let (hand, parallel) = (Arc::clone(hand), terms.parallel);
    Ok(Ready { sitting: Sitting { bench, candidate: player, baseline, incumbent, hand, parallel }, traits })
}

/// Runs the cascade. The error is the document of a candidate without a score.
fn judged(
    bench: &Bench,
    candidate: &Candidate,
    incumbent: Option<&Candidate>,
    terms: &Terms,
    hand: &Arc<Hand>,
) -> Result<VerdictDocument, Box<VerdictDocument>> {
    let suite = &bench.suite;
    let Ready { sitting, traits } = ready(bench, candidate, incumbent, terms, hand)?;
    let course = Course { until: terms.until, epoch: terms.epoch, incumbent: sitting.incumbent.is_some() };
    let judgement = match &terms.only {
        Some(part) => judge_part(suite, part, &sitting),
        None => judge(suite, &course, &sitting),
    };
    let judgement = judgement.map_err(|(who, failure)| Box::new(invalid(who, &failure, traits, hand)))?;
    let mut document = VerdictDocument::of(suite, &judgement, traits);
    document.cost.ops = judgement.stages.iter().flat_map(|stage| &stage.runs).map(|one| one.facts.operations).sum();
    if terms.feedback_bytes > 0 {
        let lesson = lesson(&sitting, &judgement, &mut document);
        feedback::tell(&mut document, suite, &judgement, lesson.as_ref(), terms.feedback_bytes);
    }
    Ok(document)
}

/// Decisions that the feedback samples for their regret.
const SAMPLES: u32 = 24;
/// Operations that the regret of decisions may use, as a multiple of those of the evaluation.
const LESSON_SHARE: u64 = 3;

/// The regret of decisions in the worst run of the stages that the feedback shows. If it cannot be computed,
/// `document` gets the reason.
fn lesson(sitting: &Sitting<'_>, judgement: &Judgement, document: &mut VerdictDocument) -> Option<Lesson> {
    let shown = judgement.stages.iter().rfind(|stage| stage.split != Split::Select)?;
    let worst = shown.runs.iter().min_by(|one, other| one.score.total_cmp(&other.score))?;
    let Sitting { bench, candidate, hand, .. } = sitting;
    let budget = document.cost.ops.saturating_mul(LESSON_SHARE);
    let at = (worst.scenario, worst.seed);
    let look = || bench.lesson(candidate, at, SAMPLES, worst.facts.operations, (hand, budget));
    let found = if hand.is_pulled() { None } else { Some(look()) };
    let (clocked, why) = match found {
        Some(Ok(Some(lesson))) => return Some(lesson),
        Some(Ok(None)) => (false, "each takes too many operations to make some of them again in copies of the run"),
        // Which of several failing branches fails first depends on the threads, so all failures get the same text.
        Some(Err(failure)) if !hand.is_pulled() && !is_late(&failure) => {
            (false, "the candidate failed, or took too many operations, when they were made again in copies of the run")
        }
        _ => (true, "time was up"),
    };
    document.clocked |= clocked;
    document.artifacts.worst_decisions = format!("Decisions were not looked at: {why}\n");
    None
}

/// Whether a limit of clock time caused the error.
fn is_late(failure: &Failure) -> bool {
    failure.fault().is_some_and(|fault| fault.kind == FaultKind::OutOfTime)
}

/// The document of a candidate after a failed run of `role`.
pub fn invalid(who: Who, failure: &Failure, traits: Traits, hand: &Arc<Hand>) -> VerdictDocument {
    if let Some(why) = hand.pulled() {
        // Whichever policy was running: all runs belong to the evaluation of the candidate.
        return pulled(why, traits);
    }
    let status = match (who, failure.fault()) {
        (Who::Candidate, Some(fault)) => status_of(fault.kind),
        _ => Status::HostError,
    };
    // The message of the plugin only: the hints of the program name flags that a candidate cannot set.
    let told = match (status, failure.fault()) {
        (Status::HostError, _) | (_, None) => failure.text(),
        (_, Some(fault)) => format!("{}: {}", fault.kind.name(), fault.diagnostic),
    };
    let mut document = VerdictDocument::invalid(status, told, traits);
    document.clocked = is_late(failure);
    document
}

fn status_of(fault: FaultKind) -> Status {
    match fault {
        FaultKind::OutOfFuel | FaultKind::OutOfTime | FaultKind::OutOfMemory | FaultKind::TooDeep => Status::Limit,
        FaultKind::Trap | FaultKind::NotANumber | FaultKind::OutOfRange => Status::Trap,
        FaultKind::Unreadable
        | FaultKind::Syntax
        | FaultKind::VersionSkew
        | FaultKind::ForbiddenImport
        | FaultKind::MissingExport
        | FaultKind::Refused
        | FaultKind::NotAllowed => Status::Rejected,
    }
}

/// Cancels an evaluation after its wall limit, unless it is dropped before.
struct Watch {
    // Dropping the sender ends the thread.
    stop: Option<mpsc::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Watch {
    fn new(hand: &Arc<Hand>, wall: Duration) -> Self {
        let (stop, stopped) = mpsc::channel::<()>();
        let pulls = Arc::clone(hand);
        let thread = std::thread::spawn(move || {
            if stopped.recv_timeout(wall) == Err(mpsc::RecvTimeoutError::Timeout) {
                pulls.pull(Pull::Late);
            }
        });
        Self { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.stop.take());
        // The thread has no operation that panics.
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blis_plugin::Fault;

    #[test]
    fn the_worst_status_is_told_whatever_the_order() {
        assert_eq!(worse(Status::Ok, Status::GateFailed), Status::GateFailed);
        assert_eq!(worse(Status::Trap, Status::Limit), Status::Trap);
        assert_eq!(worse(Status::HostError, Status::Ok), Status::HostError);
        assert_eq!(worse(Status::Ok, Status::Ok), Status::Ok);
    }

    /// Regression: a wall limit that passed during a run of the baseline was reported as a host error.
    #[test]
    fn a_pulled_hand_is_a_limit_whoever_was_running() {
        let failure = Failure::runtime("a policy ended the simulation");
        for who in [Who::Candidate, Who::Baseline, Who::Incumbent] {
            let hand: Arc<Hand> = Arc::default();
            hand.pull(Pull::Late);
            hand.pull(Pull::Cancelled);
            let document = invalid(who, &failure, Traits::default(), &hand);
            assert_eq!((document.status, document.clocked), (Status::Limit, true));
        }
        let hand: Arc<Hand> = Arc::default();
        hand.pull(Pull::Cancelled);
        assert_eq!(invalid(Who::Candidate, &failure, Traits::default(), &hand).status, Status::HostError);
    }

    /// Ten seconds of one machine are not those of another, so the result must not be cached.
    #[test]
    fn a_call_that_took_too_long_depends_on_the_clock() {
        let of = |kind: FaultKind| {
            let failure = Failure::from(Fault::new(kind, "it took more than 10 s"));
            let document = invalid(Who::Candidate, &failure, Traits::default(), &Arc::default());
            (document.status, document.clocked)
        };
        assert_eq!(of(FaultKind::OutOfTime), (Status::Limit, true));
        assert_eq!(of(FaultKind::OutOfFuel), (Status::Limit, false));
    }
}
