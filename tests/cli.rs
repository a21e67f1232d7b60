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
#[test]
fn a_reader_that_leaves_is_no_error() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_blis"))
        .args(["run", "--help"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("blis starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("blis ends");
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
}
