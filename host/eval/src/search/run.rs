//! The loop of a search: batches of programs through the first stages of the cascade, then the control, then the selection.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use blis_sim::rng::Stream;
use rand::RngExt as _;
use sha2::{Digest as _, Sha256};

use super::archive::{Archive, ArchivedEvaluation, Candidate, Phase, RungBatch, RungResult, SearchOutcome};
use super::champion::{Selected, champion};
use super::constants::ConstantTuning;
use super::elites::{BEST, Elite};
use super::grammar::{Grammar, PatternSignal};
use super::model::ModelProposals;
use super::populations::Populations;
use super::program::{Expr, Program};
use super::rung::{Promotions, Rung};
use super::screening::{CHOSEN, OFFERED, Screening};
use super::seeds::{neutral, seeds};
use super::singles::{put_named_first, singles};
use super::variation::{Operation, ProgramGenerator};
use crate::error::RunError;
use crate::evaluation::request::CandidateSource;
use crate::evaluation::server::{EvaluationRequest, EvaluationServer};
use crate::result::{EvaluationResult, EvaluationStatus};
use crate::suite::hex;

/// Programs of a batch: what follows from a batch does not depend on the number of workers.
const BATCH: usize = 24;
/// Programs of a batch that have one input alone, until all have been evaluated.
const SINGLES: usize = BATCH / 3;
/// Batches of a cycle: the last ones are generations of CMA-ES.
pub(super) const CYCLE: usize = 12;
const CONSTANT_BATCHES: usize = 4;
/// Attempts to make a program that was not evaluated before.
const ATTEMPTS: usize = 20;
/// Rounds in which parts of the best program are left out.
const REDUCTIONS: usize = 6;
/// A part is left out if the score of train does not fall by more than this share.
const REDUCTION_LOSS: f64 = 0.001;

/// Times that an evaluation is tried that reaches its wall limit: on a machine that does other things, it may have waited for a core.
pub(super) const WALL_ATTEMPTS: usize = 3;

/// Where a search stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SearchProgress {
    /// What is being done: the search, its control, the selection.
    pub phase: &'static str,
    /// Programs evaluated in this phase.
    pub evaluated: usize,
    /// Programs of this phase, about.
    pub total: usize,
    /// Best score of train so far; 1 is as good as the reference.
    pub best: f64,
}

/// Bytes of the text in which a script says what it has measured.
const MEASURED_BYTES: usize = 8000;

/// The position of a program among those sent, and what the server says about it.
type ServerReply = (usize, Result<EvaluationResult, String>);

/// What is left of a program without the parts that are worth nothing.
#[derive(Default)]
struct Reduction {
    /// The program with the number of the one that it was made of; `None` if nothing was left out.
    reduced: Option<(usize, Candidate)>,
    /// What each of its parts is worth.
    ablations: Vec<Ablation>,
}

/// The score of train without a part of the champion.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ablation {
    /// What remains, in the form of a script.
    pub source: String,
    pub train_score: f64,
}

/// What a search has found.
pub(super) struct Found {
    pub champion: Option<Selected>,
    /// The best of those that select decided between, which may be larger.
    pub best: Option<Selected>,
    pub control: Option<Selected>,
    pub ablations: Vec<Ablation>,
    pub evaluated: usize,
    pub cells: usize,
}

/// What a search follows from, beside suite and grammar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SearchNumbers {
    pub seed: u64,
    /// Programs to evaluate.
    pub evaluations: usize,
    /// Epoch of the seeds of the suite.
    pub epoch: u64,
    /// Decisions of each kind of which patterns are found; 0 for none.
    pub patterns: u32,
    /// Routing decisions of each scenario of train of which the costs are measured; 0 for none.
    pub decisions: u32,
}

/// A search in progress.
pub(super) struct SearchRun<'a> {
    pub server: &'a Arc<EvaluationServer>,
    pub grammar: &'a Grammar,
    pub archive: Archive,
    pub numbers: SearchNumbers,
    pub progress: &'a (dyn Fn(SearchProgress) + Sync),
    /// A language model that proposes programs, if there is one.
    pub model: Option<ModelProposals<'a>>,
    /// The grammar of new programs: without columns that the suite does not use.
    pub(super) used: Grammar,
    /// What was evaluated, by hash of the script.
    pub(super) known: HashMap<String, ArchivedEvaluation>,
    pub(super) populations: Populations,
    /// Decisions with known costs, by which new programs are chosen.
    pub(super) screening: Screening,
    /// Programs with one input alone that were not evaluated yet.
    singles: Vec<Program>,
    tuning: Option<ConstantTuning>,
    /// Evaluations of the programs that were tuned.
    tuned: Vec<usize>,
}

impl<'a> SearchRun<'a> {
    pub fn new(
        server: &'a Arc<EvaluationServer>,
        grammar: &'a Grammar,
        archive: Archive,
        numbers: SearchNumbers,
        progress: &'a (dyn Fn(SearchProgress) + Sync),
    ) -> Self {
        let (known, used, populations) = (HashMap::new(), grammar.clone(), Populations::new(numbers.seed));
        let (model, singles, tuning, tuned) = (None, Vec::new(), None, Vec::new());
        let screening = Screening::default();
        Self {
            server,
            grammar,
            archive,
            numbers,
            progress,
            model,
            used,
            known,
            populations,
            screening,
            singles,
            tuning,
            tuned,
        }
    }

    /// Runs the search to its end.
    ///
    /// # Errors
    /// If the host fails in an evaluation, or the archive cannot be written.
    pub fn run(&mut self) -> Result<Found, RunError> {
        self.used = self.used_grammar()?;
        self.singles = singles(&self.used, &mut Stream::new(self.numbers.seed, "singles").at(0));
        let (mut number, mut batch) = (0, 0);
        while number < self.numbers.evaluations {
            self.measure_decisions(batch)?;
            let candidates = self.next_batch(batch);
            let candidates = self.with_proposals(batch, candidates)?;
            let tunes = candidates.iter().all(|one| one.operation == Operation::Constants);
            let promotions = match (batch, tunes) {
                (0, _) => Promotions::all_to_train(),
                (_, true) => Promotions::all_to_first_seed(BATCH),
                (_, false) => Promotions::for_batch(BATCH),
            };
            let evaluated = self.evaluate_batch(Phase::Search, batch, number, &candidates, promotions)?;
            self.learn(number, &candidates, &evaluated);
            number += candidates.len();
            batch += 1;
        }
        let evaluated = number;
        let best = self.populations.all().best().first().map(|&elite| elite.clone());
        let mut finalists = self.finalists();
        let control = self.control()?;
        let Reduction { reduced, ablations } = match &best {
            Some(best) => self.reduce(best)?,
            None => Reduction::default(),
        };
        finalists.extend(reduced);
        let selected = self.selected(&finalists)?;
        let control = self.select(Phase::ControlSelect, &control)?;
        let found = champion(&selected).map(|(best, champion)| (best.clone(), champion.clone()));
        let control = champion(&control).map(|(best, _)| best.clone());
        let (best, champion) = found.unzip();
        Ok(Found { champion, best, control, ablations, evaluated, cells: self.populations.all().cells() })
    }

    /// The programs of a batch, which follow from the batches before it.
    fn next_batch(&mut self, batch: usize) -> Vec<Candidate> {
        let draw = Stream::new(self.numbers.seed, "search").at(batch as u64);
        let used = self.used.clone();
        let mut made = ProgramGenerator::new(&used, draw);
        if batch == 0 {
            return self.first_batch(&mut made);
        }
        if batch % CYCLE >= CYCLE - CONSTANT_BATCHES
            && let Some(candidates) = self.constants(batch)
        {
            return candidates;
        }
        let of = |program| Candidate { program, operation: Operation::Single, parents: [None; 2] };
        let mut candidates: Vec<Candidate> = self.singles.drain(..SINGLES.min(self.singles.len())).map(of).collect();
        let mut sources: Vec<String> = candidates.iter().map(|one| one.program.source(self.grammar)).collect();
        while candidates.len() < BATCH {
            let candidate = self.chosen_offspring(&mut made, &sources);
            sources.push(candidate.program.source(self.grammar));
            candidates.push(candidate);
        }
        candidates
    }

    /// A new program: of several the one that would have decided best, if costs of decisions are known.
    fn chosen_offspring(&self, made: &mut ProgramGenerator<'_>, sources: &[String]) -> Candidate {
        let is_screened = !self.screening.is_empty() && made.draw.random::<f64>() < CHOSEN;
        let first = self.new_offspring(made, sources);
        if !is_screened {
            return first;
        }
        let others: Vec<Candidate> = (1..OFFERED).map(|_| self.new_offspring(made, sources)).collect();
        let all = std::iter::once(first.clone()).chain(others);
        let losses = all.filter_map(|one| Some((self.screening.loss(&one.program, self.grammar)?, one)));
        losses.min_by(|one, other| one.0.total_cmp(&other.0)).map_or(first, |(_, best)| best)
    }

    /// Offspring that was not evaluated before, unless that is hard to find.
    fn new_offspring(&self, made: &mut ProgramGenerator<'_>, sources: &[String]) -> Candidate {
        let mut candidate = self.simplified(self.offspring(made));
        for _ in 0..ATTEMPTS {
            let source = candidate.program.source(self.grammar);
            let is_known = sources.contains(&source) || self.known.contains_key(&sha256(&source));
            if !is_known && !self.screening.is_known(&candidate.program, self.grammar) {
                break;
            }
            candidate = self.simplified(self.offspring(made));
        }
        candidate
    }

    fn first_batch(&self, made: &mut ProgramGenerator<'_>) -> Vec<Candidate> {
        let of = |operation: Operation| move |program: Program| Candidate { program, operation, parents: [None; 2] };
        let mut candidates: Vec<Candidate> = seeds(self.grammar).into_iter().map(of(Operation::Seed)).collect();
        while candidates.len() < BATCH {
            candidates.push(of(Operation::Random)(made.random()));
        }
        candidates.into_iter().map(|candidate| self.simplified(candidate)).collect()
    }

    pub(super) fn simplified(&self, candidate: Candidate) -> Candidate {
        Candidate { program: candidate.program.simplified(self.grammar), ..candidate }
    }

    fn offspring(&self, made: &mut ProgramGenerator<'_>) -> Candidate {
        const FRESH: f64 = 0.05;
        const CROSSED: f64 = 0.3;
        // Random programs know nothing of others.
        (made.favoured, made.common) = (Vec::new(), Vec::new());
        let kind: f64 = made.draw.random();
        let parent = self.populations.present().pick(&mut made.draw).filter(|_| kind >= FRESH);
        let Some(parent) = parent else {
            return Candidate { program: made.random(), operation: Operation::Random, parents: [None; 2] };
        };
        let other = self.populations.present().pick_beside(parent, &mut made.draw).filter(|_| kind < FRESH + CROSSED);
        made.favoured = parent.outcome.patterns.clone();
        let good = self.populations.present().pick(&mut made.draw);
        made.common = good.map(|one| one.program.values.iter().flat_map(Expr::inputs).collect()).unwrap_or_default();
        match other {
            Some(other) => Candidate {
                program: made.crossed(&parent.program, &other.program),
                operation: Operation::Crossover,
                parents: [Some(parent.number), Some(other.number)],
            },
            None => Candidate {
                program: made.mutated(&parent.program),
                operation: Operation::Mutation,
                parents: [Some(parent.number), None],
            },
        }
    }

    /// A generation of constants: the next of the present tuning, or the first of that of the best program that was not tuned.
    fn constants(&mut self, batch: usize) -> Option<Vec<Candidate>> {
        if batch % CYCLE == CYCLE - CONSTANT_BATCHES {
            let best = self.populations.present().best();
            let untuned = best
                .into_iter()
                .find(|elite| !self.tuned.contains(&elite.number) && !elite.program.constants().is_empty());
            self.tuning =
                untuned.and_then(|elite| ConstantTuning::new(elite.number, &elite.program, self.numbers.seed));
            self.tuned.extend(self.tuning.as_ref().map(|tuning| tuning.parent));
        }
        let tuning = self.tuning.as_ref()?;
        let of = |program| {
            let (operation, parents) = (Operation::Constants, [Some(tuning.parent), None]);
            Candidate { program, operation, parents }
        };
        let generation: Vec<Candidate> = tuning.generation().into_iter().map(of).collect();
        (!generation.is_empty()).then_some(generation)
    }

    /// Adds the results of a batch to what the next ones follow from.
    fn learn(&mut self, first: usize, candidates: &[Candidate], evaluated: &[RungResult]) {
        for (at, (candidate, one)) in candidates.iter().zip(evaluated).enumerate() {
            let (program, outcome) = (candidate.program.clone(), one.outcome.clone());
            if self.numbers.decisions > 0 {
                self.screening.add_evaluated(&candidate.program, self.grammar);
            }
            let is_first = matches!(candidate.operation, Operation::Seed | Operation::Single);
            self.populations.offer(one.rung, Elite { number: first + at, program, outcome }, is_first);
        }
        if self.singles.is_empty() {
            self.populations.settle(first + candidates.len());
        }
        if first == 0 {
            let named: Vec<PatternSignal> = evaluated.iter().flat_map(|one| one.outcome.patterns.clone()).collect();
            put_named_first(&mut self.singles, &self.used, &named);
        }
        if candidates.iter().all(|one| one.operation == Operation::Constants)
            && let Some(tuning) = &mut self.tuning
        {
            // All under the same seeds, so that the scores can be compared.
            tuning.add(evaluated.iter().map(|one| one.outcome.first_seed_score).collect());
        }
    }

    /// The best score in the whole of train so far; 0 without one.
    pub(super) fn best_score(&self) -> f64 {
        self.populations.all().best().first().map_or(0.0, |elite| elite.outcome.train_score)
    }

    /// The same number of random programs, through the same stages: what a search without selection finds.
    fn control(&mut self) -> Result<Vec<(usize, Candidate)>, RunError> {
        let (mut number, mut batch) = (0, 0);
        let mut best: Vec<(f64, usize, Candidate)> = Vec::new();
        while number < self.numbers.evaluations {
            let draw = Stream::new(self.numbers.seed, "control").at(batch as u64);
            let used = self.used.clone();
            let mut made = ProgramGenerator::new(&used, draw);
            let random = |_| Candidate { program: made.random(), operation: Operation::Random, parents: [None; 2] };
            let candidates: Vec<Candidate> = (0..BATCH).map(random).map(|one| self.simplified(one)).collect();
            let promotions = Promotions::for_batch(BATCH);
            let evaluated = self.evaluate_batch(Phase::Control, batch, number, &candidates, promotions)?;
            let scored = candidates.into_iter().zip(&evaluated).enumerate();
            best.extend(
                scored.filter_map(|(at, (candidate, one))| Some((one.whole_train_score()?, number + at, candidate))),
            );
            best.sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(&other.1)));
            best.truncate(BEST);
            number += BATCH;
            batch += 1;
        }
        Ok(best.into_iter().map(|(_, number, candidate)| (number, candidate)).collect())
    }

    /// Leaves out parts of the best program as long as its score of train stays.
    fn reduce(&mut self, best: &Elite) -> Result<Reduction, RunError> {
        let (mut program, mut score) = (best.program.clone(), best.outcome.train_score);
        let (mut number, mut ablations) = (0, Vec::new());
        for round in 0..=REDUCTIONS {
            let of =
                |program| Candidate { program, operation: Operation::Mutation, parents: [Some(best.number), None] };
            let smaller: Vec<Candidate> = reductions(&program, self.grammar).into_iter().map(of).collect();
            let promotions = Promotions::all_to_train();
            let evaluated = self.evaluate_batch(Phase::Reduction, round, number, &smaller, promotions)?;
            number += smaller.len();
            let scores: Vec<f64> = evaluated.iter().map(|one| one.whole_train_score().unwrap_or(0.0)).collect();
            ablations = smaller
                .iter()
                .zip(&scores)
                .map(|(one, &train_score)| Ablation { source: one.program.source(self.grammar), train_score })
                .collect();
            let kept =
                smaller.into_iter().zip(scores).filter(|(_, reduced)| *reduced >= score * (1.0 - REDUCTION_LOSS));
            let next = kept.min_by_key(|(one, _)| one.program.size());
            match next.filter(|_| round < REDUCTIONS) {
                Some((one, reduced)) => (program, score) = (one.program, reduced.max(score)),
                None => break,
            }
        }
        let parents = [Some(best.number), None];
        let reduced = (program != best.program)
            .then_some((best.number, Candidate { program, operation: Operation::Mutation, parents }));
        Ok(Reduction { reduced, ablations })
    }

    /// The results of `jobs` up to the rung of the batch: those of the archive, the others from the server.
    pub(super) fn evaluate(
        &mut self,
        of: RungBatch,
        jobs: &[(usize, &Candidate)],
    ) -> Result<Vec<SearchOutcome>, RunError> {
        let sources: Vec<String> = jobs.iter().map(|(_, candidate)| candidate.program.source(self.grammar)).collect();
        self.evaluate_sources(of, jobs, &sources)
    }

    /// As [`Self::evaluate`], with the scripts `sources` for the programs of `jobs`.
    pub(super) fn evaluate_sources(
        &mut self,
        of: RungBatch,
        jobs: &[(usize, &Candidate)],
        sources: &[String],
    ) -> Result<Vec<SearchOutcome>, RunError> {
        let RungBatch { phase, rung, .. } = of;
        let hashes: Vec<String> = sources.iter().map(|source| sha256(source)).collect();
        let mut outcomes: Vec<Option<SearchOutcome>> = vec![None; jobs.len()];
        let mut open: Vec<usize> = Vec::new();
        for (at, &(number, candidate)) in jobs.iter().enumerate() {
            let stored = self.stored(phase, number, &hashes[at])?.filter(|stored| stored.rung >= rung);
            let is_stored = stored.is_some();
            let known =
                stored.or_else(|| self.known_under(phase, &hashes[at]).filter(|known| known.rung >= rung).cloned());
            let Some(known) = known else {
                open.push(at);
                continue;
            };
            if !is_stored {
                let again = ArchivedEvaluation {
                    outcome: SearchOutcome { cpu_ms: 0.0, ..known.outcome.clone() },
                    ..known.clone()
                };
                self.archive.put(of.key(number), candidate, &sources[at], again)?;
            }
            outcomes[at] = Some(known.outcome.clone());
            self.remember(phase, &hashes[at], known);
        }
        for attempt in 1..=WALL_ATTEMPTS {
            let (sent, results) = self.submit(&open, of, jobs, sources)?;
            open.clear();
            for _ in 0..sent {
                let ended = |_| RunError::runtime("a thread of the server ended before its time");
                let (at, result): (usize, Result<EvaluationResult, String>) = results.recv().map_err(ended)?;
                let again = "run the command again: it goes on where it ended";
                let result = result.map_err(|message| RunError::runtime(message).hint(again))?;
                if attempt < WALL_ATTEMPTS && result.status == EvaluationStatus::Limit && result.depends_on_clock {
                    open.push(at);
                    continue;
                }
                let (number, candidate) = jobs[at];
                let outcome = self.record(of, number, candidate, &sources[at], &hashes[at], &result)?;
                outcomes[at] = Some(outcome);
            }
            open.sort_unstable();
        }
        Ok(outcomes.into_iter().flatten().collect())
    }

    /// What is known of the program with this hash under the seeds of `phase`.
    fn known_under(&self, phase: Phase, hash: &str) -> Option<&ArchivedEvaluation> {
        self.known.get(hash).filter(|_| phase != Phase::OtherSeeds)
    }

    /// Keeps a result under the seeds of the search.
    fn remember(&mut self, phase: Phase, hash: &str, recorded: ArchivedEvaluation) {
        if phase != Phase::OtherSeeds {
            self.known.insert(hash.to_owned(), recorded);
        }
    }

    /// What the archive has about the evaluation `number`.
    fn stored(&self, phase: Phase, number: usize, hash: &str) -> Result<Option<ArchivedEvaluation>, RunError> {
        match self.archive.get(phase, number) {
            Some(stored) if stored.sha256 != hash => Err(RunError::runtime(format_args!(
                "{} {number} in the archive is another program than this search makes",
                phase.into_str()
            ))
            .hint("another version of the program has written the archive: name a new one with `--archive`")),
            stored => Ok(stored.cloned()),
        }
    }

    /// Sends the scripts of `open` to the server: their number, and where their results come.
    fn submit(
        &self,
        open: &[usize],
        RungBatch { phase, batch, rung }: RungBatch,
        jobs: &[(usize, &Candidate)],
        sources: &[String],
    ) -> Result<(usize, Receiver<ServerReply>), RunError> {
        let (sender, results) = channel();
        for &at in open {
            // Constants are tuned by the score alone.
            let teaches =
                phase == Phase::Search && rung >= Rung::FirstSeed && jobs[at].1.operation != Operation::Constants;
            let request = EvaluationRequest {
                candidate: Some(CandidateSource::Source(sources[at].clone())),
                stage: Some(rung.stage()),
                train_seeds: rung.train_seeds(),
                epoch: self.numbers.epoch + if phase == Phase::OtherSeeds { 1 + batch as u64 } else { 0 },
                feedback_bytes: Some(if phase == Phase::Inputs { MEASURED_BYTES } else { 0 }),
                patterns: teaches.then_some(self.numbers.patterns),
                ..EvaluationRequest::default()
            };
            let sender = sender.clone();
            let reply = Box::new(move |result| {
                // The search ends with the first error and reads no further results.
                let _ = sender.send((at, result));
            });
            self.server.submit(&request, reply).map_err(RunError::runtime)?;
        }
        Ok((open.len(), results))
    }

    /// The result of one request beside the programs of the search.
    ///
    /// # Errors
    /// If the host fails in the evaluation.
    pub(super) fn evaluated(&self, request: &EvaluationRequest) -> Result<EvaluationResult, RunError> {
        let (sender, results) = channel();
        let reply = Box::new(move |result| {
            // The search ends with the first error and reads no further results.
            let _ = sender.send(result);
        });
        self.server.submit(request, reply).map_err(RunError::runtime)?;
        let ended = |_| RunError::runtime("a thread of the server ended before its time");
        results.recv().map_err(ended)?.map_err(RunError::runtime)
    }

    /// Writes the result of the evaluation `number` into the archive: that of the script `source`, of which `hash` is the SHA-256.
    fn record(
        &mut self,
        of: RungBatch,
        number: usize,
        candidate: &Candidate,
        source: &str,
        hash: &str,
        result: &EvaluationResult,
    ) -> Result<SearchOutcome, RunError> {
        let RungBatch { phase, rung, .. } = of;
        if result.status == EvaluationStatus::HostError {
            let what = format_args!("{} {number} was not evaluated: {}", phase.into_str(), result.artifacts.error);
            return Err(RunError::runtime(what).hint("run the command again: it goes on where it ended"));
        }
        let mut outcome = SearchOutcome::new(result);
        if let Some(before) = self.archive.get(phase, number) {
            outcome.cpu_ms += before.outcome.cpu_ms;
            outcome.promotion = before.outcome.promotion;
            if before.rung >= Rung::FirstSeed {
                outcome.first_seed_score = before.outcome.first_seed_score;
            }
        }
        let recorded = ArchivedEvaluation { sha256: hash.to_owned(), rung, outcome: outcome.clone() };
        self.archive.put(of.key(number), candidate, source, recorded.clone())?;
        self.remember(phase, hash, recorded);
        Ok(outcome)
    }
}

pub(super) fn sha256(text: &str) -> String {
    hex(&Sha256::digest(text))
}

/// `program` with one function less, one of its arguments instead of it, or with a decision that does nothing.
fn reductions(program: &Program, grammar: &Grammar) -> Vec<Program> {
    let nothing = neutral(grammar);
    let mut all: Vec<Program> = Vec::new();
    let mut add = |smaller: Program| {
        let smaller = smaller.simplified(grammar);
        if smaller.size() < program.size() && !all.contains(&smaller) {
            all.push(smaller);
        }
    };
    for at in 0..program.values.len() {
        let mut without = program.clone();
        without.values[at] = nothing.values[at].clone();
        add(without);
        for index in 0..program.values[at].size() {
            let mut found = program.values[at].clone();
            let Some(Expr::Apply(_, arguments)) = found.node_mut(&mut { index }) else { continue };
            for argument in arguments.clone() {
                let mut smaller = program.clone();
                if let Some(node) = smaller.values[at].node_mut(&mut { index }) {
                    *node = argument;
                }
                add(smaller);
            }
        }
    }
    all
}
