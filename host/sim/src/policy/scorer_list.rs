//! Scorers and weights in one line: `precise-prefix-cache:2,queue-depth:1`.

use std::ops::Range;

use super::scorers::{ScorerKind, UnknownScorer};

/// Reads `name:weight,…`. Blanks around names and weights do not matter.
///
/// # Errors
///
/// The first problem, with its place in `text`.
pub fn parse_scorers(text: &str) -> Result<Vec<(ScorerKind, f64)>, ScorerListError> {
    let mut scorers: Vec<(ScorerKind, f64)> = Vec::new();
    for item in text.split(',') {
        let at = |part: &str, problem| ScorerListError { range: range_of(part, text), problem };
        let item = item.trim();
        if item.is_empty() {
            return Err(at(item, ScorerListProblem::Empty));
        }
        let Some((name, weight)) = item.split_once(':') else {
            return Err(at(item, ScorerListProblem::NoWeight { item: item.to_owned() }));
        };
        let (name, weight) = (name.trim(), weight.trim());
        if weight.is_empty() {
            return Err(at(item, ScorerListProblem::NoWeight { item: name.to_owned() }));
        }
        let kind: ScorerKind = name.parse().map_err(|unknown| at(name, ScorerListProblem::Unknown(unknown)))?;
        if scorers.iter().any(|&(other, _)| other == kind) {
            return Err(at(name, ScorerListProblem::Duplicate { kind }));
        }
        let weight = parse_weight(weight).map_err(|problem| at(weight, problem))?;
        scorers.push((kind, weight));
    }
    Ok(scorers)
}

fn parse_weight(text: &str) -> Result<f64, ScorerListProblem> {
    let weight = text.parse().map_err(|_| ScorerListProblem::NotANumber { weight: text.to_owned() })?;
    if is_weight(weight) { Ok(weight) } else { Err(ScorerListProblem::OutOfRange { weight }) }
}

/// Whether `weight` can weigh a term.
pub(super) fn is_weight(weight: f64) -> bool {
    weight.is_finite() && weight > 0.0
}

/// Where `part`, a slice of `text`, lies in it.
fn range_of(part: &str, text: &str) -> Range<usize> {
    let start = part.as_ptr().addr() - text.as_ptr().addr();
    start..start + part.len()
}

/// What is wrong with a list of scorers, and where.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{problem}")]
pub struct ScorerListError {
    /// The bytes of the text concerned; empty where something is missing.
    pub range: Range<usize>,
    /// What.
    pub problem: ScorerListProblem,
}

/// What is wrong with a list of scorers.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ScorerListProblem {
    /// Nothing between two commas, or nothing at all.
    #[error("a scorer is missing here: write `name:weight`, separated by commas")]
    Empty,
    /// No colon.
    #[error("`{item}` has no weight: write `name:weight`, as `queue-depth:1`")]
    NoWeight {
        /// The name, as given.
        item: String,
    },
    /// No such scorer.
    #[error(transparent)]
    Unknown(UnknownScorer),
    /// Named twice.
    #[error("`{kind}` is there twice: give it the sum of its weights once")]
    Duplicate {
        /// Which.
        kind: ScorerKind,
    },
    /// Not a number.
    #[error("the weight `{weight}` is not a number")]
    NotANumber {
        /// As given.
        weight: String,
    },
    /// Not above 0, or not finite.
    #[error("a weight is a finite number above 0, not {weight}")]
    OutOfRange {
        /// As read.
        weight: f64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_in_order() {
        assert_eq!(
            parse_scorers("precise-prefix-cache:2, queue-depth:1 ,kv-utilization : 1e0"),
            Ok(super::super::DEFAULT_PROFILE.to_vec())
        );
    }

    #[test]
    fn errors_say_what_and_point_where() {
        let texts = [
            "",
            "queue-depth:1,,load-aware:1",
            "queue-depth:1,",
            "queue-depth",
            "kv-utilization:1,queue-dept:1",
            "load-aware:1, load-aware:2",
            "load-aware:x",
            "load-aware:",
            "load-aware:0",
            "load-aware:-1",
            "load-aware:inf",
            "load-aware:NaN",
        ];
        let shown = texts.map(|text| {
            let error = parse_scorers(text).unwrap_err();
            let carets = "^".repeat(error.range.len().max(1));
            format!("|{text}\n|{}{carets} {error}", " ".repeat(error.range.start))
        });
        insta::assert_snapshot!(shown.join("\n"), @r"
        |
        |^ a scorer is missing here: write `name:weight`, separated by commas
        |queue-depth:1,,load-aware:1
        |              ^ a scorer is missing here: write `name:weight`, separated by commas
        |queue-depth:1,
        |              ^ a scorer is missing here: write `name:weight`, separated by commas
        |queue-depth
        |^^^^^^^^^^^ `queue-depth` has no weight: write `name:weight`, as `queue-depth:1`
        |kv-utilization:1,queue-dept:1
        |                 ^^^^^^^^^^ `queue-dept` is not a scorer (did you mean `queue-depth`?); scorers are queue-depth, kv-utilization, load-balance, active-requests, running-requests, load-aware, vllm-dp, prefix-affinity, precise-prefix-cache, no-hit-lru, lora-affinity
        |load-aware:1, load-aware:2
        |              ^^^^^^^^^^ `load-aware` is there twice: give it the sum of its weights once
        |load-aware:x
        |           ^ the weight `x` is not a number
        |load-aware:
        |^^^^^^^^^^^ `load-aware` has no weight: write `name:weight`, as `queue-depth:1`
        |load-aware:0
        |           ^ a weight is a finite number above 0, not 0
        |load-aware:-1
        |           ^^ a weight is a finite number above 0, not -1
        |load-aware:inf
        |           ^^^ a weight is a finite number above 0, not inf
        |load-aware:NaN
        |           ^^^ a weight is a finite number above 0, not NaN
        ");
    }
}
