//! What is published about autoscaling, on the ramp of `docs/autoscaling.md`, and what must hold whenever replicas come and go.

use serde_json::Value;

use crate::macros::{Scratch, blis};

const RAMP: &str = "--model qwen/qwen3-32b --hardware H100 --tp 2 --timeout -1 --routing-policy weighted \
                    --workload-spec examples/autoscaling/ramp.yaml";
const SLO_AWARE: &str = "--autoscaler slo-aware --min-replicas 3 --startup-time 100s --scrape-interval 5s";
/// Half a minute of load, ten minutes without any, and the same again.
const TWO_BURSTS: &str = r#"
version: "2"
seed: 3
clients:
  - id: bursts
    rate_fraction: 1
    arrival: { process: poisson }
    input_distribution: { type: constant, params: { value: 500 } }
    output_distribution: { type: constant, params: { value: 200 } }
    lifecycle:
      windows:
        - { start_us: 0, end_us: 30000000, rate: 10 }
        - { start_us: 630000000, end_us: 660000000, rate: 10 }
"#;
/// Half a minute of load; the name of an autoscaler follows.
const LOAD: &str = "--model qwen/qwen3-14b --rate 20 --num-requests 600 --timeout -1 --scaling-interval 5 \
                    --scrape-interval 5 --startup-time 5s --autoscaler";

fn run(flags: &str) -> Value {
    let figures = blis!("run", flags, "--output json").json();
    assert_eq!(figures["conservation"]["holds"], true, "{flags}");
    figures
}

fn number(value: &Value, path: &str) -> f64 {
    value.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("no number {path} in {value}"))
}

/// Attainment, %, and mean replicas.
fn attained(figures: &Value) -> (f64, f64) {
    (100.0 * number(figures, "/slo_attainment"), number(figures, "/replicas/mean"))
}

/// llm-d's guide of SLO-aware autoscaling: 95.8 % at 5.93 mean replicas; static 8 replicas 100 %.
#[test]
fn the_slo_aware_scaler_serves_the_published_ramp() {
    let runs: Vec<(f64, f64)> =
        (1..=5).map(|seed| attained(&run(&format!("{RAMP} {SLO_AWARE} --seed {seed}")))).collect();
    let mean = |of: fn(&(f64, f64)) -> f64| runs.iter().map(of).sum::<f64>() / runs.len() as f64;
    let (attainment, replicas) = (mean(|run| run.0), mean(|run| run.1));
    assert!((92.8..=98.8).contains(&attainment), "{attainment} %: {runs:?}");
    assert!((5.4..=6.5).contains(&replicas), "{replicas} replicas: {runs:?}");
    let fixed = run(&format!("{RAMP} --num-instances 8"));
    assert!(number(&fixed, "/slo_attainment") >= 0.99);
}

/// A scaler that knows the arrivals needs fewer replicas than any other, and misses no SLO.
#[test]
fn the_perfect_scaler_is_a_bound() {
    let perfect = format!(
        "{RAMP} --autoscaler perfect --policy-param scaling.rate=1.35 --policy-param scaling.lead-s=100 --min-replicas 3 \
         --startup-time 100s"
    );
    let (attainment, bound) = attained(&run(&perfect));
    assert!(attainment > 99.0, "{attainment} %");
    for other in ["queue", "saturation", "queue-guard", "token-aware", "slo-aware", "wva-v1", "wva-v2"] {
        let (_, replicas) =
            attained(&run(&format!("{RAMP} --autoscaler {other} --min-replicas 3 --startup-time 100s")));
        assert!(bound < replicas, "{other}: {replicas} replicas, perfect {bound}");
    }
}

#[test]
fn gpu_hours_are_the_sum_over_states() {
    let figures = run(&format!("{RAMP} {SLO_AWARE} --prices examples/autoscaling/prices.yaml"));
    let states = ["loading", "warming", "active", "draining"];
    let held: f64 = states.iter().map(|state| number(&figures, &format!("/replicas/replica_s/{state}"))).sum();
    let (hours, end) = (number(&figures, "/replicas/gpu_hours"), number(&figures, "/replicas/end_s"));
    assert!((hours - 2.0 * held / 3600.0).abs() < 1e-9, "two GPUs of a replica");
    assert!((number(&figures, "/replicas/mean") - held / end).abs() < 1e-9);
    assert!((number(&figures, "/cost/usd") - 2.49 * hours).abs() < 1e-9);
    let timeline = figures["replicas"]["timeline"].as_array().expect("a timeline");
    let active = |entry: &Value| number(entry, "/active");
    let times = timeline.iter().map(|entry| number(entry, "/at_s")).chain([end]).skip(1);
    let sum: f64 =
        timeline.iter().zip(times).map(|(entry, until)| active(entry) * (until - number(entry, "/at_s"))).sum();
    assert!((sum - number(&figures, "/replicas/replica_s/active")).abs() < 1e-3, "{sum}");
}

#[test]
fn a_service_at_zero_serves_the_next_request() {
    let scratch = Scratch::new();
    let bursts = scratch.write("bursts.yaml", TWO_BURSTS);
    let zero = run(&format!(
        "--model qwen/qwen3-14b --timeout -1 --workload-spec {} --autoscaler queue --policy-param scaling.running=4 \
         --scaling-interval 5 --scrape-interval 5 --startup-time 5s --flow-control --request-ttl 0 --min-replicas 0 \
         --num-instances 1 --cooldown-period 60",
        bursts.display()
    ));
    assert_eq!(number(&zero, "/completed_requests"), number(&zero, "/conservation/arrived"), "none is lost");
    let timeline = zero["replicas"]["timeline"].as_array().expect("a timeline");
    let total = |entry: &Value| {
        ["/loading", "/warming", "/active", "/draining"].iter().map(|state| number(entry, state)).sum::<f64>()
    };
    let empty = timeline.iter().position(|entry| total(entry) == 0.0).expect("it goes to zero");
    assert!(timeline[empty..].iter().any(|entry| number(entry, "/active") > 0.0), "and comes back");
}

#[test]
fn both_engines_scale_alike() {
    let others = ["queue --policy-param scaling.running=4", "slo-aware --policy-param scaling.ttft-ms=100", "wva-v2"];
    for autoscaler in others {
        let [fast, plain] = ["fast", "plain"].map(|engine| {
            let mut figures = run(&format!("{LOAD} {autoscaler} --simulation {engine}"));
            figures.as_object_mut().expect("a document").remove("run");
            figures
        });
        assert_eq!(fast, plain, "{autoscaler}");
    }
}

/// The page of `--explain-config` is a configuration file: with it, the run is the same.
#[test]
fn an_explained_run_scales_in_the_same_way() {
    let scratch = Scratch::new();
    let flags = format!(
        "{LOAD} queue --policy-param scaling.running=4 --scale-down window=30s,1/60s --start-mode hot:2 --drain-policy emptiest"
    );
    let page = blis!("run", flags, "--explain-config").stdout;
    assert!(page.contains("scaling.running=4") && page.contains("emptiest"), "{page}");
    let file = scratch.write("page.yaml", &page);
    let again = blis!("run --config", file, "--output json").json();
    assert_eq!(again["replicas"], run(&flags)["replicas"]);
}

/// Candidates of a suite with scenarios that scale are evaluated, also by their GPU-hours.
#[test]
fn a_suite_may_scale() {
    let scratch = Scratch::new();
    let suite = "schema: 1\nname: elastic\nweights: mean_ttft:1,gpu_hours:1\nseeds: {smoke: 1, train: 2}\n\
                 run: {model: qwen/qwen3-14b, autoscaler: queue, policy-param: scaling.running=4, scaling-interval: 5, \
                 scrape-interval: 5, startup-time: 5s, slo-ttft: 1s, rate: 30}\n\
                 scenarios:\n  - {name: one, splits: [smoke, train, select, test], run: {num-requests: 400}}\n  \
                 - {name: two, splits: [train, select], run: {num-requests: 300}}\n";
    let file = scratch.write("elastic.yaml", suite);
    let result = blis!("evaluate policies/prefix-then-load.rhai --output json --suite", file).json();
    assert_eq!((&result["status"], &result["stage"]), (&"ok".into(), &"train".into()), "{result}");
    let objectives = &result["scenarios"][0]["objectives"];
    assert!(number(objectives, "/gpu_hours/own") > 0.0, "{objectives}");
}

/// BLIS's own loop: it drains an idle service, and refuses every request that comes later.
#[test]
fn the_loop_of_blis_never_comes_back_from_zero() {
    let scratch = Scratch::new();
    let bursts = scratch.write("bursts.yaml", TWO_BURSTS);
    let flags = format!(
        "--parity blis --model qwen/qwen3-14b --tp 1 --timeout -1 --workload-spec {} --num-instances 2 --autoscaler blis-v2 \
         --scaling-interval 5 --policy-param scaling.delay-s=1 --policy-param scaling.delay-sd-s=0.2 --startup-time gaussian(5s,1s) \
         --node-pool name=a,gpus-per-node=1,min=4,max=4",
        bursts.display()
    );
    let figures = run(&flags);
    let last = figures["replicas"]["timeline"].as_array().and_then(|all| all.last()).expect("a timeline").clone();
    assert_eq!(number(&last, "/active"), 0.0);
    assert!(number(&figures, "/rejected_no_replica") > 200.0, "the second burst finds none: {figures}");
    assert_eq!(run(&flags)["replicas"], figures["replicas"]);
    let error = |flags: &str| blis!("run --model qwen/qwen3-14b", flags).stderr;
    assert!(error("--autoscaler blis-v2").contains("needs `--parity blis`"));
    assert!(error("--parity blis --autoscaler queue").contains("`--autoscaler blis-v2`"));
    assert!(error("--parity blis --autoscaler blis-v2").contains("needs `--node-pool`"));
    let pool = "--parity blis --autoscaler blis-v2 --node-pool name=a,min=2,max=";
    assert!(error(&format!("{pool}3")).contains("min` and `max` to the same number"));
    assert!(error(&format!("{pool}2 --max-replicas 3")).contains("no such rule"));
}

/// The time of replicas, in all states but scheduling, is the GPU-time, and nodes are there for at least as long; on one
/// thread as on two, which a comparison has.
#[test]
fn times_add_up_on_nodes_and_threads_change_nothing() {
    let flags = format!(
        "{} queue --policy-param scaling.running=4 --scale-up window=0 --tp 2 \
         --startup-time weights-bandwidth=4GB/s,process=gaussian(3s,1s),compile=0,warm-up=1s \
         --node-pool name=a,gpus-per-node=2,min=1,max=2,provisioning=4s,price=5 \
         --node-pool name=b,gpus-per-node=4,max=1,provisioning=9s,price=9 --node-idle 5s",
        LOAD.replace("--startup-time 5s", "")
    );
    let figures = run(&flags);
    let replicas = &figures["replicas"];
    let held: f64 = ["loading", "warming", "active", "draining"]
        .iter()
        .map(|state| number(replicas, &format!("/replica_s/{state}")))
        .sum();
    assert!(number(replicas, "/started") > 1.0 && number(replicas, "/replica_s/scheduling") > 0.0, "{replicas}");
    assert!((number(replicas, "/gpu_hours") - 2.0 * held / 3600.0).abs() < 1e-9);
    let pools = replicas["node_pools"].as_array().expect("two pools");
    let sum = |of: &dyn Fn(&Value) -> f64| pools.iter().map(of).sum::<f64>();
    let gpu_hours = sum(&|pool| number(pool, "/node_hours") * number(pool, "/gpus_per_node"));
    assert!(gpu_hours >= number(replicas, "/gpu_hours"), "{replicas}");
    let dollars = sum(&|pool| number(pool, "/node_hours") * number(pool, "/usd_per_node_hour"));
    assert!((number(&figures, "/cost/usd") - dollars).abs() < 1e-9);
    let compared = |threads: &str| {
        let ended = blis!("compare round-robin least-loaded --seeds 2 --output json --threads", threads, flags);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        ended.stdout
    };
    assert_eq!(compared("1"), compared("2"));
}
