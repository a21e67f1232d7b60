//! The figures of a run: every number by which runs are scored and compared, in one table.
//!
//! Parsing, help, documentation, tables and JSON all read this table, so that a figure has one name everywhere.

use std::fmt::Write as _;

use blis_sim::energy::JOULES_PER_KWH;
use blis_sim::metrics::{Aggregate, Distribution, Report};

/// Builds [`Figure`] from the table below, so that the definition of a figure is written once.
macro_rules! figures {
    ($($name:ident = $key:literal, $unit:ident, $better:ident, $needs:ident, $scope:ident, $definition:literal;)+) => {
        /// A figure of a whole run. No figure is ever negative.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Figure {
            $(#[doc = $definition] $name,)+
        }

        impl Figure {
            /// Every figure, in the order of output.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            const fn entry(self) -> FigureEntry {
                match self {
                    $(Self::$name => FigureEntry {
                        key: $key,
                        unit: Unit::$unit,
                        better: Better::$better,
                        needs: Needs::$needs,
                        scope: FigureScope::$scope,
                        definition: $definition,
                    },)+
                }
            }
        }
    };
}

// A request arrives once. Requests that are unfinished at the end of the simulation count as arrived, and as nothing
// else.
figures! {
    Throughput = "throughput", RequestsPerSecond, Higher, Nothing, Classes, "completed requests per simulated second";
    TokensPerSec = "tokens_per_sec", TokensPerSecond, Higher, Nothing, Classes,
        "output tokens of completed requests per simulated second";
    Goodput = "goodput", RequestsPerSecond, Higher, SloTargets, Classes,
        "completed requests that met every SLO target, per simulated second";
    SloAttainment = "slo_attainment", Share, Higher, SloTargets, Classes,
        "requests that met every SLO target, of those that arrived with one";
    CompletedShare = "completed_share", Share, Higher, Nothing, Classes, "completed requests, of those that arrived";
    RejectedShare = "rejected_share", Share, Lower, Nothing, Classes,
        "requests rejected by admission or routing, of those that arrived";
    TimedOutShare = "timed_out_share", Share, Lower, Nothing, Classes,
        "requests that timed out, of those that arrived";
    MeanTtft = "mean_ttft", Milliseconds, Lower, Nothing, Classes, "time to first token, mean";
    P50Ttft = "p50_ttft", Milliseconds, Lower, Nothing, Classes, "time to first token, median";
    P90Ttft = "p90_ttft", Milliseconds, Lower, Nothing, Classes, "time to first token, 90th percentile";
    P95Ttft = "p95_ttft", Milliseconds, Lower, Nothing, Classes, "time to first token, 95th percentile";
    P99Ttft = "p99_ttft", Milliseconds, Lower, Nothing, Classes, "time to first token, 99th percentile";
    MeanItl = "mean_itl", Milliseconds, Lower, Nothing, Run, "inter-token latency, mean";
    P95Itl = "p95_itl", Milliseconds, Lower, Nothing, Run, "inter-token latency, 95th percentile";
    P99Itl = "p99_itl", Milliseconds, Lower, Nothing, Run, "inter-token latency, 99th percentile";
    MeanE2e = "mean_e2e", Milliseconds, Lower, Nothing, Classes, "end-to-end latency of completed requests, mean";
    P50E2e = "p50_e2e", Milliseconds, Lower, Nothing, Classes, "end-to-end latency of completed requests, median";
    P90E2e = "p90_e2e", Milliseconds, Lower, Nothing, Classes,
        "end-to-end latency of completed requests, 90th percentile";
    P95E2e = "p95_e2e", Milliseconds, Lower, Nothing, Classes,
        "end-to-end latency of completed requests, 95th percentile";
    P99E2e = "p99_e2e", Milliseconds, Lower, Nothing, Classes,
        "end-to-end latency of completed requests, 99th percentile";
    Jain = "jain", Index, Higher, Tenants, Run,
        "fairness to n tenants with x output tokens each: Jain's (sum x)^2 / (n sum x^2)";
    Preemptions = "preemptions", PerRequest, Lower, Nothing, Run, "preemptions per completed request";
    CacheHitRate = "cache_hit_rate", Share, Higher, Nothing, Run,
        "tokens found in the prefix cache, of those of requests when they first enter a batch";
    RecomputedTokens = "recomputed_tokens", PerRequest, Lower, Nothing, Run,
        "tokens computed again after preemptions, per completed request";
    PriorityInversions = "priority_inversions", Count, Lower, Nothing, Run,
        "requests that entered a batch before one of the same queue that has at least the same priority and arrived earlier";
    HolBlocking = "hol_blocking", Count, Lower, Nothing, Run,
        "instances whose mean waiting queue is at least 1 and more than twice that of the others";
    InstanceSeconds = "instance_seconds", Seconds, Lower, Nothing, Cost,
        "instances times simulated seconds: what the run cost";
    GpuHours = "gpu_hours", Hours, Lower, Nothing, Cost, "time in which GPUs were held, summed over GPUs";
    Cost = "cost", Dollars, Lower, Prices, Cost,
        "GPU-hours at the price of --prices, or node-hours at that of --node-pool";
    GoodputPerGpuHour = "goodput_per_gpu_hour", RequestsPerGpuHour, Higher, SloTargets, Cost,
        "completed requests that met every SLO target, per GPU-hour";
    ScaleEvents = "scale_events", Count, Lower, Nothing, Cost, "changes of the number of replicas";
    Kwh = "kwh", KilowattHours, Lower, Energy, Cost, "energy of the GPUs that were held";
    JoulesPerOutputToken = "joules_per_output_token", Joules, Lower, Energy, Cost,
        "the same per output token of completed requests";
}

/// What a figure is of.
enum FigureScope {
    /// The run, and the requests of each class.
    Classes,
    /// The run as a whole.
    Run,
    /// What the run cost.
    Cost,
}

struct FigureEntry {
    key: &'static str,
    unit: Unit,
    better: Better,
    needs: Needs,
    scope: FigureScope,
    definition: &'static str,
}

impl Figure {
    /// Number of figures in the table.
    pub const COUNT: usize = Self::ALL.len();

    /// The name in flags, files and tables.
    #[must_use]
    pub const fn key(self) -> &'static str {
        self.entry().key
    }

    #[must_use]
    pub const fn unit(self) -> Unit {
        self.entry().unit
    }

    #[must_use]
    pub const fn better(self) -> Better {
        self.entry().better
    }

    /// What a workload or the settings must provide for the figure to have a sample.
    #[must_use]
    pub const fn needs(self) -> Needs {
        self.entry().needs
    }

    /// Whether there is a value for the requests of one class.
    #[must_use]
    pub const fn has_classes(self) -> bool {
        matches!(self.entry().scope, FigureScope::Classes)
    }

    /// Whether a service that serves fewer requests in time has a better value.
    #[must_use]
    pub const fn is_cost(self) -> bool {
        matches!(self.entry().scope, FigureScope::Cost)
    }

    /// The definition in one line.
    #[must_use]
    pub const fn definition(self) -> &'static str {
        self.entry().definition
    }

    /// The figure with the key `key`; `attainment` is short for `slo_attainment`.
    #[must_use]
    pub fn find(key: &str) -> Option<Self> {
        let key = if key == "attainment" { Self::SloAttainment.key() } else { key };
        Self::ALL.iter().copied().find(|figure| figure.key() == key)
    }

    /// The figure `name`, as [`Self::find`], or as SLOs name it: `ttft_p99` for `p99_ttft`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let turned =
            || name.split_once('_').and_then(|(latency, statistic)| Self::find(&format!("{statistic}_{latency}")));
        Self::find(name).or_else(turned)
    }

    /// Every figure with unit, direction and definition, one per line: for `--help` and documentation.
    #[must_use]
    pub fn help() -> String {
        let width = Self::ALL.iter().map(|figure| figure.key().len()).max().unwrap_or(0);
        let mut text = String::new();
        for figure in Self::ALL {
            let (key, unit, better) = (figure.key(), figure.unit().name(), figure.better().name());
            let needs = match figure.needs() {
                Needs::Nothing => String::new(),
                needs => format!("; needs {}", needs.name()),
            };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  {key:width$}  {} [{unit}, {better} is better{needs}]", figure.definition());
        }
        text
    }
}

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Requests per simulated second.
    RequestsPerSecond,
    /// Tokens per simulated second.
    TokensPerSecond,
    Milliseconds,
    /// Part of a whole, 0 to 1; tables show it in percent.
    Share,
    /// A number from 0 to 1 that is not a part of a whole.
    Index,
    /// Number of events per completed request.
    PerRequest,
    /// Number of events in the run.
    Count,
    Seconds,
    Hours,
    /// US dollars.
    Dollars,
    /// Requests for an hour of one GPU.
    RequestsPerGpuHour,
    KilowattHours,
    Joules,
}

impl Unit {
    /// The name in JSON and help.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RequestsPerSecond => "requests/s",
            Self::TokensPerSecond => "tokens/s",
            Self::Milliseconds => "ms",
            Self::Share => "share",
            Self::Index => "index",
            Self::PerRequest => "per request",
            Self::Count => "count",
            Self::Seconds => "s",
            Self::Hours => "h",
            Self::Dollars => "$",
            Self::RequestsPerGpuHour => "requests/GPU-hour",
            Self::KilowattHours => "kWh",
            Self::Joules => "J",
        }
    }

    /// Whether values lie between 0 and 1, so that differences are comparable without a ratio.
    #[must_use]
    pub const fn bounded(self) -> bool {
        matches!(self, Self::Share | Self::Index)
    }
}

/// The direction in which a figure improves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    Higher,
    Lower,
}

impl Better {
    /// The direction in JSON and help: `higher` or `lower`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Higher => "higher",
            Self::Lower => "lower",
        }
    }
}

/// What a workload or the settings must provide for a figure to have a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Nothing: every run that completed a request has a sample.
    Nothing,
    /// SLO targets for the classes of the requests.
    SloTargets,
    /// Requests that name their tenant.
    Tenants,
    /// A price list.
    Prices,
    /// The energy of GPUs.
    Energy,
}

impl Needs {
    /// The requirement in words, for messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::SloTargets => "SLO targets",
            Self::Tenants => "a workload with tenants",
            Self::Prices => "--prices",
            Self::Energy => "--energy",
        }
    }
}

/// The figures of one run. A figure without a sample has no value: the p99 of no request is not 0.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures([Option<f64>; Figure::COUNT]);

impl Default for Figures {
    fn default() -> Self {
        Self([None; Figure::COUNT])
    }
}

impl Figures {
    /// The value `value(figure)` for each figure.
    ///
    /// # Panics
    ///
    /// As [`Self::set`].
    #[must_use]
    pub fn from_fn(mut value: impl FnMut(Figure) -> Option<f64>) -> Self {
        let mut figures = Self::default();
        Figure::ALL.iter().for_each(|&figure| figures.set(figure, value(figure)));
        figures
    }

    /// The value; `None` if the run had no sample.
    #[must_use]
    pub fn get(&self, figure: Figure) -> Option<f64> {
        self.0[figure as usize]
    }

    /// Sets the value of `figure`, or removes it.
    ///
    /// # Panics
    ///
    /// If the value is negative, not finite, or above 1 for a share. The simulator counts correctly or has a defect,
    /// and a score must not be computed from a defect.
    pub fn set(&mut self, figure: Figure, value: Option<f64>) {
        if let Some(value) = value {
            let most = if figure.unit().bounded() { 1.0 } else { f64::MAX };
            assert!((0.0..=most).contains(&value), "{} is {value}, not within 0 and {most}", figure.key());
        }
        self.0[figure as usize] = value;
    }

    /// The figures that an [`Aggregate`] contains: all but goodput, attainment, fairness and anomalies.
    ///
    /// `arrived`: number of requests that arrived, rejected ones included.
    fn from_aggregate(all: &Aggregate, instances: usize, arrived: u64) -> Self {
        let counts = &all.counts;
        let seconds = all.duration.as_secs_f64();
        let rejected = counts.rejected_by_admission + counts.rejected_by_routing;
        let per_second = |count| (seconds > 0.0).then(|| count as f64 / seconds);
        Self::from_fn(|figure| match figure {
            Figure::Throughput => per_second(counts.completed),
            Figure::TokensPerSec => per_second(counts.output_tokens),
            Figure::CompletedShare => part(counts.completed, arrived),
            Figure::RejectedShare => part(rejected, arrived),
            Figure::TimedOutShare => part(counts.timed_out, arrived),
            Figure::MeanTtft => sample(&all.ttft, all.ttft.mean_ms),
            Figure::P50Ttft => sample(&all.ttft, all.ttft.p50_ms),
            Figure::P90Ttft => sample(&all.ttft, all.ttft.p90_ms),
            Figure::P95Ttft => sample(&all.ttft, all.ttft.p95_ms),
            Figure::P99Ttft => sample(&all.ttft, all.ttft.p99_ms),
            Figure::MeanItl => sample(&all.itl, all.itl.mean_ms),
            Figure::P95Itl => sample(&all.itl, all.itl.p95_ms),
            Figure::P99Itl => sample(&all.itl, all.itl.p99_ms),
            Figure::MeanE2e => sample(&all.e2e, all.e2e.mean_ms),
            Figure::P50E2e => sample(&all.e2e, all.e2e.p50_ms),
            Figure::P90E2e => sample(&all.e2e, all.e2e.p90_ms),
            Figure::P95E2e => sample(&all.e2e, all.e2e.p95_ms),
            Figure::P99E2e => sample(&all.e2e, all.e2e.p99_ms),
            Figure::Preemptions => part(all.counters.preemptions, counts.completed),
            Figure::RecomputedTokens => part(all.counters.recomputed_tokens, counts.completed),
            Figure::CacheHitRate => all.counters.prefix_cache.hit_rate(),
            Figure::InstanceSeconds => Some(instances as f64 * seconds),
            Figure::Goodput
            | Figure::SloAttainment
            | Figure::Jain
            | Figure::PriorityInversions
            | Figure::HolBlocking
            | Figure::GpuHours
            | Figure::Cost
            | Figure::GoodputPerGpuHour
            | Figure::ScaleEvents
            | Figure::Kwh
            | Figure::JoulesPerOutputToken => None,
        })
    }
}

impl From<&Report> for Figures {
    fn from(report: &Report) -> Self {
        let mut figures = Self::from_aggregate(&report.cluster, report.instances.len(), report.arrived);
        figures.set(Figure::Goodput, report.goodput.as_ref().map(|goodput| goodput.goodput_rps));
        figures.set(Figure::SloAttainment, report.goodput.as_ref().map(|goodput| goodput.slo_attainment));
        figures.set(Figure::Jain, report.jain_index);
        figures.set(Figure::PriorityInversions, report.anomalies.priority_inversions.map(|count| count as f64));
        figures.set(Figure::HolBlocking, Some(report.anomalies.head_of_line_blocking.len() as f64));
        if let Some(replicas) = &report.replicas {
            let held = replicas.groups.iter().map(|group| group.provisioned().as_secs_f64()).sum();
            figures.set(Figure::InstanceSeconds, Some(held));
        }
        let gpu_hours = report.gpu_hours().filter(|&hours| hours > 0.0);
        figures.set(Figure::GpuHours, gpu_hours);
        figures.set(Figure::Cost, report.dollars());
        let good = report.goodput.as_ref().map(|goodput| goodput.goodput_rps * report.cluster.duration.as_secs_f64());
        figures.set(Figure::GoodputPerGpuHour, good.zip(gpu_hours).map(|(good, hours)| good / hours));
        let events = report.replicas.as_ref().map_or(0, |replicas| replicas.changes.len());
        figures.set(Figure::ScaleEvents, Some(events as f64));
        figures.set(Figure::Kwh, report.joules().map(|joules| joules / JOULES_PER_KWH));
        figures.set(Figure::JoulesPerOutputToken, report.joules_per_output_token());
        figures
    }
}

fn part(count: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| count as f64 / whole as f64)
}

fn sample(distribution: &Distribution, ms: f64) -> Option<f64> {
    (distribution.count > 0).then_some(ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use blis_sim::metrics::Counts;
    use blis_sim::outcome::{Counters, PrefixCacheCounters};
    use blis_sim::units::Micros;

    #[test]
    fn names_are_unique_and_find_their_figure() {
        for (number, &figure) in Figure::ALL.iter().enumerate() {
            assert_eq!(figure as usize, number);
            assert_eq!(Figure::find(figure.key()), Some(figure));
        }
        assert_eq!(Figure::find("ttft"), None);
    }

    #[test]
    fn help_has_a_line_for_each() {
        let help = Figure::help();
        assert_eq!(help.lines().count(), Figure::COUNT);
        insta::assert_snapshot!(help.lines().take(3).collect::<Vec<_>>().join("\n"), @r"
        throughput               completed requests per simulated second [requests/s, higher is better]
        tokens_per_sec           output tokens of completed requests per simulated second [tokens/s, higher is better]
        goodput                  completed requests that met every SLO target, per simulated second [requests/s, higher is better; needs SLO targets]
        ");
        assert!(help.lines().all(|line| line.is_ascii() && line.len() <= 170), "{help}");
    }

    #[test]
    fn an_aggregate_in_figures() {
        let ms = |mean_ms| Distribution { count: 3, mean_ms, p99_ms: 2.0 * mean_ms, ..Distribution::default() };
        let all = Aggregate {
            counts: Counts {
                completed: 4,
                timed_out: 1,
                rejected_by_admission: 2,
                rejected_by_routing: 1,
                output_tokens: 100,
                ..Counts::default()
            },
            counters: Counters {
                preemptions: 6,
                recomputed_tokens: 12,
                prefix_cache: PrefixCacheCounters::of_blocks(1, 3),
                ..Counters::default()
            },
            duration: Micros(2_000_000),
            ttft: ms(10.0),
            e2e: ms(30.0),
            ..Aggregate::default()
        };
        let figures = Figures::from_aggregate(&all, 3, 10);
        let expected = [
            (Figure::Throughput, Some(2.0)),
            (Figure::TokensPerSec, Some(50.0)),
            (Figure::CompletedShare, Some(0.4)),
            (Figure::RejectedShare, Some(0.3)),
            (Figure::TimedOutShare, Some(0.1)),
            (Figure::MeanTtft, Some(10.0)),
            (Figure::P99E2e, Some(60.0)),
            (Figure::MeanItl, None),
            (Figure::Preemptions, Some(1.5)),
            (Figure::CacheHitRate, Some(0.25)),
            (Figure::RecomputedTokens, Some(3.0)),
            (Figure::InstanceSeconds, Some(6.0)),
            (Figure::Goodput, None),
            (Figure::Jain, None),
        ];
        for (figure, value) in expected {
            assert_eq!(figures.get(figure), value, "{}", figure.key());
        }
    }

    #[test]
    fn nothing_happened_is_no_sample() {
        let figures = Figures::from_aggregate(&Aggregate::default(), 1, 0);
        let present: Vec<_> = Figure::ALL.iter().filter(|&&figure| figures.get(figure).is_some()).collect();
        assert_eq!(present, [&Figure::InstanceSeconds]);
    }

    #[test]
    #[should_panic(expected = "p99_ttft is NaN")]
    fn no_figure_is_nan() {
        Figures::default().set(Figure::P99Ttft, Some(f64::NAN));
    }

    #[test]
    #[should_panic(expected = "completed_share is 1.5")]
    fn no_share_exceeds_the_whole() {
        Figures::default().set(Figure::CompletedShare, Some(1.5));
    }
}
