//! What the flags mean, what the help says, and what nonsense is told.

use std::num::NonZeroU32;

use blis_sim::instance::{Preemption, Scheduler};
use blis_sim::semantics::Semantics;
use blis_sim::units::Micros;

use super::args::{EngineName, TraceFormatName};
use super::config::{EngineConfig, SyntheticConfig, WorkloadConfig};
use super::*;
use crate::config::LatencyKind;
use crate::workload::distribution::{ArrivalProcess, DistributionSpec, LengthSpec};

/// The run that `blis <line>` asks for, or what the user reads instead.
fn parse(line: &str) -> Result<RunConfig, String> {
    let words = std::iter::once("blis").chain(line.split_whitespace());
    let cli = Cli::try_parse_from(words).map_err(|error| reworded(&error, line.split_whitespace().next()))?;
    let config = match cli.command {
        Some(Command::Run(args)) => RunConfig::from_run(*args),
        Some(Command::Replay(args)) => RunConfig::from_replay(*args),
        other => panic!("no simulation: {other:?}"),
    };
    config.map_err(|failure| failure.to_string())
}

fn run(flags: &str) -> RunConfig {
    parse(&format!("run --model m {flags}")).unwrap_or_else(|error| panic!("{flags}: {error}"))
}

fn refused(line: &str) -> String {
    match parse(line) {
        Ok(config) => panic!("`{line}` was accepted: {config:?}"),
        Err(error) => error,
    }
}

fn synthetic(config: RunConfig) -> SyntheticConfig {
    match config.workload {
        WorkloadConfig::Synthetic(workload) => workload,
        other => panic!("not generated: {other:?}"),
    }
}

#[test]
fn defaults_are_those_of_blis() {
    insta::assert_debug_snapshot!(run(""));
}

#[test]
fn names_of_blis_and_vllm_mean_the_same() {
    let table = [
        ("--gpu H100", "--hardware H100"),
        ("--tensor-parallel-size 2", "--tp 2"),
        ("--data-parallel-size 2", "--dp 2"),
        ("--num-gpu-blocks 100", "--total-kv-blocks 100"),
        ("--block-size 32", "--block-size-in-tokens 32"),
        ("--max-num-running-reqs 8", "--max-num-seqs 8"),
        ("--max-num-scheduled-tokens 512", "--max-num-batched-tokens 512"),
        ("--workload traces --workload-traces-filepath t.csv", "--workload-trace t.csv"),
        ("--max-prompts 7", "--num-requests 7"),
        ("--results-path r.json", "--metrics-path r.json"),
        ("--scheduling-policy priority", "--scheduler priority-fcfs --preemption-policy priority"),
        ("--scheduling-policy fcfs", ""),
        ("--enable-prefix-caching --enable-chunked-prefill", ""),
        ("--no-enable-prefix-caching --enable-prefix-caching", ""),
        ("--async-scheduling --no-async-scheduling", ""),
        ("--scheduler-reserve-full-isl --no-scheduler-reserve-full-isl", ""),
        ("--seed 1 --seed 2", "--seed 2"),
        ("--log fatal", "--log error"),
        ("--log warning", ""),
        ("--horizon 9223372036854775807", ""),
        ("--tp 0 --max-model-len 0", ""),
        ("--workload distribution --rate 1.0 --timeout 300", "--timeout 300"),
    ];
    for (one, other) in table {
        assert_eq!(format!("{:?}", run(one)), format!("{:?}", run(other)), "{one}");
    }
}

#[test]
fn engine_flags_arrive() {
    let flags = "--max-num-seqs 8 --max-num-batched-tokens 512 --long-prefill-token-threshold 128 --block-size 32 \
                 --no-enable-prefix-caching --no-enable-chunked-prefill --async-scheduling \
                 --scheduler-reserve-full-isl --scheduler sjf --preemption-policy priority --parity blis --engine plain";
    let expected = EngineConfig {
        max_num_seqs: 8,
        max_num_batched_tokens: 512,
        long_prefill_token_threshold: 128,
        block_size: 32,
        enable_prefix_caching: false,
        enable_chunked_prefill: false,
        async_scheduling: true,
        reserve_full_prompt: true,
        scheduler: Scheduler::Sjf,
        preemption: Preemption::Priority,
        semantics: Semantics::BLIS,
        engine: EngineName::Plain,
    };
    assert_eq!(run(flags).engine, expected);
    assert_eq!(run("--scheduler reverse-priority").engine.scheduler, Scheduler::ReversePriority);
}

#[test]
fn deployment_flags_arrive() {
    let flags = "--hardware L40S --tp 4 --dp 2 --enable-expert-parallel --moe-comm-backend naive --vllm-version v0.8.4 \
                 --latency-model blackbox --alpha-coeffs 1,2.5,3 --beta-coeffs 4,5,6 --total-kv-blocks 9 \
                 --max-model-len 4096 --gpu-memory-utilization 0.5 --model-config-folder conf --hardware-config hw.json";
    let deployment = run(flags).deployment;
    assert_eq!(deployment.latency_model, Some(LatencyKind::Blackbox));
    assert_eq!(deployment.alpha_coeffs.as_deref(), Some(&[1.0, 2.5, 3.0][..]));
    insta::assert_debug_snapshot!(deployment);
}

#[test]
fn workload_flags_arrive() {
    let flags = "--rate 2.5 --arrival-process poisson --num-requests 9 --prompt-tokens 10 --prompt-tokens-stdev 6 \
                 --prompt-tokens-min 5 --prompt-tokens-max 20 --output-tokens 30 --output-tokens-stdev 0 \
                 --output-tokens-min 25 --output-tokens-max 35 --prefix-tokens 64 --timeout 2.5 \
                 --seed 7 --horizon 99";
    let expected = DistributionSpec {
        rate: 2.5,
        arrival: ArrivalProcess::Poisson,
        num_requests: Some(9),
        prompt: LengthSpec { mean: 10.0, stdev: 6.0, min: 5, max: 20 },
        output: LengthSpec { mean: 30.0, stdev: 0.0, min: 25, max: 35 },
        prefix_tokens: 64,
        timeout: Some(Micros(2_500_000)),
        seed: 7,
        horizon: Micros(99),
    };
    assert_eq!(synthetic(run(flags)).spec, expected);
    assert_eq!(synthetic(run("--timeout -1")).spec.timeout, None);
    assert_eq!(synthetic(run("--num-requests 0 --horizon 5")).spec.num_requests, None);
    let summarization = synthetic(run("--workload summarization --rate 3"));
    let prompt = LengthSpec { mean: 4096.0, stdev: 500.0, min: 100, max: 8192 };
    assert_eq!(
        (summarization.name, summarization.spec.rate, summarization.spec.prompt),
        ("summarization", 3.0, prompt)
    );
}

#[test]
fn trace_flags_arrive() {
    let config = run("--workload-trace t.jsonl --trace-format mooncake --mooncake-block-size 16 --skip-bad-lines");
    let WorkloadConfig::Trace(trace) = config.workload else { panic!("not a trace") };
    assert_eq!((trace.format, trace.mooncake_block_size), (TraceFormatName::Mooncake, NonZeroU32::new(16)));
    assert!(trace.skip_bad_lines && trace.timeout.is_none(), "a trace has no deadline of its own");
}

#[test]
fn recorded_command_lines_are_understood() {
    let line = "replay --trace-header trace.yaml --trace-data trace.csv --log error --seed 1 \
                --model meta-llama/llama-3.1-8b-instruct --hardware H100 --tp 1 --total-kv-blocks 20000 --max-num-seqs 256 \
                --max-num-batched-tokens 2048 --horizon 100000000000 --latency-model trained-physics \
                --metrics-path metrics.json --results-path results.json";
    let config = parse(line).expect("valid");
    assert!(matches!(config.workload, WorkloadConfig::Recorded { .. }));
    assert_eq!(config.horizon, Micros(100_000_000_000));
    assert_eq!(config.output.results_path.as_deref(), Some("results.json".as_ref()));
}

#[test]
fn nonsense_is_explained() {
    let lines = [
        "run",
        "run --model m --tp -1",
        "run --model m --tp 4096",
        "run --model m --dp 0",
        "run --model m --seed -3",
        "run --model",
        "run --model m --no-such-flag --tp 2",
        "run --model m --max-num-seqs 0",
        "run --model m --max-num-batched-tokens 1.5",
        "run --model m --block-size-in-tokens 0",
        "run --model m --total-kv-blocks 0",
        "run --model m --gpu-memory-utilization 1.5",
        "run --model m --rate 0",
        "run --model m --rate NaN",
        "run --model m --horizon 0",
        "run --model m --timeout 0",
        "run --model m --alpha-coeffs 1,-2,3 --beta-coeffs 1,2,3",
        "run --model m --latency-model rooflin",
        "run --model m --scheduler lifo",
        "run --model m --scheduling-policy priority --scheduler sjf",
        "run --model m --max-num-seq 3",
        "run --model m --workload traces",
        "run --model m --workload chatbot --workload-trace t.csv",
        "run --model m --workload-trace t.csv --rate 5",
        "run --model m --workload-trace t.csv --trace-format azure --mooncake-block-size 16",
        "run --model m --trace-format azure",
        "run --model m --skip-bad-lines",
        "run --model m --workload chatbot --output-tokens 7",
        "run --model m --num-requests 0",
        "run --model m --prompt-tokens 9000",
        "run --model m --prompt-tokens-min 10 --prompt-tokens-max 9",
        "run --model m --output-tokens 5 --output-tokens-max 100",
        "run --model m --metrics-path missing/out.json",
        "run --model m --metrics-path .",
        "replay --model m --trace-header h",
        "replay --model m --trace-header h --trace-data d --metrics-path x --results-path x",
        "replay --model m --trace-header h --trace-data d --rate 1",
        "simulate",
    ];
    let told: Vec<_> = lines.iter().map(|line| format!("$ blis {line}\n{}\n", refused(line))).collect();
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn help() {
    let mut command = Cli::command().term_width(100);
    command.build();
    insta::assert_snapshot!("help", command.render_long_help());
    for name in ["run", "replay"] {
        let subcommand = command.find_subcommand_mut(name).expect(name);
        insta::assert_snapshot!(format!("help_{name}"), subcommand.render_long_help());
        insta::assert_snapshot!(format!("short_help_{name}"), subcommand.render_help());
    }
}

#[test]
fn clap_finds_no_contradiction_in_the_flags() {
    Cli::command().debug_assert();
}

#[test]
fn nothing_goes_to_a_reader_that_left() {
    let failure = Failure::output(&io::ErrorKind::BrokenPipe.into());
    assert!(failure.is_quiet());
    assert_eq!(format!("{:?}", failure.exit_code()), format!("{:?}", ExitCode::SUCCESS));
}
