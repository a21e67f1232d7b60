//! The recorded counters and KV events of vLLM's own scheduler (`cases/files`).

use std::collections::BTreeMap;
use std::path::Path;

use blis_sim::instance::{Fast, Instance, InstanceConfig, Plain};
use blis_sim::outcome::Counters;
use blis_sim::units::Micros;
use serde_json::{Value, json};

use super::RecordedScenario;
use super::case::STEP;

/// The cases of the file, if it is there.
fn cases(name: &str) -> Vec<Value> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/cases/files").join(name);
    let Ok(text) = std::fs::read_to_string(&file) else {
        eprintln!("skipped: {} is not there", file.display());
        return Vec::new();
    };
    let file: Value = serde_json::from_str(&text).expect("JSON");
    file["cases"].as_array().expect("cases").clone()
}

fn number(value: &Value) -> u32 {
    value.as_u64().and_then(|number| number.try_into().ok()).unwrap_or_else(|| panic!("{value} is no number"))
}

/// The requests as `blis steps` reads them. Their outputs are all different, and so are prompts that are only a length.
fn requests(case: &Value) -> Vec<Value> {
    let requests = case["requests"].as_array().expect("requests").iter().enumerate();
    let request = requests.map(|(i, request)| {
        let base = 1_000_000 * (i as u32 + 1);
        let prompt =
            if request["prompt"].is_array() { request["prompt"].clone() } else { json!([[base, request["prompt"]]]) };
        json!({
            "id": format!("r{i}"),
            "prompt": prompt,
            "max_tokens": request["output"],
            "arrival_step": request["arrives_before_step"],
            "out_base": base + 500_000,
        })
    });
    request.collect()
}

/// Advances `instance` to just after the start of each step up to `steps`, and calls `at` with it and the number of the step.
fn follow<I: Instance>(instance: &mut I, case: &RecordedScenario, steps: u32, mut at: impl FnMut(&mut I, u32)) {
    let mut arrivals = case.arrivals(16).into_iter().peekable();
    for step in 1..=steps {
        let now = Micros(u64::from(step) * STEP);
        instance.advance(now, &mut ()).expect("progress");
        while let Some(request) = arrivals.next_if(|request| request.arrival <= now) {
            instance.arrive(now, request);
        }
        instance.advance(now + Micros(STEP / 2), &mut ()).expect("progress");
        at(instance, step);
    }
}

/// The counters of both engines, which must be equal, and the load after the start of each step: requests in the batch and in the
/// queue, share of the KV blocks in use.
fn counted(case: &RecordedScenario, steps: u32) -> (Counters, Vec<[f64; 3]>) {
    fn run<I: Instance>(mut instance: I, case: &RecordedScenario, steps: u32) -> (Counters, Vec<[f64; 3]>) {
        let mut loads = Vec::new();
        follow(&mut instance, case, steps, |instance, _| {
            let load = instance.load();
            let used = f64::from(load.used_kv_blocks) / f64::from(load.total_kv_blocks);
            loads.push([load.batch_size.into(), load.queue_depth.into(), used]);
        });
        (instance.finish(Micros::MAX, &mut ()), loads)
    }
    let config = case.instance().expect("a KV cache");
    let plain = run(Plain::new(config.clone()), case, steps);
    assert_eq!(plain, run(Fast::new(config), case, steps));
    plain
}

#[test]
fn counters_are_those_of_vllm() {
    for case in cases("counters.json") {
        let name = format!("{} of vLLM {}", case["name"], case["vllm_version"]);
        let mut config = case["config"].clone();
        config["max_model_len"] = 100_000.into();
        let scenario = json!({"vllm": case["vllm_version"], "config": config, "requests": requests(&case)});
        let scenario = RecordedScenario::read(&scenario.to_string()).expect("a scenario");
        let expect = &case["expect"];
        let (counters, loads) = counted(&scenario, number(&case["steps"]) + 2);
        let found = counters.prefix_cache;
        let exported = [found.queries, found.hits, counters.preemptions];
        let expected =
            ["prefix_cache_queries", "prefix_cache_hits", "preemptions"].map(|key| u64::from(number(&expect[key])));
        assert_eq!(exported, expected, "{name}");
        if case["vllm_version"] == "0.33.0" {
            // vLLM 0.15 counts each look-up of a preempted request, and not its admission.
            let apart = ["queries", "hits"].map(|key| u64::from(number(&expect["excluded"][key])));
            assert_eq!([found.preempted_queries, found.preempted_hits], apart, "{name}: preempted");
        }
        for row in case["gauges"]["rows"].as_array().expect("rows") {
            let ours = loads[number(&row[0]) as usize - 1];
            let expected = [&row[1], &row[2], &row[3]].map(|value| value.as_f64().expect("a number"));
            let is_same = ours.iter().zip(expected).all(|(ours, theirs)| (ours - theirs).abs() < 1e-6);
            assert!(is_same, "{name}: {ours:?} instead of {row}");
        }
    }
}

/// Blocks by request after each step that vLLM published until its end.
fn published<I: Instance>(mut instance: I, case: &RecordedScenario, steps: u32) -> Vec<BTreeMap<String, u32>> {
    instance.watch_cache();
    // Its requests: the first block, and those with tokens of its prompt. Blocks of outputs alone have no name in the recording.
    let owner = |key: u32| {
        let owner = case.arrivals(16).into_iter().find_map(|request| {
            let index = request.content.keys().position(|other| other == key)?;
            let of_prompt = (index as u32) * 16 < request.input_tokens;
            Some(if of_prompt { format!("r{}", request.id.0) } else { "r9".to_owned() })
        });
        owner.expect("a block of a request")
    };
    let (mut stored, mut rows) = (BTreeMap::new(), Vec::new());
    follow(&mut instance, case, steps, |instance, step| {
        let now = Micros(u64::from(step) * STEP + STEP / 2);
        instance.cache_changes(now, &mut |key, is_present| {
            assert!(is_present, "there is room for all");
            *stored.entry(owner(key)).or_insert(0) += 1;
        });
        rows.push(stored.clone());
    });
    rows
}

#[test]
fn kv_events_are_published_when_vllm_publishes_them() {
    for case in cases("kv-events.json") {
        let config = json!({
            "max_num_seqs": 16, "max_num_batched_tokens": case["max_num_batched_tokens"], "block_size": 16,
            "num_blocks": 1025, "max_model_len": 100_000, "async": case["async_scheduling"],
        });
        let scenario = json!({"config": config, "requests": requests(&case)});
        let scenario = RecordedScenario::read(&scenario.to_string()).expect("a scenario");
        let events = case["events"].as_array().expect("events");
        let steps =
            case["steps"].as_array().expect("steps").iter().map(|step| number(&step["step"])).max().expect("steps");
        let config: InstanceConfig = scenario.instance().expect("a KV cache");
        let plain = published(Plain::new(config.clone()), &scenario, steps + 2);
        assert_eq!(plain, published(Fast::new(config), &scenario, steps + 2), "{}", case["name"]);
        for step in 1..=steps {
            let mut expected = BTreeMap::new();
            let until = events.iter().filter(|event| number(&event["end_of_step"]) <= step);
            let blocks = until.flat_map(|event| event["stored"].as_object().expect("blocks"));
            blocks.for_each(|(name, blocks)| *expected.entry(name.clone()).or_insert(0) += number(blocks));
            // A step ends where the next one starts.
            assert_eq!(plain[step as usize], expected, "{}: at the end of step {step}", case["name"]);
        }
    }
}
