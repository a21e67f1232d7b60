//! Sampling parameters of clients, through the real program.

use serde_json::Value;

use crate::macros::{Scratch, blis};

/// A client of 20 requests per second that sets `sampling`.
fn client(id: &str, sampling: &str) -> String {
    format!(
        "  - id: {id}\n    rate_fraction: 1\n    arrival: {{ process: poisson }}\n    input_distribution: {{ type: \
         constant, params: {{ value: 200 }} }}\n    output_distribution: {{ type: constant, params: {{ value: 50 }} }}\n\
         {sampling}"
    )
}

/// The figures of 200 requests of two clients.
fn figures(samplings: [&str; 2], flags: &str) -> Value {
    let folder = Scratch::new();
    let section =
        |params: &str| if params.is_empty() { String::new() } else { format!("    sampling: {{ {params} }}\n") };
    let clients: String = ["a", "b"].iter().zip(samplings).map(|(id, params)| client(id, &section(params))).collect();
    let text = format!("version: \"2\"\naggregate_rate: 40\nnum_requests: 200\nclients:\n{clients}");
    let spec = folder.write("spec.yaml", text);
    blis!("run --model meta-llama/llama-3.1-8b-instruct --tp 1", flags, "--workload-spec", spec).json()
}

fn itl(samplings: [&str; 2]) -> f64 {
    figures(samplings, "")["itl_mean_ms"].as_f64().expect("a number")
}

/// The model's `generation_config.json` has `temperature` 0.6 and `top_p` 0.9.
#[test]
fn requests_with_the_parameters_of_the_model_are_as_those_without() {
    let usual = figures(["", ""], "");
    assert_eq!(figures(["top_p: 0.9", "temperature: 0.6, top_p: 0.5"], ""), usual, "to the byte");
    assert_eq!(figures(["temperature: 0", "top_p: 1"], ""), figures(["temperature: 0", "temperature: 0"], ""));
}

#[test]
fn what_requests_need_costs_time() {
    let [greedy, restricted] = [["temperature: 0"; 2], [""; 2]].map(itl);
    assert!(greedy < restricted, "no sort: {greedy} {restricted}");
    let mixed = itl(["temperature: 0", ""]);
    assert!(greedy < mixed && mixed < 1.01 * restricted, "one request is enough for all rows: {mixed} {restricted}");
    assert!(itl(["repetition_penalty: 1.1", ""]) > restricted);
    assert!(itl(["temperature: 0", "temperature: 1, top_p: 1, min_p: 0.1"]) > greedy);
}

#[test]
fn both_simulations_agree_on_mixed_sampling() {
    let mixed = ["temperature: 0, presence_penalty: 0.5", "top_k: 20"];
    assert_eq!(figures(mixed, "--simulation plain"), figures(mixed, "--simulation fast"));
}
