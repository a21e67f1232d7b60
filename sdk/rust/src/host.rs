//! What a policy may ask the host for. Every answer is the same in every run with the same seed.
//!
//! The functions work while the host asks the policy something, and only on the thread that it asks on.
//! In tests the answers come from [`crate::testing`].

#[cfg(not(target_arch = "wasm32"))]
use crate::export::native as backend;
#[cfg(target_arch = "wasm32")]
use crate::export::wasm as backend;

/// How important a line of the log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Level {
    /// Something is wrong.
    Error = 0,
    /// Something may be wrong.
    Warning = 1,
    /// Worth knowing.
    Information = 2,
    /// For whoever looks for something.
    Detail = 3,
}

/// A line for the log of the run. Long texts are cut, and after some hundred lines the rest is only
/// counted. [`crate::log!`] and [`crate::warn!`] take a format.
pub fn log(level: Level, message: &str) {
    backend::log(level as u32, message);
}

/// The next number of the policy's own stream, which depends on the seed, the request and how often it
/// was asked during this call.
#[must_use]
pub fn random() -> u64 {
    backend::random()
}

/// One of `n` ≥ 1 equally good choices, 0 to n - 1: what a built-in policy would take.
#[must_use]
pub fn pick(n: u32) -> u32 {
    backend::pick(n)
}

/// The leading blocks of the prompt that may equal blocks of other requests, by number; of the request
/// being decided about.
#[must_use]
pub fn prompt_blocks() -> Vec<u32> {
    backend::prompt_blocks()
}

/// The text of a name: of a service class, a tenant, a session … "" is the text of 0.
#[must_use]
pub fn text(name: u32) -> String {
    backend::text(name)
}

/// What may have changed since the decision before: gives `look` the places in `cluster.instances` of those that
/// may differ from what `admit` or `route` saw then, in any order, some perhaps twice; `None` if any may, as at the
/// first decision of a state that is new, restored or a copy.
///
/// So a policy can keep what it made of the instances, in a field that is `#[serde(skip)]`, and look at a few of
/// them. Such a policy asks at every decision: what it is not told at one, it is never told.
///
/// ```
/// # use blis_sdk::{Cluster, Instance};
/// struct Loads(Vec<u64>);
///
/// impl Loads {
///     fn follow(&mut self, cluster: &Cluster<'_>) {
///         blis_sdk::changed(|places| match places {
///             Some(places) if self.0.len() == cluster.instances.len() => {
///                 for &place in places {
///                     self.0[place as usize] = cluster.instances[place as usize].effective_load();
///                 }
///             }
///             _ => self.0 = cluster.instances.iter().map(Instance::effective_load).collect(),
///         });
///     }
/// }
/// ```
pub fn changed<T>(look: impl FnOnce(Option<&[u32]>) -> T) -> T {
    backend::changed(look)
}

/// A line for the log of the run, written as for `format!`.
#[macro_export]
macro_rules! log {
    ($($text:tt)+) => { $crate::log($crate::Level::Information, &::std::format!($($text)+)) };
}

/// A warning for the log of the run, written as for `format!`.
#[macro_export]
macro_rules! warn {
    ($($text:tt)+) => { $crate::log($crate::Level::Warning, &::std::format!($($text)+)) };
}
