//! `blis import`, `blis export`: settings of other programs.

use std::path::PathBuf;

use blis_config::policy::Bundle;
use blis_config::policy::llm_d::{self, EndpointPicker, Imported};
use blis_diag::Diagnostic;
use blis_eval::error::RunError;
use blis_plugin::Limits;
use blis_plugin::export::{self, ExportedScript};
use clap::{Args, Subcommand};

use super::export_keda::{ExportKedaArgs, export_keda};
use super::export_plugin::{ExportPluginArgs, export_plugin};
use super::exported_file::{check_output, parameter, write};
use super::output::print_note;

/// `blis import`.
#[derive(Debug, Args)]
pub(super) struct ImportArgs {
    #[command(subcommand)]
    command: ImportCommand,
}

#[derive(Debug, Subcommand)]
enum ImportCommand {
    /// Make a policy bundle of the configuration of llm-d's endpoint picker (EndpointPickerConfig)
    LlmD(ImportLlmDArgs),
}

#[derive(Debug, Args)]
struct ImportLlmDArgs {
    /// EndpointPickerConfig (YAML)
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// File for the bundle [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Fail if a plugin, a parameter or a section has no counterpart
    #[arg(long)]
    strict: bool,
}

/// `blis export`.
#[derive(Debug, Args)]
pub(super) struct ExportArgs {
    #[command(subcommand)]
    command: ExportCommand,
}

#[derive(Debug, Subcommand)]
enum ExportCommand {
    /// Make a configuration of llm-d's endpoint picker (EndpointPickerConfig) of a policy bundle
    LlmD(ExportLlmDArgs),
    /// Make a cache policy for vLLM's CPU tier (a Python class for `cache_policy_module_path`) of a script
    VllmCachePolicy(ExportCachePolicyArgs),
    /// Make a ScaledObject for KEDA of a scaling policy: a query of Prometheus for each signal, and a formula
    Keda(Box<ExportKedaArgs>),
    /// Make a plugin of llm-d's endpoint picker (a file in Go: Scorer, Filter or Admitter) of a script
    LlmDPlugin(ExportPluginArgs),
}

#[derive(Debug, Args)]
struct ExportLlmDArgs {
    /// Policy bundle (YAML)
    #[arg(value_name = "BUNDLE")]
    bundle: PathBuf,
    /// File for the configuration [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct ExportCachePolicyArgs {
    /// Script (Rhai) with a function `keep`
    #[arg(value_name = "FILE")]
    script: PathBuf,
    /// Value of a parameter of the script
    #[arg(long, value_name = "NAME=VALUE", value_parser = parameter)]
    set: Vec<(String, f64)>,
    /// File for the class [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// `blis import`.
pub(super) fn import(args: &ImportArgs) -> Result<(), RunError> {
    let ImportCommand::LlmD(args) = &args.command;
    check_output(args.out.as_deref(), &args.file)?;
    let imported = llm_d::load(&args.file).map_err(RunError::refused)?;
    if args.strict
        && let Some(first) = imported.left_out.first()
    {
        let first = first.clone().or_hint("without `--strict` it is left out");
        return Err(RunError::refused(first));
    }
    remark(&imported);
    write(args.out.as_deref(), &imported.picker.to_bundle())
}

/// `blis export`.
pub(super) fn export(args: &ExportArgs) -> Result<(), RunError> {
    match &args.command {
        ExportCommand::LlmD(args) => export_llm_d(args),
        ExportCommand::VllmCachePolicy(args) => export_cache_policy(args),
        ExportCommand::Keda(args) => export_keda(args),
        ExportCommand::LlmDPlugin(args) => export_plugin(args),
    }
}

fn export_cache_policy(args: &ExportCachePolicyArgs) -> Result<(), RunError> {
    check_output(args.out.as_deref(), &args.script)?;
    let script = ExportedScript::open(&args.script, &args.set, &Limits::default());
    let exported = script.and_then(|script| export::vllm_cache_policy(&script));
    write(args.out.as_deref(), &exported.map_err(RunError::refused)?)
}

fn export_llm_d(args: &ExportLlmDArgs) -> Result<(), RunError> {
    check_output(args.out.as_deref(), &args.bundle)?;
    let bundle = Bundle::load(&args.bundle).map_err(RunError::refused)?;
    let picker = EndpointPicker::of_bundle(&bundle).map_err(RunError::refused)?;
    if picker.reads_prefix_caches() {
        print_note(&"set `modelName` and `url` of `token-producer` to the model and a server of the deployment");
    }
    write(args.out.as_deref(), &picker.to_config())
}

/// Says what has no counterpart, what decides otherwise, and what has no effect.
fn remark(Imported { left_out, differs, no_effect, .. }: &Imported) {
    let note = |remark: &Diagnostic| match &remark.hint {
        Some(hint) => print_note(&format_args!("{} (hint: {hint})", remark.headline())),
        None => print_note(&remark.headline()),
    };
    left_out.iter().chain(differs).for_each(note);
    for (index, (_, why)) in no_effect.iter().enumerate() {
        if no_effect[..index].iter().any(|(_, before)| before == why) {
            continue;
        }
        let alike = no_effect.iter().filter(|(_, other)| other == why);
        let names: Vec<String> = alike.map(|(name, _)| format!("`{name}`")).collect();
        print_note(&format_args!("no effect in a simulation: {} ({why})", names.join(", ")));
    }
}
