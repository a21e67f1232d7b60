//! Which flags the user gave.

use std::collections::BTreeSet;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches};

use blis_config::policy::Source;

/// The names of the flags on the command line, without dashes in front and with `_` for `-`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Given(BTreeSet<String>);

impl Given {
    /// Whether the flag with the field `name` was given.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains(name)
    }

    /// Where its value comes from: the flag, or `otherwise`.
    pub(super) fn source(&self, name: &str, otherwise: Source) -> Source {
        if self.has(name) { Source::Flag(format!("--{}", name.replace('_', "-")).into()) } else { otherwise }
    }
}

/// Reads the matches without taking anything out of them.
impl FromArgMatches for Given {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = |name: &str| matches.value_source(name) == Some(ValueSource::CommandLine);
        // The structures that hold the flags have ids too, which start with a capital letter.
        let is_flag = |name: &str| name.starts_with(|c: char| c.is_ascii_lowercase());
        let names = matches.ids().map(clap::Id::as_str);
        Ok(Self(names.filter(|name| is_flag(name) && given(name)).map(str::to_owned).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// It brings no flags of its own.
impl Args for Given {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}
