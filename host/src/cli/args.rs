//! The flags of settings, which follow from their table ([`KEYS`]).

use std::ffi::OsStr;
use std::path::Path;

use blis_config::policy::{BuiltIn, ScalingRow, SettingSource};
use blis_eval::error::RunError;
use blis_eval::spec::{Choice, ExperimentSpec, KEYS, SettingKey, ValueForm};
use blis_plugin::Kind;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, Id};

/// The settings of the command line; `COMMANDS` says which of them are flags (see [`commands`](blis_eval::spec::commands)).
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
    arg.action(action).value_name(key.placeholder).value_parser(Checked(key))
}

/// `arg` with its default, if it is the flag of a setting: for pages only, since clap would parse each default at every start.
pub(super) fn with_default(arg: Arg) -> Arg {
    let key = SettingKey::get(arg.get_id().as_str()).filter(|key| key.form != ValueForm::Switch);
    // A command may have a flag of its own with that name.
    let is_of_key = |key: &&SettingKey| arg.get_help_heading() == Some(key.group.heading);
    key.filter(is_of_key).and_then(|key| key.default).into_iter().fold(arg, Arg::default_value)
}

/// The flag that turns a switch off.
fn off(key: &'static SettingKey) -> Arg {
    let arg = Arg::new(key.off_name).long(key.off_name).action(ArgAction::SetTrue).overrides_with(key.name);
    arg.help(key.off).help_heading(key.group.heading).hide_short_help(true)
}

/// Any text that the setting takes. Help has the names of built-in policies; what is not built in may be a plugin. Names of a closed set
/// are listed only where one is wrong.
#[derive(Clone)]
struct Checked(&'static SettingKey);

impl TypedValueParser for Checked {
    type Value = String;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<String, clap::Error> {
        let choices = (self.0.choices)();
        if choices.is_empty() {
            let check = |text: &str| self.0.validate(text).map(|()| text.to_owned());
            return check.parse_ref(command, arg, value);
        }
        PossibleValuesParser::new(choices.into_iter().map(possible)).parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let named: Vec<Choice> = match self.0.chooses {
            None => Some((self.0.choices)()).filter(|choices| !choices.is_empty())?,
            Some(Kind::Scaling) => ScalingRow::all().iter().map(|row| (row.name, row.about)).collect(),
            Some(kind) => BuiltIn::for_kind(kind).map(|row| (row.name, row.about)).collect(),
        };
        Some(Box::new(named.into_iter().map(possible)))
    }
}

pub(super) fn possible((name, about): Choice) -> PossibleValue {
    PossibleValue::new(name).help(about.replace('\n', " "))
}

impl<const COMMANDS: u16> FromArgMatches for Settings<COMMANDS> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut spec = ExperimentSpec::default();
        let ids = matches.ids().map(Id::as_str);
        let given: Vec<&str> = ids.filter(|id| matches.value_source(id) == Some(ValueSource::CommandLine)).collect();
        for key in KEYS.iter().filter(|key| key.is_of(COMMANDS)) {
            let mut set = |text: &str, flag: &str| {
                spec.set(key, text, SettingSource::Flag(format!("--{flag}").into())).map_err(|message| {
                    let what = format!("invalid value '{text}' for '--{}': {message}", key.name);
                    clap::Error::raw(clap::error::ErrorKind::ValueValidation, what)
                })
            };
            if given.contains(&key.off_name) {
                set("false", key.off_name)?;
            }
            if given.contains(&key.name) {
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
