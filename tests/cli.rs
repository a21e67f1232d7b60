//! The program from outside: exit codes, and what goes to which stream.

use serde_json::Value;

use crate::macros::{Scratch, blis};

#[test]
fn help_and_version_are_no_errors() {
    let asked =
        [("", "Usage: blis"), ("--help", "Usage: blis"), ("--version", "blis "), ("run --help", "--model <NAME>")];
    for (arguments, expected) in asked {
        let output = blis!(arguments).done();
        assert!(output.stdout.contains(expected), "blis {arguments}: {}", output.stdout);
        assert_eq!(output.stderr, "", "blis {arguments}");
    }
}

#[test]
fn what_is_known_is_listed() {
    for (list, name) in [("models", "llama-3.1-8b-instruct"), ("hardware", "H100")] {
        let known = blis!(format!("{list} --output text")).done().stdout;
        assert!(known.lines().any(|line| line.split_whitespace().next() == Some(name)), "{known}");
    }
}

#[test]
fn nonsense_is_one_error_with_one_hint() {
    let nonsense = [
        "launch",
        "run",
        "run --model m --tp many",
        "run --model m --max-num-seq 3",
        "run --model m --workload-trace t --rate 1",
        "run --model m --metrics-path no/such/folder/file",
        "replay --model m",
        "run --model no-such-model",
        "run --model llama-3.1-8b-instruct --hardware H1OO",
        "run --model llama-3.1-8b-instruct --alpha-coeffs 1,2,3",
        "run --model llama-3.1-8b-instruct --latency-model roofline --alpha-coeffs 1,2,3 --beta-coeffs 1,2,3",
    ];
    for arguments in nonsense {
        let message = blis!(arguments).refused();
        assert!(message.starts_with("error: "), "blis {arguments}: {message}");
        assert_eq!(message.lines().filter(|line| line.starts_with("hint: ")).count(), 1, "{message}");
    }
}

/// A TraceV2 pair in a folder of its own, and a command that replays it: (vllm_priority, arrival µs, input, output) per
/// request.
fn recorded(rows: &[(i32, u64, u32, u32)]) -> (Scratch, String) {
    let folder = Scratch::new();
    folder.write("t.yaml", "trace_version: 3\ntime_unit: microseconds\nmode: generated\nwarm_up_requests: 0\n");
    let mut csv = String::from(
        "request_id,client_id,tenant_id,slo_class,vllm_priority,session_id,round_index,prefix_group,prefix_length,\
         streaming,input_tokens,output_tokens,text_tokens,image_tokens,audio_tokens,video_tokens,reason_ratio,model,\
         deadline_us,server_input_tokens,arrival_time_us,send_time_us,first_chunk_time_us,last_chunk_time_us,num_chunks,\
         status,error_message,finish_reason\n",
    );
    for (id, (priority, arrival, input, output)) in rows.iter().enumerate() {
        csv += &format!("{id},c,,,{priority},,0,,0,False,{input},{output},0,0,0,0,0,,0,0,{arrival},0,0,0,0,ok,,\n");
    }
    folder.write("t.csv", csv);
    let flags = format!(
        "replay --model llama-3.1-8b-instruct --trace-header {0}/t.yaml --trace-data {0}/t.csv",
        folder.display()
    );
    (folder, flags)
}

fn figures(arguments: &str) -> Value {
    blis!(arguments).json()
}

#[test]
fn blis_ends_a_replay_at_twice_the_last_arrival() {
    let (_folder, replay) = recorded(&[(0, 1_000_000, 100, 500)]);
    assert_eq!(figures(&replay)["completed_requests"], 1);
    let parity = figures(&format!("{replay} --parity blis"));
    assert_eq!((&parity["completed_requests"], &parity["still_running"]), (&0.into(), &1.into()));
    assert_eq!(figures(&format!("{replay} --parity blis --horizon 100000000"))["completed_requests"], 1);
}

#[test]
fn blis_does_not_read_recorded_priorities() {
    let (folder, replay) = recorded(&[(9, 0, 100, 50), (9, 0, 100, 50), (1, 0, 100, 50)]);
    let first = |parity: &str| {
        let results = format!("{parity}.json");
        let flags = "--max-num-seqs 1 --scheduler priority-fcfs --horizon 100000000";
        figures(&format!("{replay} {flags} --parity {parity} --results-path {}", folder.path(&results)));
        let results: Vec<Value> = serde_json::from_str(&folder.read(&results)).expect("JSON");
        results.into_iter().min_by_key(|r| r["ttft_us"].as_u64()).expect("three")["request_id"].clone()
    };
    assert_eq!(first("blis"), 0);
    assert_eq!(first("vllm"), 2);
}

#[test]
fn a_given_max_model_len_is_capped_to_the_cache() {
    let (_folder, replay) = recorded(&[(0, 0, 1000, 800)]);
    let tight = format!("{replay} --total-kv-blocks 100 --max-model-len 8192");
    let parity = figures(&format!("{tight} --parity blis"));
    assert_eq!((&parity["dropped_unservable"], &parity["total_input_tokens"]), (&1.into(), &0.into()));
    assert_eq!(figures(&tight)["length_capped_requests"], 1);
}
