//! Outcome regret through the program: the same bytes on any number of threads, the same branches for
//! built-in policies and plugins, a look-ahead that improves on a bad policy, and a bound that none passes.

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

/// Their decisions are the same, so their branches must be the same: copies of plugins behave as the plugins do.
#[test]
#[ignore = "heavy: `.ci/run` runs it in a step of its own"]
fn plugins_have_the_branches_of_the_equal_built_in_policy() {
    let of = |policy: &str| {
        let folder = Scratch::new();
        let all = "--regret-samples 600 --regret-alternatives 9";
        document(&format!(
            "regret {LOAD} {all} --routing-policy {policy} --regret-path {}",
            folder.path("regret.jsonl")
        ));
        let lines = folder.read("regret.jsonl");
        let mut branches = BTreeMap::new();
        for line in lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON")) {
            for branch in line["branches"].as_array().expect("branches") {
                let name = format!("{} {} {}", line["kind"], line["request_id"], branch["decision"]);
                branches
                    .insert(name, [&branch["cost_s"], &branch["rollout_cost_s"], &branch["e2e_ms"]].map(Value::clone));
            }
        }
        branches
    };
    let built_in = of("least-loaded");
    let routed = built_in.keys().filter(|name| name.starts_with("\"routing\"")).count();
    assert_eq!(routed, 300 * 4, "every instance for every request");
    for plugin in ["rust-least-loaded", "c-least-loaded", "rhai-least-loaded"] {
        let branches = of(plugin);
        let both = branches.iter().filter(|(name, _)| name.starts_with("\"routing\""));
        for (name, branch) in both {
            assert_eq!(Some(branch), built_in.get(name), "{plugin}: {name}");
        }
    }
}

fn figure<'a>(figures: &'a Value, name: &str) -> &'a Value {
    let figures = figures.as_array().expect("figures");
    figures.iter().find(|one| one["figure"] == name).unwrap_or_else(|| panic!("no {name}"))
}

#[test]
fn a_look_ahead_gains_more_over_a_bad_policy() {
    let few = LOAD.replace("300", "120");
    let gain = |policy: &str| {
        let found = document(&format!("regret {few} --look-ahead --regret-samples 4 --routing-policy {policy}"));
        let look_ahead = &found["look_ahead"];
        assert_eq!(number(&look_ahead["decisions"]), 120.0);
        number(&figure(&look_ahead["figures"], "mean_e2e")["gain"])
    };
    let (busiest, least) = (gain("always-busiest"), gain("least-loaded"));
    assert!(busiest > 0.1 && busiest > 5.0 * least.abs(), "{busiest} {least}");
}

/// The bound is that of the requests: the same for every policy that completes all of them, and above none of their
/// figures. Returns the least gap of each figure.
fn least_gaps(load: &str, policies: &[&str]) -> BTreeMap<String, f64> {
    let (mut least, mut bounds) = (BTreeMap::new(), Vec::new());
    for policy in policies {
        let words =
            format!("regret {load} --bound --regret-samples 1 --regret-alternatives 1 --routing-policy {policy}");
        let found = document(&words);
        let figures = found["bound"]["figures"].as_array().expect("figures");
        for one in figures {
            let (name, gap) = (one["figure"].as_str().expect("a name"), number(&one["gap"]));
            assert!(gap >= 0.0, "{words}: {one}");
            let known = least.entry(name.to_owned()).or_insert(gap);
            *known = gap.min(*known);
        }
        bounds.push(figures.iter().map(|one| one["bound"].clone()).collect::<Vec<_>>());
    }
    assert!(bounds.iter().all(|one| *one == bounds[0]), "{bounds:?}");
    least
}

const ROUTING: [&str; 6] = [
    "round-robin",
    "least-loaded",
    "weighted",
    "always-busiest",
    "rhai-least-loaded",
    "policies/prefix-then-load.rhai",
];

#[test]
#[ignore = "heavy: `.ci/run` runs it in a step of its own"]
fn no_policy_passes_the_bound_and_the_best_is_close_at_light_load() {
    let prefixes =
        "--model meta-llama/llama-3.1-8b-instruct --num-instances 4 --workload prefix-heavy --num-requests 150";
    for load in [LOAD.replace("--rate 60", "--rate 0.3"), format!("{prefixes} --rate 0.3")] {
        let least = least_gaps(&load, &ROUTING);
        assert!(least.values().all(|&gap| gap < 0.1), "{load}: {least:?}");
    }
    for load in [LOAD.to_owned(), format!("{prefixes} --rate 200")] {
        least_gaps(&load, &ROUTING);
    }
}

/// Overload, other schedulers, latency models, semantics and pipelines.
#[test]
fn no_configuration_passes_the_bound() {
    let overload = LOAD.replace("--rate 60", "--rate 400");
    for flags in [
        "--max-num-seqs 16",
        "--max-num-seqs 8 --scheduler sjf",
        "--latency-model trained-physics --max-num-seqs 64",
        "--latency-model roofline",
        "--parity blis",
        "--pp 2 --tp 2",
        "--total-kv-blocks 300",
        "--warmup 0.2",
    ] {
        let least = least_gaps(&format!("{overload} {flags}"), &["round-robin", "least-loaded"]);
        assert_eq!(least.len(), 6, "{flags}");
    }
}

#[test]
fn invalid_options_are_refused() {
    for (words, message) in [
        ("--regret-samples 0", "invalid value '0'"),
        ("--regret-window 0", "invalid value '0'"),
        ("--regret-path /nowhere/at/all.jsonl", "cannot write"),
        ("--regret wishful", "invalid value 'wishful'"),
    ] {
        let output = blis(&format!("regret {LOAD} {words}"), "1");
        let error = &output.stderr;
        assert!(output.code != Some(0) && error.contains(message), "{words}: {error}");
    }
}

/// Regression: a branch continued to the end of its request in steps of the window, a microsecond each.
#[test]
fn a_window_of_a_microsecond_ends() {
    let all = "--regret-samples 40 --regret-alternatives 1 --regret-window 0.000001";
    let regret = document(&format!("regret {LOAD} {all} --routing-policy least-loaded"));
    let regret = &regret["regret"];
    assert_eq!(number(&regret["window_s"]), 1e-6);
    assert_eq!(
        number(&regret["kinds"]["routing"]["uniform"]["regret_s"]),
        0.0,
        "no request waits longer within a microsecond"
    );
}

/// Of a service with one replica more than it needs each decision costs GPUs; of one that is too small, one more shortens the wait.
#[test]
fn another_number_of_replicas_costs_gpus_or_time() {
    let scaling = |replicas: u32, rate: &str| {
        let folder = Scratch::new();
        let service = "regret --model meta-llama/llama-3.1-8b-instruct --tp 1 --max-num-seqs 4 --num-requests 120 \
                       --autoscaler static --max-replicas 4 --startup-time 5s --routing-policy least-loaded";
        let more = format!("--policy-param scaling.replicas={replicas} --num-instances {replicas} --rate {rate}");
        let found = document(&format!("{service} {more} --regret-path {}", folder.path("regret.jsonl")));
        let lines = folder.read("regret.jsonl");
        let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let of_routing = lines.iter().any(|line| line["kind"] == "routing");
        assert_eq!(of_routing, replicas > 1, "where there is a choice, routing decisions have their regret as well");
        let of_scaling: Vec<Value> = lines.into_iter().filter(|line| line["kind"] == "scaling").collect();
        assert!(of_scaling.len() > 1, "{found}");
        (found["regret"]["kinds"]["scaling"]["uniform"].clone(), of_scaling)
    };
    let branches = |one: &Value| one["branches"].as_array().expect("branches").clone();
    let (uniform, large) = scaling(4, "0.5");
    assert!(number(&uniform["regret_s"]) > 0.0 && number(&uniform["share_positive"]) > 0.9, "{uniform}");
    // After the last arrival, at 240 s, a decision may be the last event.
    let is_before = |one: &&Value, end: f64| number(&one["time_us"]) < end;
    for one in large.iter().filter(|one| is_before(one, 240e6)) {
        let [actual, fewer] = &branches(one)[..] else { panic!("no more than 4 are allowed: {one}") };
        assert_eq!((&actual["decision"], &fewer["decision"]), (&"4 replicas".into(), &"3 replicas".into()));
        assert!(number(&fewer["gpu_s"]) < number(&actual["gpu_s"]), "{one}");
    }
    let (_, small) = scaling(1, "3");
    let waits = |branch: &Value| number(&branch["awaiting_first_token_s"]);
    let shorter = small.iter().filter(|one| is_before(one, 40e6)).filter(|one| {
        let [actual, more] = &branches(one)[..] else { panic!("one at least: {one}") };
        assert_eq!((&actual["decision"], &more["decision"]), (&"1 replica".into(), &"2 replicas".into()));
        assert!(number(&more["gpu_s"]) > number(&actual["gpu_s"]), "{one}");
        waits(more) < waits(actual)
    });
    assert!(shorter.count() > 0, "{small:?}");
}
