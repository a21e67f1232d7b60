//! Tables of measured kernels in the form of NVIDIA's aiconfigurator: one file per kind of kernel, one line per shape, times in ms.

use std::path::{Path, PathBuf};

use blis_sim::architecture::MXFP4_BYTES;
use blis_sim::latency::Kernels;
use blis_sim::latency::physics::{Curve, RowCurve};
use blis_sim::model::Gpu;
use serde::Deserialize;

use crate::runs::{FitError, read_rows};

/// The kernels that one curve is of.
pub(super) struct KernelTable {
    /// Name of the curve in hardware files.
    pub(super) name: &'static str,
    /// The numbers of rows that it is for, where there are several curves.
    pub(super) rows: Option<RowRange>,
    /// Names of its parameters, where the fit starts, and the indices of those that are fitted.
    pub(super) names: &'static [&'static str],
    pub(super) start: Vec<f64>,
    pub(super) free: Vec<usize>,
    /// The time of a kernel, µs, by parameters and parts.
    pub(super) us: fn(&[f64], &[f64; 5]) -> f64,
    pub(super) points: Vec<Point>,
}

/// A range of numbers of rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RowRange {
    /// There are more rows than these.
    pub(super) above: f64,
    /// The largest number of rows.
    pub(super) up_to: f64,
}

/// A number format in which kernels were measured.
#[derive(Clone, Copy, Debug, PartialEq)]
struct NumberFormat {
    /// Its name in the tables.
    name: &'static str,
    /// Bytes of a number, its share of the scales included.
    bytes: f64,
}

/// The formats that are read.
const BF16: NumberFormat = NumberFormat { name: "bfloat16", bytes: 2.0 };
const FP8: NumberFormat = NumberFormat { name: "fp8", bytes: 1.0 };
const FP8_BLOCK: NumberFormat = NumberFormat { name: "fp8_block", bytes: 1.0 };
/// Bytes of an NVFP4 weight: 4 bits, and a scale of 8 bits for each 16.
const NVFP4: NumberFormat = NumberFormat { name: "nvfp4", bytes: 0.5625 };
const W4A16_MXFP4: NumberFormat = NumberFormat { name: "w4a16_mxfp4", bytes: MXFP4_BYTES };

/// One measured kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    /// What its time depends on, by kind of kernel: mostly times at peak performance, µs.
    pub(super) parts: [f64; 5],
    /// The measured time, µs.
    pub(super) us: f64,
}

/// The ranges of rows of 8-bit and 4-bit products, each with a curve of its own.
const ROWS: [RowRange; 4] = [
    RowRange { above: 0.0, up_to: 32.0 },
    RowRange { above: 32.0, up_to: 128.0 },
    RowRange { above: 128.0, up_to: 512.0 },
    RowRange { above: 512.0, up_to: f64::INFINITY },
];

/// Names of attention with a cache in 16 bits.
const DECODES: &str = "attention of decodes";
const PROMPTS: &str = "attention of prompts";

/// Fused experts with 16-bit weights, and with 4-bit weights and 16-bit inputs.
pub(super) const EXPERTS: &str = "experts";
pub(super) const EXPERTS_4BIT_WEIGHTS: &str = "experts_4bit_weights";

/// Every table of `folder` with a name that starts with `prefix`.
pub(super) fn tables(folder: &Path, prefix: &str, gpu: &Gpu) -> Result<Vec<KernelTable>, FitError> {
    let files = files(folder, prefix)?;
    let find = |part: &str| files.iter().find(|file| name(file).contains(part));
    let mut tables = Vec::new();
    if let Some(file) = find("gemm_perf") {
        let rows: Vec<GemmRow> = read_rows(file)?;
        tables.push(gemm(&rows, gpu));
        tables.extend(ROWS.map(|range| gemm_by_rows("gemm_8bit", &rows, FP8, gpu.peak_tflops(1.0), gpu, range)));
        let fp4 = |range| gemm_by_rows("gemm_4bit", &rows, NVFP4, gpu.tflops_fp4, gpu, range);
        tables.extend(ROWS.map(fp4).into_iter().filter(|_| gpu.tflops_fp4 > 0.0));
    }
    // Of several versions of a table only the last has 4-bit weights.
    if let Some(file) = files.iter().rfind(|file| name(file).contains("moe_perf")) {
        let table = experts(EXPERTS_4BIT_WEIGHTS, &read_rows::<MoeRow>(file)?, W4A16_MXFP4, gpu.tflops_fp16, gpu);
        // The passes over inputs and outputs are those of `experts`, and the arithmetic on padded rows shows beside few bytes.
        tables.push(KernelTable { start: vec![30.0, 0.8, 0.5, 2.0, 5.0], free: vec![0, 1, 2, 4], ..table });
    }
    if let Some(file) = find("moe_perf") {
        let rows: Vec<MoeRow> = read_rows(file)?;
        tables.push(experts(EXPERTS, &rows, BF16, gpu.tflops_fp16, gpu));
        // Scales per block are what most checkpoints in 8 bits have; of some GPUs only scales per tensor were measured.
        let blocks = experts("experts_8bit", &rows, FP8_BLOCK, gpu.peak_tflops(1.0), gpu);
        let tensors = || experts("experts_8bit", &rows, FP8, gpu.peak_tflops(1.0), gpu);
        tables.push(if blocks.points.is_empty() { tensors() } else { blocks });
        if gpu.tflops_fp4 > 0.0 {
            tables.push(experts("experts_4bit", &rows, NVFP4, gpu.tflops_fp4, gpu));
        }
    }
    if let Some(file) = find("context_attention_perf") {
        tables.push(prefill_attention(&read_rows::<AttentionRow>(file)?, gpu));
    }
    if let Some(file) = find("generation_attention_perf") {
        let rows = read_rows::<AttentionRow>(file)?;
        tables.push(decode_attention(DECODES, &rows, gpu, BF16));
        tables.push(decode_attention("attention of decodes, 8-bit cache", &rows, gpu, FP8));
    }
    tables.retain(|table| !table.points.is_empty());
    Ok(tables)
}

/// The files of `folder` with a name that starts with `prefix` and two underscores, sorted.
pub(super) fn files(folder: &Path, prefix: &str) -> Result<Vec<PathBuf>, FitError> {
    let failed = |source| FitError::Read { path: folder.into(), source };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if name(&path).starts_with(prefix) && name(&path).contains("__") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

pub(super) fn name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

impl KernelTable {
    /// The parameters of this table's curve in the file of a GPU; `None` if it has no such curve.
    pub(super) fn values_of(&self, kernels: &Kernels) -> Option<Vec<f64>> {
        let product = |curve: &Curve| {
            let Curve { launch_us, bandwidth, flops, tile_rows, input_passes, narrow_outputs } = *curve;
            vec![launch_us, bandwidth, flops, tile_rows, input_passes, narrow_outputs]
        };
        let by_rows = |ranges: &[RowCurve]| {
            let most = self.rows?.up_to;
            Some(product(&ranges.iter().find(|range| range.up_to_rows >= most)?.curve))
        };
        let experts = |curve: &Curve| {
            vec![curve.launch_us, curve.bandwidth, curve.flops, kernels.expert_activations, curve.tile_rows]
        };
        let launch = kernels.attention_launch_us;
        match self.name {
            "gemm" => Some(product(&kernels.gemm)),
            "gemm_8bit" => by_rows(&kernels.gemm_8bit),
            "gemm_4bit" => by_rows(&kernels.gemm_4bit),
            EXPERTS => Some(experts(&kernels.experts)),
            "experts_8bit" => Some(experts(&kernels.experts_8bit)),
            "experts_4bit" => kernels.experts_4bit.as_ref().map(experts),
            EXPERTS_4BIT_WEIGHTS => kernels.experts_4bit_weights.as_ref().map(experts),
            DECODES => Some(vec![launch, kernels.attention_bandwidth, kernels.attention_head_us]),
            "attention of decodes, 8-bit cache" => {
                Some(vec![launch, kernels.attention_bandwidth_8bit, kernels.attention_head_us])
            }
            _ => Some(vec![kernels.attention_prompt_launch_us, kernels.attention_flops, kernels.attention_traffic]),
        }
    }
}

#[derive(Deserialize)]
pub(super) struct GemmRow {
    pub(super) gemm_dtype: String,
    pub(super) m: f64,
    pub(super) n: f64,
    pub(super) k: f64,
    pub(super) latency: f64,
}

const PRODUCT: &[&str] = &["launch_us", "bandwidth", "flops", "tile_rows", "input_passes", "narrow_outputs"];

/// Parts: memory, arithmetic, rows, one pass over the input, outputs.
fn product_us(x: &[f64], &[memory, arithmetic, rows, input, outputs]: &[f64; 5]) -> f64 {
    let narrow = (1.0 + (x[5] / outputs).powi(2)).sqrt();
    x[0] + slower(memory * narrow / x[1], arithmetic * (rows + x[3]) / rows / x[2]) + x[4] * input
}

/// The larger of two times plus a small part of the smaller one, as in the latency model.
pub(super) fn slower(memory: f64, arithmetic: f64) -> f64 {
    (memory.powi(4) + arithmetic.powi(4)).sqrt().sqrt()
}

fn products<'a>(
    rows: impl Iterator<Item = &'a GemmRow>,
    NumberFormat { name: dtype, bytes }: NumberFormat,
    tflops: f64,
    gpu: &Gpu,
) -> Vec<Point> {
    /// Sides of matrices, and bytes of 16-bit weights: others occur in few models, or take little of a step.
    const SMALLEST: f64 = 512.0;
    const WEIGHTS: std::ops::RangeInclusive<f64> = 12e6..=512e6;
    /// Tokens of the largest step that matters.
    const LARGEST_STEP: f64 = 8192.0;
    let (bandwidth, flops) = (gpu.hbm_tb_s * 1e6, tflops * 1e6);
    rows.filter(|row| row.gemm_dtype == dtype && row.n >= SMALLEST && row.k >= SMALLEST && row.m <= LARGEST_STEP)
        .filter(|row| WEIGHTS.contains(&(2.0 * row.n * row.k)))
        .map(|row| {
            let moved = bytes * row.n * row.k + 2.0 * row.m * (row.n + row.k);
            let input = 3.0 * row.m * row.k / bandwidth;
            let parts = [moved / bandwidth, 2.0 * row.m * row.n * row.k / flops, row.m, input, row.n];
            Point { parts, us: row.latency * 1e3 }
        })
        // A product faster than the memory has its weights in the L2 cache, where a service never has them.
        .filter(|point| point.parts[0] < point.us)
        .collect()
}

pub(super) fn gemm(rows: &[GemmRow], gpu: &Gpu) -> KernelTable {
    KernelTable {
        name: "gemm",
        rows: None,
        names: PRODUCT,
        // 16-bit inputs are not scaled.
        start: vec![4.0, 0.8, 0.7, 40.0, 0.0, 0.0],
        free: vec![0, 1, 2, 3],
        us: product_us,
        points: products(rows.iter(), BF16, gpu.tflops_fp16, gpu),
    }
}

/// Products in fewer bits with so many rows.
fn gemm_by_rows(
    name: &'static str,
    rows: &[GemmRow],
    format: NumberFormat,
    tflops: f64,
    gpu: &Gpu,
    range: RowRange,
) -> KernelTable {
    /// 1, 3 or 5 times a power of two: some tables have all multiples of 256, others not.
    fn is_usual(rows: f64) -> bool {
        let odd = rows as u64 >> (rows as u64).trailing_zeros().min(63);
        [1, 3, 5].contains(&odd)
    }
    let RowRange { above, up_to } = range;
    let of_range = rows.iter().filter(|row| row.m > above && row.m <= up_to && is_usual(row.m));
    // Few rows do not show the peak: the fit takes it from the last range. Only tiles that are partly empty explain more
    // arithmetic than there is.
    let (tile_rows, free) = match above {
        _ if up_to.is_infinite() => (0.0, vec![0, 1, 2, 4, 5]),
        0.0 => (0.0, vec![0, 1, 4, 5]),
        _ => (10.0, vec![0, 1, 3, 4, 5]),
    };
    KernelTable {
        name,
        rows: Some(range),
        names: PRODUCT,
        start: vec![8.0, 0.8, 0.7, tile_rows, 3.0, 1000.0],
        free,
        us: product_us,
        points: products(of_range, format, tflops, gpu),
    }
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

/// Parts: weights, arithmetic, activations, arithmetic of one row of each visited expert.
fn experts_us(x: &[f64], &[weights, arithmetic, activations, row, _]: &[f64; 5]) -> f64 {
    x[0] + slower(weights / x[1], (arithmetic + x[4] * row) / x[2]) + x[3] * activations
}

fn experts(name: &'static str, rows: &[MoeRow], format: NumberFormat, tflops: f64, gpu: &Gpu) -> KernelTable {
    let NumberFormat { name: dtype, bytes } = format;
    let (bandwidth, flops) = (gpu.hbm_tb_s * 1e6, tflops * 1e6);
    let fits = |row: &&MoeRow| {
        row.moe_dtype == dtype && row.moe_ep_size == 1.0 && row.num_tokens <= 8192.0 && row.distribution == EVEN
    };
    let point = |row: &MoeRow| {
        let (d, width) = (row.hidden_size, row.inter_size / row.moe_tp_size);
        let visited = row.num_experts * (1.0 - (1.0 - row.topk / row.num_experts).powf(row.num_tokens));
        let visits = row.num_tokens * row.topk;
        let parts = [
            3.0 * d * width * bytes * visited / bandwidth,
            6.0 * d * width * visits / flops,
            visits * (2.0 * d + 3.0 * width) * 2.0 / bandwidth,
            6.0 * d * width * visited / flops,
            0.0,
        ];
        Point { parts, us: row.latency * 1e3 }
    };
    KernelTable {
        name,
        rows: None,
        // Padded rows cannot be distinguished from weights: both are proportional to the experts visited.
        names: &["launch_us", "bandwidth", "flops", "activations", "tile_rows"],
        start: vec![30.0, 0.8, 0.3, 2.0, 0.0],
        free: vec![0, 1, 2, 3],
        us: experts_us,
        points: rows.iter().filter(fits).map(point).collect(),
    }
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

/// Decodes that read fewer bytes than so many times the L2 cache holds say nothing about reading from memory.
const L2_SIZES: f64 = 1.5;

/// `cache`: the type of cached elements.
fn decode_attention(name: &'static str, rows: &[AttentionRow], gpu: &Gpu, cache: NumberFormat) -> KernelTable {
    // Batches and contexts that occur in a service; smaller kernels consist of little more than their launch.
    let serving = |row: &&AttentionRow| {
        let context = row.isl + row.step;
        row.is_usual(cache.name) && (8.0..=256.0).contains(&row.batch_size) && (255.0..=4096.0).contains(&context)
    };
    let point = |row: &AttentionRow| {
        let heads = row.batch_size * row.num_key_value_heads;
        let moved = heads * (row.isl + row.step) * row.head_dim * 2.0 * cache.bytes;
        Point { parts: [moved / (gpu.hbm_tb_s * 1e6), heads, 0.0, 0.0, 0.0], us: row.latency * 1e3 }
    };
    let points = rows.iter().filter(serving).map(point);
    KernelTable {
        name,
        rows: None,
        names: &["launch_us", "bandwidth", "head_us"],
        start: vec![12.0, 0.8, 0.01],
        free: vec![0, 1, 2],
        us: |x, &[memory, heads, ..]| x[0] + memory / x[1] + x[2] * heads,
        // A kernel that is measured again and again has less KV in the L2 cache, where a service has other layers' by then.
        points: points.filter(|point| point.parts[0] * gpu.hbm_tb_s > L2_SIZES * gpu.l2_mb).collect(),
    }
}

/// Parts: arithmetic, and traffic of queries, keys, values and outputs.
fn prefill_attention(rows: &[AttentionRow], gpu: &Gpu) -> KernelTable {
    let point = |row: &AttentionRow| {
        let heads = row.batch_size * row.num_heads;
        let arithmetic = heads * row.head_dim * 2.0 * row.isl * (row.isl + 1.0) / (gpu.tflops_fp16 * 1e6);
        let moved = 4.0 * row.batch_size * row.isl * row.head_dim * (row.num_heads + row.num_key_value_heads);
        Point { parts: [arithmetic, moved / (gpu.hbm_tb_s * 1e6), 0.0, 0.0, 0.0], us: row.latency * 1e3 }
    };
    KernelTable {
        name: PROMPTS,
        rows: None,
        names: &["launch_us", "flops", "traffic"],
        start: vec![12.0, 0.5, 0.5],
        free: vec![0, 1, 2],
        us: |x, &[arithmetic, moved, ..]| x[0] + arithmetic / x[1] + moved / x[2],
        points: rows.iter().filter(|row| row.is_usual(BF16.name)).map(point).collect(),
    }
}
