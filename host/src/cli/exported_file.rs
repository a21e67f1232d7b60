//! What the commands that make settings of other programs share: the file that they write, and parameters of scripts.

use std::path::Path;

use blis_eval::error::RunError;
use blis_report::{check_target, write_text};

use super::output::print;

/// An input must not be overwritten: it would be lost.
pub(super) fn check_output(out: Option<&Path>, input: &Path) -> Result<(), RunError> {
    let Some(out) = out else { return Ok(()) };
    if input.canonicalize().is_ok_and(|input| out.canonicalize().is_ok_and(|out| out == input)) {
        return Err(RunError::usage(format_args!("`{}` is the input", input.display())).hint("name another file"));
    }
    check_target(out).map_err(|error| RunError::file(&error))
}

/// Writes `text` into the file, or to standard output.
pub(super) fn write(out: Option<&Path>, text: &str) -> Result<(), RunError> {
    match out {
        Some(out) => write_text(out, text).map_err(|error| RunError::file(&error)),
        None => print(text),
    }
}

/// A parameter of a script, as `NAME=VALUE`.
pub(super) fn parameter(text: &str) -> Result<(String, f64), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE, as in worth=2.5")?;
    let number = value.trim().parse::<f64>().ok().filter(|number| number.is_finite());
    let number = number.ok_or_else(|| format!("`{value}` is not a number"))?;
    Ok((name.trim().to_owned(), number))
}
