//! The flags of commands that simulate. Those of settings follow from their table ([`KEYS`]); the structures here have what is
//! no setting: operands, files that are written, forms of the output.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use blis_config::policy::{BuiltIn, ScalingRow, SettingSource};
use blis_eval::compare::CompareConfig;
use blis_eval::error::RunError;
use blis_eval::experiment::{Experiment, OutputFiles};
use blis_eval::planning::Variation;
use blis_eval::spec::{Choice, ExperimentSpec, KEYS, SettingKey, ValueForm, commands, parse};
use blis_plugin::Kind;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

use super::bound::BoundArgs;
use super::export_flags::ExportFlags;
use super::output::{LogLevel, OutputForm};

/// The settings of the command line; `COMMANDS` says which of them are flags (see [`commands`]).
#[derive(Clone, Debug, Default)]
pub(super) struct Settings<const COMMANDS: u16>(pub ExperimentSpec);

impl<const COMMANDS: u16> Args for Settings<COMMANDS> {
    fn augment_args(command: Command) -> Command {
        KEYS.iter().filter(|key| key.is_of(COMMANDS)).fold(command, |command, key| {
            // A command may have a flag of its own with that name.
            let is_free = |alias: &&&str| !command.get_arguments().any(|arg| arg.get_long() == Some(**alias));
            let flag = flag(key).visible_aliases(key.aliases.iter().filter(is_free).copied().collect::<Vec<_>>());
            if key.off.is_empty() {
                command.arg(flag)
            } else {
                command.arg(flag.overrides_with(key.off_name)).arg(off(key))
            }
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// The flag of a setting.
fn flag(key: &'static SettingKey) -> Arg {
    let arg = Arg::new(key.name).long(key.name).help(key.help.trim_start());
    let arg = arg.help_heading(key.group.heading).hide(key.hidden).hide_short_help(!key.usual);
    if key.form == ValueForm::Switch {
        return arg.action(ArgAction::SetTrue);
    }
    let action = if key.form == ValueForm::Texts { ArgAction::Append } else { ArgAction::Set };
    let arg = arg.action(action).value_name(key.placeholder);
    let choices = (key.choices)();
    let arg = match choices.is_empty() {
        true => arg.value_parser(Checked(key)),
        false => arg.value_parser(PossibleValuesParser::new(choices.into_iter().map(possible))),
    };
    key.default.into_iter().fold(arg, Arg::default_value)
}

/// The flag that turns a switch off.
fn off(key: &'static SettingKey) -> Arg {
    let arg = Arg::new(key.off_name).long(key.off_name).action(ArgAction::SetTrue).overrides_with(key.name);
    arg.help(key.off).help_heading(key.group.heading).hide_short_help(true)
}

/// Any text that the setting takes. Help has the names of built-in policies; what is not built in may be a plugin.
#[derive(Clone)]
struct Checked(&'static SettingKey);

impl TypedValueParser for Checked {
    type Value = String;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<String, clap::Error> {
        let check = |text: &str| self.0.validate(text).map(|()| text.to_owned());
        check.parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let named: Vec<Choice> = match self.0.chooses? {
            Kind::Scaling => ScalingRow::all().iter().map(|row| (row.name, row.about)).collect(),
            kind => BuiltIn::of(kind).map(|row| (row.name, row.about)).collect(),
        };
        Some(Box::new(named.into_iter().map(possible)))
    }
}

pub(super) fn possible((name, about): Choice) -> PossibleValue {
    PossibleValue::new(name).help(about)
}

impl<const COMMANDS: u16> FromArgMatches for Settings<COMMANDS> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut spec = ExperimentSpec::default();
        let given = |id: &str| {
            let known = matches.try_contains_id(id).is_ok();
            known && matches.value_source(id) == Some(ValueSource::CommandLine)
        };
        for key in KEYS.iter().filter(|key| key.is_of(COMMANDS)) {
            let mut set = |text: &str, flag: &str| {
                spec.set(key, text, SettingSource::Flag(format!("--{flag}").into())).map_err(|message| {
                    let what = format!("invalid value '{text}' for '--{}': {message}", key.name);
                    clap::Error::raw(clap::error::ErrorKind::ValueValidation, what)
                })
            };
            if given(key.off_name) {
                set("false", key.off_name)?;
            }
            if given(key.name) {
                for value in matches.get_raw(key.name).into_iter().flatten() {
                    set(&value.to_string_lossy(), key.name)?;
                }
            }
        }
        Ok(Self(spec))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<const COMMANDS: u16> Settings<COMMANDS> {
    /// The settings of the command line over those of the file of `--config`.
    pub(super) fn over(&self, config: Option<&Path>) -> Result<ExperimentSpec, RunError> {
        let spec = self.0.clone();
        Ok(match config {
            Some(file) => spec.over(&ExperimentSpec::load(file)?),
            None => spec,
        })
    }
}

#[derive(Debug, Args)]
pub(super) struct RunArgs {
    #[command(flatten)]
    pub given: Settings<{ commands::RUN }>,
    #[command(flatten)]
    pub output: OutputFlags,
    /// File for the results and every request, JSON
    #[arg(long, visible_alias = "results-path", value_name = "FILE", help_heading = OUTPUT)]
    pub metrics_path: Option<PathBuf>,
    #[command(flatten)]
    pub export: ExportFlags,
}

#[derive(Debug, Args)]
pub(super) struct ReplayArgs {
    #[command(flatten)]
    pub given: Settings<{ commands::REPLAY }>,
    #[command(flatten)]
    pub output: OutputFlags,
    /// File for the results and every request, JSON
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub metrics_path: Option<PathBuf>,
    /// File for the latencies of completed requests in µs, JSON
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub results_path: Option<PathBuf>,
    #[command(flatten)]
    pub export: ExportFlags,
}

#[derive(Debug, Args)]
pub(super) struct CompareArgs {
    #[command(flatten)]
    pub given: Settings<{ commands::COMPARE }>,
    /// Two or more policies: names, scripts, components, lists of scorers like queue-depth:2,kv-utilization:1, or
    /// bundles (YAML); or as many configuration files (as of --config, with a `model` or `deployment`): whole deployments
    /// under the same requests. The first is the baseline
    #[arg(value_name = "POLICY|FILE", required_unless_present = "vary")]
    pub compared_policies: Vec<String>,
    /// Whole deployments instead of policies: a flag of `blis run` and its values, as tp=1,2; may be given several times
    /// for all combinations. The first is the baseline
    #[arg(long, value_name = "FLAG=VALUE,…", value_parser = Variation::parse, conflicts_with = "compared_policies",
          help_heading = COMPARISON)]
    pub vary: Vec<Variation>,
    /// Replications: seeds from --seed on. Each is a run of every policy under the same requests
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = parse::seeds, help_heading = COMPARISON)]
    pub seeds: u32,
    /// Threads; 0 for one per core. Results do not depend on it
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = parse::threads, help_heading = COMPARISON)]
    pub threads: usize,
    #[command(flatten)]
    pub output: OutputFlags,
}

const COMPARISON: &str = "Comparison";
const SIMULATION: &str = "Simulation";
pub(super) const OUTPUT: &str = "Output";
/// The heading of what `blis regret` computes, beside its settings.
pub(super) const REGRET: &str = "Counterfactual regret";

#[derive(Debug, Args)]
pub(super) struct OutputFlags {
    /// Configuration file, YAML, as --explain-config prints it; flags win over it
    #[arg(long, value_name = "FILE", help_heading = SIMULATION)]
    pub config: Option<PathBuf>,
    /// Print the whole configuration as YAML with the source of each value, and simulate nothing
    #[arg(long, help_heading = OUTPUT)]
    pub explain_config: bool,
    /// Log level of messages on standard error
    #[arg(long, value_enum, value_name = "LEVEL", default_value_t = LogLevel::Warn, help_heading = OUTPUT)]
    pub log: LogLevel,
    /// Form of the output; auto is text on a terminal, JSON elsewhere
    #[arg(long, value_enum, value_name = "FORM", default_value_t = OutputForm::Auto, help_heading = OUTPUT)]
    pub output: OutputForm,
    /// No progress bar
    #[arg(long, help_heading = OUTPUT)]
    pub no_progress: bool,
    /// A page to look at, HTML: one file that needs no network, with charts, and a table behind every chart. Of one run:
    /// the service over time, latencies by class and tenant, stages, the slowest requests
    #[arg(long, value_name = "FILE.html", help_heading = OUTPUT)]
    pub report: Option<PathBuf>,
    #[command(flatten)]
    pub bound: BoundArgs,
}

impl RunArgs {
    /// The specification of the experiment.
    pub(super) fn spec(&self) -> Result<ExperimentSpec, RunError> {
        self.given.over(self.output.config.as_deref())
    }

    /// The files that the run writes.
    pub(super) fn files(&self) -> OutputFiles {
        OutputFiles { page: self.output.report.clone(), ..self.export.files(&self.metrics_path, &None) }
    }

    /// The experiment, validated.
    pub(super) fn experiment(&self) -> Result<Experiment, RunError> {
        Experiment::new(self.spec()?, self.files())
    }
}

impl ReplayArgs {
    /// The experiment, validated.
    pub(super) fn experiment(&self) -> Result<Experiment, RunError> {
        let spec = self.given.over(self.output.config.as_deref())?;
        if spec.trace_header.is_none() && spec.trace_data.is_none() {
            let two_files = "a recorded trace has two files: `--trace-header FILE.yaml --trace-data FILE.csv`";
            return Err(RunError::usage("no trace to replay").hint(two_files));
        }
        let files = self.export.files(&self.metrics_path, &self.results_path);
        Experiment::new(spec, OutputFiles { page: self.output.report.clone(), ..files })
    }
}

impl CompareArgs {
    /// The comparison, validated.
    pub(super) fn config(&self) -> Result<CompareConfig, RunError> {
        let spec = self.given.over(self.output.config.as_deref())?;
        CompareConfig::chosen(spec, &self.vary, &self.compared_policies, (self.seeds, self.threads))
    }
}
