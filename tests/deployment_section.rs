//! The section `deployment` of a configuration file: the same service as by flags.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::macros::{Scratch, blis};

const SECTION: &str = "\
rate: 20
num-requests: 400
timeout: -1
routing-policy: least-loaded
deployment:
  model: qwen/qwen3-14b
  groups:
    - { hardware: H100, tp: 1, instances: 2, min: 1, max: 4, max-num-seqs: 64 }
    - { hardware: A100-SXM, tp: 2, max_num_seqs: 32, min: 2, max: 3, startup-time: 'process=2s,weights=1s', start-mode: warm }
    - model: qwen/qwen3-32b
      tp: 2
  node-pools:
    - { name: hopper, hardware: H100, gpus-per-node: 4, max: 2, provisioning: 5s, price: 12 }
    - { name: ampere, hardware: A100-SXM, gpus-per-node: 8, min: 1, max: 1, price: 9.5 }
  node-idle: 30s
  autoscaler:
    policy: queue
    parameters: { running: 4, queued: 2 }
    scrape-interval: 5s
    scaling-interval: 5s
    scale-up: window=0,100%/15s
    startup-time: weights-bandwidth=2GB/s,compile=gaussian(4s,1s)
";

const FLAGS: &str = "--rate 20 --num-requests 400 --timeout -1 --routing-policy least-loaded \
    --model qwen/qwen3-14b --hardware H100 --tp 1 --num-instances 2 --min-replicas 1 --max-replicas 4 --max-num-seqs 64 \
    --group hardware=A100-SXM,tp=2,max-num-seqs=32,min=2,max=3,startup-time=(process=2s,weights=1s),start-mode=warm \
    --group model=qwen/qwen3-32b,tp=2 \
    --node-pool name=hopper,hardware=H100,gpus-per-node=4,max=2,provisioning=5s,price=12 \
    --node-pool name=ampere,hardware=A100-SXM,gpus-per-node=8,min=1,max=1,price=9.5 \
    --node-idle 30s --autoscaler queue --policy-param scaling.running=4 --policy-param scaling.queued=2 \
    --scrape-interval 5s --scaling-interval 5s --scale-up window=0,100%/15s \
    --startup-time weights-bandwidth=2GB/s,compile=gaussian(4s,1s)";

/// Text and JSON are the same to the byte, and so are those of the page that explains the section.
#[test]
fn the_section_is_another_form_of_the_flags() {
    let folder = Scratch::new();
    let file = folder.write("d.yaml", SECTION);
    for form in ["text", "json"] {
        let (typed, read) = (blis!("run", FLAGS, "--output", form), blis!("run --config", file, "--output", form));
        assert_eq!((typed.code, read.code), (Some(0), Some(0)), "{} {}", typed.stderr, read.stderr);
        assert_eq!(typed.stdout, read.stdout);
    }
    let figures = blis!("run --config", file, "--output json").json();
    assert!(figures["replicas"]["started"].as_u64() > Some(0), "{figures}");
    assert_eq!(figures["replicas"]["node_pools"].as_array().map(Vec::len), Some(2));
    let page = folder.write("page.yaml", &blis!("run --config", file, "--explain-config").stdout);
    assert_eq!(blis!("run --config", page, "--output json").json()["replicas"], figures["replicas"]);
}

/// Flags win over the section, as over every setting of the file; it needs no autoscaler.
#[test]
fn the_section_works_without_an_autoscaler_and_under_flags() {
    let folder = Scratch::new();
    let section =
        "model: qwen/qwen3-14b\ndeployment:\n  groups:\n    - { instances: 2 }\n    - { hardware: A100-SXM }\n";
    let file = folder.write("d.yaml", section);
    let groups = |flags: &str| {
        let run = blis!("run --num-requests 20 --output json --config", file, flags);
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        let groups = run.json()["replicas"]["groups"].as_array().expect("groups").clone();
        groups.iter().map(|group| format!("{} {}", group["mean"], group["hardware"])).collect::<Vec<_>>()
    };
    assert_eq!(groups(""), ["2.0 \"H100\"", "1.0 \"A100-SXM\""]);
    assert_eq!(groups("--hardware H200 --num-instances 3"), ["3.0 \"H200\"", "1.0 \"A100-SXM\""]);
}

/// Regression: the columns `group`, `role` and `price` were 0 for all instances.
#[test]
fn routing_policies_read_the_group_the_role_and_the_price() {
    let folder = Scratch::new();
    let served = |score: &str, flags: &str| {
        let script = folder.write("by-label.rhai", format!("fn route(r, s) {{ {score} }}"));
        let out = folder.path("out.json");
        let setting = "run --model qwen/qwen3-14b --num-requests 20 --metrics-path";
        let run = blis!(setting, &out, "--routing-policy", script, flags);
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        let results: Value = serde_json::from_str(&folder.read("out.json")).expect("JSON");
        let requests = results["requests"].as_array().expect("requests").clone();
        requests.iter().map(|request| request["handled_by"].to_string()).collect::<BTreeSet<_>>()
    };
    let groups =
        "--hardware H100 --num-instances 2 --group hardware=A100-SXM --prices examples/autoscaling/prices.yaml";
    assert_eq!(served("s.group", groups), [r#""instance_2""#.to_owned()].into());
    assert_eq!(served("-s.price", groups), [r#""instance_2""#.to_owned()].into(), "the cheaper one");
    assert_eq!(served("where(s.price == 2.49, 1.0, 0.0) * (1 + s.id)", groups), [r#""instance_1""#.to_owned()].into());
    let roles = "--role both --num-instances 1 --group role=decode,instances=2 --pd-decider never";
    assert_eq!(served("where(s.role == 2, s.id, -1.0)", roles), [r#""instance_2""#.to_owned()].into());
    assert_eq!(served("where(s.role == 0, 1.0, 0.0)", roles), [r#""instance_0""#.to_owned()].into());
}

/// A policy bundle may have the section as well.
#[test]
fn a_bundle_has_the_section() {
    let folder = Scratch::new();
    let section = &SECTION[SECTION.find("deployment:").expect("the section")..];
    let bundle = folder.write("b.yaml", format!("routing: {{policy: least-loaded}}\n{section}"));
    let file = folder.write("d.yaml", SECTION);
    let flags = "run --model qwen/qwen3-14b --rate 20 --num-requests 400 --timeout -1 --output json --policy-config";
    let read = blis!(flags, bundle);
    assert_eq!(read.code, Some(0), "{}", read.stderr);
    assert_eq!(read.json()["replicas"], blis!("run --output json --config", file).json()["replicas"]);
    let mistake = folder.write("m.yaml", "admission: {}\ndeployment:\n  groups:\n    - { tpp: 3 }\n");
    assert!(blis!(flags, mistake).stderr.contains("m.yaml:4:9: unknown key `tpp`"));
    let compared = blis!("compare --model qwen/qwen3-14b --num-requests 20 round-robin", bundle);
    assert!(compared.stderr.contains("configuration files and policies cannot be compared"), "{}", compared.stderr);
}

/// Two files with the section are compared under the same requests.
#[test]
fn files_with_the_section_are_compared() {
    let folder = Scratch::new();
    let file = |name: &str, group: &str| {
        let section = format!("deployment:\n  model: qwen/qwen3-14b\n  groups:\n    - {{ hardware: H100, {group} }}\n");
        folder.write(name, section)
    };
    let (two, pair) = (file("two.yaml", "tp: 1, instances: 2"), file("pair.yaml", "tp: 2, instances: 1"));
    let compared = blis!("compare", &two, &pair, "--rate 8 --num-requests 200 --seeds 3 --output json").json();
    let means = compared["metrics"]["mean_ttft"]["means"].as_array().cloned().unwrap_or_default();
    assert!(means.len() == 2 && means[0].as_f64() > means[1].as_f64(), "two GPUs for each step are faster: {compared}");
    let missing = blis!("compare", &two, folder.path("nope.yaml"), "--num-requests 20");
    assert!(missing.code == Some(2) && missing.stderr.contains("nope.yaml`: no such file"), "{}", missing.stderr);
}

/// A bundle names the autoscaler as it names every other policy; a flag wins.
#[test]
fn a_bundle_names_the_autoscaler() {
    let folder = Scratch::new();
    let bundle = folder.write("b.yaml", "scaling:\n  policy: queue\n  parameters: {running: 2}\n");
    let flags = "run --model qwen/qwen3-14b --rate 20 --num-requests 200 --timeout -1 --scaling-interval 5 \
                 --scrape-interval 5 --startup-time 1s --output json";
    let replicas = |more: &str, bundle: &[&std::path::Path]| -> Value {
        let run = match bundle {
            [] => blis!(flags, more),
            [file, ..] => blis!(flags, more, "--policy-config", *file),
        };
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        run.json()["replicas"].clone()
    };
    let own = replicas("--autoscaler queue --policy-param scaling.running=2", &[]);
    assert_eq!(replicas("", &[&bundle]), own);
    let other = replicas("--policy-param scaling.running=8", &[&bundle]);
    assert_eq!(other, replicas("--autoscaler queue --policy-param scaling.running=8", &[]));
    assert_ne!(other, own);
    assert_eq!(replicas("--autoscaler static", &[&bundle]), replicas("--autoscaler static", &[]));
    let compared = blis!("compare --model qwen/qwen3-14b --num-requests 20 round-robin", bundle);
    assert_eq!(compared.code, Some(2));
    assert!(compared.stderr.contains("names the autoscaler `queue`"), "{}", compared.stderr);
}

#[test]
fn mistakes_show_their_location() {
    let folder = Scratch::new();
    let message = |section: &str| {
        let file = folder.write("d.yaml", format!("model: qwen/qwen3-14b\ndeployment:\n{section}"));
        let ended = blis!("run --config", file);
        assert_eq!(ended.code, Some(2), "{section}");
        ended.stderr.replace(&folder.display().to_string(), "DIR")
    };
    let all = [
        message("  grups: []\n"),
        message("  groups:\n    - { hardware: H100, tp: 0 }\n"),
        message("  groups:\n    - { hardware: H100 }\n    - { hardwear: H100 }\n"),
        message("  groups:\n    - { hardware: H100 }\n    - { min: 2 }\n"),
        message("  groups:\n    - { model: qwen/qwen3-32b }\n"),
        message("  node-pools:\n    - { name: a }\n"),
        message("  node-pools:\n    - { name: a, max: 1, hardware: L40S }\n"),
        message("  node-pools:\n    - { name: a, max: 2, min: 3 }\n"),
        message("  autoscaler: { parameters: { running: 3 } }\n"),
        message("  autoscaler: { policy: quue }\n"),
        message("  autoscaler: { policy: queue, parameters: { runing: 3 } }\n"),
        message("  autoscaler: { policy: queue, startup-time: 5 }\n"),
    ];
    insta::assert_snapshot!(all.join("\n"));
}
