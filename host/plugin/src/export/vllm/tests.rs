use std::fs;
use std::path::Path;
use std::process::Command;

use blis_sim::cluster::Abort;
use blis_sim::offload::{ChunkKey, CpuTier, Lookup, Positioned, RankedChunks, RequestAccess, Stored};
use blis_sim::policy::BlockIds;
use blis_sim::policy::kv_cache::{ChunkUser, KvCachePolicy};
use blis_sim::units::Micros;

use super::*;
use crate::adapt::PluginPolicy;
use crate::incidents::{Incidents, OnError};
use crate::script::ScriptPlugin;
use crate::{Guest, Limits, Plugin as _, check};

const RECORDED: &str = include_str!("recorded.txt");
const SCRIPTS: [(&str, &str); 5] = [
    ("aged", include_str!("scripts/aged.rhai")),
    ("frequency", include_str!("scripts/frequency.rhai")),
    ("interval", include_str!("scripts/interval.rhai")),
    ("odd", include_str!("scripts/odd.rhai")),
    ("recency", include_str!("scripts/recency.rhai")),
];

fn export(name: &str, source: &str) -> Result<String, Fault> {
    exported(name, source, &[])
}

fn exported(name: &str, source: &str, set: &[(String, f64)]) -> Result<String, Fault> {
    let path = format!("{name}.rhai");
    vllm_cache_policy(&ExportedScript::read(Path::new(&path), source, set, &Limits::default())?)
}

/// The script `name` as a policy of a tier.
fn policy(name: &str) -> Box<dyn KvCachePolicy> {
    let (_, source) = SCRIPTS.iter().find(|(known, _)| *known == name).expect("a script");
    let limits = Limits::default();
    let plugin = ScriptPlugin::read(Path::new(name), source, &limits).expect("compiles");
    let guest = plugin.start(&check::setup(&plugin, Kind::KvCache, 4, &limits));
    let guest: Box<dyn Guest> = guest.expect("starts");
    let incidents = Incidents::new(OnError::Fail, Abort::default());
    Box::new(PluginPolicy::new(name, plugin.description(), guest, BlockIds::KEYS, &incidents))
}

/// A request of the record, and whether it tells positions.
struct LiveAccess {
    name: String,
    access: RequestAccess,
    has_positions: bool,
}

fn keys(list: &str) -> Vec<ChunkKey> {
    let all = if list == "-" { "" } else { list };
    all.split(',').filter(|key| !key.is_empty()).map(|key| ChunkKey(key.parse().expect("a key"))).collect()
}

/// Executes a line of the record on `tier` and compares the result with vLLM's.
fn execute(line: &str, tier: &mut CpuTier, requests: &mut Vec<LiveAccess>) {
    let words: Vec<&str> = line.split(' ').collect();
    let index = |requests: &[LiveAccess], name: &str| {
        requests.iter().position(|request| request.name == name).expect("a request")
    };
    let positioned = |request: &LiveAccess, list: &str| -> Vec<Positioned> {
        let position = |key: ChunkKey| request.has_positions.then_some(16 * (key.0 % 100 + 1) as u32);
        keys(list).into_iter().map(|key| (key, position(key))).collect()
    };
    match words[..] {
        ["now", time] => tier.set_moment(Micros(time.parse().expect("a time")), ChunkUser::default(), 0),
        ["new", name, form] => requests.push(LiveAccess {
            name: name.into(),
            access: RequestAccess::default(),
            has_positions: form == "positions",
        }),
        ["lookup", list, found_by_vllm] => {
            let found = keys(list).into_iter().map(|key| match tier.lookup(key) {
                Lookup::Miss => 'M',
                Lookup::Pending => 'P',
                Lookup::Hit => 'H',
            });
            assert_eq!(found.collect::<String>(), found_by_vllm, "{line}");
        }
        ["load", name, list] => {
            let request = index(requests, name);
            let chunks = positioned(&requests[request], list);
            tier.load(&chunks, &mut requests[request].access);
        }
        ["loaded", list] => tier.loaded(&keys(list)),
        ["written", list] => tier.written(&keys(list), true),
        ["failed", list] => tier.written(&keys(list), false),
        ["store", name, list, ref result @ ..] => {
            let request = index(requests, name);
            let chunks = positioned(&requests[request], list);
            let stored = tier.store(&chunks, &mut requests[request].access);
            let expected = match *result {
                ["refused"] => None,
                [chunks, evicted] => Some(Stored { chunks: keys(chunks), evicted: keys(evicted) }),
                _ => panic!("{line}"),
            };
            assert_eq!(stored, expected, "{line}");
        }
        ["end", name] => {
            let request = index(requests, name);
            tier.end(requests.remove(request).access);
        }
        _ => panic!("{line}"),
    }
}

#[test]
fn vllm_with_the_exported_class_and_the_tier_with_the_script_do_the_same() {
    let (mut tier, mut requests, mut sequences) = (None, Vec::new(), 0);
    for line in RECORDED.lines().skip(1) {
        if let Some(settings) = line.strip_prefix("tier ") {
            let words: Vec<&str> = settings.split(' ').collect();
            let [capacity, threshold, tracked] = [1, 2, 3].map(|at| words[at].parse::<usize>().expect("a number"));
            let ranked = Box::new(RankedChunks::new(policy(words[0]), 16));
            tier = Some(CpuTier::new(capacity, ranked, threshold as u32, tracked));
            requests.clear();
            sequences += 1;
        } else {
            execute(line, tier.as_mut().expect("a tier first"), &mut requests);
        }
    }
    assert_eq!(sequences, 200);
}

/// With the sources of vLLM 0.33 in the folder `$VLLM_WHEEL` (an unzipped wheel), the record is made again.
#[test]
fn the_record_is_that_of_vllm() {
    let Ok(wheel) = std::env::var("VLLM_WHEEL") else {
        println!("skipped: VLLM_WHEEL is not set to the folder of an unzipped wheel of vllm 0.33.0");
        return;
    };
    let folder = std::env::temp_dir().join(format!("blis-vllm-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    for (name, source) in SCRIPTS {
        let text = export(name, source).expect("it can be exported");
        fs::write(folder.join(format!("{name}.py")), text).expect("written");
    }
    let record = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sim/src/offload/tests/record.py");
    let output = Command::new("python3").arg(record).arg(wheel).arg(&folder).output().expect("python3 runs");
    fs::remove_dir_all(&folder).expect("removed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let recorded = String::from_utf8(output.stdout).expect("text");
    if std::env::var("BLIS_RECORD").is_ok() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/export/vllm/recorded.txt");
        fs::write(file, recorded).expect("written");
    } else {
        assert!(
            recorded == RECORDED,
            "vLLM does something else: record again with BLIS_RECORD=1, and read the difference"
        );
    }
}

#[test]
fn the_rank_is_a_python_expression() {
    let text = export("odd", SCRIPTS[3].1).expect("it can be exported");
    let start = text.find("    def _rank").expect("it has the rank");
    let body: String = text[start..].lines().take(4).map(|line| format!("{line}\n")).collect();
    insta::assert_snapshot!(body, @"
    def _rank(chunk, now):
        v_age = _divide(abs((now - chunk.created)), (1.0 + chunk.uses))
        v_kind = float(float(chunk.touch == 1.0) != 0.0 or float(float(chunk.uses > 2.0) != 0.0 and float(float(chunk.touch == 2.0) == 0.0) != 0.0) != 0.0)
        return ((_floor((_sqrt((v_age + 3.0)) + (5.0 * v_kind))) - _ln(chunk.uses)) + _larger(_exp(-(chunk.uses)), _divide((0.25 * (chunk.last_use - chunk.created)), 1000.0)))
    ");
    assert!(text.contains("class OddCachePolicy(CachePolicy):") && text.contains("from odd.rhai"), "{text}");
    assert!(!text.contains('@') || text.contains("@dataclass"), "placeholders are filled");
}

#[test]
fn parameters_are_numbers() {
    let with_worth = |worth: f64| {
        let set = [("worth".to_owned(), worth)];
        exported("aged", SCRIPTS[0].1, &set)
    };
    assert!(with_worth(77.5).expect("in range").contains("v_bonus = (77.5 * "));
    let message = with_worth(-1.0).expect_err("out of range").to_string();
    assert!(message.contains("from 0 to 1000000"), "{message}");
    let set = [("weight".to_owned(), 1.0)];
    let unknown = exported("aged", SCRIPTS[0].1, &set);
    assert!(unknown.expect_err("unknown").to_string().contains("no parameter `weight`"));
}

#[test]
fn what_vllm_cannot_have_is_one_error_with_its_location() {
    for (source, says, location) in [
        ("fn keep(c) { c.uses + c.tenant }", "does not know `tenant`", "1:25"),
        ("fn keep(c) {\n  let x = c.position;\n  x\n}", "does not know `position`", "2:13"),
        ("fn keep(c) { if c.uses[0] > 1.0 { c.uses } else { c.last_use } }", "only `let` and the rank", "1:14"),
        ("fn keep(c) { this.seen.get(1, 2.0) + c.uses }", "cannot be exported", "1:19"),
        ("fn keep(c) { sum(c.uses) + c.uses }", "`sum`", "1:14"),
        ("fn keep(c) { c.now / 1000 + c.uses }", "divided by a whole number", "1:20"),
        ("fn keep(c) { c.uses } fn load(h) { true }", "`load` has no counterpart", ""),
        ("fn load(h) { true }", "no function `keep`", ""),
    ] {
        let message = export("mine", source).map(|_| ()).expect_err(source).to_string();
        assert!(message.contains(says), "{source}: {message}");
        assert!(message.contains(location), "{source}: {message}");
    }
}
