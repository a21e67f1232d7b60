//! The error of the latency model, and how it is passed on.
//!
//! The error of a deployment is e = ln(measured/simulated). A band for a deployment that was never measured is that of conformal prediction (Vovk,
//! Gammerman and Shafer 2005, Springer): about the median m of the errors of the calibration set, so far to
//! either side that it would have covered 0.9·(1 + 1/G) of that set. Two changes make it hold for what is unlike the set, another model or
//! precision, and not only for another draw of it:
//!
//! * The distance of a row is from the median of the other models, as if its own had never been measured (as in the jackknife+ of Barber, Candès,
//!   Ramdas and Tibshirani 2021, *Annals of Statistics* 49).
//! * Rows of a deployment err alike. Each of n counts 1/√n, and G = (Σw)²/Σw² (Kish 1965) is how many rows these weights are worth.
//!
//! Of `../shared/cases/statistics/model-error.csv`, 443 rows of 6 models, bands of 90 % cover 85 to 91 % of the rows left out by model, GPU or
//! precision; with equal weights and one median 79 to 90 %, with deployments of equal weight 91 to 99 %, four times as wide for TTFT.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{StatisticsError, check_range, check_series};
use crate::quantile::quantile;
use crate::student::normal_quantile;

/// Rows from which a class has a band of its own.
pub const FEWEST_CLASS_ROWS: usize = 100;
/// Deployments from which a class has a band of its own.
pub const FEWEST_CLASS_DEPLOYMENTS: usize = 10;

/// A figure of a deployment, measured and simulated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ModelErrorRow<'a> {
    /// Which deployments are alike: GPU, precision, kind of model.
    pub class: &'a str,
    /// Which rows are of one model.
    pub model: &'a str,
    /// Which rows are of one deployment.
    pub deployment: &'a str,
    /// The error, ln(measured/simulated): above 0 if the simulation is too fast.
    pub error: f64,
}

impl ModelErrorRow<'_> {
    /// ln(`measured`/`simulated`), both above 0 and in the same unit.
    ///
    /// # Errors
    /// If a value is not above 0, or not finite.
    pub fn error_of(measured: f64, simulated: f64) -> Result<f64, StatisticsError> {
        for value in [measured, simulated] {
            check_range("a latency", value, value.is_finite() && value > 0.0, "above 0")?;
        }
        Ok((measured / simulated).ln())
    }
}

/// The errors of a model: between e^(centre − half) and e^(centre + half) times what it says, with the probability of the band.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ErrorBand {
    /// Weighted median of the errors, ln.
    pub centre: f64,
    /// Half the width, ln, ≥ 0.
    pub half_width: f64,
    /// Rows that it is from.
    pub rows: usize,
}

impl ErrorBand {
    /// The band of `rows` that covers the share `coverage`, above 0 and below 1. Too few rows have a band as wide as the worst of them.
    ///
    /// # Errors
    /// If there are no rows, an error is not finite, or `coverage` is out of range.
    pub fn of(rows: &[ModelErrorRow], coverage: f64) -> Result<Self, StatisticsError> {
        check_series(&rows.iter().map(|row| row.error).collect::<Vec<f64>>())?;
        check_range("the coverage of a band", coverage, coverage > 0.0 && coverage < 1.0, "above 0 and below 1")?;
        let rows = weighted(rows);
        let distances = distances(&rows);
        let sum: f64 = rows.iter().map(|row| row.weight).sum();
        let worth = sum * sum / rows.iter().map(|row| row.weight * row.weight).sum::<f64>();
        let half_width = weighted_quantile(distances, coverage * (1.0 + 1.0 / worth));
        Ok(Self { centre: median(&rows), half_width, rows: rows.len() })
    }

    /// Whether the error (ln) is inside.
    #[must_use]
    pub fn contains(&self, error: f64) -> bool {
        (error - self.centre).abs() <= self.half_width
    }

    /// What a simulated value is multiplied by at the lower end of the band.
    #[must_use]
    pub fn low_factor(&self) -> f64 {
        (self.centre - self.half_width).exp()
    }

    /// What a simulated value is multiplied by in the middle of the band.
    #[must_use]
    pub fn centre_factor(&self) -> f64 {
        self.centre.exp()
    }

    /// What a simulated value is multiplied by at the upper end of the band.
    #[must_use]
    pub fn high_factor(&self) -> f64 {
        (self.centre + self.half_width).exp()
    }
}

/// An error with its weight.
#[derive(Clone, Copy)]
struct WeightedError<'a> {
    model: &'a str,
    error: f64,
    weight: f64,
}

fn weighted<'a>(rows: &[ModelErrorRow<'a>]) -> Vec<WeightedError<'a>> {
    let mut counts: BTreeMap<&str, f64> = BTreeMap::new();
    for row in rows {
        *counts.entry(row.deployment).or_default() += 1.0;
    }
    let weight = |row: &ModelErrorRow| 1.0 / counts[row.deployment].sqrt();
    rows.iter().map(|row| WeightedError { model: row.model, error: row.error, weight: weight(row) }).collect()
}

/// The distance of each row from the median of the other models, or from that of all rows if there is one model, with its weight.
fn distances(rows: &[WeightedError]) -> Vec<WeightedError<'static>> {
    let models: BTreeSet<&str> = rows.iter().map(|row| row.model).collect();
    let mut medians = BTreeMap::new();
    for &model in &models {
        let others: Vec<WeightedError> = rows.iter().filter(|row| row.model != model).copied().collect();
        medians.insert(model, median(if others.is_empty() { rows } else { &others }));
    }
    let distance = |row: &WeightedError| (row.error - medians[row.model]).abs();
    rows.iter().map(|row| WeightedError { model: "", error: distance(row), weight: row.weight }).collect()
}

fn median(rows: &[WeightedError]) -> f64 {
    weighted_quantile(rows.to_vec(), 0.5)
}

/// The smallest error at which the weights of all up to it are the share `p` of the sum; the largest error if that is above 1. 0 without rows.
fn weighted_quantile(mut rows: Vec<WeightedError>, p: f64) -> f64 {
    rows.sort_by(|a, b| a.error.total_cmp(&b.error));
    let goal = p * rows.iter().map(|row| row.weight).sum::<f64>() * (1.0 - 1e-12);
    let mut sum = 0.0;
    for row in &rows {
        sum += row.weight;
        if sum >= goal {
            return row.error;
        }
    }
    rows.last().map_or(0.0, |row| row.error)
}

/// The bands of a figure: of classes with enough rows, and of all rows.
#[derive(Clone, Debug, PartialEq)]
pub struct ErrorBands {
    pool: ErrorBand,
    classes: BTreeMap<String, ErrorBand>,
}

impl ErrorBands {
    /// From the rows of a calibration set. A class of [`FEWEST_CLASS_ROWS`] rows of [`FEWEST_CLASS_DEPLOYMENTS`] deployments has a band of its
    /// own.
    ///
    /// # Errors
    /// If there are no rows, or `coverage` is out of range.
    pub fn calibrate(rows: &[ModelErrorRow], coverage: f64) -> Result<Self, StatisticsError> {
        let pool = ErrorBand::of(rows, coverage)?;
        let mut by_class: BTreeMap<&str, Vec<ModelErrorRow>> = BTreeMap::new();
        for row in rows {
            by_class.entry(row.class).or_default().push(*row);
        }
        let mut classes = BTreeMap::new();
        for (class, rows) in by_class.into_iter().filter(|(_, rows)| is_known(rows)) {
            classes.insert(class.to_owned(), ErrorBand::of(&rows, coverage)?);
        }
        Ok(Self { pool, classes })
    }

    /// The band of a class: its own, or that of all rows.
    #[must_use]
    pub fn band(&self, class: &str) -> ErrorBand {
        self.classes.get(class).copied().unwrap_or(self.pool)
    }

    /// Whether the class has a band of its own.
    #[must_use]
    pub fn is_own(&self, class: &str) -> bool {
        self.classes.contains_key(class)
    }
}

fn is_known(rows: &[ModelErrorRow]) -> bool {
    let deployments: BTreeSet<&str> = rows.iter().map(|row| row.deployment).collect();
    rows.len() >= FEWEST_CLASS_ROWS && deployments.len() >= FEWEST_CLASS_DEPLOYMENTS
}

/// What the durations of steps are multiplied by in a draw of the model's error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepFactors {
    /// Of prefill, above 0.
    pub prefill: f64,
    /// Of decode, above 0.
    pub decode: f64,
}

/// Correlation of the errors of prefill and decode. A guess: no measurement has both alone.
const CORRELATION: f64 = 0.5;
/// The largest number of draws.
pub const MOST_DRAWS: usize = 1000;

/// `draws` equally likely errors of the model: stratified quantiles of `prefill` and `decode`, errors (ln) of steps, which are correlated by 0.5.
/// The quantiles of decode are a permutation of those of prefill, mixed as normal scores, so that each has every quantile once.
///
/// # Errors
/// If there are no errors, one is not finite, or `draws` is not from 1 to [`MOST_DRAWS`].
pub fn draw_step_factors(prefill: &[f64], decode: &[f64], draws: usize) -> Result<Vec<StepFactors>, StatisticsError> {
    check_range("the number of draws", draws as f64, (1..=MOST_DRAWS).contains(&draws), "from 1 to 1000")?;
    let score = |index: usize| normal_quantile(middle(index, draws));
    let other = (1.0 - CORRELATION * CORRELATION).sqrt();
    let mixed: Vec<f64> = (0..draws).map(|j| CORRELATION * score(j) + other * score(scattered(j, draws))).collect();
    let mut order: Vec<usize> = (0..draws).collect();
    order.sort_by(|&a, &b| mixed[a].total_cmp(&mixed[b]));
    let mut factors = Vec::with_capacity(draws);
    for j in 0..draws {
        let rank = order.iter().position(|&index| index == j).unwrap_or(j);
        factors.push(StepFactors {
            prefill: quantile(prefill, middle(j, draws))?.exp(),
            decode: quantile(decode, middle(rank, draws))?.exp(),
        });
    }
    Ok(factors)
}

/// The middle of stratum `index` of `strata`, 0 to 1.
fn middle(index: usize, strata: usize) -> f64 {
    (index as f64 + 0.5) / strata as f64
}

/// A permutation of 0 to `count` − 1 without correlation to its argument, about: by the fractional parts of multiples of the golden ratio.
fn scattered(index: usize, count: usize) -> usize {
    let part = |index: usize| ((index as f64 + 0.5) * 0.618_033_988_749_895).fract();
    (0..count).filter(|&other| part(other) < part(index)).count()
}
