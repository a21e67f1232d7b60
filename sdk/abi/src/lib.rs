//! The interface between the host of BLIS and policies, each part defined once: rows and their fields, columns, kinds,
//! events, and the layout of all that in memory.
//!
//! | here | WIT (`sdk/wit/since-v1.1.0/policy.wit`) | C (`sdk/c/blis_policy.h`) |
//! |---|---|---|
//! | [`Request`], [`Running`], … ([`Row`]) | records of the same names | structs of the same names |
//! | [`Kind`], [`Column`], [`EventSet`] | names: lists of strings | names: arrays of texts |
//! | [`canonical`] | parameters and results by the canonical ABI | |
//! | [`table`] | | the table of functions and the structs that it uses |
//!
//! The host (`host/plugin`) and the Rust SDK (`sdk/rust`) use these definitions; tests of this crate compare the WIT
//! package and the C header with them. A released version of the interface never changes.

#![no_std]
#![warn(missing_docs)]

mod c_types;
pub mod canonical;
mod columns;
pub mod decisions;
#[rustfmt::skip]
mod functions;
mod layout;
pub mod rows;
mod sets;
pub mod table;

pub use columns::{Column, ColumnGroup};
pub use decisions::{Function, Kind};
pub use layout::{AnyRows, Field, Layout, NumberMeaning, NumberUnit, Primitive, Row, RowShape, RowVisitor};
pub use rows::*;
pub use sets::{EventKind, EventSet};
