//! Many rows in one table: of 22 independent ones at 5 % each, one or more are false with a probability of 68 %.
//!
//! Primary rows are declared, and one false conclusion among all of them has at most the probability α (Holm 1979, *Scandinavian Journal of
//! Statistics* 6). Among the conclusions of the others, which are exploratory, the expected share of false ones is at most α (Benjamini and
//! Hochberg 1995, *Journal of the Royal Statistical Society B* 57).

use crate::conclusion::MeanDifference;

/// Which hypotheses Holm's procedure rejects at the level `alpha` (0 to 1), in the order of their p-values `p` (each 0 to 1).
#[must_use]
pub fn holm(p: &[f64], alpha: f64) -> Vec<bool> {
    let order = ascending(p);
    let mut rejected = vec![false; p.len()];
    for (rank, &index) in order.iter().enumerate() {
        // A p-value that is not a number rejects nothing.
        if p[index].is_nan() || p[index] > alpha / (p.len() - rank) as f64 {
            break;
        }
        rejected[index] = true;
    }
    rejected
}

/// Which hypotheses the procedure of Benjamini and Hochberg rejects at the level `alpha` (0 to 1).
#[must_use]
pub fn benjamini_hochberg(p: &[f64], alpha: f64) -> Vec<bool> {
    let order = ascending(p);
    let is_below = |rank: usize| p[order[rank]] <= alpha * (rank + 1) as f64 / p.len() as f64;
    let last = (0..p.len()).rev().find(|&rank| is_below(rank));
    let mut rejected = vec![false; p.len()];
    for &index in order.iter().take(last.map_or(0, |rank| rank + 1)) {
        rejected[index] = true;
    }
    rejected
}

fn ascending(p: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&a, &b| p[a].total_cmp(&p[b]));
    order
}

/// A row of a table: a figure of a policy beside that of another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ComparisonRow {
    /// The difference; its conclusion may be withdrawn.
    pub difference: MeanDifference,
    /// Whether the row is primary; the others are exploratory.
    pub is_primary: bool,
    /// The margin of the figure, in its unit.
    pub margin: f64,
}

/// Withdraws the conclusions that the other rows of the table do not allow: of primary rows by Holm's procedure, of the others by that of
/// Benjamini and Hochberg, each at the level `alpha` (0 to 1).
pub fn allow_for_multiplicity(rows: &mut [ComparisonRow], alpha: f64) {
    for is_primary in [true, false] {
        let group: Vec<&mut ComparisonRow> = rows.iter_mut().filter(|row| row.is_primary == is_primary).collect();
        let p: Vec<f64> = group.iter().map(|row| row.difference.p).collect();
        let rejected = if is_primary { holm(&p, alpha) } else { benjamini_hochberg(&p, alpha) };
        for (row, rejected) in group.into_iter().zip(rejected) {
            if !rejected {
                row.difference = row.difference.withdrawn(row.margin);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BetterSide, DifferenceConclusion, MeanEstimate, MeanInterval};

    /// Benjamini and Hochberg's own example, 15 p-values at 5 %: theirs rejects four, Holm's three.
    #[test]
    fn procedures_reject_as_in_the_literature() {
        let p = [
            0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719, 0.6528,
            0.7590, 1.0,
        ];
        let count = |rejected: Vec<bool>| rejected.into_iter().filter(|&is| is).count();
        assert_eq!((count(holm(&p, 0.05)), count(benjamini_hochberg(&p, 0.05))), (3, 4));
        let backwards: Vec<f64> = p.iter().rev().copied().collect();
        assert_eq!(holm(&backwards, 0.05), holm(&p, 0.05).into_iter().rev().collect::<Vec<_>>());
        assert!(holm(&[], 0.05).is_empty() && benjamini_hochberg(&[], 0.05).is_empty());
        assert_eq!((holm(&[f64::NAN], 0.05), benjamini_hochberg(&[f64::NAN], 0.05)), (vec![false], vec![false]));
    }

    #[test]
    fn a_row_that_is_only_just_better_is_withdrawn_beside_others() {
        let row = |estimate: f64, is_primary| ComparisonRow {
            difference: MeanDifference::conclude(
                &MeanEstimate::Known(MeanInterval::symmetric(estimate, 1.0, 29.0, 0.95)),
                0.0,
                BetterSide::Less,
            ),
            is_primary,
            margin: 0.0,
        };
        let mut rows = [row(-2.2, true), row(-9.0, true), row(-2.2, false), row(0.1, true)];
        assert_eq!(rows[0].difference.conclusion, DifferenceConclusion::Better);
        allow_for_multiplicity(&mut rows, 0.05);
        let conclusions = rows.map(|row| row.difference.conclusion.name());
        assert_eq!(conclusions, ["undecided", "better", "better", "undecided"]);
        assert!(rows[0].difference.times_more.is_some());
    }
}
