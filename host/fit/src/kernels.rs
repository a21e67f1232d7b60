//! Fits the curves of a GPU to tables of measured kernels in the form of NVIDIA's aiconfigurator: one file per kind of
//! kernel, one line per shape, times in ms.
//!
//! Each curve is fitted to the logarithm of the times, so that small and large shapes have equal weight, and with a
//! robust loss, because tables contain shapes for which the library selected a slow kernel.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use blis_sim::model::Gpu;
use levenberg_marquardt::{LeastSquaresProblem, LevenbergMarquardt};
use nalgebra::storage::Owned;
use nalgebra::{DMatrix, DVector, Dyn};
use serde::Deserialize;

use super::calibrate::robust;
use super::runs::{FitError, read_rows};
use blis_diag::Diagnostic;

/// Expected standard deviation of the logarithm of a measured kernel time around its curve.
const SPREAD: f64 = 0.1;

/// Weight of the prior of a share of peak bandwidth, 0.85, against all kernels of a table.
const BANDWIDTH_PRIOR: f64 = 0.5;

/// The parameters of a curve, and the errors of the fit.
#[derive(Clone, Debug, PartialEq)]
pub struct FittedCurve {
    /// Name of the curve in hardware files.
    pub name: &'static str,
    /// Name and value of each parameter.
    pub values: Vec<(&'static str, f64)>,
    /// Number of kernels that it was fitted to.
    pub kernels: usize,
    /// Median and 90th percentile of the absolute error, %.
    pub errors: (f64, f64),
}

/// Fits every curve for which `folder` has a file with a name that starts with `prefix`.
///
/// # Errors
/// If a file cannot be read or is invalid, or there is none.
pub fn fit_kernels(folder: &Path, prefix: &str, gpu: &Gpu) -> Result<Vec<FittedCurve>, FitError> {
    let files = files(folder, prefix)?;
    let find = |part: &str| files.iter().find(|file| name(file).contains(part));
    let mut curves = Vec::new();
    if let Some(file) = find("gemm_perf") {
        let rows: Vec<GemmRow> = read_rows(file)?;
        for (curve, dtype, bytes) in [("gemm", "bfloat16", 2.0), ("gemm_8bit", "fp8", 1.0)] {
            curves.extend(gemm(curve, &rows, dtype, gpu, bytes));
        }
    }
    if let Some(file) = find("moe_perf") {
        let rows: Vec<MoeRow> = read_rows(file)?;
        curves.extend(experts("experts", &rows, "bfloat16", gpu, 2.0));
        // Scales per block are what most checkpoints in 8 bits have; of some GPUs only scales per tensor were measured.
        let blocks = experts("experts_8bit", &rows, "fp8_block", gpu, 1.0);
        curves.extend(blocks.or_else(|| experts("experts_8bit", &rows, "fp8", gpu, 1.0)));
    }
    if let Some(file) = find("generation_attention_perf") {
        let rows = read_rows(file)?;
        curves.extend(decode_attention("attention of decodes", &rows, gpu, ("bfloat16", 2.0)));
        curves.extend(decode_attention("attention of decodes, 8-bit cache", &rows, gpu, ("fp8", 1.0)));
    }
    if let Some(file) = find("context_attention_perf") {
        curves.extend(prefill_attention(&read_rows(file)?, gpu));
    }
    if let Some(file) = find("custom_allreduce_perf") {
        curves.extend(reductions(&read_rows(file)?));
    }
    if curves.is_empty() {
        let mistake = Diagnostic::new(format!("no table of kernels whose name starts with `{prefix}`"))
            .hint("their names have the form `h100_sxm__gemm__vllm__0.14.0__gemm_perf.csv.gz`");
        return Err(FitError::file(folder, None, mistake));
    }
    Ok(curves)
}

/// The curves in the form of a hardware file, each with its error.
#[must_use]
pub fn yaml(curves: &[FittedCurve]) -> String {
    let mut text = String::from("kernels:\n");
    for FittedCurve { name, values, kernels, errors } in curves {
        let values: Vec<String> = values.iter().map(|(key, value)| format!("{key}: {value:.4}")).collect();
        let (median, p90) = errors;
        let _ = writeln!(
            text,
            "  {name}: {{ {} }} # {kernels} kernels, |error| median {median:.1} %, p90 {p90:.1} %",
            values.join(", ")
        );
    }
    text
}

fn files(folder: &Path, prefix: &str) -> Result<Vec<PathBuf>, FitError> {
    let failed = |source| FitError::Read { path: folder.into(), source };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if name(&path).starts_with(prefix) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

#[derive(Deserialize)]
struct GemmRow {
    gemm_dtype: String,
    m: f64,
    n: f64,
    k: f64,
    latency: f64,
}

/// The larger of two times plus a small part of the smaller one, as in the latency model.
fn slower(memory: f64, arithmetic: f64) -> f64 {
    (memory.powi(4) + arithmetic.powi(4)).sqrt().sqrt()
}

fn peak(gpu: &Gpu, bytes: f64) -> f64 {
    gpu.peak_tflops(bytes) * 1e6
}

fn gemm(curve: &'static str, rows: &[GemmRow], dtype: &str, gpu: &Gpu, bytes: f64) -> Option<FittedCurve> {
    /// Sides of matrices, and bytes of weights: others occur in few models, or take little of a step.
    const SMALLEST: f64 = 512.0;
    const WEIGHTS: std::ops::RangeInclusive<f64> = 12e6..=512e6;
    /// Tokens of the largest step that matters.
    const LARGEST_STEP: f64 = 8192.0;
    let (bandwidth, flops) = (gpu.hbm_tb_s * 1e6, peak(gpu, bytes));
    let points: Vec<[f64; 5]> = rows
        .iter()
        .filter(|row| row.gemm_dtype == dtype && row.n >= SMALLEST && row.k >= SMALLEST && row.m <= LARGEST_STEP)
        .filter(|row| WEIGHTS.contains(&(2.0 * row.n * row.k)))
        .map(|row| {
            let moved = bytes * row.n * row.k + 2.0 * row.m * (row.n + row.k);
            let input = 3.0 * row.m * row.k / bandwidth;
            [moved / bandwidth, 2.0 * row.m * row.n * row.k / flops, row.m, input, row.latency * 1e3]
        })
        // A product faster than the memory has its weights in the L2 cache, where a service never has them.
        .filter(|&[memory, .., us]| memory < us)
        .collect();
    let us = |x: &[f64], point: &[f64; 5]| {
        let [memory, arithmetic, rows, input, _] = point;
        x[0] + slower(memory / x[1], arithmetic * (rows + x[3]) / rows / x[2]) + x[4] * input
    };
    let names = ["launch_us", "bandwidth", "flops", "tile_rows", "input_passes"];
    // 16-bit inputs are not scaled.
    let passes = if bytes == 2.0 { 0.0 } else { 3.0 };
    fitted(curve, &names, &[4.0, 0.8, 0.7, 40.0, passes], &points, us, |point| point[4])
}

#[derive(Deserialize)]
struct MoeRow {
    moe_dtype: String,
    num_tokens: f64,
    hidden_size: f64,
    inter_size: f64,
    topk: f64,
    num_experts: f64,
    moe_tp_size: f64,
    moe_ep_size: f64,
    distribution: String,
    latency: f64,
}

/// The table in which tokens select experts almost uniformly.
const EVEN: &str = "power_law_1.01";

fn experts(curve: &'static str, rows: &[MoeRow], dtype: &str, gpu: &Gpu, bytes: f64) -> Option<FittedCurve> {
    let (bandwidth, flops) = (gpu.hbm_tb_s * 1e6, peak(gpu, bytes));
    let fits = |row: &&MoeRow| {
        row.moe_dtype == dtype && row.moe_ep_size == 1.0 && row.num_tokens <= 8192.0 && row.distribution == EVEN
    };
    let points: Vec<[f64; 5]> = rows
        .iter()
        .filter(fits)
        .map(|row| {
            let (d, width) = (row.hidden_size, row.inter_size / row.moe_tp_size);
            let visited = row.num_experts * (1.0 - (1.0 - row.topk / row.num_experts).powf(row.num_tokens));
            let visits = row.num_tokens * row.topk;
            [
                3.0 * d * width * bytes * visited / bandwidth,
                6.0 * d * width * visits / flops,
                visits * (2.0 * d + 3.0 * width) * 2.0 / bandwidth,
                6.0 * d * width * visited / flops,
                row.latency * 1e3,
            ]
        })
        .collect();
    let us = |x: &[f64], &[weights, arithmetic, activations, row, _]: &[f64; 5]| {
        x[0] + slower(weights / x[1], (arithmetic + x[4] * row) / x[2]) + x[3] * activations
    };
    // Padded rows cannot be distinguished from weights: both are proportional to the experts visited.
    let names = ["launch_us", "bandwidth", "flops", "activations", "tile_rows"];
    fitted(curve, &names, &[30.0, 0.8, 0.3, 2.0, 0.0], &points, us, |point| point[4])
}

#[derive(Deserialize)]
struct AttentionRow {
    batch_size: f64,
    isl: f64,
    num_heads: f64,
    num_key_value_heads: f64,
    head_dim: f64,
    attn_dtype: String,
    kv_cache_dtype: String,
    step: f64,
    /// Length of the sliding window, tokens; 0 or absent for full attention.
    window_size: Option<f64>,
    latency: f64,
}

impl AttentionRow {
    /// Full attention in 16 bits with heads of usual width, and such a cache.
    fn is_usual(&self, cache: &str) -> bool {
        self.attn_dtype == "bfloat16"
            && self.kv_cache_dtype == cache
            && self.head_dim == 128.0
            && self.window_size.is_none_or(|window| window <= 0.0)
    }
}

/// `cache`: name of the type of cached elements, and their bytes.
fn decode_attention(
    curve: &'static str,
    rows: &[AttentionRow],
    gpu: &Gpu,
    (cache, bytes): (&str, f64),
) -> Option<FittedCurve> {
    // Batches and contexts that occur in a service; smaller kernels consist of little more than their launch.
    let serving = |row: &&AttentionRow| {
        let context = row.isl + row.step;
        row.is_usual(cache) && (8.0..=256.0).contains(&row.batch_size) && (255.0..=4096.0).contains(&context)
    };
    let points: Vec<(f64, f64, f64)> = rows
        .iter()
        .filter(serving)
        .map(|row| {
            let heads = row.batch_size * row.num_key_value_heads;
            let moved = heads * (row.isl + row.step) * row.head_dim * 2.0 * bytes;
            (moved / (gpu.hbm_tb_s * 1e6), heads, row.latency * 1e3)
        })
        // Faster kernels have the KV of the layer in the L2 cache, where a service has other layers' by then.
        .filter(|&(memory, _, us)| memory < 0.95 * us)
        .collect();
    let us = |x: &[f64], &(memory, heads, _): &(f64, f64, f64)| x[0] + memory / x[1] + x[2] * heads;
    let names = ["launch_us", "bandwidth", "head_us"];
    fitted(curve, &names, &[12.0, 0.8, 0.01], &points, us, |point| point.2)
}

fn prefill_attention(rows: &[AttentionRow], gpu: &Gpu) -> Option<FittedCurve> {
    let points: Vec<(f64, f64, f64)> = rows
        .iter()
        .filter(|row| row.is_usual("bfloat16"))
        .map(|row| {
            let heads = row.batch_size * row.num_heads;
            let arithmetic = heads * row.head_dim * 2.0 * row.isl * (row.isl + 1.0) / peak(gpu, 2.0);
            let elements = 2.0 * row.batch_size * row.isl * row.head_dim * (row.num_heads + row.num_key_value_heads);
            (arithmetic, 2.0 * elements / (gpu.hbm_tb_s * 1e6), row.latency * 1e3)
        })
        .collect();
    let us = |x: &[f64], &(arithmetic, memory, _): &(f64, f64, f64)| x[0] + arithmetic / x[1] + memory / x[2];
    let names = ["launch_us", "flops", "traffic"];
    fitted("attention of prompts", &names, &[12.0, 0.5, 0.5], &points, us, |point| point.2)
}

#[derive(Deserialize)]
struct ReduceRow {
    num_gpus: f64,
    message_size: f64,
    latency: f64,
    backend: String,
}

fn reductions(rows: &[ReduceRow]) -> Option<FittedCurve> {
    /// Larger messages use another algorithm.
    const LARGEST: f64 = 33_554_432.0;
    let points: Vec<&ReduceRow> =
        rows.iter().filter(|row| row.backend.ends_with("graph") && row.message_size <= LARGEST).collect();
    let us = |x: &[f64], row: &&ReduceRow| {
        let (others, bytes) = (row.num_gpus - 1.0, row.message_size * (1.0 + x[5] * (row.num_gpus - 2.0)));
        let once = x[0] + others * bytes / (x[1] * 1e3);
        let twice = x[2] + 2.0 * others / row.num_gpus * bytes / (x[3] * 1e3);
        once.min(twice) + x[4] * (row.num_gpus - 2.0)
    };
    let names = ["once.launch_us", "once.gb_s", "twice.launch_us", "twice.gb_s", "hop_us", "crowding"];
    fitted("reduce", &names, &[4.0, 120.0, 10.0, 140.0, 0.1, 0.05], &points, us, |row| row.latency * 1e3)
}

/// Whether the tables of that curve leave open whether memory or arithmetic on padded rows bounds small batches.
fn curve_has_prior(name: &str) -> bool {
    name.starts_with("experts")
}

/// Fits the parameters of a curve, starting at `start`; `None` without a kernel.
fn fitted<P>(
    name: &'static str,
    names: &[&'static str],
    start: &[f64],
    points: &[P],
    us: impl Fn(&[f64], &P) -> f64,
    measured: impl Fn(&P) -> f64,
) -> Option<FittedCurve> {
    if points.is_empty() {
        return None;
    }
    let deviations =
        |x: &[f64]| -> Vec<f64> { points.iter().map(|point| (us(x, point) / measured(point)).ln()).collect() };
    // Shares of peak bandwidth have a weak prior: what reads no faster than other kernels must not seem to.
    let weight = BANDWIDTH_PRIOR * (points.len() as f64).sqrt();
    let share = names.iter().position(|name| *name == "bandwidth").filter(|_| curve_has_prior(name));
    let residuals = |x: &[f64]| {
        let prior = share.map(|index| weight * (x[index] / 0.85).ln());
        deviations(x).into_iter().map(|deviation| robust(deviation / SPREAD)).chain(prior).collect()
    };
    let problem = CurveProblem { start, at: DVector::zeros(start.len()), residuals: &residuals };
    let (problem, _) = LevenbergMarquardt::new().minimize(problem);
    let values = problem.values(&problem.at);
    let mut errors: Vec<f64> = deviations(&values).into_iter().map(|deviation| 100.0 * deviation.abs()).collect();
    errors.sort_by(f64::total_cmp);
    let at = |share: f64| errors[((errors.len() - 1) as f64 * share) as usize];
    Some(FittedCurve {
        name,
        values: names.iter().copied().zip(values).collect(),
        kernels: points.len(),
        errors: (at(0.5), at(0.9)),
    })
}

/// Parameters of a curve as logarithms relative to their start values.
struct CurveProblem<'a> {
    start: &'a [f64],
    at: DVector<f64>,
    residuals: &'a dyn Fn(&[f64]) -> Vec<f64>,
}

impl CurveProblem<'_> {
    fn values(&self, at: &DVector<f64>) -> Vec<f64> {
        self.start.iter().zip(at.iter()).map(|(start, shift)| start * shift.exp()).collect()
    }

    fn evaluate(&self, at: &DVector<f64>) -> DVector<f64> {
        DVector::from_vec((self.residuals)(&self.values(at)))
    }
}

impl LeastSquaresProblem<f64, Dyn, Dyn> for CurveProblem<'_> {
    type ParameterStorage = Owned<f64, Dyn>;
    type ResidualStorage = Owned<f64, Dyn>;
    type JacobianStorage = Owned<f64, Dyn, Dyn>;

    fn set_params(&mut self, at: &DVector<f64>) {
        self.at.copy_from(at);
    }

    fn params(&self) -> DVector<f64> {
        self.at.clone()
    }

    fn residuals(&self) -> Option<DVector<f64>> {
        Some(self.evaluate(&self.at))
    }

    fn jacobian(&self) -> Option<DMatrix<f64>> {
        const STEP: f64 = 1e-5;
        let column = |index: usize, by: f64| {
            let mut at = self.at.clone();
            at[index] += by;
            self.evaluate(&at)
        };
        let columns: Vec<DVector<f64>> =
            (0..self.start.len()).map(|index| (column(index, STEP) - column(index, -STEP)) / (2.0 * STEP)).collect();
        Some(DMatrix::from_columns(&columns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_is_found_again() {
        let gpu =
            Gpu { tflops_fp16: 1000.0, tflops_fp8: 0.0, tflops_fp32: 0.0, hbm_tb_s: 3.0, memory_gib: 80.0, mfu: None };
        let shape = |(m, n): (f64, f64)| {
            let (memory, arithmetic) = ((2.0 * n * 4096.0 + 2.0 * m * (n + 4096.0)) / 3e6, 2.0 * m * n * 4096.0 / 1e9);
            let us = 5.0 + slower(memory / 0.85, arithmetic / 0.7);
            GemmRow { gemm_dtype: "bfloat16".into(), m, n, k: 4096.0, latency: us / 1e3 }
        };
        let sizes = [1.0, 16.0, 128.0, 1024.0, 8192.0];
        let mut rows: Vec<GemmRow> =
            sizes.into_iter().flat_map(|m| [2048.0, 8192.0, 16_384.0].map(|n| shape((m, n)))).collect();
        rows[0].latency *= 10.0; // one shape for which the library selected a slow kernel
        let curve = gemm("gemm", &rows, "bfloat16", &gpu, 2.0).unwrap();
        // The slow kernel is one of the small shapes, which determine the launch time.
        for ((name, value), (expected, within)) in curve.values.iter().zip([(5.0, 0.2), (0.85, 0.05), (0.7, 0.05)]) {
            assert!((value / expected - 1.0).abs() < within, "{name}: {value}");
        }
        assert!(curve.errors.0 < 1.0);
        assert_eq!(gemm("gemm", &rows, "fp8", &gpu, 1.0), None);
    }
}
