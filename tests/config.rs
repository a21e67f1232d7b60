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
