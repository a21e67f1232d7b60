//! A mistake in the input of a user: what is wrong, where, and a hint what to do about it.
//!
//! Every error of the host that a user reads is a [`Diagnostic`] or makes one ([`Diagnose`]). What it shows is harmless to a terminal,
//! whatever its parts hold: names and texts of files, candidates and peers are among them.
//! Its parts are fields:
//! code that shows one part, or adds to it, uses the field. Only [`Display`] puts the parts together:
//!
//! ```text
//! policy.yaml:2:11: unknown routing policy `wieghted`
//!   2 |   policy: wieghted
//!     |           ^^^^^^^^
//! hint: did you mean `weighted`?
//! ```

use std::fmt::{self, Display};

use serde::{Deserialize, Serialize};

use crate::{Excerpt, Location, harmless};

/// A mistake in the input of a user, with its location and a hint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnostic {
    pub what: String,
    /// Location of the mistake, if it is in a file.
    pub location: Option<Location>,
    /// Lines that follow `what`: the line of the file with carets under the mistake, or a stack trace.
    pub excerpt: Option<Box<str>>,
    /// What the user can do about it.
    pub hint: Option<String>,
}

/// An error that a user reads.
pub trait Diagnose {
    /// What is wrong, where, and what to do about it.
    fn diagnostic(&self) -> Diagnostic;
}

impl Diagnostic {
    /// A mistake without location and hint, which can be added.
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), location: None, excerpt: None, hint: None }
    }

    /// A mistake at `location` of a file with the content `text`; the excerpt shows the line.
    pub fn in_text(location: Location, text: &str, what: impl Into<String>) -> Self {
        let excerpt = Excerpt::at(text, &location).map(|excerpt| excerpt.to_string().into());
        Self { excerpt, ..Self::new(what).at(location) }
    }

    #[must_use]
    pub fn at(self, location: Location) -> Self {
        Self { location: Some(location), ..self }
    }

    /// Sets the hint: what the user can do about it.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// Sets the hint, unless there is one.
    #[must_use]
    pub fn or_hint(self, hint: impl Into<String>) -> Self {
        if self.hint.is_some() { self } else { self.hint(hint) }
    }

    /// Location and mistake, without excerpt and hint: for a text that continues after it.
    pub fn headline(&self) -> impl Display {
        fmt::from_fn(|f| match &self.location {
            Some(location) => write!(f, "{}: {}", harmless(&location.to_string()), harmless(&self.what)),
            None => f.write_str(&harmless(&self.what)),
        })
    }

    /// Everything except the hint.
    pub fn without_hint(&self) -> impl Display {
        let excerpt = self.excerpt.as_deref().unwrap_or_default();
        fmt::from_fn(move |f| write!(f, "{}{}", self.headline(), harmless(excerpt)))
    }
}

impl Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.without_hint())?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(f, "\nhint: {}", harmless(hint)))
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
    fn no_part_reaches_a_terminal_as_it_is() {
        let evil = "a\u{1b}]0;owned\u{7}\u{9b}2J\r\u{202e}b";
        let mut diagnostic = Diagnostic::new(evil).at(Location::file(evil)).hint(evil);
        diagnostic.excerpt = Some(format!("\n  {evil}").into());
        let text = format!("{diagnostic}\n{}\n{}", diagnostic.headline(), diagnostic.without_hint());
        let obeyed = |c: char| c != '\n' && (c.is_control() || matches!(c, '\u{202a}'..='\u{202e}'));
        assert!(!text.contains(obeyed), "{text:?}");
        assert!(text.contains("\\u{1b}]0;owned") && text.contains("\n  a"), "{text}");
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
