//! Bands of the model's error, on the rows of `../shared/cases/statistics/model-error.csv`: those left out by model, GPU or precision.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::processes::TestStream;
use super::shared;
use crate::student::normal_quantile;
use crate::{ErrorBands, ModelErrorRow, StatisticsError, draw_step_factors};

#[derive(Deserialize)]
struct MeasuredRow {
    model: String,
    precision: String,
    gpu: String,
    engine: String,
    tp: String,
    ep: String,
    osl: f64,
    measured_ttft_ms: f64,
    measured_tpot_ms: f64,
    simulated_ttft_ms: f64,
    simulated_tpot_ms: f64,
}

#[derive(Clone, Copy, Debug)]
enum RowFigure {
    Ttft,
    Tpot,
    E2e,
}

impl MeasuredRow {
    fn class(&self) -> String {
        format!("{} {}", self.gpu, self.precision)
    }

    fn deployment(&self) -> String {
        [&self.model, &self.precision, &self.gpu, &self.engine, &self.tp, &self.ep].map(String::as_str).join(" ")
    }

    fn values(&self, figure: RowFigure) -> (f64, f64) {
        let e2e = |ttft: f64, tpot: f64| ttft + tpot * (self.osl - 1.0);
        match figure {
            RowFigure::Ttft => (self.measured_ttft_ms, self.simulated_ttft_ms),
            RowFigure::Tpot => (self.measured_tpot_ms, self.simulated_tpot_ms),
            RowFigure::E2e => {
                (e2e(self.measured_ttft_ms, self.measured_tpot_ms), e2e(self.simulated_ttft_ms, self.simulated_tpot_ms))
            }
        }
    }
}

struct MeasuredTable {
    rows: Vec<MeasuredRow>,
    classes: Vec<String>,
    deployments: Vec<String>,
}

impl MeasuredTable {
    fn read() -> Option<Self> {
        let text = shared("model-error.csv")?;
        let rows: Vec<MeasuredRow> =
            csv::Reader::from_reader(&text[..]).deserialize().map(|row| row.expect("a row")).collect();
        let classes = rows.iter().map(MeasuredRow::class).collect();
        let deployments = rows.iter().map(MeasuredRow::deployment).collect();
        Some(Self { rows, classes, deployments })
    }

    fn errors(&self, figure: RowFigure) -> Vec<ModelErrorRow<'_>> {
        let of = |index: usize| {
            let (measured, simulated) = self.rows[index].values(figure);
            let error = ModelErrorRow::error_of(measured, simulated).expect("above 0");
            let (class, deployment) = (&self.classes[index], &self.deployments[index]);
            ModelErrorRow { class, model: &self.rows[index].model, deployment, error }
        };
        (0..self.rows.len()).map(of).collect()
    }

    /// The share of the rows that the bands of all rows with another `key` cover, and the median width (a factor to either side).
    fn left_out(&self, figure: RowFigure, key: impl Fn(&MeasuredRow) -> &str) -> (f64, f64) {
        let errors = self.errors(figure);
        let keys: BTreeSet<&str> = self.rows.iter().map(&key).collect();
        let (mut covered, mut widths) = (0, Vec::new());
        for left in keys {
            let is_left = |index: usize| key(&self.rows[index]) == left;
            let (held, known): (Vec<usize>, Vec<usize>) = (0..errors.len()).partition(|&index| is_left(index));
            let known: Vec<ModelErrorRow> = known.into_iter().map(|index| errors[index]).collect();
            let bands = ErrorBands::calibrate(&known, 0.9).expect("rows");
            for index in held {
                let band = bands.band(errors[index].class);
                covered += usize::from(band.contains(errors[index].error));
                widths.push(band.half_width.exp());
            }
        }
        widths.sort_by(f64::total_cmp);
        (covered as f64 / errors.len() as f64, widths[widths.len() / 2])
    }
}

#[test]
fn bands_cover_what_was_left_out() {
    let Some(table) = MeasuredTable::read() else { return };
    type LeftOutKey = fn(&MeasuredRow) -> &str;
    let keys: [(&str, LeftOutKey); 3] =
        [("model", |row| &row.model), ("GPU", |row| &row.gpu), ("precision", |row| &row.precision)];
    for (figure, widest) in [(RowFigure::Ttft, 3.6), (RowFigure::Tpot, 2.2), (RowFigure::E2e, 2.0)] {
        for (name, key) in keys {
            let (covered, width) = table.left_out(figure, key);
            let line = format!("{figure:?} left out by {name}: {covered:.3} covered, median factor {width:.2}");
            println!("{line}");
            assert!((0.85..=0.95).contains(&covered) && width < widest, "{line}");
        }
    }
}

/// Rows that are kept back at random.
#[test]
fn bands_cover_what_was_kept_back() {
    let Some(table) = MeasuredTable::read() else { return };
    for figure in [RowFigure::Ttft, RowFigure::Tpot, RowFigure::E2e] {
        let errors = table.errors(figure);
        let mut shares = Vec::new();
        for seed in 0..20 {
            let mut stream = TestStream::new(seed);
            let (known, held): (Vec<ModelErrorRow>, Vec<ModelErrorRow>) =
                errors.iter().partition(|_| stream.uniform() < 0.68);
            let bands = ErrorBands::calibrate(&known, 0.9).expect("rows");
            let covered = held.iter().filter(|row| bands.band(row.class).contains(row.error)).count();
            shares.push(covered as f64 / held.len() as f64);
        }
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        println!("{figure:?} kept back: {mean:.3} covered");
        assert!((0.87..=0.95).contains(&mean), "{figure:?}: {mean}");
    }
}

#[test]
fn a_class_has_its_own_band_if_it_is_known_well() {
    let names: Vec<String> = (0..20).map(|index| format!("deployment {index}")).collect();
    let row = |index: usize, class, spread: f64| {
        let error = spread * ((index * 7 % 101) as f64 / 50.0 - 1.0);
        ModelErrorRow { class, model: &names[index % 2], deployment: &names[index % 20], error }
    };
    let mut rows: Vec<ModelErrorRow> = (0..200).map(|index| row(index, "narrow", 0.1)).collect();
    rows.extend((0..50).map(|index| row(index, "few", 1.0)));
    let bands = ErrorBands::calibrate(&rows, 0.9).expect("rows");
    assert!(bands.is_own("narrow") && !bands.is_own("few") && !bands.is_own("unknown"));
    assert!(bands.band("narrow").half_width < 0.11 && bands.band("few") == bands.band("unknown"));
    assert_eq!(ErrorBands::calibrate(&[], 0.9), Err(StatisticsError::Empty));
    assert!(ErrorBands::calibrate(&rows, 1.0).is_err() && ModelErrorRow::error_of(0.0, 1.0).is_err());
    assert_eq!(ModelErrorRow::error_of(2.0, 2.0), Ok(0.0));
}

/// Each quantile once on either side, with a correlation of about 0.5 of the normal scores.
#[test]
fn draws_are_stratified_and_correlated() {
    let errors: Vec<f64> = (0..1001).map(|i| normal_quantile((f64::from(i) + 0.5) / 1001.0)).collect();
    for draws in [5, 20, 100] {
        let factors = draw_step_factors(&errors, &errors, draws).expect("valid");
        let logs: Vec<(f64, f64)> = factors.iter().map(|draw| (draw.prefill.ln(), draw.decode.ln())).collect();
        let mut decode: Vec<f64> = logs.iter().map(|pair| pair.1).collect();
        decode.sort_by(f64::total_cmp);
        assert!(
            logs.iter().zip(&decode).all(|(pair, decode)| (pair.0 - decode).abs() < 1e-9),
            "{draws}: a permutation"
        );
        let products: f64 = logs.iter().map(|(prefill, decode)| prefill * decode).sum();
        let correlation = products / logs.iter().map(|pair| pair.0 * pair.0).sum::<f64>();
        assert!((0.25..0.75).contains(&correlation), "{draws} draws: {correlation}");
    }
    assert!(draw_step_factors(&errors, &errors, 0).is_err() && draw_step_factors(&[], &errors, 5).is_err());
}
