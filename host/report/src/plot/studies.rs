//! Results of several runs: sweeps and comparisons.

use std::collections::BTreeSet;

use serde_json::Value;

use super::chart::{Chart, ChartAxis, ChartLine, IntervalChart, IntervalRow};
use super::input::{PlotError, PlotInput};

/// A point of a sweep.
struct FigurePoint {
    /// The values of its settings, in the order of the sweep.
    settings: Vec<String>,
    /// Value of the figure, ms.
    value: f64,
    /// The lowest and the highest of its seeds, ms.
    range: Option<(f64, f64)>,
    cost: f64,
    meets_slos: bool,
    non_dominated: bool,
}

/// The points of a sweep that have a value of one figure.
struct SweepFigure {
    /// Names of the settings.
    names: Vec<String>,
    /// The figure as the sweep names it, such as `ttft_p90=500ms`.
    figure: String,
    points: Vec<FigurePoint>,
}

impl SweepFigure {
    fn read(input: &PlotInput, figure: Option<&str>) -> Result<Self, PlotError> {
        let figures: Vec<&str> = list(&input.document["figures"]).iter().filter_map(Value::as_str).collect();
        let bare = |name: &str| name.split('=').next().unwrap_or_default().to_owned();
        let index = match figure {
            None => (!figures.is_empty()).then_some(0),
            Some(wanted) => figures.iter().position(|name| *name == wanted || bare(name) == wanted),
        };
        let index = index.ok_or_else(|| PlotError::NoFigure {
            name: input.name.clone(),
            wanted: figure.unwrap_or_default().to_owned(),
            known: figures.iter().map(|name| bare(name)).collect::<Vec<_>>().join(", "),
        })?;
        let points = list(&input.document["points"]);
        let settings = |point: &Value| list(&point["settings"]).to_vec();
        let names = points.first().map(settings).unwrap_or_default();
        let names: Vec<String> = names.iter().map(|one| text(&one["name"])).collect();
        let read = |point: &Value| {
            let measured = &point["measured"];
            let range = &measured["ranges_ms"][index];
            Some(FigurePoint {
                range: range["low"].as_f64().zip(range["high"].as_f64()),
                settings: list(&point["settings"]).iter().map(|one| text(&one["value"])).collect(),
                value: measured["values_ms"][index].as_f64()?,
                cost: measured["cost"].as_f64()?,
                meets_slos: measured["meets_slos"] == true,
                non_dominated: measured["non_dominated"] == true,
            })
        };
        let points: Vec<FigurePoint> =
            points.iter().filter_map(read).filter(|point| point.settings.len() == names.len()).collect();
        if points.is_empty() {
            return Err(PlotError::Empty { name: input.name.clone(), wanted: figures[index].to_owned() });
        }
        Ok(Self { names, figure: figures[index].to_owned(), points })
    }

    fn axis(&self) -> ChartAxis {
        ChartAxis { label: format!("{}, ms", self.figure.split('=').next().unwrap_or_default()), is_log: true }
    }

    /// The setting of the horizontal axis: the rate or the concurrency, else the first with numbers that differ.
    fn varied(&self) -> Option<usize> {
        let values = |index: usize| self.points.iter().map(move |point| point.settings[index].as_str());
        let is_varied = |&index: &usize| {
            values(index).all(|value| value.parse::<f64>().is_ok()) && values(index).collect::<BTreeSet<_>>().len() > 1
        };
        let loads = ["rate", "concurrency"];
        let mut varied: Vec<usize> = (0..self.names.len()).filter(is_varied).collect();
        varied.sort_by_key(|&index| !loads.contains(&self.names[index].as_str()));
        varied.first().copied()
    }

    /// The limit of `ttft_p90=500ms`, ms, with its text.
    fn limit(&self) -> Option<(f64, String)> {
        let (_, limit) = self.figure.split_once('=')?;
        let digits = limit.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(limit.len());
        let factor = match &limit[digits..] {
            "us" | "µs" => 1e-3,
            "ms" => 1.0,
            "s" => 1e3,
            _ => return None,
        };
        Some((limit[..digits].parse::<f64>().ok()? * factor, self.figure.clone()))
    }
}

/// A figure over the load, a line for each configuration.
pub(super) fn sweep(input: &PlotInput, figure: Option<&str>) -> Result<Chart, PlotError> {
    let sweep = SweepFigure::read(input, figure)?;
    let x = sweep.varied().ok_or_else(|| PlotError::Empty {
        name: input.name.clone(),
        wanted: "a setting with several numbers".to_owned(),
    })?;
    let others = |point: &FigurePoint| {
        let named = sweep.names.iter().zip(&point.settings).enumerate().filter(|&(index, _)| index != x);
        let all: Vec<String> = named.map(|(_, (name, value))| format!("{name}={value}")).collect();
        if all.is_empty() { "all points".to_owned() } else { all.join(", ") }
    };
    let mut lines: Vec<ChartLine> = Vec::new();
    let mut labels: Vec<String> = Vec::new();
    sweep.points.iter().map(others).for_each(|label| {
        if !labels.contains(&label) {
            labels.push(label);
        }
    });
    for label in labels {
        let load = |point: &FigurePoint| point.settings[x].parse::<f64>().unwrap_or(f64::NAN);
        let mut own: Vec<&FigurePoint> = sweep.points.iter().filter(|point| others(point) == label).collect();
        own.sort_by(|a, b| load(a).total_cmp(&load(b)));
        let within = own.iter().filter(|point| point.meets_slos).count();
        // Without a point beyond the limits, the knee was not reached.
        let knee = own.iter().rfind(|point| point.meets_slos).filter(|_| within < own.len());
        let knee = knee.map(|point| (load(point), point.value));
        let points = own.iter().map(|point| (load(point), point.value)).collect();
        let ranges: Vec<_> = own.iter().map(|point| point.range).collect();
        let ranges = if ranges.iter().any(Option::is_some) { ranges } else { Vec::new() };
        lines.push(ChartLine { knee, ranges, ..ChartLine::new(label, lines.len(), points) });
    }
    let limits = sweep.limit().into_iter().collect();
    Ok(Chart { x: ChartAxis::linear(&sweep.names[x]), y: sweep.axis(), lines, limits })
}

/// A figure over the cost.
pub(super) fn pareto(input: &PlotInput, figure: Option<&str>) -> Result<Chart, PlotError> {
    let sweep = SweepFigure::read(input, figure)?;
    let points = |non_dominated: bool| {
        let own = sweep.points.iter().filter(|point| point.non_dominated == non_dominated);
        let mut own: Vec<(f64, f64)> = own.map(|point| (point.cost, point.value)).collect();
        own.sort_by(|a, b| a.0.total_cmp(&b.0));
        own
    };
    let lines = vec![
        ChartLine::new("non-dominated".to_owned(), 2, points(true)),
        ChartLine { is_connected: false, ..ChartLine::new("dominated".to_owned(), 7, points(false)) },
    ];
    let limits = sweep.limit().into_iter().collect();
    Ok(Chart { x: ChartAxis::linear("cost (GPUs per load, or price)"), y: sweep.axis(), lines, limits })
}

/// Paired differences from the baseline, % of its mean.
pub(super) fn differences(input: &PlotInput, figure: Option<&str>) -> Result<IntervalChart, PlotError> {
    let metrics = input.document["metrics"].as_object().into_iter().flatten();
    let wanted = |(name, _): &(&String, &Value)| figure.is_none_or(|figure| figure == *name);
    let mut rows = Vec::new();
    for (name, metric) in metrics.clone().filter(wanted) {
        let base = metric["means"][0].as_f64().unwrap_or(0.0).abs();
        for one in list(&metric["differences"]) {
            let percent = |key: &str| one[key].as_f64().filter(|_| base > 0.0).map(|value| value / base * 100.0);
            let Some(mean) = percent("mean") else { continue };
            rows.push(IntervalRow {
                name: name.clone(),
                candidate: text(&one["candidate"]),
                mean,
                interval: percent("low").zip(percent("high")),
                result: text(&one["result"]),
            });
        }
    }
    if rows.is_empty() {
        return Err(PlotError::NoFigure {
            name: input.name.clone(),
            wanted: figure.unwrap_or("differences").to_owned(),
            known: metrics.map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", "),
        });
    }
    let baseline = text(&input.document["policies"][0]);
    Ok(IntervalChart { label: format!("difference from {baseline}, %"), rows })
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// A text as it is, anything else as JSON.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
