//! What every crate of the host needs to read files strictly and to say what is wrong with them.
//!
//! An error names what is wrong, where ([`Location`], [`Excerpt`]) and what to do about it, a hint. Readers: lines of
//! plain or gzip-compressed text ([`Lines`]), strict YAML ([`yaml`]). [`Page`] writes YAML that people read.

mod excerpt;
mod line_error;
mod lines;
mod location;
mod names;
mod page;
mod unreadable;
pub mod yaml;

pub use excerpt::Excerpt;
pub use line_error::{Fault, LineError, json_fault};
pub use lines::{LINE_BYTES_MAX, Lines, ReadError, display, open};
pub use location::Location;
pub use names::{name_hint, nearest, quoted};
pub use page::{Page, text};
pub use unreadable::unreadable;
