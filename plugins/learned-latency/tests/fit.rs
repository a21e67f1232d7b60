//! The origin of the table, and its accuracy.

use std::fmt::Write as _;

use blis_sdk::{Kind, Latency, Policy, Setup, Step};
use blis_sim::latency::{Batch, LatencyModel, Roofline};
use blis_sim::model::{Gpu, Mfu, ModelConfig, Parallelism};
use learned_latency::{LearnedLatency, Piece, TABLE, features, piece, tokens};

/// A step and its duration, µs.
type StepSample = (Step, f64);

#[test]
fn the_table_is_what_a_fit_gives() {
    let fitted = fit(&samples(1, 4000));
    let same = |a: f64, b: f64| (a - b).abs() <= 0.01 * a.abs().max(b.abs()) + 1e-4;
    let all_same = TABLE
        .iter()
        .zip(&fitted)
        .all(|(old, new)| old.coefficients().into_iter().zip(new.coefficients()).all(|(old, new)| same(old, new)));
    assert!(all_same, "the table of src/lib.rs should be\n{}", source(&fitted));
}

#[test]
fn the_table_holds_for_steps_it_has_not_seen() {
    let mut errors: Vec<f64> =
        samples(2, 4000).iter().map(|(step, time)| (piece(tokens(step)).time(step) / time - 1.0).abs()).collect();
    errors.sort_by(f64::total_cmp);
    let (median, p99) = (errors[2000], errors[3960]);
    assert!(median < 0.02 && p99 < 0.15, "relative errors: median {median:.4}, p99 {p99:.4}");
}

#[test]
fn no_step_is_shorter_than_the_shortest_and_context_never_helps() {
    let model = LearnedLatency::new(&Setup::of(Kind::Latency, &LearnedLatency::describe())).unwrap();
    for (step, _) in samples(3, 4000) {
        assert!(model.step_time(&step) >= model.constants().shortest_step_us, "{step:?}");
        let more = Step { decode_context: step.decode_context + 1000, ..step };
        assert!(model.step_time(&more) >= model.step_time(&step), "{step:?}");
    }
    assert!(model.step_time(&Step::default()) >= 1);
    let extreme = Step { prefill_tokens: u64::MAX, prefill_tokens_squared: u64::MAX, ..Step::default() };
    assert!(model.step_time(&extreme) > 1_000_000_000);
}

/// `XorShift` steps of an engine: up to 255 requests decode, up to 4 prefill a chunk of their prompt.
fn samples(seed: u64, count: usize) -> Vec<StepSample> {
    let model = model();
    let mut random = XorShift(seed);
    let mut sample = || {
        let mut batch = Batch::default();
        let decoding = 1 << random.below(9);
        let longest = 1 << (5 + random.below(9));
        for _ in 0..random.below(decoding) {
            batch.add_decode(1 + random.below(longest));
        }
        for _ in 0..random.below(5) {
            let input = 1 + random.below(longest);
            let context = random.below(input);
            batch.add_prefill((input - context).min(1 + random.below(2048)), context, input);
        }
        if batch.requests() == 0 {
            batch.add_decode(1 + random.below(longest));
        }
        (step(&batch), model.step_time(&batch).0 as f64)
    };
    (0..count).map(|_| sample()).collect()
}

fn step(batch: &Batch) -> Step {
    Step {
        prefill_requests: batch.prefill_requests,
        prefill_tokens: batch.prefill_tokens,
        prefill_tokens_squared: batch.prefill_tokens_squared,
        prefill_tokens_by_input: batch.prefill_tokens_by_input,
        prefill_tokens_by_context: batch.prefill_tokens_by_context,
        prefill_context: batch.prefill_context,
        decode_requests: batch.decode_requests,
        decode_context: batch.decode_context,
    }
}

/// Fits every row of the table to the samples in its range.
fn fit(samples: &[StepSample]) -> Vec<Piece> {
    let of_row = |row: &Piece| {
        let within = |(step, _): &&StepSample| piece(tokens(step)).from_tokens == row.from_tokens;
        let [base, per_token, per_request, per_kilo_context, per_mega_attention] =
            least_squares(samples.iter().filter(within));
        Piece { from_tokens: row.from_tokens, base, per_token, per_request, per_kilo_context, per_mega_attention }
    };
    TABLE.iter().map(of_row).collect()
}

/// The non-negative coefficients with the least sum of squared relative errors, by coordinate descent.
fn least_squares<'a>(samples: impl Iterator<Item = &'a StepSample>) -> [f64; 5] {
    let (mut products, mut targets) = ([[0.0; 5]; 5], [0.0; 5]);
    for (step, time) in samples {
        let x = features(step).map(|feature| feature / time);
        for i in 0..5 {
            targets[i] += x[i];
            for j in 0..5 {
                products[i][j] += x[i] * x[j];
            }
        }
    }
    let mut coefficients = [0.0_f64; 5];
    for _ in 0..200_000 {
        for i in 0..5 {
            if products[i][i] > 0.0 {
                let rest: f64 = (0..5).map(|j| products[i][j] * coefficients[j]).sum();
                coefficients[i] = (coefficients[i] + (targets[i] - rest) / products[i][i]).max(0.0);
            }
        }
    }
    coefficients
}

/// The rows as source code for src/lib.rs.
fn source(pieces: &[Piece]) -> String {
    pieces.iter().fold(String::new(), |mut text, piece| {
        let Piece { from_tokens, base, per_token, per_request, per_kilo_context, per_mega_attention } = piece;
        let _ = writeln!(
            text,
            "    Piece {{ from_tokens: {from_tokens}, base: {base:.2}, per_token: {per_token:.4}, \
             per_request: {per_request:.4}, per_kilo_context: {per_kilo_context:.4}, \
             per_mega_attention: {per_mega_attention:.4} }},"
        );
        text
    })
}

/// The source of the samples: the simulator's roofline model of Llama-3.1-8B on an H100.
fn model() -> Roofline {
    let llama = ModelConfig {
        num_hidden_layers: 32,
        hidden_size: 4096,
        num_attention_heads: 32,
        num_key_value_heads: 8,
        head_dim: None,
        vocab_size: 128_256,
        intermediate_size: 14_336,
        dense_intermediate_size: None,
        hidden_act: "silu".into(),
        tie_word_embeddings: false,
        dtype_bytes: 2.0,
        kv_dtype_bytes: 2.0,
        weight_bytes: 2.0,
        fp4_activations: false,
        qk_norm: false,
        moe: None,
        moe_without_expert_count: false,
        mla: None,
        max_model_len: Some(131_072),
        architecture: None,
    };
    let h100 = Gpu {
        tflops_fp16: 989.5,
        tflops_fp8: 1979.0,
        tflops_fp32: 67.0,
        tflops_fp4: 0.0,
        hbm_tb_s: 3.35,
        l2_mb: 50.0,
        memory_gib: 80.0,
        mfu: Some(Mfu { prefill: 0.45, decode: 0.3 }),
    };
    let one = Parallelism { tensor: 1, data: 1 };
    Roofline::new(&llama, &h100, one).expect("valid")
}

/// The random-number generator xorshift64*.
struct XorShift(u64);

impl XorShift {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let bits = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        ((bits * u64::from(bound)) >> 32) as u32
    }
}
