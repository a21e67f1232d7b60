//! What is wrong with something that a user gave: what, where, and what to do about it.
//!
//! Every error of the host that a user reads is a [`Diagnostic`] or makes one ([`Diagnose`]). Its parts are fields:
//! who shows a part alone, or adds to one, takes the field. Only [`Display`] puts them together:
//!
//! ```text
//! policy.yaml:2:11: unknown routing policy `wieghted`
//!   2 |   policy: wieghted
//!     |           ^^^^^^^^
//! hint: did you mean `weighted`?
//! ```

use std::fmt::{self, Display};

use crate::{Excerpt, Location};

/// Something is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// What is wrong.
    pub what: String,
    /// Where, if it is in a file.
    pub location: Option<Location>,
    /// The line of the file with carets under the culprit, or another place's trace: lines that follow `what`.
    pub excerpt: Option<Box<str>>,
    /// What to do about it.
    pub hint: Option<String>,
}

/// An error that a user reads.
pub trait Diagnose {
    /// What is wrong, where, and what to do about it.
    fn diagnostic(&self) -> Diagnostic;
}

impl Diagnostic {
    /// Something is wrong; neither location nor remedy are known yet.
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), location: None, excerpt: None, hint: None }
    }

    /// Something is wrong at `location` of a file that reads `text`: shows the line.
    pub fn in_text(location: Location, text: &str, what: impl Into<String>) -> Self {
        let excerpt = Excerpt::of(text, &location).map(|excerpt| excerpt.to_string().into());
        Self { excerpt, ..Self::new(what).at(location) }
    }

    /// Where it is.
    #[must_use]
    pub fn at(self, location: Location) -> Self {
        Self { location: Some(location), ..self }
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// What to do about it, unless that was said.
    #[must_use]
    pub fn or_hint(self, hint: impl Into<String>) -> Self {
        if self.hint.is_some() { self } else { self.hint(hint) }
    }

    /// Location and what is wrong, without excerpt and hint: for a text that goes on after it.
    pub fn headline(&self) -> impl Display {
        fmt::from_fn(|f| match &self.location {
            Some(location) => write!(f, "{location}: {}", self.what),
            None => f.write_str(&self.what),
        })
    }

    /// All but the hint.
    pub fn without_hint(&self) -> impl Display {
        fmt::from_fn(|f| write!(f, "{}{}", self.headline(), self.excerpt.as_deref().unwrap_or_default()))
    }
}

impl Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.without_hint())?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(f, "\nhint: {hint}"))
    }
}

impl std::error::Error for Diagnostic {}

impl Diagnose for Diagnostic {
    fn diagnostic(&self) -> Diagnostic {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_shown_once() {
        let diagnostic = Diagnostic::new("it is empty");
        assert_eq!(diagnostic.to_string(), "it is empty");
        let diagnostic =
            diagnostic.at(Location::file("a.csv").line(7)).hint("add a row").or_hint("is it the right file?");
        assert_eq!(diagnostic.to_string(), "a.csv:7: it is empty\nhint: add a row");
        assert_eq!(diagnostic.headline().to_string(), "a.csv:7: it is empty");
    }

    #[test]
    fn the_line_is_shown() {
        let location = Location::file("policy.yaml").characters(2, 11, 8);
        let text = "routing:\n  policy: wieghted\n";
        let diagnostic =
            Diagnostic::in_text(location, text, "unknown policy `wieghted`").hint("did you mean `weighted`?");
        insta::assert_snapshot!(diagnostic, @r"
        policy.yaml:2:11: unknown policy `wieghted`
          2 |   policy: wieghted
            |           ^^^^^^^^
        hint: did you mean `weighted`?
        ");
        assert_eq!(diagnostic.headline().to_string(), "policy.yaml:2:11: unknown policy `wieghted`");
        let elsewhere = Diagnostic::in_text(Location::file("policy.yaml"), text, "is too long");
        assert_eq!(elsewhere.to_string(), "policy.yaml: is too long");
    }
}
