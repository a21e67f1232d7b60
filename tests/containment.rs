//! Hostile candidates: each is a result, and the server goes on. The candidates are those that once ended, blocked or filled
//! the program, and their relatives.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::evaluate::{ServerProcess, small};
use crate::macros::{Scratch, ended, program};

const HONEST: &str = "fn route(r, s) { -s.in_flight }";

/// What a candidate is, its source, and the status of its result.
const HOSTILE: [(&str, &str, &str); 16] = [
    ("closures in closures", "fn route(r, s) { let f = 0; for i in 0..20000 { let g = f; f = || g; } 0 }", "rejected"),
    ("a pad with nothing", "fn route(r, s) { let t = \"\"; t.pad(100, \"\"); 0 }", "trap"),
    (
        "a cycle of references",
        "fn route(r, s) { let m = #{ c: column(65536, 1.0) }; let f = || m.c; m.f = f; -s.in_flight }",
        "rejected",
    ),
    ("curried pointers", "fn f(x) { x } fn route(r, s) { let p = Fn(\"f\"); p.curry(s); 0 }", "rejected"),
    (
        "copies of a table",
        "const TABLE = [0, 1, 2, 3, 4, 5, 6, 7]; fn grow(t, n) { t.pad(4000, 1); let a = t; let b = t; let c = t; \
         if n == 0 { 0 } else { grow(a, n - 1) + grow(b, n - 1) + grow(c, n - 1) } } fn route(r, s) { grow(TABLE, 20) }",
        "limit",
    ),
    (
        "a tower of texts",
        "fn route(r, s) { let t = \"\"; t.pad(8000, \"x\"); let m = #{}; for i in 0..4000 { m[`k${i}`] = t + i; } 0 }",
        "limit",
    ),
    (
        "searches of long texts",
        "fn route(r, s) { let t = \"\"; t.pad(8000, \"x\"); let n = 0; \
         for i in 0..20000 { if t.contains(\"xxxxxxxxxxxxxxxy\") { n += 1; } } 0 }",
        "limit",
    ),
    (
        "comparisons of long arrays",
        "fn route(r, s) { let a = []; a.pad(4000, 1.5); let b = a; let n = 0; \
         for i in 0..20000 { if a == b { n += 1; } } 0 }",
        "limit",
    ),
    ("an endless loop", "fn route(r, s) { loop { } }", "limit"),
    ("endless recursion", "fn f(x) { f(x) } fn route(r, s) { f(1) }", "limit"),
    ("escape sequences", "fn route(r, s) { throw \"\\x1b[2J\\x1b]0;owned\\x07 and more\" }", "trap"),
    ("a field that is not there", "fn route(r, s) { if false { s.queue_depht } 0 }", "rejected"),
    ("a function that is not there", "fn route(r, s) { if false { fly(s) } 0 }", "rejected"),
    ("a file", "fn route(r, s) { open(\"/etc/passwd\"); 0 }", "rejected"),
    ("no script", "\u{0}\u{1}\u{2}", "rejected"),
    ("a power that has no end", "fn route(r, s) { let x = 2; for i in 0..100 { x = x ** x; } 0 }", "trap"),
];

fn request(id: &str, source: &str) -> String {
    json!({"id": id, "candidate": source, "feedback_bytes": 500}).to_string()
}

fn evaluated(server: &mut ServerProcess, source: &str) -> Value {
    server.send(&request("1", source));
    server.receive()
}

#[test]
fn the_server_serves_the_next_request_after_every_hostile_candidate() {
    let dir = Scratch::new();
    let suite = small(&dir);
    let mut server = ServerProcess::start(&["--stdio", "--suite", &suite, "--threads", "2"]);
    let honest = evaluated(&mut server, HONEST);
    assert_eq!(honest["status"], "ok", "{honest:#}");
    for (name, source, status) in HOSTILE {
        let result = evaluated(&mut server, source);
        assert_eq!(result["status"], status, "{name}: {result:#}");
        let error = result["artifacts"]["error"].as_str().unwrap_or_default();
        assert!(!error.is_empty() && !error.contains('\u{1b}'), "{name}: {error:?}");
        assert_eq!(evaluated(&mut server, HONEST)["hashes"], honest["hashes"], "after {name}");
    }
    server.end();
}

/// The processes that `process` has started.
fn children(process: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let texts = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    texts.flat_map(|text| text.split_whitespace().filter_map(|one| one.parse().ok()).collect::<Vec<_>>()).collect()
}

/// Memory in use by the server and its fork server, MB.
fn resident_mb(server: u32) -> u64 {
    let of = |process: u32| {
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) / 1000
    };
    of(server) + children(server).into_iter().map(of).sum::<u64>()
}

#[test]
#[ignore = "heavy: `.ci/run` runs it in a step of its own"]
fn a_thousand_hostile_candidates_leave_nothing_behind() {
    let dir = Scratch::new();
    let suite = small(&dir);
    let mut server = ServerProcess::start(&["--stdio", "--suite", &suite, "--threads", "2"]);
    let honest = evaluated(&mut server, HONEST);
    for (_, source, _) in HOSTILE {
        evaluated(&mut server, source);
    }
    let before = resident_mb(server.child.id());
    assert!(before > 10, "it was measured");
    for turn in 0..1000 {
        let (name, source, status) = HOSTILE[turn % HOSTILE.len()];
        let result = evaluated(&mut server, source);
        assert_eq!(result["status"], status, "{name}: {result:#}");
        // Long texts too, of which an allocator may keep the memory.
        if turn % 10 == 0 {
            let long = format!("// {}\n{HONEST}", "x".repeat(300_000 + 600 * turn));
            assert_eq!(evaluated(&mut server, &long)["status"], "rejected");
        }
    }
    let after = resident_mb(server.child.id());
    assert!(after <= before + 20, "{before} MB before, {after} MB after");
    assert_eq!(evaluated(&mut server, HONEST)["hashes"], honest["hashes"]);
    server.end();
}

/// A candidate that keeps within the limits of a call and takes long all the same.
const SLOW: &str = "fn route(r, s) { let x = 0.0; for i in 0..9000 { x += 1.0; } -s.in_flight }";

/// The small suite with so many operations per request that a slow candidate does not reach that limit first.
fn unlimited(dir: &Path) -> String {
    let path = small(dir);
    let text = fs::read_to_string(&path).expect("scratch");
    assert!(!text.contains("\nlimits:"), "the limits of the suite would be given twice");
    fs::write(&path, format!("{text}limits: {{ operations_per_request: 1000000000 }}\n")).expect("scratch");
    path
}

fn status(server: &mut ServerProcess) -> Value {
    server.send("{\"status\": true}");
    server.receive()
}

#[test]
fn cancelling_kills_the_worker() {
    let dir = Scratch::new();
    let suite = unlimited(&dir);
    let mut server = ServerProcess::start(&["--stdio", "--suite", &suite, "--threads", "1"]);
    server.send(&request("slow", SLOW));
    server.send(&request("queued", SLOW));
    while status(&mut server)["running"] != 1 {}
    // Whether it has been started or not.
    for id in ["queued", "slow"] {
        server.send(&json!({"cancel": id}).to_string());
    }
    let mut replies: Vec<Value> = (0..4).map(|_| server.receive()).collect();
    replies.retain(|reply| reply.get("found") != Some(&json!(true)));
    let ends: Vec<_> = replies.iter().map(|reply| (reply["id"].as_str(), reply["stopped"].as_str())).collect();
    assert_eq!(ends, [(Some("slow"), Some("cancelled")), (Some("queued"), Some("cancelled"))], "{replies:?}");
    if cfg!(target_os = "linux") {
        let forks = children(server.child.id());
        assert_eq!(forks.len(), 1, "the fork server");
        assert!(children(forks[0]).is_empty(), "no worker");
    }
    server.send(&request("next", HONEST));
    assert_eq!(server.receive()["status"], "ok");
    server.end();
}

#[test]
fn the_wall_limit_kills_the_worker() {
    let dir = Scratch::new();
    let (suite, path) = (unlimited(&dir), dir.join("slow.rhai"));
    fs::write(&path, SLOW).expect("scratch");
    let output = ended(&mut program!("evaluate", path, "--wall-s 0.05 --suite", suite));
    let result: Value = serde_json::from_str(&output.stdout).expect("a document");
    assert_eq!((&result["status"], &result["stopped"]), (&json!("limit"), &json!("it took more than 0.05 s")));
    let mut server = ServerProcess::start(&["--stdio", "--suite", &suite]);
    server.send(&json!({"candidate": SLOW, "wall_s": 0.05}).to_string());
    let by_server = server.receive();
    assert_eq!(by_server["hashes"], result["hashes"], "{by_server:#}");
    // Whether another attempt may have another result.
    assert_eq!((&by_server["depends_on_clock"], result.get("depends_on_clock")), (&json!(true), None));
    server.send(&json!({"candidate": "fn route(r, s) { 0 / 0 }"}).to_string());
    assert_eq!(server.receive().get("depends_on_clock"), None);
    server.end();
}

/// A candidate that keeps to its limits leaves its worker to the next one; what fails is repeated in a new worker, and
/// that is not used again.
#[test]
fn workers_of_honest_candidates_are_used_again() {
    if !cfg!(target_os = "linux") {
        return;
    }
    let dir = Scratch::new();
    let suite = unlimited(&dir);
    let mut server = ServerProcess::start(&["--stdio", "--suite", &suite, "--threads", "1"]);
    let workers =
        |server: &ServerProcess| -> Vec<u32> { children(server.child.id()).into_iter().flat_map(children).collect() };
    // Until all workloads and baselines are known, workers are replaced.
    let mut before = Vec::new();
    loop {
        evaluated(&mut server, HONEST);
        let now = workers(&server);
        if !now.is_empty() && now == before {
            break;
        }
        before = now;
    }
    assert_eq!(before.len(), 1, "one thread needs one worker");
    let rejected = evaluated(&mut server, "fn route(r, s");
    assert_eq!((rejected["status"].as_str(), workers(&server)), (Some("rejected"), before.clone()));
    let endless = evaluated(&mut server, "fn route(r, s) { loop { } }");
    assert_eq!(endless["status"], "limit");
    while !workers(&server).is_empty() {
        std::thread::yield_now(); // it ends after the reply
    }
    let honest = evaluated(&mut server, HONEST);
    assert_eq!(honest["status"], "ok");
    assert_ne!(workers(&server), before);
    server.end();
}

/// Workers of a server that is killed end with it.
#[test]
fn no_worker_outlives_the_server() {
    if !cfg!(target_os = "linux") {
        return;
    }
    let dir = Scratch::new();
    let suite = unlimited(&dir);
    let mut server = ServerProcess::start(&["--stdio", "--suite", &suite, "--threads", "1"]);
    server.send(&request("slow", SLOW));
    while status(&mut server)["running"] != 1 {}
    let forks = children(server.child.id());
    let mut all = forks.clone();
    all.extend(forks.iter().flat_map(|&fork| children(fork)));
    server.child.kill().expect("it runs");
    server.child.wait().expect("it ends");
    let is_there = |process: &u32| {
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        !status.is_empty() && !status.contains("State:\tZ")
    };
    while all.iter().any(is_there) {
        std::thread::yield_now();
    }
}

/// Regression (D9): the host's own lack of memory was reported as a trap of the component.
#[test]
fn too_many_guests_are_a_shortage_of_the_host() {
    if !cfg!(target_os = "linux") {
        return;
    }
    let component = Path::new(env!("CARGO_MANIFEST_DIR")).join("../policies/slo-scheduler.wasm");
    let run = format!(
        "ulimit -v 40000000; exec {} run --model meta-llama/llama-3.1-8b-instruct --num-instances 64 --num-requests 10 \
         --scheduler {}",
        env!("CARGO_BIN_EXE_blis"),
        component.display()
    );
    let output = ended(Command::new("sh").args(["-c", &run]));
    assert_eq!(output.code, Some(2), "{}", output.stderr);
    assert!(output.stderr.contains("no memory or address space left"), "{}", output.stderr);
    assert!(!output.stderr.contains("violated its interface"), "{}", output.stderr);
}
