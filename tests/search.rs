//! `blis search`: what it finds, that it goes on where it was killed, and what it refuses.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use blis_eval::evaluation::candidate::CandidatePolicy;
use blis_eval::evaluation::record::PolicyRecord;
use blis_eval::suite::Suite;
use serde_json::Value;

use crate::macros::{Scratch, blis, program, root};

pub(crate) const SUITE: &str = "sdk/python/tests/small.yaml";

/// The document of a search without the time that it took.
pub(crate) fn found(words: &str) -> Value {
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
#[ignore = "heavy: `.ci/run` runs it in a step of its own"]
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
#[ignore = "heavy: `.ci/run` runs it in a step of its own"]
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

/// The patterns of programs are in the archive, and a search that goes on from it has the same result.
#[test]
#[ignore = "heavy: `.ci/run` runs it in a step of its own"]
fn patterns_of_a_search_are_in_its_archive() {
    let folder = Scratch::new();
    let archive = folder.path("search.sqlite");
    let words = format!("{SUITE} --evaluations 72 --patterns=32 --archive {archive}");
    let one = found(&format!("{words} --workers 2"));
    let connection = rusqlite::Connection::open(&archive).expect("an archive");
    let count = |condition: &str| -> i64 {
        let all = format!("SELECT count(*) FROM evaluations WHERE {condition}");
        connection.query_row(&all, [], |row| row.get(0)).expect("a number")
    };
    let named = "patterns LIKE '%\"kind\":\"routing\",\"signal\":\"%'";
    assert!(count(named) > 3, "{}", count("phase = 'search' AND rung = 2"));
    assert_eq!(count(&format!("{named} AND rung = 1")), 0, "only what reaches train");
    assert_eq!(one, found(&words), "from the archive");
    let refused = blis!(format!("search {SUITE} --evaluations 72 --archive {archive}"));
    assert!(refused.stderr.contains("its patterns is `32`, not `0`"), "{}", refused.stderr);
}

/// The costs of decisions are in the archive, and a search that goes on from it has the same result.
#[test]
#[ignore = "heavy: `.ci/run` runs it in a step of its own"]
fn costs_of_decisions_are_in_the_archive_of_a_search() {
    let folder = Scratch::new();
    let archive = folder.path("search.sqlite");
    let words = format!("{SUITE} --evaluations 72 --decisions=16 --archive {archive}");
    let one = found(&format!("{words} --workers 2"));
    let connection = rusqlite::Connection::open(&archive).expect("an archive");
    let samples: i64 = connection
        .query_row("SELECT sum(json_array_length(decisions)) FROM decision_costs", [], |row| row.get(0))
        .expect("a number");
    // One sample before the second batch: 16 decisions in each of the two scenarios of train.
    assert_eq!(samples, 32);
    assert_eq!(one, found(&words), "from the archive");
    // The batch that was chosen by them is lost: it is made again.
    connection.execute("DELETE FROM evaluations WHERE phase = 'search' AND batch > 1", []).expect("an archive");
    assert_eq!(one, found(&words), "again");
    assert_ne!(one, found(&format!("{SUITE} --evaluations 72")), "other programs than without");
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
        (format!("{SUITE} --decisions=8"), "`decisions` is 8 decisions", "from 16 to 10000"),
        ("gateway --kind admission --decisions".to_owned(), "this search has none", "leave it out"),
        ("nothing".to_owned(), "there is no suite", "built in are"),
        (format!("{SUITE} --archive {SUITE}"), "cannot be used", "name a new file"),
    ] {
        let ended = blis!(format!("search {words}"));
        assert_eq!(ended.code, Some(2), "{words}: {ended:?}");
        assert!(ended.stderr.contains(what) && ended.stderr.contains(hint), "{words}: {}", ended.stderr);
    }
}

/// A record of a script on a small suite, in a folder of its own; `figures` are its held-out score and the limits of the interval.
fn write_record(folder: &Scratch, sha256: &str, figures: [f64; 3]) -> String {
    let suite = fs::read_to_string(root().join(SUITE)).expect("the suite");
    let suite = suite.replace("test: 2", "test: 6");
    fs::write(folder.path("small.yaml"), suite).expect("written");
    fs::write(folder.path("found.rhai"), "fn route(r, s) { 3.0 * most_best(s.cached_blocks) - s.in_flight }")
        .expect("written");
    let [score, low, high] = figures;
    let text = format!(
        "schema: 1\nabout: cached blocks, and few requests\nsuite: small.yaml\nsuite_version: 1\npolicy: found.rhai\nsha256: {sha256}\n\
         held_out: {{score: {score}, low: {low}, high: {high}}}\nbetter_than: [round-robin]\n\
         found: {{command: by hand, seed: 1, number: 0, evaluations: 1, cpu_s: 0.5}}\n"
    );
    let path = folder.path("record.yaml");
    fs::write(&path, text).expect("written");
    path
}

#[test]
fn a_record_holds_if_the_policy_is_what_it_claims() {
    let folder = Scratch::new();
    // Another policy than the recorded one is not evaluated.
    let record = write_record(&folder, "00", [1.5, 1.4, 1.6]);
    let ended = blis!(format!("evaluate --record {record} --output json"));
    assert_eq!(ended.code, Some(5), "{ended:?}");
    let document: Value = serde_json::from_str(&ended.stdout).expect("a document");
    let failed = document["failed"][0].as_str().expect("a reason");
    let (what, sha256) = failed.rsplit_once(' ').expect("a hash");
    assert_eq!(
        (what, document["measured"].is_null()),
        ("the policy is another one: its SHA-256 is", true),
        "{document:#}"
    );
    // The record claims too much.
    let record = write_record(&folder, sha256, [9.5, 9.4, 9.6]);
    let ended = blis!(format!("evaluate --record {record} --output json"));
    assert_eq!(ended.code, Some(5), "{ended:?}");
    let document: Value = serde_json::from_str(&ended.stdout).expect("a document");
    let reason = "the recorded score 9.5000 is outside of the interval that was measured";
    assert_eq!(
        (document["failed"][0].as_str(), document["failed"].as_array().map(Vec::len)),
        (Some(reason), Some(1)),
        "{document:#}"
    );
    // What was measured is what it is worth.
    let measured = ["score", "low", "high"].map(|name| number(&document, &format!("/measured/{name}")));
    assert!(measured[0] > 1.2 && measured[1] > 1.0, "round-robin looks at no cache: {document:#}");
    let record = write_record(&folder, sha256, measured);
    let document = blis!(format!("evaluate --record {record} --output json")).done().json();
    assert_eq!(
        (document["holds"].as_bool(), document["better_than"][0]["holds"].as_bool()),
        (Some(true), Some(true)),
        "{document:#}"
    );
    let text = blis!(format!("evaluate --record {record} --output text")).done().stdout;
    assert!(text.ends_with("The record holds.\n") && text.contains("Better than       round-robin"), "{text}");
}

#[test]
fn what_is_no_record_is_refused() {
    let folder = Scratch::new();
    let wrong = folder.path("wrong.yaml");
    fs::write(folder.path("found.rhai"), "fn route(r, s) { -s.in_flight }").expect("written");
    let record = fs::read_to_string(root().join("examples/discoveries/shared-prefix/record.yaml")).expect("a record");
    let with = |old: &str, new: &str| {
        assert!(record.contains(old), "{old}");
        fs::write(&wrong, record.replace(old, new)).expect("written");
    };
    for (old, new, what, hint) in [
        ("schema: 1", "schema: 2", "records of schema `2` are not supported", "`schema: 1`"),
        ("policy: found.rhai", "policy: lost.rhai", "`lost.rhai` cannot be read", "in the folder of the record"),
        ("low: ", "low: 9", "is not between", "the limits of its interval"),
        ("better_than", "better_then", "better_then", "better_than"),
    ] {
        with(old, new);
        let ended = blis!(format!("evaluate --record {wrong}"));
        assert_eq!(ended.code, Some(2), "{new}: {ended:?}");
        assert!(ended.stderr.contains(what) && ended.stderr.contains(hint), "{new}: {}", ended.stderr);
    }
    let ended = blis!("evaluate --record shared-prefx");
    assert!(ended.code == Some(2) && ended.stderr.contains("did you mean `shared-prefix`?"), "{ended:?}");
    let ended = blis!("evaluate weighted --record shared-prefix");
    assert!(ended.code == Some(2) && ended.stderr.contains("--record"), "{ended:?}");
}

/// `blis evaluate --record` checks them whole, which takes a minute each.
#[test]
fn records_are_those_of_their_policies() {
    let names = PolicyRecord::built_in();
    assert!(!names.is_empty(), "no records");
    for name in names {
        let path = root().join("examples/discoveries").join(&name);
        let [record, policy] =
            ["record.yaml", "found.rhai"].map(|file| path.join(file).to_str().expect("a path").to_owned());
        let record = PolicyRecord::open(&record).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(record.sha256, CandidatePolicy::read(&policy, None).expect("the policy").sha256, "{name}");
        let suite = Suite::open(&record.suite).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        assert_eq!(record.suite_version, suite.version, "{name}");
        let known = |other: &String| {
            [&suite.reference, &suite.baseline].contains(&other) || suite.reference_policies.contains(other)
        };
        assert!(!record.better_than.is_empty() && record.better_than.iter().all(known), "{name}: {record:?}");
        let is_better = record.better_than.contains(&suite.reference);
        assert!(!is_better || record.held_out.low > 1.0, "{name}: {record:?}");
    }
}

/// Those that are better than the reference of their suite, and are so in runs of four times the length, too: `agentic` had a record
/// that was due to the first minutes after the start alone.
#[test]
#[ignore = "heavy: `.ci/run` runs it in a step of its own"]
fn discoveries_are_better_than_the_reference_in_the_first_stage_and_in_longer_runs() {
    let (scratch, folder) = (Scratch::new(), root().join("examples/discoveries"));
    let mut found = 0;
    for name in PolicyRecord::built_in() {
        let [record, script] = ["record.yaml", "found.rhai"].map(|file| folder.join(&name).join(file));
        let record = PolicyRecord::open(record.to_str().expect("a path")).expect("a record");
        let suite = Suite::open(&record.suite).expect("a suite");
        if !record.better_than.contains(&suite.reference) {
            continue;
        }
        let longer = scratch.path(&format!("{name}.yaml"));
        fs::write(&longer, with_requests(&record.suite, 4)).expect("written");
        let [usual, long] = [&record.suite, &longer].map(|suite| {
            let flags = format!("--suite {suite} --stage smoke --output json");
            number(&blis!("evaluate", script, flags).done().json(), "/metrics/smoke_score")
        });
        assert!(usual > 1.0 && long > 1.0 + (usual - 1.0) / 3.0, "{name}: {usual}, in longer runs {long}");
        found += 1;
    }
    assert!(found > 0, "no discoveries");
}

/// The suite of this repository with so many times the requests in every scenario.
fn with_requests(suite: &str, times: u32) -> String {
    let text = fs::read_to_string(root().join(format!("examples/suites/{suite}.yaml"))).expect("a suite");
    let (mark, mut longer) = ("num-requests: ", String::new());
    let mut parts = text.split(mark);
    longer += parts.next().expect("a beginning");
    for part in parts {
        let digits = part.find(|one: char| !one.is_ascii_digit()).expect("a number ends");
        let count: u32 = part[..digits].parse().expect("a number");
        longer += &format!("{mark}{}{}", times * count, &part[digits..]);
    }
    longer
}
