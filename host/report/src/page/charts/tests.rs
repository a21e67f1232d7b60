use blis_sim::ids::{InstanceIndex, RequestId};
use blis_sim::instance::InstanceLoad;
use blis_sim::observer::{Observer as _, SimEvent};
use blis_sim::outcome::Outcome;
use blis_sim::request::{Request, Tags};
use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::time_series::{ServiceFront, TimeSeriesLog};

/// A request: its arrival, and the times from there to the batch, the first token and the end, µs; its tenant.
type Draft = (u64, (u64, u64, u64), usize);

/// The charts of requests that completed, on `instances` instances.
fn charts_of(drafts: &[Draft], instances: u32) -> Value {
    let mut names = Names::default();
    let tenants: Vec<Name> = (0..20).map(|tenant| names.intern(&format!("t{tenant}"))).collect();
    let mut series = TimeSeriesLog::every(Micros(1_000), ServiceFront { instances, gateway_after: None });
    let mut log = RequestLog::new();
    for instance in (0..instances).map(InstanceIndex) {
        let event = SimEvent::Load { instance, at: Micros::ZERO, load: &InstanceLoad::default() };
        series.record(&event);
    }
    for (id, &(arrival, (queue, prefill, decode), tenant)) in (0..).zip(drafts) {
        let tags = Tags { tenant: tenants[tenant], ..Tags::default() };
        let request = Request { tags, ..Request::new(RequestId(id), Micros(arrival), 10, 5) };
        series.record(&SimEvent::Arrival(&request));
        let outcome = Outcome {
            instance: Some(InstanceIndex(id % instances)),
            scheduling_delay: Some(Micros(queue)),
            ttft: Some(Micros(queue + prefill)),
            e2e: Some(Micros(queue + prefill + decode)),
            itl_mean_us: decode as f64 / 4.0,
            generated_tokens: 5,
            ..Outcome::new(&request, Status::Completed).ended_at(Micros(arrival + queue + prefill + decode))
        };
        [&mut series as &mut dyn blis_sim::observer::Observer, &mut log]
            .into_iter()
            .for_each(|observer| observer.record(&SimEvent::Outcome(&outcome)));
    }
    let series = series.finish().expect("few moments");
    serde_json::to_value(RunCharts::new(&series, &log, &names, Micros::ZERO)).expect("JSON")
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().expect("a list").iter().filter_map(Value::as_f64).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn charts_are_bounded_and_add_up(
        drafts in proptest::collection::vec(
            (0u64..20_000_000, (0u64..90_000, 1u64..90_000, 0u64..900_000), 0usize..20),
            1..150,
        ),
        instances in 1u32..40,
    ) {
        let charts = charts_of(&drafts, instances);
        let times = numbers(&charts["time_s"]);
        prop_assert!(times.len() <= POINTS && times.len() * instances as usize <= CELLS + instances as usize);
        prop_assert!(numbers(&charts["rates_s"]).len() <= RATES);
        for line in charts["instances"].as_array().expect("a list") {
            prop_assert_eq!(line["running"].as_array().map(Vec::len), Some(times.len()));
        }
        // Rates times their spans are the requests.
        let rates = numbers(&charts["rates_s"]);
        let span = rates.last().expect("a time") - rates.iter().rev().nth(1).copied().unwrap_or(0.0);
        let arrived: f64 = numbers(&charts["cluster"]["arrivals_per_s"]).iter().map(|rate| rate * span).sum();
        prop_assert!((arrived - drafts.len() as f64).abs() < 0.05 * drafts.len() as f64, "{arrived}");
        let groups = charts["latencies"].as_array().expect("groups");
        prop_assert_eq!(groups[0]["completed"].as_u64(), Some(drafts.len() as u64));
        prop_assert!(groups.len() <= 1 + GROUPS);
        let of_all = numbers(&groups[0]["e2e"]["quantiles"]);
        prop_assert!(of_all.windows(2).all(|pair| pair[0] <= pair[1]) && of_all.len() == quantiles().len());
        let slowest = charts["slowest"].as_array().expect("requests");
        prop_assert_eq!(slowest.len(), drafts.len().min(SLOWEST));
        prop_assert_eq!(slowest[0]["e2e_ms"].as_f64(), of_all.last().copied());
        for one in slowest {
            let stages = one["stages"].as_object().expect("stages").values().filter_map(Value::as_f64).sum::<f64>();
            prop_assert!((stages - one["e2e_ms"].as_f64().expect("ms")).abs() < 1e-6, "{one}");
        }
    }
}

#[test]
fn quantiles_are_those_of_the_report() {
    let sorted = [1_000, 2_000, 3_000, 4_000];
    assert_eq!([0.0, 0.25, 0.5, 1.0].map(|q| quantile_ms(&sorted, q)), [1.0, 1.75, 2.5, 4.0].map(Some));
    assert_eq!(quantile_ms(&[], 0.5), None);
}

proptest! {
    #[test]
    fn a_quantile_of_unsorted_values_is_that_of_sorted_ones(
        values in proptest::collection::vec(0u64..1_000, 0..40), qs in proptest::collection::vec(0.0..=1.0, 1..5),
    ) {
        let mut sorted = values.clone();
        sorted.sort_unstable();
        let mut partly = values;
        for q in qs {
            prop_assert_eq!(quantile_of_ms(&mut partly, q), quantile_ms(&sorted, q));
        }
    }
}
