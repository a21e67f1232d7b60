//! What every crate of the host needs to read files strictly and to say what is wrong with them.
//!
//! An error is a [`Diagnostic`]: what is wrong, where ([`Location`], [`Excerpt`]) and what to do about it, a hint.
//! Parsers of single rows return a [`RowError`], which becomes one as soon as file and line are known. Readers: lines
//! of plain or gzip-compressed text ([`Lines`]), JSON objects on them ([`json_object`]), strict YAML ([`yaml`]).
//! [`Page`] writes YAML that people read.

mod diagnostic;
mod excerpt;
mod json;
mod lines;
mod location;
mod names;
mod page;
mod row;
mod unreadable;
pub mod yaml;

pub use diagnostic::{Diagnose, Diagnostic};
pub use excerpt::Excerpt;
pub use json::{check_json_object, json_error, json_object, json_words};
pub use lines::{LINE_BYTES_MAX, Lines, ReadError, display, open};
pub use location::Location;
pub use names::{most_alike, name_hint, nearest, quoted};
pub use page::{Page, text};
pub use row::RowError;
pub use unreadable::unreadable;
