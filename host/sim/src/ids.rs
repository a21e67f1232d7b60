//! Numbers of requests and of instances, each a type of its own: neither can be passed for the other, nor for a count.

use crate::numbers::count;
use std::fmt::{self, Display};

/// Index of a request in the workload; written as `request_<id>`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct RequestId(pub u32);

impl RequestId {
    /// Index of the request in a column over requests.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The next id; `None` behind the last one.
    #[must_use]
    pub fn next(self) -> Option<Self> {
        self.0.checked_add(1).map(Self)
    }
}

impl Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Index of an instance in the cluster, from 0; written as `instance_<index>`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct InstanceIndex(pub u32);

impl InstanceIndex {
    /// The instance at `index` of a column over instances. A cluster has fewer than 2³² of them.
    #[inline]
    #[must_use]
    pub const fn at(index: usize) -> Self {
        debug_assert!(index <= u32::MAX as usize, "a cluster has fewer than 2^32 instances");
        Self(count(index))
    }

    /// Index of the instance in a column over instances.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl Display for InstanceIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
