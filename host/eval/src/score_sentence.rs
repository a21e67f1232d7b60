//! Scores relative to a reference, in sentences.

use blis_report::{Concludes, Conclusion, ConclusionKind, three_digits};

use crate::result::{EvaluationResult, EvaluationStatus};

impl Concludes for EvaluationResult {
    fn conclusion(&self) -> Conclusion {
        if self.status != EvaluationStatus::Ok {
            let why = self.rejection().unwrap_or_default();
            let first = why.lines().find(|line| !line.trim().is_empty()).unwrap_or("without a reason").trim();
            return Conclusion::new(ConclusionKind::Fails, format!("No score ({}): {first}", self.status.into_str()));
        }
        let Some(paired) = self.private.paired.as_ref().or(self.paired.as_ref()) else {
            return Conclusion::new(ConclusionKind::UNDECIDED, "Undecided: no stage compared it with the reference");
        };
        let gain = ScoreGain { mean: paired.diff_mean, ci95: paired.ci95 };
        let scenarios = self.scenarios.iter().chain(&self.private.scenarios);
        let worst =
            scenarios.filter(|run| run.stage == self.stage).min_by(|one, other| one.score.total_cmp(&other.score));
        let worst = worst.map_or(String::new(), |run| format!("; worst run {} ({})", ratio(run.score - 1.0), run.id));
        let text = format!("{} the reference {} in {}{worst}", gain.words(), paired.reference, self.stage);
        Conclusion::new(gain.kind(), text)
    }

    fn volatile(&self) -> &'static [&'static str] {
        &["id", "cost"]
    }
}

/// A ratio of scores − 1, with its interval.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScoreGain {
    pub mean: f64,
    pub ci95: Option<[f64; 2]>,
}

impl ScoreGain {
    /// `1.079 × [1.070, 1.087]`.
    pub fn words(self) -> String {
        let interval = self.ci95.map_or(String::new(), |[low, high]| format!(" [{}, {}]", ratio(low), ratio(high)));
        let begin = if self.kind() == ConclusionKind::UNDECIDED { "Undecided: " } else { "" };
        format!("{begin}{} ×{interval}", ratio(self.mean))
    }

    pub fn kind(self) -> ConclusionKind {
        match self.ci95 {
            Some([low, _]) if low > 0.0 => ConclusionKind::Better,
            Some([_, high]) if high < 0.0 => ConclusionKind::Worse,
            _ => ConclusionKind::UNDECIDED,
        }
    }
}

fn ratio(gain: f64) -> String {
    if gain.abs() < 1.0 { format!("{:.3}", 1.0 + gain) } else { three_digits(1.0 + gain) }
}
