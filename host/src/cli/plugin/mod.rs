//! `blis plugin`: policies as files: list, create, build, check, test, benchmark, replay.

mod bench;
mod build;
mod check;
mod list;
mod measure;
mod new;
mod replay;
mod test;
mod toolchain;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::bound::BoundArgs;
use super::output::OutputForm;
use super::output::{print_document, print_text, wants_text_form};
use super::workers::default_worker_settings;
use blis_config::policy::{Ambiguous, BuiltIn};
use blis_diag::printable;
use blis_eval::error::RunError;
use blis_eval::worker::{self, TimeLimit};
use blis_plugin::LoadedPlugin;
use blis_plugin::find::{Finder, PluginFile};
use blis_plugin::{Fault, Kind, Technology};

#[derive(Debug, Args)]
pub(super) struct PluginArgs {
    #[command(subcommand)]
    command: PluginCommand,
}

#[derive(Debug, Subcommand)]
enum PluginCommand {
    /// List built-in policies, and plugins of policies/ and --policy-dir, with their parameters
    List(list::ListArgs),
    /// Create a policy from a working template
    New(new::NewArgs),
    /// Compile a policy in Rust, C, Zig, Python or JavaScript to a sandboxed component
    Build(build::BuildArgs),
    /// Check that a policy conforms to the interface
    Check(check::CheckArgs),
    /// Test single decisions of a policy: inputs and expected outputs
    Test(test::TestArgs),
    /// Benchmark the decisions of a policy against a built-in one
    Bench(bench::BenchArgs),
    /// Make the decisions of a recorded run again, and show where they differ
    Replay(replay::PolicyReplayArgs),
    /// Turn a core WebAssembly module into a component
    Pack(build::PackArgs),
}

/// Time that work with one plugin may take, unless `--wall-s` is given: that is for all of them.
const PLUGIN_WALL: Duration = Duration::from_secs(60);

/// Runs `work` on the plugin `name` in a worker, within the bound of the command, and within `usual` if that has no wall limit.
fn bounded<T: Serialize + DeserializeOwned>(
    args: &BoundArgs,
    usual: Duration,
    name: &str,
    work: impl FnOnce() -> T,
) -> Result<T, RunError> {
    let bound = args.start();
    let usual = if args.wall_s.is_some() { Duration::MAX } else { usual };
    let limit = bound.left(TimeLimit::Total(usual))?;
    let worker = worker::start(&default_worker_settings(Some(NonZeroUsize::MIN)), limit, work)?;
    worker.wait().map_err(|failure| {
        let about = format!("`{}`", printable(name));
        bound.ended(&failure).unwrap_or_else(|| failure.error(&about))
    })
}

/// The search path of plugins.
#[derive(Debug, Args)]
struct PluginSearchArgs {
    /// Folder with plugins, searched before policies/; may be given several times
    #[arg(long, value_name = "FOLDER")]
    policy_dir: Vec<PathBuf>,
    /// Allow native libraries: they run unsandboxed, with your rights
    #[arg(long)]
    allow_native: bool,
    /// Allow components as large as those with an interpreter inside (Python, JavaScript): compiling one may take a minute
    #[arg(long)]
    allow_large_components: bool,
}

impl PluginSearchArgs {
    fn finder(&self) -> Finder {
        let mut finder = Finder { allow_native: self.allow_native, ..Finder::new(self.policy_dir.clone()) };
        finder.limits.large_components = self.allow_large_components;
        finder
    }
}

/// Reads a kind of decision by its name.
fn kind_parser() -> impl TypedValueParser<Value = Kind> {
    let named = |kind: Kind| PossibleValue::new(kind.name()).help(kind.about().trim().trim_end_matches('.'));
    PossibleValuesParser::new(Kind::ALL.map(named)).try_map(|name| Kind::of(&name).ok_or("no kind has this name"))
}

pub(super) fn dispatch(args: PluginArgs) -> Result<(), RunError> {
    super::output::start_log(tracing::level_filters::LevelFilter::WARN);
    match args.command {
        PluginCommand::List(args) => list::list(&args),
        PluginCommand::New(args) => new::new(&args),
        PluginCommand::Build(args) => build::build(&args),
        PluginCommand::Check(args) => check::check(&args),
        PluginCommand::Test(args) => test::test(&args),
        PluginCommand::Bench(args) => bench::bench(&args),
        PluginCommand::Replay(args) => replay::replay(&args),
        PluginCommand::Pack(args) => build::pack(&args),
    }
}

/// A policy by its name or path: built in, or a file.
enum Named {
    BuiltIn(&'static BuiltIn),
    Plugin(PluginFile),
}

/// The policy called `name`. Built-in policies come first, as when a run looks up a name.
fn find_any(finder: &Finder, name: &str) -> Result<Named, RunError> {
    let built_in = BuiltIn::named(name).map_err(|Ambiguous { what, hint }| RunError::usage(what).hint(hint))?;
    built_in.map_or_else(|| find(finder, name).map(Named::Plugin), |row| Ok(Named::BuiltIn(row)))
}

/// The plugin called `name`, by name or path.
fn find(finder: &Finder, name: &str) -> Result<PluginFile, RunError> {
    let found = finder.find(name).map_err(usage_error)?;
    let known: Vec<&str> = BuiltIn::all().iter().map(|row| row.name).collect();
    found.ok_or_else(|| {
        RunError::usage(format_args!("unknown plugin: `{}`", printable(name))).hint(finder.hint(name, &known))
    })
}

impl Named {
    /// Name, file and technology.
    fn identity(&self) -> (String, String, Technology) {
        match self {
            Self::BuiltIn(row) => (row.name.to_owned(), row.full_name(), Technology::BuiltIn),
            Self::Plugin(found) => {
                let file = blis_diag::display(&found.location.path()).to_string();
                (printable(&found.name).into_owned(), file, found.technology)
            }
        }
    }

    fn load(self, finder: &Finder) -> Result<LoadedPlugin, Fault> {
        match self {
            Self::BuiltIn(row) => Ok(row.load()),
            Self::Plugin(found) => finder.load(&found),
        }
    }
}

fn load(finder: &Finder, found: &PluginFile) -> Result<LoadedPlugin, RunError> {
    finder.load(found).map_err(usage_error)
}

/// The usage error for a plugin that cannot be used, with the message and hint of `fault`.
fn usage_error(fault: Fault) -> RunError {
    RunError::usage(fault.diagnostic)
}

/// The kinds in `wanted`, each of which the plugin must have; all kinds of the plugin if `wanted` is empty.
fn kinds(loaded: &LoadedPlugin, wanted: &[Kind]) -> Result<Vec<Kind>, RunError> {
    let description = loaded.plugin.description();
    if let Some(kind) = wanted.iter().find(|kind| !description.kinds.contains(kind)) {
        let has = names(&description.kinds);
        return Err(RunError::usage(format_args!("`{}` does not implement {kind}", description.name))
            .hint(format_args!("it implements {has}")));
    }
    Ok(if wanted.is_empty() { description.kinds.clone() } else { wanted.to_vec() })
}

fn names(kinds: &[Kind]) -> String {
    kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", ")
}

/// Prints `text` or `document`, by the form of the output.
fn print_either(form: OutputForm, text: impl FnOnce() -> String, document: &serde_json::Value) -> Result<(), RunError> {
    if wants_text_form(form) { print_text(text()) } else { print_document(document) }
}

/// Rows under headings, columns aligned, two blanks between them.
fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    use unicode_width::UnicodeWidthStr as _;
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.width());
        cells.chain(head.get(column).map(|name| name.width())).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded = cells.zip(&widths).map(|(cell, &width)| format!("{cell}{}", " ".repeat(width - cell.width())));
        format!("{}\n", padded.collect::<Vec<_>>().join("  ").trim_end())
    };
    let mut text = line(&mut head.iter().copied());
    rows.iter().for_each(|row| text += &line(&mut row.iter().map(String::as_str)));
    text
}
