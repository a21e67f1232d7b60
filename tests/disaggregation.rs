//! Prefill apart from decode: what is published, and errors before the run.

use serde_json::Value;

use crate::macros::{Scratch, blis};

const PUBLISHED: &str = "--model openai/gpt-oss-120b --hardware H200 --tp 1 --rate 45 --arrival-process constant \
                         --num-requests 5400 --prompt-tokens 5000 --prompt-tokens-stdev 0 --output-tokens 250 \
                         --output-tokens-stdev 0 --output json";
const TINY: &str = "--model meta-llama/llama-3.1-8b-instruct --num-requests 2";

/// The mean of `what`, ms.
fn mean(figures: &Value, what: &str) -> f64 {
    figures[format!("{what}_mean_ms")].as_f64().unwrap_or(f64::NAN)
}

/// llm-d's guide; its instances that do both were behind a Kubernetes service: E2E −58 %, ITL −80 %, TTFT +117 %. ITL is the one
/// that was measured with another version of vLLM: see `docs/disaggregation.md`.
#[test]
#[ignore = "heavy: `.ci/run` runs it in a step of its own"]
fn prefill_apart_from_decode_trades_ttft_for_itl() {
    let at_random = "--routing-policy weighted --routing-scorers random:1";
    let together = blis!("run", PUBLISHED, "--num-instances 16", at_random).json();
    let apart = "--prefill-instances 8 --decode-instances 2 --decode-tp 4 --pd-decider always";
    let apart = blis!("run", PUBLISHED, apart, at_random).json();
    let change = |what: &str| 100.0 * (mean(&apart, what) / mean(&together, what) - 1.0);
    let (e2e, itl, ttft) = (change("e2e"), change("itl"), change("ttft"));
    assert!((-70.0..=-40.0).contains(&e2e), "E2E {e2e} %");
    assert!((-90.0..=-45.0).contains(&itl), "ITL {itl} %");
    assert!((30.0..=200.0).contains(&ttft), "TTFT {ttft} %");
    assert_eq!(apart["pd_metrics"]["transferred_tokens"].as_u64(), Some(5400 * 5000), "nothing was cached");
}

/// llm-d's blog of July 2026: on chat a threshold of 16 tokens has 2 to 3 times the mean TTFT of drift plus penalty, on code up to 20
/// times that of local prefill.
#[test]
#[ignore = "heavy: `.ci/run` runs it in a step of its own"]
fn drift_plus_penalty_prefills_elsewhere_only_what_gains_by_it() {
    const SERVICE: &str = "run --model meta-llama/llama-3.1-70b-instruct --hardware H100 --tp 4 --prefill-instances 1 \
                           --decode-instances 3 --timeout 100000 --output json \
                           --decode-routing-scorers precise-prefix-cache:2,active-requests:1";
    let ttft = |workload: &str, requests: u32, decider: &str| {
        let spec = format!("--workload-spec examples/prefill-decode/{workload}.yaml --num-requests {requests}");
        mean(&blis!(format!("{SERVICE} {spec} --pd-decider {decider}")).json(), "ttft")
    };
    let of = |workload, requests| {
        ["never", "prefix-threshold", "edpp --pd-prefill-rate 9000"].map(|decider| ttft(workload, requests, decider))
    };
    let [_, threshold, edpp] = of("chat", 1600);
    assert!((2.0..4.0).contains(&(threshold / edpp)), "{threshold} and {edpp} ms");
    let [never, threshold, edpp] = of("code", 1350);
    assert!((2.5..30.0).contains(&(threshold / never)) && edpp < never, "{never}, {threshold} and {edpp} ms");
}

#[test]
fn impossible_pools_are_one_error_before_the_run() {
    for (flags, message) in [
        ("--prefill-instances 2", "no instance decodes"),
        ("--decode-instances 2", "no instance prefills for those that decode"),
        ("--encode-instances 1 --prefill-instances 1", "no instance decodes"),
        ("--prefill-instances 1 --decode-instances 1 --pd-transfer-bandwidth 0", "must be a number above 0"),
        (
            "--prefill-instances 2 --decode-instances 1 --autoscaler queue --max-replicas 1",
            "is 2, but the autoscaler keeps 1 to 1 replicas of each role",
        ),
        (
            "--autoscaler queue --role prefill --group role=decode --group role=encode,max=2",
            "has `role=encode` and limits",
        ),
        (
            "--parity blis --prefill-instances 1 --decode-instances 1 --autoscaler blis-v2",
            "cannot be used with `--parity blis`",
        ),
        (
            "--prefill-instances 1 --decode-instances 1 --kv-offloading-size 10",
            "cannot be used with instances that prefill",
        ),
        ("--prefill-instances 1 --decode-instances 1 --encode-decider always", "needs instances that encode"),
        ("--prefill-instances 1 --decode-instances 1 --encode-instances 1 --encode-rate 0", "must be a number above 0"),
        (
            "--prefill-instances 1 --decode-instances 1 --encode-instances 1 --encode-decider never --encode-rate 9",
            "`--encode-rate` needs requests that are encoded",
        ),
        ("--prefill-instances 1 --decode-instances 1 --num-instances 1", "2 instances have roles"),
        ("--prefill-instances 0 --decode-instances 0 --pd-decider always", "needs instances that prefill apart from"),
        (
            "--prefill-instances 1 --decode-instances 1 --prefill-routing-filters mine.rhai",
            "`--prefill-routing-filters` names a filter that is not built in",
        ),
        ("--num-instances 2 --encode-routing-scorers random:1", "needs instances that prefill apart from others"),
        ("--prefill-instances 1 --decode-instances 1 --prefill-tp 64", "error: instances that prefill: physics for"),
        (
            "--prefill-instances 1 --decode-instances 1 --decode-hardware toaster",
            "error: instances that decode: unknown hardware: `toaster`",
        ),
        ("--prefill-instances 1 --decode-instances 1 --pd-transfer-base-latency -1", "--pd-transfer-base-latency"),
        ("--prefill-instances 1 --decode-instances 1 --pd-transfer-bandwidth nan", "must be a number above 0"),
        ("--prefill-instances 1 --decode-instances 1 --num-instances 3", "2 instances have roles"),
        ("--role prefill --group role=decode,block-size=32", "has KV blocks of 32 tokens"),
        ("--role prefill --group role=decode,model=qwen/qwen3-14b", "has another model"),
        ("--parity blis --prefill-instances 1 --decode-instances 1 --pd-decider edpp", "cannot be edpp"),
        (
            "--parity blis --prefill-instances 1 --decode-instances 1 --pd-hop-latency 5",
            "cannot be used with `--parity blis`",
        ),
    ] {
        let ended = blis!("run", TINY, flags);
        assert_eq!(ended.code, Some(2), "{flags}: {}", ended.stdout);
        assert!(ended.stderr.contains(message), "{flags}: {}", ended.stderr);
        assert_eq!(ended.stderr.matches("error: ").count(), 1, "{flags}: {}", ended.stderr);
    }
}

/// It did not say which: "the model does not fit: it needs 139.3 GiB, and 1 GPU(s) offer 71.3 GiB".
#[test]
fn a_model_that_fits_one_role_only_names_the_role() {
    const LARGE: &str = "run --model meta-llama/llama-3.1-70b-instruct --hardware H100 --tp 4 --num-requests 2 \
                         --prefill-instances 1 --decode-instances 1";
    for (role, flag) in [("prefill", "--prefill-tp 1"), ("decode", "--decode-tp 1")] {
        let message = blis!(LARGE, flag).refused();
        let start = format!(
            "error: instances that {role}: KV cache of `llama-3.1-70b-instruct` on H100: the model does not fit"
        );
        assert!(message.starts_with(&start) && message.contains("\nhint: "), "{message}");
    }
}

/// The warning had the limit of the flags, 131072.
#[test]
fn a_prompt_that_is_too_long_for_one_role_is_dropped_with_the_limit_of_that_role() {
    let flags = "--prefill-instances 1 --decode-instances 1 --decode-max-model-len 10 --pd-decider never";
    let ended = blis!("run", TINY, flags).done();
    assert!(ended.stderr.contains("the prompt alone fills the maximum model length, 10 tokens"), "{}", ended.stderr);
}

/// They idled without a word: the decider was `never` by default. BLIS's still is.
#[test]
fn instances_for_prefill_get_requests_unless_a_decider_says_otherwise() {
    const ROLES: &str = "--prefill-instances 3 --decode-instances 1 --encode-instances 1";
    let idle =
        |flags: &str| blis!("run", TINY, ROLES, flags).done().stderr.contains("3 instances for prefill got no request");
    assert!(idle("--pd-decider never") && idle("--parity blis"));
    assert!(!idle("") && !idle("--pd-decider always"));
    let by_default = blis!("run", TINY, ROLES, "--output json").json();
    let chosen = "--pd-decider prefix-threshold --encode-decider multimodal --output json";
    assert_eq!(by_default, blis!("run", TINY, ROLES, chosen).json());
}

/// Replicas of a role start where that role has too much to do.
#[test]
fn each_role_is_scaled_by_itself() {
    const SERVICE: &str = "--model meta-llama/llama-3.1-8b-instruct --hardware H100 --tp 1 --timeout -1 --pd-decider always \
                           --autoscaler slo-aware --policy-param scaling.tpot-ms=20 --startup-time 10s --role prefill \
                           --group role=decode --max-replicas 5 --output json --prompt-tokens-stdev 0 --output-tokens-stdev 0";
    let peaks = |load: &str| {
        let run = blis!("run", SERVICE, load).json();
        assert_eq!(run["completed_requests"], run["injected_requests"]);
        assert_eq!(run["pd_metrics"]["disaggregated_requests"], run["completed_requests"]);
        let groups = run["replicas"]["groups"].as_array().cloned().unwrap_or_default();
        assert_eq!(groups.iter().map(|group| &group["role"]).collect::<Vec<_>>(), ["prefill", "decode"]);
        groups.iter().map(|group| group["peak"].as_u64().expect("a number")).collect::<Vec<_>>()
    };
    let prompts = peaks("--rate 15 --num-requests 2000 --prompt-tokens 6000 --output-tokens 20");
    assert!(prompts[0] > 2 && prompts[1] == 1, "{prompts:?}");
    let outputs = peaks("--rate 10 --num-requests 2000 --prompt-tokens 100 --output-tokens 2000");
    assert!(outputs[0] == 1 && outputs[1] > 2, "{outputs:?}");
}

const IMAGES: &str = "run --model qwen/qwen3-14b --hardware H100 --tp 1 --encode-decider multimodal --encode-rate 20000 \
                      --output json --seed 7 --workload-spec tests/encode/images.yaml";

/// Every request, by the columns of `--metrics-path`.
fn requests(flags: &str, folder: &Scratch) -> (Value, Vec<Value>) {
    let path = folder.join("all.json");
    let figures = blis!(IMAGES, flags, format!("--metrics-path {}", path.display())).json();
    let mut all: Value = serde_json::from_slice(&std::fs::read(path).expect("written")).expect("JSON");
    (figures, serde_json::from_value(all["requests"].take()).expect("a list"))
}

/// Images are encoded on the encode instance, text is not; with the stages behind them, the stages of encoding add up to TTFT.
#[test]
fn images_are_encoded_before_their_prompts_are_computed() {
    let folder = Scratch::new();
    let apart = "--encode-instances 1 --prefill-instances 1 --decode-instances 1 --pd-decider always";
    for flags in [apart, "--encode-instances 1 --decode-instances 2"] {
        let (figures, requests) = requests(flags, &folder);
        let number =
            |request: &Value, name: &str| request[name].as_f64().unwrap_or_else(|| panic!("{name}: {request}"));
        let encoded: Vec<&Value> = requests.iter().filter(|request| request.get("encoded_by").is_some()).collect();
        assert!((50..requests.len()).contains(&encoded.len()), "some have images");
        for request in &encoded {
            assert_eq!(number(request, "encoded_tokens") % 576.0, 0.0);
            let encoding: f64 =
                ["encode_queue_ms", "encode_ms", "encode_transfer_ms"].iter().map(|stage| number(request, stage)).sum();
            let behind = ["p_queue_ms", "p_prefill_ms", "hold_ms", "d_wait_ms", "transfer_ms", "d_first_ms"];
            match request.get("prefilled_by") {
                Some(_) => {
                    let sum = encoding + behind.iter().map(|stage| number(request, stage)).sum::<f64>();
                    assert!((sum - number(request, "ttft_ms")).abs() < 0.002, "{request}");
                }
                None => assert!(encoding < number(request, "scheduling_delay_ms"), "{request}"),
            }
            assert!(number(request, "encode_ms") >= 6.0 + number(request, "encoded_tokens") / 20.0);
        }
        let of_all = &figures["pd_metrics"];
        assert_eq!(of_all["encoded_requests"].as_u64(), Some(encoded.len() as u64));
        let tokens: f64 = encoded.iter().map(|request| number(request, "encoded_tokens")).sum();
        assert_eq!(of_all["encoded_tokens"].as_f64(), Some(tokens));
        let plain = blis!(IMAGES, flags, "--simulation plain").json();
        assert_eq!(plain["pd_metrics"], *of_all);
    }
}

/// Requests on their way from an encode instance keep the replicas that they go to, and their outcome regret is that of the same run.
#[test]
fn encoding_goes_with_an_autoscaler_flow_control_and_regret() {
    let roles = "--role prefill --group role=decode,min=1,max=4 --group role=encode --pd-decider always --autoscaler queue \
                 --policy-param scaling.running=2 --max-replicas 4 --scaling-interval 1 --startup-time 1s";
    let [fast, plain] = ["fast", "plain"].map(|engine| {
        let mut figures = blis!(IMAGES, roles, "--flow-control --simulation", engine).json();
        figures.as_object_mut().expect("a document").remove("run");
        figures
    });
    assert_eq!(fast, plain);
    assert_eq!(fast["completed_requests"].as_u64(), Some(200));
    assert!(fast["pd_metrics"]["encoded_requests"].as_u64() > Some(50), "{fast}");
    let regret = "--prefill-instances 2 --decode-instances 1 --pd-decider always --encode-instances 2 --regret outcome --regret-samples 4";
    let figures = blis!(IMAGES, regret, "--fitness-weights mean_ttft:1").json();
    assert!(figures.to_string().contains("regret"), "{figures}");
}

/// In BLIS encoding takes no time.
#[test]
fn encoding_takes_no_time_in_blis() {
    const BLIS: &str = "run --model qwen/qwen3-14b --hardware H100 --tp 1 --output json --parity blis --prefill-instances 1 \
                        --decode-instances 1 --pd-decider always --workload-spec tests/encode/images.yaml --num-requests 100";
    let mut figures = ["", "--encode-instances 1 --encode-decider multimodal"].map(|flags| blis!(BLIS, flags).json());
    let [without, with] = figures.each_mut().map(|figures| figures["pd_metrics"].take());
    assert_eq!(without, with);
    assert!(with.get("encoded_requests").is_none());
}

#[test]
fn embeddings_need_the_width_of_the_model() {
    const UNKNOWN: &str = "run --model some/model --beta-coeffs 5000,10,100 --alpha-coeffs 1000,0,0 --total-kv-blocks 1000 --num-requests 2 \
                           --prefill-instances 1 --decode-instances 1 --encode-instances 1 --encode-decider always --encode-rate 5";
    insta::assert_snapshot!(blis!(UNKNOWN).refused(), @r"
    error: the hidden size of model is unknown
    hint: embeddings have it: they need the model's config.json, `--model-config-folder`
    ");
}
