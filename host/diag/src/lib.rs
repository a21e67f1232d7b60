//! Diagnostics and strict readers of files, for all crates of the host.
//!
//! An error is a [`Diagnostic`]: what is wrong, where ([`Location`], [`Excerpt`]) and a hint what to do about it.
//! Parsers of single rows return a [`RowError`], which becomes a diagnostic as soon as file and line are known. All
//! files are opened and bounded in one module ([`read_text`], [`open`]). The readers take lines of plain or gzip-compressed
//! text ([`LineReader`]), JSON objects on lines ([`json_object`]) and strict
//! YAML ([`yaml`]). [`YamlPage`] writes YAML for people; [`wrapped`] fits text into a terminal.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make the files that they read"))]

mod diagnostic;
mod excerpt;
mod input;
mod json;
mod lines;
mod location;
mod names;
mod page;
mod row;
mod unreadable;
mod wrap;
pub mod yaml;

pub use diagnostic::{Diagnose, Diagnostic};
pub use excerpt::Excerpt;
#[cfg(unix)]
pub use input::OpenFolder;
pub use input::{
    decompressed, display, open, open_bounded, open_file, open_input, open_or_stdin, read_bytes, read_stdin, read_text,
};
pub use json::{check_json_object, json_error, json_object, json_words};
pub use lines::{LINE_BYTES_MAX, LineReader, ReadError};
pub use location::Location;
pub use names::{harmless, most_alike, name_hint, nearest, printable, quoted};
pub use page::{YamlPage, text};
pub use row::RowError;
pub use unreadable::unreadable;
pub use wrap::{TEXT_WIDTH, wrapped, wrapped_message};
