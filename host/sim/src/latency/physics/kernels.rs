//! The curves of the kernels of a GPU, a few numbers each.

use crate::latency::LatencyError;
use crate::latency::error::check_nonzero;

/// The attainable performance of the kernels of one GPU. Shares are relative to the data sheet's peak; a time is per
/// kernel, µs.
///
/// A matrix product of `F` FLOP and `B` bytes takes `launch + ⁴√((B/bandwidth)⁴ + (F/flops)⁴)`: bound by memory for few
/// tokens, by arithmetic for many, and a little slower than either where both matter. Tensor cores compute whole tiles:
/// [`Curve::tile_rows`] rows more than there are. Inputs of 8-bit products are scaled first, which takes
/// [`Curve::input_passes`] passes over them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kernels {
    /// Matrix products with 16-bit weights; also those with 4-bit weights, which are dequantised first.
    pub gemm: Curve,
    /// Matrix products with 8-bit weights and inputs, including the scaling of the input.
    pub gemm_8bit: Curve,
    /// Fused experts, with weights of the model's own width.
    pub experts: Curve,
    /// Fused experts with 8-bit weights.
    pub experts_8bit: Curve,
    /// Factor on the time of one pass over an expert's input and output, ≥ 0.
    pub expert_activations: f64,
    /// Launch time of one attention kernel, µs.
    pub attention_launch_us: f64,
    /// Time of attention per decoding request and KV head, µs.
    pub attention_head_us: f64,
    /// Share of the memory bandwidth with which attention reads the KV cache.
    pub attention_bandwidth: f64,
    /// The same share for an FP8 KV cache, whose elements are converted on the way: up to a third less on Hopper.
    pub attention_bandwidth_8bit: f64,
    /// Factor on the attention of decodes in a step that also computes prompts, ≥ 1: FlashAttention 2 (before Hopper)
    /// then reads the KV of a head once per query head instead of once per group, as far as the L2 cache does not help.
    pub attention_mixed: f64,
    /// Share of the FLOP peak that attention of prompts attains.
    pub attention_flops: f64,
    /// All-reduce in one pass, in which every GPU reads from every other: µs, and GB/s.
    pub reduce_once: Link,
    /// All-reduce in two passes (reduce-scatter, all-gather): µs, and GB/s.
    pub reduce_twice: Link,
    /// Further launch time of an all-reduce for each GPU beyond two, µs ≥ 0: large where GPUs reach each other over PCIe.
    pub reduce_hop_us: f64,
    /// Loss of bandwidth by GPUs that share links, ≥ 0: with `g` of them each has `gb_s / (1 + crowding·(g − 2))`.
    pub reduce_crowding: f64,
}

/// Launch time and attainable shares of one kind of matrix product.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Curve {
    /// Time of the smallest product, µs.
    pub launch_us: f64,
    /// Share of the memory bandwidth, in (0, 1.5].
    pub bandwidth: f64,
    /// Share of the tensor cores' peak, in (0, 1.5].
    pub flops: f64,
    /// Rows that are computed in vain, per product or per visited expert, ≥ 0.
    pub tile_rows: f64,
    /// Number of passes over the input that scaling it takes, at peak bandwidth, ≥ 0: 3 bytes each per element.
    pub input_passes: f64,
}

/// One algorithm of exchanging data between GPUs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Time of the smallest message, µs.
    pub launch_us: f64,
    /// Data that one GPU receives in a second, 10⁹ bytes.
    pub gb_s: f64,
}

impl Kernels {
    /// The numbers that must not be 0, with their names in hardware files.
    fn named(&self) -> [(&'static str, f64); 23] {
        let Self { gemm, gemm_8bit, experts, experts_8bit, reduce_once, reduce_twice, .. } = self;
        [
            ("gemm.launch_us", gemm.launch_us),
            ("gemm.bandwidth", gemm.bandwidth),
            ("gemm.flops", gemm.flops),
            ("gemm_8bit.launch_us", gemm_8bit.launch_us),
            ("gemm_8bit.bandwidth", gemm_8bit.bandwidth),
            ("gemm_8bit.flops", gemm_8bit.flops),
            ("experts.launch_us", experts.launch_us),
            ("experts.bandwidth", experts.bandwidth),
            ("experts.flops", experts.flops),
            ("experts_8bit.launch_us", experts_8bit.launch_us),
            ("experts_8bit.bandwidth", experts_8bit.bandwidth),
            ("experts_8bit.flops", experts_8bit.flops),
            ("expert_activations", self.expert_activations),
            ("attention_launch_us", self.attention_launch_us),
            ("attention_head_us", self.attention_head_us),
            ("attention_bandwidth", self.attention_bandwidth),
            ("attention_bandwidth_8bit", self.attention_bandwidth_8bit),
            ("attention_mixed", self.attention_mixed),
            ("attention_flops", self.attention_flops),
            ("reduce_once.launch_us", reduce_once.launch_us),
            ("reduce_once.gb_s", reduce_once.gb_s),
            ("reduce_twice.launch_us", reduce_twice.launch_us),
            ("reduce_twice.gb_s", reduce_twice.gb_s),
        ]
    }

    /// Checks that every number is valid.
    ///
    /// # Errors
    /// If a number is missing, negative or not a number.
    pub fn check(&self) -> Result<(), LatencyError> {
        check_nonzero(&self.named())?;
        let curves = [self.gemm, self.gemm_8bit, self.experts, self.experts_8bit];
        let links = [self.reduce_hop_us, self.reduce_crowding];
        let mut optional = curves.iter().flat_map(|curve| [curve.tile_rows, curve.input_passes]).chain(links);
        match optional.all(|value| value.is_finite() && value >= 0.0) {
            true => Ok(()),
            false => Err(LatencyError::Missing { field: "tile_rows, input_passes, reduce_hop_us or reduce_crowding" }),
        }
    }
}

#[cfg(test)]
pub(crate) mod samples {
    use super::{Curve, Kernels, Link};

    /// Curves similar to those of an H100.
    pub fn kernels() -> Kernels {
        Kernels {
            gemm: Curve { launch_us: 3.5, bandwidth: 0.9, flops: 0.89, tile_rows: 0.0, input_passes: 0.0 },
            gemm_8bit: Curve { launch_us: 14.2, bandwidth: 0.86, flops: 0.7, tile_rows: 90.0, input_passes: 10.0 },
            experts: Curve { launch_us: 33.7, bandwidth: 0.91, flops: 0.23, tile_rows: 10.0, input_passes: 0.0 },
            experts_8bit: Curve { launch_us: 42.6, bandwidth: 0.79, flops: 0.13, tile_rows: 10.0, input_passes: 0.0 },
            expert_activations: 2.5,
            attention_launch_us: 12.0,
            attention_head_us: 0.017,
            attention_bandwidth: 0.95,
            attention_bandwidth_8bit: 0.76,
            attention_mixed: 1.0,
            attention_flops: 0.62,
            reduce_once: Link { launch_us: 4.3, gb_s: 124.0 },
            reduce_twice: Link { launch_us: 10.1, gb_s: 147.0 },
            reduce_hop_us: 0.0,
            reduce_crowding: 0.0,
        }
    }
}
