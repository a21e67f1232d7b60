//! What `blis validate` and `blis fit` print as text.

use std::fmt::Write as _;

use blis_fit::breakdown::{LatencyBreakdown, LatencyPart};
use blis_fit::errors::{DistributionErrors, mean};
use blis_fit::kernels::{OperationErrors, TableErrors};
use blis_fit::validate::PrefixBounds;
use blis_fit::{DeploymentClass, Validated, ValidatedSteps};
use strum::VariantArray as _;

/// Two lines per run: its name and size, its errors. Then their mean.
pub(super) fn table(runs: &[Validated]) -> String {
    let mut text =
        String::from("Signed errors, %, simulated against measured; MAPE and r of E2E, request by request\n\n");
    text += &cells(&["E2E", "", "", "TTFT", "", "", "ITL", "", "queue", "", ""].map(str::to_owned));
    text +=
        &cells(&["mean", "p90", "p99", "mean", "p90", "p99", "mean", "p99", "mean", "MAPE", "r"].map(str::to_owned));
    for validated in runs {
        let Validated { run, split, errors, .. } = validated;
        let DistributionErrors { measured_ms, mean, p90, p99, .. } = errors.e2e;
        let itl = errors.itl.map_or(["-".into(), "-".into()], |itl| [signed(itl.mean), signed(itl.p99)]);
        let [itl_mean, itl_p99] = itl;
        let queue = errors.queue.and_then(|queue| queue.mean).map_or("-".into(), signed);
        let r = errors.e2e_pearson.map_or("-".into(), |r| format!("{r:.3}"));
        let count = errors.requests;
        let _ = writeln!(text, "{run}: {count} {split} requests, measured E2E {measured_ms:.1} ms");
        let ttft = errors.ttft;
        let [e2e, ttft] = [[mean, p90, p99], [ttft.mean, ttft.p90, ttft.p99]].map(|three| three.map(signed));
        let mape = errors.e2e_mape.map_or("-".into(), |mape| format!("{mape:.1}"));
        let ([a, b, c], [d, e, f]) = (e2e, ttft);
        text += &cells(&[a, b, c, d, e, f, itl_mean, itl_p99, queue, mape, r]);
        text += &diagnostics(validated);
    }
    let absolute: Vec<f64> = runs.iter().map(|run| run.errors.e2e.mean.abs()).collect();
    let worst = absolute.iter().copied().fold(0.0, f64::max);
    let _ = writeln!(text, "|mean E2E error|: mean {:.1} %, largest {worst:.1} %", mean(&absolute));
    text += &by_class(runs);
    for run in runs {
        let origin = run.notes.iter().filter(|note| note.starts_with("physics coefficients"));
        for note in origin.chain(&run.file_notes) {
            let _ = writeln!(text, "{}: {note}", run.run);
        }
    }
    text
}

/// Absolute errors of the mean E2E and TTFT by class of deployment, a line each; nothing if all runs are of one.
fn by_class(runs: &[Validated]) -> String {
    let mut text = String::new();
    for &class in DeploymentClass::VARIANTS {
        let here: Vec<&Validated> = runs.iter().filter(|run| run.class == class).collect();
        if here.is_empty() || here.len() == runs.len() {
            continue;
        }
        let e2e: Vec<f64> = here.iter().map(|run| run.errors.e2e.mean.abs()).collect();
        let ttft: Vec<f64> = here.iter().map(|run| run.errors.ttft.mean.abs()).collect();
        let worst = e2e.iter().copied().fold(0.0, f64::max);
        let _ = writeln!(
            text,
            "  {:<18} {:>2} runs: |mean E2E| {:.1} %, largest {worst:.1} %; |mean TTFT| {:.1} %",
            class.name(),
            here.len(),
            mean(&e2e),
            mean(&ttft)
        );
    }
    text
}

/// A line of eleven numbers.
fn cells(numbers: &[String; 11]) -> String {
    let padded: String = numbers.iter().map(|number| format!("{number:>7}")).collect();
    format!("{}\n", padded.trim_end())
}

fn signed(percent: f64) -> String {
    format!("{percent:+.1}")
}

/// The lines below the errors of a run: levels of load, parts of the latency, prefix caching, KV blocks.
fn diagnostics(run: &Validated) -> String {
    let mut text = String::new();
    for stage in run.stages.iter().filter(|_| run.stages.len() > 1) {
        let error = |error: Option<f64>| error.map_or("-".into(), signed);
        let ttft = error(stage.ttft.and_then(|ttft| ttft.mean));
        let (rate, count, e2e) = (stage.rate, stage.requests, error(stage.e2e.mean));
        let measured_ms = stage.e2e.measured_ms;
        let _ = writeln!(
            text,
            "    at {rate} requests/s: {count} requests, measured E2E {measured_ms:.1} ms, mean E2E {e2e}, mean TTFT {ttft}"
        );
    }
    let _ = writeln!(text, "    parts of E2E, %: {}", parts(&run.breakdown));
    if let Some(PrefixBounds { none_cached, all_cached }) = run.prefix_bounds {
        let bound = |what: &str, e2e: f64, ttft: f64| format!("{what} E2E {}, TTFT {}", signed(e2e), signed(ttft));
        let _ = writeln!(
            text,
            "    prefixes are not recorded: errors are of prompts without common blocks. {}; {}",
            bound("None cached:", none_cached.e2e, none_cached.ttft),
            bound("all cached:", all_cached.e2e, all_cached.ttft)
        );
    }
    text += &kv_blocks(run.kv_blocks_measured, run.kv_blocks_computed);
    let preemptions = run.preemptions;
    if let Some(measured) = preemptions.measured.filter(|&measured| measured > 0 || preemptions.simulated > 0) {
        let _ = writeln!(text, "    preemptions: {measured} measured, {} simulated", preemptions.simulated);
    }
    text
}

/// The shares of the end-to-end latency.
fn parts(breakdown: &LatencyBreakdown) -> String {
    let share = |part: LatencyPart| format!("{:.1}", 100.0 * part.share);
    let LatencyBreakdown { arrival, queue, preemption, steps, scheduling, first_token, output_tokens, kv_transfer } =
        *breakdown;
    format!(
        "arrival {}, queue {}, preemption {}, steps {} (scheduling {}), first token {}, output tokens {}, KV transfer {}",
        share(arrival),
        share(queue),
        share(preemption),
        share(steps),
        share(scheduling),
        share(first_token),
        share(output_tokens),
        share(kv_transfer)
    )
}

/// Measured and computed KV blocks, if both are known.
fn kv_blocks(measured: Option<u64>, computed: Option<u32>) -> String {
    let Some((measured, computed)) = measured.zip(computed) else { return String::new() };
    let error = 100.0 * (f64::from(computed) - measured as f64) / measured as f64;
    format!("    KV blocks: {measured} measured, {computed} computed ({} %)\n", signed(error))
}

/// A line per operation of each GPU.
pub(super) fn kernel_table(errors: &[OperationErrors]) -> String {
    let mut text = String::from(
        "Errors of the curves in hardware files on measured kernels, %; bias: median, positive where the curve is slower\n\n",
    );
    let line = |gpu: &str, operation: &str, numbers: [String; 4]| {
        let numbers: String = numbers.iter().map(|number| format!("{number:>9}")).collect();
        format!("{gpu:<20} {operation:<22}{numbers}\n")
    };
    text += &line("GPU", "operation", ["measured", "bias", "median", "p90"].map(str::to_owned));
    for OperationErrors { gpu, operation, errors: TableErrors { kernels, bias, median, p90 } } in errors {
        let numbers = [kernels.to_string(), signed(*bias), format!("{median:.1}"), format!("{p90:.1}")];
        text += &line(gpu, operation, numbers);
    }
    text
}

/// A line per run and batch composition.
pub(super) fn steps_table(runs: &[ValidatedSteps]) -> String {
    let mut text = String::from(
        "Predicted step times against the times between adjacent sampled steps, ms; errors, %: that of the mean is signed\n\n",
    );
    let _ = writeln!(
        text,
        "{:<15}{:>6}{:>10}{:>11}{:>8}{:>7}{:>8}{:>8}",
        "batch", "steps", "measured", "predicted", "mean", "MAPE", "median", "r"
    );
    for run in runs {
        let _ = writeln!(text, "{}: {} steps sampled", run.run, run.sampled);
        let compositions = run.by_composition.iter().map(|part| (part.composition.as_str(), &part.errors));
        for (name, errors) in compositions.chain([("all", &run.all)]) {
            let r = errors.pearson.map_or("-".into(), |r| format!("{r:.3}"));
            let _ = writeln!(
                text,
                "{name:<15}{:>6}{:>10.2}{:>11.2}{:>8}{:>7.1}{:>8.1}{r:>8}",
                errors.steps,
                errors.measured_ms,
                errors.simulated_ms,
                signed(errors.mean),
                errors.mape,
                errors.median_ape
            );
        }
        if let Some(ms) = run.recorded_duration_ms {
            let _ = writeln!(
                text,
                "    `step.duration_us` is not the time of a step: its mean is {ms:.2} ms, between steps pass {:.2} ms",
                run.all.measured_ms
            );
        }
        text += &kv_blocks(Some(run.kv_blocks_measured), run.kv_blocks_computed);
        for note in run.notes.iter().filter(|note| note.starts_with("physics coefficients")) {
            let _ = writeln!(text, "    {note}");
        }
    }
    text
}
