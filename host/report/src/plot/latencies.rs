//! Latencies of the requests of runs.

use crate::percentile;
use serde_json::Value;

use super::chart::{Chart, ChartAxis, ChartLine};
use super::input::{PlotError, PlotInput};

/// Latencies by their names, with the fields of requests that have them.
const LATENCIES: [(&str, &str, &str); 4] = [
    ("ttft", "ttft_ms", "TTFT, ms"),
    ("tpot", "itl_ms", "TPOT, ms"),
    ("e2e", "e2e_ms", "end-to-end latency, ms"),
    ("scheduling_delay", "scheduling_delay_ms", "scheduling delay, ms"),
];
/// Most points of a distribution: with more requests, these quantiles.
const QUANTILES: usize = 1_000;
/// Windows of arrivals, at most, and requests of a window, at least on average.
const WINDOWS: usize = 60;
const REQUESTS_OF_A_WINDOW: usize = 20;

/// A latency: the field of requests, and the label of its axis.
type LatencyField = (&'static str, &'static str);

/// The cumulative distribution of a latency in each result.
pub(super) fn cdf(inputs: &[PlotInput], figure: Option<&str>) -> Result<Chart, PlotError> {
    let latency = latency(&inputs[0].name, figure)?;
    let line = |(index, input): (usize, &PlotInput)| {
        let mut values: Vec<f64> = samples(input, latency)?.into_iter().map(|(_, value)| value).collect();
        values.sort_by(f64::total_cmp);
        let count = values.len();
        let kept = count.min(QUANTILES);
        let points = (1..=kept).map(|part| {
            let rank = (part * count).div_ceil(kept);
            (values[rank - 1], rank as f64 / count as f64 * 100.0)
        });
        Ok(ChartLine { marks: false, ..ChartLine::new(format!("{} ({count})", input.name), index, points.collect()) })
    };
    let lines = inputs.iter().enumerate().map(line).collect::<Result<_, PlotError>>()?;
    let x = ChartAxis { label: latency.1.to_owned(), is_log: true };
    Ok(Chart { x, y: ChartAxis::linear("requests within, %"), lines, limits: Vec::new() })
}

/// Percentiles of a latency by the window in which requests arrived.
pub(super) fn percentiles(input: &PlotInput, figure: Option<&str>) -> Result<Chart, PlotError> {
    let latency = latency(&input.name, figure)?;
    let samples = samples(input, latency)?;
    let times = || samples.iter().map(|&(at, _)| at);
    let (first, last) = (times().fold(f64::INFINITY, f64::min), times().fold(0.0, f64::max));
    let count = (samples.len() / REQUESTS_OF_A_WINDOW).clamp(1, WINDOWS);
    let width = ((last - first) / count as f64).max(1e-6);
    let mut windows: Vec<Vec<f64>> = vec![Vec::new(); count];
    for (at, value) in samples {
        windows[(((at - first) / width) as usize).min(count - 1)].push(value);
    }
    windows.iter_mut().for_each(|values| values.sort_by(f64::total_cmp));
    let line = |(index, (name, percent)): (usize, (&str, f64))| {
        let points = windows.iter().enumerate().filter(|(_, values)| !values.is_empty());
        let point = |(window, values): (usize, &Vec<f64>)| {
            // Rounded to µs, as the results have it.
            (first + (window as f64 + 0.5) * width, (percentile(values, percent) * 1e3).round() / 1e3)
        };
        ChartLine::new(name.to_owned(), index, points.map(point).collect())
    };
    let lines = [("p50", 50.0), ("p90", 90.0), ("p99", 99.0)].into_iter().enumerate().map(line).collect();
    Ok(Chart { x: ChartAxis::linear("arrival, s"), y: ChartAxis::linear(latency.1), lines, limits: Vec::new() })
}

fn latency(name: &str, figure: Option<&str>) -> Result<LatencyField, PlotError> {
    let wanted = figure.unwrap_or("ttft");
    let found = LATENCIES.iter().find(|(known, ..)| *known == wanted);
    let &(_, field, label) = found.ok_or_else(|| PlotError::NoFigure {
        name: name.to_owned(),
        wanted: wanted.to_owned(),
        known: LATENCIES.map(|(name, ..)| name).join(", "),
    })?;
    Ok((field, label))
}

/// Time of arrival, s, and latency, ms, of each completed request.
fn samples(input: &PlotInput, (field, label): LatencyField) -> Result<Vec<(f64, f64)>, PlotError> {
    let requests = input.document["requests"].as_array().map(Vec::as_slice).unwrap_or_default();
    let completed = |request: &&Value| request["status"].as_str().is_none_or(|status| status == "completed");
    let sample = |request: &Value| Some((request["arrived_at"].as_f64()?, request[field].as_f64()?));
    let samples: Vec<_> = requests.iter().filter(completed).filter_map(sample).filter(|&(_, ms)| ms > 0.0).collect();
    if samples.is_empty() {
        return Err(PlotError::Empty { name: input.name.clone(), wanted: label.to_owned() });
    }
    Ok(samples)
}
