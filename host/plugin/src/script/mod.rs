//! Rhai scripts as plugins: compiled from text within a millisecond and limited in all resources.
//!
//! ```text
//! text ── scan ──► header (`// @param` …) ── compile ──► Script ── start ──► ScriptGuest ── call ──► output
//! ```
//!
//! A script defines a function for each kind of decision it makes (`route(r, s)`, `admit(r, s)` …); these functions
//! determine its kinds. It reads the cluster as columns and computes with whole columns; the host chooses the instance
//! with the highest score. `sdk/rhai/README.md` documents all that scripts may use, and a test compares that page with
//! this code.

mod call;
mod code;
mod column;
mod definitions;
mod engine;
mod entries;
mod errors;
mod evaluation;
mod expression;
mod fast;
mod folding;
mod guest;
mod header;
mod inputs;
mod names;
mod operations;
mod operators;
mod plugin;
mod registry;
mod rows;
mod sandbox;
mod scan;
mod state;
mod step_views;
mod table;
mod testing;
#[cfg(test)]
mod tests;
mod texts;
mod tree;
mod values;
mod views;

use std::io;
use std::path::Path;
use std::sync::Arc;

pub use self::definitions::definitions;
pub use self::expression::{ExpressionError, ExpressionForm, ScriptExpression, expression};
pub use self::inputs::{ScriptInput, inputs};

use self::guest::ScriptGuest;
pub(crate) use self::operations::Operation;
pub(crate) use self::plugin::ScriptPlugin;
use self::plugin::too_long;
use self::scan::Scan;
pub(crate) use self::tree::each_statement;
use blis_diag::{Location, read_bytes};

use super::limits::SCRIPT_BYTES;
use super::{Fault, FaultKind, Guest, GuestSetup, Limits, Plugin, PolicyDescription, Technology, TestFunction};

/// Loads the script in the file at `path`.
///
/// # Errors
/// If the file cannot be read, or as [`load`].
pub fn load_file(path: &Path, limits: &Limits) -> Result<Arc<dyn Plugin>, Fault> {
    load(path, &read_file(path, limits)?, limits)
}

/// The text in the file at `path`.
pub(crate) fn read_file(path: &Path, limits: &Limits) -> Result<String, Fault> {
    let fault = |text: String| Fault::new(FaultKind::Unreadable, text).at(Location::file(blis_diag::display(path)));
    let most = limits.file_bytes.min(SCRIPT_BYTES);
    let bytes = read_bytes(path, most).map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => fault(too_long(most)),
        _ => fault(format!("it cannot be read: {error}")),
    })?;
    String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = valid.iter().filter(|&&byte| byte == b'\n').count() + 1;
        fault(format!("line {line} is not UTF-8 text: is this a script?"))
    })
}

/// Compiles the script `source`; messages call it `path`.
///
/// # Errors
/// If it does not compile, has no function for any kind of decision, or a function has the wrong parameters.
pub fn load(path: &Path, source: &str, limits: &Limits) -> Result<Arc<dyn Plugin>, Fault> {
    Ok(Arc::new(ScriptPlugin::read(path, source, limits)?))
}

impl Plugin for ScriptPlugin {
    fn description(&self) -> &PolicyDescription {
        &self.script.description
    }

    fn technology(&self) -> Technology {
        Technology::Script
    }

    fn start(&self, setup: &GuestSetup) -> Result<Box<dyn Guest>, Fault> {
        let declared = &self.script.description.parameters;
        let defaults = declared.iter().map(|parameter| parameter.default);
        let code = if setup.parameters.iter().copied().eq(defaults) {
            self.code.clone()
        } else if setup.parameters.len() == declared.len() {
            self.script.compile(&setup.parameters)?
        } else {
            let text = format!("it has {} parameters and was given {}", declared.len(), setup.parameters.len());
            return Err(self.script.source.fault(FaultKind::Refused, None, &text));
        };
        Ok(Box::new(ScriptGuest::start(Arc::clone(&self.script), code, setup)?))
    }

    fn run_tests(&self, limits: &Limits) -> Result<Vec<TestFunction>, Fault> {
        testing::run(self, limits)
    }
}

/// Features of a script with which a search keeps its candidates diverse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScriptProfile {
    /// Number of lines with code.
    pub lines: usize,
    /// Number of different fields of requests, clusters and the like that the code reads.
    pub signals: usize,
    /// Number of numeric literals in the code and of parameters.
    pub constants: usize,
}

/// The features of `source`, which need not compile.
#[must_use]
pub fn profile(source: &str) -> ScriptProfile {
    let scan = Scan::of(source);
    let kit = engine::kit(&Limits::default());
    let fields: std::collections::BTreeSet<&str> = kit.names.fields.values().flatten().copied().collect();
    let code = || source.lines().map(|line| line.split("//").next().unwrap_or_default().trim());
    let numbers = |line: &str| {
        let words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '.' && c != '_');
        words.filter(|word| word.starts_with(|c: char| c.is_ascii_digit())).count()
    };
    ScriptProfile {
        lines: code().filter(|line| !line.is_empty()).count(),
        signals: scan.words.iter().filter(|word| fields.contains(*word)).count(),
        constants: code().map(numbers).sum::<usize>()
            + scan.comments.iter().filter(|comment| comment.text.starts_with("@param ")).count(),
    }
}
