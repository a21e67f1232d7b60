//! A script that is exported.

use std::path::Path;

use rhai::Position;

use crate::script::{ScriptPlugin, read_file};
use crate::{Fault, FaultKind, Kind, Limits, Plugin as _};

/// A script that is exported, with values for some of its parameters.
#[derive(Debug)]
pub struct ExportedScript {
    pub(super) plugin: ScriptPlugin,
    /// The name of its file.
    pub(super) file: String,
    set: Vec<(String, f64)>,
}

impl ExportedScript {
    /// The script in the file at `path`, with these values for its parameters; others have their defaults.
    ///
    /// # Errors
    /// If the file cannot be read, or the script is not valid.
    pub fn open(path: &Path, set: &[(String, f64)], limits: &Limits) -> Result<Self, Fault> {
        Self::read(path, &read_file(path, limits)?, set, limits)
    }

    /// As [`Self::open`] of the text `source`, which messages call `path`.
    pub(super) fn read(path: &Path, source: &str, set: &[(String, f64)], limits: &Limits) -> Result<Self, Fault> {
        let plugin = ScriptPlugin::read(path, source, limits)?;
        let file = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        Ok(Self { plugin, file, set: set.to_vec() })
    }

    /// The name of the policy.
    pub(super) fn name(&self) -> &str {
        &self.plugin.description().name
    }

    /// `template` with what stands for each mark in it, `@file@` among them. Lines between `@if FLAG` and `@end` are left out unless
    /// it `has` the flag.
    pub(super) fn fill(&self, template: &str, has: impl Fn(&str) -> bool, fills: &[(&str, String)]) -> String {
        let mut holds = true;
        let lines = template.split_inclusive('\n').filter(|line| {
            let (flag, ends) = (line.strip_prefix("@if "), *line == "@end\n");
            if ends || flag.is_some() {
                holds = flag.is_none_or(|flag| has(flag.trim_end()));
                return false;
            }
            holds
        });
        let text = lines.collect::<String>().replace("@file@", &self.file);
        fills.iter().fold(text, |text, (mark, value)| text.replace(mark, value))
    }

    /// Refuses a script without `function`, which does what `what` says.
    pub(super) fn needs(&self, function: &str, what: &str, kind: Kind) -> Result<(), Fault> {
        if self.plugin.has(function) {
            return Ok(());
        }
        let text = format!(
            "it has no function `{function}`, which {what}: only policies of the kind `{kind}` can be exported"
        );
        Err(self.plugin.fault(FaultKind::MissingExport, Position::NONE, &text))
    }

    /// The fault of what has no form elsewhere.
    pub(super) fn refused(&self, at: Position, text: &str) -> Fault {
        self.plugin.fault(FaultKind::Refused, at, text)
    }

    /// The values of the parameters, in their order.
    pub(super) fn values(&self) -> Result<Vec<f64>, Fault> {
        let declared = &self.plugin.description().parameters;
        let refused = |text: String| Err(self.refused(Position::NONE, &text));
        if let Some((name, _)) = self.set.iter().find(|(name, _)| declared.iter().all(|known| known.name != *name)) {
            return refused(format!("it has no parameter `{name}`"));
        }
        let mut values = Vec::new();
        for parameter in declared {
            let set = self.set.iter().rev().find(|(name, _)| *name == parameter.name);
            let value = set.map_or(parameter.default, |one| one.1);
            if !(parameter.min..=parameter.max).contains(&value) {
                let (name, min, max) = (&parameter.name, parameter.min, parameter.max);
                return refused(format!("the parameter `{name}` is {value}; it must be from {min} to {max}"));
            }
            values.push(value);
        }
        Ok(values)
    }
}
