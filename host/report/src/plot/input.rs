//! What a figure is made of, and why there is none.

use serde_json::Value;
use thiserror::Error;

/// A result, by the name of its file.
#[derive(Clone, Debug)]
pub struct PlotInput {
    pub name: String,
    pub document: Value,
}

/// Why there is no figure.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlotError {
    /// A result is of another kind.
    #[error("`{name}` cannot be drawn as `{kind}`, which needs {needs}")]
    OtherKind { name: String, kind: &'static str, needs: &'static str },
    /// No figure is made of such a result.
    #[error("`{0}` is no result that a figure is made of: a run with every request, a sweep or a comparison")]
    NoKind(String),
    /// Only some figures show several results.
    #[error("`{kind}` shows one result, and there are {count}")]
    Several { kind: &'static str, count: usize },
    /// The result has no such figure.
    #[error("`{name}` has no `{wanted}`; it has {known}")]
    NoFigure { name: String, wanted: String, known: String },
    /// Nothing can be drawn.
    #[error("`{name}` has no values of `{wanted}`")]
    Empty { name: String, wanted: String },
}
