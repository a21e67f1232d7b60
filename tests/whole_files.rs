//! Files are whole or absent: after a signal, and on a full disk. An older file at the path is kept.
#![cfg(target_os = "linux")]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::macros::{Scratch, blis, command, ended, program, root};

const RUN: &str = "run --model meta-llama/llama-3.1-8b-instruct --rate 1000 --trace-level decisions --no-progress \
                   --output json";

/// Every kind of file that a run writes.
const FILES: [(&str, &str); 8] = [
    ("--metrics-path", "metrics.json"),
    ("--trace-path", "decisions.jsonl"),
    ("--export trace-v2=", "trace"),
    ("--export vllm-bench=", "bench.json"),
    ("--export otel=", "spans.json"),
    ("--export perfetto=", "trace.pftrace"),
    ("--timeline", "timeline.csv"),
    ("--report", "page.html"),
];

/// The flags of all files in `folder`.
fn flags(folder: &Path) -> Vec<String> {
    let words = FILES.iter().flat_map(|(flag, name)| {
        let path = folder.join(name).display().to_string();
        let joined = if flag.ends_with('=') { format!("{flag}{path}") } else { format!("{flag} {path}") };
        joined.split(' ').map(str::to_owned).collect::<Vec<_>>()
    });
    words.collect()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// An older file, which must be kept.
fn with_an_older_file() -> Scratch {
    let folder = Scratch::new();
    folder.write("metrics.json", "old");
    folder
}

fn assert_only_the_older_file(folder: &Path) {
    assert_eq!(names(folder), ["metrics.json"]);
    assert_eq!(fs::read_to_string(folder.join("metrics.json")).expect("a file"), "old");
}

#[test]
fn a_run_that_is_not_disturbed_writes_all_of_them() {
    let folder = with_an_older_file();
    blis!(RUN, "--num-requests 50", flags(&folder)).done();
    let expected = [
        "bench.json",
        "decisions.jsonl",
        "metrics.json",
        "page.html",
        "spans.json",
        "timeline.csv",
        "trace.csv",
        "trace.pftrace",
        "trace.yaml",
    ];
    assert_eq!(names(&folder), expected);
    assert!(fs::read_to_string(folder.join("metrics.json")).expect("a file").starts_with('{'));
}

#[test]
fn an_interrupted_run_leaves_no_file() {
    for trace in ["decisions.jsonl", "decisions.jsonl.gz"] {
        for signal in ["-INT", "-TERM", "-KILL"] {
            let folder = with_an_older_file();
            let paths = flags(&folder).join(" ").replace("decisions.jsonl", trace);
            let run = program!(RUN, "--num-requests 3000000", paths);
            let mut run = with_default_signals(&run).spawn().expect("it starts");
            sleep(Duration::from_millis(700));
            let id = run.id().to_string();
            assert!(Command::new("kill").args([signal, &id]).status().expect("kill").success());
            let status = run.wait().expect("it ends");
            assert_eq!(status.code(), None, "the signal ended it");
            assert_only_the_older_file(&folder);
        }
    }
}

/// Tests that a shell runs in the background ignore SIGINT, and so does what they start: no run would end.
fn with_default_signals(run: &Command) -> Command {
    let mut env = Command::new("env");
    env.arg("--default-signal").arg(run.get_program()).args(run.get_args());
    env.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).current_dir(root());
    env
}

/// A limit of file sizes stands for a full disk: writing fails, or a signal ends the program.
#[test]
fn a_full_disk_leaves_no_file() {
    let limited = |trap: &str, folder: &Path, flags: &[&str]| {
        let mut shell = Command::new("sh");
        let words = command(&[&RUN, &"--num-requests 300"]);
        shell.arg("-c").arg(format!("{trap} ulimit -f 8; exec \"$0\" \"$@\"")).arg(words.get_program());
        shell.args(words.get_args()).args(flags).stdin(Stdio::null()).current_dir(folder);
        ended(&mut shell)
    };
    for (flag, name) in [("--metrics-path", "metrics.json"), ("--trace-path", "decisions.jsonl")] {
        let folder = with_an_older_file();
        let path = folder.join(name).display().to_string();
        let failed = limited("trap '' XFSZ;", &folder, &[flag, &path]);
        assert_eq!(failed.code, Some(1), "{}", failed.stderr);
        assert!(failed.stderr.contains(&format!("cannot write `{path}`: File too large")), "{}", failed.stderr);
        assert_only_the_older_file(&folder);
        assert_eq!(limited("", &folder, &[flag, &path]).code, None, "SIGXFSZ ends it");
        assert_only_the_older_file(&folder);
    }
    let full = blis!(RUN, "--num-requests 50 --metrics-path /dev/full");
    assert_eq!(full.code, Some(1), "{}", full.stderr);
    assert!(full.stderr.contains("cannot write `/dev/full`: No space left on device"), "{}", full.stderr);
}
