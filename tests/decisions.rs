//! The decision trace from outside: what `--trace-path` writes fits its schema and the results of the run, and
//! `blis decisions` reads it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};

use jsonschema::Validator;
use serde_json::Value;

use crate::macros::{Scratch, blis, root};

/// A folder in which the program runs, removed when the test ends.
struct Folder(Scratch);

impl Folder {
    /// Standard output of a command that must go well.
    fn output(&self, arguments: &str) -> String {
        blis!(in &self.0, arguments).done().stdout
    }

    /// Standard error of a command that must fail, and its exit code.
    fn refused(&self, arguments: &str) -> (String, Option<i32>) {
        let output = blis!(in &self.0, arguments);
        assert_ne!(output.code, Some(0), "blis {arguments}: {}", output.stdout);
        (output.stderr, output.code)
    }

    /// Simulates, and gives the trace and the printed figures.
    fn trace(&self, file: &str, flags: &str) -> (Vec<Value>, Value) {
        let printed = self.output(&format!("{RUN} {flags} --trace-level decisions --trace-path {file}"));
        (self.lines(file), serde_json::from_str(&printed).expect("JSON"))
    }

    fn lines(&self, file: &str) -> Vec<Value> {
        let bytes = fs::read(self.0.join(file)).expect("written");
        let mut lines = String::new();
        let mut decoder = flate2::read::MultiGzDecoder::new(&bytes[..]);
        if file.ends_with(".gz") {
            decoder.read_to_string(&mut lines).expect("gzip");
        } else {
            lines = String::from_utf8(bytes).expect("text");
        }
        lines.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
    }
}

/// Two instances that are too small for what comes: queues, preemptions, cached prefixes.
const RUN: &str = "run --latency-model trained-physics --model llama-3.1-8b-instruct --num-requests 30 --rate 40 --arrival-process poisson \
                   --prompt-tokens 100 --prompt-tokens-stdev 60 --output-tokens 60 --output-tokens-stdev 30 \
                   --prefix-tokens 64 --num-instances 2 --total-kv-blocks 40 --max-num-seqs 6 --timeout -1";

/// The whole variety of policies and ends.
const VARIETY: [&str; 9] = [
    "--routing-policy round-robin",
    "--routing-policy round-robin --counterfactual-k 2",
    "--routing-policy weighted --counterfactual-k 1",
    "--routing-policy least-loaded --snapshot-refresh-interval 0 --scheduler sjf",
    "--routing-policy weighted --routing-scorers prefix-affinity:2,queue-depth:1 --timeout 1",
    "--admission-policy token-bucket --token-bucket-capacity 500 --token-bucket-refill-rate 2000",
    "--parity blis --horizon 600000 --max-model-len 200 --preemption-policy priority",
    "--parity blis --flow-control --saturation-detector concurrency --max-concurrency 2 --max-gateway-queue-depth 10 --request-ttl 300ms",
    "--flow-control --saturation-detector concurrency --max-concurrency 2 --timeout 1 --horizon 1200000",
];

fn schema() -> Validator {
    let path = root().join("docs/decision-trace.schema.json");
    let schema: Value = serde_json::from_str(&fs::read_to_string(path).expect("the schema")).expect("JSON");
    jsonschema::draft202012::meta::validate(&schema).expect("a schema");
    jsonschema::draft202012::new(&schema).expect("a schema")
}

fn of_kind<'a>(lines: &'a [Value], kind: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["kind"] == kind).collect()
}

#[test]
fn every_line_fits_the_schema() {
    let (folder, schema) = (Folder(Scratch::new()), schema());
    let mut kinds: BTreeMap<String, u32> = BTreeMap::new();
    for flags in VARIETY {
        let (lines, _) = folder.trace("d.jsonl", flags);
        for line in &lines {
            let faults: Vec<String> = schema.iter_errors(line).map(|error| error.to_string()).collect();
            assert!(faults.is_empty(), "{flags}: {line}\n{faults:?}");
            let what = line["status"]
                .as_str()
                .or(line["obstacle"].as_str())
                .or(line["decision"].as_str())
                .or(line["kind"].as_str());
            *kinds.entry(what.expect("a kind").to_owned()).or_default() += 1;
        }
        assert_eq!(lines.last().expect("lines")["lines"], lines.len() - 1);
    }
    // The runs are worth something only if they bring up everything.
    for what in [
        "header",
        "signals",
        "admission",
        "routing",
        "enters",
        "preemption",
        "end",
        "completed",
        "timed-out",
        "rejected-by-admission",
        "running",
        "batch-full",
        "kv-blocks",
        "refused",
        "dispatched",
        "expired",
        "rejected-gateway-full",
        "expired-in-gateway",
        "in-gateway",
    ] {
        assert!(kinds.contains_key(what), "no `{what}` in {kinds:?}");
    }
}

#[test]
fn a_broken_line_does_not_fit_the_schema() {
    let (folder, schema) = (Folder(Scratch::new()), schema());
    let (mut lines, _) = folder.trace("d.jsonl", VARIETY[2]);
    lines.extend(folder.trace("d.jsonl", VARIETY[7]).0.into_iter().filter(|line| line["kind"] == "gateway"));
    for kind in ["header", "signals", "admission", "gateway", "routing", "scheduling", "preemption", "outcome", "end"] {
        let line = of_kind(&lines, kind)[0];
        assert!(schema.is_valid(line));
        let broken = |change: &dyn Fn(&mut serde_json::Map<String, Value>)| {
            let mut line = line.clone();
            change(line.as_object_mut().expect("an object"));
            assert!(!schema.is_valid(&line), "{line}");
        };
        broken(&|line| drop(line.insert("kind".into(), "decision".into())));
        broken(&|line| drop(line.insert("surprise".into(), 1.into())));
        let optional = ["reason", "preemptions", "cached_blocks", "generated_tokens", "priority", "time_us", "class"];
        for field in line.as_object().expect("an object").keys().filter(|field| {
            let number = line[field.as_str()].is_u64();
            number && !(optional.contains(&field.as_str()) && kind == "outcome")
        }) {
            broken(&|line| drop(line.insert(field.clone(), "a word".into())));
            broken(&|line| drop(line.insert(field.clone(), Value::from(-1.5))));
        }
    }
}

#[test]
fn the_trace_fits_the_results() {
    let folder = Folder(Scratch::new());
    for flags in VARIETY {
        let (lines, figures) = folder.trace("d.jsonl", flags);
        let count = |name: &str| figures[name].as_u64().unwrap_or_else(|| panic!("{flags}: no {name} in {figures}"));
        let outcomes = of_kind(&lines, "outcome");
        let ended = |status: &str| outcomes.iter().filter(|line| line["status"] == status).count() as u64;
        assert_eq!(ended("completed") + ended("length-capped"), count("completed_requests"), "{flags}");
        assert_eq!(ended("timed-out"), count("timed_out_requests"), "{flags}");
        assert_eq!(of_kind(&lines, "preemption").len() as u64, count("preemption_count"), "{flags}");
        let admitted = of_kind(&lines, "admission").iter().filter(|line| line["admitted"] == true).count();
        let unserved = ["refused", "expired", "timed-out"];
        let gateway = of_kind(&lines, "gateway");
        let left =
            gateway.iter().filter(|line| unserved.contains(&line["decision"].as_str().unwrap_or_default())).count();
        let waiting = ended("in-gateway") as usize;
        assert_eq!(admitted, of_kind(&lines, "routing").len() + left + waiting, "{flags}");
        let quiet = folder.output(
            &format!("{RUN} {flags}").replace(" --counterfactual-k 2", "").replace(" --counterfactual-k 1", ""),
        );
        let quiet: Value = serde_json::from_str(&quiet).expect("JSON");
        assert_eq!(quiet, figures, "watching changes nothing");
    }
}

#[test]
fn compressed_or_not_it_is_the_same() {
    let folder = Folder(Scratch::new());
    let (plain, _) = folder.trace("d.jsonl", VARIETY[2]);
    let (compressed, _) = folder.trace("e.jsonl.gz", VARIETY[2]);
    assert_eq!(plain, compressed);
    let bytes = fs::read(folder.0.join("e.jsonl.gz")).expect("written");
    assert!(
        bytes.starts_with(&[0x1f, 0x8b])
            && bytes.len() * 3 < fs::read(folder.0.join("d.jsonl")).expect("written").len()
    );
    for command in ["show {}", "show {} --request 7", "top {}", "top {} --by wait --output json"] {
        let output = |file: &str| folder.output(&format!("decisions {}", command.replace("{}", file)));
        assert_eq!(output("d.jsonl"), output("e.jsonl.gz"), "{command}");
    }
}

#[test]
fn both_engines_decide_the_same() {
    let folder = Folder(Scratch::new());
    for flags in VARIETY {
        let sorted = |engine: &str| {
            let (lines, _) = folder.trace("d.jsonl", &format!("{flags} --simulation {engine}"));
            let lines = lines.into_iter().filter(|line| line["kind"] != "header" && line["kind"] != "end");
            let mut lines: Vec<String> = lines.map(|line| line.to_string()).collect();
            // The order of lines of different instances depends on the engine.
            lines.sort();
            lines
        };
        assert_eq!(sorted("fast"), sorted("plain"), "{flags}");
    }
}

#[test]
fn a_trace_is_shown() {
    let folder = Folder(Scratch::new());
    folder.trace("d.jsonl", "--routing-policy weighted --counterfactual-k 2");
    let show = |flags: &str| folder.output(&format!("decisions show d.jsonl --output text {flags}"));
    insta::assert_snapshot!("decisions_shown", show("--to 0.4"));
    insta::assert_snapshot!(
        "decisions_of_an_instance",
        show("--instance 1 --kind scheduling,preemption --from 0.5 --to 1")
    );
    let lines = folder.lines("d.jsonl");
    // A preempted request, and one that waited.
    let victim = of_kind(&lines, "preemption")[0]["request"].clone();
    insta::assert_snapshot!("story_of_a_victim", show(&format!("--request {victim}")));
    let waited = |line: &&&Value| line["waited_us"].as_u64();
    let enters = of_kind(&lines, "scheduling");
    let longest = enters.iter().filter(|line| line["decision"] == "enters").max_by_key(waited).expect("a request");
    insta::assert_snapshot!("story_of_a_wait", show(&format!("--request request_{}", longest["request"])));
    let all = folder
        .output("decisions show d.jsonl --output json --kind signals,admission,routing,scheduling,preemption,outcome");
    let inside: Vec<Value> = all.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(inside, lines[1..lines.len() - 1]);
    let story: Value =
        serde_json::from_str(&folder.output(&format!("decisions show d.jsonl --request {victim}"))).expect("JSON");
    let kinds: Vec<&str> =
        story["events"].as_array().expect("a list").iter().filter_map(|e| e["kind"].as_str()).collect();
    assert!(kinds.starts_with(&["admission", "routing"]) && kinds.ends_with(&["outcome"]), "{kinds:?}");
    assert!(kinds.contains(&"preemption"), "{kinds:?}");
}

#[test]
fn the_worst_are_found() {
    let folder = Folder(Scratch::new());
    let (lines, _) = folder.trace("d.jsonl", "--routing-policy round-robin --counterfactual-k 2");
    let top = |flags: &str| folder.output(&format!("decisions top d.jsonl --output text {flags}"));
    insta::assert_snapshot!("worst_by_score_regret", top("--by score-regret --limit 5"));
    insta::assert_snapshot!("worst_by_ttft", top("--by ttft --limit 5"));
    insta::assert_snapshot!("surest", top("--by margin --limit 3"));
    for (by, field) in [("ttft", "ttft_us"), ("e2e", "e2e_us"), ("wait", "scheduling_delay_us")] {
        let document: Value =
            serde_json::from_str(&folder.output(&format!("decisions top d.jsonl --by {by} --limit 4"))).expect("JSON");
        let found: Vec<u64> =
            document["decisions"].as_array().expect("a list").iter().filter_map(|one| one[field].as_u64()).collect();
        let mut expected: Vec<u64> =
            of_kind(&lines, "outcome").iter().filter_map(|line| line[field].as_u64()).collect();
        assert_eq!(document["of"], expected.len());
        expected.sort_unstable_by_key(|&value| std::cmp::Reverse(value));
        assert_eq!(found, expected[..4], "{by}");
    }
    folder.trace("bare.jsonl", "--routing-policy round-robin");
    insta::assert_snapshot!(folder.output("decisions top bare.jsonl --by score-regret --output text"), @r"
    No request has a score regret

    no request has a score regret
    the policy gives no scores: record them with `--counterfactual-k 2` or more
    ");
}

#[test]
fn two_runs_are_compared() {
    let folder = Folder(Scratch::new());
    let run = |file: &str, flags: &str| folder.trace(file, flags);
    run("rr.jsonl", "--routing-policy round-robin");
    run("ll.jsonl.gz", "--routing-policy least-loaded");
    run("sjf.jsonl", "--routing-policy round-robin --scheduler sjf");
    run("again.jsonl", "--routing-policy round-robin --counterfactual-k 1");
    let (few, _) =
        run("few.jsonl", "--routing-policy round-robin --admission-policy token-bucket --token-bucket-capacity 500");
    let diff = |a: &str, b: &str| folder.output(&format!("decisions diff {a} {b} --output text"));
    insta::assert_snapshot!("round_robin_and_least_loaded", diff("rr.jsonl", "ll.jsonl.gz"));
    insta::assert_snapshot!("fcfs_and_sjf", diff("rr.jsonl", "sjf.jsonl"));
    insta::assert_snapshot!(diff("rr.jsonl", "again.jsonl"), @r"
    All 101 decisions about the same requests are equal

    A: rr.jsonl
    B: again.jsonl
    the same configuration
    30 requests in both

    no decision differs
    ");
    let document: Value = serde_json::from_str(&folder.output("decisions diff rr.jsonl few.jsonl")).expect("JSON");
    let rejected = of_kind(&few, "admission").into_iter().filter(|line| line["admitted"] == false).collect::<Vec<_>>();
    assert_eq!(
        document["decisions"][0],
        serde_json::json!({"kind": "admission", "both": 30, "differ": rejected.len()})
    );
    let first = &document["first"];
    assert_eq!(
        (&first["kind"], &first["request"], &first["time_us"]),
        (&"admission".into(), &rejected[0]["request"], &rejected[0]["time_us"])
    );
    assert_eq!((&first["a"]["admitted"], &first["b"]["admitted"]), (&true.into(), &false.into()));
}

#[test]
fn what_is_no_trace_is_refused() {
    let folder = Folder(Scratch::new());
    folder.trace("good.jsonl", "--routing-policy weighted");
    let good = fs::read_to_string(folder.0.join("good.jsonl")).expect("written");
    let write = |name: &str, bytes: &[u8]| fs::write(folder.0.join(name), bytes).expect("written");
    write("empty", b"");
    write("binary", &[0x7f, b'E', b'L', b'F', 0, 0xff, 0xfe]);
    write("prose", b"Once upon a time\n");
    write("other.json", b"{\"requests\": []}\n");
    write("newer", good.replacen("\"version\":1", "\"version\":2", 1).as_bytes());
    write("half-line", &good.as_bytes()[..good.len() / 2]);
    let lines: Vec<&str> = good.lines().collect();
    write("no-end", (lines[..20].join("\n") + "\n").as_bytes());
    write("missing-line", ([&lines[..20], &lines[21..]].concat().join("\n") + "\n").as_bytes());
    write("no-instance", good.replacen("\"instance\":1", "\"instance\":7", 1).as_bytes());
    write("word", good.replacen("\"admitted\":true", "\"admitted\":maybe", 1).as_bytes());
    write("surprise", good.replacen("\"admitted\":true", "\"admitted\":true,\"mood\":1", 1).as_bytes());
    write("no-header", (lines[1..].join("\n") + "\n").as_bytes());
    let mut compressed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    compressed.write_all(good.as_bytes()).expect("memory");
    let compressed = compressed.finish().expect("memory");
    write("half.gz", &compressed[..compressed.len() / 2]);
    let names = [
        "empty",
        "binary",
        "prose",
        "other.json",
        "newer",
        "missing-line",
        "no-instance",
        "word",
        "surprise",
        "no-header",
        "nowhere",
        ".",
    ];
    let mut messages = String::new();
    for name in names {
        let (message, code) = folder.refused(&format!("decisions top {name}"));
        assert_eq!(code, Some(2), "{name}: {message}");
        assert!(message.contains("\nhint: "), "{name}: {message}");
        for command in ["show {}", "show {} --request 3", "diff {} good.jsonl", "diff good.jsonl {}"] {
            let (other, code) = folder.refused(&format!("decisions {}", command.replace("{}", name)));
            assert_eq!((&other, code), (&message, Some(2)), "{command}");
        }
        messages += &message;
    }
    insta::assert_snapshot!("what_is_no_trace", messages);
    // What is there is read all the same, with a note of where it ends.
    for (name, line) in [("no-end", 20), ("half-line", 0), ("half.gz", 0)] {
        let commands =
            ["show {} --output json", "show {} --request 0", "top {}", "diff {} good.jsonl", "diff good.jsonl {}"];
        for command in commands {
            let output = blis!(in &folder.0, &format!("decisions {}", command.replace("{}", name)));
            assert_eq!(output.code, Some(0), "{command} of {name}: {}", output.stderr);
            let start = format!("note: {name}:");
            assert!(output.stderr.starts_with(&start) && output.stderr.contains("is cut off"), "{}", output.stderr);
            assert!(line == 0 || output.stderr.contains(&format!("cut off after line {line};")), "{}", output.stderr);
            assert!(!output.stdout.is_empty(), "{command} of {name}");
        }
    }
    let output = blis!(in &folder.0, "decisions show no-end --output json");
    assert!(output.stdout.lines().count() >= 15, "{}", output.stdout);
    assert_eq!(blis!(in &folder.0, "decisions show good.jsonl --output json").stderr, "", "a whole trace");
    insta::assert_snapshot!(folder.refused("decisions show good.jsonl --request 99").0, @r"
    error: good.jsonl: no request 99
    hint: `blis decisions show good.jsonl --kind admission` lists those that are in it
    ");
    insta::assert_snapshot!(folder.refused("decisions diff good.jsonl good.jsonl").0, @r"
    error: `good.jsonl` is named twice
    hint: name the traces of two runs
    ");
    insta::assert_snapshot!(folder.refused("decisions show good.jsonl --request seven").0, @r"
    error: invalid value 'seven' for '--request <ID>': must be the number of a request, like 17 or request_17
    hint: `blis decisions show --help` describes every flag
    ");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_costs_the_exit_code_and_not_the_results() {
    let folder = Folder(Scratch::new());
    let output = blis!(in &folder.0, &format!("{RUN} --trace-level decisions --trace-path /dev/full"));
    assert_eq!(output.code, Some(1));
    let figures: Value = serde_json::from_str(&output.stdout).expect("the results");
    assert_eq!(figures["completed_requests"], 30);
    insta::assert_snapshot!(output.stderr, @r"
    error: cannot write `/dev/full`: No space left on device (os error 28)
    hint: check the permissions and the free space of its folder
    ");
}
