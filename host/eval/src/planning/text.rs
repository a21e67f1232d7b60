//! Results as text of 80 columns.

use std::fmt::{self, Display};

use blis_report::{in_columns, three_digits};

use super::capacity::{Capacity, PolicyCapacity};
use super::elastic::{ElasticCurve, HeldReplicas};
use super::load::LoadUnit;
use super::size::ServiceSize;
use super::slo::Slo;
use super::sweep::{ComparedBy, Sweep, SweepPoint};
use super::variation::in_words;
use crate::workload_config::plural;

impl Display for Capacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Highest load within {}", joined(&self.slo))?;
        let service = service(self.replicas, self.gpus_per_replica);
        writeln!(f, "{service}; {}\n", runs(&self.seeds, self.requests_per_run))?;
        let interval = format!("{:.0}% interval", 100.0 * self.confidence);
        let capacity = format!("capacity, {}", self.unit.name());
        let mut lines = vec![[capacity, interval, "GPUs".into(), "saved".into(), "limited by".into(), "policy".into()]];
        lines.extend(self.policies.iter().map(|of| of.cells(self.unit)));
        table(f, &lines, 2)?;
        for of in &self.policies {
            let values = self.slo.iter().zip(&of.values_ms).map(|(slo, value)| value_of(slo, *value));
            write!(
                f,
                "\n{}: at the highest load within the SLOs {}",
                of.policy,
                values.collect::<Vec<_>>().join(", ")
            )?;
        }
        writeln!(f)?;
        if let [first, _, ..] = &self.policies[..] {
            let planned = load(self.unit, first.planned());
            let (unit, replicas) = (self.unit.name(), plural(self.replicas.into(), "replica"));
            writeln!(f, "saved: GPUs for {planned} {unit}, which {replicas} serve under {}", first.policy)?;
        }
        for of in &self.policies {
            if let Some(drawn) = of.with_model_error {
                let (low, high, unit) = (load(self.unit, drawn.low), load(self.unit, drawn.high), self.unit.name());
                let draws = drawn.draws;
                writeln!(
                    f,
                    "{}: {low} to {high} {unit} in {draws} draws of the latency model's error, the outer 5 % left out",
                    of.policy
                )?;
            }
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "note: {note}"))
    }
}

impl Display for ServiceSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let usd = self.usd_per_hour.map_or(String::new(), |usd| format!(", ${usd:.2} per hour"));
        let gpus = format!("{}{usd}", plural(self.gpus, "GPU"));
        writeln!(f, "{} ({gpus}) under {}", plural(self.replicas.into(), "replica"), self.policy)?;
        writeln!(f, "serve {} {} within {}", load(self.unit, self.load), self.unit.name(), joined(&self.slo))?;
        let checked = if self.unseen_seeds.is_empty() { "" } else { "; checked with others" };
        writeln!(f, "Searched with {}{checked}:\n", runs(&self.seeds, self.requests_per_run))?;
        let mut lines = vec![["replicas".to_owned(), "saturated".into(), "result".into(), "median over seeds".into()]];
        lines.extend(self.checks.iter().map(|check| {
            let values = self.slo.iter().zip(&check.values_ms).map(|(slo, value)| value_of(slo, *value));
            let saturated = format!("{} of {}", check.saturated_seeds, self.seeds.len());
            let values = values.collect::<Vec<_>>().join(", ");
            [check.count.to_string(), saturated, check.result.into_str().to_owned(), values]
        }));
        table(f, &lines, 2)?;
        if let Some(risk) = self.model_error {
            let count = |count: Option<u32>| {
                count.map_or("no number of replicas".to_owned(), |count| plural(count.into(), "replica"))
            };
            writeln!(
                f,
                "\nErrors of the latency model, drawn {} times from those of measured deployments:",
                risk.draws
            )?;
            writeln!(
                f,
                "{} hold in {} draws; {} in 9 of 10",
                self.replicas,
                risk.held,
                count(risk.replicas_within_risk)
            )?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "note: {note}"))
    }
}

impl Display for ElasticCurve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = self.rate_per_replica;
        let unit = LoadUnit::RequestsPerS;
        let interval = rate.low.zip(rate.high);
        let interval = interval.map_or(String::new(), |(low, high)| {
            format!(", {:.0}% interval {} – {}", 100.0 * self.confidence, load(unit, low), load(unit, high))
        });
        let replica = service(1, self.gpus_per_replica);
        writeln!(f, "Perfect elastic curve under {} within {}", self.policy, joined(&self.slo))?;
        writeln!(f, "{replica} serves {} {}{interval}", load(unit, rate.mean), unit.name())?;
        let planned = load(unit, rate.planned);
        writeln!(
            f,
            "⌈arrivals per second / {planned}⌉ replicas in each {} s, there at once; {}\n",
            self.interval_s,
            runs(&self.seeds, None)
        )?;
        let mut lines = vec![HeldReplicas::heading("")];
        lines.extend([self.elastic.cells("elastic"), self.fixed.cells("fixed")]);
        table(f, &lines, 1)?;
        writeln!(f, "\n{:.1} % of the GPU-hours saved. The curve simulated:\n", 100.0 * self.saved)?;
        self.write_runs(f)?;
        writeln!(f, "\nThe curve under seed {}:\n", self.seeds.first().unwrap_or(&0))?;
        let heading = ["from".to_owned(), unit.name().to_owned()].into_iter().chain(HeldReplicas::heading(""));
        let mut lines = vec![heading.collect::<Vec<_>>()];
        lines.extend(self.periods.iter().map(|period| {
            let start = [clock(period.from_s), format!("{:.2}", period.rate)];
            start.into_iter().chain(period.replicas.cells("")).collect()
        }));
        table(f, &lines, 1)?;
        self.notes.iter().try_for_each(|note| writeln!(f, "note: {note}"))
    }
}

impl ElasticCurve {
    fn write_runs(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = vec![["seed", "replicas", "GPU-hours", "within, %", "figures"].map(str::to_owned)];
        lines.extend(self.runs.iter().map(|run| {
            let values = self.slo.iter().zip(&run.values_ms).map(|(slo, value)| value_of(slo, *value));
            let within = run.attainment.map_or("-".to_owned(), |share| format!("{:.1}", 100.0 * share));
            let [replicas, hours] = [format!("{:.2}", run.mean_replicas), format!("{:.3}", run.gpu_hours)];
            [run.seed.to_string(), replicas, hours, within, values.collect::<Vec<_>>().join(", ")]
        }));
        table(f, &lines, 1)
    }
}

impl HeldReplicas {
    fn heading(name: &str) -> [String; 5] {
        ["replicas", "peak", "GPU-hours", "cost", name].map(str::to_owned)
    }

    fn cells(&self, name: &str) -> [String; 5] {
        let cost = self.usd.map_or("-".to_owned(), |usd| format!("${usd:.2}"));
        [format!("{:.2}", self.mean), self.peak.to_string(), format!("{:.3}", self.gpu_hours), cost, name.to_owned()]
    }
}

/// `1:02:03`.
fn clock(seconds: f64) -> String {
    let seconds = seconds as u64;
    format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

impl PolicyCapacity {
    fn cells(&self, unit: LoadUnit) -> [String; 6] {
        let interval = self.low.zip(self.high).map(|(low, high)| format!("{} – {}", load(unit, low), load(unit, high)));
        let interval = interval.unwrap_or_else(|| "-".to_owned());
        let saved = self.gpus_saved.map_or("-".to_owned(), |saved| saved.to_string());
        [load(unit, self.capacity), interval, self.gpus.to_string(), saved, self.binding.clone(), self.policy.clone()]
    }
}

impl Display for Sweep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let measured = || self.points.iter().filter_map(|point| point.measured.as_ref());
        let has_prices = measured().any(|of| of.usd_per_million_output_tokens.is_some());
        let has_limits = measured().any(|of| of.attainment.is_some());
        let mut heading = vec!["", "GPUs", if has_prices { "$/1M tok" } else { "per load" }];
        heading.extend(["req/s", "tok/s"]);
        heading.extend(has_limits.then_some(["within, %", "goodput"]).into_iter().flatten());
        heading.extend(self.figures.iter().map(|figure| figure.split('=').next().unwrap_or(figure)));
        heading.extend(["result", "settings"]);
        let heading: Vec<String> = heading.into_iter().map(str::to_owned).collect();
        let cells = self.points.iter().map(|point| point.cells(&heading));
        let lines: Vec<Vec<String>> = std::iter::once(heading.clone()).chain(cells).collect();
        table(f, &lines, 2)?;
        writeln!(f, "\nFigures: {}; latencies in ms, medians over the seeds", self.figures.join(", "))?;
        if measured().any(|of| of.ranges_ms.iter().any(Option::is_some)) {
            writeln!(f, "[the lowest, the highest of them]")?;
        }
        if has_limits {
            writeln!(f, "goodput: requests/s within all limits")?;
        }
        let cost = if has_prices { "dollars per 1M output tokens" } else { "GPUs per load" };
        match self.compared_by {
            ComparedBy::Figures => {
                writeln!(f, "*: of the points within the limits, none is at least as good in {cost}")?;
                writeln!(f, "and all figures, and better in one")?;
            }
            ComparedBy::Attainment => {
                writeln!(f, "*: no point is at least as good in {cost}")?;
                writeln!(f, "and in the share of requests within all limits, and better in one")?;
            }
        }
        for point in &self.points {
            if let Some(measured) = point.measured.as_ref().filter(|measured| measured.non_dominated) {
                write!(f, "\n{}:\n  {}\n", in_words(&point.settings), measured.launch)?;
            }
        }
        Ok(())
    }
}

impl SweepPoint {
    /// The cells of the table with this heading.
    fn cells(&self, heading: &[String]) -> Vec<String> {
        let settings = in_words(&self.settings);
        let Some(measured) = &self.measured else {
            let mut cells = vec!["-".to_owned(); heading.len()];
            let columns = heading.len();
            (cells[0], cells[columns - 2], cells[columns - 1]) = (String::new(), "refused".to_owned(), settings);
            return cells;
        };
        let mark = if measured.non_dominated { "*" } else { "" };
        // A mean number of replicas is no whole one.
        let decimals = if measured.gpus.fract() == 0.0 { 0 } else { 2 };
        let cost = if heading[2] == "per load" { Some(measured.cost) } else { measured.usd_per_million_output_tokens };
        let mut cells = vec![mark.to_owned(), format!("{:.*}", decimals, measured.gpus)];
        cells.push(cost.map_or("-".to_owned(), |cost| format!("{cost:.4}")));
        cells.extend([measured.requests_per_s, measured.output_tokens_per_s].map(three_digits));
        if heading.iter().any(|column| column == "goodput") {
            let dash = || "-".to_owned();
            cells.push(measured.attainment.map_or_else(dash, |share| format!("{:.2}", 100.0 * share)));
            cells.push(measured.goodput_rps.map_or_else(dash, three_digits));
        }
        cells.extend(measured.values_ms.iter().zip(&measured.ranges_ms).map(|(value, range)| {
            let value = value.map_or("-".to_owned(), |ms| format!("{ms:.1}"));
            range.map_or_else(|| value.clone(), |range| format!("{value} [{:.1}, {:.1}]", range.low, range.high))
        }));
        let result = match (measured.saturated_seeds, measured.meets_slos) {
            (1.., _) => "saturated",
            (0, false) => "misses",
            (0, true) => "meets",
        };
        cells.extend([result.to_owned(), settings]);
        cells
    }
}

/// The last `texts` columns to the left, numbers to the right.
pub(super) fn table(f: &mut fmt::Formatter<'_>, lines: &[impl AsRef<[String]>], texts: usize) -> fmt::Result {
    let columns = lines.first().map_or(0, |line| line.as_ref().len());
    f.write_str(&in_columns(lines, usize::MAX, |column| column + texts >= columns))
}

pub(super) fn joined(slos: &[Slo]) -> String {
    slos.iter().map(Slo::to_string).collect::<Vec<_>>().join(", ")
}

/// `4 replicas of 2 GPUs each`.
fn service(replicas: u32, gpus_per_replica: u32) -> String {
    let gpus = plural(gpus_per_replica.into(), "GPU");
    match replicas {
        1 => format!("1 replica of {gpus}"),
        some => format!("{some} replicas of {gpus} each"),
    }
}

/// `seeds 42 to 46, 2500 requests a run`.
pub(super) fn runs(seeds: &[u64], requests: Option<u64>) -> String {
    let seeds = match seeds {
        [first, .., last] => format!("seeds {first} to {last}"),
        [only] => format!("seed {only}"),
        [] => String::new(),
    };
    requests.map_or(seeds.clone(), |requests| format!("{seeds}, {} a run", plural(requests, "request")))
}

fn value_of(slo: &Slo, value_ms: Option<f64>) -> String {
    let value = value_ms.map_or("not finite".to_owned(), |ms| format!("{ms:.1} ms"));
    format!("{} {value}", slo.figure())
}

/// Four significant digits, or a whole number of users.
pub(super) fn load(unit: LoadUnit, load: f64) -> String {
    let decimals = if unit.is_whole() { 0 } else { (3 - load.abs().max(1e-6).log10().floor() as i32).max(0) };
    format!("{load:.*}", decimals as usize)
}
