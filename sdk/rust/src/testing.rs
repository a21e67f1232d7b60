//! A host for unit tests of policies.
//!
//! ```
//! use blis_sdk::testing::{Host, with};
//!
//! let host = Host { picks: vec![1], ..Host::default() };
//! let (index, host) = with(host, || blis_sdk::argmin([5, 4, 4]));
//! assert_eq!(index, 2, "the second of the two");
//! assert_eq!(host.pick_sizes, [2], "one call of pick, with two choices");
//! ```

use std::cell::RefCell;
use std::collections::BTreeMap;

/// The results of host functions in a test, and a record of the calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// Results of [`crate::pick`], the first one first; 0 when there are no more.
    pub picks: Vec<u32>,
    /// The n of every call of [`crate::pick`].
    pub pick_sizes: Vec<u32>,
    /// Result of [`crate::prompt_blocks`]: block ids.
    pub prompt_blocks: Vec<u32>,
    /// Result of [`crate::changed`]: indices of instances.
    pub changed: Option<Vec<u32>>,
    /// Results of [`crate::text`]; "" for all other names.
    pub texts: BTreeMap<u32, String>,
    /// Lines that the policy logged: the level by number, and the text.
    pub logged: Vec<(u32, String)>,
    /// The next result of [`crate::random`]; results count up.
    pub random: u64,
}

thread_local! {
    static HOST: RefCell<Host> = RefCell::default();
}

/// Runs `test` with `host`; returns the result of `test` and the host afterwards.
pub fn with<T>(host: Host, test: impl FnOnce() -> T) -> (T, Host) {
    let before = HOST.replace(host);
    let result = test();
    (result, HOST.replace(before))
}

/// Calls a function of the host of this thread's test.
pub(crate) fn call<T>(function: impl FnOnce(&mut Host) -> T) -> T {
    HOST.with_borrow_mut(function)
}

impl Host {
    pub(crate) fn pick(&mut self, n: u32) -> u32 {
        self.pick_sizes.push(n);
        if self.picks.is_empty() { 0 } else { self.picks.remove(0) }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.random += 1;
        self.random - 1
    }
}
