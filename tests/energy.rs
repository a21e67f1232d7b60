//! `--energy`: its power model against the measured rows of `examples/energy/power.json`, published anchors, and the program.

use std::fs;

use blis_config::{DeploymentArgs, resolve};
use blis_sim::energy::GpuPower;
use blis_sim::ids::RequestId;
use blis_sim::instance::StepRecord;
use blis_sim::latency::Batch;
use blis_sim::units::Micros;
use serde_json::Value;

use crate::macros::{blis, root};

const H100: GpuPower = GpuPower { limit_w: 700.0 };

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no number: {value}"))
}

/// The rows that begin with `label`: (bytes per second, FLOP per second, each as a share of the peak; W).
fn measured(label: &str) -> Vec<(f64, f64, f64)> {
    let text = fs::read_to_string(root().join("examples/energy/power.json")).expect("the measured rows");
    let rows: Value = serde_json::from_str(&text).expect("JSON");
    let rows = rows["rows"].as_array().expect("rows").iter();
    rows.filter(|row| row["label"].as_str().is_some_and(|own| own.starts_with(label)))
        .map(|row| (number(&row["gb_per_s"]) / 3350.0, number(&row["tflops"]) / 989.5, number(&row["watts"])))
        .collect()
}

/// 4 % of linear layers at any number of tokens and at any share of busy time, 5 % of attention; 1 % of an idle GPU.
#[test]
fn the_power_of_an_h100_is_that_of_the_measured_rows() {
    let linear = measured("linear layers");
    assert_eq!(linear.len(), 15);
    for (weights, compute, watts) in linear {
        let ratio = H100.watts(weights, 0.0, compute) / watts;
        assert!((ratio - 1.0).abs() < 0.04, "{weights} {compute}: {ratio} of {watts} W");
    }
    let attention = [measured("decode attention"), measured("prefill attention")].concat();
    assert_eq!(attention.len(), 5);
    for (cache, compute, watts) in attention {
        let ratio = H100.watts(0.0, cache, compute) / watts;
        assert!((ratio - 1.0).abs() < 0.05, "{cache} {compute}: {ratio} of {watts} W");
    }
    let [(.., idle)] = measured("weights loaded, idle")[..] else { panic!("one row") };
    assert!((H100.idle_w() / idle - 1.0).abs() < 0.01, "{idle} W");
}

/// The 1/W law (arXiv 2603.17280), read as Llama-3.1-70B on eight H100s and the power of one of them: 17.6 tokens per second and watt
/// from 256 requests of 4096 tokens, and 1.5 from 16 of 65 536. Ours are 12.8 and 0.8, within a factor of 2.
#[test]
fn tokens_per_watt_fall_with_the_context() {
    let arguments = DeploymentArgs {
        hardware: Some("H100".to_owned()),
        tensor_parallel_size: Some(8),
        ..DeploymentArgs::new("meta-llama/llama-3.1-70b-instruct")
    };
    let deployment = resolve(&arguments).expect("a built-in model");
    let energy = deployment.energy.as_ref().expect("a built-in GPU");
    for (requests, context, published) in [(256, 4096, 17.6), (16, 65_536, 1.5)] {
        let mut batch = Batch::default();
        (0..requests).for_each(|_| batch.add_decode(context));
        let end = deployment.latency.step_time(&batch);
        let scheduled = (0..requests).map(|id| (RequestId(id), 1, context)).collect();
        let joules = energy.joules(&StepRecord { end, scheduled, ..StepRecord::default() });
        // Tokens per second over watts are tokens over joules.
        let found = f64::from(requests) / (joules / 8.0);
        assert!((0.5..1.0).contains(&(found / published)), "{found} instead of {published} tokens/s/W");
        assert!(end > Micros(1000));
    }
}

/// The energy of a run: within idle power and the limit, more with more replicas, the same from both engines and on the result.
#[test]
fn a_run_has_the_energy_of_its_steps() {
    let load =
        "run --model llama-3.1-8b-instruct --hardware H100 --rate 8 --num-requests 80 --output-tokens 60 --output json";
    let found = blis!(format!("{load} --energy")).json();
    let energy = &found["energy"];
    let [kwh, busy, watts, joules] =
        ["kwh", "busy_kwh", "mean_gpu_w", "joules_per_output_token"].map(|key| number(&energy[key]));
    assert!(0.0 < busy && busy < kwh && (115.0..700.0).contains(&watts), "{energy}");
    let tokens = number(&found["total_output_tokens"]);
    assert!((joules * tokens / 3.6e6 / kwh - 1.0).abs() < 1e-9, "{found}");
    assert!(energy["calibration"].as_str().expect("text").contains("uncalibrated"));
    let plain = blis!(format!("{load} --energy --simulation plain")).json();
    assert_eq!(plain["energy"], *energy);
    let mut without = found.clone();
    without.as_object_mut().expect("an object").remove("energy");
    let mut unasked = blis!(load).json();
    for document in [&mut without, &mut unasked] {
        document.as_object_mut().expect("an object").remove("run");
    }
    assert_eq!(without, unasked, "it changes no other figure");
    let scaled = blis!(format!("{load} --energy --autoscaler static --policy-param scaling.replicas=1")).json();
    assert!((number(&scaled["energy"]["busy_kwh"]) / busy - 1.0).abs() < 1e-9, "{scaled}");
    let two = blis!(format!("{load} --energy --num-instances 2")).json();
    assert!(number(&two["energy"]["kwh"]) > 1.2 * kwh, "{two}");
}

#[test]
fn energy_is_compared_and_scored_where_it_is_computed() {
    let load = "--model llama-3.1-8b-instruct --hardware H100 --rate 8 --num-requests 60 --output-tokens 40 --seeds 2";
    let found = blis!(format!("compare {load} --vary num-instances=1,2 --energy --output json")).json();
    let means = &found["metrics"]["joules_per_output_token"]["means"];
    assert!(number(&means[1]) > number(&means[0]), "{found}");
    let weighted = blis!(format!("compare round-robin least-loaded {load} --fitness-weights kwh:1 --output text"));
    assert!(weighted.code == Some(2) && weighted.stderr.contains("--energy"), "{}", weighted.stderr);
    let groups = blis!("run --model llama-3.1-8b-instruct --energy --group tp=2 --output text");
    assert!(groups.code == Some(2) && groups.stderr.contains("cannot be used with `--group`"), "{}", groups.stderr);
    let summary =
        blis!("run --model llama-3.1-8b-instruct --hardware L4 --num-requests 5 --energy --output text").done().stdout;
    assert!(summary.contains("Energy") && summary.contains("uncalibrated"), "{summary}");
}
