//! A million calls leave nothing behind.

use std::env;
use std::path::Path;
use std::process::Command;

use blis_plugin::find::Finder;
use blis_plugin::inputs::{ties, traffic};
use blis_plugin::{Kind, Limits, check};

const POLICY: &str = "BLIS_TEST_POLICY";

/// Before the first look at memory: whatever grows to its size has grown.
const WARM_UP: usize = 50_000;
const CALLS: usize = 1_000_000;

/// More than noise of the allocator, and less than 3 bytes per call.
const MOST_KIB: i64 = 2_048;

#[test]
#[cfg(target_os = "linux")]
#[ignore = "heavy: `.ci/run` runs it in a step of its own"]
fn a_million_calls_leave_nothing_behind() {
    for policy in ["rust-least-loaded", "c-least-loaded", "rust-weighted-prefix", "rhai-least-loaded"] {
        // Memory is that of a process: this one is busy with other tests.
        let worker = Command::new(env::current_exe().expect("this test"))
            .args(["leaks::worker", "--exact", "--ignored", "--nocapture"])
            .env(POLICY, policy)
            .output()
            .expect("it starts");
        let message = String::from_utf8_lossy(&worker.stdout).into_owned();
        assert!(worker.status.success(), "{policy}: {message}{}", String::from_utf8_lossy(&worker.stderr));
        let growth = message.lines().find_map(|line| line.split_once("grew by ")?.1.strip_suffix(" KiB"));
        let growth: i64 = growth.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{policy}: {message}"));
        assert!(growth < MOST_KIB, "{policy}: {growth} KiB after {CALLS} calls");
        println!("{policy}: {growth} KiB more after {CALLS} calls");
    }
}

#[test]
#[ignore = "the test above runs it in a process of its own"]
fn worker() {
    // A run of all ignored tests includes this one.
    let Ok(policy) = env::var(POLICY) else { return };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let finder = Finder::new(vec![root.join("policies")]);
    let found = finder.find(&policy).expect("no trouble").expect("there is one");
    let loaded = finder.load(&found).expect("it loads");
    let setup = check::setup(&*loaded.plugin, Kind::Routing, 16, &Limits::default());
    let mut guest = loaded.plugin.start(&setup).expect("it starts");
    let questions = traffic(Kind::Routing, 16);
    let mut ask = |calls: usize| {
        for question in questions.iter().cycle().take(calls) {
            question.run(&mut *guest, &ties()).expect("an output");
        }
    };
    ask(WARM_UP);
    let before = resident_kib();
    ask(CALLS);
    println!("grew by {} KiB", resident_kib() - before);
}

fn resident_kib() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a line about memory");
    line.split_whitespace().nth(1).and_then(|text| text.parse().ok()).expect("a number")
}
