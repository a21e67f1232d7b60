//! Records: what a policy is claimed to be worth on the held-out scenarios of a suite, and whether that is so.
//!
//! ```yaml
//! schema: 1
//! about: uncached prompt tokens in flight, less twice the cached tokens of the prompt
//! suite: shared-prefix            # built in, or a file beside the record
//! suite_version: 2
//! policy: found.rhai              # beside the record
//! sha256: 0d7c…                   # of the policy
//! held_out: {score: 1.1166, low: 1.0993, high: 1.1342}
//! better_than: [token-aware, weighted]
//! found: {command: blis search shared-prefix --seed 1, seed: 1, number: 203, evaluations: 1304, cpu_s: 664}
//! ```

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use blis_diag::yaml::{self, ABOVE_0, Document, FROM_0, Spanned, Word, explain};
use blis_diag::{Diagnostic, Location, quoted};
use blis_plugin::Technology;
use blis_report::{Concludes, Conclusion, ConclusionKind};
use include_dir::{Dir, include_dir};
use serde::{Deserialize, Serialize};

use super::candidate::{self, CandidatePolicy};
use super::context::EvaluationSuite;
use super::held_out::{self, HeldOutReport, ScoreRatio};
use crate::error::RunError;
use crate::suite::{Suite, hint_of_built_in};

/// Longer files are refused as records.
const BYTES_MAX: u64 = 1 << 20;

/// The records that are built into the program, a folder each.
static RECORDS: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../../examples/discoveries");
/// The file of a record in its folder.
const FILE: &str = "record.yaml";

/// A claim about a policy on a suite.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyRecord {
    /// The name or file, as messages name it.
    pub name: String,
    pub about: String,
    /// A built-in suite, or the path of one.
    pub suite: String,
    pub suite_version: u32,
    /// SHA-256 of the policy, hexadecimal.
    pub sha256: String,
    pub held_out: Interval,
    /// Policies of the suite that the policy is better than: the interval of the ratio of the scores lies above 1.
    pub better_than: Vec<String>,
    pub found: RecordOrigin,
    policy: CandidateFile,
}

/// A score with its 95 % confidence interval; 1 is as good as the reference of the suite.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// 1 is as good as the reference. Unit: score.
    pub score: f64,
    /// Lower limit. Unit: score.
    pub low: f64,
    /// Upper limit. Unit: score.
    pub high: f64,
}

/// How a policy was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordOrigin {
    /// The command of the search.
    pub command: String,
    /// Seed of the search. Unit: number.
    pub seed: u64,
    /// Number of its evaluation. Unit: number.
    pub number: u64,
    /// Evaluations of the search. Unit: evaluations.
    pub evaluations: u64,
    /// CPU time of the search. Unit: s, 0 or more.
    pub cpu_s: f64,
}

/// The policy of a record.
#[derive(Clone, Debug, PartialEq)]
struct CandidateFile {
    file: String,
    bytes: Vec<u8>,
}

/// What `blis evaluate --record` prints with `--output json`.
#[derive(Debug, Serialize, Deserialize)]
pub struct RecordResult {
    /// Name or file of the record.
    record: String,
    /// The policy in a line; may be empty.
    about: String,
    /// File of the policy, in the folder of the record.
    policy: String,
    /// Name of the suite.
    suite: String,
    /// Version of the suite. Unit: number, 1 or more.
    suite_version: u32,
    /// The policy with the score 1.
    reference: String,
    /// Seeds of each held-out scenario; 0 if nothing was evaluated. Unit: seeds.
    seeds: usize,
    /// The score that the record claims.
    recorded: Interval,
    /// The score on the held-out scenarios; `null` if nothing was evaluated because policy or suite are others than
    /// those of the record, or without an interval.
    measured: Option<Interval>,
    /// Policies that it claims to be better than; empty if nothing was evaluated.
    better_than: Vec<RecordComparison>,
    /// How the policy was found, as the record has it.
    found: RecordOrigin,
    /// Why the record does not hold, a line each.
    failed: Vec<String>,
    /// Policy and suite are those of the record, the recorded score is within the measured interval, and the policy is
    /// better than all of `better_than`.
    holds: bool,
}

/// The score of the policy relative to that of another one.
#[derive(Debug, Serialize, Deserialize)]
struct RecordComparison {
    /// Name of the other policy.
    name: String,
    /// Ratio − 1; the ratio is the geometric mean over scenarios of those over seeds. Unit: share.
    mean: f64,
    /// 95 % confidence interval of it; `null` without one. Unit: share.
    ci95: Option<[f64; 2]>,
    /// Whether the interval lies above 0.
    holds: bool,
}

impl Concludes for RecordResult {
    fn conclusion(&self) -> Conclusion {
        let Interval { score, low, high } = &self.recorded;
        let claim = format!("{score:.3} × [{low:.3}, {high:.3}] the reference {}", self.reference);
        match &self.measured {
            _ if self.holds => {
                let better = self.better_than.len();
                let text = format!("The record holds: {claim}; better than the {better} that it names");
                Conclusion::new(ConclusionKind::Holds, text)
            }
            _ => {
                let why = self.failed.first().map_or("without a reason", String::as_str);
                Conclusion::new(ConclusionKind::Fails, format!("The record does not hold ({claim}): {why}"))
            }
        }
    }
}

impl PolicyRecord {
    /// The record in the file `name`, or the built-in one of that name.
    ///
    /// # Errors
    /// If there is none, or it is not valid, with the location; if its policy cannot be read.
    pub fn open(name: &str) -> Result<Self, RunError> {
        if let Some(text) = RECORDS.get_file(Path::new(name).join(FILE)).and_then(|file| file.contents_utf8()) {
            let policy = |file: &str| {
                let found = RECORDS.get_file(Path::new(name).join(file));
                found.map(|file| file.contents().to_vec()).ok_or_else(|| format!("`{name}` has no file `{file}`"))
            };
            let file = format!("examples/discoveries/{name}/{FILE}");
            return PolicyRecordReader(Document { file: file.as_str().into(), text }).record(
                name,
                Path::new(""),
                policy,
            );
        }
        let path = PathBuf::from(name);
        if path.symlink_metadata().is_err() {
            return Err(unknown(name));
        }
        let unreadable = |error: std::io::Error| {
            RunError::usage(format_args!("the record `{name}` cannot be read: {error}"))
                .hint("a record is a YAML file: see docs/evaluate.md")
        };
        let text = blis_diag::read_text(&path, BYTES_MAX).map_err(unreadable)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let policy = |file: &str| {
            blis_diag::read_bytes(&folder.join(file), candidate::BYTES_MAX)
                .map_err(|error| format!("`{file}` cannot be read: {error}"))
        };
        PolicyRecordReader(Document { file: name.into(), text: &text }).record(name, folder, policy)
    }

    /// The names of the built-in records, sorted.
    #[must_use]
    pub fn built_in() -> Vec<String> {
        let folders = RECORDS.dirs().filter(|folder| folder.get_file(folder.path().join(FILE)).is_some());
        let mut names: Vec<String> = folders.map(|folder| folder.path().display().to_string()).collect();
        names.sort();
        names
    }

    /// Whether policy and suite are those of the record: why not, a line each.
    fn differences(&self, suite: &Suite, policy: &CandidatePolicy) -> Vec<String> {
        let mut all = Vec::new();
        if policy.sha256 != self.sha256 {
            all.push(format!("the policy is another one: its SHA-256 is {}", policy.sha256));
        }
        if suite.version != self.suite_version {
            all.push(format!(
                "the suite has version {}: scores of different versions cannot be compared",
                suite.version
            ));
        }
        all
    }

    /// Evaluates the policy on the held-out scenarios, unless policy or suite are others than those of the record. `threads`: 0
    /// for one per core.
    ///
    /// # Errors
    /// If the suite has no held-out scenarios, the policy cannot be loaded, or a run fails.
    pub fn check(&self, prepared: &EvaluationSuite, threads: usize) -> Result<RecordResult, RunError> {
        let CandidateFile { file, bytes } = &self.policy;
        let technology = Technology::of(Path::new(file)).unwrap_or(Technology::Script);
        let policy = CandidatePolicy::new(file.clone(), technology, bytes.clone());
        let suite = &prepared.suite;
        let failed = self.differences(suite, &policy);
        let mut result = RecordResult {
            record: self.name.clone(),
            about: self.about.clone(),
            policy: file.clone(),
            suite: suite.name.clone(),
            suite_version: suite.version,
            reference: suite.reference.clone(),
            seeds: 0,
            recorded: self.held_out,
            measured: None,
            better_than: Vec::new(),
            found: self.found.clone(),
            holds: failed.is_empty(),
            failed,
        };
        if result.holds {
            let report = held_out::report_of(prepared, &[policy], threads)?;
            self.compare(&mut result, &report);
        }
        Ok(result)
    }

    /// Adds what was measured to `result`.
    fn compare(&self, result: &mut RecordResult, report: &HeldOutReport) {
        result.seeds = report.seeds();
        let ratios = report.candidate().map_or(&[][..], |(_, against)| against);
        let of = |name: &str| ratios.iter().find(|ratio| ratio.name == name);
        let measured = of(&result.reference).and_then(|ratio| {
            let [low, high] = ratio.ci95?;
            Some(Interval { score: 1.0 + ratio.mean, low: 1.0 + low, high: 1.0 + high })
        });
        result.measured = measured;
        match measured {
            None => result
                .failed
                .push("the score has no interval: too few runs differ from those of the reference".to_owned()),
            Some(Interval { low, high, .. }) if !(low..=high).contains(&self.held_out.score) => {
                let Interval { score, .. } = self.held_out;
                result
                    .failed
                    .push(format!("the recorded score {score:.4} is outside of the interval that was measured"));
            }
            Some(_) => {}
        }
        for name in &self.better_than {
            let Some(ScoreRatio { mean, ci95, .. }) = of(name) else {
                result.failed.push(format!("`{name}` is no reference policy of the suite"));
                continue;
            };
            let holds = ci95.is_some_and(|[low, _]| low > 0.0);
            if !holds {
                result.failed.push(format!("it is not shown to be better than `{name}`"));
            }
            result.better_than.push(RecordComparison { name: name.clone(), mean: *mean, ci95: *ci95, holds });
        }
        result.holds = result.failed.is_empty();
    }
}

fn unknown(name: &str) -> RunError {
    let hint = hint_of_built_in(name, &PolicyRecord::built_in());
    RunError::usage(format_args!("there is no record {}", quoted(name.as_bytes()))).hint(hint)
}

impl RecordResult {
    /// Whether policy and suite are those of the record, the recorded score is within the interval that was measured, and the policy
    /// is better than those that the record names.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.holds
    }

    /// A summary for the terminal.
    #[must_use]
    pub fn text(&self) -> String {
        let RecordOrigin { command, number, evaluations, cpu_s, .. } = &self.found;
        let interval = |one: &Interval| format!("{:.4} ({:.4} to {:.4})", one.score, one.low, one.high);
        let measured = self.measured.as_ref().map_or("not evaluated".to_owned(), interval);
        let mut text = format!(
            "Record            {}\nPolicy            {}: {}\nSuite             {} version {}, held-out scenarios; 1 is as good as {}\n\
             Found             {command}: number {number} of {evaluations}, {cpu_s:.0} s of CPU time\n\
             Recorded score    {}\nMeasured score    {measured}\n",
            self.record,
            self.policy,
            self.about,
            self.suite,
            self.suite_version,
            self.reference,
            interval(&self.recorded),
        );
        for (index, RecordComparison { name, mean, ci95, .. }) in self.better_than.iter().enumerate() {
            let label = if index == 0 { "Better than" } else { "" };
            let percent = |share: f64| format!("{:+.2} %", 100.0 * share);
            let compared = match ci95 {
                Some([low, high]) => format!("({} to {})", percent(*low), percent(*high)),
                None => "without an interval".to_owned(),
            };
            // Writing to a text does not fail.
            let _ = writeln!(text, "{label:<18}{name:<20}{:>11} {compared}", percent(*mean));
        }
        let _ = match self.holds {
            true => writeln!(text, "\nThe record holds."),
            false => writeln!(text, "\nThe record does not hold: {}.", self.failed.join("; ")),
        };
        text
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRecord {
    schema: Word,
    about: Option<String>,
    suite: Word,
    suite_version: Word,
    policy: Word,
    sha256: Word,
    held_out: RawInterval,
    better_than: Vec<Word>,
    found: RawOrigin,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawInterval {
    score: Word,
    low: Word,
    high: Word,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawOrigin {
    command: Spanned<String>,
    seed: Word,
    number: Word,
    evaluations: Word,
    cpu_s: Word,
}

/// Parses the values of a record, and reports mistakes with their locations.
struct PolicyRecordReader<'a>(Document<'a>);

impl PolicyRecordReader<'_> {
    /// The record called `name` in `folder`; `policy` reads a file beside it.
    fn record(
        &self,
        name: &str,
        folder: &Path,
        policy: impl Fn(&str) -> Result<Vec<u8>, String>,
    ) -> Result<PolicyRecord, RunError> {
        let refused = |diagnostic: Diagnostic| RunError::refused(diagnostic);
        let raw: Option<RawRecord> = self.0.read().map_err(|error| refused(self.yaml(&error)))?;
        let Some(raw) = raw else {
            let empty = Diagnostic::in_text(Location::start(self.0.file.clone()), self.0.text, "the record is empty");
            return Err(refused(empty.hint("see examples/discoveries/shared-prefix/record.yaml")));
        };
        self.values(raw, name, folder, policy).map_err(refused)
    }

    fn values(
        &self,
        raw: RawRecord,
        name: &str,
        folder: &Path,
        policy: impl Fn(&str) -> Result<Vec<u8>, String>,
    ) -> Result<PolicyRecord, Diagnostic> {
        if raw.schema.value != "1" {
            let what = format!("records of schema {} are not supported", quoted(raw.schema.value.as_bytes()));
            return Err(self.0.wrong(raw.schema.referenced, what, "this program reads `schema: 1`"));
        }
        let missing = |what: String| {
            self.0.wrong(raw.policy.referenced, what, "`policy` is the name of a file in the folder of the record")
        };
        let bytes = policy(&raw.policy.value).map_err(missing)?;
        let suite = match Suite::built_in().contains(&raw.suite.value) {
            true => raw.suite.value,
            false => folder.join(&raw.suite.value).display().to_string(),
        };
        Ok(PolicyRecord {
            name: name.to_owned(),
            about: raw.about.unwrap_or_default().trim().to_owned(),
            suite,
            suite_version: self.0.whole("a version", &raw.suite_version, 1..=1_000_000)?,
            sha256: raw.sha256.value,
            held_out: self.interval(&raw.held_out)?,
            better_than: raw.better_than.into_iter().map(|word| word.value).collect(),
            found: self.origin(&raw.found)?,
            policy: CandidateFile { file: raw.policy.value, bytes },
        })
    }

    fn interval(&self, raw: &RawInterval) -> Result<Interval, Diagnostic> {
        let number = |name: &str, word: &Word| self.0.number(name, word, ABOVE_0);
        let (score, low, high) =
            (number("a score", &raw.score)?, number("a limit", &raw.low)?, number("a limit", &raw.high)?);
        if !(low..=high).contains(&score) {
            let what = format!("the score {score} is not between {low} and {high}");
            return Err(self.0.wrong(raw.score.referenced, what, "`low` and `high` are the limits of its interval"));
        }
        Ok(Interval { score, low, high })
    }

    fn origin(&self, raw: &RawOrigin) -> Result<RecordOrigin, Diagnostic> {
        let whole = |name: &str, word: &Word| self.0.whole(name, word, 0..=u64::from(u32::MAX));
        Ok(RecordOrigin {
            command: raw.command.value.trim().to_owned(),
            seed: whole("a seed", &raw.seed)?,
            number: whole("a number", &raw.number)?,
            evaluations: whole("a number of evaluations", &raw.evaluations)?,
            cpu_s: self.0.number("a time", &raw.cpu_s, FROM_0)?,
        })
    }

    fn yaml(&self, error: &yaml::Error) -> Diagnostic {
        let (what, hint) = explain(error);
        let location = error.location().map_or_else(|| Location::start(self.0.file.clone()), |at| self.0.location(at));
        Diagnostic::in_text(location, self.0.text, what).hint(hint)
    }
}
