//! Runs of which only figures of the whole run are known: `aggregates.csv`, a line per run, and `prompt_lengths.csv`
//! beside it, a column of prompt lengths per workload.
//!
//! The arrivals are drawn anew: Poisson with the rate of each stage, prompts in turn, as the load generator sent them.
//! Every request carries the measured means as its latencies, those of its stage where they are known.

use std::collections::BTreeMap;
use std::path::Path;

use blis_diag::Diagnostic;
use blis_sim::request::Content;
use blis_sim::rng::Stream;
use rand::RngExt as _;
use serde::Deserialize;

use super::catalogue::{CatalogueDeployment, catalogue_deployment, expert_parallel, parse_stages};
use super::runs::{FitError, MeasuredRequest, MeasuredRun, RunOptions, RunPercentiles, RunSplit, RunStage, read, rows};

/// A line of `aggregates.csv`.
#[derive(Deserialize)]
struct AggregateEntry {
    run: String,
    model: String,
    gpu: String,
    tp: u32,
    max_num_seqs: u32,
    max_num_batched_tokens: u32,
    dp: Option<u32>,
    ep: Option<String>,
    gpu_memory_utilization: Option<f64>,
    kv_blocks: Option<u64>,
    workload: String,
    stages_rate_x_seconds: String,
    distinct_prompts: u32,
    shared_system_prompt_tokens: u32,
    output_tokens: u32,
    e2e_mean_ms: f64,
    e2e_p90_ms: f64,
    e2e_p99_ms: f64,
    ttft_mean_ms: f64,
    ttft_p90_ms: f64,
    ttft_p99_ms: f64,
    stage0_e2e_mean_ms: Option<f64>,
    stage1_e2e_mean_ms: Option<f64>,
}

/// The runs of the `aggregates.csv` at `path`.
///
/// # Errors
/// If it or `prompt_lengths.csv` beside it cannot be read or is invalid.
pub(super) fn load_aggregates(path: &Path, options: &RunOptions) -> Result<Vec<MeasuredRun>, FitError> {
    let (text, sha256) = read(path)?;
    let lengths = prompt_lengths(&path.with_file_name("prompt_lengths.csv"))?;
    let mut runs = Vec::new();
    for (entry, line) in rows::<AggregateEntry>(path, &text)?.into_iter().zip(2..) {
        let wrong = |what: String, hint: &str| FitError::file(path, Some(line), Diagnostic::new(what).hint(hint));
        // A `-lite` workload has the prompts of the workload at lower rates.
        let workload = entry.workload.trim_end_matches("-lite");
        let lengths = lengths.get(workload).ok_or_else(|| {
            wrong(format!("no prompt lengths of `{workload}`"), "add a column of that name to prompt_lengths.csv")
        })?;
        let at = |mistake: Diagnostic| FitError::file(path, Some(line), mistake);
        let stages = parse_stages(Some(&entry.stages_rate_x_seconds)).map_err(at)?;
        let ep = expert_parallel(entry.ep.as_deref()).map_err(at)?;
        if stages.is_empty() {
            return Err(wrong("a run without stages".into(), "write requests per second x seconds: `8x600+20x600`"));
        }
        runs.push(MeasuredRun {
            workload: workload.to_owned(),
            engine: options.engine.unwrap_or(super::runs::MEASURED_ENGINE),
            max_num_seqs: options.max_num_seqs.unwrap_or(entry.max_num_seqs),
            max_num_batched_tokens: options.max_num_batched_tokens.unwrap_or(entry.max_num_batched_tokens),
            prefix_caching: entry.distinct_prompts > 0,
            shared_prefix_tokens: entry.shared_system_prompt_tokens,
            cut_off: false,
            requests: requests(&entry, &stages, lengths),
            sha256: sha256.clone(),
            percentiles: Some(RunPercentiles {
                e2e_ms: [entry.e2e_p90_ms, entry.e2e_p99_ms],
                ttft_ms: [entry.ttft_p90_ms, entry.ttft_p99_ms],
            }),
            stages,
            prefixes_known: true,
            parity: options.parity,
            notes: Vec::new(),
            deployment: blis_config::DeploymentArgs {
                max_model_len: options.max_model_len.or(Some(4096)),
                ..catalogue_deployment(
                    options,
                    CatalogueDeployment {
                        model: entry.model,
                        gpu: entry.gpu,
                        tp: entry.tp,
                        dp: entry.dp,
                        ep,
                        gpu_memory_utilization: entry.gpu_memory_utilization,
                        kv_blocks: entry.kv_blocks,
                    },
                )
            },
            name: entry.run,
        });
    }
    Ok(runs)
}

/// The columns of `prompt_lengths.csv`, tokens, by workload.
fn prompt_lengths(path: &Path) -> Result<BTreeMap<String, Vec<u32>>, FitError> {
    let (text, _) = read(path)?;
    let mut columns: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for row in rows::<BTreeMap<String, u32>>(path, &text)? {
        for (workload, tokens) in row {
            columns.entry(workload).or_default().push(tokens);
        }
    }
    Ok(columns)
}

/// Poisson arrivals stage by stage: the same for every run with the same stages, so that runs differ by their server.
fn requests(entry: &AggregateEntry, stages: &[RunStage], lengths: &[u32]) -> Vec<MeasuredRequest> {
    let mut draws = Stream::new(0, "aggregates").at(0);
    let mut requests = Vec::new();
    let mut start_s = 0.0;
    for (&RunStage { rate, seconds }, stage) in stages.iter().zip(0..) {
        let known = if stage == 0 { entry.stage0_e2e_mean_ms } else { entry.stage1_e2e_mean_ms };
        let e2e_ms = known.filter(|_| stage < 2 && stages.len() <= 2).unwrap_or(entry.e2e_mean_ms);
        let mut at_s = start_s;
        loop {
            at_s -= (1.0 - draws.random::<f64>()).ln() / rate;
            if at_s >= start_s + seconds {
                break;
            }
            let prompt = requests.len() as u32 % entry.distinct_prompts.max(1);
            requests.push(MeasuredRequest {
                arrival_us: (at_s * 1e6) as u64,
                input_tokens: lengths[prompt as usize % lengths.len()],
                output_tokens: entry.output_tokens,
                ttft_us: entry.ttft_mean_ms * 1e3,
                e2e_us: e2e_ms * 1e3,
                queue_us: None,
                split: RunSplit::Train,
                prompt: (entry.distinct_prompts > 0).then_some(prompt),
                content: Content::UNIQUE,
                preemptions: None,
            });
        }
        start_s += seconds;
    }
    requests
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_rate_and_the_means_of_their_stage() {
        let line = "run,model,gpu,tp,max_num_seqs,max_num_batched_tokens,gpu_memory_utilization,kv_blocks,workload,\
                    stages_rate_x_seconds,distinct_prompts,shared_system_prompt_tokens,output_tokens,e2e_mean_ms,\
                    e2e_p90_ms,e2e_p99_ms,ttft_mean_ms,ttft_p90_ms,ttft_p99_ms,stage0_e2e_mean_ms,stage1_e2e_mean_ms\n\
                    a,m,H100,1,128,2048,,,general,5x600+20x600,2,100,248,2000,2100,2200,30,40,50,1500,2125\n";
        let entry = rows::<AggregateEntry>(Path::new("a.csv"), line.as_bytes()).unwrap().remove(0);
        let stages = [5.0, 20.0].map(|rate| RunStage { rate, seconds: 600.0 });
        let requests = requests(&entry, &stages, &[500, 600, 700]);
        let first = requests.iter().filter(|request| request.arrival_us < 600_000_000).count();
        assert!((2700..3300).contains(&first), "{first} of 3000");
        assert!((requests.len() - first).abs_diff(12_000) < 500);
        assert_eq!((requests[0].e2e_us, requests[first].e2e_us), (1_500_000.0, 2_125_000.0));
        assert_eq!((requests[1].input_tokens, requests[2].input_tokens), (600, 500), "two distinct prompts in turn");
    }
}
