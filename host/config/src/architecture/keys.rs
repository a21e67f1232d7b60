//! The values of a config by key, with messages about those that are of no use.

use blis_diag::Diagnostic;
use serde_json::{Map, Value};

/// Characters of a value in a message.
const SHOWN: usize = 60;

/// The keys of a config.
#[derive(Clone, Copy)]
pub(super) struct ArchitectureKeys<'a>(pub(super) &'a Map<String, Value>);

impl<'a> ArchitectureKeys<'a> {
    pub(super) fn get(self, key: &str) -> Option<&'a Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    /// The number of a key; `None` if it is absent or null.
    pub(super) fn number(self, key: &str) -> Result<Option<u32>, Diagnostic> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.as_u64().and_then(|number| u32::try_from(number).ok()) {
            Some(number) => Ok(Some(number)),
            None => Err(invalid(key, value, "a whole number from 0 to 4294967295")),
        }
    }

    /// The number of a key, if it is above 0.
    pub(super) fn positive(self, key: &str) -> Result<Option<u32>, Diagnostic> {
        Ok(self.number(key)?.filter(|number| *number > 0))
    }

    /// The value of a key without which the model cannot be computed.
    pub(super) fn required(self, key: &'static str, needed_for: &str) -> Result<u32, Diagnostic> {
        self.positive(key)?.ok_or_else(|| {
            Diagnostic::new(format!("`{key}` is missing or zero, which {needed_for} needs"))
                .hint("copy it from the config on Hugging Face")
        })
    }

    pub(super) fn flag(self, key: &str) -> Result<Option<bool>, Diagnostic> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value.as_bool().map(Some).ok_or_else(|| invalid(key, value, "true or false"))
    }

    pub(super) fn text(self, key: &str) -> &'a str {
        self.get(key).and_then(Value::as_str).unwrap_or("")
    }

    pub(super) fn list(self, key: &str) -> Result<Option<&'a [Value]>, Diagnostic> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value.as_array().map(|list| Some(list.as_slice())).ok_or_else(|| invalid(key, value, "a list"))
    }

    /// A list of whole numbers.
    pub(super) fn numbers(self, key: &str) -> Result<Vec<u32>, Diagnostic> {
        let list = self.list(key)?.unwrap_or_default();
        let number = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
        list.iter().map(|value| number(value).ok_or_else(|| invalid(key, value, "whole numbers"))).collect()
    }

    /// A list with a number for every layer; `None` if the key is absent or no list.
    pub(super) fn per_layer(self, key: &str, layers: u32) -> Result<Option<Vec<u32>>, Diagnostic> {
        if !matches!(self.get(key), Some(Value::Array(_))) {
            return Ok(None);
        }
        let numbers = self.numbers(key)?;
        check_length(key, numbers.len(), layers)?;
        Ok(Some(numbers))
    }

    /// The keys of an object; none if the key is absent.
    pub(super) fn object(self, key: &str) -> Result<Option<ArchitectureKeys<'a>>, Diagnostic> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value.as_object().map(|map| Some(ArchitectureKeys(map))).ok_or_else(|| invalid(key, value, "an object"))
    }
}

/// Refuses a list that has not one entry per layer.
pub(super) fn check_length(key: &str, entries: usize, layers: u32) -> Result<(), Diagnostic> {
    if entries as u64 == u64::from(layers) {
        return Ok(());
    }
    let what = format!("`{key}` has {entries} entries, and `num_hidden_layers` is {layers}");
    Err(Diagnostic::new(what).hint("it lists every layer"))
}

/// Words for the absence of keys, at least one.
pub(crate) fn absent(keys: &[&str]) -> String {
    let are = if keys.len() == 1 { "is" } else { "are" };
    let keys: Vec<String> = keys.iter().map(|key| format!("`{key}`")).collect();
    format!("{} {are} missing or zero", keys.join(", "))
}

pub(super) fn invalid(key: &str, value: &Value, expected: &str) -> Diagnostic {
    Diagnostic::new(format!("`{key}` is `{}`", shown(value))).hint(format!("{expected} belongs there"))
}

/// A value in a message: the beginning of a long one.
pub(super) fn shown(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= SHOWN {
        return text;
    }
    let start: String = text.chars().take(SHOWN).collect();
    format!("{start}…")
}
