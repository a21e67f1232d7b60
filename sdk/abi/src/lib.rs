//! What the host of BLIS and its policies agree on, each defined once: rows and their fields, kinds, bits, and how
//! everything lies in memory.
//!
//! | here | WIT (`sdk/wit/since-v1.0.0/policy.wit`) | C (`sdk/c/blis_policy.h`) |
//! |---|---|---|
//! | [`Request`], [`Instance`], … ([`Row`]) | records of the same names | structs of the same names |
//! | [`Kind`], [`Reads`], [`Events`] | flags | enums of bits |
//! | [`canonical`] | what the canonical ABI makes of parameters and results | |
//! | [`table`] | | the table of functions and what it refers to |
//!
//! The host (`host/plugin`) and the Rust SDK (`sdk/rust`) use these definitions; tests of this crate compare the WIT
//! package and the C header with them. Nothing here may change within a version of the interface.

#![no_std]
#![warn(missing_docs)]

pub mod canonical;
mod layout;
mod rows;
mod sets;
pub mod table;

pub use layout::{Field, Layout, Row};
pub use rows::{
    Ages, Constants, Event, Instance, InstanceInfo, NONE_I32, NONE_U32, NONE_U64, Queued, Request, Running, Step,
};
pub use sets::{EventKind, Events, Kind, Reads};
