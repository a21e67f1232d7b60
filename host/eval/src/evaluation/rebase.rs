//! The choice of a suite's reference: the best built-in policy for what candidates of the suite may decide.
//!
//! Combinations of built-in policies, one of each decided kind, are scored relative to the baseline on the scenarios of
//! train, under seeds that no stage has. The search changes one kind after the other and keeps the best, until nothing
//! gets better; priority and scheduling are changed together, because either alone has no effect. Combinations that
//! fail a gate are left out.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use rayon::prelude::*;

use super::context::EvaluationSuite;
use crate::cascade::{RunKey, RunSummary, ScoredRun, failed_gates, log_score};
use crate::error::RunError;
use crate::named_policy::JOINT;
use crate::suite::{RebaseRecord, Split, Suite};
use blis_config::policy::BuiltIn;
use blis_plugin::Kind;

/// Seeds of each scenario.
const SEEDS: u32 = 5;
/// Times that every kind is changed, at most.
const ROUNDS: usize = 4;
/// Number of policies written into the suite with their scores.
const RECORDED: usize = 6;

/// The best built-in policy of a suite.
#[derive(Clone, Debug, PartialEq)]
pub struct BestBuiltIn {
    /// Its name, as [`EvaluationSuite::named`] takes it.
    pub reference: String,
    /// Scores of all combinations that were tried and passed the gates, relative to the baseline, best first.
    pub scores: Vec<(String, f64)>,
    /// Combinations that failed a gate, with the first one that each failed.
    pub failed: Vec<(String, String)>,
    /// Number of simulations.
    pub runs: usize,
}

/// Searches the best built-in policy. `threads`: 0 for one per core.
///
/// # Errors
/// If a run fails, or no combination passes the gates.
pub fn best_built_in(prepared: &EvaluationSuite, threads: usize) -> Result<BestBuiltIn, RunError> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().map_err(RunError::runtime)?;
    pool.install(|| Search::new(prepared)?.run())
}

/// A policy of each kind that is not the default, in the order of the kinds.
type Combination = Vec<&'static BuiltIn>;

struct Search<'a> {
    prepared: &'a EvaluationSuite,
    /// Scenario and seed of each run.
    runs: Vec<RunKey>,
    baseline: Vec<RunSummary>,
    /// By name: the score, or the gate that failed.
    known: BTreeMap<String, Result<f64, String>>,
}

impl<'a> Search<'a> {
    fn new(prepared: &'a EvaluationSuite) -> Result<Self, RunError> {
        let suite = &prepared.suite;
        let scenarios = suite.scenarios_in(Split::Train);
        let seeds = |scenario: usize| {
            let seed = move |turn| suite.rebase_seed(&suite.scenarios[scenario].name, turn);
            (0..SEEDS).map(move |turn| RunKey { scenario, seed: seed(turn) })
        };
        let runs: Vec<RunKey> = scenarios.into_iter().flat_map(seeds).collect();
        let baseline = simulate(prepared, &suite.baseline, &runs)?;
        Ok(Self { prepared, runs, baseline, known: BTreeMap::new() })
    }

    fn run(mut self) -> Result<BestBuiltIn, RunError> {
        let mut best: Combination = Vec::new();
        self.score(&[best.clone()])?;
        for _ in 0..ROUNDS {
            let before = best.clone();
            for group in groups(&self.prepared.suite.decides) {
                let all = variants(&best, &group);
                self.score(&all)?;
                // The first of equal ones, which has the fewest policies that are not the default.
                for one in all {
                    if self.rank(&one) > self.rank(&best) * WORTHWHILE {
                        best = one;
                    }
                }
            }
            if name(&best) == name(&before) {
                break;
            }
        }
        self.finish(&best)
    }

    /// Scores those of `all` that are not known.
    fn score(&mut self, all: &[Combination]) -> Result<(), RunError> {
        let mut names: Vec<String> =
            all.iter().map(|one| name(one)).filter(|name| !self.known.contains_key(name)).collect();
        names.sort();
        names.dedup();
        let runs: Vec<_> = names.par_iter().map(|name| simulate(self.prepared, name, &self.runs)).collect();
        for (name, runs) in names.into_iter().zip(runs) {
            let score = self.relative(runs?);
            self.known.insert(name, score);
        }
        Ok(())
    }

    /// The score relative to the baseline, or the first gate that failed.
    fn relative(&self, runs: Vec<RunSummary>) -> Result<f64, String> {
        let suite = &self.prepared.suite;
        let scored = |((&at, summary), baseline): ((&RunKey, RunSummary), &RunSummary)| {
            ScoredRun::new(suite, at, summary, baseline.clone(), baseline.clone())
        };
        let scored: Vec<ScoredRun> = self.runs.iter().zip(runs).zip(&self.baseline).map(scored).collect();
        if let Some(gate) = failed_gates(suite, &scored).into_iter().next() {
            return Err(gate);
        }
        // Every scenario has as many seeds, so that this is the mean over scenarios of means over seeds.
        Ok((scored.iter().map(|one| log_score(one.score)).sum::<f64>() / scored.len().max(1) as f64).exp())
    }

    /// Orders combinations: those that fail a gate are below all others.
    fn rank(&self, combination: &[&'static BuiltIn]) -> f64 {
        match self.known.get(&name(combination)) {
            Some(Ok(score)) => *score,
            Some(Err(_)) | None => 0.0,
        }
    }

    fn finish(self, best: &Combination) -> Result<BestBuiltIn, RunError> {
        let runs = (self.known.len() + 1) * self.runs.len();
        let (mut scores, mut failed) = (Vec::new(), Vec::new());
        for (name, result) in self.known {
            match result {
                Ok(score) => scores.push((name, score)),
                Err(gate) => failed.push((name, gate)),
            }
        }
        if scores.is_empty() {
            return Err(RunError::runtime("every built-in policy fails a gate").hint("set wider `gates` in the suite"));
        }
        let reference = name(best);
        // The reference first, which others may exceed by chance; among equals those of the fewest policies.
        let order = |(name, score): &(String, f64)| {
            let parts = name.split(JOINT).count();
            (*name != reference, std::cmp::Reverse((score * 1e6).round() as u64), parts, name.clone())
        };
        scores.sort_by_cached_key(order);
        Ok(BestBuiltIn { reference, scores, failed, runs })
    }
}

/// A combination replaces one before it, which has fewer policies or was found before, only if its score is higher by this factor:
/// smaller differences are chance.
const WORTHWHILE: f64 = 1.001;

/// The summaries of the runs of a policy.
fn simulate(prepared: &EvaluationSuite, name: &str, runs: &[RunKey]) -> Result<Vec<RunSummary>, RunError> {
    let policy = prepared.named(name)?;
    let all: Vec<_> = runs.par_iter().map(|&at| prepared.run(&policy, at, &Arc::default())).collect();
    all.into_iter().collect()
}

/// Pairs of kinds that are changed together: what one of them is worth depends on the other.
const TOGETHER: [(Kind, Kind); 3] =
    [(Kind::Priority, Kind::Scheduling), (Kind::Saturation, Kind::Ceilings), (Kind::Fairness, Kind::Ordering)];

/// The kinds that are changed at a time.
fn groups(decides: &[Kind]) -> Vec<Vec<Kind>> {
    let mut groups: Vec<Vec<Kind>> = Vec::new();
    for kind in Kind::ALL.into_iter().filter(|kind| decides.contains(kind) && has_choices(*kind)) {
        let first = TOGETHER.iter().find(|(_, second)| *second == kind).map(|(first, _)| *first);
        match groups.iter_mut().find(|group| group.last().copied() == first) {
            Some(group) => group.push(kind),
            None => groups.push(vec![kind]),
        }
    }
    // Routing decides most: what follows is measured with the best of it.
    groups.sort_by_key(|group| !group.contains(&Kind::Routing));
    groups
}

/// Whether there are built-in policies to choose from by their kind: filters are steps of routing, and autoscalers have settings.
fn has_choices(kind: Kind) -> bool {
    kind.is_decision() && !kind.is_step() && kind != Kind::Scaling
}

/// `combination` with every choice of the policies of `kinds`.
fn variants(combination: &[&'static BuiltIn], kinds: &[Kind]) -> Vec<Combination> {
    let others = combination.iter().copied().filter(|row| !kinds.contains(&row.kind));
    let mut all: Vec<Combination> = vec![others.collect()];
    for &kind in kinds {
        let of_kind = BuiltIn::all().iter().filter(|row| row.kind == kind);
        let extended = of_kind.enumerate().flat_map(|(number, row)| {
            // The first is the default, which needs no name.
            all.iter().map(move |one| one.iter().copied().chain((number > 0).then_some(row)).collect::<Combination>())
        });
        all = extended.collect();
    }
    all.iter_mut().for_each(|one| one.sort_by_key(|row| Kind::ALL.iter().position(|kind| *kind == row.kind)));
    all.sort_by_key(Vec::len);
    all
}

/// The name as suites have it: `weighted + sjf`; that of the default routing policy for the defaults alone.
fn name(combination: &[&'static BuiltIn]) -> String {
    let of = |row: &&'static BuiltIn| match BuiltIn::named(row.name) {
        Ok(Some(named)) if std::ptr::eq(named, *row) => row.name.to_owned(),
        _ => row.full_name(),
    };
    if combination.is_empty() {
        let routing = BuiltIn::all().iter().find(|row| row.kind == Kind::Routing);
        return routing.map(|row| row.name.to_owned()).unwrap_or_default();
    }
    combination.iter().map(of).collect::<Vec<_>>().join(JOINT)
}

/// A suite with its new reference.
#[derive(Clone, Debug, PartialEq)]
pub struct RebasedSuite {
    /// The text of the file: as before but for the keys `version`, `reference` and `rebased`.
    pub text: String,
    /// The new version; that of `suite` if neither the reference nor a score has changed.
    pub version: u32,
}

/// The text of the file of `suite` with `best` as its reference. The version is raised if the reference or a recorded
/// score has changed: scores of different versions must not be compared.
///
/// # Errors
/// If the file is not written in a form that can be edited.
pub fn rebased(suite: &Suite, text: &str, best: &BestBuiltIn) -> Result<RebasedSuite, RunError> {
    let mut scores: Vec<(String, f64)> =
        best.scores.iter().map(|(name, score)| (name.clone(), rounded(*score))).collect();
    // What a policy does not change, as the order of equal priorities, is not written down again.
    scores.dedup_by_key(|(_, score)| *score);
    scores.truncate(RECORDED);
    let same = suite.reference == best.reference && suite.rebased.as_ref().is_some_and(|old| old.scores == scores);
    if same {
        return Ok(RebasedSuite { text: text.to_owned(), version: suite.version });
    }
    let version = suite.version + 1;
    let record = RebaseRecord { program: format!("blis {}", env!("CARGO_PKG_VERSION")), scores };
    let listed: Vec<String> = record.scores.iter().map(|(name, score)| format!("\"{name}\": {score}")).collect();
    let rebased = format!("{{program: {}, scores: {{{}}}}}", record.program, listed.join(", "));
    // New keys are written below the name: the last one comes first.
    let lines = [("rebased", rebased), ("reference", best.reference.clone()), ("version", version.to_string())];
    let text = lines.iter().fold(text.to_owned(), |text, (key, value)| with_key(&text, key, value));
    let expected = Suite { version, reference: best.reference.clone(), rebased: Some(record), ..suite.clone() };
    // Locations move with the lines, and the hash is that of the text.
    let same = |read: &Suite| {
        let scenarios = read.scenarios.iter().zip(&suite.scenarios);
        let located =
            scenarios.map(|(one, old)| crate::suite::Scenario { location: old.location.clone(), ..one.clone() });
        Suite { hash: suite.hash.clone(), scenarios: located.collect(), ..read.clone() } == expected
    };
    match Suite::parse(&suite.file, &text) {
        Ok(read) if same(&read) => Ok(RebasedSuite { text, version }),
        _ => Err(RunError::usage(format_args!("`{}` cannot be edited", suite.file)).hint(format_args!(
            "write its keys at the start of lines, or set `version: {version}` and `reference: {}` by hand",
            best.reference
        ))),
    }
}

/// A score as it is written down: three digits behind the point, within the range that suites may have.
fn rounded(score: f64) -> f64 {
    ((score * 1e3).round() / 1e3).min(1000.0)
}

/// `text` with the top-level key `key: value`: instead of the old line and the lines that continue it, or below the
/// key `name`.
fn with_key(text: &str, key: &str, value: &str) -> String {
    let starts = |line: &str, key: &str| line.strip_prefix(key).is_some_and(|rest| rest.starts_with(':'));
    let mut lines: Vec<&str> = text.lines().collect();
    let new = format!("{key}: {value}");
    match lines.iter().position(|line| starts(line, key)) {
        Some(at) => {
            let continued = |line: &&&str| line.starts_with([' ', '\t']);
            let end = at + 1 + lines[at + 1..].iter().take_while(continued).count();
            lines.splice(at..end, [new.as_str()]);
        }
        None => {
            let at = lines.iter().position(|line| starts(line, "name")).map_or(0, |at| at + 1);
            lines.insert(at, &new);
        }
    }
    lines.join("\n") + "\n"
}

/// The file of `suite`, which must not be built in.
///
/// # Errors
/// If it is built in: such a suite has no file.
pub fn file_of(name: &str) -> Result<&Path, RunError> {
    if Suite::built_in().iter().any(|known| known == name) {
        return Err(RunError::usage(format_args!("the suite `{name}` is built in and cannot be changed"))
            .hint(format_args!("name a file: its own is examples/suites/{name}.yaml in the repository")));
    }
    Ok(Path::new(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# A suite of ours.\nschema: 1\nname: small # short\n# Its weights:\nweights: mean_e2e:1\nrun:\n  rate: 5\n  model: qwen3-14b\nscenarios:\n  - {name: one, splits: [smoke, train]}\n";

    fn best(reference: &str, score: f64) -> BestBuiltIn {
        let scores = vec![(reference.to_owned(), score), ("round-robin".to_owned(), 1.0)];
        BestBuiltIn { reference: reference.to_owned(), scores, failed: Vec::new(), runs: 0 }
    }

    fn rebase(text: &str, best: &BestBuiltIn) -> RebasedSuite {
        rebased(&Suite::parse("s.yaml", text).expect("valid"), text, best).expect("editable")
    }

    #[test]
    fn only_three_keys_of_the_file_change() {
        let first = rebase(TEXT, &best("weighted + sjf", 1.23456));
        insta::assert_snapshot!(first.text.replace(env!("CARGO_PKG_VERSION"), "VERSION"), @r#"
        # A suite of ours.
        schema: 1
        name: small # short
        version: 2
        reference: weighted + sjf
        rebased: {program: blis VERSION, scores: {"weighted + sjf": 1.235, "round-robin": 1}}
        # Its weights:
        weights: mean_e2e:1
        run:
          rate: 5
          model: qwen3-14b
        scenarios:
          - {name: one, splits: [smoke, train]}
        "#);
        let again = rebase(&first.text, &best("weighted + sjf", 1.23456));
        assert_eq!(again, RebasedSuite { version: 2, ..first.clone() }, "nothing new");
        let other = rebase(&first.text, &best("weighted + sjf", 1.3));
        assert_eq!(other.version, 3, "another score: the models have changed");
        assert_eq!(other.text.lines().count(), first.text.lines().count());
        assert!(
            other.text.contains("version: 3\n") && other.text.contains("\"weighted + sjf\": 1.3,"),
            "{}",
            other.text
        );
    }

    #[test]
    fn a_form_that_cannot_be_edited_is_refused() {
        let text =
            "{schema: 1, name: small, weights: \"mean_e2e:1\", scenarios: [{name: one, splits: [smoke, train]}]}\n";
        let suite = Suite::parse("s.yaml", text).expect("valid");
        let error = rebased(&suite, text, &best("weighted", 2.0)).expect_err("one line");
        assert!(error.text().contains("`s.yaml` cannot be edited"), "{}", error.text());
    }

    #[test]
    fn every_kind_that_a_suite_may_decide_is_changed() {
        let decided = Kind::ALL.into_iter().filter(|kind| variants(&[], &[*kind]).len() > 1);
        let decided: Vec<Kind> = decided.filter(|kind| ![Kind::Latency, Kind::RoutingFilter].contains(kind)).collect();
        let mut changed = groups(&decided).concat();
        changed.sort_by_key(|kind| Kind::ALL.iter().position(|known| known == kind));
        assert_eq!(changed, decided, "a suite without one of them has no better reference than the default");
    }

    #[test]
    fn every_choice_of_a_group_is_a_variant_and_defaults_come_first() {
        let pairs = variants(&[], &[Kind::Priority, Kind::Scheduling]);
        let count = |kind| BuiltIn::all().iter().filter(|row| row.kind == kind).count();
        assert_eq!(pairs.len(), count(Kind::Priority) * count(Kind::Scheduling));
        assert_eq!(name(&pairs[0]), "round-robin");
        let names: std::collections::BTreeSet<String> = pairs.iter().map(|one| name(one)).collect();
        assert_eq!(names.len(), pairs.len(), "{names:?}");
        assert!(names.contains("slo-based + priority-fcfs"), "{names:?}");
        let sorted = groups(&[Kind::Scheduling, Kind::Fairness, Kind::Routing]);
        assert_eq!(sorted, [vec![Kind::Routing], vec![Kind::Scheduling], vec![Kind::Fairness]]);
        // `weighted` alone is a routing policy.
        let fair: Vec<String> = variants(&[], &[Kind::Fairness]).iter().map(|one| name(one)).collect();
        let expected =
            ["round-robin", "fairness/round-robin", "program-aware", "virtual-token-counter", "fairness/weighted"];
        assert_eq!(fair, expected);
    }
}
