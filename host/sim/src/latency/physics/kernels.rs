//! The curves of the kernels of a GPU, a few numbers each.

use super::links::Links;
use crate::latency::LatencyError;
use crate::latency::error::check_nonzero;

/// The attainable performance of the kernels of one GPU. Shares are relative to the data sheet's peak; a time is per
/// kernel, µs.
///
/// A matrix product of `F` FLOP and `B` bytes takes `launch + ⁴√((B/bandwidth)⁴ + (F/flops)⁴)`: bound by memory for few
/// tokens, by arithmetic for many, and a little slower than either where both matter. Tensor cores compute whole tiles:
/// [`Curve::tile_rows`] rows more than there are. Inputs of 8-bit and 4-bit products are scaled first, which takes
/// [`Curve::input_passes`] passes over them. A product with few outputs leaves part of the GPU idle: `B/bandwidth` is
/// `√(1 + (narrow_outputs/outputs)²)` times as long.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernels {
    /// Matrix products with 16-bit weights; also those with 4-bit weights, which are dequantised first.
    pub gemm: Curve,
    /// Matrix products with 8-bit weights and inputs, including the scaling of the input, by number of rows.
    pub gemm_8bit: Vec<RowCurve>,
    /// Matrix products with 4-bit weights and inputs (NVFP4), including the scaling of the input, by number of rows; empty if
    /// the GPU has no FP4: it converts the weights to 16 bits.
    pub gemm_4bit: Vec<RowCurve>,
    /// Fused experts, with weights of the model's own width.
    pub experts: Curve,
    /// Fused experts with 8-bit weights.
    pub experts_8bit: Curve,
    /// Fused experts with 4-bit weights and inputs, where `gemm_4bit` has curves.
    pub experts_4bit: Option<Curve>,
    /// Fused experts with 4-bit weights and 16-bit inputs (MXFP4), which the kernel dequantises; `experts`, reading fewer
    /// bytes, where they were not measured.
    pub experts_4bit_weights: Option<Curve>,
    /// Factor on the time of one pass over an expert's input and output, ≥ 0.
    pub expert_activations: f64,
    /// Launch time of one attention kernel, µs, until it reads the KV cache at full bandwidth.
    pub attention_launch_us: f64,
    /// The same in a step of prompts only, µs; with decodes beside them the longer of both counts.
    pub attention_prompt_launch_us: f64,
    /// Time of attention per decoding request and KV head, µs.
    pub attention_head_us: f64,
    /// Share of the memory bandwidth with which attention reads the KV cache.
    pub attention_bandwidth: f64,
    /// The same share for an FP8 KV cache, whose elements are converted on the way: up to a third less on Hopper.
    pub attention_bandwidth_8bit: f64,
    /// Rows of queries that a decode takes per query head in a step that also computes prompts, ≥ 0: FlashAttention 2 (GPUs
    /// other than Hopper) then computes whole tiles, of which a decode fills one row. 0 where decodes have a kernel of their own.
    pub attention_mixed_rows: f64,
    /// Share of the FLOP peak that attention of prompts attains.
    pub attention_flops: f64,
    /// Share of the memory bandwidth with which attention of prompts reads queries, keys and values and writes outputs. It
    /// includes the start and the end of each tile of queries and the part of the tile on the diagonal that is computed in vain,
    /// which are proportional to the same tokens and heads.
    pub attention_traffic: f64,
    /// Exchanging data between GPUs.
    pub links: Links,
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
    /// Number of outputs at which a product takes √2 times as long to read as a wide one, ≥ 0.
    pub narrow_outputs: f64,
}

/// A curve for products of few rows, or of many: libraries have kernels for each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowCurve {
    /// The largest number of rows that it holds for; infinite in the last one.
    pub up_to_rows: f64,
    /// The curve.
    pub curve: Curve,
}

impl Kernels {
    /// The curves with their names in hardware files.
    fn curves(&self) -> impl Iterator<Item = (&'static str, Curve)> {
        let fixed = [("gemm", self.gemm), ("experts", self.experts), ("experts_8bit", self.experts_8bit)];
        let by_rows = [("gemm_8bit", &self.gemm_8bit), ("gemm_4bit", &self.gemm_4bit)];
        let by_rows =
            by_rows.into_iter().flat_map(|(name, ranges)| ranges.iter().map(move |range| (name, range.curve)));
        let optional = [("experts_4bit", self.experts_4bit), ("experts_4bit_weights", self.experts_4bit_weights)];
        let measured = optional.into_iter().filter_map(|(name, curve)| Some((name, curve?)));
        fixed.into_iter().chain(by_rows).chain(measured)
    }

    /// The numbers outside curves that must not be 0, with their names in hardware files.
    fn named(&self) -> [(&'static str, f64); 8] {
        [
            ("expert_activations", self.expert_activations),
            ("attention_launch_us", self.attention_launch_us),
            ("attention_prompt_launch_us", self.attention_prompt_launch_us),
            ("attention_head_us", self.attention_head_us),
            ("attention_bandwidth", self.attention_bandwidth),
            ("attention_bandwidth_8bit", self.attention_bandwidth_8bit),
            ("attention_flops", self.attention_flops),
            ("attention_traffic", self.attention_traffic),
        ]
    }

    /// Checks that every number is valid.
    ///
    /// # Errors
    /// If a number is missing, negative or not a number.
    pub fn check(&self) -> Result<(), LatencyError> {
        check_nonzero(&self.named())?;
        if !(self.attention_mixed_rows.is_finite() && self.attention_mixed_rows >= 0.0) {
            return Err(LatencyError::Missing { field: "attention_mixed_rows" });
        }
        for (name, Curve { launch_us, bandwidth, flops, tile_rows, input_passes, narrow_outputs }) in self.curves() {
            let positive = [launch_us, bandwidth, flops].iter().all(|value| value.is_finite() && *value > 0.0);
            let mut others = [tile_rows, input_passes, narrow_outputs].into_iter();
            if !positive || !others.all(|value| value.is_finite() && value >= 0.0) {
                return Err(LatencyError::Missing { field: name });
            }
        }
        for (field, ranges) in [("gemm_8bit", &self.gemm_8bit), ("gemm_4bit", &self.gemm_4bit)] {
            let last = ranges.last().is_some_and(|range| range.up_to_rows == f64::INFINITY);
            let absent = field == "gemm_4bit" && ranges.is_empty();
            if !(last || absent) || !ranges.is_sorted_by(|a, b| a.up_to_rows < b.up_to_rows) {
                return Err(LatencyError::Missing { field });
            }
        }
        if self.gemm_4bit.is_empty() == self.experts_4bit.is_some() {
            return Err(LatencyError::Missing { field: "gemm_4bit or experts_4bit" });
        }
        self.links.check()
    }
}

#[cfg(test)]
pub(crate) mod samples {
    use super::{Curve, Kernels, RowCurve};
    use crate::latency::physics::links::samples::links;

    /// Curves similar to those of an H100.
    pub fn kernels() -> Kernels {
        let curve = |launch_us, bandwidth, flops, tile_rows, input_passes| Curve {
            launch_us,
            bandwidth,
            flops,
            tile_rows,
            input_passes,
            narrow_outputs: 0.0,
        };
        let range = |up_to_rows, curve| RowCurve { up_to_rows, curve };
        Kernels {
            gemm: curve(3.5, 0.9, 0.89, 0.0, 0.0),
            gemm_8bit: vec![
                range(64.0, curve(14.2, 0.86, 0.7, 0.0, 10.0)),
                range(f64::INFINITY, Curve { narrow_outputs: 2000.0, ..curve(12.0, 0.7, 0.7, 90.0, 10.0) }),
            ],
            gemm_4bit: Vec::new(),
            experts: curve(33.7, 0.91, 0.23, 10.0, 0.0),
            experts_8bit: curve(42.6, 0.79, 0.13, 10.0, 0.0),
            experts_4bit: None,
            experts_4bit_weights: None,
            expert_activations: 2.5,
            attention_launch_us: 12.0,
            attention_prompt_launch_us: 13.5,
            attention_head_us: 0.017,
            attention_bandwidth: 0.95,
            attention_bandwidth_8bit: 0.76,
            attention_mixed_rows: 0.0,
            attention_flops: 0.62,
            attention_traffic: 0.36,
            links: links(),
        }
    }
}
