use blis_sim::ids::RequestId;
use blis_sim::outcome::{DropReason, Outcome, PrefixCacheCounters};
use blis_sim::request::Request;
use proptest::prelude::*;

use super::*;

const FRONT: ServiceFront = ServiceFront { instances: 2, gateway_after: Some(Micros(5)) };

fn request(id: u32, arrival: u64) -> Request {
    Request::new(RequestId(id), Micros(arrival), 10, 20)
}

fn outcome(id: u32, (arrival, ended): (u64, u64), status: Status, instance: Option<u32>) -> Outcome {
    let outcome = Outcome::new(&request(id, arrival), status).ended_at(Micros(ended));
    Outcome { instance: instance.map(InstanceIndex), generated_tokens: 20, ..outcome }
}

fn load(queue_depth: u32, batch_size: u32, used_kv_blocks: u32, cache: (u64, u64)) -> InstanceLoad {
    let (hits, misses) = cache;
    InstanceLoad {
        queue_depth,
        batch_size,
        used_kv_blocks,
        total_kv_blocks: 50,
        preemptions: 0,
        prefix_cache: PrefixCacheCounters::of_blocks(hits, misses),
    }
}

fn csv(log: TimeSeriesLog) -> Vec<String> {
    let mut out = Vec::new();
    log.finish().expect("few moments").write_csv(&mut out).expect("memory");
    String::from_utf8(out).expect("text").lines().skip(1).map(str::to_owned).collect()
}

#[test]
fn rows_are_states_at_moments_and_counts_between_them() {
    let mut log = TimeSeriesLog::every(Micros(100), FRONT);
    let samples = [
        (0, 0, load(0, 0, 0, (0, 0))),
        (1, 0, load(0, 0, 0, (0, 0))),
        (0, 100, load(1, 2, 25, (3, 1))),
        (0, 200, load(0, 1, 5, (3, 5))),
    ];
    for (instance, at, load) in samples {
        log.record(&SimEvent::Load { instance: InstanceIndex(instance), at: Micros(at), load: &load });
    }
    for (id, at) in [(0, 0), (1, 99), (2, 100)] {
        log.record(&SimEvent::Arrival(&request(id, at)));
    }
    log.record(&SimEvent::Dispatched { request: &request(0, 0), waited: Micros(120) });
    log.record(&SimEvent::Outcome(&outcome(0, (0, 199), Status::Completed, Some(0))));
    log.record(&SimEvent::Outcome(&outcome(1, (99, 210), Status::TimedOut, None)));
    log.record(&SimEvent::Outcome(&outcome(2, (100, 100), Status::Dropped(DropReason::KvTooSmall), Some(1))));
    assert_parquet_is_csv(&log.clone().finish().expect("few moments"));
    let expected = "\
        0,cluster,0,0,0,,,0,0,0,0,0,0,0,2,0\n0,instance_0,0,0,0,,0,,,,,,,,,\n0,instance_1,0,0,0,,0,,,,,,,,,\n\
        100,cluster,1,2,0.25,,,2,0,0,0,0,1,0,2,0\n100,instance_0,1,2,0.5,0.75,0,,,,,,,,,\n100,instance_1,0,0,0,,0,,,,,,,,,\n\
        200,cluster,0,1,0.05,,,1,1,1,0,20,1,0,2,0\n200,instance_0,0,1,0.1,0,0,,,,,,,,,\n200,instance_1,0,0,0,,0,,,,,,,,,\n\
        300,cluster,0,1,0.05,,,0,0,0,1,0,0,0,2,0\n300,instance_0,0,1,0.1,,0,,,,,,,,,\n300,instance_1,0,0,0,,0,,,,,,,,,";
    assert_eq!(csv(log), expected.lines().map(str::trim_start).collect::<Vec<_>>());
}

/// A Parquet file has the cells of the CSV file: numbers as numbers, empty ones as null.
fn assert_parquet_is_csv(series: &TimeSeries) {
    let (mut csv, mut parquet) = (Vec::new(), Vec::new());
    series.write_csv(&mut csv).expect("memory");
    series.write_parquet(&mut parquet).expect("memory");
    let csv = String::from_utf8(csv).expect("text");
    let csv: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(crate::parquet::tests::rows(&parquet), csv);
}

#[test]
fn replicas_are_counted_by_their_states() {
    let mut log = TimeSeriesLog::every(Micros(10), ServiceFront { instances: 1, gateway_after: None });
    let event = |at, replica, instance: Option<u32>, state| ReplicaEvent {
        at: Micros(at),
        replica,
        group: 0,
        instance: instance.map(InstanceIndex),
        state,
    };
    let changes = [
        event(5, 1, None, Some(ReplicaState::Scheduling)),
        event(15, 1, None, Some(ReplicaState::Loading)),
        event(25, 1, Some(1), Some(ReplicaState::Active)),
        event(26, 0, Some(0), Some(ReplicaState::Draining)),
        event(36, 0, Some(0), None),
    ];
    let sample = |log: &mut TimeSeriesLog, instance, at| {
        let event = SimEvent::Load { instance: InstanceIndex(instance), at: Micros(at), load: &load(0, 0, 0, (0, 0)) };
        log.record(&event);
    };
    sample(&mut log, 0, 0);
    changes.iter().for_each(|change| log.record(&SimEvent::Replica(change)));
    sample(&mut log, 1, 0);
    assert_parquet_is_csv(&log.clone().finish().expect("few moments"));
    let rows = csv(log);
    let states: Vec<_> = rows.iter().filter(|row| row.contains("cluster")).map(|row| &row[row.len() - 5..]).collect();
    assert_eq!(states, ["0,1,0", "1,1,0", "1,1,0", "0,1,1", "0,1,0"]);
    let of = |name: &str| rows.iter().filter(|row| row.contains(name)).count();
    assert_eq!((of("instance_0"), of("instance_1")), (4, 2), "an instance has rows while it is there");
}

#[test]
fn a_series_that_is_too_long_is_refused() {
    let mut log = TimeSeriesLog::every(Micros(1), FRONT);
    log.record(&SimEvent::Arrival(&request(0, MOST_MOMENTS)));
    let error = log.finish().expect_err("too many moments").to_string();
    assert!(error.starts_with("a moment every 0.000001 s is more than a timeline can have"), "{error}");
}

proptest! {
    /// However the interval grows, and in whatever order instances report, counts are kept and rows are few.
    #[test]
    fn growing_intervals_lose_nothing(times in proptest::collection::vec(0u64..50_000_000, 1..200), most in 2u64..50) {
        let mut log = TimeSeriesLog::at_most(most, FRONT);
        for (id, &at) in (0..).zip(&times) {
            log.record(&SimEvent::Arrival(&request(id, at)));
        }
        let series = log.finish().expect("it grows");
        assert_parquet_is_csv(&series);
        let rows: Vec<_> = series.cluster().collect();
        prop_assert!(rows.len() as u64 <= most + 1, "{} rows", rows.len());
        prop_assert_eq!(rows.iter().map(|row| row.since.arrivals as usize).sum::<usize>(), times.len());
        for pair in rows.windows(2) {
            let between = times.iter().filter(|&&at| pair[0].at.0 <= at && at < pair[1].at.0).count();
            prop_assert_eq!(pair[1].since.arrivals as usize, between);
        }
    }
}
