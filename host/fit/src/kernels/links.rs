//! Collectives between GPUs from tables: times over the size of the message in a few lines, by number of GPUs.

use std::collections::BTreeMap;
use std::path::Path;

use blis_sim::latency::physics::{GroupLink, LinkSegment};
use serde::Deserialize;

use super::tables::{files, name};
use crate::runs::{FitError, read_rows};
use blis_diag::Diagnostic;

/// Lines per group.
const SEGMENTS: usize = 4;

/// The bandwidth of a line whose time does not grow, 10⁹ bytes/s.
const FLAT: f64 = 100_000.0;

/// Measured times of one collective over a group of GPUs: (bytes, µs), ascending by size.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct GroupTable {
    /// `all_reduce` or `gather`.
    pub(super) name: &'static str,
    pub(super) gpus: u32,
    pub(super) points: Vec<(f64, f64)>,
}

#[derive(Deserialize)]
struct ReduceRow {
    allreduce_dtype: String,
    num_gpus: u32,
    /// Elements, not bytes: in 16 bits vLLM's own kernel ends at 4 194 304 of them, its limit of 8 MiB, and one pass with 4 and 8
    /// GPUs at 262 144 and 131 072, its limits of 512 and 256 KiB; NCCL takes as long for `half` as for twice as many `int8`.
    message_size: f64,
    latency: f64,
    backend: String,
}

#[derive(Deserialize)]
struct NcclRow {
    op_name: String,
    nccl_dtype: String,
    num_gpus: u32,
    /// Elements, as above; of gathers and scatters, those of all GPUs together.
    message_size: f64,
    latency: f64,
}

/// Bytes of an element of the type that a table names.
fn element_bytes(path: &Path, dtype: &str) -> Result<f64, FitError> {
    match dtype {
        "int8" | "fp8" => Ok(1.0),
        "half" | "float16" | "bfloat16" => Ok(2.0),
        "float" | "float32" => Ok(4.0),
        _ => Err(FitError::file(
            path,
            None,
            Diagnostic::new(format!("unknown type of elements: `{dtype}`")).hint("known: int8, half, bfloat16, float"),
        )),
    }
}

/// The collectives of the GPU whose tables have names that start with `prefix`.
pub(super) fn groups(folder: &Path, prefix: &str) -> Result<Vec<GroupTable>, FitError> {
    let files = files(folder, prefix)?;
    let find = |part: &str| files.iter().find(|file| name(file).contains(part));
    let mut groups = Vec::new();
    if let Some(file) = find("custom_allreduce_perf") {
        let mut all = Measured::default();
        for row in read_rows::<ReduceRow>(file)?.iter().filter(|row| row.backend.ends_with("graph")) {
            all.add(row.num_gpus, row.message_size * element_bytes(file, &row.allreduce_dtype)?, row.latency);
        }
        groups.extend(all.tables("all_reduce"));
    }
    if let Some(file) = find("nccl_perf") {
        let mut all = Measured::default();
        // Weights and activations have 16 bits; a gather and the scatter back take as long as each other.
        let there_and_back = |row: &&NcclRow| {
            ["all_gather", "reduce_scatter"].contains(&row.op_name.as_str()) && row.nccl_dtype == "half"
        };
        for row in read_rows::<NcclRow>(file)?.iter().filter(there_and_back) {
            all.add(row.num_gpus, row.message_size * element_bytes(file, &row.nccl_dtype)?, row.latency);
        }
        groups.extend(all.tables("gather"));
    }
    Ok(groups)
}

/// Times in ms by number of GPUs and bytes: tables may have several of each.
#[derive(Default)]
struct Measured(BTreeMap<u32, BTreeMap<u64, Vec<f64>>>);

impl Measured {
    fn add(&mut self, gpus: u32, bytes: f64, ms: f64) {
        self.0.entry(gpus).or_default().entry(bytes as u64).or_default().push(ms);
    }

    fn tables(self, name: &'static str) -> impl Iterator<Item = GroupTable> {
        let us = |(bytes, ms): (u64, Vec<f64>)| (bytes as f64, 1e3 * ms.iter().sum::<f64>() / ms.len() as f64);
        self.0.into_iter().map(move |(gpus, sizes)| GroupTable {
            name,
            gpus,
            points: sizes.into_iter().map(us).collect(),
        })
    }
}

impl GroupTable {
    /// The lines with the smallest sum of squared relative errors: every choice of the sizes at which they change is tried.
    pub(super) fn fitted(&self) -> GroupLink {
        /// Points of a line, at least.
        const FEWEST: usize = 2;
        let points = &self.points;
        // best[k][end]: error and lines of `points[..end]` in k + 1 lines.
        let mut best: Vec<Vec<Option<(f64, Vec<LinkSegment>)>>> = Vec::new();
        for count in 0..SEGMENTS {
            let row = (0..=points.len())
                .map(|end| {
                    let starts = if count == 0 { 0..1 } else { FEWEST..end };
                    let candidates = starts.filter(|start| end >= start + FEWEST).filter_map(|start| {
                        let (error, segment) = line(&points[start..end]);
                        let (before, mut segments) = match count {
                            0 => (0.0, Vec::new()),
                            _ => best[count - 1][start].clone()?,
                        };
                        segments.push(segment);
                        Some((before + error, segments))
                    });
                    candidates.min_by(|a, b| a.0.total_cmp(&b.0))
                })
                .collect();
            best.push(row);
        }
        let all = best.into_iter().filter_map(|mut row| row.pop().flatten());
        let (_, mut segments) = all.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((0.0, vec![line(points).1]));
        segments[0].from_bytes = 0.0;
        GroupLink { gpus: self.gpus, segments }
    }

    /// Signed errors of `link` on this table, %.
    pub(super) fn errors(&self, link: &GroupLink) -> Vec<f64> {
        self.points.iter().map(|&(bytes, us)| 100.0 * (link.us(bytes) / us).ln()).collect()
    }
}

/// The line `a + b·bytes`, a and b ≥ 0, with the smallest sum of squared relative errors, and that sum.
fn line(points: &[(f64, f64)]) -> (f64, LinkSegment) {
    let sum = |of: fn(f64, f64) -> f64| points.iter().map(|&(bytes, us)| of(1.0 / us, bytes / us)).sum::<f64>();
    let (aa, bb, ab) = (sum(|u, _| u * u), sum(|_, v| v * v), sum(|u, v| u * v));
    let (a1, b1) = (sum(|u, _| u), sum(|_, v| v));
    let determinant = aa * bb - ab * ab;
    let both = ((a1 * bb - b1 * ab) / determinant, (b1 * aa - a1 * ab) / determinant);
    let valid = |&(a, b): &(f64, f64)| a.is_finite() && b.is_finite() && a >= 0.0 && b >= 0.0;
    let error = |(a, b): (f64, f64)| sum_of_squares(points, a, b);
    let candidates = [both, (a1 / aa, 0.0), (0.0, b1 / bb)].into_iter().filter(valid);
    let (a, b) = candidates.min_by(|x, y| error(*x).total_cmp(&error(*y))).unwrap_or((0.0, 0.0));
    let gb_s = if b > 0.0 { (1e-3 / b).min(FLAT) } else { FLAT };
    let from_bytes = points.first().map_or(0.0, |point| point.0);
    (error((a, b)), LinkSegment { from_bytes, launch_us: a, gb_s })
}

fn sum_of_squares(points: &[(f64, f64)], a: f64, b: f64) -> f64 {
    points.iter().map(|&(bytes, us)| ((a + b * bytes) / us - 1.0).powi(2)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write as _;

    /// A folder with the tables of a GPU whose all-reduce takes 5 µs + bytes/100 GB/s up to 1 MiB, then 20 µs + bytes/200 GB/s.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let mut custom = "allreduce_dtype,num_gpus,message_size,latency,backend\n".to_owned();
        let mut nccl = "op_name,nccl_dtype,num_gpus,message_size,latency\n".to_owned();
        for power in 7..29 {
            let (elements, bytes) = (1u64 << power, 2.0 * f64::from(1 << power));
            let us = if bytes < 1_048_576.0 { 5.0 + bytes / 100e3 } else { 20.0 + bytes / 200e3 };
            let _ = writeln!(custom, "bfloat16,2,{elements},{},vllm_graph", us / 1e3);
            let _ = writeln!(custom, "bfloat16,2,{elements},1,vllm_eager");
            for (name, us) in [("all_gather", 9.0), ("reduce_scatter", 11.0), ("alltoall", 99.0)] {
                let _ = writeln!(nccl, "{name},half,4,{elements},{}", (us + bytes / 300e3) / 1e3);
                let _ = writeln!(nccl, "{name},int8,4,{elements},1");
            }
        }
        std::fs::write(folder.path().join("x__custom_allreduce_perf.csv"), custom).unwrap();
        std::fs::write(folder.path().join("x__nccl_perf.csv"), nccl).unwrap();
        folder
    }

    #[test]
    fn sizes_in_tables_are_elements() {
        let folder = folder();
        let groups = groups(folder.path(), "x").unwrap();
        let names: Vec<_> = groups.iter().map(|group| (group.name, group.gpus)).collect();
        assert_eq!(names, [("all_reduce", 2), ("gather", 4)]);
        let (bytes, us) = groups[0].points[0];
        assert!(bytes == 256.0 && (us - 5.0 - 256.0 / 100e3).abs() < 1e-9, "128 elements of two bytes: {bytes}, {us}");
        assert!((groups[1].points[0].1 - (10.0 + 256.0 / 300e3)).abs() < 1e-9, "mean of both directions");
    }

    #[test]
    fn lines_are_found_again() {
        let folder = folder();
        let groups = groups(folder.path(), "x").unwrap();
        let link = groups[0].fitted();
        assert!(groups[0].errors(&link).iter().all(|error| error.abs() < 1e-6));
        for bytes in [1e3, 1e6, 2e6, 1e8] {
            let expected = if bytes < 1_048_576.0 { 5.0 + bytes / 100e3 } else { 20.0 + bytes / 200e3 };
            assert!((link.us(bytes) / expected - 1.0).abs() < 1e-6, "{bytes}: {link:?}");
        }
        assert_eq!(link.segments[0].from_bytes, 0.0);
    }

    #[test]
    fn unknown_types_are_refused() {
        let folder = folder();
        let text = "allreduce_dtype,num_gpus,message_size,latency,backend\nfp3,2,128,0.1,vllm_graph\n";
        std::fs::write(folder.path().join("x__custom_allreduce_perf.csv"), text).unwrap();
        let error = groups(folder.path(), "x").unwrap_err().to_string();
        assert!(error.contains("unknown type of elements: `fp3`\nhint: known: int8, half"), "{error}");
    }
}
