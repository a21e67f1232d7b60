//! What `blis validate` and `blis fit` print for pages: the tables of docs/fidelity.md.

use std::collections::BTreeSet;

use blis_fit::breakdown::LatencyBreakdown;
use blis_fit::errors::mean;
use blis_fit::kernels::OperationErrors;
use blis_fit::steps::StepErrors;
use blis_fit::{DeploymentClass, Validated, ValidatedSteps};

/// Three tables of measured runs: errors, errors by class of deployment (if there are several), parts of the latency.
pub(super) fn run_page(runs: &[Validated]) -> String {
    let classes: BTreeSet<DeploymentClass> = runs.iter().map(|run| run.class).collect();
    let by_class = if classes.len() > 1 { format!("{}\n", class_table(runs, &classes)) } else { String::new() };
    format!("{}\n{by_class}{}", error_table(runs), part_table(runs))
}

/// A column of errors, %.
struct ErrorColumn {
    title: &'static str,
    error: fn(&Validated) -> Option<f64>,
    written: fn(f64) -> String,
}

impl ErrorColumn {
    const fn signed(title: &'static str, error: fn(&Validated) -> Option<f64>) -> Self {
        Self { title, error, written: signed }
    }

    fn cell(&self, run: &Validated) -> String {
        (self.error)(run).map_or(String::new(), self.written)
    }
}

/// The columns of errors; those that no run has are left out.
static ERRORS: [ErrorColumn; 7] = [
    ErrorColumn::signed("mean E2E", |run| Some(run.errors.e2e.mean)),
    ErrorColumn::signed("p99 E2E", |run| Some(run.errors.e2e.p99)),
    ErrorColumn::signed("mean TTFT", |run| Some(run.errors.ttft.mean)),
    ErrorColumn::signed("mean ITL", |run| run.errors.itl.map(|itl| itl.mean)),
    ErrorColumn::signed("mean queue", |run| run.errors.queue.and_then(|queue| queue.mean)),
    ErrorColumn { title: "MAPE", error: |run| run.errors.e2e_mape, written: unsigned },
    ErrorColumn::signed("KV blocks", kv_block_error),
];

/// Error of the computed number of KV blocks, %, if the server reported its number.
fn kv_block_error(run: &Validated) -> Option<f64> {
    let (measured, computed) = run.kv_blocks_measured.zip(run.kv_blocks_computed)?;
    Some(100.0 * (f64::from(computed) / measured as f64 - 1.0))
}

/// Signed errors, a line per run, and the means of their absolute values.
fn error_table(runs: &[Validated]) -> String {
    let columns: Vec<&ErrorColumn> =
        ERRORS.iter().filter(|column| runs.iter().any(|run| (column.error)(run).is_some())).collect();
    let mut table = MarkdownTable::new(["run", "model", "GPUs"], columns.iter().map(|column| column.title));
    for run in runs {
        let gpus = format!("{} TP{}", run.hardware, run.tensor_parallel_size);
        table.row([run.run.clone(), run.model.clone(), gpus], columns.iter().map(|column| column.cell(run)));
    }
    let absolute = columns.iter().map(|column| {
        let errors: Vec<f64> = runs.iter().filter_map(column.error).map(f64::abs).collect();
        unsigned(mean(&errors))
    });
    table.row(["**mean of the absolute values**".to_owned(), String::new(), String::new()], absolute);
    table.text
}

/// Means of absolute errors, a line per class.
fn class_table(runs: &[Validated], classes: &BTreeSet<DeploymentClass>) -> String {
    let mut table = MarkdownTable::new(["class"], ["runs", "mean E2E", "largest", "mean TTFT"]);
    for &class in classes {
        let here: Vec<&Validated> = runs.iter().filter(|run| run.class == class).collect();
        let e2e: Vec<f64> = here.iter().map(|run| run.errors.e2e.mean.abs()).collect();
        let ttft: Vec<f64> = here.iter().map(|run| run.errors.ttft.mean.abs()).collect();
        let largest = e2e.iter().copied().fold(0.0, f64::max);
        let errors = [mean(&e2e), largest, mean(&ttft)].map(unsigned);
        table.row([described(class).to_owned()], std::iter::once(here.len().to_string()).chain(errors));
    }
    table.text
}

fn described(class: DeploymentClass) -> &'static str {
    match class {
        DeploymentClass::ExactDeployment => "exact deployment: coefficients of this model, GPU and number of GPUs",
        DeploymentClass::SameArchitecture => "dense, 16 bits, H100, as most that were fitted to",
        DeploymentClass::Moe => "mixture of experts, 16 bits, H100",
        DeploymentClass::Quantized => "8 bits or fewer, H100",
        DeploymentClass::OtherGpu => "another GPU than H100",
    }
}

/// The parts of the simulated E2E, a line per run.
fn part_table(runs: &[Validated]) -> String {
    let parts = ["arrival", "queue", "preemption", "steps", "of which scheduling", "first token"];
    let mut table = MarkdownTable::new(["parts of the simulated E2E, %"], parts);
    for run in runs {
        let LatencyBreakdown { arrival, queue, preemption, steps, scheduling, first_token, .. } = run.breakdown;
        let parts = [arrival, queue, preemption, steps, scheduling, first_token];
        table.row([run.run.clone()], parts.map(|part| unsigned(100.0 * part.share)));
    }
    table.text
}

/// Operations in the order of the table, and their names there. Collectives follow by name.
const OPERATIONS: [(&str, &str); 10] = [
    ("gemm", "matrix products, 16 bits"),
    ("gemm_8bit", "matrix products, 8 bits"),
    ("gemm_4bit", "matrix products, NVFP4"),
    ("experts", "experts, 16 bits"),
    ("experts_8bit", "experts, 8 bits"),
    ("experts_4bit", "experts, NVFP4"),
    ("experts_4bit_weights", "experts, MXFP4 weights"),
    ("attention of decodes", "attention of decodes"),
    ("attention of decodes, 8-bit cache", "attention of decodes, 8-bit cache"),
    ("attention of prompts", "attention of prompts"),
];

/// Median absolute errors of the curves, and in parentheses the medians of the signed ones: operations by GPU.
pub(super) fn kernel_page(errors: &[OperationErrors]) -> String {
    let mut gpus: Vec<&str> = Vec::new();
    for error in errors {
        if !gpus.contains(&error.gpu.as_str()) {
            gpus.push(&error.gpu);
        }
    }
    let order = |operation: &str| OPERATIONS.iter().position(|(name, _)| *name == operation);
    let mut operations: Vec<&str> = errors.iter().map(|error| error.operation.as_str()).collect();
    operations.sort_by_key(|operation| (order(operation).unwrap_or(OPERATIONS.len()), *operation));
    operations.dedup();
    let mut table = MarkdownTable::new(["operation"], gpus.iter().copied());
    for operation in operations {
        let name = order(operation).map_or(operation.replace('_', "-"), |at| OPERATIONS[at].1.to_owned());
        let cell = |gpu: &&str| {
            let found = errors.iter().find(|error| error.gpu == **gpu && error.operation == operation);
            found.map_or(String::new(), |found| format!("{:.1} ({})", found.errors.median, signed(found.errors.bias)))
        };
        table.row([name], gpus.iter().map(cell));
    }
    table.text
}

/// A line per run and composition of the batch.
pub(super) fn step_page(runs: &[ValidatedSteps]) -> String {
    const COLUMNS: [&str; 8] =
        ["steps", "measured, ms", "predicted, ms", "mean", "MAPE", "median", "r", "`step.duration_us`, ms"];
    let mut table = MarkdownTable::new(["run", "batch"], COLUMNS);
    for run in runs {
        for part in &run.by_composition {
            let batch = part.composition.replace('-', "–");
            table.row([run.run.clone(), batch], step_cells(&part.errors, None));
        }
        table.row([run.run.clone(), "all".to_owned()], step_cells(&run.all, run.recorded_duration_ms));
    }
    table.text
}

fn step_cells(errors: &StepErrors, recorded_ms: Option<f64>) -> [String; 8] {
    [
        errors.steps.to_string(),
        format!("{:.2}", errors.measured_ms),
        format!("{:.2}", errors.simulated_ms),
        signed(errors.mean),
        unsigned(errors.mape),
        unsigned(errors.median_ape),
        errors.pearson.map_or(String::new(), |r| minus(&format!("{r:.2}"))),
        recorded_ms.map_or(String::new(), |ms| format!("{ms:.2}")),
    ]
}

/// A table under construction: columns of text on the left, of numbers on the right.
struct MarkdownTable {
    text: String,
}

impl MarkdownTable {
    fn new<'a>(texts: impl IntoIterator<Item = &'a str>, numbers: impl IntoIterator<Item = &'a str>) -> Self {
        let (texts, numbers): (Vec<&str>, Vec<&str>) = (texts.into_iter().collect(), numbers.into_iter().collect());
        let rule = format!("|{}{}\n", "---|".repeat(texts.len()), "---:|".repeat(numbers.len()));
        let mut table = Self { text: String::new() };
        table.row(texts.into_iter().map(str::to_owned), numbers.into_iter().map(str::to_owned));
        table.text.push_str(&rule);
        table
    }

    fn row(&mut self, texts: impl IntoIterator<Item = String>, numbers: impl IntoIterator<Item = String>) {
        for cell in texts.into_iter().chain(numbers) {
            self.text.push_str("| ");
            self.text.push_str(&cell);
            self.text.push_str(if cell.is_empty() { "" } else { " " });
        }
        self.text.push_str("|\n");
    }
}

/// A number with its sign: `+1.2`, `−1.2`.
fn signed(percent: f64) -> String {
    minus(&format!("{percent:+.1}"))
}

/// A number without a sign: `1.2`.
fn unsigned(percent: f64) -> String {
    format!("{percent:.1}")
}

/// The same number with a minus sign instead of a hyphen.
fn minus(number: &str) -> String {
    number.replace('-', "−")
}
