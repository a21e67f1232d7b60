//! The inputs of policies: the rows of `blis-abi`, which the host writes and policies read without a copy.
//!
//! All times are microseconds of simulated time. Names (classes, tenants, sessions, models …) are numbers: equal names
//! have equal numbers, 0 is an unspecified name, and [`crate::text`] returns the text. A number that may be missing has
//! a reserved value for that case, and a method that returns an `Option`.

pub use blis_abi::{
    Event, EventKind, Instance, InstanceInfo, LatencyConstants, Queued, Request, Running, Staleness, Step,
};

/// The instances at a decision; there is at least one, except for admission.
#[derive(Clone, Copy, Debug)]
pub struct Cluster<'a> {
    /// Staleness of the signals, µs.
    pub staleness: Staleness,
    /// The signals of each instance, in the order of their ids.
    pub instances: &'a [Instance],
}
