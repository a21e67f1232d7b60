//! Results as text of 80 columns.

use std::fmt::{self, Display};

use unicode_width::UnicodeWidthStr as _;

use super::capacity::{Capacity, PolicyCapacity};
use super::load::LoadUnit;
use super::size::ServiceSize;
use super::slo::Slo;
use super::sweep::{Sweep, SweepPoint, in_words};
use crate::workload_config::plural;

impl Display for Capacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Highest load within {}", joined(&self.slo))?;
        let service = service(self.replicas, self.gpus_per_replica);
        writeln!(f, "{service}; {}\n", runs(&self.seeds, self.requests_per_run))?;
        let interval = format!("{:.0}% interval", 100.0 * self.confidence);
        let capacity = format!("capacity, {}", self.unit.name());
        let mut lines = vec![[capacity, interval, "GPUs saved".into(), "limited by".into(), "policy".into()]];
        lines.extend(self.policies.iter().map(|of| of.cells(self.unit)));
        table(f, &lines)?;
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
            writeln!(f, "GPUs saved: for {planned} {unit}, which {replicas} serve under {}", first.policy)?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "note: {note}"))
    }
}

impl Display for ServiceSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gpus = plural(self.gpus, "GPU");
        writeln!(f, "{} ({gpus}) under {}", plural(self.replicas.into(), "replica"), self.policy)?;
        writeln!(f, "serve {} {} within {}", load(self.unit, self.load), self.unit.name(), joined(&self.slo))?;
        let checked = if self.unseen_seeds.is_empty() { "" } else { "; checked with others" };
        writeln!(f, "Searched with {}{checked}:\n", runs(&self.seeds, self.requests_per_run))?;
        let mut lines = vec![["replicas".to_owned(), "saturated".into(), "result".into(), "median over seeds".into()]];
        lines.extend(self.checks.iter().map(|check| {
            let values = self.slo.iter().zip(&check.values_ms).map(|(slo, value)| value_of(slo, *value));
            let saturated = format!("{} of {}", check.saturated_seeds, self.seeds.len());
            let values = values.collect::<Vec<_>>().join(", ");
            [check.count.to_string(), saturated, check.result.name().to_owned(), values]
        }));
        table(f, &lines)?;
        self.notes.iter().try_for_each(|note| writeln!(f, "note: {note}"))
    }
}

impl PolicyCapacity {
    fn cells(&self, unit: LoadUnit) -> [String; 5] {
        let interval = self.low.zip(self.high).map(|(low, high)| format!("{} – {}", load(unit, low), load(unit, high)));
        let interval = interval.unwrap_or_else(|| "-".to_owned());
        let saved = self.gpus_saved.map_or("-".to_owned(), |saved| saved.to_string());
        [load(unit, self.capacity), interval, saved, self.binding.clone(), self.policy.clone()]
    }
}

impl Display for Sweep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut heading = vec![String::new(), "GPUs".to_owned(), "per load".to_owned()];
        heading.extend(self.figures.iter().map(|figure| figure.split('=').next().unwrap_or(figure).to_owned()));
        heading.extend(["result".to_owned(), "settings".to_owned()]);
        let mut lines = vec![heading];
        lines.extend(self.points.iter().map(|point| point.cells(self.figures.len())));
        table(f, &lines)?;
        writeln!(f, "\nFigures: {}; latencies in ms, medians over the seeds", self.figures.join(", "))?;
        writeln!(f, "*: of the points within the limits, none is at least as good in GPUs per load")?;
        writeln!(f, "and all figures, and better in one")?;
        for point in &self.points {
            if let Some(measured) = point.measured.as_ref().filter(|measured| measured.non_dominated) {
                write!(f, "\n{}:\n  {}\n", in_words(&point.settings), measured.launch)?;
            }
        }
        Ok(())
    }
}

impl SweepPoint {
    fn cells(&self, figures: usize) -> Vec<String> {
        let mut cells = vec!["-".to_owned(); figures + 5];
        cells[0] = String::new();
        cells[figures + 4] = in_words(&self.settings);
        let Some(measured) = &self.measured else {
            cells[figures + 3] = "refused".to_owned();
            return cells;
        };
        cells[0] = if measured.non_dominated { "*".to_owned() } else { String::new() };
        [cells[1], cells[2]] = [measured.gpus.to_string(), format!("{:.4}", measured.cost)];
        for (cell, value) in cells[3..].iter_mut().zip(&measured.values_ms) {
            *cell = value.map_or("-".to_owned(), |ms| format!("{ms:.1}"));
        }
        let result = match (measured.saturated_seeds, measured.meets_slos) {
            (1.., _) => "saturated",
            (0, false) => "misses",
            (0, true) => "meets",
        };
        cells[figures + 3] = result.to_owned();
        cells
    }
}

/// The last two columns to the left, numbers to the right.
fn table(f: &mut fmt::Formatter<'_>, lines: &[impl AsRef<[String]>]) -> fmt::Result {
    let columns = lines.first().map_or(0, |line| line.as_ref().len());
    let width = |column: usize| lines.iter().map(|line| line.as_ref()[column].width()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for line in lines {
        let cells = line.as_ref().iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            let pad = " ".repeat(width - cell.width());
            if column + 2 < columns { format!("{pad}{cell}") } else { format!("{cell}{pad}") }
        });
        writeln!(f, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}

fn joined(slos: &[Slo]) -> String {
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
fn runs(seeds: &[u64], requests: Option<u64>) -> String {
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
fn load(unit: LoadUnit, load: f64) -> String {
    let decimals = if unit.is_whole() { 0 } else { (3 - load.abs().max(1e-6).log10().floor() as i32).max(0) };
    format!("{load:.*}", decimals as usize)
}
