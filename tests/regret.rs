//! Outcome regret through the program: the same bytes on any number of threads, the same worlds whoever
//! the policy is written by, and a look-ahead that finds what a bad policy leaves.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::macros::{Ended, Scratch, ended, program};

const LOAD: &str = "--model meta-llama/llama-3.1-8b-instruct --num-instances 4 --workload chatbot --rate 60 \
                    --arrival-process poisson --num-requests 300";

fn blis(words: &str, threads: &str) -> Ended {
    ended(program!(words).env("RAYON_NUM_THREADS", threads))
}

fn document(words: &str) -> Value {
    blis(words, "2").json()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no number: {value}"))
}

#[test]
fn threads_and_repetition_change_no_byte() {
    let regret = |threads: &str| blis(&format!("regret {LOAD} --routing-policy weighted"), threads).stdout;
    let one = regret("1");
    assert!(one.len() > 1_000);
    assert_eq!(one, regret("2"));
    assert_eq!(one, regret("2"));
}

/// Their decisions are the same, so their worlds must be, too: copies of plugins go on as the plugins do.
#[test]
#[ignore = "heavy: `.ci/run` runs it in a step of its own"]
fn plugins_have_the_worlds_of_the_built_in_that_decides_alike() {
    let of = |policy: &str| {
        let folder = Scratch::new();
        let all = "--regret-samples 600 --regret-alternatives 9";
        document(&format!(
            "regret {LOAD} {all} --routing-policy {policy} --regret-path {}",
            folder.path("regret.jsonl")
        ));
        let lines = folder.read("regret.jsonl");
        let mut worlds = BTreeMap::new();
        for line in lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON")) {
            for world in line["worlds"].as_array().expect("worlds") {
                let name = format!("{} {} {}", line["kind"], line["request_id"], world["answer"]);
                worlds.insert(name, [&world["cost_s"], &world["reacting_cost_s"], &world["e2e_ms"]].map(Value::clone));
            }
        }
        worlds
    };
    let built_in = of("least-loaded");
    let routed = built_in.keys().filter(|name| name.starts_with("\"routing\"")).count();
    assert_eq!(routed, 300 * 4, "every instance for every request");
    for plugin in ["rust-least-loaded", "c-least-loaded", "rhai-least-loaded"] {
        let worlds = of(plugin);
        let both = worlds.iter().filter(|(name, _)| name.starts_with("\"routing\""));
        for (name, world) in both {
            assert_eq!(Some(world), built_in.get(name), "{plugin}: {name}");
        }
    }
}

#[test]
fn a_look_ahead_finds_what_is_left() {
    let few = LOAD.replace("300", "120");
    let gap = |policy: &str| {
        let found = document(&format!("regret {few} --oracle --regret-samples 4 --routing-policy {policy}"));
        let oracle = &found["oracle"];
        assert_eq!(number(&oracle["decisions"]), 120.0);
        let figures = oracle["figures"].as_array().expect("figures");
        number(&figures.iter().find(|one| one["figure"] == "mean_e2e").expect("it is compared")["gap"])
    };
    let (busiest, least) = (gap("always-busiest"), gap("least-loaded"));
    assert!(busiest > 0.1 && busiest > 5.0 * least.abs(), "{busiest} {least}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (words, told) in [
        ("--regret-samples 0", "invalid value '0'"),
        ("--regret-window 0", "invalid value '0'"),
        ("--regret-path /nowhere/at/all.jsonl", "cannot write"),
        ("--regret wishful", "invalid value 'wishful'"),
    ] {
        let output = blis(&format!("regret {LOAD} {words}"), "1");
        let error = &output.stderr;
        assert!(output.code != Some(0) && error.contains(told), "{words}: {error}");
    }
}

/// It went on to the end of a request in strides of the window: a microsecond each.
#[test]
fn a_window_of_a_microsecond_ends() {
    let all = "--regret-samples 40 --regret-alternatives 1 --regret-window 0.000001";
    let regret = document(&format!("regret {LOAD} {all} --routing-policy least-loaded"));
    let regret = &regret["regret"];
    assert_eq!(number(&regret["window_s"]), 1e-6);
    assert_eq!(number(&regret["kinds"]["routing"]["uniform"]["regret_s"]), 0.0, "nobody waits longer in no time");
}
