//! The document that is parsed, and what holds for all parts of it.

use blis_diag::yaml::{Mark, Spanned};

use super::super::files::Files;
use super::super::raw::RawClient;
use super::super::read::{NumberRange, SpecReader};
use super::super::servegen::ServeGenReading;

/// The document, with access to the files that it refers to.
pub(super) struct Parser<'a> {
    pub reader: SpecReader<'a>,
    pub files: &'a dyn Files,
    pub servegen: ServeGenReading,
}

/// Maximum length of the name of a client, class, group …, bytes.
pub(super) const NAME_MAX: usize = 256;

/// Maximum rate, requests per second: the clock does not resolve higher ones.
pub(super) const RATE_MAX: f64 = 1e9;

pub(super) const RATE: NumberRange =
    NumberRange { fits: |rate| (0.0..=RATE_MAX).contains(&rate), text: "a number from 0 to 1e9" };

/// The location of a client: its id, or the start of its entry.
pub(super) fn client_location(client: &Spanned<RawClient>) -> Mark {
    client.value.id.as_ref().map_or(client.referenced, |id| id.referenced)
}
