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

fn quantile_of(sorted: &[u64], q: f64) -> Option<f64> {
    quantile_ms(sorted.len(), |index| sorted[index], q)
}

#[test]
fn quantiles_are_those_of_the_report() {
    let sorted = [1_000, 2_000, 3_000, 4_000];
    assert_eq!([0.0, 0.25, 0.5, 1.0].map(|q| quantile_of(&sorted, q)), [1.0, 1.75, 2.5, 4.0].map(Some));
    assert_eq!(quantile_of(&[], 0.5), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Distributions, percentiles over time and stages are those of the requests of a group, one by one.
    #[test]
    fn figures_of_groups_are_those_of_their_requests(
        drafts in proptest::collection::vec(
            (0u64..20_000, (0u64..9, 1u64..9, 0u64..90), 0usize..20), 1..400,
        ),
    ) {
        let charts = charts_of(&drafts, 2);
        let begins = numbers(&charts["windows_s"]);
        for group in charts["latencies"].as_array().expect("groups") {
            let tenant = group["name"].as_str().and_then(|name| name.strip_prefix('t')?.parse().ok());
            let of: Vec<&Draft> = drafts.iter().filter(|draft| tenant.is_none_or(|tenant: usize| tenant == draft.2)).collect();
            prop_assert_eq!(group["completed"].as_u64(), Some(of.len() as u64));
            let e2e = |draft: &&Draft| draft.1.0 + draft.1.1 + draft.1.2;
            let sorted = |drafts: &mut dyn Iterator<Item = &&Draft>| {
                let mut values: Vec<u64> = drafts.map(e2e).collect();
                values.sort_unstable();
                values
            };
            let all = sorted(&mut of.iter());
            let expected: Vec<f64> = quantiles().iter().filter_map(|&q| quantile_of(&all, q)).collect();
            prop_assert_eq!(numbers(&group["e2e"]["quantiles"]), expected);
            for (index, &begin) in begins.iter().enumerate() {
                let end = begins.get(index + 1).copied().unwrap_or(f64::INFINITY);
                let is_inside = |draft: &&&Draft| (begin..end).contains(&Micros(draft.0).as_secs_f64());
                let p90 = quantile_of(&sorted(&mut of.iter().filter(is_inside)), 0.9);
                prop_assert_eq!(group["e2e"]["p90"][index].as_f64(), p90, "window {}", index);
            }
            let decode = of.iter().map(|draft| draft.1.2 as f64).sum::<f64>() / of.len() as f64 / 1e3;
            prop_assert!((group["stages"]["decode"].as_f64().expect("ms") - decode).abs() < 1e-4);
        }
        let total = |stages: &Value| stages.as_object().expect("stages").values().filter_map(Value::as_f64).sum::<f64>();
        let parts: Vec<f64> = charts["stages"].as_array().expect("parts").iter().map(total).collect();
        prop_assert!(parts.windows(2).all(|pair| pair[0] <= pair[1] + 1e-3), "{:?}", parts);
    }
}
