use blis_sim::ids::RequestId;
use blis_sim::request::{Request, Span, Tags};
use blis_sim::sampling::SamplingParams;
use blis_sim::units::Micros;
use proptest::prelude::*;

use super::*;
use crate::recorded::RecordedTimes;

const HEADER: &str = "request_id,client_id,tenant_id,slo_class,session_id,round_index,prefix_group,prefix_length,streaming,input_tokens,output_tokens,text_tokens,image_tokens,audio_tokens,video_tokens,reason_ratio,model,deadline_us,server_input_tokens,arrival_time_us,send_time_us,first_chunk_time_us,last_chunk_time_us,num_chunks,status,error_message,finish_reason";

fn trace(text: &str) -> Result<Workload, TraceError> {
    read(text.as_bytes(), "t.csv", &TraceHeader::default(), &TraceOptions::default())
}

fn rows(rows: &str) -> Result<Workload, TraceError> {
    trace(&format!("{HEADER}\n{rows}"))
}

/// A record that differs from a plain one in `changes`.
fn record(changes: &[(TraceColumn, &str)]) -> String {
    let plain = "0,c0,,,,0,,0,false,10,5,0,0,0,0,0,,0,0,1000,0,0,0,0,ok,,";
    let mut fields: Vec<&str> = plain.split(',').collect();
    for &(column, value) in changes {
        fields[column as usize] = value;
    }
    fields.join(",") + "\n"
}

fn requests(workload: Workload) -> Vec<Request> {
    workload.requests.collect()
}

#[test]
fn a_record_becomes_a_request() {
    let text = record(&[
        (TraceColumn::RequestId, "17"),
        (TraceColumn::SloClass, "batch"),
        (TraceColumn::SessionId, "s1"),
        (TraceColumn::RoundIndex, "3"),
        (TraceColumn::DeadlineUs, "5000"),
        (TraceColumn::SendTimeUs, "2000"),
        (TraceColumn::ServerInputTokens, "12"),
        (TraceColumn::ImageTokens, "7"),
        (TraceColumn::AudioTokens, "3"),
        (TraceColumn::VideoTokens, "1"),
    ]);
    let text = text.replace(",ok,,", ",ok,\"late, \"\"very\"\"\nlate\",");
    let workload = rows(&text).unwrap();
    let [slo_class, session, client] = ["batch", "s1", "c0"].map(|name| workload.names.find(name).expect(name));
    let expected = Request {
        id: RequestId(17),
        arrival: Micros(2000),
        input_tokens: 12,
        output_tokens: 5,
        max_output_tokens: None,
        deadline: Some(Micros(5000)),
        client_priority: None,
        priority: 0,
        sampling: SamplingParams::default(),
        tags: Tags { slo_class, session, client, round_index: 3, ..Tags::default() },
        stage: blis_sim::request::Stage::Whole,
        remote_tokens: 0,
        remote_until: Micros::ZERO,
        media_tokens: 11,
        content: blis_sim::request::Content::UNIQUE,
    };
    assert_eq!(requests(workload), [expected]);
}

#[test]
fn groups_share_the_full_blocks_of_their_prefix() {
    let member = |id: &str, group: &str, length: &str| {
        // The server counts the prefix too, so its count is no check of the rest.
        record(&[
            (TraceColumn::RequestId, id),
            (TraceColumn::PrefixGroup, group),
            (TraceColumn::PrefixLength, length),
            (TraceColumn::ServerInputTokens, "999"),
        ])
    };
    let all =
        [("0", "A", "33"), ("1", "alone", "64"), ("2", "B", "16"), ("3", "A", "40"), ("4", "B", "16"), ("5", "", "50")];
    let text: String = all.iter().map(|(id, group, length)| member(id, group, length)).collect();
    let workload = rows(&text).unwrap();
    assert_eq!(
        workload.notes,
        ["records of one prefix group differ in prefix_length (33 and 40); the first that is not 0 counts"]
    );
    let requests = requests(workload);
    assert_eq!(requests.iter().map(|r| r.input_tokens).collect::<Vec<_>>(), [43, 74, 26, 43, 26, 999]);
    let (a, b) = ([Span { first: 0, len: 2 }], [Span { first: 2, len: 1 }]);
    let spans: Vec<&[Span]> = requests.iter().map(|r| r.content.spans()).collect();
    assert_eq!(spans, [&a[..], &[], &b, &a, &b, &[]]);
}

/// As in BLIS, the first positive length of a group counts for all its records, earlier ones too.
#[test]
fn a_group_whose_length_comes_late() {
    let member = |id: &str, length: &str| {
        record(&[(TraceColumn::RequestId, id), (TraceColumn::PrefixGroup, "A"), (TraceColumn::PrefixLength, length)])
    };
    let text: String = [("0", "0"), ("1", "64"), ("2", "0")].iter().map(|(id, length)| member(id, length)).collect();
    let requests = requests(rows(&text).unwrap());
    assert_eq!(requests.iter().map(|r| r.input_tokens).collect::<Vec<_>>(), [74, 74, 74]);
    assert!(requests.iter().all(|r| r.content.shared_blocks() == 4));
}

#[test]
fn optional_columns_may_shift_the_others() {
    let header =
        HEADER.replace("slo_class,", "slo_class,vllm_priority,").replace("deadline_us,", "deadline_us,slo_target_us,");
    let row = |id: &str, priority: &str| {
        format!("{id},c0,,critical,{priority},,0,,0,true,10,5,0,0,0,0,0,,0,7,0,1000,0,0,0,0,ok,,,x-{id},,\n")
    };
    let text = format!("{header},x_request_id,adapter,thnk_time_us\n{}{}", row("0", "-4"), row("1", ""));
    let workload = trace(&text).unwrap();
    assert_eq!(workload.notes, ["column `thnk_time_us` is not known and not read; did you mean `think_time_us`?"]);
    let seen: Vec<_> = requests(workload).iter().map(|r| (r.client_priority, r.input_tokens, r.arrival.0)).collect();
    assert_eq!(seen, [(Some(-4), 10, 1000), (None, 10, 1000)]);
}

#[test]
fn errors_say_where() {
    let error = |changes: &[(TraceColumn, &str)]| rows(&record(changes)).unwrap_err().to_string();
    insta::assert_snapshot!(error(&[(TraceColumn::TextTokens, "-1")]), @"t.csv:2: `text_tokens` is negative: `-1`");
    insta::assert_snapshot!(error(&[(TraceColumn::ReasonRatio, "1.5")]), @"t.csv:2: `reason_ratio` is 1.5, not within 0 and 1");
    insta::assert_snapshot!(error(&[(TraceColumn::ReasonRatio, "NaN")]), @"t.csv:2: `reason_ratio` is not finite: `NaN`");
    insta::assert_snapshot!(error(&[(TraceColumn::DeadlineUs, "999")]), @"t.csv:2: `deadline_us` 999 is before `arrival_time_us` 1000");
    insta::assert_snapshot!(error(&[(TraceColumn::Streaming, "maybe")]), @"t.csv:2: `streaming` is neither `true` nor `false`: `maybe`");
    insta::assert_snapshot!(error(&[(TraceColumn::InputTokens, "0")]), @"t.csv:2: `input_tokens` is 0: a prompt has at least one token");
    let long = [(TraceColumn::PrefixGroup, "A"), (TraceColumn::PrefixLength, "4294967295")];
    insta::assert_snapshot!(error(&long), @"t.csv:2: `prefix_length + input_tokens` is 4294967305, more than 4294967295");
    insta::assert_snapshot!(rows("1,2\n").unwrap_err(), @"t.csv:2: 2 fields where the header has 27");
    insta::assert_snapshot!(rows(&record(&[]).repeat(2)).unwrap_err(), @r"
    t.csv:3: `request_id` 0 is there already
    hint: every request needs its own
    ");
    insta::assert_snapshot!(trace(&HEADER.replace("model", "modle")).unwrap_err(), @r"
    t.csv:1: there is no column `model`
    hint: rename `modle`
    ");
    insta::assert_snapshot!(rows("").unwrap_err(), @r"
    t.csv: no requests
    hint: a trace needs at least one request after its header
    ");
    // A deadline before the arrival is valid if the arrival is 0, which means unknown.
    assert!(rows(&record(&[(TraceColumn::DeadlineUs, "5"), (TraceColumn::ArrivalTimeUs, "0")])).is_ok());
}

#[test]
fn a_skipped_record_leaves_nothing_behind() {
    let group = [(TraceColumn::PrefixGroup, "A"), (TraceColumn::PrefixLength, "32"), (TraceColumn::OutputTokens, "x")];
    let text = record(&group) + record(&[(TraceColumn::PrefixGroup, "A"), (TraceColumn::PrefixLength, "16")]).as_str();
    let options = TraceOptions { skip_bad_lines: true, ..TraceOptions::default() };
    let workload = read(format!("{HEADER}\n{text}").as_bytes(), "t.csv", &TraceHeader::default(), &options).unwrap();
    assert_eq!((workload.skipped.count, workload.notes.len()), (1, 0));
    assert_eq!(requests(workload)[0].input_tokens, 26);
}

/// Records that differ from a plain one in `changes`, each with the keys of its blocks of 16 tokens.
fn with_keys(records: &[(&[(TraceColumn, &str)], &str)]) -> Result<Workload, TraceError> {
    let rows = records.iter().enumerate().map(|(id, (changes, keys))| {
        let id = id.to_string();
        let record = record(&[&[(TraceColumn::RequestId, id.as_str())], *changes].concat());
        format!("{},{keys}\n", record.trim_end())
    });
    trace(&format!("{HEADER},block_keys_16\n{}", rows.collect::<String>()))
}

#[test]
fn no_request_has_more_block_keys_than_full_blocks() {
    // 5 output tokens make it 37: two blocks, and a part of a third.
    let long: &[(TraceColumn, &str)] = &[(TraceColumn::InputTokens, "32")];
    let blocks = |workload: Workload| requests(workload).iter().map(|r| r.content.shared_blocks()).collect::<Vec<_>>();
    assert_eq!(blocks(with_keys(&[(long, "0+2"), (long, "0+1 1+1")]).unwrap()), [2, 2]);
    insta::assert_snapshot!(with_keys(&[(long, "0+2"), (long, "0+3")]).unwrap_err(), @r"
    t.csv:3: `block_keys_…` names more blocks than the request can have, 2
    hint: only blocks that its tokens fill have keys
    ");
}

#[test]
fn block_keys_serve_blocks_that_are_multiples_of_theirs() {
    // 90 input and 6 output tokens: six blocks. The second request has the first five of them, the third four.
    let long: &[(TraceColumn, &str)] = &[(TraceColumn::InputTokens, "90"), (TraceColumn::OutputTokens, "6")];
    let keys = ["0+6", "0+5 6+1", "0+1 1+3 7+2"];
    let rows = keys.iter().enumerate().map(|(id, keys)| {
        let id = id.to_string();
        let record = record(&[&[(TraceColumn::RequestId, id.as_str())], long].concat());
        format!("{},{keys}\n", record.trim_end())
    });
    let text = format!("{HEADER},block_keys_16\n{}", rows.collect::<String>());
    let shared = |tokens: u32| {
        let options = TraceOptions { block_size: tokens.try_into().unwrap(), ..TraceOptions::default() };
        let workload = read(text.as_bytes(), "t.csv", &TraceHeader::default(), &options).unwrap();
        let notes = workload.notes.len();
        (requests(workload).iter().map(|r| r.content.shared_blocks()).collect::<Vec<_>>(), notes)
    };
    assert_eq!(shared(16), (vec![5, 5, 4], 0));
    assert_eq!(shared(8), (vec![10, 10, 8], 0));
    assert_eq!(shared(1), (vec![80, 80, 64], 0));
    assert_eq!(shared(32), (vec![2, 2, 2], 0));
    assert_eq!(shared(64), (vec![1, 1, 1], 0));
    assert_eq!(shared(24), (vec![0, 0, 0], 1), "and a note says so");
}

#[test]
fn a_budget_is_what_max_tokens_says() {
    let row = |id: &str, budget: &str| {
        let record = record(&[(TraceColumn::RequestId, id), (TraceColumn::OutputTokens, "7")]);
        format!("{},{budget}\n", record.trim_end())
    };
    let budgets =
        |text: &str| trace(text).map(|read| requests(read).iter().map(|r| r.max_output_tokens).collect::<Vec<_>>());
    let text = format!("{HEADER},max_tokens\n{}{}{}", row("0", "4000"), row("1", ""), row("2", "7"));
    assert_eq!(budgets(&text).unwrap(), vec![Some(4000), None, Some(7)]);
    let without = format!("{HEADER}\n{}", record(&[(TraceColumn::OutputTokens, "7")]));
    assert_eq!(budgets(&without).unwrap(), vec![None], "what is not recorded was not announced");
    insta::assert_snapshot!(budgets(&format!("{HEADER},max_tokens\n{}", row("0", "-1"))).unwrap_err(), @"t.csv:2: `max_tokens` is negative: `-1`");
}

#[test]
fn a_run_of_millions_of_block_keys_is_kept_as_a_run() {
    let endless: &[(TraceColumn, &str)] = &[(TraceColumn::InputTokens, "4294967290")];
    let keys: Vec<String> = (0..2_000).map(|n| format!("{n}+60000000")).collect();
    let records: Vec<(&[(TraceColumn, &str)], &str)> =
        keys.iter().flat_map(|keys| [(endless, keys.as_str()); 2]).collect();
    // More blocks than 32 bits can number are shared, which is detected without creating them.
    assert!(matches!(with_keys(&records), Err(TraceError::TooMany { .. })));
    let spans: Vec<_> =
        requests(with_keys(&records[..4]).unwrap()).iter().map(|r| r.content.spans().to_vec()).collect();
    let [first, second] = [0, 60_000_000].map(|first| vec![Span { first, len: 60_000_000 }]);
    assert_eq!(spans, [first.clone(), first, second.clone(), second]);
}

fn header(text: &str) -> Result<TraceHeader, TraceError> {
    read_header(text.as_bytes(), "t.yaml")
}

#[test]
fn headers_are_read_whole() {
    let text = r#"
trace_version: 3
time_unit: microseconds
created_at: 2026-02-17T10:00:00Z
mode: real
warm_up_requests: 2
workload_seed: 42
workload_spec: chat.yaml
session_context_growth: accumulate
server: {type: vllm, model: m, tensor_parallel: 2, max_num_seqs: 256, block_size: 16, gpu_memory_utilization: 0.9, max_model_len: 8192}
network: {measured_rtt_ms: 0.5}
goodput_slo_targets: {critical: {ttft_ms: 100, itl_ms: 30, e2e_ms: 5000}}
kv_offload: {cpu_blocks: 100}
observed_kv_metrics: {source: vllm, hit_rate: 0.5, block_hits: 10, block_queries: 20, read_time_total: 1.5, write_time_total: 2, vllm_commit: abc}
"#;
    let header = header(text).unwrap();
    assert_eq!((header.mode, header.session_context_growth), (Some(Mode::Real), SessionGrowth::Accumulate));
    assert_eq!(header.server.unwrap().max_num_seqs, Some(256));
    assert_eq!(header.goodput_slo_targets["critical"].ttft_ms, Some(100.0));
}

#[test]
fn headers_are_strict() {
    let error =
        |rest: &str| header(&format!("trace_version: 3\ntime_unit: microseconds\n{rest}\n")).unwrap_err().to_string();
    insta::assert_snapshot!(error("warm_up_request: 0"), @r"
    t.yaml:3:1: unknown key `warm_up_request`
    hint: did you mean `warm_up_requests`?
    ");
    insta::assert_snapshot!(error("mode: generate"), @r"
    t.yaml:3:7: unknown value `generate`
    hint: did you mean `generated`?
    ");
    insta::assert_snapshot!(error("session_context_growth: shrink"), @r#"
    t.yaml:3:25: unknown value `shrink`
    hint: known are "", accumulate
    "#);
    insta::assert_snapshot!(error("warm_up_requests: -1"), @r"
    t.yaml:3:19: the value is `-1`
    hint: it must be a whole number from 0 to 18446744073709551615
    ");
    insta::assert_snapshot!(error("server: []"), @r"
    t.yaml:3:9: keys with values are expected here
    hint: write `key: value`, one per line
    ");
    insta::assert_snapshot!(header("time_unit: microseconds\ntrace_version: 2\n").unwrap_err(), @r"
    t.yaml:2: `trace_version` is 2, only 3 can be read
    hint: export the trace anew with a current BLIS
    ");
    insta::assert_snapshot!(header("trace_version: 3\n\ntime_unit: seconds\n").unwrap_err(), @r"
    t.yaml:3: `time_unit` is `seconds`, not `microseconds`
    hint: write `time_unit: microseconds` and convert the times of the CSV
    ");
    insta::assert_snapshot!(header("time_unit: microseconds\n").unwrap_err(), @r"
    t.yaml:1:1: `trace_version` is missing
    hint: add `trace_version: …`
    ");
    insta::assert_snapshot!(header("").unwrap_err(), @r"
    t.yaml:1: the header is empty
    hint: it begins with `trace_version: 3`
    ");
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes: Vec<u8>, row in "[0-9a,\"\n-]{0,90}") {
        let _ = read(bytes.as_slice(), "x", &TraceHeader::default(), &TraceOptions::default());
        let _ = read_header(bytes.as_slice(), "x");
        let _ = rows(&row);
        let _ = header(&row);
    }
}

#[test]
fn measured_times_count_from_the_time_of_sending() {
    let times = |sent: &str, first: &str, last: &str, status: &str| {
        let text = record(&[
            (TraceColumn::SendTimeUs, sent),
            (TraceColumn::FirstChunkTimeUs, first),
            (TraceColumn::LastChunkTimeUs, last),
            (TraceColumn::Status, status),
        ]);
        let options = TraceOptions { recorded_times: true, ..TraceOptions::default() };
        let text = format!("{HEADER}\n{text}");
        read(text.as_bytes(), "t.csv", &TraceHeader::default(), &options).map(|workload| workload.recorded)
    };
    let expected = |ttft, e2e| vec![(RequestId(0), RecordedTimes::new(ttft, e2e).unwrap())];
    assert_eq!(times("2000", "2500", "9000", "ok").unwrap(), expected(500.0, 7000.0));
    assert_eq!(times("0", "1500", "9000", "").unwrap(), expected(500.0, 8000.0), "it arrived at 1000 µs");
    assert_eq!(times("2000", "2500", "9000", "timeout").unwrap(), []);
    assert_eq!(times("2000", "0", "0", "ok").unwrap(), [], "a trace that was never sent");
    insta::assert_snapshot!(times("2000", "1500", "9000", "ok").unwrap_err(), @"t.csv:2: sent at 2000 µs, first chunk at 1500, last at 9000: not in order");
}
