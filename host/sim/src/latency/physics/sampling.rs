//! The cost of choosing tokens among the logits.

use std::str::FromStr;

use crate::latency::arithmetic::exact;
use crate::sampling::{SampledRows, Sampling};

/// The implementation of top-k and top-p sampling, which depends on the engine's version. Coefficient files name that of the
/// engine that was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sampler {
    /// PyTorch sorts the whole vocabulary, row by row: the default of vLLM up to about 0.15.
    #[default]
    Sort,
    /// A Triton kernel: from February 2026 (vLLM #33538).
    Triton,
    /// FlashInfer: after vLLM #40376.
    FlashInfer,
}

/// Fixed part of a step and of a row, µs, and the part of a row that is proportional to the vocabulary, µs at
/// [`MEASURED_VOCABULARY`] tokens.
struct SamplingTime {
    step_us: f64,
    row_us: f64,
    vocabulary_us: f64,
}

/// Size of the vocabulary in the measurements of vLLM #40376, tokens.
const MEASURED_VOCABULARY: f64 = 131_072.0;

/// Memory bandwidth of the GPU of those measurements (Hopper class), TB/s.
const MEASURED_TB_S: f64 = 3.35;

/// Passes over the logits of one request that penalties take (prompt mask, counts of output tokens, three adjustments),
/// bytes per token of the vocabulary.
const PENALTY_BYTES: f64 = 60.0;

/// Launches of penalties and the transfer of the output tokens, µs per step.
const PENALTY_STEP_US: f64 = 300.0;

/// Passes over the logits of one request that `min_p` takes, bytes per token of the vocabulary: softmax (8 read, 4
/// written), maximum (4), comparison (4, 1 written), mask (1, up to 4 written). Counted in vLLM's code, not measured.
const MIN_P_BYTES: f64 = 26.0;

/// Launches of the five kernels of `min_p`, µs per step.
const MIN_P_STEP_US: f64 = 25.0;

/// Requests of a step, and how many of them need each kind of work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplingRows {
    /// Requests of the step.
    pub all: f64,
    /// Requests with `top_k` or `top_p`.
    pub truncated: f64,
    /// Requests with `min_p`.
    pub min_p: f64,
    /// Requests with a penalty.
    pub penalized: f64,
}

impl SamplingRows {
    /// `requests` requests, of which those of `rows` have their own sampling and the others `default`.
    #[must_use]
    pub fn new(requests: u64, rows: SampledRows, default: Sampling) -> Self {
        let others = requests.saturating_sub(rows.own.into());
        let count =
            |own: u32, by_default: bool| exact((u64::from(own) + if by_default { others } else { 0 }).min(requests));
        Self {
            all: exact(requests),
            truncated: count(rows.truncated, default.truncates),
            min_p: count(rows.min_p, default.min_p),
            penalized: count(rows.penalized, default.penalizes),
        }
    }
}

impl Sampler {
    /// All implementations.
    pub const ALL: [Self; 3] = [Self::Sort, Self::Triton, Self::FlashInfer];

    /// Name in coefficient files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sort => "sort",
            Self::Triton => "triton",
            Self::FlashInfer => "flashinfer",
        }
    }

    /// The measured times of vLLM #40376 at batches of 64 and 128: sorting 1.07 and 2.06 to 2.4 ms, Triton
    /// 0.31 and 0.30 to 0.53 ms, FlashInfer 0.20 and 0.14 to 0.28 ms. They give the sum of both parts of a row. PyTorch sorts
    /// fewer than 128 rows as one array (`segmented_sort_pairs_by_full_sort` in `SortStable.cu`), in time proportional to the
    /// vocabulary; the fixed parts agree with runs of vocabularies of 32 000 to 152 064 tokens at batches of 9 to 112
    /// (docs/fidelity.md).
    fn time(self) -> SamplingTime {
        match self {
            Self::Sort => SamplingTime { step_us: 150.0, row_us: 1.5, vocabulary_us: 14.5 },
            Self::Triton => SamplingTime { step_us: 190.0, row_us: 0.0, vocabulary_us: 1.9 },
            Self::FlashInfer => SamplingTime { step_us: 140.0, row_us: 0.0, vocabulary_us: 0.6 },
        }
    }

    /// Time of a row relative to the GPU of the measurements. Passes over the logits are as fast as the memory; a sort works in
    /// the L2 cache: the runs on A100 and L40S agree with the same time.
    fn slowdown(self, hbm_tb_s: f64) -> f64 {
        if self == Self::Sort { 1.0 } else { MEASURED_TB_S / hbm_tb_s }
    }

    /// Whether it leaves out rows without top-k and top-p. Sorting does not (vLLM #40376: 1.075 ms for a batch of 64 of
    /// all kinds, 1.074 ms if all restrict); nor does FlashInfer, which takes 1.0 and the whole vocabulary instead.
    fn skips_rows(self) -> bool {
        self == Self::Triton
    }

    /// Time of a step with these rows of a vocabulary of that many tokens on a GPU with that memory bandwidth, µs,
    /// beyond the time without top-k, top-p, `min_p` and penalties. vLLM computes `min_p` and penalties for all rows of
    /// a step as soon as one needs them.
    #[must_use]
    pub fn us(self, rows: SamplingRows, vocabulary: f64, hbm_tb_s: f64) -> f64 {
        let mut us = 0.0;
        if rows.truncated > 0.0 {
            let SamplingTime { step_us, row_us, vocabulary_us } = self.time();
            let of_vocabulary = vocabulary_us * vocabulary / MEASURED_VOCABULARY * self.slowdown(hbm_tb_s);
            let computed = if self.skips_rows() { rows.truncated } else { rows.all };
            us += step_us + computed * (row_us + of_vocabulary);
        }
        if rows.penalized > 0.0 {
            us += PENALTY_STEP_US + rows.all * PENALTY_BYTES * vocabulary / (hbm_tb_s * 1e6);
        }
        if rows.min_p > 0.0 {
            us += MIN_P_STEP_US + rows.all * MIN_P_BYTES * vocabulary / (hbm_tb_s * 1e6);
        }
        us
    }
}

impl FromStr for Sampler {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = || Self::ALL.map(Self::name).join(", ");
        Self::ALL
            .into_iter()
            .find(|sampler| sampler.name() == name)
            .ok_or_else(|| format!("must be one of {}", known()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRUNCATES: Sampling = Sampling { truncates: true, min_p: false, penalizes: false };

    /// `own` rows that restrict, the others of `rows` greedy.
    fn us(sampler: Sampler, rows: u64, own: u32) -> f64 {
        let own = SampledRows { own, truncated: own, ..SampledRows::default() };
        sampler.us(SamplingRows::new(rows, own, Sampling::default()), MEASURED_VOCABULARY, MEASURED_TB_S)
    }

    #[test]
    fn the_measured_times_are_met() {
        let ms = |sampler: Sampler, rows| us(sampler, rows, rows as u32) / 1e3;
        for (sampler, at_64, at_128) in
            [(Sampler::Sort, 1.074, 2.318), (Sampler::Triton, 0.311, 0.45), (Sampler::FlashInfer, 0.199, 0.2)]
        {
            assert!((ms(sampler, 64) / at_64 - 1.0).abs() < 0.15, "{sampler:?}: {}", ms(sampler, 64));
            assert!((ms(sampler, 128) / at_128 - 1.0).abs() < 0.15, "{sampler:?}: {}", ms(sampler, 128));
        }
    }

    #[test]
    fn greedy_models_pay_nothing() {
        let rows = SamplingRows::new(128, SampledRows::default(), Sampling::default());
        assert_eq!(Sampler::Sort.us(rows, 151_936.0, 3.35), 0.0);
        let rows = SamplingRows::new(128, SampledRows { own: 128, ..SampledRows::default() }, TRUNCATES);
        assert_eq!(Sampler::Sort.us(rows, 151_936.0, 3.35), 0.0, "all requests are greedy");
    }

    /// 150 + 64 × (1.5 + 14.5) µs as soon as one request of 64 restricts; 190 + 1 × 1.9 µs in Triton.
    #[test]
    fn one_request_makes_all_rows_sort() {
        assert_eq!((us(Sampler::Sort, 64, 1), us(Sampler::Sort, 64, 64)), (1174.0, 1174.0));
        assert!((us(Sampler::Triton, 64, 1) - 191.9).abs() < 1e-9);
        assert!((us(Sampler::Triton, 64, 64) - 311.6).abs() < 1e-9);
    }

    /// Penalties of one request: 300 µs and 64 × 60 × 131072 bytes at 3.35 TB/s, 150.2 µs; `min_p`: 25 and 65.1 µs.
    #[test]
    fn one_penalty_passes_over_all_logits() {
        let own = SampledRows { own: 1, min_p: 1, penalized: 1, ..SampledRows::default() };
        let us = Sampler::Sort.us(SamplingRows::new(64, own, Sampling::default()), MEASURED_VOCABULARY, MEASURED_TB_S);
        assert!((us - (300.0 + 150.244 + 25.0 + 65.106)).abs() < 0.01, "{us}");
    }

    #[test]
    fn names_come_back() {
        assert!(Sampler::ALL.into_iter().all(|sampler| sampler.name().parse() == Ok(sampler)));
        assert_eq!("sorted".parse::<Sampler>(), Err("must be one of sort, triton, flashinfer".to_owned()));
    }
}
