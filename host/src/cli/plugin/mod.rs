//! `blis plugin`: policies as files: list, create, build, check, test, benchmark, replay.

mod bench;
mod bounded;
mod build;
mod check;
mod documents;
mod kind;
mod list;
mod measure;
mod named;
mod new;
mod printed;
mod replay;
mod test;
mod toolchain;

use blis_eval::error::RunError;
use clap::{Args, Subcommand};

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
