//! Curves of a GPU's kernels, fitted to tables of measured ones, and the errors of the curves in its file.

mod curve;
mod links;
mod tables;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use blis_sim::latency::Kernels;
use blis_sim::latency::physics::{GroupLink, LinkSegment};
use blis_sim::model::Gpu;
use serde::Serialize;

use self::curve::{deviation, fitted};
use self::links::{GroupTable, groups};
use self::tables::{EXPERTS, EXPERTS_4BIT_WEIGHTS, KernelTable, files, name, tables};
use super::runs::FitError;
use blis_diag::Diagnostic;

/// What a folder of tables says about a GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct FittedKernels {
    /// The curves of single kernels.
    pub curves: Vec<FittedCurve>,
    /// The collectives, with their name and their errors.
    pub groups: Vec<(&'static str, GroupLink, TableErrors)>,
}

/// The parameters of a curve, and the errors of the fit.
#[derive(Clone, Debug, PartialEq)]
pub struct FittedCurve {
    /// Name of the curve in hardware files.
    pub name: &'static str,
    /// The largest number of rows that it is for, where there are several.
    pub up_to_rows: Option<f64>,
    /// Name and value of each parameter.
    pub values: Vec<(&'static str, f64)>,
    /// Errors on the table.
    pub errors: TableErrors,
}

/// Errors of a curve on its table.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TableErrors {
    /// Measured kernels. Unit: kernels, 1 or more.
    pub kernels: usize,
    /// Median of the signed error, positive where the curve is slower. Unit: %.
    pub bias: f64,
    /// Median of the absolute error. Unit: %.
    pub median: f64,
    /// 90th percentile of the absolute error. Unit: %.
    pub p90: f64,
}

/// Errors of a curve in the file of a GPU on measured kernels.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OperationErrors {
    /// Name of the GPU.
    pub gpu: String,
    /// Name of the curve; collectives with the number of GPUs.
    pub operation: String,
    /// Errors on the table.
    #[serde(flatten)]
    pub errors: TableErrors,
}

impl TableErrors {
    /// Of signed errors, %. All are 0 without any.
    fn from_errors(mut errors: Vec<f64>) -> Self {
        let kernels = errors.len();
        let at = |sorted: &[f64], share: f64| {
            let index = (kernels.saturating_sub(1) as f64 * share) as usize;
            sorted.get(index).copied().unwrap_or(0.0)
        };
        errors.sort_by(f64::total_cmp);
        let bias = at(&errors, 0.5);
        errors.iter_mut().for_each(|error| *error = error.abs());
        errors.sort_by(f64::total_cmp);
        Self { kernels, bias, median: at(&errors, 0.5), p90: at(&errors, 0.9) }
    }
}

impl KernelTable {
    /// Signed errors of a curve with parameters `x`, %.
    fn errors(&self, x: &[f64]) -> Vec<f64> {
        self.points.iter().map(|point| 100.0 * deviation(self.us, x, point)).collect()
    }
}

/// Fits every curve for which `folder` has a file with a name that starts with `prefix`.
///
/// # Errors
/// If a file cannot be read or is invalid, or there is none.
pub fn fit_kernels(folder: &Path, prefix: &str, gpu: &Gpu) -> Result<FittedKernels, FitError> {
    let mut tables = tables(folder, prefix, gpu)?;
    // The last range of rows first: the others take its peak.
    tables.reverse();
    let mut curves: Vec<FittedCurve> = Vec::new();
    for mut table in tables {
        let last = curves.iter().find(|curve| curve.name == table.name && curve.up_to_rows.is_some());
        if let Some(last) = last {
            table.start[FLOPS] = last.values[FLOPS].1;
        }
        // Read before the table of `experts`, fitted after it.
        if table.name == EXPERTS_4BIT_WEIGHTS
            && let Some(experts) = curves.iter().find(|curve| curve.name == EXPERTS)
        {
            table.start[ACTIVATIONS] = experts.values[ACTIVATIONS].1;
        }
        curves.push(fitted_curve(&table));
    }
    curves.reverse();
    let link = |table: &GroupTable| {
        let link = table.fitted();
        let errors = TableErrors::from_errors(table.errors(&link));
        (table.name, link, errors)
    };
    let groups: Vec<_> = groups(folder, prefix)?.iter().map(link).collect();
    if curves.is_empty() && groups.is_empty() {
        return Err(no_table(folder, prefix));
    }
    Ok(FittedKernels { curves, groups })
}

/// Index of the share of the arithmetic peak among the parameters of products.
const FLOPS: usize = 2;

/// Index of the passes over inputs and outputs among the parameters of experts.
const ACTIVATIONS: usize = 3;

fn fitted_curve(table: &KernelTable) -> FittedCurve {
    let values = fitted(table);
    FittedCurve {
        name: table.name,
        up_to_rows: table.rows.map(|range| range.up_to),
        errors: TableErrors::from_errors(table.errors(&values)),
        values: table.names.iter().copied().zip(values).collect(),
    }
}

fn no_table(folder: &Path, prefix: &str) -> FitError {
    let mistake = Diagnostic::new(format!("no table of kernels whose name starts with `{prefix}`"))
        .hint("their names have the form `h100_sxm__gemm__vllm__0.14.0__gemm_perf.csv.gz`");
    FitError::file(folder, None, mistake)
}

/// The GPUs that `folder` has tables of: what their names start with, up to two underscores.
///
/// # Errors
/// If the folder cannot be read or has no table.
pub fn table_prefixes(folder: &Path) -> Result<BTreeSet<String>, FitError> {
    let files = files(folder, "")?;
    let prefix = |file: &std::path::PathBuf| Some(name(file).split_once("__")?.0.to_owned());
    let prefixes: BTreeSet<String> = files.iter().filter_map(prefix).collect();
    if prefixes.is_empty() { Err(no_table(folder, "<gpu>__")) } else { Ok(prefixes) }
}

/// Compares the curves of `kernels`, as they stand in the file of a GPU called `name`, with the tables of `folder` whose names start
/// with `prefix`. The links are compared if they are this GPU's own.
///
/// # Errors
/// If a file cannot be read or is invalid.
pub fn kernel_errors(
    folder: &Path,
    prefix: &str,
    name: &str,
    gpu: &Gpu,
    kernels: &Kernels,
) -> Result<Vec<OperationErrors>, FitError> {
    let mut by_operation: Vec<(String, Vec<f64>)> = Vec::new();
    for table in tables(folder, prefix, gpu)? {
        let Some(values) = table.values_of(kernels) else { continue };
        let errors = table.errors(&values);
        match by_operation.last_mut().filter(|(operation, _)| operation == table.name) {
            Some((_, all)) => all.extend(errors),
            None => by_operation.push((table.name.to_owned(), errors)),
        }
    }
    for table in groups(folder, prefix)? {
        let groups = if table.name == "gather" { &kernels.links.gather } else { &kernels.links.all_reduce };
        if let Some(link) = groups.iter().find(|group| group.gpus == table.gpus) {
            by_operation.push((format!("{}, {} GPUs", table.name, table.gpus), table.errors(link)));
        }
    }
    let errors =
        |(operation, errors)| OperationErrors { gpu: name.into(), operation, errors: TableErrors::from_errors(errors) };
    Ok(by_operation.into_iter().map(errors).collect())
}

/// The curves in the form of a hardware file, each with its error.
#[must_use]
pub fn yaml(fitted: &FittedKernels) -> String {
    let mut text = String::from("kernels:\n");
    let mut list = "";
    for FittedCurve { name, up_to_rows, values, errors } in &fitted.curves {
        let rows = up_to_rows.filter(|rows| rows.is_finite()).map(|rows| format!("up_to_rows: {rows}"));
        let values = values.iter().map(|(key, value)| format!("{key}: {value:.4}"));
        let values: Vec<String> = rows.into_iter().chain(values).collect();
        let (values, errors) = (values.join(", "), described(errors));
        if up_to_rows.is_none() {
            let _ = writeln!(text, "  {name}: {{ {values} }} # {errors}");
            continue;
        }
        if list != *name {
            let _ = writeln!(text, "  {name}:");
            list = name;
        }
        let _ = writeln!(text, "  - {{ {values} }} # {errors}");
    }
    if !fitted.groups.is_empty() {
        text.push_str("links:\n");
    }
    let mut list = "";
    for (name, GroupLink { gpus, segments }, errors) in &fitted.groups {
        if list != *name {
            let _ = writeln!(text, "  {name}:");
            list = name;
        }
        let _ = writeln!(text, "  - gpus: {gpus} # {}\n    segments:", described(errors));
        for LinkSegment { from_bytes, launch_us, gb_s } in segments {
            let _ = writeln!(text, "    - {{ from_bytes: {from_bytes}, launch_us: {launch_us:.3}, gb_s: {gb_s:.2} }}");
        }
    }
    text
}

fn described(TableErrors { kernels, median, p90, .. }: &TableErrors) -> String {
    format!("{kernels} measured, |error| median {median:.1} %, p90 {p90:.1} %")
}

#[cfg(test)]
mod tests {
    use super::tables::{GemmRow, gemm, slower};
    use super::*;

    #[test]
    fn a_curve_is_found_again() {
        let gpu = Gpu {
            tflops_fp16: 1000.0,
            tflops_fp8: 0.0,
            tflops_fp32: 0.0,
            tflops_fp4: 0.0,
            hbm_tb_s: 3.0,
            l2_mb: 50.0,
            memory_gib: 80.0,
            mfu: None,
        };
        let shape = |(m, n): (f64, f64)| {
            let (memory, arithmetic) = ((2.0 * n * 4096.0 + 2.0 * m * (n + 4096.0)) / 3e6, 2.0 * m * n * 4096.0 / 1e9);
            let us = 5.0 + slower(memory / 0.85, arithmetic / 0.7);
            GemmRow { gemm_dtype: "bfloat16".into(), m, n, k: 4096.0, latency: us / 1e3 }
        };
        let sizes = [1.0, 16.0, 128.0, 1024.0, 8192.0];
        let mut rows: Vec<GemmRow> =
            sizes.into_iter().flat_map(|m| [2048.0, 8192.0, 16_384.0].map(|n| shape((m, n)))).collect();
        rows[0].latency *= 10.0; // one shape for which the library selected a slow kernel
        let curve = fitted_curve(&gemm(&rows, &gpu));
        // The slow kernel is one of the small shapes, which determine the launch time.
        for ((name, value), (expected, within)) in curve.values.iter().zip([(5.0, 0.2), (0.85, 0.05), (0.7, 0.05)]) {
            assert!((value / expected - 1.0).abs() < within, "{name}: {value}");
        }
        assert!(curve.errors.median < 1.0);
    }

    #[test]
    fn errors_are_signed_in_the_middle_and_absolute_elsewhere() {
        let errors = TableErrors::from_errors(vec![3.0, -10.0, -4.0, 1.0, -2.0]);
        // Sorted −10 −4 −2 1 3; absolute 1 2 3 4 10: the 90th percentile is the element at 0.9 × 4 = 3.6, rounded down.
        assert_eq!(errors, TableErrors { kernels: 5, bias: -2.0, median: 3.0, p90: 4.0 });
        assert_eq!(TableErrors::from_errors(Vec::new()), TableErrors { kernels: 0, bias: 0.0, median: 0.0, p90: 0.0 });
    }
}
