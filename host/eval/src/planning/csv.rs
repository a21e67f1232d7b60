//! Results as CSV: a line for each policy, number of replicas, period or point.

use super::capacity::Capacity;
use super::diagnose::{Diagnosis, KnobResult, ScrapeDiagnosis};
use super::elastic::ElasticCurve;
use super::size::ServiceSize;
use super::slo::Slo;
use super::sweep::{MeasuredPoint, Sweep};

/// A result that has a table.
pub trait CsvTable {
    /// The table with a heading, cells between commas (RFC 4180). A cell without a value is empty; latencies are in ms.
    fn csv(&self) -> String;
}

impl CsvTable for Capacity {
    fn csv(&self) -> String {
        let mut table = CsvText::new(
            ["policy", "gpus", "unit", "capacity", "low", "high", "limited_by", "replicas_needed", "gpus_saved"]
                .map(str::to_owned)
                .into_iter()
                .chain(figures(&self.slo)),
        );
        for of in &self.policies {
            let cells = [
                of.policy.clone(),
                of.gpus.to_string(),
                self.unit.name().to_owned(),
                of.capacity.to_string(),
                optional(of.low),
                optional(of.high),
                of.binding.clone(),
                optional(of.replicas_needed),
                optional(of.gpus_saved),
            ];
            table.line(cells.into_iter().chain(of.values_ms.iter().copied().map(optional)));
        }
        table.0
    }
}

impl CsvTable for ServiceSize {
    fn csv(&self) -> String {
        let heading = ["replicas", "gpus", "result", "saturated_seeds"].map(str::to_owned);
        let mut table = CsvText::new(heading.into_iter().chain(figures(&self.slo)));
        for check in &self.checks {
            let cells = [
                check.count.to_string(),
                (u64::from(check.count) * u64::from(self.gpus_per_replica)).to_string(),
                check.result.into_str().to_owned(),
                check.saturated_seeds.to_string(),
            ];
            table.line(cells.into_iter().chain(check.values_ms.iter().copied().map(optional)));
        }
        table.0
    }
}

/// A line for each period of the curve.
impl CsvTable for ElasticCurve {
    fn csv(&self) -> String {
        let heading = ["from_s", "to_s", "requests", "rate", "mean_replicas", "peak_replicas", "gpu_hours", "usd"];
        let mut table = CsvText::new(heading.map(str::to_owned));
        for period in &self.periods {
            let replicas = &period.replicas;
            table.line([
                period.from_s.to_string(),
                period.to_s.to_string(),
                period.requests.to_string(),
                period.rate.to_string(),
                replicas.mean.to_string(),
                replicas.peak.to_string(),
                replicas.gpu_hours.to_string(),
                optional(replicas.usd),
            ]);
        }
        table.0
    }
}

impl CsvTable for Sweep {
    fn csv(&self) -> String {
        let names = self.points.first().map_or(&[][..], |point| &point.settings);
        let figure = |text: &String| text.split('=').next().unwrap_or(text).to_owned();
        let heading: Vec<String> = names
            .iter()
            .map(|setting| setting.name.clone())
            .chain(["gpus", "gpus_per_load", "usd_per_million_output_tokens", "attainment"].map(str::to_owned))
            .chain(self.figures.iter().map(|text| format!("{}_ms", figure(text))))
            .chain(["saturated_seeds", "meets_slos", "non_dominated", "launch"].map(str::to_owned))
            .chain(["requests_per_s", "goodput_rps", "output_tokens_per_s"].map(str::to_owned))
            .chain(self.figures.iter().flat_map(|text| ["low", "high"].map(|end| format!("{}_{end}_ms", figure(text)))))
            .collect();
        let mut table = CsvText::new(heading.clone());
        for point in &self.points {
            let mut cells: Vec<String> = point.settings.iter().map(|setting| setting.value.clone()).collect();
            point.measured.iter().for_each(|measured| cells.extend(measured.csv_cells()));
            // Those of a point that cannot be deployed are empty.
            cells.resize(heading.len(), String::new());
            table.line(cells);
        }
        table.0
    }
}

impl MeasuredPoint {
    /// The cells behind the settings.
    fn csv_cells(&self) -> Vec<String> {
        let mut cells = vec![self.gpus.to_string(), self.cost.to_string()];
        cells.extend([self.usd_per_million_output_tokens, self.attainment].map(optional));
        cells.extend(self.values_ms.iter().copied().map(optional));
        cells.extend([self.saturated_seeds.to_string(), self.meets_slos.to_string(), self.non_dominated.to_string()]);
        cells.extend([self.launch.clone(), self.requests_per_s.to_string()]);
        cells.extend([optional(self.goodput_rps), self.output_tokens_per_s.to_string()]);
        cells.extend(
            self.ranges_ms.iter().flat_map(|range| [range.map(|of| of.low), range.map(|of| of.high)].map(optional)),
        );
        cells
    }
}

/// A line for each knob.
impl CsvTable for Diagnosis {
    fn csv(&self) -> String {
        let heading =
            ["knob", "result", "change_percent", "low_percent", "high_percent", "figure_ms", "gpus", "refused"];
        let mut table = CsvText::new(heading.map(str::to_owned));
        for knob in &self.knobs {
            let result = match knob.result {
                KnobResult::Better => "better",
                KnobResult::Undecided => "undecided",
                KnobResult::Worse => "worse",
                KnobResult::Refused => "refused",
            };
            table.line([
                knob.knob.to_owned(),
                result.to_owned(),
                optional(knob.change_percent),
                optional(knob.low_percent),
                optional(knob.high_percent),
                optional(knob.figure_ms),
                optional(knob.gpus),
                knob.refused.clone().unwrap_or_default(),
            ]);
        }
        table.0
    }
}

/// A line for each histogram.
impl CsvTable for ScrapeDiagnosis {
    fn csv(&self) -> String {
        let mut table = CsvText::new(["metric", "before_s", "between_s"].map(str::to_owned));
        for one in &self.moved {
            table.line([one.metric.clone(), optional(one.before_s), one.between_s.to_string()]);
        }
        table.0
    }
}

/// The text of a table.
pub(super) struct CsvText(pub String);

impl CsvText {
    pub(super) fn new(heading: impl IntoIterator<Item = String>) -> Self {
        let mut table = Self(String::new());
        table.line(heading);
        table
    }

    pub(super) fn line(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<String> = cells.into_iter().map(quoted).collect();
        self.0.push_str(&cells.join(","));
        self.0.push('\n');
    }
}

fn quoted(cell: String) -> String {
    if cell.contains([',', '"', '\n', '\r']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell }
}

pub(super) fn figures(slos: &[Slo]) -> impl Iterator<Item = String> {
    slos.iter().map(|slo| format!("{}_ms", slo.figure()))
}

pub(super) fn optional<T: ToString>(value: Option<T>) -> String {
    value.map_or(String::new(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_with_commas_and_quotes_are_quoted() {
        let mut table = CsvText::new(["a".to_owned(), "b".to_owned()]);
        table.line(["queue-depth:1,kv-utilization:1".to_owned(), "say \"no\"".to_owned()]);
        table.line([optional(Some(1.5)), optional::<u32>(None)]);
        assert_eq!(table.0, "a,b\n\"queue-depth:1,kv-utilization:1\",\"say \"\"no\"\"\"\n1.5,\n");
    }
}
