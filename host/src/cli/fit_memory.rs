//! `blis fit-memory`: logs of the starts of real servers.

use std::path::PathBuf;

use blis_eval::error::RunError;
use blis_eval::spec::parse;
use blis_fit::memory::{MemoryOfLogs, StartOptions, measured_memory, memory_page, memory_table};
use blis_sim::engine_version::EngineVersion;
use clap::Args;

use super::output::{TableForm, print_table};

#[derive(Debug, Args)]
pub(super) struct FitMemoryArgs {
    /// Logs of vLLM servers, from their start on
    #[arg(value_name = "LOG", required = true)]
    logs: Vec<PathBuf>,
    /// Model, where a log does not name it
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// GPU of the servers [default: H100]
    #[arg(long, alias = "gpu", value_name = "NAME")]
    hardware: Option<String>,
    /// Version of vLLM, where a log does not say it, 0.10 to 0.33
    #[arg(long, value_name = "VERSION")]
    engine_version: Option<EngineVersion>,
    /// Maximum batch size of the servers, where a log does not say it [default: vLLM's on that GPU]
    #[arg(long, value_name = "N", value_parser = parse::count)]
    max_num_seqs: Option<u32>,
    /// Maximum tokens of a step, where a log does not say it [default: vLLM's on that GPU]
    #[arg(long, value_name = "N", value_parser = parse::count)]
    max_num_batched_tokens: Option<u32>,
    /// Folder with `config.json` or `<model>/config.json` [default: built in]
    #[arg(long, value_name = "DIR")]
    model_config_folder: Option<PathBuf>,
    /// Descriptions of GPUs: a file (YAML or JSON) or a folder of them [default: built in]
    #[arg(long, value_name = "PATH")]
    hardware_config: Option<PathBuf>,
    /// Form of the output; auto is text on a terminal, JSON elsewhere
    #[arg(long, value_enum, value_name = "FORM", default_value_t = TableForm::Auto)]
    output: TableForm,
}

pub(super) fn run(args: &FitMemoryArgs) -> Result<(), RunError> {
    let options = StartOptions {
        model: args.model.clone(),
        hardware: args.hardware.clone(),
        engine_version: args.engine_version,
        max_num_seqs: args.max_num_seqs,
        max_num_batched_tokens: args.max_num_batched_tokens,
        model_config_folder: args.model_config_folder.clone(),
        hardware_config: args.hardware_config.clone(),
    };
    let read = args.logs.iter().map(|log| measured_memory(log, &options));
    let memory: MemoryOfLogs = read.collect::<Result<_, _>>().map_err(RunError::refused)?;
    print_table(args.output, &memory, || memory_table(&memory), || memory_page(&memory))
}
