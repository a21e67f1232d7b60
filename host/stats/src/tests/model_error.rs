//! Bands of the model's error, on the rows of `../shared/cases/statistics/model-error.csv`: those left out by model, GPU or precision.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::shared;
use crate::{ErrorBands, ModelErrorRow, StatisticsError, draw_step_factors};

#[derive(Deserialize)]
struct Row {
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
enum Figure {
    Ttft,
    Tpot,
    E2e,
}

impl Row {
    fn class(&self) -> String {
        format!("{} {}", self.gpu, self.precision)
    }

    fn deployment(&self) -> String {
        [&self.model, &self.precision, &self.gpu, &self.engine, &self.tp, &self.ep].map(String::as_str).join(" ")
    }

    fn values(&self, figure: Figure) -> (f64, f64) {
        let e2e = |ttft: f64, tpot: f64| ttft + tpot * (self.osl - 1.0);
        match figure {
            Figure::Ttft => (self.measured_ttft_ms, self.simulated_ttft_ms),
            Figure::Tpot => (self.measured_tpot_ms, self.simulated_tpot_ms),
            Figure::E2e => {
                (e2e(self.measured_ttft_ms, self.measured_tpot_ms), e2e(self.simulated_ttft_ms, self.simulated_tpot_ms))
            }
        }
    }
}

struct Table {
    rows: Vec<Row>,
    classes: Vec<String>,
    deployments: Vec<String>,
}

impl Table {
    fn read() -> Option<Self> {
        let text = shared("model-error.csv")?;
        let rows: Vec<Row> = csv::Reader::from_reader(&text[..]).deserialize().map(|row| row.expect("a row")).collect();
        let classes = rows.iter().map(Row::class).collect();
        let deployments = rows.iter().map(Row::deployment).collect();
        Some(Self { rows, classes, deployments })
    }

    fn errors(&self, figure: Figure) -> Vec<ModelErrorRow<'_>> {
        let of = |index: usize| {
            let (measured, simulated) = self.rows[index].values(figure);
            let error = ModelErrorRow::error_of(measured, simulated).expect("above 0");
            let (class, deployment) = (&self.classes[index], &self.deployments[index]);
            ModelErrorRow { class, model: &self.rows[index].model, deployment, error }
        };
        (0..self.rows.len()).map(of).collect()
    }

    /// The share of the rows that the bands of all rows with another `key` cover, and the median width (a factor to either side).
    fn left_out(&self, figure: Figure, key: impl Fn(&Row) -> &str) -> (f64, f64) {
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
    let Some(table) = Table::read() else { return };
    for figure in [Figure::Ttft, Figure::Tpot, Figure::E2e] {
        let by: [(&str, fn(&Row) -> &str); 3] =
            [("model", |row| &row.model), ("gpu", |row| &row.gpu), ("precision", |row| &row.precision)];
        for (name, key) in by {
            let (covered, width) = table.left_out(figure, key);
            println!("{figure:?} left out by {name}: {:.1} % covered, median factor {width:.2}", 100.0 * covered);
        }
    }
}
