//! The functions of the host that a policy may call. Their results are the same in every run with the same seed.
//!
//! They work during a call of the policy by the host, and only on the thread of that call. In tests their results come
//! from [`crate::testing`].

#[cfg(not(target_arch = "wasm32"))]
use crate::export::native as backend;
#[cfg(target_arch = "wasm32")]
use crate::export::wasm as backend;

/// Severity of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Level {
    /// Something is wrong and affects results.
    Error = 0,
    /// Something is suspicious but may be right.
    Warning = 1,
    /// Normal information about the run.
    Information = 2,
    /// Details for debugging a policy.
    Detail = 3,
}

/// Writes a line to the log of the run. Long texts are cut, and after some hundred lines further lines are only
/// counted. [`crate::log!`] and [`crate::warn!`] take a format.
pub fn log(level: Level, message: &str) {
    backend::log(level as u32, message);
}

/// The next number of the policy's own stream, which depends on the seed, the request and the number of draws in this
/// call.
#[must_use]
pub fn random() -> u64 {
    backend::random()
}

/// One of `n` ≥ 1 equally good choices, 0 to n - 1: the one that a built-in policy would take.
#[must_use]
pub fn pick(n: u32) -> u32 {
    backend::pick(n)
}

/// Ids of the leading blocks of the prompt that may be equal to blocks of other requests, for the request of the
/// current decision.
#[must_use]
pub fn prompt_blocks() -> Vec<u32> {
    backend::prompt_blocks()
}

/// The text of a name: of a service class, a tenant, a session … "" is the text of 0.
#[must_use]
pub fn text(name: u32) -> String {
    backend::text(name)
}

/// Passes to `look` the indices in `cluster.instances` of the instances that may differ from those of the previous
/// `admit` or `route`, in any order and possibly repeated; `None` if any may differ, as at the first decision of a
/// state that is new, restored or a copy.
///
/// With it a policy can keep values derived from the instances in a `#[serde(skip)]` field, and update only a few of
/// them. Such a policy must call it at every decision, because each call covers the changes since the previous decision
/// only.
///
/// ```
/// # use blis_sdk::Cluster;
/// blis_sdk::signals! {
///     struct Load { queue_depth, in_flight }
/// }
///
/// struct Loads(Vec<f64>);
///
/// impl Loads {
///     fn follow(&mut self, cluster: &Cluster<'_, Load>) {
///         let load = |instance: &Load| instance.queue_depth + instance.in_flight;
///         blis_sdk::changed(|indices| match indices {
///             Some(indices) if self.0.len() == cluster.instances.len() => {
///                 for &index in indices {
///                     self.0[index as usize] = load(&cluster.instances[index as usize]);
///                 }
///             }
///             _ => self.0 = cluster.instances.iter().map(load).collect(),
///         });
///     }
/// }
/// ```
pub fn changed<T>(look: impl FnOnce(Option<&[u32]>) -> T) -> T {
    backend::changed(look)
}

/// Writes a line to the log of the run; arguments as for `format!`.
#[macro_export]
macro_rules! log {
    ($($text:tt)+) => { $crate::log($crate::Level::Information, &::std::format!($($text)+)) };
}

/// Writes a warning to the log of the run; arguments as for `format!`.
#[macro_export]
macro_rules! warn {
    ($($text:tt)+) => { $crate::log($crate::Level::Warning, &::std::format!($($text)+)) };
}
