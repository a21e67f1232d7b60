//! Figures for papers: one chart of one or several results as SVG or PNG, with its data as CSV.
//!
//! | figure | of | content |
//! |---|---|---|
//! | `cdf` | results of runs with every request (`--metrics-path`) | cumulative distribution of a latency, a line for each result |
//! | `percentiles` | one such result | p50, p90, p99 of a latency by the window of arrival |
//! | `sweep` | a sweep | a latency over the load, a line for each configuration, with its last point within all limits (the knee), and bars from the lowest to the highest of the seeds |
//! | `pareto` | a sweep | a latency over the cost, with the non-dominated points |
//! | `differences` | a comparison | paired differences of candidates, with intervals |

mod bitmap;
mod chart;
mod drawing;
mod input;
mod latencies;
mod studies;

use serde_json::Value;

use self::chart::{Chart, IntervalChart};
pub use self::input::{PlotError, PlotInput};

/// What a figure shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr, strum::VariantNames)]
#[strum(const_into_str, serialize_all = "lowercase")]
pub enum FigureKind {
    #[strum(to_string = "cdf")]
    LatencyCdf,
    Percentiles,
    Sweep,
    Pareto,
    Differences,
}

impl FigureKind {
    /// The results that it is made of.
    fn needs(self) -> &'static str {
        match self {
            Self::LatencyCdf | Self::Percentiles => {
                "results of runs with every request, as `--metrics-path` writes them"
            }
            Self::Sweep | Self::Pareto => "the result of `blis sweep --output json`",
            Self::Differences => "the result of `blis compare --output json`",
        }
    }

    /// The kind of figure that `document` is made into, unless another is wanted.
    fn from_document(document: &Value) -> Option<Self> {
        if document["requests"].is_array() {
            Some(Self::LatencyCdf)
        } else if document["points"].is_array() && document["figures"].is_array() {
            Some(Self::Sweep)
        } else if document["policies"].is_array() && document["metrics"].is_object() {
            Some(Self::Differences)
        } else {
            None
        }
    }
}

/// A figure for a paper.
#[derive(Clone, Debug)]
pub struct PlotFigure(FigureChart);

#[derive(Clone, Debug)]
enum FigureChart {
    Lines(Chart),
    Intervals(IntervalChart),
}

impl PlotFigure {
    /// The picture as an SVG file.
    #[must_use]
    pub fn svg(&self) -> String {
        match &self.0 {
            FigureChart::Lines(chart) => drawing::svg(chart),
            FigureChart::Intervals(chart) => drawing::svg(chart),
        }
    }

    /// The picture as a PNG file, three pixels for each pixel of the SVG.
    #[must_use]
    pub fn png(&self) -> Vec<u8> {
        match &self.0 {
            FigureChart::Lines(chart) => drawing::png(chart),
            FigureChart::Intervals(chart) => drawing::png(chart),
        }
    }

    /// The numbers of the picture, as a table.
    #[must_use]
    pub fn csv(&self) -> String {
        match &self.0 {
            FigureChart::Lines(chart) => chart.csv(),
            FigureChart::Intervals(chart) => chart.csv(),
        }
    }
}

/// The figure of `inputs`. `kind`: `None` for the usual figure of such results. `figure`: what is drawn, as the result names it (`ttft`,
/// `e2e`, `mean_ttft`, …); `None` for all or the first.
///
/// # Errors
/// If the results are not of that kind, or have no such figure.
pub fn plot(kind: Option<FigureKind>, figure: Option<&str>, inputs: &[PlotInput]) -> Result<PlotFigure, PlotError> {
    let first = inputs.first().ok_or_else(|| PlotError::NoKind(String::new()))?;
    let kind = kind
        .or_else(|| FigureKind::from_document(&first.document))
        .ok_or_else(|| PlotError::NoKind(first.name.clone()))?;
    for input in inputs {
        let is_kind = match (kind, FigureKind::from_document(&input.document)) {
            (FigureKind::LatencyCdf | FigureKind::Percentiles, found) => found == Some(FigureKind::LatencyCdf),
            (FigureKind::Sweep | FigureKind::Pareto, found) => found == Some(FigureKind::Sweep),
            (FigureKind::Differences, found) => found == Some(kind),
        };
        if !is_kind {
            return Err(PlotError::OtherKind { name: input.name.clone(), kind: kind.into_str(), needs: kind.needs() });
        }
    }
    if kind != FigureKind::LatencyCdf && inputs.len() > 1 {
        return Err(PlotError::Several { kind: kind.into_str(), count: inputs.len() });
    }
    let chart = match kind {
        FigureKind::LatencyCdf => latencies::cdf(inputs, figure)?,
        FigureKind::Percentiles => latencies::percentiles(first, figure)?,
        FigureKind::Sweep => studies::sweep(first, figure)?,
        FigureKind::Pareto => studies::pareto(first, figure)?,
        FigureKind::Differences => {
            return Ok(PlotFigure(FigureChart::Intervals(studies::differences(first, figure)?)));
        }
    };
    Ok(PlotFigure(FigureChart::Lines(chart)))
}

#[cfg(test)]
mod tests;
