//! Flags of autoscaling.

use super::*;

/// Decisions every second, two running requests for a replica that starts in a second.
const QUICK: &str = "--policy-param scaling.running=2 --scaling-interval 1 --scrape-interval 1 --startup-time 1s";

/// Fifty requests per second for twelve seconds.
fn load() -> Vec<Row> {
    rows(600, 20_000, ROW)
}

/// The same, and a request long after them.
fn load_and_late() -> Vec<Row> {
    load().into_iter().chain([Row { arrival_us: 900_000_000, ..ROW }]).collect()
}

impl Trial {
    /// The figures of replicas under `rows`.
    fn replicas(&self, rows: &[Row], flags: &str) -> Value {
        let figures = self.figures(rows, flags);
        assert_eq!(figures["conservation"]["holds"], true, "{flags}");
        figures["replicas"].clone()
    }

    fn peak(&self, flags: &str) -> u64 {
        let replicas = self.replicas(&load(), &format!("--autoscaler queue {QUICK} {flags}"));
        replicas["peak"].as_u64().expect("a peak")
    }
}

/// The time of the first change of the number of replicas, s.
fn first_change(replicas: &Value) -> f64 {
    number(&replicas["timeline"][1], "at_s")
}

pub(super) fn autoscaler(t: &Trial) {
    let peak = |flags: &str| t.replicas(&load(), flags)["peak"].as_u64();
    assert!(peak(&format!("{{}} queue {QUICK}")) > Some(1));
    assert_eq!(peak("{} static"), Some(1));
    assert_eq!(peak(""), None);
    assert!(t.error(&load(), "{} queu").contains("did you mean `queue`"));
    assert!(t.error(&load(), "--policy-param scaling.running=2").contains("needs `--autoscaler`"));
    assert!(t.error(&load(), "{} queue --policy-param scaling.runing=2").contains("did you mean `running`"));
}

pub(super) fn min_replicas(t: &Trial) {
    let first =
        |flags: &str| t.replicas(&load(), &format!("--autoscaler queue {flags}"))["timeline"][0]["active"].clone();
    assert_eq!((first("{} 3"), first("")), (3.into(), 1.into()));
    assert!(t.error(&load(), "--autoscaler queue {} 9 --max-replicas 8").contains("`--max-replicas` 8"));
    assert!(t.error(&load(), "--autoscaler queue {} 0").contains("needs `--flow-control`"));
    assert!(t.error(&load(), "{} 2").contains("needs `--autoscaler`"));
}

pub(super) fn max_replicas(t: &Trial) {
    let peak = |most: &str| t.peak(&format!("--scale-up window=0 {most}"));
    assert_eq!(peak("{} 3"), 3);
    assert!(peak("") > 3);
    assert!(t.error(&load(), "--autoscaler queue {} 2 --num-instances 3").contains("1 to 2 replicas"));
}

pub(super) fn scrape_interval(t: &Trial) {
    let flags = "--autoscaler queue --policy-param scaling.running=2 --scaling-interval 1 --startup-time 1s";
    let change = |interval: &str| first_change(&t.replicas(&load(), &format!("{flags} {interval}")));
    assert!(change("{} 1") < change("{} 5"));
}

pub(super) fn scaling_interval(t: &Trial) {
    let flags = "--autoscaler queue --policy-param scaling.running=2 --scrape-interval 1 --startup-time 1s";
    let change = |interval: &str| first_change(&t.replicas(&load(), &format!("{flags} {interval}")));
    assert!(change("{} 1") < change("{} 5"));
}

pub(super) fn scale_up(t: &Trial) {
    assert_eq!((t.peak("{} disabled"), t.peak("{} 3/60s"), t.peak("")), (1, 4, 2));
    assert!(t.peak("{} window=0") > 4);
    assert!(t.error(&load(), "--autoscaler queue {} 1").contains("window=30s,100%/60s"));
}

pub(super) fn scale_down(t: &Trial) {
    let flags = format!("--autoscaler queue {QUICK}");
    let active = |rules: &str| {
        let replicas = t.replicas(&load_and_late(), &format!("{flags} {rules}"));
        number(&replicas["replica_s"], "active")
    };
    let (at_once, usual, never) = (active("{} window=0"), active(""), active("{} disabled"));
    assert!(at_once + 200.0 < usual && usual + 200.0 < never, "{at_once} {usual} {never}");
}

pub(super) fn cooldown_period(t: &Trial) {
    let flags =
        format!("--autoscaler queue {QUICK} --flow-control --request-ttl 0 --min-replicas 0 --scale-down window=0");
    let active = |time: &str| {
        let replicas = t.replicas(&load_and_late(), &format!("{flags} {time}"));
        number(&replicas["replica_s"], "active")
    };
    let (short, usual) = (active("{} 10"), active(""));
    assert!(short + 200.0 < usual && usual < 600.0, "{short} {usual}");
}

pub(super) fn startup_time(t: &Trial) {
    let flags = "--autoscaler queue --policy-param scaling.running=2 --scaling-interval 1 --scrape-interval 1";
    let time_in = |state: &str, time: &str| {
        let replicas = t.replicas(&load(), &format!("{flags} {time}"));
        number(&replicas["replica_s"], state)
    };
    assert!(time_in("loading", "{} 1s") < time_in("loading", "{} 5s"));
    assert_eq!(time_in("warming", "{} 1s"), 0.0);
    assert!(time_in("warming", "{} process=1s,weights=0,compile=0,warm-up=1s") > 0.0);
    assert!(t.error(&load(), "--autoscaler queue {} proces=1s").contains("did you mean `process`"));
}

pub(super) fn start_mode(t: &Trial) {
    let flags = "--autoscaler queue --policy-param scaling.running=2 --scaling-interval 1 --scrape-interval 1 \
                 --startup-time process=4s,weights=1s,compile=0,warm-up=0,wake=500ms";
    let first_ready = |mode: &str| {
        let replicas = t.replicas(&load(), &format!("{flags} {mode}"));
        let timeline = replicas["timeline"].as_array().expect("a timeline").clone();
        let ready = timeline.iter().find(|entry| entry["active"].as_u64() > Some(1)).expect("a second replica");
        number(ready, "at_s")
    };
    assert!(first_ready("{} hot:8") < first_ready("{} warm") && first_ready("{} warm") < first_ready("{} cold"));
    assert_eq!(first_ready("{} cold"), first_ready(""));
}

pub(super) fn drain_policy(t: &Trial) {
    // At 1 s one of two instances is removed: the newer one has a request, the other has none.
    let row = |arrival_us, output| Row { arrival_us, output, ..ROW };
    let rows = [row(1_000, 5), row(2_000, 2_000), row(5_000_000, 5)];
    let last = |choice: &str| {
        let flags = "--autoscaler static --num-instances 2 --scaling-interval 1 --routing-policy round-robin";
        t.placements(&rows, &format!("{flags} {choice}"))[2]
    };
    assert_eq!((last("{} newest"), last("{} emptiest"), last("")), (Some(0), Some(1), Some(0)));
    assert_eq!(last("{} examples/built-ins/emptiest.rhai"), Some(1));
}

/// Nodes are chosen where there are node pools; `host/sim/src/cluster/tests/nodes.rs` has them.
pub(super) fn placement_policy(t: &Trial) {
    let none = t.error(&load(), "--autoscaler queue {} spread");
    assert!(none.contains("`--placement-policy` needs `--node-pool`"), "{none}");
    assert!(t.error(&load(), "{} spread").contains("needs `--autoscaler`"));
    assert!(
        t.error(&load(), "--autoscaler queue --node-pool name=a,hardware=H100,max=4 {} sprd")
            .contains("did you mean `spread`")
    );
}

pub(super) fn prices(t: &Trial) {
    let file = t.file("prices.yaml", "date: today\nsource: a list\nusd_per_gpu_hour: { H100: 2.5, L40S: 1 }\n");
    let cost = |flags: &str| t.figures(&rows(10, 100_000, ROW), flags)["cost"].clone();
    let (one, two) = (cost(&format!("{{}} {file} --tp 1")), cost(&format!("{{}} {file} --tp 1 --num-instances 2")));
    assert_eq!(number(&one, "usd"), 2.5 * number(&one, "gpu_hours"));
    assert!(number(&two, "usd") > 1.5 * number(&one, "usd"));
    assert_eq!((&one["prices"][0]["date"], &one["prices"][0]["gpu"]), (&"today".into(), &"H100".into()));
    assert_eq!(cost(""), Value::Null);
    assert!(t.error(&rows(1, 1, ROW), &format!("{{}} {file} --hardware H200")).contains("no price of `H200`"));
}

pub(super) fn energy(t: &Trial) {
    let energy = |flags: &str| t.figures(&rows(10, 100_000, ROW), flags)["energy"].clone();
    let (one, two) = (energy("{} --tp 1 --hardware H100"), energy("{} --tp 1 --hardware H100 --num-instances 2"));
    assert!(number(&one, "kwh") > 0.0 && number(&two, "kwh") > 1.2 * number(&one, "kwh"));
    assert_eq!(energy(""), Value::Null);
}

pub(super) fn group(t: &Trial) {
    let placed = |flags: &str| distinct(t.placements(&rows(9, 1_000_000, ROW), flags));
    assert_eq!((placed("{} instances=2"), placed("")), (3, 1));
    let figures = t.figures(&rows(9, 1_000_000, ROW), "--hardware H100 --tp 1 {} hardware=A100-SXM,tp=2,instances=2");
    let groups = &figures["replicas"]["groups"];
    assert_eq!((&groups[0]["hardware"], &groups[0]["gpus_per_replica"]), (&"H100".into(), &1.into()));
    assert_eq!((&groups[1]["hardware"], &groups[1]["gpus_per_replica"]), (&"A100-SXM".into(), &2.into()));
    assert_eq!((number(&groups[0], "mean"), number(&groups[1], "mean")), (1.0, 2.0));
    // As much GPU-time as two GPUs for each of two instances and one for the third.
    let (hours, end) = (number(&figures["replicas"], "gpu_hours"), number(&figures["replicas"], "end_s"));
    assert!((hours - 5.0 * end / 3600.0).abs() < 1e-9, "{hours} {end}");
    assert!(t.error(&rows(1, 1, ROW), "{} hardwear=H100").contains("did you mean `hardware`"));
    assert!(t.error(&rows(1, 1, ROW), "{} min=1").contains("needs `--autoscaler`"));
    assert!(t.error(&rows(1, 1, ROW), "{} tp=1 --trace-level decisions --summarize-trace").contains("--trace-level"));
}

pub(super) fn node_pool(t: &Trial) {
    let flags = format!("--tp 1 --autoscaler queue {QUICK} --scale-up window=0");
    let pool = |pool: &str| t.figures(&load(), &format!("{flags} {{}} {pool}"));
    let peak = |figures: &Value| figures["replicas"]["peak"].as_u64();
    // Two nodes of one GPU each: the third replica waits for ever.
    let two = pool("name=a,gpus-per-node=1,max=2");
    assert_eq!((peak(&two), two["replicas"]["node_pools"][0]["peak"].as_u64()), (Some(2), Some(2)));
    assert!(number(&two["replicas"]["replica_s"], "scheduling") > 0.0);
    // A node that has to come first is paid from its request on, and used later.
    let first_ready = |figures: &Value| {
        let timeline = figures["replicas"]["timeline"].as_array().expect("a timeline").clone();
        number(timeline.iter().find(|entry| entry["active"].as_u64() > Some(1)).expect("a second replica"), "at_s")
    };
    let slow = pool("name=a,gpus-per-node=1,max=2,provisioning=5s,price=4");
    assert!((first_ready(&slow) - first_ready(&two) - 5.0).abs() < 1e-6);
    let (hours, dollars) = (number(&slow["cost"], "node_hours"), number(&slow["cost"], "usd"));
    assert_eq!((dollars, two["cost"].is_null()), (4.0 * hours, true));
    assert!(hours > number(&slow["cost"], "gpu_hours"), "an empty node is paid as well");
    // A replica on two GPUs takes two nodes of one GPU at once.
    let gang = t.figures(&load(), "--tp 2 {} name=a,gpus-per-node=1,max=2");
    assert_eq!(gang["replicas"]["node_pools"][0]["peak"], 2);
    let error = |flags: &str| t.error(&rows(1, 1, ROW), flags);
    assert!(error("--tp 2 {} name=a,gpus-per-node=1,max=1").contains("has no room for a replica"));
    assert!(error("--hardware H100 {} name=a,hardware=A100-SXM,max=1").contains("no pool has nodes with H100"));
    assert!(error("--tp 1 {} name=a,max=1 --node-pool name=b,hardware=L40S,max=1").contains("`b` is used by no group"));
    assert!(error("--tp 1 --num-instances 3 {} name=a,gpus-per-node=1,max=2").contains("room for 2 of the 3"));
    assert!(error("{} name=a,max=1 --node-pool name=a,max=1").contains("`a` is defined twice"));
    assert!(error("{} name=a,min=2,max=1").contains("2 nodes at least"));
    assert!(error("{} name=a,max=1,price=1 --node-pool name=b,max=1").contains("the other has none"));
    assert!(error("{} name=a,max=1,hardwear=H100").contains("did you mean `hardware`"));
}

pub(super) fn node_idle(t: &Trial) {
    let flags = format!(
        "--tp 1 --autoscaler queue {QUICK} --scale-up window=0 --scale-down window=0 --node-pool name=a,gpus-per-node=1,max=4"
    );
    let hours = |time: &str| {
        let replicas = t.replicas(&load_and_late(), &format!("{flags} {time}"));
        number(&replicas["node_pools"][0], "node_hours")
    };
    let (at_once, minute, usual) = (hours("{} 0"), hours("{} 60"), hours(""));
    assert!(at_once < minute && minute < usual, "{at_once} {minute} {usual}");
    assert!(t.error(&load(), "{} 60").contains("needs `--node-pool`"));
}
