//! What a run cost: GPU-hours, and dollars with a price list.

use blis_sim::metrics::Report;
use blis_sim::replica::ReplicaReport;
use serde::Serialize;

/// What the run cost.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ServiceCost<P: Serialize> {
    /// Time in which GPUs were held, summed over GPUs.
    gpu_hours: f64,
    /// Time of all nodes; absent unless node pools have prices.
    #[serde(skip_serializing_if = "Option::is_none")]
    node_hours: Option<f64>,
    /// Prices of the GPUs, from the file; empty if node pools have prices.
    prices: P,
    /// Dollars for the node-hours if node pools have prices, else for the GPU-hours. Unit: $.
    usd: f64,
    /// Dollars for a million output tokens of completed requests; `null` without any. Unit: $.
    usd_per_million_output_tokens: Option<f64>,
    /// Completed requests within their SLO per GPU-hour; `null` without SLO targets. Unit: requests/GPU-hour.
    goodput_per_gpu_hour: Option<f64>,
    /// Completed requests within their SLO per dollar; `null` without SLO targets. Unit: requests/$.
    goodput_per_usd: Option<f64>,
}

impl<P: Serialize> ServiceCost<P> {
    /// The cost of `report`, at these `prices`; `None` without a price in the report.
    pub fn new(report: &Report, prices: P) -> Option<Self> {
        let (gpu_hours, usd) = (report.gpu_hours()?, report.dollars()?);
        let tokens = report.cluster.counts.output_tokens as f64;
        let good = report.goodput.as_ref().map(|goodput| goodput.goodput_rps * report.cluster.duration.as_secs_f64());
        let good_per = |cost: f64| good.filter(|_| cost > 0.0).map(|good| good / cost);
        Some(Self {
            gpu_hours,
            node_hours: report.replicas.as_ref().and_then(ReplicaReport::priced_node_hours),
            prices,
            usd,
            usd_per_million_output_tokens: (tokens > 0.0).then(|| 1e6 * usd / tokens),
            goodput_per_gpu_hour: good_per(gpu_hours),
            goodput_per_usd: good_per(usd),
        })
    }

    /// The text of the line in the summary.
    #[must_use]
    pub fn line(&self) -> String {
        let Self { gpu_hours, usd, .. } = self;
        let mut text = match self.node_hours {
            Some(hours) => format!("${usd:.2} for {hours:.3} node-hours ({gpu_hours:.3} GPU-hours held)"),
            None => format!("${usd:.2} for {gpu_hours:.3} GPU-hours"),
        };
        if let Some(tokens) = self.usd_per_million_output_tokens {
            text.push_str(&format!(", ${tokens:.2} per 1M output tokens"));
        }
        if let Some(good) = self.goodput_per_gpu_hour {
            text.push_str(&format!(", {good:.0} requests within their SLO per GPU-hour"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blis_sim::metrics::{Aggregate, Counts, Goodput, InstanceCost};
    use blis_sim::replica::{GroupReport, PoolReport};
    use blis_sim::units::Micros;

    const HOUR: Micros = Micros(3_600_000_000);

    fn report() -> Report {
        let counts = Counts { output_tokens: 2_000_000, ..Counts::default() };
        let cluster = Aggregate { duration: HOUR, counts, ..Aggregate::default() };
        Report {
            instances: vec![cluster; 3],
            cluster,
            cost: InstanceCost { gpus: 2, gpu_price: Some(2.5) },
            goodput: Some(Goodput { goodput_rps: 0.5, ..Goodput::default() }),
            ..Report::default()
        }
    }

    #[test]
    fn instances_are_held_all_the_time_and_replicas_for_theirs() {
        let fixed = ServiceCost::new(&report(), "a list").expect("a price");
        assert_eq!((fixed.gpu_hours, fixed.usd, fixed.usd_per_million_output_tokens), (6.0, 15.0, Some(7.5)));
        assert_eq!((fixed.goodput_per_gpu_hour, fixed.goodput_per_usd), (Some(300.0), Some(120.0)));
        assert_eq!(
            fixed.line(),
            "$15.00 for 6.000 GPU-hours, $7.50 per 1M output tokens, 300 requests within their SLO per GPU-hour"
        );
        let time_in = [HOUR, HOUR, Micros::ZERO, HOUR, Micros::ZERO];
        let group = GroupReport { time_in, gpus: 2, gpu_price: Some(2.5), ..GroupReport::default() };
        let replicas = ReplicaReport { groups: vec![group], ..ReplicaReport::default() };
        let elastic = ServiceCost::new(&Report { replicas: Some(replicas), ..report() }, "a list").expect("a price");
        assert_eq!((elastic.gpu_hours, elastic.usd), (4.0, 10.0), "loading and active");
        let pool = PoolReport { node_time: HOUR, node_price: Some(30.0), ..PoolReport::default() };
        let replicas = ReplicaReport { groups: vec![group], pools: vec![pool; 2], ..ReplicaReport::default() };
        let nodes = ServiceCost::new(&Report { replicas: Some(replicas), ..report() }, ()).expect("a price");
        assert!(
            nodes.line().starts_with("$60.00 for 2.000 node-hours (4.000 GPU-hours held), $30.00 per"),
            "{nodes:?}"
        );
    }

    #[test]
    fn without_a_price_there_is_no_cost() {
        let free = Report { cost: InstanceCost { gpus: 2, gpu_price: None }, ..report() };
        assert_eq!(ServiceCost::new(&free, ()), None);
        let empty = Report { cost: report().cost, ..Report::default() };
        let nothing = ServiceCost::new(&empty, ()).expect("a price");
        assert_eq!((nothing.usd, nothing.usd_per_million_output_tokens, nothing.goodput_per_usd), (0.0, None, None));
    }
}
