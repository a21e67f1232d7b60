//! Kinds of decisions, as flags and in texts.

use blis_eval::error::RunError;
use blis_plugin::{Kind, LoadedPlugin};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

/// Reads a kind of decision by its name.
pub(super) fn kind_parser() -> impl TypedValueParser<Value = Kind> {
    let named = |kind: Kind| PossibleValue::new(kind.name()).help(kind.about().trim().trim_end_matches('.'));
    PossibleValuesParser::new(Kind::ALL.map(named)).try_map(|name| Kind::of(&name).ok_or("no kind has this name"))
}

/// The kinds in `wanted`, each of which the plugin must have; all kinds of the plugin if `wanted` is empty.
pub(super) fn kinds(loaded: &LoadedPlugin, wanted: &[Kind]) -> Result<Vec<Kind>, RunError> {
    let description = loaded.plugin.description();
    if let Some(kind) = wanted.iter().find(|kind| !description.kinds.contains(kind)) {
        let has = names(&description.kinds);
        return Err(RunError::usage(format_args!("`{}` does not implement {kind}", description.name))
            .hint(format_args!("it implements {has}")));
    }
    Ok(if wanted.is_empty() { description.kinds.clone() } else { wanted.to_vec() })
}

pub(super) fn names(kinds: &[Kind]) -> String {
    kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", ")
}
