//! Configuration files: what `--explain-config` prints is what `--config` reads.

use crate::macros::{Scratch, blis};

const MODEL: &str = "--model meta-llama/llama-3.1-8b-instruct";

/// The same results, whether the settings come from flags or from the page that those flags explain.
#[test]
fn an_explained_configuration_gives_the_same_results() {
    let lines = [
        "run --num-instances 4 --workload chatbot --rate 60 --num-requests 200 --routing-policy weighted \
         --policy-param routing.queue-depth=2 --tp 2 --seed 7 --slo-ttft default=100ms",
        "run --workload-trace examples/replay-a-trace/chat.csv --scheduling-policy priority --max-num-seqs 4 --timeout 9",
        "run --workload-spec examples/workload-spec/mixed.yaml --horizon 20000000 --num-instances 2 --parity blis",
        "run --concurrency 5 --num-requests 60 --think-time-ms 20 --admission-policy token-bucket \
         --token-bucket-capacity 9000 --no-enable-prefix-caching",
        "run --policy-config policies/slo-tiers.yaml --num-requests 80 --rate 9",
        "run --routing-policy prefix-then-load --num-instances 3 --num-requests 60 --rate 9",
    ];
    let folder = Scratch::new();
    for line in lines {
        let page = blis!(line, MODEL, "--explain-config");
        assert_eq!((page.code, page.stderr.as_str()), (Some(0), ""), "{line}");
        let file = folder.write("e.yaml", &page.stdout);
        let (typed, read) = (blis!(line, MODEL, "--output json"), blis!("run --config", file, "--output json"));
        assert_eq!((typed.code, read.code), (Some(0), Some(0)), "{line}: {}", read.stderr);
        assert!(!typed.stdout.is_empty() && typed.stdout == read.stdout, "{line}\n{}", page.stdout);
    }
}

#[test]
fn a_replay_is_read_back_as_well() {
    let folder = Scratch::new();
    folder.write("t.yaml", "trace_version: 3\ntime_unit: microseconds\n");
    let made = blis!("run", MODEL, "--num-requests 30 --trace-output", folder.join("made"), "--output json");
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let (header, data) = (folder.join("made.yaml"), folder.join("made.csv"));
    let line = format!("replay {MODEL} --trace-header {} --trace-data {}", header.display(), data.display());
    let file = folder.write("e.yaml", &blis!(line, "--explain-config").stdout);
    let (typed, read) = (blis!(line, "--output json"), blis!("replay --config", file, "--output json"));
    assert!(!typed.stdout.is_empty() && typed.stdout == read.stdout, "{}", read.stderr);
}

/// A mistake in a file is reported with its line; so are flags that exclude a setting of the file.
#[test]
fn mistakes_in_a_configuration_are_reported() {
    let folder = Scratch::new();
    let message = |text: &str, flags: &str| {
        let file = folder.write("e.yaml", text);
        let ended = blis!("run --config", file, flags);
        assert_eq!(ended.code, Some(2), "{text}");
        ended.stderr.replace(&folder.display().to_string(), "DIR")
    };
    let all = [
        message("model: m\nmax-num-seq: 3\n", ""),
        message("model: m\nengine:\n  max-num-seqs: none\n", ""),
        message("model: m\nrouting:\n  policy: wieghted\n", ""),
        message("rate: 3\n", ""),
        message("model: a\n  b\nrate: 3\n", ""),
        message("model: m\nconcurrency: 3\n", "--rate 5"),
        message("model: m\nworkload: chatbot\n", "--workload-trace t.csv"),
    ];
    insta::assert_snapshot!(all.join("\n"));
}

/// It took `--metrics-path`, and wrote nothing.
#[test]
fn regret_refuses_files_that_it_does_not_write() {
    let folder = Scratch::new();
    let ended = blis!("regret", MODEL, "--num-requests 5 --metrics-path", folder.join("m.json"));
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.starts_with("error: `blis regret` writes no results or exports of the run\nhint: "));
}

/// Messages about settings of a file have their line, also where one item of a list is at fault, or two settings exclude each other.
#[test]
fn settings_at_fault_are_located() {
    let folder = Scratch::new();
    let message = |text: &str, flags: &str| {
        let file = folder.write("e.yaml", format!("model: qwen3-14b\n{text}"));
        let ended = blis!("run --config", file, flags);
        assert_eq!(ended.code, Some(2), "{text}");
        ended.stderr.replace(&folder.display().to_string(), "DIR")
    };
    let list = "routing-policy: weighted\npolicy-param:\n- routing.queue-depth=2\n- routing.foo=1\n- routing.kv-utilization=1\n";
    let all = [
        message(list, ""),
        message("policy-param: [routin.queue-depth=1]\n", ""),
        message("policy-param: [queue-depth]\n", ""),
        message("routing-scorers: a:b\n", ""),
        message("slo-ttft: default\n", ""),
        message("engine:\n  engine: vllm-0.33\n", "--parity blis"),
        message("concurrency: 3\nrate: 5\n", ""),
    ];
    insta::assert_snapshot!(all.join("\n"), @r"
    error: DIR/e.yaml:5:3: `weighted` has no parameter `foo`
    hint: known are precise-prefix-cache, queue-depth, kv-utilization, load-balance, active-requests, running-requests, load-aware, vllm-dp, prefix-affinity, no-hit-lru, token-load, lora-affinity, precise-prefix-cache-share, random, session-affinity, predicted-latency, prefix-capacity

    error: DIR/e.yaml:2:16: `policy-param` is `routin.queue-depth=1`
      2 | policy-param: [routin.queue-depth=1]
        |                ^^^^^^^^^^^^^^^^^^^^
    hint: unknown kind `routin`: did you mean `routing`?

    error: DIR/e.yaml:2:16: `policy-param` is `queue-depth`
      2 | policy-param: [queue-depth]
        |                ^^^^^^^^^^^
    hint: it must be KIND.NAME=VALUE, as in routing.queue-depth=2

    error: DIR/e.yaml:2:18: `routing-scorers` is `a:b`
      2 | routing-scorers: a:b
        |                  ^^^
    hint: scorer 1, `a`: the weight is `b`; it must be a number above 0

    error: DIR/e.yaml:2:11: `slo-ttft` is `default`
      2 | slo-ttft: default
        |           ^^^^^^^
    hint: `default` must be a time, like 500ms, or a class and a time, like critical=100ms

    error: DIR/e.yaml:3:11: `engine` cannot be used with `--parity blis`
    hint: BLIS simulates an engine of its own: leave out one of them; a page of `--explain-config` names the engine of its run

    error: DIR/e.yaml:3:7: `rate` cannot be used with `--concurrency`
    hint: leave out one of them
    ");
}
