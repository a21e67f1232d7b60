//! What binds a real server, from two scrapes of its `/metrics`: vLLM's counters over the time between them.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::path::Path;

use blis_diag::{Diagnostic, Location};
use blis_report::{Concludes, Conclusion};
use serde::Serialize;

use super::cause::Cause;
use crate::error::RunError;

/// What `blis diagnose --metrics` prints with `--output json`; docs/planning.md defines it.
#[derive(Clone, Debug, Serialize)]
pub struct ScrapeDiagnosis {
    /// What binds, in a sentence of at most 160 characters.
    #[serde(skip)]
    pub text: String,
    /// The cause that binds; `null` if the server does not say where time goes.
    pub cause: Option<Cause>,
    /// Requests that ended between the scrapes. Unit: requests, 0 or more.
    pub requests: f64,
    /// Mean end-to-end latency of these; `null` without any.
    pub e2e_mean_s: Option<f64>,
    /// Mean time to first token between the scrapes; `null` without any.
    pub ttft_mean_s: Option<f64>,
    /// Part of the time of requests in the waiting queue; `null` if it is not counted. Unit: share, 0 to 1.
    pub queue_share: Option<f64>,
    /// Part of the time of requests in prefill; `null` if it is not counted. Unit: share, 0 to 1.
    pub prefill_share: Option<f64>,
    /// Part of the time of requests in decode; `null` if it is not counted. Unit: share, 0 to 1.
    pub decode_share: Option<f64>,
    /// Prompt tokens found in the prefix cache; `null` without look-ups. Unit: share, 0 to 1.
    pub cache_hit_rate: Option<f64>,
    /// Preemptions between the scrapes. Unit: preemptions, 0 or more.
    pub preemptions: f64,
    /// Used KV blocks at the later scrape, mean of the engines; `null` if the server has no such gauge. Unit: share, 0 to 1.
    pub kv_usage: Option<f64>,
    /// Requests in the waiting queues at the later scrape. Unit: requests, 0 or more.
    pub waiting: f64,
    /// Requests in the batches at the later scrape. Unit: requests, 0 or more.
    pub running: f64,
    /// The histograms of times, the one with the largest change first.
    pub moved: Vec<MovedHistogram>,
    /// What limits the diagnosis.
    pub notes: Vec<String>,
}

/// A histogram of which the mean between the scrapes differs from that before.
#[derive(Clone, Debug, Serialize)]
pub struct MovedHistogram {
    /// The name of the metric.
    pub metric: String,
    /// Mean since the start of the server up to the earlier scrape; `null` without a value.
    pub before_s: Option<f64>,
    /// Mean of the values between the scrapes.
    pub between_s: f64,
}

/// The values of a scrape, by name of the metric: sums over all engines and labels.
#[derive(Debug, Default)]
struct ScrapedValues {
    sums: BTreeMap<String, f64>,
    /// Number of series of each metric.
    series: BTreeMap<String, u32>,
}

/// Bytes of a scrape at most.
const LARGEST: u64 = 64 << 20;

/// Reads both scrapes, the earlier one first.
///
/// # Errors
/// If a file cannot be read or is no scrape of vLLM, or a counter fell.
pub fn diagnose_metrics(before: &Path, after: &Path) -> Result<ScrapeDiagnosis, RunError> {
    let (earlier, later) = (read(before)?, read(after)?);
    ScrapeDiagnosis::between(&earlier, &later).map_err(|metric| {
        let (before, after) = (before.display(), after.display());
        RunError::usage(format_args!("`{metric}` is smaller in {after} than in {before}")).hint(
            "the server was started anew between both, or the files are in the wrong order: the earlier one is first",
        )
    })
}

fn read(path: &Path) -> Result<ScrapedValues, RunError> {
    let text = blis_diag::read_text(path, LARGEST).map_err(|error| {
        RunError::usage(format_args!("{}: {error}", path.display())).hint("name a file with `curl …/metrics`")
    })?;
    let refused = |line: u64, what: &str| {
        let location = Location::file(path.display().to_string()).line(line);
        RunError::refused(
            Diagnostic::new(what).at(location).hint("a scrape is what `curl http://SERVER/metrics` prints"),
        )
    };
    let values =
        ScrapedValues::parse(&text).map_err(|line| refused(line, "is no sample of Prometheus' text format"))?;
    if !values.sums.keys().any(|name| name.starts_with("vllm:")) {
        return Err(RunError::usage(format_args!("{}: it has no metric of vLLM", path.display()))
            .hint("scrape `/metrics` of the server itself"));
    }
    Ok(values)
}

impl ScrapedValues {
    /// # Errors
    /// The number of the first line that is no sample.
    fn parse(text: &str) -> Result<Self, u64> {
        let mut values = Self::default();
        for (number, line) in (1_u64..).zip(text.lines().map(str::trim)) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            // Labels may have blanks and braces in quotes: what counts is the last brace.
            let (name, rest) = match (line.find('{'), line.rfind('}')) {
                (Some(open), Some(close)) if open < close => (&line[..open], &line[close + 1..]),
                _ => line.split_once(char::is_whitespace).ok_or(number)?,
            };
            let value = rest.split_whitespace().next().and_then(|word| word.parse::<f64>().ok()).ok_or(number)?;
            if name.is_empty() || name.ends_with("_bucket") || !value.is_finite() {
                continue;
            }
            *values.sums.entry(name.to_owned()).or_default() += value;
            *values.series.entry(name.to_owned()).or_default() += 1;
        }
        Ok(values)
    }

    fn get(&self, name: &str) -> Option<f64> {
        self.sums.get(&format!("vllm:{name}")).copied()
    }

    /// The mean over the engines of a gauge.
    fn mean(&self, name: &str) -> Option<f64> {
        let series = self.series.get(&format!("vllm:{name}"))?;
        Some(self.get(name)? / f64::from(*series))
    }
}

/// The histograms of times that vLLM has.
const TIMES: [&str; 8] = [
    "e2e_request_latency_seconds",
    "time_to_first_token_seconds",
    "request_queue_time_seconds",
    "request_prefill_time_seconds",
    "request_decode_time_seconds",
    "request_inference_time_seconds",
    "inter_token_latency_seconds",
    "time_per_output_token_seconds",
];

/// From which share of used blocks on waiting requests wait for blocks.
const FULL: f64 = 0.9;

/// The growth of counters between two scrapes.
struct CounterGrowth<'a> {
    before: &'a ScrapedValues,
    after: &'a ScrapedValues,
}

impl CounterGrowth<'_> {
    /// # Errors
    /// The name, if the counter fell.
    fn of(&self, name: &str) -> Result<Option<f64>, String> {
        let Some(after) = self.after.get(name) else { return Ok(None) };
        let growth = after - self.before.get(name).unwrap_or(0.0);
        if growth < 0.0 { Err(format!("vllm:{name}")) } else { Ok(Some(growth)) }
    }

    /// The first of two names that the server has; they changed over vLLM's versions.
    fn either(&self, name: &str, older: &str) -> Result<Option<f64>, String> {
        self.of(name)?.map_or_else(|| self.of(older), |growth| Ok(Some(growth)))
    }

    fn mean_s(&self, histogram: &str) -> Result<Option<f64>, String> {
        let sum = self.of(&format!("{histogram}_sum"))?;
        let count = self.of(&format!("{histogram}_count"))?;
        Ok(sum.zip(count).filter(|(_, count)| *count > 0.0).map(|(sum, count)| sum / count))
    }
}

impl Concludes for ScrapeDiagnosis {
    fn conclusion(&self) -> Conclusion {
        Conclusion::measured(self.text.clone())
    }
}

impl ScrapeDiagnosis {
    /// # Errors
    /// The name of a counter that fell.
    fn between(before: &ScrapedValues, after: &ScrapedValues) -> Result<Self, String> {
        let growth = CounterGrowth { before, after };
        let whole = growth.of("e2e_request_latency_seconds_sum")?.filter(|sum| *sum > 0.0);
        let share = |histogram: &str| -> Result<Option<f64>, String> {
            let part = growth.of(&format!("{histogram}_sum"))?;
            Ok(part.zip(whole).map(|(part, whole)| (part / whole).clamp(0.0, 1.0)))
        };
        let hits = growth.either("prefix_cache_hits_total", "gpu_prefix_cache_hits_total")?;
        let queries = growth.either("prefix_cache_queries_total", "gpu_prefix_cache_queries_total")?;
        let mut found = Self {
            text: String::new(),
            cause: None,
            requests: growth.of("e2e_request_latency_seconds_count")?.unwrap_or(0.0),
            e2e_mean_s: growth.mean_s("e2e_request_latency_seconds")?,
            ttft_mean_s: growth.mean_s("time_to_first_token_seconds")?,
            queue_share: share("request_queue_time_seconds")?,
            prefill_share: share("request_prefill_time_seconds")?,
            decode_share: share("request_decode_time_seconds")?,
            cache_hit_rate: hits
                .zip(queries)
                .filter(|(_, queries)| *queries > 0.0)
                .map(|(hits, queries)| hits / queries),
            preemptions: growth.of("num_preemptions_total")?.unwrap_or(0.0),
            kv_usage: after.mean("kv_cache_usage_perc").or_else(|| after.mean("gpu_cache_usage_perc")),
            waiting: after.get("num_requests_waiting").unwrap_or(0.0),
            running: after.get("num_requests_running").unwrap_or(0.0),
            moved: moved(&growth)?,
            notes: Vec::new(),
        };
        found.cause = found.binding();
        found.text = found.sentence();
        found.notes = found.limits();
        Ok(found)
    }

    fn binding(&self) -> Option<Cause> {
        let (queue, prefill, decode) = (self.queue_share?, self.prefill_share?, self.decode_share?);
        if queue >= prefill.max(decode) {
            let is_full = self.kv_usage.is_some_and(|used| used >= FULL) || self.preemptions > 0.0;
            return Some(if is_full { Cause::KvBlocks } else { Cause::BatchSlots });
        }
        // As in the shares of a simulation: a preemption costs a request some tenths of its time.
        if self.preemptions > 0.3 * self.requests {
            return Some(Cause::Preemption);
        }
        Some(if prefill > decode { Cause::OwnPrefill } else { Cause::Decode })
    }

    fn sentence(&self) -> String {
        let percent = |share: Option<f64>| format!("{:.0} %", 100.0 * share.unwrap_or(0.0));
        let requests = format!("{:.0} requests", self.requests);
        let full = self.kv_usage.map_or(String::new(), |used| format!(", {:.0} % of the KV blocks used", 100.0 * used));
        let preempted = format!("{:.0} preemptions", self.preemptions);
        match self.cause {
            _ if self.requests <= 0.0 => "Nothing to diagnose: no request ended between the scrapes".to_owned(),
            None => format!("The server does not count where the time of {requests} goes{full}; {preempted}"),
            Some(Cause::KvBlocks) => {
                format!(
                    "KV blocks bind: {requests} wait for {} of their time{full}, {preempted}",
                    percent(self.queue_share)
                )
            }
            Some(Cause::Preemption) => format!("Preemption binds: {preempted} of {requests}{full}"),
            Some(Cause::OwnPrefill) => {
                format!(
                    "Prefill compute binds: {} of the time of {requests} is prefill{full}",
                    percent(self.prefill_share)
                )
            }
            Some(Cause::Decode) => {
                format!("Decode steps bind: {} of the time of {requests} is decode{full}", percent(self.decode_share))
            }
            Some(_) => {
                let queue = percent(self.queue_share);
                format!("Batch slots or the token budget bind: {requests} wait for {queue} of their time{full}")
            }
        }
    }

    fn limits(&self) -> Vec<String> {
        let mut notes = vec![
            "counters have no requests, so that no knob can be tried: record some with `blis observe`, or a trace of the \
             service, and `blis diagnose --workload-trace FILE` with the flags of the deployment"
                .to_owned(),
        ];
        if (1.0..100.0).contains(&self.requests) {
            notes.push(format!("too short: {:.0} requests ended between the scrapes", self.requests));
        }
        notes
    }
}

/// The histograms with values between the scrapes, by the change of their means.
fn moved(growth: &CounterGrowth<'_>) -> Result<Vec<MovedHistogram>, String> {
    let mut moved = Vec::new();
    for name in TIMES {
        let Some(between_s) = growth.mean_s(name)? else { continue };
        let sum = growth.before.get(&format!("{name}_sum"));
        let count = growth.before.get(&format!("{name}_count")).filter(|count| *count > 0.0);
        let before_s = sum.zip(count).map(|(sum, count)| sum / count);
        moved.push(MovedHistogram { metric: format!("vllm:{name}"), before_s, between_s });
    }
    let change =
        |one: &MovedHistogram| one.before_s.map_or(0.0, |before| (one.between_s / before.max(1e-9)).ln().abs());
    moved.sort_by(|a, b| change(b).total_cmp(&change(a)));
    Ok(moved)
}

impl Display for ScrapeDiagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = |share: Option<f64>| share.map_or("–".to_owned(), |share| format!("{:.1} %", 100.0 * share));
        let rows = [
            ("in the queue", share(self.queue_share)),
            ("prefill", share(self.prefill_share)),
            ("decode", share(self.decode_share)),
            ("prefix-cache hits", share(self.cache_hit_rate)),
            ("KV blocks used", share(self.kv_usage)),
            ("preemptions", format!("{:.0}", self.preemptions)),
            ("waiting, running", format!("{:.0}, {:.0}", self.waiting, self.running)),
        ];
        rows.iter().try_for_each(|(name, value)| writeln!(f, "{name:<20}{value}"))?;
        writeln!(f, "\nmean before  between, s  histogram")?;
        for MovedHistogram { metric, before_s, between_s } in &self.moved {
            let before = before_s.map_or("–".to_owned(), |seconds| format!("{seconds:.3}"));
            writeln!(f, "{before:>11}  {between_s:>10.3}  {metric}")?;
        }
        self.notes.iter().try_for_each(|note| write!(f, "{}", blis_diag::wrapped(&format!("note: {note}\n"))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A scrape after `requests` requests of 10 s, of which `queue` s are in the queue.
    fn scrape(requests: f64, queue: f64, usage: f64) -> ScrapedValues {
        let of = |name: &str, value: f64| format!("vllm:{name}{{engine=\"0\",model_name=\"a}} b\"}} {value}\n");
        let text = [
            "# TYPE vllm:e2e_request_latency_seconds histogram\n".to_owned(),
            of("e2e_request_latency_seconds_sum", 10.0 * requests),
            of("e2e_request_latency_seconds_count", requests),
            of("request_queue_time_seconds_sum", queue * requests),
            of("request_prefill_time_seconds_sum", 1.0 * requests),
            of("request_decode_time_seconds_sum", (9.0 - queue) * requests),
            of("kv_cache_usage_perc", usage),
            "vllm:num_requests_waiting 3 1700000000\n".to_owned(),
        ];
        ScrapedValues::parse(&text.concat()).expect("valid")
    }

    #[test]
    fn what_binds_follows_from_the_shares_between_the_scrapes() {
        let cause = |queue, usage| {
            ScrapeDiagnosis::between(&scrape(100.0, queue, 0.1), &scrape(600.0, queue, usage)).expect("counters grow")
        };
        let full = cause(7.0, 0.98);
        assert_eq!((full.cause, full.requests, full.waiting), (Some(Cause::KvBlocks), 500.0, 3.0));
        assert_eq!(
            full.text,
            "KV blocks bind: 500 requests wait for 70 % of their time, 98 % of the KV blocks used, 0 preemptions"
        );
        assert_eq!(cause(7.0, 0.4).cause, Some(Cause::BatchSlots));
        assert_eq!(cause(0.5, 0.4).cause, Some(Cause::Decode));
    }

    #[test]
    fn a_counter_that_falls_and_a_broken_line_are_refused() {
        let back = ScrapeDiagnosis::between(&scrape(600.0, 1.0, 0.1), &scrape(100.0, 1.0, 0.1));
        assert_eq!(back.err().as_deref(), Some("vllm:e2e_request_latency_seconds_sum"));
        assert_eq!(ScrapedValues::parse("# fine\nvllm:x 1\nno number\n").err(), Some(3));
        assert_eq!(ScrapedValues::parse("{} {\n}{ x").err(), Some(1));
        let nothing = ScrapeDiagnosis::between(&scrape(5.0, 1.0, 0.1), &scrape(5.0, 1.0, 0.1)).expect("no growth");
        assert!(nothing.text.starts_with("Nothing to diagnose"), "{}", nothing.text);
    }
}
