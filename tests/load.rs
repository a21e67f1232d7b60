//! Results say what they are, and whether their figures are those of a steady state.

use serde_json::Value;

use crate::macros::{Scratch, blis, ended, program};

const SERVICE: &str =
    "--model meta-llama/llama-3.1-8b-instruct --gpu A100-80 --tp 2 --rate 50 --slo-ttft default=500ms";

fn warnings(document: &Value) -> String {
    let warnings = document["run"]["warnings"].as_array().expect("warnings");
    warnings.iter().map(|warning| warning["what"].as_str().expect("a text")).collect::<Vec<_>>().join("\n")
}

/// The question of a newcomer: how many replicas?
#[test]
fn one_server_at_fifty_requests_a_second_is_overloaded() {
    let document = blis!("run", SERVICE).whole_json();
    assert_eq!(document["load"]["state"], "overloaded", "{document:#}");
    let warnings = warnings(&document);
    assert!(warnings.contains("overloaded: ") && warnings.contains("too short: p99 from 100 requests"), "{warnings}");
}

#[test]
fn four_replicas_pass_and_three_do_not() {
    // Seeds 22 and 46 were called overloaded.
    four_pass_and_three_do_not([(1, 10_000), (22, 10_000), (46, 10_000)]);
}

#[test]
#[ignore = "heavy: `.ci/run` runs it in a step of its own"]
fn four_replicas_pass_and_three_do_not_at_any_seed() {
    four_pass_and_three_do_not((0..12).map(|number| (1000 + 37 * number, 10_000 + 5000 * (number % 4))));
}

/// For each of these seeds and numbers of requests.
fn four_pass_and_three_do_not(runs: impl IntoIterator<Item = (u64, u64)>) {
    for (seed, requests) in runs {
        let run = |replicas: u32| {
            let line = format!("--num-instances {replicas} --num-requests {requests} --seed {seed}");
            blis!("run", SERVICE, line).whole_json()
        };
        let (three, four) = (run(3), run(4));
        assert_eq!(
            (&three["load"]["state"], &four["load"]["state"]),
            (&"overloaded".into(), &"steady".into()),
            "{seed}"
        );
        assert_eq!(warnings(&four), "", "{seed}");
        let attainment = |document: &Value| document["slo_attainment"].as_f64().expect("a share");
        // Four have 85 % of their batch slots taken on average. With few seeds chance fills all for a while: 0.943 at seed 1074.
        let attained = (attainment(&three), attainment(&four));
        assert!(attained.0 < 0.6 && attained.1 > 0.9, "{seed}: {attained:?}");
        let served = four["load"]["served_rps"].as_f64().expect("a rate");
        // Four standard deviations of the arrivals in the second half.
        let noise = 4.0 / (requests as f64 / 2.0).sqrt();
        assert!((served / 50.0 - 1.0).abs() < noise, "the drain does not count: {served}");
    }
}

/// Users who wait for outputs never overload a service.
#[test]
fn a_closed_loop_has_no_state() {
    let line = "run --model llama-3.1-8b-instruct --concurrency 2000 --num-requests 4000";
    let document = blis!(line).whole_json();
    assert_eq!(document["load"]["state"], Value::Null);
    assert_eq!(warnings(&document), "");
}

#[test]
fn settings_of_a_result_give_the_same_result() {
    let line = "run --model llama-3.1-8b-instruct --tp 2 --num-requests 50 --routing-policy weighted --num-instances 3 \
                --policy-param routing.queue-depth=2 --seed 7 --total-kv-blocks 9000";
    let document = blis!(line).whole_json();
    let run = &document["run"];
    assert_eq!((&run["model"], &run["seed"]), (&"llama-3.1-8b-instruct".into(), &7.into()));
    assert_eq!((&run["engine"]["total_kv_blocks"], &run["tensor_parallel_size"]), (&9000.into(), &2.into()));
    let routing = run["policies"].as_array().expect("policies").iter().find(|policy| policy["kind"] == "routing");
    let routing = routing.expect("routing");
    assert_eq!((&routing["name"], &routing["parameters"]["queue-depth"]), (&"weighted".into(), &2.0.into()));
    let notes = run["notes"].as_array().expect("notes");
    assert!(notes.iter().any(|note| note.as_str().is_some_and(|note| note.starts_with("physics coefficients"))));
    // YAML reads JSON.
    let dir = Scratch::new();
    let config = dir.write("settings.yaml", run["settings"].to_string());
    let again = blis!("run --config", config).whole_json();
    assert_eq!(without_command(document.clone()), without_command(again));
    let other = blis!(line, "--seed 8").whole_json();
    assert_ne!(run["digest"], other["run"]["digest"]);
}

/// The same run may be started by other words.
fn without_command(mut document: Value) -> Value {
    document["run"].as_object_mut().expect("an object").remove("command").expect("a command");
    document
}

/// Whether a value is set or is the default makes no difference to the experiment: its page gives the same settings and digest, and so
/// does a default that is set.
#[test]
fn an_explained_run_has_the_digest_of_the_run() {
    let dir = Scratch::new();
    for line in [
        "run --model qwen3-14b --num-requests 20",
        "run --model llama-3.1-8b-instruct --tp 2 --num-requests 20 --num-instances 3 --routing-policy weighted \
         --policy-param routing.queue-depth=2 --max-num-seqs 64 --slo-ttft default=500ms",
        "run --model llama-3.1-8b-instruct --num-requests 20 --parity blis",
    ] {
        let run = blis!(line).whole_json();
        let page = dir.write("page.yaml", blis!(line, "--explain-config").done().stdout);
        let explained = blis!("run --config", page).whole_json();
        assert_eq!(without_command(run), without_command(explained), "{line}");
    }
    let line = "run --model qwen3-14b --num-requests 20";
    let digest = |more: &str| blis!(line, more).whole_json()["run"]["digest"].clone();
    assert_eq!(digest(""), digest("--seed 42 --rate 1 --tp 1 --hardware H100 --max-num-seqs 1024"));
    assert_ne!(digest(""), digest("--seed 42 --rate 1.1"));
}

/// Regression: the built-in model was simulated without a word.
#[test]
fn a_folder_with_the_name_of_a_model_is_noted() {
    let dir = Scratch::new();
    std::fs::create_dir(dir.join("qwen3-14b")).expect("a folder");
    let mut run = program!("run --model qwen3-14b --num-requests 20 --output json --log error");
    let document = ended(run.current_dir(dir.join("."))).whole_json();
    let notes = document["run"]["notes"].to_string();
    assert!(notes.contains("the folder `qwen3-14b` is not read: `--model ./qwen3-14b`"), "{notes}");
}

/// Regression: latencies of nothing were 0, which is better than any.
#[test]
fn latencies_of_nothing_are_null() {
    let line = "run --model llama-3.1-8b-instruct --num-requests 20 --timeout 0.001";
    let document = blis!(line).whole_json();
    assert_eq!(document["completed_requests"], 0);
    for figure in ["e2e_mean_ms", "e2e_p99_ms", "itl_mean_ms", "tpot_mean_ms"] {
        assert_eq!(document[figure], Value::Null, "{figure}");
    }
    assert!(warnings(&document).contains("no request completed"));
    let parity = blis!(line, "--parity blis").json();
    assert_eq!((&parity["e2e_mean_ms"], &parity["ttft_mean_ms"]), (&0.0.into(), &0.0.into()), "as BLIS");
}

#[test]
fn arrivals_are_random_unless_blis_is_followed() {
    let spacing = |more: &str| {
        let page = blis!("run --model llama-3.1-8b-instruct --explain-config", more).done().stdout;
        page.lines().find(|line| line.contains("arrival-process:")).expect("a line").trim().to_owned()
    };
    assert!(spacing("").starts_with("arrival-process: poisson"), "{}", spacing(""));
    assert!(spacing("--parity blis").starts_with("arrival-process: constant"), "{}", spacing("--parity blis"));
}

/// llm-d measured 514 ms (15 928 tokens/s) on an idle server: Qwen3-32B on two H100, the whole prompt in one step.
#[test]
fn a_lone_prompt_takes_as_long_as_measured() {
    let ttft_ms = |budget: u32| {
        let lengths = "--prompt-tokens 8192 --prompt-tokens-stdev 0 --prompt-tokens-min 8192 --prompt-tokens-max 8192";
        let server = format!("--model qwen/qwen3-32b --gpu H100 --tp 2 --max-num-batched-tokens {budget}");
        let run = blis!(format!("run {server} --num-requests 1 {lengths} --output-tokens 8")).json();
        run["ttft_mean_ms"].as_f64().expect("a number")
    };
    let whole = ttft_ms(8192);
    assert!((whole / 514.0 - 1.0).abs() < 0.1, "{whole} ms");
    assert!(whole <= ttft_ms(2048) && ttft_ms(16_384) == whole, "never longer with a larger budget");
}

/// Sessions of six rounds with a constant think time: their prefill batches gather them, and they come back together.
const CONSTANT_SESSIONS: &str = "version: \"2\"\naggregate_rate: 2\nclients:\n- id: c\n  rate_fraction: 1.0\n  arrival: {process: poisson}\n  \
     input_distribution: {type: constant, params: {value: 500}}\n  output_distribution: {type: constant, params: {value: 200}}\n  \
     closed_loop: true\n  timeout: 0\n  reasoning:\n    \
     multi_turn: {max_rounds: 6, think_time_us: 30000000, context_growth: accumulate}\n";

/// The state is at the top, and the sentence and a caveat say what it follows from; `compare` has the same caveats.
#[test]
fn states_of_runs_say_what_they_follow_from() {
    let scratch = Scratch::new();
    scratch.write("sessions.yaml", CONSTANT_SESSIONS);
    let sessions = format!("--num-instances 3 --workload-spec {} --num-requests 30000", scratch.path("sessions.yaml"));
    let runs = [
        ("deadline", "--rate 2 --num-requests 200 --timeout 500ms", "500 ms are less than the"),
        ("saturated", "--concurrency 400 --num-requests 4000", "three quarters of the users get 1"),
        ("synchronised", &sessions, "clients send together, variance/mean"),
        (
            "starved",
            "--num-instances 2 --rate 3 --num-requests 600 --output-tokens 50 --output-tokens-stdev 10 --routing-policy tests/load/first.rhai",
            "instance 1 got no request",
        ),
    ];
    for (state, flags, reason) in runs {
        let document = blis!("run --model qwen/qwen3-14b", flags).whole_json();
        assert_eq!((&document["state"], &document["conclusion"]["kind"]), (&state.into(), &state.into()), "{flags}");
        let sentence = document["conclusion"]["text"].as_str().expect("a text");
        assert!(sentence.contains(reason), "{sentence}");
        let caveats = document["run"]["caveats"].as_array().expect("caveats");
        assert!(caveats.iter().any(|caveat| caveat["code"] == state), "{caveats:?}");
        if state != "starved" {
            let other = blis!("compare --seeds 2 least-loaded weighted --model qwen/qwen3-14b", flags).whole_json();
            let caveats = other["run"]["caveats"].to_string();
            assert!(caveats.contains(state) && caveats.contains(reason), "{caveats}");
        }
    }
}
