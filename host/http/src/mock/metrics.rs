//! The counters of `/metrics`, with vLLM's names, in the text format of Prometheus.
//!
//! Names and bucket bounds: vLLM `vllm/v1/metrics/loggers.py`. All times are simulated ones, in seconds.

use std::fmt::Write as _;

use blis_sim::instance::InstanceLoad;
use blis_sim::outcome::{Outcome, Status};
use blis_sim::units::Micros;

const TTFT_S: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
];
const ITL_S: &[f64] =
    &[0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0];
const E2E_S: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
];

/// Counters of the whole service.
pub(super) struct ServiceMetrics {
    model: String,
    requests: u64,
    completed: u64,
    capped: u64,
    cancelled: u64,
    refused: u64,
    prompt_tokens: u64,
    generated_tokens: u64,
    ttft: BucketCounts,
    itl: BucketCounts,
    e2e: BucketCounts,
}

/// Values by upper bound; the last bucket has none.
struct BucketCounts {
    bounds: &'static [f64],
    counts: Vec<u64>,
    sum: Micros,
}

impl BucketCounts {
    fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len() + 1], sum: Micros::ZERO }
    }

    fn add(&mut self, value: Micros) {
        let seconds = value.as_secs_f64();
        self.counts[self.bounds.partition_point(|&bound| bound < seconds)] += 1;
        self.sum = self.sum.saturating_add(value);
    }

    fn write(&self, name: &str, labels: &str, out: &mut String) {
        let mut below = 0;
        let _ = writeln!(out, "# TYPE {name} histogram");
        let bounds = self.bounds.iter().map(ToString::to_string).chain(["+Inf".to_owned()]);
        for (bound, count) in bounds.zip(&self.counts) {
            below += count;
            let _ = writeln!(out, "{name}_bucket{{{labels},le=\"{bound}\"}} {below}");
        }
        let _ = writeln!(out, "{name}_count{{{labels}}} {below}\n{name}_sum{{{labels}}} {}", self.sum.as_secs_f64());
    }
}

impl ServiceMetrics {
    /// No requests yet; `model` is the label of all metrics.
    pub fn new(model: String) -> Self {
        Self {
            model,
            requests: 0,
            completed: 0,
            capped: 0,
            cancelled: 0,
            refused: 0,
            prompt_tokens: 0,
            generated_tokens: 0,
            ttft: BucketCounts::new(TTFT_S),
            itl: BucketCounts::new(ITL_S),
            e2e: BucketCounts::new(E2E_S),
        }
    }

    pub fn arrived(&mut self) {
        self.requests += 1;
    }

    pub fn first_token(&mut self, ttft: Micros) {
        self.generated_tokens += 1;
        self.ttft.add(ttft);
    }

    pub fn token(&mut self, gap: Micros) {
        self.generated_tokens += 1;
        self.itl.add(gap);
    }

    pub fn completed(&mut self, outcome: &Outcome) {
        match outcome.status {
            Status::LengthCapped => self.capped += 1,
            _ => self.completed += 1,
        }
        self.prompt_tokens += u64::from(outcome.input_tokens);
        self.e2e.add(outcome.e2e.unwrap_or_default());
    }

    pub fn cancelled(&mut self) {
        self.cancelled += 1;
    }

    pub fn refused(&mut self) {
        self.refused += 1;
    }

    /// Requests that arrived, and of these those that completed, were refused and were cancelled by their clients.
    pub fn counts(&self) -> [u64; 4] {
        [self.requests, self.completed + self.capped, self.refused, self.cancelled]
    }

    /// The page of `/metrics` while the instances have these loads.
    pub fn page(&self, loads: &[InstanceLoad]) -> String {
        let mut out = String::new();
        let model = self.model.replace('\\', "\\\\").replace('"', "\\\"");
        let by_instance = |out: &mut String, name: &str, kind: &str, value: fn(&InstanceLoad) -> f64| {
            let _ = writeln!(out, "# TYPE {name} {kind}");
            for (index, load) in loads.iter().enumerate() {
                let _ = writeln!(out, "{name}{{engine=\"{index}\",model_name=\"{model}\"}} {}", value(load));
            }
        };
        by_instance(&mut out, "vllm:num_requests_running", "gauge", |load| f64::from(load.batch_size));
        by_instance(&mut out, "vllm:num_requests_waiting", "gauge", |load| f64::from(load.queue_depth));
        let used = |load: &InstanceLoad| f64::from(load.used_kv_blocks) / f64::from(load.total_kv_blocks.max(1));
        by_instance(&mut out, "vllm:kv_cache_usage_perc", "gauge", used);
        by_instance(&mut out, "vllm:gpu_cache_usage_perc", "gauge", used);
        by_instance(&mut out, "vllm:num_preemptions_total", "counter", |load| load.preemptions as f64);
        let queries = |load: &InstanceLoad| load.prefix_cache.queries as f64;
        by_instance(&mut out, "vllm:prefix_cache_queries_total", "counter", queries);
        let hits = |load: &InstanceLoad| load.prefix_cache.hits as f64;
        by_instance(&mut out, "vllm:prefix_cache_hits_total", "counter", hits);
        let labels = format!("model_name=\"{model}\"");
        let mut total = |name: &str, labels: &str, value: u64| {
            let _ = writeln!(out, "# TYPE {name} counter\n{name}{{{labels}}} {value}");
        };
        total("vllm:prompt_tokens_total", &labels, self.prompt_tokens);
        total("vllm:generation_tokens_total", &labels, self.generated_tokens);
        let _ = writeln!(out, "# TYPE vllm:request_success_total counter");
        let reasons = [("length", self.completed), ("stop", self.capped), ("abort", self.cancelled)];
        for (reason, value) in reasons {
            let _ = writeln!(out, "vllm:request_success_total{{{labels},finished_reason=\"{reason}\"}} {value}");
        }
        self.ttft.write("vllm:time_to_first_token_seconds", &labels, &mut out);
        self.itl.write("vllm:inter_token_latency_seconds", &labels, &mut out);
        self.e2e.write("vllm:e2e_request_latency_seconds", &labels, &mut out);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative_and_include_their_bound() {
        let mut histogram = BucketCounts::new(&[0.5, 1.0]);
        for micros in [500_000, 500_001, 9_000_000] {
            histogram.add(Micros(micros));
        }
        let mut page = String::new();
        histogram.write("x", "m=\"a\"", &mut page);
        assert_eq!(
            page,
            "# TYPE x histogram\nx_bucket{m=\"a\",le=\"0.5\"} 1\nx_bucket{m=\"a\",le=\"1\"} 2\n\
             x_bucket{m=\"a\",le=\"+Inf\"} 3\nx_count{m=\"a\"} 3\nx_sum{m=\"a\"} 10.000001\n"
        );
    }

    #[test]
    fn every_instance_has_its_gauges() {
        let mut load =
            InstanceLoad { queue_depth: 3, used_kv_blocks: 1, total_kv_blocks: 4, ..InstanceLoad::default() };
        load.prefix_cache.admit(1024, 1008, false);
        load.prefix_cache.admit(1100, 1088, true);
        let page = ServiceMetrics::new("a\"b".to_owned()).page(&[InstanceLoad::default(), load]);
        assert!(page.contains("vllm:num_requests_waiting{engine=\"1\",model_name=\"a\\\"b\"} 3\n"), "{page}");
        assert!(page.contains("vllm:kv_cache_usage_perc{engine=\"1\",model_name=\"a\\\"b\"} 0.25\n"), "{page}");
        assert!(page.contains("vllm:prefix_cache_queries_total{engine=\"1\",model_name=\"a\\\"b\"} 1024\n"), "{page}");
        assert!(page.contains("vllm:prefix_cache_hits_total{engine=\"1\",model_name=\"a\\\"b\"} 1008\n"), "{page}");
    }
}
