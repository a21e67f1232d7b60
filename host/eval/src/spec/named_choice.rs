//! Closed sets of named values: enums with the names and the documentation of their variants.

use strum::{EnumMessage, VariantArray};

/// A closed set of named values.
pub trait NamedChoice:
    Copy + PartialEq + Send + Sync + 'static + Into<&'static str> + EnumMessage + VariantArray
{
    /// The name in flags and files.
    fn name(self) -> &'static str {
        self.into()
    }

    /// The meaning, in a few lines of help.
    fn about(self) -> &'static str {
        self.get_documentation().unwrap_or_default().trim_end()
    }

    /// The value of `text`.
    ///
    /// # Errors
    /// Which names there are.
    fn read(text: &str) -> Result<Self, String> {
        Self::find(text).ok_or_else(|| {
            let known: Vec<&str> = Self::VARIANTS.iter().map(|choice| choice.name()).collect();
            format!("must be one of {}", known.join(", "))
        })
    }

    /// The value called `name`.
    fn find(name: &str) -> Option<Self> {
        Self::VARIANTS.iter().copied().find(|choice| choice.name() == name)
    }
}

impl<T> NamedChoice for T where
    T: Copy + PartialEq + Send + Sync + 'static + Into<&'static str> + EnumMessage + VariantArray
{
}
