//! The cost of choosing tokens among the logits.

use crate::model::Sampling;

/// The implementation of top-k and top-p sampling, which depends on the engine's version.
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

impl Sampler {
    /// The measured times of vLLM #40376 at batches of 64 and 128: sorting 1.07 and 2.06 to 2.4 ms, Triton
    /// 0.31 and 0.30 to 0.53 ms, FlashInfer 0.20 and 0.14 to 0.28 ms. They give the sum of both parts of a row; that
    /// sorting a short row takes as many launches as a long one divides it.
    fn time(self) -> SamplingTime {
        match self {
            Self::Sort => SamplingTime { step_us: 100.0, row_us: 8.5, vocabulary_us: 8.5 },
            Self::Triton => SamplingTime { step_us: 190.0, row_us: 0.0, vocabulary_us: 1.9 },
            Self::FlashInfer => SamplingTime { step_us: 140.0, row_us: 0.0, vocabulary_us: 0.6 },
        }
    }

    /// Time of a step in which `rows` requests sample from a vocabulary of that many tokens on a GPU with that memory
    /// bandwidth, µs, beyond the time without top-k, top-p and penalties.
    #[must_use]
    pub fn us(self, sampling: Sampling, rows: f64, vocabulary: f64, hbm_tb_s: f64) -> f64 {
        let mut us = 0.0;
        if sampling.truncates {
            let SamplingTime { step_us, row_us, vocabulary_us } = self.time();
            let of_vocabulary = vocabulary_us * vocabulary / MEASURED_VOCABULARY * MEASURED_TB_S / hbm_tb_s;
            us += step_us + rows * (row_us + of_vocabulary);
        }
        if sampling.penalizes {
            us += PENALTY_STEP_US + rows * PENALTY_BYTES * vocabulary / (hbm_tb_s * 1e6);
        }
        us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRUNCATES: Sampling = Sampling { truncates: true, penalizes: false };

    #[test]
    fn the_measured_times_are_met() {
        let ms = |sampler: Sampler, rows| sampler.us(TRUNCATES, rows, MEASURED_VOCABULARY, MEASURED_TB_S) / 1e3;
        for (sampler, at_64, at_128) in
            [(Sampler::Sort, 1.074, 2.318), (Sampler::Triton, 0.311, 0.45), (Sampler::FlashInfer, 0.199, 0.2)]
        {
            assert!((ms(sampler, 64.0) / at_64 - 1.0).abs() < 0.15, "{sampler:?}: {}", ms(sampler, 64.0));
            assert!((ms(sampler, 128.0) / at_128 - 1.0).abs() < 0.15, "{sampler:?}: {}", ms(sampler, 128.0));
        }
    }

    #[test]
    fn greedy_models_pay_nothing() {
        assert_eq!(Sampler::Sort.us(Sampling::default(), 128.0, 151_936.0, 3.35), 0.0);
    }
}
