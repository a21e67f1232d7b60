//! A host for unit tests of policies.
//!
//! ```
//! use blis_sdk::testing::{Host, with};
//!
//! let host = Host { picks: vec![1], ..Host::default() };
//! let (place, host) = with(host, || blis_sdk::argmin([5, 4, 4]));
//! assert_eq!(place, 2, "the second of the two");
//! assert_eq!(host.asked, [2], "it was asked for one of two");
//! ```

use std::cell::RefCell;
use std::collections::BTreeMap;

/// What the host answers, and what it was asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// Answers to [`crate::pick`], the first one first; 0 when there are no more.
    pub picks: Vec<u32>,
    /// The n of every [`crate::pick`].
    pub asked: Vec<u32>,
    /// Answer to [`crate::prompt_blocks`].
    pub prompt_blocks: Vec<u32>,
    /// Answer to [`crate::changed`].
    pub changed: Option<Vec<u32>>,
    /// Answers to [`crate::text`]; "" for all other names.
    pub texts: BTreeMap<u32, String>,
    /// What was logged: the level by number, and the text.
    pub logged: Vec<(u32, String)>,
    /// The next answer to [`crate::random`]; answers count up.
    pub random: u64,
}

thread_local! {
    static HOST: RefCell<Host> = RefCell::default();
}

/// Runs `test` with `host`; its answer, and what became of the host.
pub fn with<T>(host: Host, test: impl FnOnce() -> T) -> (T, Host) {
    let before = HOST.replace(host);
    let answer = test();
    (answer, HOST.replace(before))
}

/// Asks the host of this thread's test.
pub(crate) fn ask<T>(question: impl FnOnce(&mut Host) -> T) -> T {
    HOST.with_borrow_mut(question)
}

impl Host {
    pub(crate) fn pick(&mut self, n: u32) -> u32 {
        self.asked.push(n);
        if self.picks.is_empty() { 0 } else { self.picks.remove(0) }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.random += 1;
        self.random - 1
    }
}
