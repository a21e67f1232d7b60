//! The figures as a table (Markdown that reads well as text) and as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::process::ProcessRun;
use crate::scenarios::{BenchScenario, CHAT, CHAT_1M, CHAT_100K, CHAT_PLAIN, FIXED, FIXED_PLAIN, SCALING, START_UP};

/// A scenario with its measurements.
#[derive(Debug)]
pub struct ScenarioFigures {
    pub scenario: BenchScenario,
    pub runs: Vec<ProcessRun>,
    pub instructions: Option<u64>,
}

impl ScenarioFigures {
    pub fn new(scenario: BenchScenario) -> Self {
        Self { scenario, runs: Vec::new(), instructions: None }
    }

    fn requests(&self) -> f64 {
        self.runs.first().map_or(0.0, |run| run.requests as f64)
    }

    /// CPU seconds of its runs, sorted.
    fn cpu_s(&self) -> Vec<f64> {
        let mut seconds: Vec<f64> = self.runs.iter().map(|run| run.cpu.as_secs_f64()).collect();
        seconds.sort_by(f64::total_cmp);
        seconds
    }

    fn cpu_min_s(&self) -> f64 {
        self.cpu_s().first().copied().unwrap_or(f64::NAN)
    }

    fn cpu_median_s(&self) -> f64 {
        let seconds = self.cpu_s();
        seconds.get(seconds.len() / 2).copied().unwrap_or(f64::NAN)
    }

    fn requests_per_cpu_s(&self) -> f64 {
        self.requests() / self.cpu_min_s()
    }

    fn peak_bytes(&self) -> f64 {
        self.runs.iter().map(|run| run.peak_bytes).max().unwrap_or(0) as f64
    }

    fn instructions(&self) -> Option<f64> {
        self.instructions.map(|count| count as f64)
    }

    /// The limits of the scenario, each with whether it was met.
    fn limits_met(&self) -> Vec<(String, bool)> {
        let target = self.scenario.target;
        let cpu = target.cpu_s.map(|most| (format!("≤ {most} CPU s"), self.cpu_min_s() <= most));
        let peak = target.peak_mb.map(|most| (format!("≤ {most} MB"), self.peak_bytes() <= most * 1e6));
        cpu.into_iter().chain(peak).collect()
    }
}

/// The report as text: table, descriptions and comparisons.
pub fn text(measured: &[ScenarioFigures]) -> String {
    let mut text = table(measured);
    text.push('\n');
    for ScenarioFigures { scenario, .. } in measured {
        let _ = writeln!(text, "* {}: {}", scenario.name, scenario.what);
    }
    let compared = comparisons(measured);
    if !compared.is_empty() {
        let _ = writeln!(text, "\n{}", compared.join("\n"));
    }
    text
}

fn table(measured: &[ScenarioFigures]) -> String {
    let head = [
        "scenario",
        "requests",
        "CPU ms, min",
        "median",
        "requests / CPU s",
        "peak MB",
        "M instructions",
        "per request",
        "target",
        "published",
    ];
    let rows = measured.iter().map(|measured| {
        let instructions = |per: f64, digits| match measured.instructions() {
            Some(count) => grouped(count / per, digits),
            None => "-".to_owned(),
        };
        [
            measured.scenario.name.clone(),
            grouped(measured.requests(), 0),
            grouped(measured.cpu_min_s() * 1e3, 1),
            grouped(measured.cpu_median_s() * 1e3, 1),
            grouped(measured.requests_per_cpu_s(), 0),
            grouped(measured.peak_bytes() / 1e6, 1),
            instructions(1e6, 2),
            instructions(measured.requests(), 0),
            limits_text(measured),
            measured.scenario.published.to_owned(),
        ]
    });
    markdown(&head.map(str::to_owned), &rows.collect::<Vec<_>>())
}

fn limits_text(measured: &ScenarioFigures) -> String {
    let text = |(limit, kept): (String, bool)| if kept { format!("{limit} ✓") } else { format!("{limit} MISSED") };
    measured.limits_met().into_iter().map(text).collect::<Vec<_>>().join(", ")
}

fn markdown<const N: usize>(head: &[String; N], rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().chain([head]).map(|row| row[column].chars().count()).max().unwrap_or(0);
    let line = |cells: &[String; N]| {
        let padded = cells.iter().enumerate().map(|(column, cell)| {
            let width = width(column);
            if is_figure(column, N) { format!(" {cell:>width$} |") } else { format!(" {cell:width$} |") }
        });
        format!("|{}\n", padded.collect::<String>())
    };
    let rule = (0..N).map(|column| {
        let dashes = "-".repeat(width(column) + 1);
        if is_figure(column, N) { format!("{dashes}:|") } else { format!("{dashes}-|") }
    });
    let rule = format!("|{}\n", rule.collect::<String>());
    [line(head), rule].into_iter().chain(rows.iter().map(line)).collect()
}

/// Whether a column has figures, which are right-aligned; the first column and the last two have text.
fn is_figure(column: usize, columns: usize) -> bool {
    column > 0 && column < columns - 2
}

/// Comparisons of pairs of scenarios.
fn comparisons(measured: &[ScenarioFigures]) -> Vec<String> {
    let find = |name: &str| measured.iter().find(|measured| measured.scenario.name == name);
    let mut lines = Vec::new();
    for (fast, plain) in [(CHAT, CHAT_PLAIN), (FIXED, FIXED_PLAIN)] {
        if let (Some(fast), Some(plain)) = (find(fast), find(plain)) {
            lines.push(engines(fast, plain));
        }
    }
    for (small, large) in [(CHAT, CHAT_100K), (CHAT_100K, CHAT_1M)] {
        if let (Some(small), Some(large)) = (find(small), find(large)) {
            lines.push(growth(small, large));
        }
    }
    for [few, many] in SCALING {
        if let (Some(start), Some(few), Some(many)) = (find(START_UP), find(few), find(many)) {
            lines.push(scaling(start, few, many));
        }
    }
    lines
}

/// Compares the same load per instance on more instances. Start-up is subtracted: it is a fifth of the smaller run, and
/// would hide as much of the growth.
fn scaling(start: &ScenarioFigures, few: &ScenarioFigures, many: &ScenarioFigures) -> String {
    const LIMIT: f64 = 1.5;
    let kept = |growth: f64| if growth <= LIMIT { "✓" } else { "MISSED" };
    let per_request = |of: fn(&ScenarioFigures) -> f64, run: &ScenarioFigures| (of(run) - of(start)) / run.requests();
    let grows = |of: fn(&ScenarioFigures) -> f64| per_request(of, many) / per_request(of, few);
    let cpu = grows(ScenarioFigures::cpu_min_s);
    let (few_name, many_name) = (&few.scenario.name, &many.scenario.name);
    let mut line =
        format!("Per request, {many_name} costs {cpu:.2} times the CPU of {few_name} (≤ {LIMIT} {})", kept(cpu));
    // On a busy machine, a short run finds a quiet moment more easily than a long one.
    let typical = grows(ScenarioFigures::cpu_median_s);
    let _ = write!(line, ", by medians {typical:.2} ({})", kept(typical));
    if [start, few, many].iter().all(|measured| measured.instructions.is_some()) {
        let growth = grows(|measured| measured.instructions().unwrap_or(f64::NAN));
        let _ = write!(line, ", {growth:.2} times the instructions ({})", kept(growth));
    }
    line
}

fn engines(fast: &ScenarioFigures, plain: &ScenarioFigures) -> String {
    let mut line = format!(
        "Fast engine beside plain engine, {}: {:.1} times less CPU",
        fast.scenario.name,
        plain.cpu_min_s() / fast.cpu_min_s()
    );
    if let (Some(fast), Some(plain)) = (fast.instructions(), plain.instructions()) {
        let _ = write!(line, ", {:.1} times fewer instructions", plain / fast);
    }
    line
}

/// Cost per additional request, so that start-up does not count.
fn growth(small: &ScenarioFigures, large: &ScenarioFigures) -> String {
    let more = large.requests() - small.requests();
    let cpu_us = (large.cpu_min_s() - small.cpu_min_s()) * 1e6 / more;
    let bytes = (large.peak_bytes() - small.peak_bytes()) / more;
    let kept = if bytes <= BYTES_PER_REQUEST { "✓" } else { "MISSED" };
    let mut line =
        format!("From {} to {}, per further request: {cpu_us:.2} µs", small.scenario.name, large.scenario.name);
    if let (Some(small), Some(large)) = (small.instructions(), large.instructions()) {
        let _ = write!(line, ", {:.0} instructions", (large - small) / more);
    }
    let _ = write!(line, ", {bytes:.0} bytes (≤ {BYTES_PER_REQUEST} {kept})");
    line
}

/// Maximum memory that a finished request may leave behind, bytes.
const BYTES_PER_REQUEST: f64 = 100.0;

/// The report as JSON: one object per scenario.
pub fn json(measured: &[ScenarioFigures]) -> Value {
    measured
        .iter()
        .map(|measured| {
            let ScenarioFigures { scenario, runs, instructions } = measured;
            json!({
                "scenario": scenario.name,
                "what": scenario.what,
                "arguments": scenario.arguments.join(" "),
                "requests": measured.requests(),
                "runs": runs.len(),
                "cpu_min_s": measured.cpu_min_s(),
                "cpu_median_s": measured.cpu_median_s(),
                "requests_per_cpu_s": measured.requests_per_cpu_s(),
                "peak_bytes": measured.peak_bytes(),
                "instructions": instructions,
                "target_cpu_s": scenario.target.cpu_s,
                "target_peak_mb": scenario.target.peak_mb,
                "targets_met": measured.limits_met().iter().all(|(_, kept)| *kept),
                "published": scenario.published,
            })
        })
        .collect()
}

/// Formats a figure in groups of three digits, such as `12 345.6`.
fn grouped(figure: f64, digits: usize) -> String {
    let plain = format!("{figure:.digits$}");
    let (whole, rest) = plain.split_at(plain.find('.').unwrap_or(plain.len()));
    let mut text = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text + rest
}
