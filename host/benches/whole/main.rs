//! The cost of the whole program `blis`: start-up, generating or reading the workload, simulation, figures and output.
//!
//! `cargo bench --bench whole [-- FILTER] [--runs N] [--json FILE]`
//!
//! CPU time is user and system time of the process. The minimum over the runs is the most reliable figure, and on a
//! busy machine it is still too high. Instructions are counted by `valgrind --tool=callgrind` where it is installed:
//! they hardly change from run to run, and the profile remains in `target/tmp` for `callgrind_annotate`.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "what a benchmark is for")]

mod callgrind;
mod process;
mod report;
mod scenarios;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Parser;

use report::ScenarioFigures;
use scenarios::{BenchScenario, ScenarioSize};

#[derive(Debug, Parser)]
struct BenchOptions {
    /// Run only scenarios with this text in their name
    filter: Option<String>,
    /// Runs of each scenario; scenarios of about a second run three times
    #[arg(long, value_name = "N", default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Also write the figures to FILE
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Skip the instruction counts (valgrind)
    #[arg(long)]
    no_callgrind: bool,
    /// Set by `cargo bench`; without it every quick scenario runs once, as a test
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> Result<()> {
    let options = BenchOptions::parse();
    let wanted = |scenario: &BenchScenario| {
        options.filter.as_ref().is_none_or(|text| scenario.name.contains(text.as_str()))
            && (options.bench || scenario.size == ScenarioSize::Quick)
    };
    let scenarios: Vec<BenchScenario> = scenarios::all().into_iter().filter(wanted).collect();
    if scenarios.is_empty() {
        // A name of another benchmark, perhaps: `cargo bench -- NAME` passes it to all of them.
        return Ok(());
    }
    let mut measured: Vec<ScenarioFigures> = scenarios.into_iter().map(ScenarioFigures::new).collect();
    time(&mut measured, if options.bench { options.runs } else { 1 })?;
    if options.bench && !options.no_callgrind {
        count_instructions(&mut measured)?;
    }
    print!("{}", report::text(&measured));
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&report::json(&measured))?;
        fs::write(path, text + "\n").with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Runs all scenarios in rounds, so that a busy minute affects one run of each and not all runs of one.
fn time(measured: &mut [ScenarioFigures], runs: u32) -> Result<()> {
    for round in 0..runs {
        for measured in &mut *measured {
            let most = if measured.scenario.size == ScenarioSize::Quick { runs } else { 3 };
            if round < most {
                let name = &measured.scenario.name;
                measured.runs.push(process::run(&measured.scenario.arguments).with_context(|| name.clone())?);
            }
        }
    }
    Ok(())
}

fn count_instructions(measured: &mut [ScenarioFigures]) -> Result<()> {
    if !callgrind::is_installed() {
        eprintln!("no instruction counts: valgrind is not installed");
        return Ok(());
    }
    for measured in measured.iter_mut().filter(|measured| measured.scenario.size == ScenarioSize::Quick) {
        let BenchScenario { name, arguments, .. } = &measured.scenario;
        measured.instructions = Some(callgrind::count(name, arguments).with_context(|| name.clone())?);
    }
    Ok(())
}
