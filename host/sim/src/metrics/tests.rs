use super::*;
use crate::ids::RequestId;
use crate::outcome::{DropReason, PrefixCacheCounters};
use crate::request::{Request, Tags};
use proptest::prelude::*;

const GOLD: Name = Name(1);
const BATCH: Name = Name(2);
const DEFAULT: Name = Name(3);

const EVERY: [Status; 13] = [
    Status::Completed,
    Status::LengthCapped,
    Status::TimedOut,
    Status::Dropped(DropReason::PromptTooLong),
    Status::Dropped(DropReason::BudgetTooLong),
    Status::Dropped(DropReason::KvTooSmall),
    Status::Queued,
    Status::Running,
    Status::Arriving,
    Status::Rejected(Rejection::Admission),
    Status::Rejected(Rejection::Routing),
    Status::Rejected(Rejection::NoReplica),
    Status::Rejected(Rejection::Server),
];

fn one_instance() -> Metrics {
    Metrics::new(MetricsOptions::default())
}

fn report_of(metrics: &mut Metrics) -> Report {
    metrics.report(&vec![Counters::default(); metrics.instances.len()], Micros::MAX)
}

fn finished(status: Status) -> Outcome {
    let request = Request::new(RequestId(0), Micros(5), 100, 10);
    let instance = (!matches!(status, Status::Rejected(_) | Status::Arriving)).then_some(InstanceIndex(0));
    Outcome { generated_tokens: 7, instance, ..Outcome::new(&request, status) }
}

/// A request that completed with these latencies in ms, with 2 inter-token latencies of `itl`.
fn completed(slo_class: Name, [ttft, itl, e2e]: [u64; 3]) -> Outcome {
    Outcome {
        ttft: Some(Micros(ttft * 1_000)),
        e2e: Some(Micros(e2e * 1_000)),
        itl_sum: Micros(2_000 * itl),
        itl_count: 2,
        itl_mean_us: 1e3 * itl as f64,
        tags: Tags { slo_class, ..Tags::default() },
        ..finished(Status::Completed)
    }
}

fn targets([ttft, itl, e2e]: [u64; 3]) -> SloTargets {
    let target = |ms| Some(Micros(ms * 1_000));
    SloTargets { ttft: target(ttft), itl: target(itl), e2e: target(e2e) }
}

#[test]
fn every_status_has_its_count() {
    let mut metrics = one_instance();
    EVERY.iter().for_each(|&status| metrics.add(&finished(status)));
    let report = report_of(&mut metrics);
    let counts = report.cluster.counts;
    assert_eq!((counts.completed, counts.length_capped, counts.timed_out, counts.dropped()), (2, 1, 1, 3));
    assert_eq!((counts.queued, counts.running, counts.arriving), (1, 1, 1));
    assert_eq!((counts.rejected_by_admission, counts.rejected_by_routing, counts.rejected_by_server), (1, 1, 1));
    assert_eq!((counts.rejected_no_replica, counts.rejected()), (1, 4));
    assert_eq!(counts.injected(), 8, "neither rejected nor still arriving");
    assert_eq!(report.instances[0].counts.arrived(), 8, "what reached it");
    assert_eq!((counts.arrived(), report.arrived, report.conserved()), (13, 13, true));
    assert_eq!(counts.output_tokens, 14, "completed requests only");
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "3 requests arrived")]
fn a_lost_request_is_a_bug() {
    let mut metrics = one_instance();
    metrics.add(&finished(Status::Completed));
    metrics.add(&finished(Status::Rejected(Rejection::Admission)));
    metrics.offered(3);
    let _ = report_of(&mut metrics);
}

#[test]
fn rates_of_an_empty_simulation_are_zero() {
    let nothing = report_of(&mut one_instance()).cluster;
    assert_eq!((nothing.responses_per_second(), nothing.tokens_per_second(), nothing.cache_hit_rate), (0., 0., 0.));
    let counters = [Counters {
        clock: Micros(4_000_000),
        prefix_cache: PrefixCacheCounters::of_blocks(1, 3),
        queue_time: Micros(6_000_000),
        ..Counters::default()
    }];
    let mut metrics = one_instance();
    metrics.add(&finished(Status::Completed));
    let all = metrics.report(&counters, Micros::MAX).cluster;
    assert_eq!((all.responses_per_second(), all.tokens_per_second(), all.cache_hit_rate), (0.25, 1.75, 0.25));
    assert_eq!(all.mean_queue_length, 1.5);
    assert_eq!(metrics.report(&counters, Micros(1_000_000)).cluster.duration, Micros(1_000_000));
}

#[test]
fn a_first_token_counts_although_the_request_timed_out() {
    let mut metrics = one_instance();
    metrics.add(&Outcome { ttft: Some(Micros(9_000)), ..finished(Status::TimedOut) });
    let all = report_of(&mut metrics).cluster;
    assert_eq!((all.ttft.count, all.ttft.mean_ms, all.e2e.count), (1, 9.0, 0));
}

#[test]
#[should_panic(expected = "never reported")]
fn retracting_what_was_not_reported_is_a_bug() {
    one_instance().record(&SimEvent::InterTokenLatencyRetracted {
        instance: InstanceIndex(0),
        gap: Micros(3),
        count: 1,
    });
}

#[test]
fn observers_combine() {
    let mut both = (one_instance(), Some(one_instance()));
    both.record(&SimEvent::InterTokenLatency { instance: InstanceIndex(0), gap: Micros(5), count: 2 });
    both.record(&SimEvent::InterTokenLatencyRetracted { instance: InstanceIndex(0), gap: Micros(5), count: 1 });
    both.record(&SimEvent::Outcome(&finished(Status::Completed)));
    let first = report_of(&mut both.0);
    assert_eq!(first.cluster.itl.count, 1);
    assert_eq!(both.1.map(|mut other| report_of(&mut other)), Some(first));
}

#[test]
fn instances_keep_their_own_and_the_cluster_has_all() {
    let mut metrics = Metrics::new(MetricsOptions { instances: 3, ..MetricsOptions::default() });
    for (instance, ttft) in [(0, 10), (2, 30), (2, 50)] {
        let instance = InstanceIndex(instance);
        metrics.add(&Outcome { instance: Some(instance), ..completed(Name::NONE, [ttft, 7, 100]) });
        metrics.itl.add(instance, Micros(7_000), 2);
    }
    metrics.add(&finished(Status::Rejected(Rejection::Routing)));
    let counters = |clock, hits, misses| Counters {
        clock: Micros(clock),
        prefix_cache: PrefixCacheCounters::of_blocks(hits, misses),
        steps: 2,
        queue_time: Micros(clock),
        ..Counters::default()
    };
    let report = metrics.report(&[counters(1_000, 1, 1), counters(0, 0, 0), counters(4_000, 9, 1)], Micros(3_000));
    assert_eq!(report.instances.iter().map(|instance| instance.ttft.mean_ms).collect::<Vec<_>>(), [10.0, 0.0, 40.0]);
    assert_eq!(report.instances.iter().map(|instance| instance.itl.count).collect::<Vec<_>>(), [2, 0, 4]);
    let all = report.cluster;
    assert_eq!((all.ttft.mean_ms, all.ttft.p50_ms, all.itl.count), (30.0, 30.0, 6));
    assert_eq!((all.counts.completed, all.counts.rejected_by_routing, all.counters.steps), (3, 1, 6));
    assert_eq!((all.duration, all.counters.clock), (Micros(3_000), Micros(4_000)));
    assert!((all.cache_hit_rate - (0.5 + 0.0 + 0.9) / 3.0).abs() < 1e-15, "mean over instances");
    assert_eq!(report.instances[0].mean_queue_length, 1.0 / 3.0, "over the duration of the cluster");
}

#[test]
fn good_requests_meet_every_target() {
    let options = MetricsOptions {
        targets: vec![
            (GOLD, targets([20, 8, 500])),
            (BATCH, SloTargets { e2e: Some(Micros(900_000)), itl: Some(Micros::ZERO), ..SloTargets::default() }),
            (Name(9), targets([1, 1, 1])),
        ],
        ..MetricsOptions::default()
    };
    let mut metrics = Metrics::new(options);
    metrics.add(&completed(GOLD, [20, 8, 500]));
    metrics.add(&completed(GOLD, [21, 8, 500]));
    metrics.add(&Outcome { itl_count: 0, itl_mean_us: 0.0, ..completed(GOLD, [1, 0, 1]) });
    let tags = Tags { slo_class: GOLD, ..Tags::default() };
    metrics.add(&Outcome { ttft: Some(Micros(1)), tags, ..finished(Status::TimedOut) });
    metrics.add(&Outcome { tags, ..finished(Status::Rejected(Rejection::Admission)) });
    metrics.add(&completed(BATCH, [999, 999, 900]));
    metrics.add(&completed(Name::NONE, [1, 1, 1]));
    let counters = [Counters { clock: Micros(4_000_000), ..Counters::default() }];
    let report = metrics.report(&counters, Micros::MAX);
    assert_eq!(report.classes, [], "not enabled");
    let goodput = report.goodput.expect("targets");
    assert_eq!((goodput.goodput_rps, goodput.slo_attainment), (0.5, 2.0 / 6.0));
    let [(GOLD, gold), (BATCH, batch)] = goodput.per_class[..] else { panic!("{goodput:?}") };
    assert_eq!((gold.count, gold.good, gold.slo_attainment, gold.goodput_rps), (5, 1, 0.2, 0.25));
    let of_completed = [gold.ttft_attainment, gold.itl_attainment, gold.e2e_attainment];
    assert_eq!(of_completed, [2.0 / 3.0, 2.0 / 3.0, 1.0].map(Some), "a single token has no ITL and misses its target");
    assert_eq!((batch.good, batch.itl_attainment, batch.e2e_attainment), (1, None, Some(1.0)));
}

#[test]
fn without_targets_there_is_no_goodput() {
    let goodput = |targets| {
        let mut metrics = Metrics::new(MetricsOptions { targets, ..MetricsOptions::default() });
        metrics.add(&completed(GOLD, [1, 1, 1]));
        report_of(&mut metrics).goodput
    };
    assert_eq!(goodput(vec![]), None);
    assert_eq!(goodput(vec![(BATCH, targets([1, 1, 1]))]), None, "no request has that class");
    assert_eq!(goodput(vec![(GOLD, targets([0, 0, 0]))]), None, "0 is no target");
    let kept = goodput(vec![(GOLD, targets([0, 0, 0])), (GOLD, targets([1, 0, 0]))]).expect("the last one counts");
    assert_eq!((kept.slo_attainment, kept.goodput_rps), (1.0, 0.0));
}

#[test]
fn the_default_class_has_one_name() {
    let options = MetricsOptions {
        default_class: Some(DEFAULT),
        per_class: true,
        targets: vec![(DEFAULT, targets([5, 5, 5]))],
        ..MetricsOptions::default()
    };
    let mut metrics = Metrics::new(options);
    metrics.add(&completed(DEFAULT, [1, 1, 1]));
    metrics.add(&completed(Name::NONE, [9, 9, 9]));
    let plain = report_of(&mut metrics);
    assert_eq!(plain.classes, [], "a single class is not listed");
    assert_eq!(plain.goodput.map(|goodput| goodput.slo_attainment), Some(0.5));
    metrics.add(&completed(GOLD, [1, 1, 1]));
    let classes = report_of(&mut metrics).classes;
    let counts: Vec<_> = classes.iter().map(|(name, class)| (*name, class.counts.completed)).collect();
    assert_eq!(counts, [(Name::NONE, 2), (GOLD, 1)]);
}

#[test]
fn tenants_and_rejections_are_listed_by_name() {
    let mut metrics = Metrics::new(MetricsOptions { per_tenant: true, ..MetricsOptions::default() });
    for (tenant, slo_class, status) in [
        (Name(7), GOLD, Status::Completed),
        (Name(7), BATCH, Status::Rejected(Rejection::Admission)),
        (Name(8), BATCH, Status::Rejected(Rejection::Admission)),
        (Name::NONE, Name::NONE, Status::Completed),
    ] {
        let tags = Tags { tenant, slo_class, ..Tags::default() };
        metrics.add(&Outcome { tags, ..finished(status) });
    }
    let report = report_of(&mut metrics);
    let tenants = report.tenants.iter().map(|(name, tenant)| (*name, tenant.counts.output_tokens));
    assert_eq!(
        tenants.collect::<Vec<_>>(),
        [(Name(7), 7), (Name(8), 0)],
        "a tenant of rejected requests is listed, too"
    );
    assert_eq!(report.jain_index, Some(0.5));
    assert_eq!(report.anomalies.shed, [(BATCH, 2)]);
    assert_eq!(report.anomalies.priority_inversions, None, "not enabled");
}

#[test]
fn requests_overtake_on_their_own_instance_only() {
    let classes = Classes::new(["", "gold", "batch"], &[("gold".to_owned(), 9)]);
    let options = MetricsOptions { instances: 2, inversions: true, classes, ..MetricsOptions::default() };
    let mut metrics = Metrics::new(options);
    for (instance, slo_class, arrival, delay) in
        [(0, GOLD, 0, 90), (0, BATCH, 1, 1), (0, GOLD, 2, 100), (1, BATCH, 1, 1), (1, BATCH, 0, 50), (1, GOLD, 2, 1)]
    {
        metrics.add(&Outcome {
            arrival: Micros(arrival),
            scheduling_delay: Some(Micros(delay)),
            instance: Some(InstanceIndex(instance)),
            tags: Tags { slo_class, ..Tags::default() },
            ..finished(Status::Completed)
        });
    }
    assert_eq!(report_of(&mut metrics).anomalies.priority_inversions, Some(2));
}

fn outcomes() -> impl Strategy<Value = Vec<Outcome>> {
    let outcome =
        (0..EVERY.len(), 0..4u32, 0..4u32, 0..3u32, 0..1u64 << 34).prop_map(|(status, instance, class, tenant, us)| {
            let status = EVERY[status];
            let plain = finished(status);
            let tags = Tags { slo_class: Name(class), tenant: Name(tenant), ..Tags::default() };
            let ttft = plain.completed().then_some(Micros(us));
            Outcome { instance: plain.instance.map(|_| InstanceIndex(instance)), tags, ttft, ..plain }
        });
    prop::collection::vec(outcome, 0..60)
}

proptest! {
    /// Without the latencies of instances, those of the cluster are the same, and so are all counts.
    #[test]
    fn latencies_of_instances_are_optional(outcomes in outcomes(), instances in prop_oneof![Just(1u32), Just(4), Just(12)]) {
        let options = MetricsOptions { instances, inversions: true, ..MetricsOptions::default() };
        let mut full = Metrics::new(options.clone());
        let mut brief = Metrics::new(MetricsOptions { instance_latencies: false, ..options });
        for (count, outcome) in (1u64..).zip(&outcomes) {
            let instance = outcome.instance.map(|instance| InstanceIndex(instance.0 % instances));
            let outcome = Outcome { instance, ..*outcome };
            let (instance, gap) = (instance.unwrap_or_default(), Micros(count % 7));
            let gap = SimEvent::InterTokenLatency { instance, gap, count };
            for metrics in [&mut full, &mut brief] {
                metrics.record(&SimEvent::Outcome(&outcome));
                metrics.record(&gap);
            }
        }
        let counters = vec![Counters::default(); instances as usize];
        let (full, brief) = (full.report(&counters, Micros::MAX), brief.report(&counters, Micros::MAX));
        let figures = |report: &Report| (report.cluster.ttft, report.cluster.e2e, report.cluster.itl, report.cluster.counts);
        prop_assert_eq!(figures(&full), figures(&brief));
        prop_assert_eq!(&full.anomalies, &brief.anomalies);
        let counts = |report: &Report| report.instances.iter().map(|one| one.counts).collect::<Vec<_>>();
        prop_assert_eq!(counts(&full), counts(&brief));
    }

    #[test]
    fn every_request_is_counted_once_in_every_division(outcomes in outcomes()) {
        let options = MetricsOptions { per_class: true, per_tenant: true, inversions: true, ..MetricsOptions::default() };
        let mut apart = Metrics::new(MetricsOptions { instances: 4, ..options.clone() });
        let mut together = Metrics::new(options);
        for outcome in &outcomes {
            apart.add(outcome);
            together.add(&Outcome { instance: outcome.instance.map(|_| InstanceIndex(0)), ..*outcome });
        }
        apart.offered(outcomes.len() as u64);
        let (apart, together) = (report_of(&mut apart), report_of(&mut together));
        prop_assert!(apart.conserved());
        prop_assert_eq!(apart.cluster, together.cluster, "as if there were one instance");
        prop_assert_eq!(&apart.classes, &together.classes);
        prop_assert_eq!(&apart.tenants, &together.tenants);
        let sum = |counts: &mut dyn Iterator<Item = Counts>| {
            let mut sum = Counts::default();
            counts.for_each(|other| sum.add(&other));
            sum
        };
        if !apart.classes.is_empty() {
            prop_assert_eq!(sum(&mut apart.classes.iter().map(|(_, class)| class.counts)), apart.cluster.counts);
        }
        let reached = sum(&mut apart.instances.iter().map(|instance| instance.counts));
        let none = outcomes.iter().filter(|outcome| outcome.instance.is_none()).count() as u64;
        prop_assert_eq!(reached.arrived() + none, outcomes.len() as u64);
        let shed: u64 = apart.anomalies.shed.iter().map(|(_, count)| count).sum();
        prop_assert_eq!(shed, apart.cluster.counts.rejected_by_admission);
    }
}
