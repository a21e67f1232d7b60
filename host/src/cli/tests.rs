//! The meaning of flags, the pages of help, and the messages about invalid command lines.

use std::num::NonZeroU32;

use blis_sim::instance::{Preemption, Scheduler, SchedulerOptions};
use blis_sim::semantics::Semantics;
use blis_sim::units::Micros;

use super::*;
use blis_config::LatencyKind;
use blis_config::policy::{Bundle, Choices, NoPlugins, PolicySettings, ScorerKind, Sourced, WeightedScorer};
use blis_eval::FitnessScale;
use blis_eval::experiment::{EngineConfig, SloTargetSettings};
use blis_eval::spec::{
    ExperimentSpec, KEYS, Permission, SimulationName, TieBreakName, TraceFormatName, TraceLevelName,
};
use blis_eval::workload_config::{SyntheticConfig, WorkloadConfig};
use blis_plugin::Kind;
use blis_workload::MaxTokens;
use blis_workload::distribution::{ArrivalProcess, DistributionSpec, LengthSpec};
use blis_workload::spec::ClientLoad;
use blis_workload::trace_v2::ThinkTime;

/// The experiment of `blis <line>`, or the message about an invalid line.
fn parse(line: &str) -> Result<Experiment, String> {
    let words: Vec<OsString> = std::iter::once("blis").chain(line.split_whitespace()).map(OsString::from).collect();
    let cli = super::parse(&words).map_err(|error| reworded(&error, &words).to_string())?;
    let config = match cli.command {
        Some(Command::Run(args)) => args.experiment(),
        Some(Command::Replay(args)) => args.experiment(),
        other => panic!("no simulation: {other:?}"),
    };
    config.map_err(|failure| failure.to_string())
}

fn run(flags: &str) -> Experiment {
    parse(&format!("run --model m {flags}")).unwrap_or_else(|error| panic!("{flags}: {error}"))
}

fn refused(line: &str) -> String {
    match parse(line) {
        Ok(config) => panic!("`{line}` was accepted: {config:?}"),
        Err(error) => error,
    }
}

fn synthetic(config: Experiment) -> SyntheticConfig {
    match config.workload {
        WorkloadConfig::Synthetic(workload) => workload,
        other => panic!("not generated: {other:?}"),
    }
}

#[test]
fn defaults_are_those_of_blis() {
    insta::assert_debug_snapshot!(run(""));
}

#[test]
fn names_of_blis_and_vllm_mean_the_same() {
    let table = [
        ("--gpu H100", "--hardware H100"),
        ("--tensor-parallel-size 2", "--tp 2"),
        ("--pipeline-parallel-size 2", "--pp 2"),
        ("--data-parallel-size 2", "--dp 2"),
        ("--num-gpu-blocks 100", "--total-kv-blocks 100"),
        ("--block-size 32", "--block-size-in-tokens 32"),
        ("--max-num-running-reqs 8", "--max-num-seqs 8"),
        ("--max-num-scheduled-tokens 512", "--max-num-batched-tokens 512"),
        ("--workload traces --workload-traces-filepath t.csv", "--workload-trace t.csv"),
        ("--max-prompts 7", "--num-requests 7"),
        ("--results-path r.json", "--metrics-path r.json"),
        ("--scheduling-policy priority", "--scheduler priority-fcfs --preemption-policy priority"),
        ("--scheduling-policy fcfs", ""),
        ("--enable-prefix-caching --enable-chunked-prefill", ""),
        ("--no-enable-prefix-caching --enable-prefix-caching", ""),
        ("--no-async-scheduling --async-scheduling", ""),
        ("--no-scheduler-reserve-full-isl --scheduler-reserve-full-isl", ""),
        ("--seed 1 --seed 2", "--seed 2"),
        ("--log fatal", "--log error"),
        ("--log warning", ""),
        ("--horizon 9223372036854775807", ""),
        ("--tp 0 --max-model-len 0", ""),
        ("--workload distribution --rate 1.0 --timeout 300", "--timeout 300"),
    ];
    let meaning = |flags: &str| {
        format!("{:?}", Experiment { spec: Default::default(), choices: Choices::default(), ..run(flags) })
    };
    for (one, other) in table {
        assert_eq!(meaning(one), meaning(other), "{one}");
    }
}

#[test]
fn engine_flags_arrive() {
    let flags = "--max-num-seqs 8 --max-num-batched-tokens 512 --long-prefill-token-threshold 128 --block-size 32 \
                 --no-enable-prefix-caching --no-enable-chunked-prefill --async-scheduling \
                 --scheduler-reserve-full-isl --scheduler sjf --preemption-policy priority --parity blis --simulation plain";
    let expected = EngineConfig {
        long_prefill_token_threshold: 128,
        block_size: 32,
        enable_prefix_caching: false,
        enable_chunked_prefill: false,
        async_scheduling: true,
        reserve_full_prompt: true,
        watermark: 0.0,
        options: SchedulerOptions { prefill_schedule_interval: 1, ..SchedulerOptions::default() },
        scheduler: Scheduler::Sjf,
        preemption: Preemption::Priority,
        semantics: Semantics::BLIS,
        profile: None,
        simulation: SimulationName::Plain,
    };
    assert_eq!(run(flags).engine, expected);
    let batch = run(flags).deployment.batch;
    assert_eq!((batch.max_num_seqs, batch.max_num_batched_tokens, batch.engine), (Some(8), Some(512), None));
    assert_eq!(run("--scheduler reverse-priority").engine.scheduler, Scheduler::ReversePriority);
}

#[test]
fn deployment_flags_arrive() {
    let flags = "--hardware L40S --tp 4 --dp 2 --enable-expert-parallel --moe-comm-backend naive --vllm-version v0.8.4 \
                 --latency-model blackbox --alpha-coeffs 1,2.5,3 --beta-coeffs 4,5,6 --total-kv-blocks 9 \
                 --max-model-len 4096 --model-config-folder conf --hardware-config hw.json";
    let deployment = run(flags).deployment;
    assert_eq!(deployment.latency_model, Some(LatencyKind::Blackbox));
    assert_eq!(deployment.alpha_coeffs.as_deref(), Some(&[1.0, 2.5, 3.0][..]));
    insta::assert_debug_snapshot!(deployment);
}

#[test]
fn workload_flags_arrive() {
    let flags = "--rate 2.5 --arrival-process poisson --num-requests 9 --prompt-tokens 10 --prompt-tokens-stdev 6 \
                 --prompt-tokens-min 5 --prompt-tokens-max 20 --output-tokens 30 --output-tokens-stdev 0 \
                 --output-tokens-min 25 --output-tokens-max 35 --prefix-tokens 64 --timeout 2.5 \
                 --seed 7 --horizon 99";
    let expected = DistributionSpec {
        rate: 2.5,
        arrival: ArrivalProcess::Poisson,
        num_requests: Some(9),
        prompt: LengthSpec { mean: 10.0, stdev: 6.0, min: 5, max: 20 },
        output: LengthSpec { mean: 30.0, stdev: 0.0, min: 25, max: 35 },
        max_tokens: MaxTokens::Drawn,
        prefix_tokens: 64,
        timeout: Some(Micros(2_500_000)),
        seed: 7,
        horizon: Micros(99),
    };
    assert_eq!(synthetic(run(flags)).spec, expected);
    assert_eq!(synthetic(run("--timeout -1")).spec.timeout, None);
    assert_eq!(synthetic(run("--num-requests 0 --horizon 5")).spec.num_requests, None);
    let summarization = synthetic(run("--workload summarization --rate 3"));
    let prompt = LengthSpec { mean: 4096.0, stdev: 500.0, min: 100, max: 8192 };
    assert_eq!(
        (summarization.name, summarization.spec.rate, summarization.spec.prompt),
        ("summarization", 3.0, prompt)
    );
}

#[test]
fn trace_flags_arrive() {
    let config = run("--workload-trace t.jsonl --trace-format mooncake --mooncake-block-size 16 --skip-bad-lines");
    let WorkloadConfig::Trace(trace) = config.workload else { panic!("not a trace") };
    assert_eq!((trace.format, trace.mooncake_block_size), (TraceFormatName::Mooncake, NonZeroU32::new(16)));
    assert!(trace.skip_bad_lines && trace.timeout.is_none(), "a trace has no deadline of its own");
}

#[test]
fn recorded_command_lines_are_understood() {
    let line = "replay --trace-header trace.yaml --trace-data trace.csv --log error --seed 1 \
                --model meta-llama/llama-3.1-8b-instruct --hardware H100 --tp 1 --total-kv-blocks 20000 --max-num-seqs 256 \
                --max-num-batched-tokens 2048 --horizon 100000000000 --latency-model trained-physics \
                --metrics-path metrics.json --results-path results.json";
    let config = parse(line).expect("valid");
    assert!(matches!(config.workload, WorkloadConfig::Recorded { .. }));
    assert_eq!(config.horizon, Micros(100_000_000_000));
    assert_eq!(config.files.results_path.as_deref(), Some("results.json".as_ref()));
    let cluster = "--num-instances 4 --trace-level decisions --counterfactual-k 4 --summarize-trace \
                   --snapshot-refresh-interval 0 --cache-signal-delay 0 --admission-latency 200 --routing-latency 100 \
                   --routing-policy weighted --routing-scorers no-hit-lru:2,precise-prefix-cache:1,load-balance:1 \
                   --admission-policy token-bucket --token-bucket-capacity 20000 --token-bucket-refill-rate 40000 \
                   --slo-ttft critical=60ms,standard=120ms,batch=2s --slo-itl critical=12ms,standard=20ms";
    let config = parse(&format!("{line} {cluster}")).expect("valid");
    assert_eq!((config.cluster.num_instances, config.cluster.slo_targets.len()), (4, 3));
}

#[test]
fn cluster_flags_arrive() {
    let flags = "--num-instances 8 --admission-latency 10 --routing-latency 20 --snapshot-refresh-interval 0 \
                 --cache-signal-delay 9223372036854775807 --tie-break lowest-index";
    let cluster = run(flags).cluster;
    assert_eq!((cluster.num_instances, cluster.tie_break), (8, TieBreakName::LowestIndex));
    assert_eq!((cluster.admission_latency, cluster.routing_latency), (Micros(10), Micros(20)));
    assert_eq!((cluster.snapshot_refresh_interval, cluster.cache_signal_delay), (Micros(0), Micros::MAX));
}

#[test]
fn policy_flags_arrive() {
    let policies = |flags: &str| run(flags).cluster.policies;
    assert_eq!(policies(""), PolicySettings::default());
    let flags = "--admission-policy token-bucket --token-bucket-capacity 5 --token-bucket-refill-rate 0.5 \
                 --routing-policy weighted --routing-scorers queue-depth:2,load-aware:0.5 --priority-policy inverted-slo";
    let given = policies(flags);
    let set = |policies: &PolicySettings, kind| -> (String, Vec<(String, f64)>) {
        let used = policies.used(kind).expect("a policy");
        let parameters = used.parameters.iter().filter(|(_, value)| **value != 0.0);
        (used.loaded.name.clone(), parameters.map(|(name, value)| (name.clone(), value.value)).collect())
    };
    let named = |name: &str, values: &[(&str, f64)]| -> (String, Vec<(String, f64)>) {
        (name.to_owned(), values.iter().map(|&(name, value)| (name.to_owned(), value)).collect())
    };
    assert_eq!(set(&given, Kind::Admission), named("token-bucket", &[("capacity", 5.0), ("refill-rate", 0.5)]));
    assert_eq!(given.name(Kind::Priority), "inverted-slo");
    assert_eq!(
        set(&given, Kind::Routing),
        named("weighted", &[("queue-depth", 2.0), ("load-aware", 0.5), ("prefix-capacity", 10_000.0)])
    );
    let pair = policies("--routing-policy weighted --routing-load-weight 0.4");
    assert_eq!(set(&pair, Kind::Routing), named("cache-and-load", &[("load-weight", 0.4)]));
    let one = policies("--routing-policy weighted --policy-param routing.queue-depth=2");
    let usual =
        [("precise-prefix-cache", 2.0), ("queue-depth", 2.0), ("kv-utilization", 1.0), ("prefix-capacity", 10_000.0)];
    assert_eq!(set(&one, Kind::Routing), named("weighted", &usual));
}

#[test]
fn evaluation_flags_arrive() {
    let flags = "--slo-ttft critical=60ms,standard=1m30s,default=1us --slo-e2e critical=1.5s --fitness-weights p99_ttft:1 \
                 --fitness-scale blis --trace-level decisions --counterfactual-k 4 --summarize-trace";
    let config = run(flags);
    let targets = |ttft, e2e: Option<u64>| {
        let target = |us: u64| Sourced::default_value(Micros(us));
        SloTargetSettings { ttft: Some(target(ttft)), itl: None, e2e: e2e.map(target) }
    };
    let expected = [
        ("critical", targets(60_000, Some(1_500_000))),
        ("default", targets(1, None)),
        ("standard", targets(90_000_000, None)),
    ];
    let given: Vec<(&str, SloTargetSettings)> =
        config.cluster.slo_targets.iter().map(|(class, targets)| (class.as_str(), targets.clone())).collect();
    assert_eq!(given, expected);
    let evaluation = config.evaluation;
    let fitness = evaluation.fitness.expect("weights");
    assert_eq!((fitness.text(), fitness.scale()), ("p99_ttft:1", FitnessScale::Blis));
    assert_eq!(evaluation.trace_level, TraceLevelName::Decisions);
    assert_eq!((evaluation.counterfactual_k, evaluation.summarize_trace), (4, true));
    let relative = run("--fitness-weights throughput:1 --baseline least-loaded").evaluation;
    assert_eq!(relative.fitness.map(|weights| weights.scale()), Some(FitnessScale::Ratio));
    assert_eq!(relative.baseline.as_deref(), Some("least-loaded"));
}

/// A folder of its own with the file `policy.yaml`, and its path.
fn bundle_file(test: &str, text: &str) -> String {
    let folder = std::env::temp_dir().join(format!("blis-{test}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("scratch");
    let path = folder.join("policy.yaml");
    std::fs::write(&path, text).expect("scratch");
    path.display().to_string()
}

#[test]
fn flags_win_over_a_bundle() {
    let text = "scheduler: sjf\npreemption: {policy: priority}\nrouting: {policy: least-loaded}\n";
    let bundle = bundle_file("precedence", text);
    let with = |flags: &str| run(&format!("--policy-config {bundle} {flags}"));
    let config = with("--scheduler fcfs --routing-policy round-robin");
    assert_eq!((config.engine.scheduler, config.engine.preemption), (Scheduler::Fcfs, Preemption::Priority));
    assert_eq!(config.cluster.policies.name(Kind::Routing), "round-robin");
    let config = with("");
    assert_eq!((config.engine.scheduler, config.engine.preemption), (Scheduler::Sjf, Preemption::Priority));
    let config = with("--scheduling-policy fcfs");
    assert_eq!((config.engine.scheduler, config.engine.preemption), (Scheduler::Fcfs, Preemption::Fcfs));
    let message = refused(&format!("run --model m --policy-config {bundle} --routing-cache-weight 1"));
    insta::assert_snapshot!(message, @r"
    error: `--routing-cache-weight` only makes sense with the routing policy `weighted`, not `least-loaded`
    hint: leave it out, or choose `weighted`
    ");
}

const MODEL: &str = "--model meta-llama/Llama-3.1-8B-Instruct";

fn explained(line: &str) -> String {
    let config = parse(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    let deployment = open::resolve(&config).unwrap_or_else(|error| panic!("{line}: {error}"));
    let page = explain(&config, &deployment).to_string();
    let read: Result<serde_json::Value, _> = serde_yaml::from_str(&page);
    assert!(read.as_ref().is_ok_and(serde_json::Value::is_object), "{read:?}\n{page}");
    let (_, policies) = page.split_once("# From here to the end: ").expect("the policies");
    let bundle = Bundle::parse("explained", &format!("# {policies}")).unwrap_or_else(|error| panic!("{error}"));
    let again = PolicySettings::choose(&Choices::default(), Some(&bundle), &NoPlugins).expect("legal");
    assert_eq!(again, config.cluster.policies, "{page}");
    page
}

#[test]
fn a_configuration_is_explained() {
    let text = "admission:\n  policy: tier-shed\n  slo_priorities: {gold: 5}\ntenant_budgets:\n  t0: 0.25\n";
    let bundle = bundle_file("explained", text);
    let flags = "--num-instances 4 --routing-policy weighted --scheduling-policy priority --no-enable-prefix-caching \
                 --max-model-len 4096 --slo-ttft critical=100ms,default=1m0.5s --workload chatbot --rate 12.5";
    let page = explained(&format!("run {MODEL} {flags} --policy-config {bundle}"));
    insta::assert_snapshot!(page.replace(&bundle, "policy.yaml"));
    let recorded = explained(&format!("replay {MODEL} --trace-header h.yaml --trace-data d.csv --parity blis"));
    assert!(recorded.contains("# horizon: null  (twice the last arrival)\n"), "{recorded}");
    let blackbox = explained("run --model qwen/qwen2.5-7b-instruct --hardware H100 --tp 1 --latency-model blackbox");
    assert!(blackbox.contains("  latency-model: blackbox  # flag --latency-model\n"), "{blackbox}");
}

/// Every setting has a line under its own name, unless another part of the page has its value.
#[test]
fn no_setting_is_forgotten_in_the_explanation() {
    let lines = [
        format!("run {MODEL} --admission-policy token-bucket --flow-control --in-flight-eviction"),
        format!("run {MODEL} --autoscaler queue --group tp=2 --node-pool name=a,max=9"),
        format!(
            "run {MODEL} --num-instances 2 --routing-policy weighted --lora-config ../examples/lora.yaml --lora-scorer-weight 1"
        ),
        format!("run {MODEL} --workload-trace t.csv"),
        format!("run {MODEL} --workload-spec ../examples/workload-spec/mixed.yaml"),
        format!("run {MODEL} --concurrency 3 --num-requests 9"),
        format!("run {MODEL} --prefill-instances 1 --decode-instances 1"),
        format!("run {MODEL} --parity blis --kv-cpu-blocks 9 --kv-offload-threshold 0.5"),
        format!("run {MODEL} --parity blis --kv-offload-config fuzz/seeds/kv_offload/two-tiers.yaml"),
        format!("replay {MODEL} --trace-header h.yaml --trace-data d.csv --session-mode closed-loop"),
        format!(
            "replay {MODEL} --trace-header h.yaml --trace-data d.csv --session-mode closed-loop \
             --think-time-dist lognormal:mu=2,sigma=0.5,max=3s"
        ),
    ];
    for line in lines {
        let (page, config) = (explained(&line), parse(&line).expect("valid"));
        for key in KEYS.iter().filter(|key| key.permission.is_none() && config.spec.allows(key)) {
            let is_its_line = |line: &str| {
                let line = line.trim_start_matches([' ', '#']);
                line.split_once(": ").is_some_and(|(name, _)| name == key.name)
            };
            // Among the policies of the page, or of what this run does not have.
            let elsewhere =
                key.in_bundle || key.chooses.is_some() || ["enable-lora", "policy-param"].contains(&key.name);
            assert!(elsewhere || page.lines().any(is_its_line), "{line}: {key:?} is not in\n{page}");
        }
    }
}

#[test]
fn what_was_given_is_explained_with_its_flag() {
    let flags = "--hardware H100 --tp 1 --pp 1 --dp 1 --latency-model roofline --model-config-folder ../model_configs \
                 --total-kv-blocks 9000 --block-size-in-tokens 32 --max-model-len 4096 \
                 --max-num-seqs 8 --max-num-batched-tokens 512 --long-prefill-token-threshold 128 \
                 --no-enable-prefix-caching --enable-chunked-prefill --async-scheduling --scheduler-reserve-full-isl \
                 --scheduler sjf --preemption-policy priority --parity blis --simulation plain --num-instances 2 \
                 --admission-latency 1 --routing-latency 1 --snapshot-refresh-interval 1 --cache-signal-delay 1 \
                 --tie-break lowest-index --admission-policy token-bucket --token-bucket-capacity 5 \
                 --token-bucket-refill-rate 5 --routing-policy weighted --routing-scorers vllm-dp:1 \
                 --priority-policy constant --slo-ttft a=1s --slo-itl a=1s --slo-e2e a=1s --fitness-weights mean_itl:1 \
                 --fitness-scale ratio --baseline b --trace-level decisions --counterfactual-k 1 --summarize-trace \
                 --workload distribution --rate 3 --arrival-process poisson --num-requests 5 --prompt-tokens 300 \
                 --prompt-tokens-stdev 10 --prompt-tokens-min 9 --prompt-tokens-max 999 --output-tokens 300 \
                 --output-tokens-stdev 10 --output-tokens-min 9 --output-tokens-max 999 --prefix-tokens 7 --timeout 5 \
                 --seed 7 --horizon 99";
    let page = explained(&format!("run {MODEL} {flags}"));
    for flag in flags.split_whitespace().filter(|word| word.starts_with("--")) {
        assert!(page.lines().any(|line| line.ends_with(&format!("  # flag {flag}"))), "{flag} is not in\n{page}");
    }
}

/// What a setting is stands in the table only: no other file has a list of their names.
#[test]
fn no_other_file_lists_settings() {
    /// Names of settings in a row, between commas, from which on they are a list.
    const A_LIST: usize = 3;
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    // A name without dashes may be of another thing.
    let is_setting = |text: &str| text.contains('-') && KEYS.iter().any(|key| key.name == text);
    let mut files = vec![root.to_owned()];
    let mut lists = Vec::new();
    while let Some(path) = files.pop() {
        let name = path.to_string_lossy().into_owned();
        if path.is_dir() {
            // What llm-d calls them, and what tests try, are other facts.
            let skipped = ["/llm_d", "/tests", "/benches", "/fuzz", "/target", "/sim"];
            if !skipped.iter().any(|end| name.ends_with(end)) {
                files.extend(std::fs::read_dir(&path).expect("a folder").map(|entry| entry.expect("an entry").path()));
            }
            continue;
        }
        if !name.ends_with(".rs") || name.ends_with("tests.rs") || name.ends_with("spec/table.rs") {
            continue;
        }
        let source = std::fs::read_to_string(&path).expect("a source");
        let code = source.split("#[cfg(test)]").next().unwrap_or_default();
        for list in code.split(['[', ']', '{', '}', ';']) {
            let texts: Vec<&str> = list.split('"').skip(1).step_by(2).collect();
            let only_texts = list.split('"').step_by(2).all(|between| between.trim().trim_matches(',').is_empty());
            if only_texts && texts.iter().filter(|text| is_setting(text)).count() >= A_LIST {
                lists.push(format!("{name}: {texts:?}"));
            }
        }
    }
    assert!(lists.is_empty(), "{lists:#?}");
}

/// The page has the settings of the flags: read back, it is the same experiment.
#[test]
fn an_explained_configuration_reads_back() {
    let lines = [
        format!("run {MODEL}"),
        format!("run {MODEL} --routing-policy weighted --policy-param routing.queue-depth=2 --num-instances 3 --tp 2"),
        format!("run {MODEL} --workload chatbot --rate 7 --parity blis --scheduling-policy priority --seed 9"),
        format!("run {MODEL} --concurrency 3 --num-requests 9 --think-time-ms 5 --slo-ttft a=1s,default=20ms"),
        format!("run {MODEL} --workload-trace t.csv --start 2 --repeat 3 --timeout 2.5 --no-enable-prefix-caching"),
        format!("run {MODEL} --workload-spec ../examples/workload-spec/mixed.yaml --horizon 5000000"),
        format!(
            "run {MODEL} --alpha-coeffs 1,2,3 --beta-coeffs 4,5,6 --total-kv-blocks 700 --fitness-weights p99_ttft:1"
        ),
        format!("replay {MODEL} --trace-header h.yaml --trace-data d.csv --session-mode closed-loop --parity blis"),
    ];
    for line in lines {
        let page = explained(&line);
        let spec = ExperimentSpec::parse("page.yaml", &page).unwrap_or_else(|error| panic!("{line}: {error}\n{page}"));
        let again = Experiment::new(spec, Default::default()).unwrap_or_else(|error| panic!("{line}: {error}\n{page}"));
        let deployment = open::resolve(&again).unwrap_or_else(|error| panic!("{line}: {error}"));
        // The sources of values differ; the values are the same, also those that follow from others.
        let values = |page: &str| -> Vec<String> {
            page.lines().map(|line| line.split("  # ").next().unwrap_or_default().to_owned()).collect()
        };
        assert_eq!(values(&explain(&again, &deployment).to_string()), values(&page), "{line}");
    }
}

#[test]
fn closed_loops_arrive() {
    let line = "replay --model m --trace-header h --trace-data d";
    let of = |flags: &str| match parse(&format!("{line} {flags}")).expect("valid").workload {
        WorkloadConfig::Recorded { closed_loop, .. } => closed_loop,
        other => panic!("not recorded: {other:?}"),
    };
    assert_eq!([of(""), of("--session-mode fixed"), of("--session-mode closed-loop")], [None, None, Some(None)]);
    let time = of("--session-mode closed-loop --think-time-ms 1.5");
    assert_eq!(time, Some(Some(ThinkTime::Constant(Micros(1_500)))));
    let drawn = of("--session-mode closed-loop --think-time-dist lognormal:mu=2.0,sigma=0.6,min=3s,max=30s");
    let (min, max) = (Micros(3_000_000), Micros(30_000_000));
    assert_eq!(drawn, Some(Some(ThinkTime::LogNormal { mu: 2.0, sigma: 0.6, min, max })));
    let users = |flags: &str| match run(flags).workload {
        WorkloadConfig::Specified(config) => (config.spec.clients[0].load, config.num_requests, config.timeout),
        other => panic!("no users: {other:?}"),
    };
    let load = |count, think_time| ClientLoad::Users { count, think_time: Micros(think_time) };
    let usual = Some(Some(Micros(300_000_000)));
    assert_eq!(users("--concurrency 8 --num-requests 90"), (load(8, 0), Some(90), usual));
    assert_eq!(
        users("--concurrency 8 --think-time-ms 200 --horizon 9 --timeout -1"),
        (load(8, 200_000), None, Some(None))
    );
    let page = explained(
        &format!("{line} --session-mode closed-loop --think-time-dist lognormal:mu=1,sigma=2,min=3s")
            .replace("--model m", MODEL),
    );
    assert!(
        page.contains("  think-time-dist: \"lognormal:mu=1,sigma=2,min=3000000us\"\n    # flag --think-time-dist\n"),
        "{page}"
    );
}

#[test]
fn nonsense_is_explained() {
    let lines = [
        "run",
        "run --model m --tp -1",
        "run --model m --tp 4096",
        "run --model m --dp 0",
        "run --model m --seed -3",
        "run --model",
        "run --model m --no-such-flag --tp 2",
        "run --model m --max-num-seqs 0",
        "run --model m --max-num-batched-tokens 1.5",
        "run --model m --block-size-in-tokens 0",
        "run --model m --total-kv-blocks 0",
        "run --model m --gpu-memory-utilization 1.5",
        "run --model m --rate 0",
        "run --model m --rate NaN",
        "run --model m --horizon 0",
        "run --model m --timeout 0",
        "run --model m --alpha-coeffs 1,-2,3 --beta-coeffs 1,2,3",
        "run --model m --latency-model rooflin",
        "run --model m --scheduler lifo",
        "run --model m --scheduling-policy priority --scheduler sjf",
        "run --model m --max-num-seq 3",
        "run --model m --workload traces",
        "run --model m --workload chatbot --workload-trace t.csv",
        "run --model m --workload-trace t.csv --trace-format azure --rate 5",
        "run --model m --workload-trace t.csv --trace-format azure --mooncake-block-size 16",
        "run --model m --trace-format azure",
        "run --model m --skip-bad-lines",
        "run --model m --workload chatbot --output-tokens 7",
        "run --model m --num-requests 0",
        "run --model m --prompt-tokens 9000",
        "run --model m --prompt-tokens-min 10 --prompt-tokens-max 9",
        "run --model m --output-tokens 5 --output-tokens-max 100",
        "run --model m --metrics-path missing/out.json",
        "run --model m --metrics-path .",
        "run --model m --num-instances 0",
        "run --model m --num-instances 65537",
        "run --model m --admission-latency -1",
        "run --model m --snapshot-refresh-interval 1.5",
        "run --model m --tie-break first",
        "run --model m --admission-policy tier-shad",
        "run --model m --token-bucket-capacity 5",
        "run --model m --admission-policy reject-all --token-bucket-refill-rate 5",
        "run --model m --admission-policy token-bucket --token-bucket-capacity 0",
        "run --model m --routing-scorers queue-depth:1",
        "run --model m --routing-policy least-loaded --routing-load-weight 1",
        "run --model m --routing-policy weighted --routing-scorers queue-depth",
        "run --model m --routing-policy weighted --routing-scorers queue-depth:1,queue-dpth:1",
        "run --model m --routing-policy weighted --routing-scorers queue-depth:1,vllm-dp:NaN",
        "run --model m --routing-policy weighted --routing-scorers queue-depth:1,vllm-dp:1,queue-depth:2",
        "run --model m --routing-policy weighted --routing-scorers queue-depth:1, --routing-load-weight 1",
        "run --model m --routing-policy weighted --routing-scorers queue-depth:1 --routing-load-weight 1",
        "run --model m --routing-filters saturation",
        "run --model m --routing-policy weighted --routing-filters saturated",
        "run --model m --routing-policy weighted --routing-filters saturation:queue-depth",
        "run --model m --routing-policy weighted --routing-filters saturation:queue=3",
        "run --model m --routing-policy weighted --routing-filters saturation:queue-depth=NaN",
        "run --model m --routing-policy weighted --routing-filters saturation,saturation",
        "run --model m --routing-policy weighted --routing-filters saturation --routing-load-weight 1",
        "run --model m --routing-policy weighted --routing-cache-weight 0 --routing-load-weight 0",
        "run --model m --priority-policy slo",
        "run --model m --policy-config missing.yaml",
        "run --model m --slo-ttft 100",
        "run --model m --slo-ttft critical=100",
        "run --model m --slo-ttft critical=0s",
        "run --model m --slo-ttft =1s",
        "run --model m --slo-e2e a=1s,a=2s",
        "run --model m --fitness-scale blis",
        "run --model m --baseline round-robin",
        "run --model m --fitness-weights throughput:1 --fitness-scale blis --baseline round-robin",
        "run --model m --counterfactual-k 3",
        "run --model m --summarize-trace",
        "run --model m --concurrency 0 --num-requests 9",
        "run --model m --concurrency 3 --rate 5",
        "run --model m --concurrency 3",
        "run --model m --concurrency 3 --num-requests 0",
        "run --model m --concurrency 3 --horizon 9 --arrival-process poisson",
        "run --model m --concurrency 3 --horizon 9 --workload bursty",
        "run --model m --concurrency 3 --horizon 9 --prompt-tokens-max 999999999",
        "run --model m --think-time-ms 5",
        "run --model m --concurrency 3 --horizon 9 --think-time-ms -1",
        "replay --model m --trace-header h --trace-data d --session-mode open",
        "replay --model m --trace-header h --trace-data d --think-time-ms 5",
        "replay --model m --trace-header h --trace-data d --session-mode closed-loop --think-time-dist uniform:a=1",
        "replay --model m --trace-header h --trace-data d --session-mode closed-loop --think-time-ms 5 \
         --think-time-dist lognormal:mu=1,sigma=1",
        "replay --model m --trace-header h",
        "replay --model m --trace-header h --trace-data d --metrics-path x --results-path x",
        "replay --model m --trace-header h --trace-data d --rate 1",
        "simulate",
    ];
    let messages: Vec<_> = lines.iter().map(|line| format!("$ blis {line}\n{}\n", refused(line))).collect();
    insta::assert_snapshot!(messages.join("\n"));
}

/// Every page: the path of its command, and the command.
fn pages() -> Vec<(String, clap::Command)> {
    fn below(command: &clap::Command, path: &str, pages: &mut Vec<(String, clap::Command)>) {
        pages.push((path.to_owned(), command.clone()));
        for command in command.get_subcommands().filter(|command| command.get_name() != "help") {
            below(command, &format!("{path} {}", command.get_name()), pages);
        }
    }
    let mut command = help::command().term_width(100);
    command.build();
    let mut pages = Vec::new();
    below(&command, "blis", &mut pages);
    pages
}

#[test]
fn every_help_page_fits_100_columns_and_has_examples() {
    for (path, mut command) in pages().into_iter().filter(|(_, command)| !command.is_hide_set()) {
        let page = command.render_long_help().to_string();
        for line in page.lines() {
            assert!(line.chars().count() <= 100, "{path}: {line}");
        }
        assert!(!help::examples_of(&path).is_empty(), "{path}: no examples");
        assert!(page.contains("Examples:\n"), "{path}: {page}");
        let short = command.render_help().to_string();
        assert!(short.lines().count() <= 110, "{path}: {} lines", short.lines().count());
    }
    for (path, _) in help::EXAMPLES {
        assert!(pages().iter().any(|(known, _)| known == path), "{path} is no command");
    }
}

/// The help of `--routing-scorers` repeats these names.
#[test]
fn help_names_all_scorers_and_the_usual_ones() {
    let all = help::command();
    let run = all.find_subcommand("run").expect("known");
    let flag = run.get_arguments().find(|flag| flag.get_id() == "routing-scorers").expect("known");
    let help = flag.get_help().expect("help").to_string();
    let names: Vec<&str> = ScorerKind::ALL.iter().map(|name| name.name()).collect();
    assert!(help.contains(&names.join(", ")), "{help}");
    let usual = WeightedScorer::DEFAULT.map(|WeightedScorer { name, weight, .. }| format!("{name}:{weight}"));
    assert!(help.contains(&format!("[default: {}]", usual.join(","))), "{help}");
}

#[test]
fn clap_finds_no_contradiction_in_the_flags() {
    help::command().debug_assert();
}

#[test]
fn a_closed_output_is_no_failure() {
    let failure = RunError::output(&io::ErrorKind::BrokenPipe.into());
    assert!(failure.is_quiet());
    assert_eq!(format!("{:?}", exit_code(&failure)), format!("{:?}", ExitCode::SUCCESS));
}

/// Else a command line would mean something else when only one command is made.
#[test]
fn a_command_alone_has_the_flags_and_settings_that_it_has_among_all() {
    for name in ["run", "replay", "compare"] {
        let words = ["blis", name].map(OsString::from);
        let (alone, all) = (help::only_simulating(&words).expect("simulates"), Cli::command());
        let of = |command: &clap::Command| {
            let command = command.find_subcommand(name).expect("named");
            let flags: Vec<String> = command.get_arguments().map(|arg| format!("{arg:?}")).collect();
            let settings = [command.is_args_override_self(), command.is_allow_negative_numbers_set()];
            (flags, settings, command.is_subcommand_required_set())
        };
        assert_eq!(of(&alone), of(&all), "{name}");
    }
    assert!(help::only_simulating(&["blis", "--help"].map(OsString::from)).is_none());
}

/// Else a document would not say that it was granted.
#[test]
fn every_flag_of_a_permission_is_seen_where_it_is_given() {
    let mut seen = std::collections::BTreeSet::new();
    for (path, command) in pages() {
        for flag in command.get_arguments() {
            let names = flag.get_long().into_iter().chain(flag.get_all_aliases().into_iter().flatten());
            let granting: Vec<&str> = names.filter(|name| Permission::of_flag(name).is_some()).collect();
            let id = flag.get_id().as_str().replace('_', "-");
            assert!(granting.is_empty() || Permission::of_flag(&id).is_some(), "{path}: {granting:?} is called {id}");
            seen.extend(granting.into_iter().map(str::to_owned));
        }
    }
    for flag in Permission::all().flat_map(Permission::flags) {
        assert!(seen.contains(*flag), "no command has --{flag}");
    }
}
