//! What policies see: the rows of `blis-abi`, which the host writes and policies read where they lie.
//!
//! All times are microseconds of simulated time. Names (classes, tenants, sessions, models …) are
//! numbers; equal names have equal numbers, 0 is "not said", and [`crate::text`] gives the text. Where
//! a number may be missing, the field holds a number that says so and a method returns an `Option`.

pub use blis_abi::{Ages, Constants, Event, EventKind, Instance, InstanceInfo, Queued, Request, Running, Step};

/// The instances at a decision, of which there is at least one.
#[derive(Clone, Copy, Debug)]
pub struct Cluster<'a> {
    /// How old the signals are.
    pub ages: Ages,
    /// What is known of each.
    pub instances: &'a [Instance],
}
