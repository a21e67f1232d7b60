//! A recommendation as text of 80 columns, and as CSV.

use std::fmt::{self, Display};

use crate::planning::csv::{CsvTable, CsvText, figures, optional};
use crate::planning::size::SizeResult;
use crate::planning::text::{joined, load, runs, table};
use crate::workload_config::plural;
use blis_report::latency_in_words;

use super::document::{AdvisedDeployment, DeploymentAdvice, HeadRoom};
use super::finalists::LOST;

use crate::planning::model_error::ModelRisk;

impl Display for DeploymentAdvice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let budget = if self.budget.is_empty() { String::new() } else { format!(" for at most {}", self.budget) };
        writeln!(f, "{} {} within {}{budget}", load(self.unit, self.load), self.unit.name(), joined(&self.slo))?;
        writeln!(
            f,
            "{} of {} designs simulated; {}",
            plural(self.simulated, "deployment"),
            self.space,
            self.seeds_in_words()
        )?;
        if !self.deployments.is_empty() {
            writeln!(f)?;
            self.write_table(f)?;
            self.write_reasons(f)?;
        }
        if !self.changes.is_empty() {
            writeln!(f, "\nWhat would change the choice")?;
            self.changes.iter().try_for_each(|change| writeln!(f, "  {change}"))?;
        }
        if !self.left_out.is_empty() {
            writeln!(f, "\nLeft out")?;
            let lines: Vec<[String; 2]> =
                self.left_out.iter().map(|cut| [format!("  {}", cut.designs), cut.reason.clone()]).collect();
            table(f, &lines, 1)?;
        }
        if let Some(choice) = self.choice() {
            writeln!(f, "\nServe each replica with\n  {}", choice.launch)?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "note: {note}"))
    }
}

impl DeploymentAdvice {
    fn seeds_in_words(&self) -> String {
        let checked = if self.unseen_seeds.is_empty() { "" } else { "; checked with others" };
        format!("{}{checked}", runs(&self.seeds, self.requests_per_run))
    }

    fn write_table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has_prices = self.deployments.iter().any(|of| of.usd_per_hour.is_some());
        let mut heading = vec![String::new(), "GPUs".to_owned()];
        heading.extend(has_prices.then(|| "$/h".to_owned()));
        heading.extend(self.slo.iter().map(|slo| slo.figure()));
        heading.extend(["load", "draws", "lost"].map(str::to_owned));
        let rows = self.deployments.iter().map(|of| of.cells(has_prices));
        let lines: Vec<Vec<String>> = std::iter::once(heading).chain(rows).collect();
        table(f, &lines, 1)?;
        let others = if self.others > 0 { format!("{} others hold: --all\n", self.others) } else { String::new() };
        write!(f, "{others}")?;
        writeln!(f, "In brackets: GPUs with errors of the model. Load: up to which it holds.")?;
        writeln!(f, "Draws: of these errors, in which it holds. Lost: with one replica fewer.")
    }

    fn write_reasons(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = |of: &AdvisedDeployment| match of.why_not_cheaper.as_str() {
            "" => of.deployment.clone(),
            why => format!("{} ({why})", of.deployment),
        };
        writeln!(f, "\nDeployments, and why nothing cheaper")?;
        let rows = self.deployments.iter();
        let lines: Vec<[String; 2]> = rows.map(|of| [of.rank.to_string(), reason(of)]).collect();
        table(f, &lines, 1)
    }
}

impl AdvisedDeployment {
    fn cells(&self, has_prices: bool) -> Vec<String> {
        let gpus = match self.model_risk {
            Some(risk) => format!("{} {}", self.gpus, risk.range(self.gpus_per_replica)),
            None if self.searched => self.gpus.to_string(),
            None => format!("about {}", self.gpus),
        };
        let mut cells = vec![self.rank.to_string(), gpus];
        cells.extend(has_prices.then(|| self.usd_per_hour.map_or("-".to_owned(), |usd| format!("{usd:.2}"))));
        cells.extend(self.values_ms.iter().map(|value| value.map_or("-".to_owned(), latency_in_words)));
        cells.push(self.head_room.map_or("-".to_owned(), HeadRoom::text));
        cells.push(self.model_risk.map_or("-".to_owned(), |risk| format!("{}/{}", risk.held, risk.draws)));
        cells.push(self.lost().to_owned());
        cells
    }

    /// Whether it holds with one replica fewer.
    fn lost(&self) -> &'static str {
        match self.robustness.iter().find(|of| of.change == LOST) {
            None => "-",
            Some(of) if of.result == SizeResult::Holds => "yes",
            Some(_) => "no",
        }
    }
}

impl HeadRoom {
    /// `×1.32 [1.27, 1.37]`.
    fn text(self) -> String {
        let interval = self.low.zip(self.high).map(|(low, high)| format!(" [{low:.2}, {high:.2}]"));
        format!("×{:.2}{}", self.factor, interval.unwrap_or_default())
    }
}

impl ModelRisk {
    /// `(3–6)`, in GPUs.
    fn range(self, gpus: u32) -> String {
        let of = |count: Option<u32>| {
            count.map_or("∞".to_owned(), |count| (u64::from(count) * u64::from(gpus)).to_string())
        };
        format!("({}–{})", of(self.replicas_low), of(self.replicas_high))
    }
}

/// A line for each deployment.
impl CsvTable for DeploymentAdvice {
    fn csv(&self) -> String {
        let heading = ["rank", "deployment", "replicas", "prefill_replicas", "gpus", "usd_per_hour", "slack"];
        let last = ["head_room", "draws", "held", "replicas_low", "replicas_high", "why_not_cheaper", "launch"];
        let heading = heading.map(str::to_owned).into_iter().chain(figures(&self.slo));
        let mut table = CsvText::new(heading.chain(last.map(str::to_owned)));
        for of in &self.deployments {
            let risk = of.model_risk;
            let first = [
                of.rank.to_string(),
                of.deployment.clone(),
                of.replicas.to_string(),
                of.prefill_replicas.to_string(),
                of.gpus.to_string(),
                optional(of.usd_per_hour),
                of.slack.to_string(),
            ];
            let last = [
                optional(of.head_room.map(|room| room.factor)),
                optional(risk.map(|risk| risk.draws)),
                optional(risk.map(|risk| risk.held)),
                optional(risk.and_then(|risk| risk.replicas_low)),
                optional(risk.and_then(|risk| risk.replicas_high)),
                of.why_not_cheaper.clone(),
                of.launch.clone(),
            ];
            table.line(first.into_iter().chain(of.values_ms.iter().copied().map(optional)).chain(last));
        }
        table.0
    }
}
