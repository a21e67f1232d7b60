//! KV blocks as vLLM logs them.

use crate::macros::blis;

/// Model, GPUs, token budget of a step, blocks: what vLLM 0.14 and 0.15 logged on H100 80 GB, with 128 requests at most. Not here: Llama-4-Scout
/// in FP8 (8253 blocks on two GPUs), of which the built-in config does not name the modules that stay in 16 bits, nor its encoder.
const MEASURED: [(&str, u32, u32, f64); 10] = [
    ("llama-2-70b-hf", 4, 2048, 31_356.0),
    ("codellama-34b-instruct-hf", 2, 2048, 26_602.0),
    ("mixtral-8x7b-v0.1", 2, 2048, 27_510.0),
    ("llama-3.1-70b-instruct", 4, 2048, 30_425.0),
    ("llama-3.1-70b-instruct", 4, 8192, 30_251.0),
    ("mistral-nemo-instruct-2407", 2, 1024, 48_009.0),
    ("mistral-nemo-instruct-2407", 1, 2048, 19_251.0),
    ("yi-34b", 2, 2048, 20_793.0),
    ("llama-2-7b-hf", 1, 2048, 7_463.0),
    ("qwen2.5-7b-instruct", 1, 2048, 65_352.0),
];

/// The number of KV blocks of an instance.
fn blocks(line: &str) -> f64 {
    let run = blis!("run --num-requests 1", line).whole_json();
    run["run"]["engine"]["total_kv_blocks"].as_f64().expect("a number")
}

/// Regression: two GPUs or more had up to as many times too many blocks as there are GPUs.
#[test]
fn blocks_are_those_that_vllm_logs() {
    let mut wrong = Vec::new();
    for (model, tp, budget, measured) in MEASURED {
        let line = format!(
            "--engine vllm-0.15 --model {model} --tp {tp} --max-num-seqs 128 --max-num-batched-tokens {budget}"
        );
        let error = 100.0 * (blocks(&line) / measured - 1.0);
        if error.abs() > 2.0 {
            wrong.push(format!("{line}: {error:+.1} %"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// BLIS divides the memory of the group by the KV bytes of one GPU.
#[test]
fn parity_keeps_the_formula_of_blis() {
    assert_eq!(blocks("--model llama-3.1-8b-instruct --tp 2 --parity blis"), 125_278.0);
}

/// Each of the ranks has its own cache, and half of the experts more room; two servers hold all experts twice.
#[test]
fn ranks_that_share_experts_have_more_room_than_servers() {
    let server = blocks("--model mixtral-8x7b-v0.1 --tp 2");
    let ranks = blocks("--model mixtral-8x7b-v0.1 --tp 2 --dp 2");
    assert!(ranks > 3.0 * server, "{server} {ranks}");
}
