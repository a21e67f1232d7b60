//! The service through the program: policies do what they are named for, every request is
//! somewhere, the same command gives the same bytes.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::macros::{Ended, Scratch, blis};

/// A request of a recorded trace.
#[derive(Clone, Copy)]
struct Row {
    arrival_us: u32,
    input: u32,
    output: u32,
    class: &'static str,
    tenant: &'static str,
    model: &'static str,
}

const ROW: Row = Row { arrival_us: 0, input: 300, output: 60, class: "", tenant: "", model: "" };

/// More than an instance with a few slots can take: 120 requests of three classes and three
/// tenants, one every 8 ms.
fn mixed() -> Vec<Row> {
    let row = |id: u32| Row {
        arrival_us: 1_000 + 8_000 * id,
        input: 300 + id % 5 * 100,
        class: ["critical", "standard", "batch"][id as usize % 3],
        tenant: ["alice", "bob", "alice", "carol"][id as usize % 4],
        ..ROW
    };
    (0..120).map(row).collect()
}

/// A folder in which the program runs, removed when the test ends.
struct Folder(Scratch);

impl Folder {
    /// One with the trace of `rows` in it.
    fn with(rows: &[Row]) -> Self {
        let folder = Self(Scratch::new());
        folder.header("");
        let columns = "request_id,client_id,tenant_id,slo_class,session_id,round_index,prefix_group,prefix_length,\
                       streaming,input_tokens,output_tokens,text_tokens,image_tokens,audio_tokens,video_tokens,\
                       reason_ratio,model,deadline_us,server_input_tokens,arrival_time_us,send_time_us,\
                       first_chunk_time_us,last_chunk_time_us,num_chunks,status,error_message,finish_reason\n";
        let row = |(id, row): (usize, &Row)| {
            let Row { arrival_us, input, output, class, tenant, model } = row;
            format!(
                "{id},c,{tenant},{class},,0,,0,false,{input},{output},0,0,0,0,0,{model},0,0,{arrival_us},0,0,0,0,ok,,\n"
            )
        };
        folder.file("t.csv", &format!("{columns}{}", rows.iter().enumerate().map(row).collect::<String>()));
        folder
    }

    fn header(&self, more: &str) {
        self.file("t.yaml", &format!("trace_version: 3\ntime_unit: microseconds\n{more}"));
    }

    fn file(&self, name: &str, text: &str) {
        self.0.write(name, text);
    }

    fn read(&self, name: &str) -> String {
        self.0.read(name)
    }

    fn blis(&self, line: &str) -> Ended {
        blis!(in &self.0, line).done()
    }

    /// `blis run` on the trace.
    fn run(&self, flags: &str) -> Ended {
        self.blis(&format!(
            "run --latency-model trained-physics --model llama-3.1-8b-instruct --workload-trace t.csv {flags}"
        ))
    }

    fn figures(&self, flags: &str) -> Value {
        self.run(flags).json()
    }

    /// With every request.
    fn metrics(&self, flags: &str) -> Value {
        self.run(&format!("{flags} --metrics-path m.json"));
        serde_json::from_str(&self.read("m.json")).unwrap_or_else(|error| panic!("{flags}: {error}"))
    }

    /// Standard output, metrics and decisions.
    fn bytes(&self, command: &str) -> [String; 3] {
        let out = self.blis(&format!("{command} --metrics-path m.json --trace-level decisions --trace-path d.jsonl"));
        [out.stdout, self.read("m.json"), self.read("d.jsonl")]
    }
}

fn count(document: &Value, key: &str) -> u64 {
    document[key].as_u64().unwrap_or_else(|| panic!("no count `{key}` in {document}"))
}

/// Where each request went.
fn placements(metrics: &Value) -> BTreeMap<String, String> {
    let requests = metrics["requests"].as_array().expect("requests").iter();
    let word = |request: &Value, key: &str| request[key].as_str().expect("a word").to_owned();
    requests.map(|request| (word(request, "requestID"), word(request, "handled_by"))).collect()
}

#[test]
fn every_pathological_policy_triggers_its_anomaly() {
    let folder = Folder::with(&mixed());
    let rejected = |flags: &str| count(&folder.figures(flags), "rejected_admission");
    assert_eq!((rejected("--admission-policy reject-all"), rejected("--admission-policy always-admit")), (120, 0));

    let blocked = |policy: &str| {
        let figures = folder.figures(&format!("--num-instances 2 --max-num-seqs 8 --routing-policy {policy}"));
        let blocked = figures["anomalies"]["head_of_line_blocking"].as_array().expect("looked for").clone();
        blocked.iter().map(|blocked| blocked["instance_id"].as_str().expect("a name").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(blocked("always-busiest"), ["instance_0"], "two instances are enough to see it");
    assert!(blocked("least-loaded").is_empty() && blocked("round-robin").is_empty());

    let inversions = |flags: &str| {
        let figures = folder.figures(&format!("--max-num-seqs 4 --scheduler {flags}"));
        count(&figures["anomalies"], "priority_inversions")
    };
    assert!(inversions("reverse-priority") > 10);
    assert_eq!(inversions("priority-fcfs"), 0);
    assert!(inversions("priority-fcfs --priority-policy inverted-slo") > 10);
    assert_eq!(inversions("priority-fcfs --priority-policy slo-based"), 0);
}

/// The decisions in the order of time: what instances do between two events of the service, each engine tells when
/// it gets there. Without the header, which tells of the engine.
fn message([printed, metrics, decisions]: [String; 3]) -> (String, String, Vec<String>) {
    let mut lines: Vec<String> = decisions.lines().skip(1).map(str::to_owned).collect();
    lines.sort_unstable();
    (printed, metrics, lines)
}

#[test]
fn the_same_command_gives_the_same_bytes() {
    let folder = Folder::with(&mixed());
    let recorded = "run --model llama-3.1-8b-instruct --workload-trace t.csv --num-instances 4";
    let generated = "run --model llama-3.1-8b-instruct --num-requests 150 --rate 40 --arrival-process poisson \
                     --prefix-tokens 160 --num-instances 4";
    let policies = [
        "--routing-policy least-loaded",
        "--routing-policy weighted",
        "--routing-policy weighted --routing-scorers no-hit-lru:1,prefix-affinity:1",
        "--routing-policy prefix-affinity --summarize-trace",
        "--routing-policy round-robin --admission-policy token-bucket --counterfactual-k 2",
        "--routing-policy weighted --routing-cache-weight 1 --snapshot-refresh-interval 0 --slo-ttft default=50ms",
    ];
    for command in [recorded, generated] {
        for policy in policies {
            let line = format!("{command} {policy}");
            assert!(folder.bytes(&line) == folder.bytes(&line), "{line}");
            assert!(
                message(folder.bytes(&format!("{line} --simulation plain"))) == message(folder.bytes(&line)),
                "{line}"
            );
        }
    }
}

#[test]
fn the_seed_decides_ties_and_nothing_else_of_a_recorded_trace() {
    let folder = Folder::with(&mixed());
    for policy in ["least-loaded", "weighted"] {
        let flags = format!("--num-instances 4 --routing-policy {policy}");
        let with = |more: &str| placements(&folder.metrics(&format!("{flags} {more}")));
        assert_ne!(with("--seed 1"), with("--seed 2"), "{policy}");
        assert_eq!(with("--seed 1"), with("--seed 1 --tie-break random"), "{policy}");
        let first = |seed: u32| with(&format!("--seed {seed} --tie-break lowest-index"));
        assert_eq!(first(1), first(2), "{policy}");
    }
}

/// `arrived`, and where those requests are.
const CONSERVATION: [&str; 8] =
    ["arrived", "completed", "queued", "running", "arriving", "dropped", "timed_out", "rejected"];

#[test]
fn every_request_is_somewhere() {
    let other_model = |(id, row): (usize, Row)| Row { model: if id % 4 == 0 { "gpt-4o" } else { "" }, ..row };
    let folder = Folder::with(&mixed().into_iter().enumerate().map(other_model).collect::<Vec<_>>());
    folder.file("shed.yaml", "admission: {policy: tier-shed, tier_shed_threshold: 4, tier_shed_min_priority: 3}\n");
    folder.file("budgets.yaml", "tenant_budgets: {alice: 0.05, bob: 0.5}\n");
    folder.file("gaie.yaml", "admission: {policy: gaie-legacy, gaie_qd_threshold: 2}\n");
    // With what must not be 0, so that each line is about something.
    let table = [
        ("", ["completed", "rejected"]),
        ("--horizon 700000", ["queued", "running"]),
        ("--horizon 500000 --admission-latency 20000 --routing-latency 20000", ["arriving", "rejected"]),
        ("--timeout 0.8", ["timed_out", "completed"]),
        ("--max-model-len 500", ["dropped", "completed"]),
        ("--admission-policy token-bucket --token-bucket-capacity 3000", ["rejected", "completed"]),
        ("--policy-config shed.yaml", ["rejected", "completed"]),
        ("--policy-config gaie.yaml --snapshot-refresh-interval 0", ["rejected", "completed"]),
        ("--policy-config budgets.yaml --horizon 900000", ["rejected", "queued"]),
        ("--admission-policy reject-all", ["arrived", "rejected"]),
        ("--total-kv-blocks 60 --max-model-len 900 --routing-policy least-loaded", ["completed", "rejected"]),
    ];
    for (flags, present) in table {
        for parity in ["vllm", "blis"] {
            let line = format!("--num-instances 3 --max-num-seqs 4 {flags} --parity {parity}");
            let figures = folder.figures(&line);
            let conservation = &figures["conservation"];
            let [arrived, parts @ ..] = CONSERVATION.map(|part| count(conservation, part));
            assert!(conservation["holds"] == true && parts.iter().sum::<u64>() == arrived, "{line}: {conservation}");
            assert!(present.iter().all(|part| count(conservation, part) > 0), "{line}: {conservation}");
            assert!(arrived == 120 || arrived < 120 && flags.contains("--horizon"), "{line}: {arrived}");
            for group in ["slo_classes", "tenants"] {
                let members = figures[group].as_object().unwrap_or_else(|| panic!("{line}: no {group}"));
                assert_eq!(members.len(), 3, "{line}: {group}");
                let sum: u64 = members.values().map(|member| count(member, "arrived_requests")).sum();
                assert_eq!(sum, arrived, "{line}: {group}");
            }
        }
    }
}

#[test]
fn requests_for_another_model_are_rejected_with_a_note() {
    let model = |id: u32| ["", "meta-llama/Llama-3.1-8B-Instruct", "gpt-4o", "mistral-7b"][id as usize % 4];
    let rows: Vec<Row> = (0..12).map(|id| Row { arrival_us: id * 1_000, model: model(id), ..ROW }).collect();
    let folder = Folder::with(&rows);
    for instances in [1, 3] {
        let output = folder.run(&format!("--num-instances {instances}"));
        let figures: Value = serde_json::from_str(&output.stdout).expect("JSON");
        assert_eq!([count(&figures, "completed_requests"), count(&figures, "rejected_routing")], [6, 6]);
        insta::allow_duplicates! {
            insta::assert_snapshot!(output.stderr, @" WARN 6 requests rejected: only `llama-3.1-8b-instruct` is served, and they are for `gpt-4o` (3), `mistral-7b` (3) (hint: serve it with `--model gpt-4o`, or empty the column `model` of the trace: a request without a model is served by any)");
        }
    }
    let all: Vec<Row> = rows.iter().map(|&row| Row { model: "gpt-4o", ..row }).collect();
    let nothing = Folder::with(&all).run("");
    insta::assert_snapshot!(nothing.stderr, @r"
     WARN 12 requests rejected: only `llama-3.1-8b-instruct` is served, and they are for `gpt-4o` (12) (hint: serve it with `--model gpt-4o`, or empty the column `model` of the trace: a request without a model is served by any)
     WARN no request completed (hint: no request is for the model that is served; see above)
    ");
}

#[test]
fn instances_add_up_to_the_cluster() {
    let folder = Folder::with(&mixed());
    for flags in ["--horizon 900000", "--timeout 0.8", "--routing-policy always-busiest", "--total-kv-blocks 80"] {
        let figures = folder.figures(&format!("--num-instances 4 --max-num-seqs 4 --max-model-len 1000 {flags}"));
        let instances = figures["instances"].as_array().expect("four");
        assert_eq!(instances.len(), 4);
        for key in [
            "completed_requests",
            "still_queued",
            "still_running",
            "injected_requests",
            "total_input_tokens",
            "total_output_tokens",
            "preemption_count",
            "timed_out_requests",
            "dropped_unservable",
            "length_capped_requests",
            "still_arriving",
            "steps",
            "e2e_count",
            "ttft_count",
            "itl_count",
            "scheduling_delay_count",
        ] {
            let sum: u64 = instances.iter().map(|instance| count(instance, key)).sum();
            assert_eq!(sum, count(&figures, key), "{flags}: {key}");
        }
    }
    assert_eq!(folder.figures("")["instances"], Value::Null, "one is the cluster");
}

#[test]
fn classes_and_tenants_are_listed_where_there_are_any() {
    let folder = Folder::with(&mixed());
    let figures = folder.figures("--num-instances 2");
    let names = |group: &str| figures[group].as_object().expect("a table").keys().cloned().collect::<Vec<_>>();
    assert_eq!(
        (names("slo_classes"), names("tenants")),
        (
            ["batch", "critical", "standard"].map(str::to_owned).to_vec(),
            ["alice", "bob", "carol"].map(str::to_owned).to_vec(),
        )
    );
    // 60, 30 and 30 requests of 60 tokens: (Σx)² / (n·Σx²).
    let jain = figures["jain_fairness_index"].as_f64().expect("an index");
    assert!((jain - 120.0 * 120.0 / (3.0 * (3_600.0 + 900.0 + 900.0))).abs() < 1e-12, "{jain}");
    let nameless = Folder::with(&[ROW; 3]).figures("");
    assert!(["slo_classes", "tenants", "jain_fairness_index"].iter().all(|key| nameless[key] == Value::Null));
}

#[test]
fn targets_of_a_trace_count_and_flags_win_over_them() {
    let folder = Folder::with(&mixed());
    assert_eq!(folder.figures("")["goodput_rps"], Value::Null);
    folder.header("goodput_slo_targets: {critical: {ttft_ms: 100000, e2e_ms: 0.001}}\n");
    let by_dim = |flags: &str| {
        let figures = folder.figures(flags);
        assert!(figures["goodput_rps"].is_number() && figures["slo_attainment"].is_number());
        figures["per_class"]
            .as_object()
            .expect("classes")
            .iter()
            .map(|(class, kept)| (class.clone(), kept["slo_attainment_by_dim"].clone()))
            .collect::<BTreeMap<_, _>>()
    };
    let table = |json: Value| serde_json::from_value::<BTreeMap<String, Value>>(json).expect("a table");
    assert_eq!(by_dim(""), table(serde_json::json!({"critical": {"ttft": 1.0, "e2e": 0.0}})));
    assert_eq!(
        by_dim("--slo-ttft critical=1us,batch=1h"),
        table(serde_json::json!({"critical": {"ttft": 0.0, "e2e": 0.0}, "batch": {"ttft": 1.0}})),
        "latency by latency"
    );
    let typo = folder.run("--slo-ttft critcal=1s").stderr;
    assert!(typo.contains("no request is of the class `critcal`"), "{typo}");
    assert!(typo.contains("`batch`, `critical`, `standard`"), "{typo}");
}

#[test]
fn a_bundle_takes_effect_and_a_flag_wins_over_it() {
    let folder = Folder::with(&mixed());
    folder.file("budget.yaml", "tenant_budgets: {alice: 0, carol: 1}\n");
    let figures = folder.figures("--policy-config budget.yaml --max-num-seqs 4");
    let rejected = |tenant: &str| count(&figures["tenants"][tenant], "rejected_admission");
    assert!(rejected("alice") > 0 && rejected("bob") == 0, "{}", figures["tenants"]);

    let flags = "--max-num-seqs 2 --scheduler priority-fcfs";
    folder.file("classes.yaml", "admission: {slo_priorities: {batch: 100, critical: -100}}\n");
    let wait = |flags: &str, class: &str| folder.figures(flags)["slo_classes"][class]["ttft"]["mean_ms"].as_f64();
    assert!(wait(flags, "batch") > wait(flags, "critical"));
    let turned = format!("{flags} --policy-config classes.yaml");
    assert!(wait(&turned, "batch") < wait(&turned, "critical"));

    folder.file(
        "all.yaml",
        "admission: {policy: token-bucket, token_bucket_capacity: 500, token_bucket_refill_rate: 1}\n\
         routing: {policy: always-busiest}\nscheduler: sjf\npreemption: {policy: priority}\n",
    );
    let with = |flags: &str| folder.metrics(&format!("--num-instances 2 --max-num-seqs 4 {flags}"));
    let bundle = with("--policy-config all.yaml");
    assert_eq!(count(&bundle, "completed_requests"), 1, "one prompt of 300 fits the bucket of 500");
    assert_eq!(bundle["instances"][1]["injected_requests"], 0);
    let wider = with("--policy-config all.yaml --token-bucket-capacity 1000");
    assert_eq!(count(&wider, "completed_requests"), 3, "300, 400 and 300 of 1000");
    let flags =
        "--admission-policy always-admit --routing-policy round-robin --scheduler fcfs --preemption-policy fcfs";
    assert_eq!(with(&format!("--policy-config all.yaml {flags}")), with(""));
}

/// BLIS accepts a bundle's priority policy, warns, and uses class priorities all the same.
#[test]
fn with_parity_a_bundle_does_not_choose_the_priority() {
    let folder = Folder::with(&mixed());
    folder.file("inverted.yaml", "priority:\n  policy: inverted-slo\n");
    for parity in ["vllm", "blis"] {
        let flags = format!("--max-num-seqs 4 --scheduler priority-fcfs --parity {parity}");
        let usual = folder.run(&flags);
        let bundle = folder.run(&format!("{flags} --policy-config inverted.yaml"));
        let flag = folder.run(&format!("{flags} --policy-config inverted.yaml --priority-policy inverted-slo"));
        assert_ne!(flag.stdout, usual.stdout, "{parity}: the flag always works");
        assert_eq!((usual.stderr.as_str(), flag.stderr.as_str()), ("", ""));
        let explained = folder.run(&format!("{flags} --policy-config inverted.yaml --explain-config")).stdout;
        let (_, priority) = explained.split_once("\npriority:\n").expect("a bundle");
        if parity == "blis" {
            assert_eq!(bundle.stdout, usual.stdout);
            assert!(
                priority.starts_with("  policy: class  # --parity blis ignores inverted.yaml:2:11\n"),
                "{priority}"
            );
            insta::assert_snapshot!(bundle.stderr, @" WARN inverted.yaml:2:11: the priority policy `inverted-slo` has no effect with `--parity blis` (hint: BLIS uses class priorities with any bundle; the flag `--priority-policy inverted-slo` has an effect)");
        } else {
            assert_eq!((bundle.stdout, bundle.stderr), (flag.stdout, String::new()));
            assert!(priority.starts_with("  policy: inverted-slo  # inverted.yaml:2:11\n"), "{priority}");
        }
    }
}

#[test]
fn decisions_say_what_was_seen_and_why() {
    let folder = Folder::with(&mixed());
    let flags = "--num-instances 3 --max-num-seqs 4 --routing-policy weighted --counterfactual-k 3 \
                 --trace-level decisions --trace-path d.jsonl --summarize-trace";
    let figures = folder.figures(flags);
    let lines = folder.read("d.jsonl");
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let routed: Vec<&Value> = lines.iter().filter(|line| line["kind"] == "routing").collect();
    assert_eq!(routed.len(), 120);
    for line in &routed {
        let scores: Vec<f64> = line["scores"].as_array().expect("scores").iter().filter_map(Value::as_f64).collect();
        let candidates = line["candidates"].as_array().expect("candidates");
        let best = candidates[0]["score"].as_f64().expect("a score");
        assert_eq!((scores.len(), candidates.len()), (3, 3));
        assert!(scores.iter().all(|&score| score <= best), "{line}");
        assert_eq!(line["score_regret"], 0.0, "weighted takes its own best");
        assert!(candidates.iter().any(|one| one["instance"] == line["instance"] && one["score"] == best), "{line}");
    }
    let chosen: BTreeSet<u64> = routed.iter().filter_map(|line| line["instance"].as_u64()).collect();
    assert_eq!(count(&figures["decisions"], "unique_targets"), chosen.len() as u64);
}

#[test]
fn the_summary_of_a_service() {
    let rows = mixed().into_iter().enumerate();
    let other_model = |(id, row): (usize, Row)| Row { model: if id % 40 == 7 { "gpt-4o" } else { "" }, ..row };
    let folder = Folder::with(&rows.map(other_model).collect::<Vec<_>>());
    folder.file("shed.yaml", "admission: {policy: tier-shed, tier_shed_threshold: 6, tier_shed_min_priority: 0}\n");
    let flags = "--num-instances 4 --max-num-seqs 4 --policy-config shed.yaml --routing-policy least-loaded \
                 --scheduler reverse-priority --slo-ttft critical=100ms,batch=1s,gold=1s --trace-level decisions \
                 --summarize-trace --output text";
    insta::assert_snapshot!(folder.run(flags).stdout);
}
