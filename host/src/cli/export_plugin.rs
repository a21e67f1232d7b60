//! `blis export llm-d-plugin`: a script as a plugin of llm-d's endpoint picker.

use std::path::PathBuf;

use blis_eval::error::RunError;
use blis_plugin::Limits;
use blis_plugin::export::{self, ExportedScript};
use clap::Args;

use super::exported_file::{check_output, parameter, write};
use super::output::print_note;

/// Arguments of `blis export llm-d-plugin`.
#[derive(Debug, Args)]
pub(super) struct ExportPluginArgs {
    /// Script (Rhai) with one of the functions `route`, `filter` and `admit`
    #[arg(value_name = "SCRIPT")]
    script: PathBuf,
    /// Default of a parameter of the script
    #[arg(long, value_name = "NAME=VALUE", value_parser = parameter)]
    set: Vec<(String, f64)>,
    /// File for the plugin (Go) [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// `blis export llm-d-plugin`: writes the file, and names what is to be filled in.
pub(super) fn export_plugin(args: &ExportPluginArgs) -> Result<(), RunError> {
    check_output(args.out.as_deref(), &args.script)?;
    let script = ExportedScript::open(&args.script, &args.set, &Limits::default());
    let plugin = script.and_then(|script| export::llm_d_plugin(&script)).map_err(RunError::refused)?;
    if !plugin.missing.is_empty() {
        let names = plugin.missing.join(", ");
        print_note(&format_args!(
            "the endpoint picker does not tell {names}: fill them in where the file says FILL IN, and set `filledIn` to true; until \
             then the plugin refuses to start"
        ));
    }
    write(args.out.as_deref(), &plugin.text)
}
