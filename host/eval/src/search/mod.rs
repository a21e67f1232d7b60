//! `blis search`: policies by a search, without a language model or with one.
//!
//! ```text
//! seeds, each input alone ─► batch ─► smoke ─► the best half: first seed of train ─► a sixth: train ─► next batch
//!                                     └── every evaluation: archive (SQLite)
//! next batch: mutation, crossover and CMA-ES of the best of a map and of those that are best in some scenario, in one population
//! after another (`populations.rs`)
//! then: as many random programs (control) ─► parts left out ─► select ─► champion
//! ```
//!
//! With a language model, a share of the mutations is proposed by it (`proposals.rs`).
//!
//! A candidate is a typed expression over what a script may read at a decision, with tables that events fill. What a batch
//! contains follows from the seed and the results of the batches before it, whatever the number of workers, so that a
//! search goes on from its archive as if it had never ended.

mod archive;
mod champion;
mod constants;
mod decision_samples;
mod decision_table;
mod elites;
mod grammar;
mod infix;
mod inputs;
mod ladder;
mod model;
mod populations;
mod program;
mod proposal_table;
mod proposals;
mod question;
mod result;
mod run;
mod rung;
mod sampled;
mod screening;
mod seeds;
mod selection;
mod simplify;
mod singles;
mod variation;

pub use self::model::{ChatModel, ChatReply, ModelMutation, ModelResult};
pub use self::result::SearchResult;
pub use self::run::SearchProgress;

use std::path::Path;

use blis_plugin::Kind;

use self::archive::Archive;
use self::grammar::Grammar;
use self::model::ModelProposals;
use self::run::{SearchNumbers, SearchRun};
use crate::error::RunError;
use crate::evaluation::context::EvaluationSuite;
use crate::evaluation::options::host;
use crate::evaluation::server::{self, ServerSettings};
use crate::suite::Suite;

/// A search.
pub struct SearchRequest<'a> {
    /// The suite, by its name or file.
    pub suite: &'a str,
    /// The kinds that programs decide; those of the suite if none are named.
    pub kinds: &'a [Kind],
    /// Programs to evaluate; whole batches of them. As many random ones are evaluated for comparison.
    pub evaluations: u32,
    /// Seed of the search.
    pub seed: u64,
    /// Epoch of the seeds of the suite.
    pub epoch: u64,
    /// Decisions of each kind of which patterns are found for mutation; 0 for none.
    pub patterns: u32,
    /// Routing decisions of each scenario of train of which the costs are measured to choose among new programs; 0 for none.
    pub decisions: u32,
    /// A language model that proposes programs instead of mutations, if there is one.
    pub model: Option<ModelMutation<'a>>,
    /// The file of the archive; in memory if `None`.
    pub archive: Option<&'a Path>,
    /// Workers and their limits. The suites and the queue are set by the search.
    pub server: ServerSettings,
    /// Called once all processes have been started, which a process with threads must not do.
    pub started: &'a dyn Fn() -> Result<(), RunError>,
    /// Called after every batch.
    pub progress: &'a (dyn Fn(SearchProgress) + Sync),
}

/// Runs a search to its end, or goes on with the one in the archive. Only for a process with a single thread.
///
/// # Errors
/// If the suite cannot be used or does not decide a kind, if the archive is that of another search or cannot be written, or if
/// the host fails in an evaluation.
pub fn search(request: SearchRequest<'_>) -> Result<SearchResult, RunError> {
    let SearchRequest { evaluations, seed, epoch, patterns, decisions, model, archive, started, progress, .. } =
        request;
    let suite = Suite::open(request.suite).map_err(RunError::refused)?.granted(&request.server.granted);
    let kinds = decided(&suite, request.kinds)?;
    let grammar = Grammar::new(&kinds).map_err(|kind| {
        RunError::usage(format_args!("expressions cannot decide {}", kind.name()))
            .hint("leave this kind out of `--kind`")
    })?;
    if decisions > 0 && !kinds.contains(&Kind::Routing) {
        return Err(RunError::usage("`--decisions` measures the costs of routing decisions, and this search has none")
            .hint("leave it out"));
    }
    let prepared = EvaluationSuite::new(suite.clone())?;
    let names: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
    let settings = [
        ("suite", suite.name.clone()),
        ("suite sha256", prepared.hash().to_owned()),
        ("kinds", names.join(", ")),
        ("seed", seed.to_string()),
        ("epoch", epoch.to_string()),
        ("patterns", patterns.to_string()),
        ("decisions", decisions.to_string()),
        ("model", model.map_or_else(|| "none".to_owned(), |one| one.model.name().to_owned())),
        ("share of the model", model.map_or(0.0, |one| one.share).to_string()),
        ("program", host()),
    ];
    drop(prepared);
    // Workers are forked before the archive is open; here it is only checked.
    drop(Archive::open(archive, &settings)?);
    const QUEUE: std::num::NonZeroUsize = std::num::NonZeroUsize::new(4096).unwrap();
    let server =
        ServerSettings { suites: vec![request.suite.to_owned()], queue: QUEUE, budget: None, ..request.server };
    let mut found = None;
    server::serve(&server, |server| {
        started()?;
        let archive = Archive::open(archive, &settings)?;
        let numbers = SearchNumbers { seed, evaluations: evaluations as usize, epoch, patterns, decisions };
        let mut search = SearchRun::new(server, &grammar, archive, numbers, progress);
        search.model = model.map(|model| ModelProposals::new(model, question::about(&suite)));
        let all = search.run()?;
        let champion = all.champion.as_ref().map(|champion| champion.number);
        let model = search.model.as_ref().map(|model| model.result(&search.archive, champion)).transpose()?;
        found = Some(SearchResult::new(&suite, &kinds, seed, &all, &search.archive).with_model(model));
        Ok(())
    })?;
    found.ok_or_else(|| RunError::runtime("the search ended without a result"))
}

/// The kinds that are searched for.
fn decided(suite: &Suite, named: &[Kind]) -> Result<Vec<Kind>, RunError> {
    let other = named.iter().find(|kind| !suite.decides.contains(kind));
    if let Some(other) = other {
        let known: Vec<&str> = suite.decides.iter().map(|kind| kind.name()).collect();
        let what = format_args!("candidates of the suite `{}` do not decide {}", suite.name, other.name());
        return Err(RunError::usage(what).hint(format_args!("`--kind` takes {}", known.join(", "))));
    }
    Ok(if named.is_empty() { suite.decides.clone() } else { named.to_vec() })
}
