//! The result of a comparison over paired seeds: a table for the terminal, a document for programs.

use std::fmt::{self, Display, Write as _};

use blis_diag::TEXT_WIDTH;
use blis_report::{Caveat, in_columns};
use blis_stats::{benjamini_hochberg, holm};
use serde::{Serialize, Serializer};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::comparison_rules::{ComparisonRules, FITNESS, ModelSign};
use super::figures::{Better, Figure, Figures, Unit};
use super::fitness::FitnessScale;
use super::paired::{CONFIDENCE, Paired, PairedResult, mean};
use super::within_trace::WithinTrace;

/// Widest column of policy names, in terminal columns.
const NAME_WIDTH: usize = 16;
/// The same where the names head columns.
const PAIR_WIDTH: usize = 12;

/// The differences between policies. The first one is the baseline of the comparison.
///
/// [`Display`] writes the table, [`Serialize`] the document; both give the same bytes every time.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    policies: Vec<String>,
    seeds: Vec<u64>,
    rows: Vec<MetricRow>,
    /// The scale of the first row, if it is a fitness.
    fitness: Option<FitnessScale>,
    /// Whether the runs are those of one trace: its requests then give the intervals.
    is_one_trace: bool,
    /// What limits what follows.
    caveats: Vec<Caveat>,
    /// Whether more requests arrive than are served, by policy; empty if that was not looked at.
    is_overloaded: Vec<bool>,
    rules: ComparisonRules,
    /// By policy, from the second on: whether its difference keeps its sign if the latency model errs; empty if that was not tried.
    model_signs: Vec<Option<ModelSign>>,
}

/// One figure of all policies.
#[derive(Clone, Debug, PartialEq)]
struct MetricRow {
    key: &'static str,
    unit: Unit,
    better: Better,
    /// By policy, then by seed.
    values: Vec<Vec<Option<f64>>>,
    /// Difference of each policy from the first one; `None` if no seed has a sample of both.
    differences: Vec<Option<Paired>>,
}

impl Comparison {
    /// Compares `policies` over `seeds`, with `runs` by policy and then by seed (the result of
    /// [`compare`](super::compare)). Figures without any sample are left out, and those of replicas and their cost if no
    /// number of replicas changed, there are no prices, and all instances have as many GPUs: they would repeat other figures.
    ///
    /// # Panics
    ///
    /// If `runs` does not have one run for each policy and seed, or there are fewer than two policies.
    #[must_use]
    pub fn new(policies: &[String], seeds: &[u64], runs: &[Vec<Figures>]) -> Self {
        assert!(policies.len() >= 2, "a comparison needs two");
        assert_eq!(policies.len(), runs.len(), "one list of runs for each policy");
        assert!(runs.iter().all(|of| of.len() == seeds.len()), "one run for each seed");
        let mut all_runs = runs.iter().flatten();
        let gpus = runs.iter().flatten().next().and_then(gpus_per_instance);
        let have_replicas = all_runs.any(|run| {
            let changes = run.get(Figure::ScaleEvents) > Some(0.0) || run.get(Figure::Cost).is_some();
            changes || gpus_per_instance(run) != gpus
        });
        let of_cost = |figure| matches!(figure, Figure::GpuHours | Figure::GoodputPerGpuHour | Figure::ScaleEvents);
        let shown = Figure::ALL.iter().filter(|&&figure| have_replicas || !of_cost(figure));
        let rows = shown.filter_map(|&figure| {
            let values = runs.iter().map(|of| of.iter().map(|run| run.get(figure)).collect()).collect();
            MetricRow::new(figure.key(), figure.unit(), figure.better(), values)
        });
        Self {
            policies: policies.to_vec(),
            seeds: seeds.to_vec(),
            rows: rows.collect(),
            fitness: None,
            is_one_trace: false,
            caveats: Vec::new(),
            is_overloaded: Vec::new(),
            rules: ComparisonRules::default(),
            model_signs: Vec::new(),
        }
    }

    /// The same by other rules, before [`Self::with_multiplicity`].
    #[must_use]
    pub(crate) fn with_rules(self, rules: &ComparisonRules) -> Self {
        Self { rules: rules.clone(), ..self }
    }

    /// Adds what errors of the latency model change, by policy from the second on.
    #[must_use]
    pub(crate) fn with_model_signs(self, model_signs: Vec<Option<ModelSign>>) -> Self {
        Self { model_signs, ..self }
    }

    pub(crate) fn rules(&self) -> &ComparisonRules {
        &self.rules
    }

    /// What errors of the latency model change of the policy `number`, from 1.
    pub(crate) fn model_sign(&self, number: usize) -> Option<&ModelSign> {
        self.model_signs.get(number - 1)?.as_ref()
    }

    /// The seeds, each run under every policy.
    #[must_use]
    pub fn seeds(&self) -> &[u64] {
        &self.seeds
    }

    /// Takes the intervals from the requests of one trace, by figure and by the number of the policy, from 1. Figures without one have no
    /// interval: runs of the same requests show nothing about others.
    #[must_use]
    pub(crate) fn of_one_trace(mut self, within: impl Fn(Figure, usize) -> Option<WithinTrace>) -> Self {
        self.is_one_trace = true;
        for row in &mut self.rows {
            let figure = Figure::ALL.iter().find(|figure| figure.key() == row.key);
            for (index, paired) in row.differences.iter_mut().enumerate() {
                let found = figure.and_then(|&figure| within(figure, index + 1));
                *paired = paired.map(|paired| paired.of_one_trace(found.and_then(WithinTrace::known), row.better));
            }
        }
        self
    }

    /// Adds what limits what follows. Where runs are overloaded, `is_overloaded` by policy, no latency is compared: it is that of the length of
    /// the run.
    #[must_use]
    pub(crate) fn with_caveats(mut self, caveats: Vec<Caveat>, is_overloaded: Vec<bool>) -> Self {
        for row in self.rows.iter_mut().filter(|row| row.unit == Unit::Milliseconds) {
            for (paired, overloaded) in row.differences.iter_mut().zip(&is_overloaded[1..]) {
                if let Some(paired) = paired.as_mut().filter(|_| is_overloaded[0] || *overloaded) {
                    paired.result = PairedResult::Undecided;
                }
            }
        }
        self.caveats = caveats;
        self.is_overloaded = is_overloaded;
        self
    }

    /// What limits what follows from the comparison.
    pub(crate) fn limits(&self) -> &[Caveat] {
        &self.caveats
    }

    /// The policies under which more requests arrive than are served.
    pub(crate) fn overloaded_names(&self) -> impl Iterator<Item = &str> {
        let overloaded = self.policies.iter().zip(&self.is_overloaded).filter(|(_, overloaded)| **overloaded);
        overloaded.map(|(name, _)| name.as_str())
    }

    /// Withdraws what is better or worse by chance alone among so many figures: of the primary ones by Holm's procedure, of the others by that
    /// of Benjamini and Hochberg.
    #[must_use]
    pub(crate) fn with_multiplicity(mut self) -> Self {
        let primary: Vec<bool> = self.rows.iter().map(|row| self.is_primary(row.key)).collect();
        for is_primary in [true, false] {
            let rows = self.rows.iter_mut().zip(&primary).filter(|(_, of)| **of == is_primary);
            let mut differences: Vec<&mut Paired> =
                rows.flat_map(|(row, _)| row.differences.iter_mut().flatten()).collect();
            let p: Vec<f64> = differences.iter().map(|paired| paired.p()).collect();
            let alpha = self.rules.level();
            let clear = if is_primary { holm(&p, alpha) } else { benjamini_hochberg(&p, alpha) };
            for (paired, _) in differences.iter_mut().zip(clear).filter(|(_, clear)| !clear) {
                paired.result = PairedResult::Undecided;
            }
        }
        self
    }

    /// Whether the conclusion is about the figure `key`.
    fn is_primary(&self, key: &str) -> bool {
        self.rules.is_primary(key, self.fitness.is_some())
    }

    /// The names of the policies, the baseline first.
    pub(crate) fn policies(&self) -> &[String] {
        &self.policies
    }

    /// The primary figures of the policy `number`, from 1, beside the first.
    pub(crate) fn primary(&self, number: usize) -> impl Iterator<Item = (&'static str, Unit, &Paired)> {
        let rows = self.rows.iter().filter(|row| self.is_primary(row.key));
        rows.filter_map(move |row| Some((row.key, row.unit, row.differences[number - 1].as_ref()?)))
    }

    /// Adds `fitness` as the first row: the score of each run by policy and seed, on the scale `ratio` relative to the
    /// run of the first policy under the same seed.
    #[must_use]
    pub fn with_fitness(mut self, scale: FitnessScale, scores: &[Vec<f64>]) -> Self {
        let values = scores.iter().map(|of| of.iter().copied().map(Some).collect()).collect();
        self.rows.splice(0..0, MetricRow::new(FITNESS, Unit::Index, Better::Higher, values));
        self.fitness = Some(scale);
        self
    }
}

/// GPUs of an instance; `None` without a duration.
fn gpus_per_instance(run: &Figures) -> Option<f64> {
    let (hours, seconds) = run.get(Figure::GpuHours).zip(run.get(Figure::InstanceSeconds))?;
    (seconds > 0.0).then(|| (hours * 3600.0 / seconds).round())
}

impl MetricRow {
    /// `None` if there is no sample at all.
    fn new(key: &'static str, unit: Unit, better: Better, values: Vec<Vec<Option<f64>>>) -> Option<Self> {
        values.iter().flatten().any(Option::is_some).then(|| {
            let differences = values[1..].iter().map(|other| Paired::compare(&values[0], other, better)).collect();
            Self { key, unit, better, values, differences }
        })
    }

    /// Mean over the seeds under which `policy` has a sample.
    fn mean(&self, policy: usize) -> Option<f64> {
        let samples: Vec<f64> = self.values[policy].iter().copied().flatten().collect();
        mean(samples.iter().copied())
    }
}

/// As docs/fitness.md defines its figures. JSON: `ComparisonDocument`.
impl Serialize for Comparison {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { policies, seeds, caveats, .. } = self;
        let warnings = caveats.iter().map(|caveat| caveat.text.as_str()).collect();
        let fitness_scale = self.fitness.map(<&str>::from);
        let metrics = MetricMap(self);
        let document = ComparisonDocument {
            confidence: CONFIDENCE,
            margin: self.rules.margin,
            primary: self.primary_keys(),
            looks: self.rules.looks,
            warnings,
            policies,
            seeds,
            fitness_scale,
            metrics,
            model_error: &self.model_signs,
        };
        document.serialize(serializer)
    }
}

/// What `blis compare` prints with `--output json`.
#[derive(Serialize)]
struct ComparisonDocument<'a> {
    /// Level of the confidence intervals. Unit: share.
    confidence: f64,
    /// Difference of interest. Unit: share of the figure of the baseline.
    margin: f64,
    /// The figures that the conclusion is about.
    primary: Vec<&'static str>,
    /// How often the comparison may have been looked at, with `--until-decided`; 1 otherwise. Unit: looks.
    looks: usize,
    /// What limits what follows from the comparison, one sentence each.
    warnings: Vec<&'a str>,
    /// The compared policies; the first is the baseline.
    policies: &'a [String],
    /// The seeds, each run under every policy. Unit: number.
    seeds: &'a [u64],
    /// Scale of the figure `fitness`; with `--fitness-weights`.
    #[serde(skip_serializing_if = "Option::is_none")]
    fitness_scale: Option<&'static str>,
    /// Figures by name, as docs/fitness.md defines them.
    metrics: MetricMap<'a>,
    /// By policy, from the second on, what draws of the latency model's error change; `null` where nothing is clear without them. With
    /// `--model-error`, of deployments.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    model_error: &'a [Option<ModelSign>],
}

struct MetricMap<'a>(&'a Comparison);

/// A figure under every policy and seed.
#[derive(Serialize)]
struct MetricDocument<'a> {
    /// Unit of all numbers of this figure.
    unit: &'static str,
    /// Whether higher or lower values are better. One of `higher`, `lower`.
    better: &'static str,
    /// By policy, then by seed; `null` without a sample. Unit: as `unit`.
    values: &'a [Vec<Option<f64>>],
    /// Mean over the seeds, by policy. Unit: as `unit`.
    means: Vec<Option<f64>>,
    /// Each policy beside the first one; `null` if no seed has a sample of both.
    differences: Vec<Option<DifferenceDocument<'a>>>,
}

/// A policy minus the baseline, seed by seed.
#[derive(Serialize)]
struct DifferenceDocument<'a> {
    /// Name of the policy.
    candidate: &'a str,
    /// Seeds with a sample of both. Unit: pairs.
    pairs: usize,
    /// Seeds without a sample of one of them. Unit: pairs.
    left_out: usize,
    /// Mean of the differences. Unit: as `unit`.
    mean: f64,
    /// Standard error of that mean; `null` for a single pair. Unit: as `unit`.
    standard_error: Option<f64>,
    /// Lower end of the confidence interval. Unit: as `unit`.
    low: Option<f64>,
    /// Upper end of the confidence interval. Unit: as `unit`.
    high: Option<f64>,
    /// `undecided` if the interval contains 0, or there is none.
    result: PairedResult,
}

/// JSON: `BTreeMap<String, MetricDocument>`.
impl Serialize for MetricMap<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Comparison { policies, rows, .. } = self.0;
        serializer.collect_map(rows.iter().map(|row| {
            let differences = row.differences.iter().zip(&policies[1..]).map(|(paired, policy)| {
                paired.as_ref().map(|paired| DifferenceDocument {
                    candidate: policy,
                    pairs: paired.pairs,
                    left_out: paired.left_out,
                    mean: paired.difference,
                    standard_error: paired.standard_error,
                    low: paired.interval.map(|interval| interval.low),
                    high: paired.interval.map(|interval| interval.high),
                    result: paired.result,
                })
            });
            let metric = MetricDocument {
                unit: row.unit.name(),
                better: row.better.name(),
                values: &row.values,
                means: (0..policies.len()).map(|policy| row.mean(policy)).collect(),
                differences: differences.collect(),
            };
            (row.key, metric)
        }))
    }
}

/// The names of the policies, the table, and how to read it.
impl Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_heading(f)?;
        self.write_table(f)?;
        self.write_footnotes(f)
    }
}

impl Comparison {
    fn write_heading(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.policies.iter().map(|name| shown(name)).collect();
        writeln!(f, "{} against {}", names[1..].join(", "), names[0])?;
        writeln!(f, "Paired runs under {}\n", seeds_in_words(&self.seeds))
    }

    fn write_table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = vec![self.header()];
        self.rows.iter().for_each(|row| self.push_lines(row, &mut lines));
        let used: Vec<usize> = (0..COLUMNS).filter(|&at| lines.iter().any(|line| !line[at].is_empty())).collect();
        let cells = |line: &TableLine| used.iter().map(|&at| line[at].clone()).collect::<Vec<_>>();
        let lines: Vec<Vec<String>> = lines.iter().map(cells).collect();
        f.write_str(&in_columns(&lines, TEXT_WIDTH, |column| matches!(used[column], 0 | 1 | 7)))
    }

    /// Two policies have a column each, so that a figure is one line; more have a line each.
    fn header(&self) -> TableLine {
        let [name, first, mean] = match &self.policies[..] {
            [first, second] => [String::new(), shortened(first, PAIR_WIDTH), shortened(second, PAIR_WIDTH)],
            _ => ["policy".into(), String::new(), "mean".into()],
        };
        let interval = format!("±{}%", 100.0 * CONFIDENCE);
        ["metric".into(), name, first, mean, "change".into(), String::new(), interval, String::new()]
    }

    fn push_lines(&self, row: &MetricRow, lines: &mut Vec<TableLine>) {
        let mean = |policy| row.mean(policy).map_or("-".into(), |mean| number(row.shown(mean), false));
        let metric = row.heading();
        if let [only] = &row.differences[..] {
            let [change, percent, interval, result] = row.difference_cells(only.as_ref());
            lines.push([metric, String::new(), mean(0), mean(1), change, percent, interval, result]);
            return;
        }
        let mut first = TableLine::default();
        [first[0], first[1], first[3]] = [metric, shortened(&self.policies[0], NAME_WIDTH), mean(0)];
        lines.push(first);
        for (number, paired) in row.differences.iter().enumerate() {
            let name = shortened(&self.policies[number + 1], NAME_WIDTH);
            let [change, percent, interval, result] = row.difference_cells(paired.as_ref());
            lines.push([String::new(), name, String::new(), mean(number + 1), change, percent, interval, result]);
        }
    }

    fn write_footnotes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('\n')?;
        match self.fitness {
            Some(FitnessScale::Ratio) => {
                writeln!(f, "fitness: relative to {}; 1 is as good, 0 is nothing completed", shown(&self.policies[0]))?;
            }
            Some(FitnessScale::Blis) => writeln!(f, "fitness: by the formula of BLIS")?,
            None => {}
        }
        if self.is_one_trace {
            writeln!(
                f,
                "±95%: half the interval of the difference, request by request, on this trace; no interval: the"
            )?;
            writeln!(f, "figure is none of single requests, or the trace is too short to tell")?;
        } else if self.seeds.len() > 1 {
            writeln!(f, "±95%: half the interval of the mean difference (Student's t); better, worse: it")?;
            writeln!(f, "is clear of 0, allowing for the number of figures: {}", self.multiplicity())?;
            if self.rules.looks > 1 {
                writeln!(f, "and for up to {} looks at seeds that double", self.rules.looks)?;
            }
        } else {
            writeln!(f, "One seed has no spread, so there are no intervals: compare over 5 or more")?;
        }
        if self.rows.iter().any(|row| row.unit == Unit::Share) {
            writeln!(f, "Differences of percentages are in percentage points")?;
        }
        for row in &self.rows {
            for (paired, name) in row.differences.iter().zip(&self.policies[1..]) {
                let left_out = paired.map_or(self.seeds.len(), |paired| paired.left_out);
                if left_out > 0 {
                    let (key, name, all) = (row.key, shown(name), self.seeds.len());
                    writeln!(
                        f,
                        "{key}, {name}: {left_out} of {all} seeds left out of the difference, because a sample is missing"
                    )?;
                }
            }
        }
        Ok(())
    }
}

impl Comparison {
    fn primary_keys(&self) -> Vec<&'static str> {
        self.rows.iter().map(|row| row.key).filter(|key| self.is_primary(key)).collect()
    }

    /// How the number of figures is allowed for.
    fn multiplicity(&self) -> String {
        let primary = self.primary_keys();
        match primary[..] {
            [] => "Benjamini and Hochberg".to_owned(),
            _ => format!(
                "Holm for\n{};\nBenjamini and Hochberg for the others, which are exploratory",
                primary.join(", ")
            ),
        }
    }
}

impl MetricRow {
    /// The value as the table shows it: shares in percent.
    fn shown(&self, value: f64) -> f64 {
        if self.unit == Unit::Share { 100.0 * value } else { value }
    }

    /// The key of the figure and its unit.
    fn heading(&self) -> String {
        let unit = match self.unit {
            Unit::RequestsPerSecond => "req/s",
            Unit::TokensPerSecond => "tok/s",
            Unit::Share => "%",
            Unit::PerRequest => "per req",
            Unit::RequestsPerGpuHour => "req/GPU-h",
            Unit::Milliseconds | Unit::Seconds | Unit::Hours | Unit::Dollars | Unit::KilowattHours | Unit::Joules => {
                self.unit.name()
            }
            Unit::Index | Unit::Count => return self.key.to_owned(),
        };
        format!("{}, {unit}", self.key)
    }

    /// Change, the same in percent, half the width of the interval, result. Change and half-width have the same number of
    /// decimals: three digits of the larger.
    fn difference_cells(&self, paired: Option<&Paired>) -> [String; 4] {
        let Some(paired) = paired else { return ["-".into(), String::new(), "-".into(), String::new()] };
        let change = self.shown(paired.difference);
        let percent = self.percent_cell(paired);
        let Some(interval) = paired.interval else {
            return [number(change, true), percent, "-".into(), String::new()];
        };
        let half = self.shown(interval.high - interval.low) / 2.0;
        let decimals = decimals(change.abs().max(half)).map(|decimals| decimals.saturating_sub(1));
        let result = match paired.result {
            PairedResult::Undecided => "",
            result => result.into_str(),
        };
        [fixed(change, decimals, true), percent, format!("±{}", fixed(half, decimals, false)), result.to_owned()]
    }

    /// Empty for a share or an index, which is relative already, and for a change relative to almost 0.
    fn percent_cell(&self, paired: &Paired) -> String {
        const MOST: f64 = 99_999.0;
        let percent = 100.0 * paired.difference / paired.mean_a;
        let telling = !self.unit.bounded() && percent.abs() <= MOST;
        if telling { format!("{}%", fixed(percent, Some(2), true)) } else { String::new() }
    }
}

/// Figure, name, mean of the first of two policies, mean, change, the same in percent, half the width of the interval,
/// result.
const COLUMNS: usize = 8;
type TableLine = [String; COLUMNS];

/// Four significant digits, at most six decimals.
fn number(value: f64, signed: bool) -> String {
    fixed(value, decimals(value.abs()), signed)
}

/// Number of decimals that show a number of that size with four significant digits; `None` if six decimals do not show
/// even two of them.
fn decimals(size: f64) -> Option<usize> {
    const LIMITS: [f64; 8] = [999.95, 99.995, 9.999_5, 0.999_95, 0.099_995, 0.009_999_5, 0.000_01, 0.0];
    if size == 0.0 {
        return Some(0);
    }
    match LIMITS.iter().position(|&limit| size >= limit) {
        Some(decimals @ 0..=6) => Some(decimals),
        _ => None,
    }
}

/// `value` with that many decimals, or with an exponent; with a sign if `signed` and not 0.
fn fixed(value: f64, decimals: Option<usize>, signed: bool) -> String {
    let text = match decimals {
        Some(decimals) if value.abs() < 1e12 => format!("{value:.decimals$}"),
        _ => format!("{value:.2e}"),
    };
    let zero = !text.split('e').next().unwrap_or("").contains(|digit: char| ('1'..='9').contains(&digit));
    match (zero, signed && value > 0.0) {
        (true, _) => text.trim_start_matches('-').to_owned(),
        (false, true) => format!("+{text}"),
        (false, false) => text,
    }
}

fn seeds_in_words(seeds: &[u64]) -> String {
    match seeds {
        [] => "no seed".into(),
        [one] => format!("seed {one}"),
        [first, .., last] if seeds.windows(2).all(|pair| pair[0].checked_add(1) == Some(pair[1])) => {
            format!("{} seeds: {first} to {last}", seeds.len())
        }
        _ => format!("{} seeds: {}", seeds.len(), seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")),
    }
}

/// Control characters of a name are replaced, so that they do not reach a terminal.
fn shown(name: &str) -> String {
    name.replace(char::is_control, "\u{fffd}")
}

/// At most `most` columns wide. Of a longer name the end is kept, which distinguishes files.
fn shortened(name: &str, most: usize) -> String {
    let name = shown(name);
    if name.width() <= most {
        return name;
    }
    let mut width = 1;
    let kept = name.char_indices().rev().take_while(|(_, char)| {
        width += char.width().unwrap_or(0);
        width <= most
    });
    let start = kept.last().map_or(name.len(), |(index, _)| index);
    format!("…{}", &name[start..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    /// Plausible runs: the index of the policy shifts them, the seed spreads them.
    fn runs(policies: u32, seeds: &[u64]) -> Vec<Vec<Figures>> {
        let one = |index: u32, seed: u64| {
            let (index, spread) = (f64::from(index), (seed % 7) as f64 / 7.0);
            let noise = (seed * 31 % 11) as f64 / 100.0;
            let mut run = Figures::default();
            run.set(Figure::Throughput, Some(1234.5 + 20.0 * spread + index * noise));
            run.set(Figure::TokensPerSec, Some(151_234.5 + 2000.0 * spread - 700.0 * index + noise));
            run.set(Figure::CompletedShare, Some(1.0 - 0.01 * index * (1.0 + noise)));
            run.set(Figure::MeanTtft, Some(68.3 + 5.0 * spread - index * (3.0 + 10.0 * noise)));
            run.set(Figure::P99E2e, Some(9058.1 + 500.0 * spread + index * (100.0 * noise - 5.0)));
            run.set(Figure::Jain, Some(0.8561 - 0.01 * index * noise));
            run.set(Figure::Preemptions, Some(0.000_2 * index * (1.0 + noise)));
            run
        };
        (0..policies).map(|index| seeds.iter().map(|&seed| one(index, seed)).collect()).collect()
    }

    #[test]
    fn two_policies() {
        let seeds = [42, 43, 44, 45, 46];
        let comparison = Comparison::new(&names(&["round-robin", "least-loaded"]), &seeds, &runs(2, &seeds));
        insta::assert_snapshot!(comparison, @r"
        least-loaded against round-robin
        Paired runs under 5 seeds: 42 to 46

        metric                round-robin least-loaded   change            ±95%
        throughput, req/s            1240         1240  +0.0440  0.00%  ±0.0453
        tokens_per_sec, tok/s      151806       151106   -700.0 -0.46%        -
        completed_share, %          100.0        98.96    -1.04           ±0.05 worse
        mean_ttft, ms               69.73        66.29    -3.44 -4.93%    ±0.45 better
        p99_e2e, ms                  9201         9200    -0.60 -0.01%    ±4.53
        jain                       0.8561       0.8557 -0.00044        ±0.00045
        preemptions, per req            0     0.000209 +0.00021        ±0.00001 worse

        ±95%: half the interval of the mean difference (Student's t); better, worse: it
        is clear of 0, allowing for the number of figures: Holm for
        throughput, mean_ttft;
        Benjamini and Hochberg for the others, which are exploratory
        Differences of percentages are in percentage points
        ");
    }

    #[test]
    fn four_policies_fit_80_columns() {
        let seeds = [1, 2, 3, 5, 8];
        let all = names(&["round-robin", "weighted", "policies/my-very-long-name.yaml", "表示幅の広い名前を持つ方策"]);
        let runs = runs(4, &seeds);
        let score = |policy: usize, seed: usize| 1.0 - (0.004 + 0.0001 * seed as f64) * policy as f64;
        let scores: Vec<Vec<f64>> = (0..4).map(|policy| (0..5).map(|seed| score(policy, seed)).collect()).collect();
        let comparison = Comparison::new(&all, &seeds, &runs).with_fitness(FitnessScale::Ratio, &scores);
        let text = comparison.to_string();
        assert!(text.lines().skip(1).all(|line| line.width() <= 80), "{text}");
        insta::assert_snapshot!(text, @r"
        weighted, policies/my-very-long-name.yaml, 表示幅の広い名前を持つ方策 against round-robin
        Paired runs under 5 seeds: 1, 2, 3, 5, 8

        metric                policy               mean   change             ±95%
        fitness               round-robin         1.000
                              weighted           0.9958 -0.00420         ±0.00020 worse
                              …-long-name.yaml   0.9916 -0.00840         ±0.00039 worse
                              …名前を持つ方策    0.9874  -0.0126          ±0.0006 worse
        throughput, req/s     round-robin          1241
                              weighted             1241  +0.0560   0.00%  ±0.0368 better
                              …-long-name.yaml     1241   +0.112  +0.01%   ±0.074 better
                              …名前を持つ方策      1242   +0.168  +0.01%   ±0.111 better
        tokens_per_sec, tok/s round-robin        151920
                              weighted           151220   -700.0  -0.46%        -
                              …-long-name.yaml   150520    -1400  -0.92%        -
                              …名前を持つ方策    149820    -2100  -1.38%        -
        completed_share, %    round-robin         100.0
                              weighted            98.94    -1.06            ±0.04 worse
                              …-long-name.yaml    97.89    -2.11            ±0.07 worse
                              …名前を持つ方策     96.83    -3.17            ±0.11 worse
        mean_ttft, ms         round-robin         70.01
                              weighted            66.45    -3.56  -5.08%    ±0.37 better
                              …-long-name.yaml    62.89    -7.12 -10.17%    ±0.74 better
                              …名前を持つ方策     59.33    -10.7 -15.25%     ±1.1 better
        p99_e2e, ms           round-robin          9230
                              weighted             9230    +0.60  +0.01%    ±3.68
                              …-long-name.yaml     9231    +1.20  +0.01%    ±7.37
                              …名前を持つ方策      9231     +1.8  +0.02%    ±11.1
        jain                  round-robin        0.8561
                              weighted           0.8555 -0.00056         ±0.00037 worse
                              …-long-name.yaml   0.8550 -0.00112         ±0.00074 worse
                              …名前を持つ方策    0.8544 -0.00168         ±0.00111 worse
        preemptions, per req  round-robin             0
                              weighted         0.000211 +0.00021         ±0.00001 worse
                              …-long-name.yaml 0.000422 +0.00042         ±0.00001 worse
                              …名前を持つ方策  0.000634 +0.00063         ±0.00002 worse

        fitness: relative to round-robin; 1 is as good, 0 is nothing completed
        ±95%: half the interval of the mean difference (Student's t); better, worse: it
        is clear of 0, allowing for the number of figures: Holm for
        fitness;
        Benjamini and Hochberg for the others, which are exploratory
        Differences of percentages are in percentage points
        ");
    }

    #[test]
    fn one_seed_and_missing_samples_are_reported() {
        let one = Comparison::new(&names(&["a", "b"]), &[7], &runs(2, &[7])).to_string();
        assert!(one.contains("under seed 7\n") && one.contains("One seed has no spread"), "{one}");
        assert!(!one.contains('['), "{one}");

        let seeds = [1, 2, 3];
        let mut gaps = runs(3, &seeds);
        gaps[1][0].set(Figure::MeanTtft, None);
        gaps[2].iter_mut().for_each(|run| run.set(Figure::MeanTtft, None));
        gaps.iter_mut().flatten().for_each(|run| {
            let kept = run.get(Figure::MeanTtft);
            *run = Figures::default();
            run.set(Figure::MeanTtft, kept);
        });
        let comparison = Comparison::new(&names(&["a", "b", "c"]), &seeds, &gaps);
        insta::assert_snapshot!(comparison, @r"
        b, c against a
        Paired runs under 3 seeds: 1 to 3

        metric         policy   mean  change           ±95%
        mean_ttft, ms  a       69.73
                       b       66.49   -3.60  -5.14%  ±1.27  better
                       c           -       -              -

        ±95%: half the interval of the mean difference (Student's t); better, worse: it
        is clear of 0, allowing for the number of figures: Holm for
        mean_ttft;
        Benjamini and Hochberg for the others, which are exploratory
        mean_ttft, b: 1 of 3 seeds left out of the difference, because a sample is missing
        mean_ttft, c: 3 of 3 seeds left out of the difference, because a sample is missing
        ");
        let json = serde_json::to_value(&comparison).expect("JSON");
        assert_eq!(
            json["metrics"].as_object().map(serde_json::Map::len),
            Some(1),
            "figures without samples are left out"
        );
        assert_eq!(json["metrics"]["mean_ttft"]["differences"][1], serde_json::Value::Null);
        assert_eq!(json["metrics"]["mean_ttft"]["values"][1][0], serde_json::Value::Null);
        assert_eq!(json["metrics"]["mean_ttft"]["differences"][0]["left_out"], 1);
    }

    #[test]
    fn the_document_has_everything() {
        let seeds = [1, 2];
        let run = |ttft: f64| {
            let mut run = Figures::default();
            run.set(Figure::MeanTtft, Some(ttft));
            run
        };
        let runs = [vec![run(4.0), run(6.0)], vec![run(3.5), run(5.5)]];
        let comparison = Comparison::new(&names(&["a", "b"]), &seeds, &runs);
        insta::assert_snapshot!(serde_json::to_string_pretty(&comparison).expect("JSON"), @r#"
        {
          "confidence": 0.95,
          "margin": 0.01,
          "primary": [
            "mean_ttft"
          ],
          "looks": 1,
          "warnings": [],
          "policies": [
            "a",
            "b"
          ],
          "seeds": [
            1,
            2
          ],
          "metrics": {
            "mean_ttft": {
              "unit": "ms",
              "better": "lower",
              "values": [
                [
                  4.0,
                  6.0
                ],
                [
                  3.5,
                  5.5
                ]
              ],
              "means": [
                5.0,
                4.5
              ],
              "differences": [
                {
                  "candidate": "b",
                  "pairs": 2,
                  "left_out": 0,
                  "mean": -0.5,
                  "standard_error": 0.0,
                  "low": null,
                  "high": null,
                  "result": "undecided"
                }
              ]
            }
          }
        }
        "#);
    }

    #[test]
    fn numbers_have_four_digits() {
        let texts =
            [0.0, 12_345.6, 999.96, 999.94, 12.345, 1.0, 0.5, 0.0123, 1.5e-5, 2e-7, 3e15].map(|n| number(n, false));
        insta::assert_snapshot!(texts.join(" "), @r"0 12346 1000 999.9 12.35 1.000 0.5000 0.01230 0.000015 2.00e-7 3.00e15");
        assert_eq!([number(-0.5, true), number(0.5, true), number(0.0, true)], ["-0.5000", "+0.5000", "0"]);
        assert_eq!(fixed(-0.001, Some(2), true), "0.00", "no sign where nothing is left");
    }

    #[test]
    fn names_are_cut_at_the_front_by_their_width() {
        assert_eq!(shortened("least-loaded", NAME_WIDTH), "least-loaded");
        assert_eq!(shortened("policies/first/long.yaml", NAME_WIDTH), "…first/long.yaml");
        assert_eq!(shortened("\u{1b}[1m", NAME_WIDTH), "\u{fffd}[1m");
        assert!(shortened("表示幅の広い名前を持つ方策", NAME_WIDTH).width() <= NAME_WIDTH);
    }

    #[test]
    fn consecutive_seeds_are_shortened() {
        assert_eq!(seeds_in_words(&[u64::MAX, 0]), "2 seeds: 18446744073709551615, 0");
        assert_eq!(seeds_in_words(&[3, 4, 5]), "3 seeds: 3 to 5");
    }

    proptest! {
        /// For any figures, columns line up and no cell is NaN or infinite.
        #[test]
        fn any_figures_make_a_table(
            policies in 2..5usize,
            seeds in 1..4usize,
            values in prop::collection::vec(prop_oneof![Just(None), (0.0..1e-6f64).prop_map(Some), (0.0..1e14f64).prop_map(Some)], 12),
        ) {
            let mut values = values.iter().cycle();
            let seeds: Vec<u64> = (0..seeds as u64).collect();
            let mut run = || {
                let mut run = Figures::default();
                run.set(Figure::MeanTtft, *values.next().expect("endless"));
                run
            };
            let runs: Vec<Vec<Figures>> = (0..policies).map(|_| seeds.iter().map(|_| run()).collect()).collect();
            let names: Vec<String> = (0..policies).map(|index| "方".repeat(index + 1)).collect();
            let comparison = Comparison::new(&names, &seeds, &runs);
            let text = comparison.to_string();
            prop_assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
            prop_assert!(text.lines().all(|line| line.width() <= 120), "{text}");
            prop_assert_eq!(text, comparison.clone().to_string());
            prop_assert!(serde_json::to_string(&comparison).is_ok());
        }
    }
}
