use blis_sim::ids::RequestId;
use blis_sim::request::Request;

use super::*;
use crate::{TraceError, TraceOptions, Workload, mooncake, trace_v2};
use proptest::collection::vec;
use proptest::prelude::*;

fn trace(times: &[u64], window: TraceWindow, more: &TraceOptions) -> Result<Workload, TraceError> {
    let line = |ms: &u64| {
        format!(
            "{{\"timestamp\": {ms}, \"input_length\": 32, \"output_length\": 1, \"hash_ids\": [1], \"session_id\": \"s\"}}\n"
        )
    };
    let text: String = times.iter().map(line).collect();
    mooncake::read(text.as_bytes(), "t.jsonl", &TraceOptions { window, ..more.clone() })
}

fn ms(times: &[u64], window: TraceWindow) -> Vec<f64> {
    let requests = trace(times, window, &TraceOptions::default()).unwrap().requests;
    requests.map(|request| request.arrival.as_millis_f64()).collect()
}

fn twice() -> NonZeroU32 {
    NonZeroU32::new(2).unwrap()
}

#[test]
fn a_window_starts_at_0() {
    let window = TraceWindow { start: Micros(1_000_000), duration: Some(Micros(2_000_000)), ..TraceWindow::default() };
    assert_eq!(ms(&[5_000, 6_000, 7_500, 7_999, 8_000], window), [0.0, 1_500.0, 1_999.0]);
    let workload = trace(&[0, 1_000], window, &TraceOptions::default()).unwrap();
    assert_eq!(workload.notes, ["1 of 2 requests are in the window"]);
    let window = TraceWindow { start: Micros(9_000_000), ..window };
    let error = trace(&[0, 1_000], window, &TraceOptions::default()).unwrap_err();
    insta::assert_snapshot!(error, @r"
    t.jsonl: no request arrives from 9 s to 11 s; the last one arrives at 1 s
    hint: change `--start` or `--duration`
    ");
    let error = trace(&[0, 1_000], TraceWindow { duration: None, ..window }, &TraceOptions::default()).unwrap_err();
    insta::assert_snapshot!(error, @r"
    t.jsonl: no request arrives from 9 s on; the last one arrives at 1 s
    hint: change `--start` or `--duration`
    ");
}

#[test]
fn the_scale_stretches_times() {
    assert_eq!(ms(&[10, 20, 40], TraceWindow { time_scale: 2.5, ..TraceWindow::default() }), [0.0, 25.0, 75.0]);
    // The horizon counts on the clock of the simulation.
    let options = TraceOptions { horizon: Micros(25_000), ..TraceOptions::default() };
    let workload = trace(&[10, 20, 40], TraceWindow { time_scale: 2.5, ..TraceWindow::default() }, &options).unwrap();
    assert_eq!(workload.count, Some(2));
}

#[test]
fn passes_follow_each_other() {
    let window = TraceWindow { repeat: twice(), ..TraceWindow::default() };
    // One mean inter-arrival time, 15 ms, lies between the last arrival of a pass and the first of the next.
    assert_eq!(ms(&[0, 10, 30], window), [0.0, 10.0, 30.0, 45.0, 55.0, 75.0]);
    let workload = trace(&[0, 10, 30], window, &TraceOptions::default()).unwrap();
    let names = workload.names;
    let all: Vec<Request> = workload.requests.collect();
    assert_eq!(all.iter().map(|r| r.id.0).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    assert_eq!([&all[2], &all[3]].map(|r| names.text(r.tags.session)), ["s", "s#2"]);
    assert_eq!([&all[2], &all[5]].map(|r| r.tags.round_index), [2, 2]);
    assert!(all.iter().all(|r| r.content == all[0].content && r.content.shared_blocks() == 2));
    // The span of a window is its duration.
    let window = TraceWindow { duration: Some(Micros(100_000)), ..window };
    assert_eq!(ms(&[0, 10, 30], window), [0.0, 10.0, 30.0, 100.0, 110.0, 130.0]);
}

#[test]
fn the_first_requests_of_all_passes_are_taken() {
    let window = TraceWindow { repeat: twice(), start: Micros(5_000), ..TraceWindow::default() };
    let options = TraceOptions { max_requests: Some(3), ..TraceOptions::default() };
    let workload = trace(&[0, 10, 30], window, &options).unwrap();
    assert_eq!(workload.count, Some(3));
    assert_eq!(workload.requests.map(|r| r.arrival.0).collect::<Vec<_>>(), [5_000, 25_000, 50_000]);
}

#[test]
fn equal_timestamps_are_spread_over_their_bin() {
    let window = TraceWindow { spread: Some(Micros(3_000_000)), ..TraceWindow::default() };
    assert_eq!(ms(&[0, 0, 0, 3_000, 3_000, 9_000], window), [0.0, 1_000.0, 2_000.0, 3_000.0, 4_500.0, 9_000.0]);
    // Never past the next timestamp.
    assert_eq!(ms(&[0, 0, 10], window), [0.0, 5.0, 10.0]);
}

#[test]
fn deadlines_are_not_stretched() {
    let header = "request_id,client_id,tenant_id,slo_class,session_id,round_index,prefix_group,prefix_length,streaming,\
        input_tokens,output_tokens,text_tokens,image_tokens,audio_tokens,video_tokens,reason_ratio,model,deadline_us,\
        server_input_tokens,arrival_time_us,send_time_us,first_chunk_time_us,last_chunk_time_us,num_chunks,status,\
        error_message,finish_reason";
    let text = format!("{header}\n7,c,,,,0,,0,false,10,5,0,0,0,0,0,,1500,0,1000,0,0,0,0,ok,,\n");
    let window = TraceWindow { time_scale: 3.0, repeat: twice(), ..TraceWindow::default() };
    let options = TraceOptions { window, ..TraceOptions::default() };
    let all: Vec<Request> = trace_v2::read(text.as_bytes(), "t.csv", &trace_v2::TraceHeader::default(), &options)
        .unwrap()
        .requests
        .collect();
    let seen: Vec<_> = all.iter().map(|r| (r.id.0, r.arrival.0, r.deadline.map(|deadline| deadline.0))).collect();
    assert_eq!(seen, [(7, 3_000, Some(3_500)), (15, 6_000, Some(6_500))]);
}

proptest! {
    #[test]
    fn order_count_and_ids_hold(
        times in vec(0_u64..50, 1..30), start in 0_u64..60_000, duration in proptest::option::of(1_u64..60_000),
        repeat in 1_u32..4, time_scale in 0.01_f64..10.0, spread in proptest::option::of(1_u64..20_000),
        horizon in prop_oneof![Just(Micros::MAX), (0_u64..200_000).prop_map(Micros)],
        max_requests in proptest::option::of(0_u64..40),
    ) {
        let window = TraceWindow {
            start: Micros(start), duration: duration.map(Micros), repeat: NonZeroU32::new(repeat).unwrap(), time_scale,
            spread: spread.map(Micros),
        };
        let options = TraceOptions { horizon, max_requests, ..TraceOptions::default() };
        let Ok(workload) = trace(&times, window, &options) else { return Ok(()) };
        let count = workload.count;
        let all: Vec<Request> = workload.requests.collect();
        prop_assert_eq!(count, Some(all.len() as u64));
        prop_assert!(all.is_sorted_by_key(|request| request.arrival));
        prop_assert!(all.iter().all(|request| request.arrival <= horizon));
        let ids: std::collections::BTreeSet<RequestId> = all.iter().map(|request| request.id).collect();
        prop_assert_eq!(ids.len(), all.len());
    }
}
