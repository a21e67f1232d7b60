//! What a search found, as a document and as a text.

use std::fmt::Write as _;

use blis_plugin::Kind;
use blis_report::{Concludes, Conclusion, ConclusionKind};
use serde::{Deserialize, Serialize};

use super::archive::Archive;
use super::champion::Selected;
use super::model::ModelResult;
use super::run::Found;
use crate::suite::Suite;

/// What `blis search` prints with `--output json`.
#[derive(Debug, Serialize, Deserialize)]
pub struct SearchResult {
    /// Name of the suite.
    suite: String,
    /// Version of the suite. Unit: number.
    suite_version: u32,
    /// The policy that scores are relative to.
    reference: String,
    /// Kinds of decisions that programs make.
    kinds: Vec<String>,
    /// Seed of the search. Unit: number.
    seed: u64,
    /// Programs that the search evaluated, at least in smoke; as many random ones were evaluated beside it. Unit:
    /// evaluations.
    evaluations: usize,
    /// Cells of the map of behaviours that have a program. Unit: cells.
    cells: usize,
    /// The smallest program that is not shown to be worse than the best one, by runs that the search has not seen;
    /// `null` if none has a score in train.
    champion: Option<FoundProgram>,
    /// Of the best programs in train the one with the best unseen score.
    best: Option<FoundProgram>,
    /// The best one of as many random programs, without selection of parents.
    best_of_random: Option<FoundProgram>,
    /// The best program of train with one function less: one of its arguments instead of it; best first.
    ablation: Vec<AblatedProgram>,
    /// What came of a language model, with `--model-url`; `null` without one.
    model: Option<ModelResult>,
    /// Evaluations in the archive: of columns alone, of the search, of random programs, of programs with parts left
    /// out, of select, and under other seeds. Unit: evaluations.
    archived: usize,
    /// CPU time of all of them; differs from run to run. Unit: s, 0 or more.
    cpu_s: f64,
}

/// A program that was selected.
#[derive(Debug, Serialize, Deserialize)]
struct FoundProgram {
    /// Number of its evaluation, or of that of the program that it was made of. Unit: number.
    number: usize,
    /// Score in train; 1 is as good as the reference. Unit: score.
    train_score: f64,
    /// Score in select, with requests that the search has not seen; 0 if it is worse than the reference in train, and
    /// not run in select. Unit: score.
    select_score: f64,
    /// Score in runs that the search has not seen, geometric mean over scenarios: those of select, and those of train
    /// and select under other seeds; `null` if it failed in one of them, or for random programs. Unit: score.
    unseen_score: Option<f64>,
    /// Mean time to first token in train, mean over runs.
    mean_ttft_ms: f64,
    /// Number of functions, inputs and constants; a table counts as two. Unit: nodes, 1 or more.
    size: usize,
    /// The script of the program.
    source: String,
}

/// What is left of a program without one of its functions.
#[derive(Debug, Serialize, Deserialize)]
struct AblatedProgram {
    /// Score in train; 0 if it fails. Unit: score.
    train_score: f64,
    /// The script of the program.
    source: String,
}

impl From<&Selected> for FoundProgram {
    fn from(selected: &Selected) -> Self {
        let Selected { candidate, source, number, outcome, other_seeds } = selected;
        Self {
            number: *number,
            train_score: outcome.train_score,
            select_score: outcome.select_score,
            unseen_score: if other_seeds.is_empty() { None } else { selected.unseen_score() },
            mean_ttft_ms: outcome.mean_ttft_ms,
            size: candidate.program.size(),
            source: source.clone(),
        }
    }
}

impl Concludes for SearchResult {
    fn conclusion(&self) -> Conclusion {
        let Some(champion) = &self.champion else {
            return Conclusion::new(ConclusionKind::UNDECIDED, "Undecided: no program has a score in train");
        };
        let FoundProgram { train_score, unseen_score, size, .. } = champion;
        let (score, of) = match unseen_score {
            Some(score) => (*score, "in runs that the search has not seen"),
            None => (*train_score, "in train, where it was chosen"),
        };
        let text = format!(
            "{score:.3} × the reference {} {of}: a program of {size} nodes, the best of {} evaluations",
            self.reference, self.evaluations
        );
        Conclusion::measured(text)
    }

    fn volatile(&self) -> &'static [&'static str] {
        &["cpu_s"]
    }
}

impl SearchResult {
    pub(super) fn new(suite: &Suite, kinds: &[Kind], seed: u64, found: &Found, archive: &Archive) -> Self {
        let ablated =
            |one: &super::run::Ablation| AblatedProgram { train_score: one.train_score, source: one.source.clone() };
        let mut ablation: Vec<AblatedProgram> = found.ablations.iter().map(ablated).collect();
        ablation.sort_by(|one, other| other.train_score.total_cmp(&one.train_score));
        Self {
            suite: suite.name.clone(),
            suite_version: suite.version,
            reference: suite.reference.clone(),
            kinds: kinds.iter().map(|kind| kind.name().to_owned()).collect(),
            seed,
            evaluations: found.evaluated,
            cells: found.cells,
            champion: found.champion.as_ref().map(FoundProgram::from),
            best: found.best.as_ref().map(FoundProgram::from),
            best_of_random: found.control.as_ref().map(FoundProgram::from),
            ablation,
            model: None,
            archived: archive.len(),
            cpu_s: archive.cpu_s(),
        }
    }

    /// The same with what came of a language model.
    pub(super) fn with_model(self, model: Option<ModelResult>) -> Self {
        Self { model, ..self }
    }

    /// Kinds of decisions that programs make.
    #[must_use]
    pub fn kinds(&self) -> &[String] {
        &self.kinds
    }

    /// The script of the champion.
    #[must_use]
    pub fn source(&self) -> Option<&str> {
        self.champion.as_ref().map(|champion| champion.source.as_str())
    }

    /// A summary for the terminal, without the script.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!(
            "{} programs for {} on `{}` (seed {}), {} cells of the map; {:.0} s of CPU time\n\n{:<26}{:>9}{:>9}{:>9}{:>7}   1 is as good as {}\n",
            self.evaluations,
            self.kinds.join(", "),
            self.suite,
            self.seed,
            self.cells,
            self.cpu_s,
            "",
            "train",
            "select",
            "unseen",
            "size",
            self.reference
        );
        let mut row = |name: &str, found: &Option<FoundProgram>| {
            // Writing to a text does not fail.
            let _ = match found {
                Some(one) => {
                    let FoundProgram { train_score, select_score, unseen_score, size, .. } = one;
                    let unseen = unseen_score.map_or_else(String::new, |score| format!("{score:.4}"));
                    writeln!(text, "{name:<26}{train_score:>9.4}{select_score:>9.4}{unseen:>9}{size:>7}")
                }
                None => writeln!(text, "{name:<26}  none with a score"),
            };
        };
        row("found", &self.champion);
        row("best in unseen runs", &self.best);
        row("best of as many random", &self.best_of_random);
        if let Some(model) = &self.model {
            text.push_str(&model_text(model));
        }
        text
    }
}

fn model_text(model: &ModelResult) -> String {
    let ModelResult { name, questions, programs, refused, input_tokens, output_tokens, champion_descends } = model;
    let descends = if *champion_descends { "descends from one of them" } else { "descends from none of them" };
    format!(
        "\n{programs} programs of the model `{name}`, {refused} refused ({questions} questions, {input_tokens} input and \
         {output_tokens} output tokens); what was found {descends}\n"
    )
}
