//! `blis search`: what it finds, that it goes on where it was killed, and what it refuses.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;

use crate::macros::{Scratch, blis, program, root};

const SUITE: &str = "sdk/python/tests/small.yaml";

/// The document of a search without the time that it took.
fn found(words: &str) -> Value {
    let mut document = blis!(format!("search {words} --output json")).done().json();
    let cpu_s = document.as_object_mut().and_then(|document| document.remove("cpu_s"));
    assert!(cpu_s.and_then(|time| time.as_f64()) >= Some(0.0), "{document:#}");
    document
}

fn number(document: &Value, pointer: &str) -> f64 {
    let value = document.pointer(pointer).and_then(Value::as_f64);
    value.unwrap_or_else(|| panic!("no number at {pointer}: {document:#}"))
}

#[test]
fn a_search_finds_a_script_that_is_better_than_its_reference() {
    let folder = Scratch::new();
    let script = folder.path("found.rhai");
    let document = found(&format!("{SUITE} --evaluations 48 --workers 2 --out {script}"));
    assert!(number(&document, "/champion/train_score") > 1.5, "round-robin looks at no cache: {document:#}");
    assert!(number(&document, "/champion/select_score") > 1.5, "{document:#}");
    assert_eq!(number(&document, "/evaluations"), 48.0);
    assert!(number(&document, "/cells") > 1.0, "{document:#}");
    let source = fs::read_to_string(&script).expect("the script");
    assert_eq!(document["champion"]["source"].as_str(), Some(source.as_str()));
    let evaluated = blis!(format!("evaluate {script} --suite {SUITE} --stage train --output json")).done().json();
    assert_eq!(number(&evaluated, "/metrics/train_score"), number(&document, "/champion/train_score"));
    let text = blis!(format!("search {SUITE} --evaluations 24 --output text")).done().stdout;
    assert!(text.contains("best of as many random") && text.contains("fn route(r, s)"), "{text}");
}

#[test]
fn a_search_is_the_same_on_any_number_of_workers_and_for_every_seed_another() {
    let one = found(&format!("{SUITE} --evaluations 48 --workers 1 --seed 3"));
    assert_eq!(one, found(&format!("{SUITE} --evaluations 48 --workers 3 --seed 3")));
    let random = "best_of_random";
    assert_ne!(one[random], found(&format!("{SUITE} --evaluations 48 --seed 4"))[random]);
}

#[test]
fn a_search_that_is_killed_goes_on_to_the_same_result() {
    let folder = Scratch::new();
    let [killed, whole] = ["killed.sqlite", "whole.sqlite"].map(|name| folder.path(name));
    let words = |archive: &str| format!("{SUITE} --evaluations 120 --workers 2 --archive {archive}");
    let mut process = program!(format!("search {}", words(&killed))).spawn().expect("it starts");
    // Each evaluation takes two kilobytes.
    const HALF: u64 = 150_000;
    while fs::metadata(&killed).map_or(0, |file| file.len()) < HALF {
        assert_eq!(process.try_wait().expect("a process"), None, "it ended before it was killed");
        sleep(Duration::from_millis(2));
    }
    process.kill().expect("it runs");
    process.wait().expect("it has ended");
    let before = fs::metadata(&killed).expect("an archive").len();
    let resumed = found(&words(&killed));
    assert!(fs::metadata(&killed).expect("an archive").len() > before, "it had more to evaluate");
    assert_eq!(resumed, found(&words(&whole)));
    // Everything is in the archive.
    assert_eq!(resumed, found(&words(&killed)));
}

#[test]
fn what_is_no_search_is_refused() {
    let folder = Scratch::new();
    let archive = folder.path("search.sqlite");
    blis!(format!("search {SUITE} --evaluations 1 --archive {archive}")).done();
    for (words, what, hint) in [
        (format!("{SUITE} --archive {archive} --seed 2"), "its seed is `1`, not `2`", "another file"),
        (format!("{SUITE} --kind admission"), "do not decide admission", "`--kind` takes routing"),
        (format!("{SUITE} --kind rooting"), "the kinds are", "routing"),
        ("nothing".to_owned(), "there is no suite", "built in are"),
        (format!("{SUITE} --archive {SUITE}"), "cannot be used", "name a new file"),
    ] {
        let ended = blis!(format!("search {words}"));
        assert_eq!(ended.code, Some(2), "{words}: {ended:?}");
        assert!(ended.stderr.contains(what) && ended.stderr.contains(hint), "{words}: {}", ended.stderr);
    }
}

/// Each folder of `examples/discoveries` is named for its suite.
#[test]
fn discoveries_are_better_than_the_reference_in_the_first_stage() {
    let mut found = 0;
    for folder in fs::read_dir(root().join("examples/discoveries")).expect("the discoveries").filter_map(Result::ok) {
        let script = folder.path().join("found.rhai");
        if !script.is_file() {
            continue;
        }
        let suite = folder.file_name().into_string().expect("a name");
        let script = script.canonicalize().expect("a file");
        let flags = format!("--suite {suite} --stage smoke --output json");
        let score = number(&blis!("evaluate", script, flags).done().json(), "/metrics/smoke_score");
        assert!(score > 1.0, "{suite}: {score}");
        found += 1;
    }
    assert!(found > 0, "no discoveries");
}
