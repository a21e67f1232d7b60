//! The archive of a search: one SQLite file with its settings, every evaluation, and the parents of every program.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;

use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::grammar::PatternSignal;
use super::program::Program;
use super::rung::Rung;
use super::variation::Operation;
use super::{decision_table, proposal_table};
use crate::cascade::log_score;
use crate::error::RunError;
use crate::result::{EvaluationResult, EvaluationStatus, ScenarioDocument};
use crate::suite::Split;

/// The part of a search that an evaluation belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::EnumString, strum::IntoStaticStr)]
#[strum(const_into_str, serialize_all = "kebab-case")]
pub(super) enum Phase {
    /// Each column alone, then what the inputs are.
    Inputs,
    Search,
    Control,
    /// Parts of the best program left out.
    Reduction,
    Select,
    ControlSelect,
    /// As [`Self::Select`], under seeds of other epochs: the batch is the number of the epoch after that of the search.
    OtherSeeds,
}

/// Where an evaluation stands in the archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ArchiveKey {
    pub phase: Phase,
    /// Number of its batch in the phase.
    pub batch: usize,
    /// Number of the evaluation in the phase.
    pub number: usize,
}

/// The evaluations that are sent together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RungBatch {
    pub phase: Phase,
    /// Number of the batch in the phase.
    pub batch: usize,
    /// How far its programs are evaluated.
    pub rung: Rung,
}

impl RungBatch {
    /// Where the evaluation `number` of the batch stands.
    pub const fn key(self, number: usize) -> ArchiveKey {
        ArchiveKey { phase: self.phase, batch: self.batch, number }
    }
}

/// A program with its origin.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Candidate {
    pub program: Program,
    pub operation: Operation,
    /// Numbers of the evaluations of its parents in [`Phase::Search`].
    pub parents: [Option<usize>; 2],
}

/// What an evaluation found, as far as a search reads it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct SearchOutcome {
    /// As in evaluation results: `ok`, `gate_failed` …
    pub status: String,
    /// 0 if invalid; 1 to 2 after smoke, 2 to 3 after train, 3 to 4 after select.
    pub combined_score: f64,
    /// 1 is as good as the reference; 0 if the stage did not run.
    pub smoke_score: f64,
    pub train_score: f64,
    pub select_score: f64,
    /// Coefficient of variation of the requests per instance.
    pub imbalance: f64,
    pub cache_hit_rate: f64,
    pub rejected_share: f64,
    pub mean_ttft_ms: f64,
    pub p99_ttft_ms: f64,
    pub mean_e2e_ms: f64,
    /// The score by which it goes on from smoke: 0 if it failed there. What fails in train keeps it.
    pub promotion: f64,
    /// The score of train under the first seed of each scenario: 0 if it failed there. What fails in the whole of train keeps it.
    pub first_seed_score: f64,
    /// CPU time of all its stages, ms: differs from run to run.
    pub cpu_ms: f64,
    /// Why it has no score; empty if it has one.
    pub error: String,
    /// Its runs in train and select.
    pub runs: Vec<RunScore>,
    /// The signals that patterns over its decisions name, if they are asked for.
    pub patterns: Vec<PatternSignal>,
}

/// The score of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct RunScore {
    pub stage: String,
    pub scenario: String,
    pub seed: u64,
    /// 1 is as good as the reference.
    pub score: f64,
}

impl SearchOutcome {
    pub fn new(result: &EvaluationResult) -> Self {
        let metrics = &result.metrics;
        let status = serde_json::to_value(result.status).ok();
        let outcome = Self {
            status: status.as_ref().and_then(|status| status.as_str()).unwrap_or_default().to_owned(),
            combined_score: result.combined_score,
            smoke_score: metrics.smoke_score,
            train_score: metrics.train_score,
            select_score: result.private.score.unwrap_or(0.0),
            imbalance: result.features.imbalance,
            cache_hit_rate: metrics.cache_hit_rate,
            rejected_share: metrics.rejected_share,
            mean_ttft_ms: metrics.mean_ttft_ms,
            p99_ttft_ms: metrics.p99_ttft_ms,
            mean_e2e_ms: metrics.mean_e2e_ms,
            promotion: if result.combined_score > 0.0 { metrics.smoke_score } else { 0.0 },
            first_seed_score: 0.0,
            cpu_ms: result.cost.cpu_ms,
            error: if result.status == EvaluationStatus::Ok { String::new() } else { result.artifacts.error.clone() },
            runs: runs(result),
            patterns: pattern_signals(result),
        };
        Self { first_seed_score: outcome.mean_of_first_seeds(), ..outcome }
    }

    /// The geometric mean of the scores under the first seed of each scenario of train; 0 without a score of train.
    fn mean_of_first_seeds(&self) -> f64 {
        if !self.has_train_score() {
            return 0.0;
        }
        let scores = self.first_seed_logs();
        (scores.iter().sum::<f64>() / scores.len().max(1) as f64).exp()
    }

    /// ln of the score under the first seed of each scenario of train, by name of the scenario.
    pub fn first_seed_logs(&self) -> Vec<f64> {
        let mut scores: BTreeMap<&str, f64> = BTreeMap::new();
        for run in self.runs.iter().filter(|run| run.stage == Split::Train.into_str()) {
            scores.entry(&run.scenario).or_insert_with(|| log_score(run.score));
        }
        scores.into_values().collect()
    }

    /// Whether it has a score of train, or of its first seed.
    pub fn has_train_score(&self) -> bool {
        self.combined_score >= 2.0
    }
}

/// How far a program was evaluated, and what was found.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RungResult {
    pub rung: Rung,
    pub outcome: SearchOutcome,
}

impl RungResult {
    /// Its score in the whole of train; `None` if it was not evaluated there, or has none.
    pub fn whole_train_score(&self) -> Option<f64> {
        (self.rung >= Rung::Train && self.outcome.has_train_score()).then_some(self.outcome.train_score)
    }
}

/// The signals of all rules, and those by which the best alternatives differ from the choices.
fn pattern_signals(result: &EvaluationResult) -> Vec<PatternSignal> {
    let mut all: Vec<PatternSignal> = Vec::new();
    for of_kind in &result.patterns {
        let better = of_kind.better_alternative.iter().map(|better| (&better.signal, Some(!better.prefers_lower)));
        for (signal, rises) in better.chain(of_kind.rules.iter().map(|rule| (&rule.signal, None))) {
            if !all.iter().any(|one| one.kind == of_kind.kind && one.signal == *signal) {
                all.push(PatternSignal { kind: of_kind.kind.clone(), signal: signal.clone(), rises });
            }
        }
    }
    all
}

fn runs(result: &EvaluationResult) -> Vec<RunScore> {
    let trained = result.scenarios.iter().filter(|run| run.stage == Split::Train.into_str());
    let score = |run: &ScenarioDocument| RunScore {
        stage: run.stage.clone(),
        scenario: run.id.clone(),
        seed: run.seed,
        score: run.score,
    };
    trained.chain(&result.private.scenarios).map(score).collect()
}

/// An evaluation in the archive.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ArchivedEvaluation {
    pub sha256: String,
    /// How far it was evaluated.
    pub rung: Rung,
    pub outcome: SearchOutcome,
}

/// The archive of one search.
pub(super) struct Archive {
    connection: Connection,
    /// What it holds, by phase and number.
    recorded: HashMap<(Phase, usize), ArchivedEvaluation>,
}

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS evaluations (
        phase TEXT NOT NULL, number INTEGER NOT NULL, batch INTEGER NOT NULL, operation TEXT NOT NULL,
        parent INTEGER, other_parent INTEGER, size INTEGER NOT NULL, rung INTEGER NOT NULL,
        status TEXT NOT NULL, combined_score REAL NOT NULL, smoke_score REAL NOT NULL, train_score REAL NOT NULL,
        select_score REAL NOT NULL, imbalance REAL NOT NULL, cache_hit_rate REAL NOT NULL, rejected_share REAL NOT NULL,
        mean_ttft_ms REAL NOT NULL, p99_ttft_ms REAL NOT NULL, mean_e2e_ms REAL NOT NULL, promotion REAL NOT NULL,
        first_seed_score REAL NOT NULL, cpu_ms REAL NOT NULL,
        error TEXT NOT NULL, runs TEXT NOT NULL, patterns TEXT NOT NULL, sha256 TEXT NOT NULL, program TEXT NOT NULL, source TEXT NOT NULL,
        PRIMARY KEY (phase, number)) WITHOUT ROWID;
    CREATE VIEW IF NOT EXISTS lineage AS
        SELECT number AS child, parent, operation FROM evaluations WHERE phase = 'search' AND parent IS NOT NULL
        UNION ALL
        SELECT number, other_parent, operation FROM evaluations WHERE phase = 'search' AND other_parent IS NOT NULL;";

impl Archive {
    /// The archive in the file at `path`, or one in memory. A new one gets `settings`, by name.
    ///
    /// # Errors
    /// If the file is no archive, or that of a search with other settings.
    pub fn open(path: Option<&Path>, settings: &[(&str, String)]) -> Result<Self, RunError> {
        let shown = path.map_or("the archive".to_owned(), |path| format!("the archive `{}`", path.display()));
        let failed = |error: rusqlite::Error| {
            RunError::usage(format_args!("{shown} cannot be used: {error}"))
                .hint("name a new file, or one that `blis search` has written")
        };
        // SQLite would wait for the writer of a pipe. A file that is not there yet becomes an archive.
        if let Some(Err(error)) = path.filter(|path| path.symlink_metadata().is_ok()).map(blis_diag::open_file)
            && error.kind() != io::ErrorKind::NotFound
        {
            let file = path.map_or_else(String::new, |path| path.display().to_string());
            return Err(RunError::refused(blis_diag::unreadable(&file, &error)));
        }
        let connection = match path {
            Some(path) => Connection::open(path),
            None => Connection::open_in_memory(),
        };
        let connection = connection.map_err(failed)?;
        connection.execute_batch("PRAGMA synchronous = NORMAL; PRAGMA busy_timeout = 10000;").map_err(failed)?;
        connection.execute_batch(TABLES).map_err(failed)?;
        connection.execute_batch(proposal_table::TABLE).map_err(failed)?;
        connection.execute_batch(decision_table::TABLE).map_err(failed)?;
        for (name, value) in settings {
            let known = connection.query_row("SELECT value FROM settings WHERE name = ?1", [name], |row| row.get(0));
            let known: Option<String> = known.optional().map_err(failed)?;
            match known {
                Some(known) if known != *value => {
                    let what = format!("{shown} is that of another search: its {name} is `{known}`, not `{value}`");
                    return Err(RunError::usage(what).hint("name another file with `--archive`, or use its settings"));
                }
                Some(_) => {}
                None => {
                    let row = (name, value);
                    connection.execute("INSERT INTO settings VALUES (?1, ?2)", row).map_err(failed)?;
                }
            }
        }
        let recorded = read(&connection).map_err(failed)?;
        Ok(Self { connection, recorded })
    }

    /// The database, for tables beside the evaluations.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    pub fn get(&self, phase: Phase, number: usize) -> Option<&ArchivedEvaluation> {
        self.recorded.get(&(phase, number))
    }

    /// Number of evaluations that it holds.
    pub fn len(&self) -> usize {
        self.recorded.len()
    }

    /// CPU time of all its evaluations, s.
    pub fn cpu_s(&self) -> f64 {
        self.recorded.values().map(|one| one.outcome.cpu_ms).sum::<f64>() / 1000.0
    }

    /// Writes an evaluation, instead of that of an earlier stage.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn put(
        &mut self,
        ArchiveKey { phase, batch, number }: ArchiveKey,
        candidate: &Candidate,
        source: &str,
        recorded: ArchivedEvaluation,
    ) -> Result<(), RunError> {
        let ArchivedEvaluation { sha256, rung, outcome } = &recorded;
        let program = serde_json::to_string(&candidate.program).map_err(RunError::runtime)?;
        let runs = serde_json::to_string(&outcome.runs).map_err(RunError::runtime)?;
        let patterns = serde_json::to_string(&outcome.patterns).map_err(RunError::runtime)?;
        let number_of = |parent: Option<usize>| parent.map(|number| number as i64);
        let written = self.connection.prepare_cached(
            "INSERT OR REPLACE INTO evaluations VALUES
             (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17,?18,?19,?20,?21,?22,?23,?24,?25,?26,?27,?28)",
        );
        let written = written.and_then(|mut insert| {
            insert.execute(params![
                phase.into_str(),
                number as i64,
                batch as i64,
                candidate.operation.into_str(),
                number_of(candidate.parents[0]),
                number_of(candidate.parents[1]),
                candidate.program.size() as i64,
                rung.number(),
                outcome.status,
                outcome.combined_score,
                outcome.smoke_score,
                outcome.train_score,
                outcome.select_score,
                outcome.imbalance,
                outcome.cache_hit_rate,
                outcome.rejected_share,
                outcome.mean_ttft_ms,
                outcome.p99_ttft_ms,
                outcome.mean_e2e_ms,
                outcome.promotion,
                outcome.first_seed_score,
                outcome.cpu_ms,
                outcome.error,
                runs,
                patterns,
                sha256,
                program,
                source,
            ])
        });
        written.map_err(|error| {
            RunError::runtime(format_args!("an evaluation cannot be written into the archive: {error}"))
                .hint("the search goes on where it ended if the command is run again")
        })?;
        self.recorded.insert((phase, number), recorded);
        Ok(())
    }
}

/// The JSON in the column `name`, from which the search goes on.
fn parsed<T: DeserializeOwned>(row: &Row<'_>, name: &str) -> Result<T, rusqlite::Error> {
    let invalid = |error: serde_json::Error| {
        let column = row.as_ref().column_index(name).unwrap_or_default();
        rusqlite::Error::FromSqlConversionFailure(column, Type::Text, error.into())
    };
    serde_json::from_str(&row.get::<_, String>(name)?).map_err(invalid)
}

fn read(connection: &Connection) -> Result<HashMap<(Phase, usize), ArchivedEvaluation>, rusqlite::Error> {
    let mut all = HashMap::new();
    let mut rows = connection.prepare("SELECT * FROM evaluations")?;
    let mut rows = rows.query([])?;
    while let Some(row) = rows.next()? {
        let name: String = row.get("phase")?;
        let Ok(phase) = name.parse::<Phase>() else { continue };
        let number: i64 = row.get("number")?;
        let outcome = SearchOutcome {
            status: row.get("status")?,
            combined_score: row.get("combined_score")?,
            smoke_score: row.get("smoke_score")?,
            train_score: row.get("train_score")?,
            select_score: row.get("select_score")?,
            imbalance: row.get("imbalance")?,
            cache_hit_rate: row.get("cache_hit_rate")?,
            rejected_share: row.get("rejected_share")?,
            mean_ttft_ms: row.get("mean_ttft_ms")?,
            p99_ttft_ms: row.get("p99_ttft_ms")?,
            mean_e2e_ms: row.get("mean_e2e_ms")?,
            promotion: row.get("promotion")?,
            first_seed_score: row.get("first_seed_score")?,
            cpu_ms: row.get("cpu_ms")?,
            error: row.get("error")?,
            runs: parsed(row, "runs")?,
            patterns: parsed(row, "patterns")?,
        };
        let rung: u8 = row.get("rung")?;
        let rung = Rung::numbered(rung).ok_or(rusqlite::Error::IntegralValueOutOfRange(7, rung.into()))?;
        let recorded = ArchivedEvaluation { sha256: row.get("sha256")?, rung, outcome };
        all.insert((phase, usize::try_from(number).unwrap_or_default()), recorded);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::super::program::Expr;
    use super::*;

    fn settings(seed: &str) -> [(&'static str, String); 1] {
        [("seed", seed.to_owned())]
    }

    #[test]
    fn evaluations_are_there_when_the_file_is_opened_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("search.sqlite");
        let program = Program { values: vec![Expr::Constant(1.0)], memories: Vec::new() };
        let candidate = Candidate { program, operation: Operation::Crossover, parents: [Some(3), None] };
        let outcome = SearchOutcome { status: "ok".to_owned(), train_score: 0.1 + 0.2, ..SearchOutcome::default() };
        let recorded = ArchivedEvaluation { sha256: "ab".to_owned(), rung: Rung::FirstSeed, outcome };
        let mut archive = Archive::open(Some(&path), &settings("1")).expect("a new archive");
        let key = ArchiveKey { phase: Phase::Search, batch: 0, number: 7 };
        archive.put(key, &candidate, "fn route(r, s) { 1.0 }", recorded.clone()).expect("written");
        drop(archive);
        let archive = Archive::open(Some(&path), &settings("1")).expect("the same archive");
        assert_eq!(archive.get(Phase::Search, 7), Some(&recorded));
        assert_eq!((archive.len(), archive.get(Phase::Control, 7)), (1, None));
        drop(archive);
        // The runs of a program decide whether it is a parent: without them the search would be another one.
        let connection = Connection::open(&path).expect("a database");
        connection.execute("UPDATE evaluations SET runs = 'none'", []).expect("damaged");
        drop(connection);
        let refused = Archive::open(Some(&path), &settings("1")).err().expect("damaged runs").text();
        assert!(refused.contains("search.sqlite` cannot be used"), "{refused}");
    }

    #[test]
    fn ancestors_are_found_over_generations() {
        let mut archive = Archive::open(None, &settings("1")).expect("a new archive");
        let program = Program { values: vec![Expr::Constant(1.0)], memories: Vec::new() };
        for (number, operation, parents) in [
            (0, Operation::Seed, [None, None]),
            (1, Operation::Model, [Some(0), None]),
            (2, Operation::Crossover, [Some(0), Some(1)]),
            (3, Operation::Mutation, [Some(2), None]),
            (4, Operation::Mutation, [Some(0), None]),
        ] {
            let candidate = Candidate { program: program.clone(), operation, parents };
            let (sha256, outcome) = (number.to_string(), SearchOutcome::default());
            let recorded = ArchivedEvaluation { sha256, rung: Rung::Smoke, outcome };
            let key = ArchiveKey { phase: Phase::Search, batch: 0, number };
            archive.put(key, &candidate, "", recorded).expect("written");
        }
        let descends = |number| proposal_table::descends_from_model(archive.connection(), number).expect("an archive");
        assert_eq!([0, 1, 2, 3, 4].map(descends), [false, true, true, true, false]);
    }

    #[test]
    fn the_archive_of_another_search_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("search.sqlite");
        drop(Archive::open(Some(&path), &settings("1")).expect("a new archive"));
        let refused = Archive::open(Some(&path), &settings("2")).err().expect("another seed").text();
        assert!(refused.contains("its seed is `1`, not `2`"), "{refused}");
        let other = folder.path().join("notes.txt");
        std::fs::write(&other, "this is a text, and no database at all\n".repeat(50)).expect("written");
        let refused = Archive::open(Some(&other), &settings("1")).err().expect("no archive").text();
        assert!(refused.contains("notes.txt` cannot be used"), "{refused}");
    }
}
