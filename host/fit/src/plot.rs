//! Measured and simulated latency over the course of each run, as SVG.

use std::path::Path;

use plotters::prelude::*;

use super::errors::mean;
use super::validate::Validated;

/// Size of one run's panel, pixels.
const PANEL: (u32, u32) = (720, 260);

/// Number of points of a line: each is the mean over one section of the requests.
const STRETCHES: usize = 120;

const MEASURED: RGBColor = RGBColor(0x33, 0x33, 0x33);
const SIMULATED: RGBColor = RGBColor(0xd5, 0x5e, 0x00);

/// Draws one panel per run: mean end-to-end latency of neighbouring requests, measured dark, simulated orange.
///
/// # Errors
/// If the file cannot be written, as text.
pub fn draw(path: &Path, runs: &[Validated]) -> Result<(), String> {
    let height = PANEL.1 * u32::try_from(runs.len().max(1)).unwrap_or(1);
    let root = SVGBackend::new(path, (PANEL.0, height)).into_drawing_area();
    let failed = |error: String| format!("cannot draw `{}`: {error}", path.display());
    root.fill(&WHITE).map_err(|error| failed(error.to_string()))?;
    for (panel, run) in root.split_evenly((runs.len().max(1), 1)).iter().zip(runs) {
        draw_run(panel, run).map_err(failed)?;
    }
    root.present().map_err(|error| failed(error.to_string()))
}

fn draw_run(panel: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>, run: &Validated) -> Result<(), String> {
    let message = |error: DrawingAreaErrorKind<_>| error.to_string();
    let lines = [line(run, |point| point.1), line(run, |point| point.2)];
    let highest = lines.iter().flatten().map(|point| point.1).fold(0.0, f64::max);
    let (first, last) =
        run.points.iter().fold((f64::INFINITY, 0.0), |(low, high), point| (point.0.min(low), point.0.max(high)));
    let title = format!("{} ({}): mean E2E {:+.1} %", run.run, run.split, run.errors.e2e.mean);
    let mut chart = ChartBuilder::on(panel)
        .caption(title, ("sans-serif", 14))
        .margin(8)
        .x_label_area_size(32)
        .y_label_area_size(52)
        .build_cartesian_2d(first..last.max(first + 1e-6), 0.0..highest.max(1e-6) * 1.1)
        .map_err(message)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc("arrival, s")
        .y_desc("E2E, s")
        .draw()
        .map_err(message)?;
    for (line, (name, colour)) in lines.into_iter().zip([("measured", MEASURED), ("simulated", SIMULATED)]) {
        let series = LineSeries::new(line, colour.stroke_width(2));
        let drawn = chart.draw_series(series).map_err(message)?;
        drawn.label(name).legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
    }
    let labels = chart.configure_series_labels().border_style(TRANSPARENT).draw();
    labels.map_err(message)
}

/// Means of `what` over sections of the requests.
fn line(run: &Validated, what: fn(&(f64, f64, f64)) -> f64) -> Vec<(f64, f64)> {
    let stretch = run.points.len().div_ceil(STRETCHES).max(1);
    let of = |points: &[(f64, f64, f64)], what: fn(&(f64, f64, f64)) -> f64| {
        mean(&points.iter().map(what).collect::<Vec<_>>())
    };
    run.points.chunks(stretch).map(|points| (of(points, |point| point.0), of(points, what))).collect()
}
