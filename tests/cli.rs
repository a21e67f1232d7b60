//! The program from outside: exit codes, and what goes to which stream.

use std::process::{Command, Output, Stdio};

fn blis(arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_blis"))
        .args(arguments.split_whitespace())
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("blis {arguments}: {error}"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn help_and_version_are_no_errors() {
    let asked =
        [("", "Usage: blis"), ("--help", "Usage: blis"), ("--version", "blis "), ("run --help", "--model <NAME>")];
    for (arguments, expected) in asked {
        let output = blis(arguments);
        assert_eq!(output.status.code(), Some(0), "blis {arguments}");
        assert!(text(&output.stdout).contains(expected), "blis {arguments}: {}", text(&output.stdout));
        assert_eq!(text(&output.stderr), "", "blis {arguments}");
    }
}

#[test]
fn what_is_known_is_listed() {
    for (list, name) in [("models", "llama-3.1-8b-instruct"), ("hardware", "H100")] {
        let output = blis(list);
        assert_eq!(output.status.code(), Some(0));
        let known = text(&output.stdout);
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
        let output = blis(arguments);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "blis {arguments}: {told}");
        assert_eq!(text(&output.stdout), "", "blis {arguments}");
        assert!(told.starts_with("error: "), "blis {arguments}: {told}");
        assert_eq!(told.lines().filter(|line| line.starts_with("error: ")).count(), 1, "{told}");
        assert_eq!(told.lines().filter(|line| line.starts_with("hint: ")).count(), 1, "{told}");
    }
}

#[cfg(unix)]
/// A TraceV2 pair in a folder of its own: (vllm_priority, arrival µs, input, output) per request.
fn recorded(name: &str, rows: &[(i32, u64, u32, u32)]) -> (std::path::PathBuf, String) {
    let folder = std::env::temp_dir().join(format!("blis-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(
        folder.join("t.yaml"),
        "trace_version: 3\ntime_unit: microseconds\nmode: generated\nwarm_up_requests: 0\n",
    )
    .expect("a header");
    let mut csv = String::from(
        "request_id,client_id,tenant_id,slo_class,vllm_priority,session_id,round_index,prefix_group,prefix_length,\
         streaming,input_tokens,output_tokens,text_tokens,image_tokens,audio_tokens,video_tokens,reason_ratio,model,\
         deadline_us,server_input_tokens,arrival_time_us,send_time_us,first_chunk_time_us,last_chunk_time_us,num_chunks,\
         status,error_message,finish_reason\n",
    );
    for (id, (priority, arrival, input, output)) in rows.iter().enumerate() {
        csv += &format!("{id},c,,,{priority},,0,,0,False,{input},{output},0,0,0,0,0,,0,0,{arrival},0,0,0,0,ok,,\n");
    }
    std::fs::write(folder.join("t.csv"), csv).expect("a trace");
    let flags = format!(
        "replay --model llama-3.1-8b-instruct --trace-header {0}/t.yaml --trace-data {0}/t.csv",
        folder.display()
    );
    (folder, flags)
}

fn figures(arguments: &str) -> serde_json::Value {
    let output = blis(arguments);
    assert_eq!(output.status.code(), Some(0), "blis {arguments}: {}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON document")
}

#[test]
fn blis_ends_a_replay_at_twice_the_last_arrival() {
    let (folder, replay) = recorded("horizon", &[(0, 1_000_000, 100, 500)]);
    assert_eq!(figures(&replay)["completed_requests"], 1);
    let parity = figures(&format!("{replay} --parity blis"));
    assert_eq!((&parity["completed_requests"], &parity["still_running"]), (&0.into(), &1.into()));
    assert_eq!(figures(&format!("{replay} --parity blis --horizon 100000000"))["completed_requests"], 1);
    std::fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn blis_does_not_read_recorded_priorities() {
    let (folder, replay) = recorded("priority", &[(9, 0, 100, 50), (9, 0, 100, 50), (1, 0, 100, 50)]);
    let first = |parity: &str| {
        let results = folder.join(format!("{parity}.json"));
        let flags = "--max-num-seqs 1 --scheduler priority-fcfs --horizon 100000000";
        figures(&format!("{replay} {flags} --parity {parity} --results-path {}", results.display()));
        let results = std::fs::read(&results).expect("written");
        let results: Vec<serde_json::Value> = serde_json::from_slice(&results).expect("JSON");
        results.into_iter().min_by_key(|r| r["ttft_us"].as_u64()).expect("three")["request_id"].clone()
    };
    assert_eq!(first("blis"), 0);
    assert_eq!(first("vllm"), 2);
    std::fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn a_given_max_model_len_is_capped_to_the_cache() {
    let (folder, replay) = recorded("capped", &[(0, 0, 1000, 800)]);
    let tight = format!("{replay} --total-kv-blocks 100 --max-model-len 8192");
    let parity = figures(&format!("{tight} --parity blis"));
    assert_eq!((&parity["dropped_unservable"], &parity["total_input_tokens"]), (&1.into(), &0.into()));
    assert_eq!(figures(&tight)["length_capped_requests"], 1);
    std::fs::remove_dir_all(folder).expect("removed");
}
