//! `blis search --worker-command`: evaluations in other processes, as on other machines.

use std::fs;

use serde_json::Value;

use crate::macros::{Ended, Scratch, blis, program, root};
use crate::search::{SUITE, found};

/// A command that evaluates two candidates at a time.
fn server(suite: &str) -> String {
    let program = program!("").get_program().to_str().expect("a path").to_owned();
    format!("{program} serve --stdio --suite {suite} --threads 2")
}

fn search(words: &str, command: &str) -> Ended {
    blis!(format!("search {SUITE} {words} --output json"), ["--worker-command", command])
}

fn without_time(ended: Ended) -> Value {
    let mut document = ended.done().json();
    document.as_object_mut().expect("an object").remove("cpu_s");
    document
}

/// Regression: the same suite in another folder had another hash, because its own workloads were named after its file.
#[test]
fn the_hash_of_a_suite_does_not_depend_on_where_its_file_lies() {
    let folder = Scratch::new();
    let copy = folder.path("small.yaml");
    fs::copy(root().join(SUITE), &copy).expect("copied");
    let hash = |suite: &str| {
        let document =
            blis!(format!("evaluate least-loaded --suite {suite} --stage smoke --output json")).done().json();
        document["hashes"]["suite"].as_str().expect("a hash").to_owned()
    };
    let here = hash(SUITE);
    assert_eq!(here, hash(&copy));
    let text = fs::read_to_string(&copy).expect("the copy");
    assert!(text.contains("aggregate_rate: "), "{text}");
    fs::write(&copy, text.replacen("aggregate_rate: ", "aggregate_rate: 1", 1)).expect("written");
    assert_ne!(here, hash(&copy), "another workload");
}

#[test]
#[ignore = "heavy: `.ci/run` runs it in a step of its own"]
fn results_of_other_processes_are_those_of_this_one() {
    let folder = Scratch::new();
    let [here, there] = ["here.sqlite", "there.sqlite"].map(|name| folder.path(name));
    // The suite lies elsewhere there.
    let copy = folder.path("small.yaml");
    fs::copy(root().join(SUITE), &copy).expect("copied");
    let local = found(&format!("{SUITE} --evaluations 48 --patterns=32 --archive {here}"));
    let words = format!("--evaluations 48 --patterns=32 --workers 0 --archive {there}");
    assert_eq!(without_time(search(&words, &server(&copy))), local);
    assert_eq!(without_time(search("--evaluations 48 --patterns=32 --workers 1", &server(SUITE))), local);
    // All of every evaluation, but the time that it took.
    let rows = |path: &str| -> Vec<String> {
        let connection = rusqlite::Connection::open(path).expect("an archive");
        let mut query = connection.prepare("SELECT * FROM evaluations ORDER BY phase, number").expect("a query");
        let names: Vec<String> = query.column_names().into_iter().map(str::to_owned).collect();
        let shown = |row: &rusqlite::Row<'_>| {
            let all = names.iter().filter(|name| *name != "cpu_ms");
            all.map(|name| row.get_ref(name.as_str()).map(|value| format!("{value:?}"))).collect::<Result<String, _>>()
        };
        query.query_map([], shown).expect("rows").map(|row| row.expect("a row")).collect()
    };
    let all = rows(&here);
    assert!(all.len() > 100 && all == rows(&there), "{} evaluations", all.len());
}

/// A server that receives some requests and not those after them.
fn dying(count: usize) -> String {
    format!("sed -u {count}q | {}", server(SUITE))
}

#[test]
#[ignore = "heavy: `.ci/run` runs it in a step of its own"]
fn evaluations_of_a_worker_that_ends_go_to_the_others() {
    let local = found(&format!("{SUITE} --evaluations 48"));
    let ended = search("--evaluations 48 --workers 1", &dying(6));
    assert_eq!(ended.stderr.matches("has ended").count(), 1, "one warning: {ended:?}");
    assert!(ended.stderr.contains("exit status: 0") && ended.stderr.contains("the others evaluate"), "{ended:?}");
    assert_eq!(without_time(ended), local);
}

#[test]
fn a_search_without_workers_ends_and_goes_on_later() {
    let folder = Scratch::new();
    let archive = folder.path("search.sqlite");
    let words = format!("--evaluations 48 --archive {archive}");
    let ended = search(&format!("{words} --workers 0"), &dying(40));
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("error: no worker is left: the worker `sed -u 40q"), "{ended:?}");
    assert!(ended.stderr.contains("hint: run the command again: it goes on where it ended"), "{ended:?}");
    let before = fs::metadata(&archive).expect("an archive").len();
    let resumed = found(&format!("{SUITE} {words}"));
    assert!(fs::metadata(&archive).expect("an archive").len() > before);
    assert_eq!(resumed, found(&format!("{SUITE} --evaluations 48")));
}

#[test]
fn workers_with_other_results_are_refused() {
    let folder = Scratch::new();
    let other = folder.path("small.yaml");
    let suite = fs::read_to_string(root().join(SUITE)).expect("the suite");
    fs::write(&other, format!("{suite}# changed\n")).expect("written");
    let status = r#"read hello; echo '{"host": "blis 0.0.1 z80-cpm", "suites": {}, "threads": 1}'"#;
    for (command, what, hint) in [
        (server(&other), "has another suite `small`: its SHA-256 is", "the same files"),
        (server("chat"), "does not have the suite `small`", "the same files"),
        (status.to_owned(), "runs `blis 0.0.1 z80-cpm`, but this is `blis ", "install the same program there"),
        ("exit 3".to_owned(), "the worker `exit 3` has ended (exit status: 3)", "`ssh HOST blis serve"),
        ("echo Welcome; cat".to_owned(), "but with `Welcome`", "`ssh HOST blis serve"),
    ] {
        let ended = search("--evaluations 24", &command);
        assert_eq!(ended.code, Some(2), "{command}: {ended:?}");
        assert!(ended.stderr.contains(what) && ended.stderr.contains(hint), "{command}: {}", ended.stderr);
    }
    let ended = blis!(format!("search {SUITE} --workers 0"));
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("nothing evaluates") && ended.stderr.contains("--worker-command"), "{ended:?}");
}
