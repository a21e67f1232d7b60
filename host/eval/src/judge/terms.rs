//! How a candidate is judged, and by what program: everything but the candidate and the suite that a result follows from.

use std::time::Duration;

use crate::cancel::Pull;
use crate::cascade::Part;
use crate::suite::Split;
use crate::verdict::{Status, Traits, VerdictDocument};

/// How candidates are judged.
#[derive(Clone, Debug)]
pub struct Terms {
    pub until: Split,
    pub epoch: u64,
    pub wall: Duration,
    pub feedback_bytes: usize,
    /// On all threads of the current pool; else one run after the other.
    pub parallel: bool,
    /// In place of all stages.
    pub only: Option<Part>,
    /// Set where they are not the candidate's defaults.
    pub parameters: Vec<(String, f64)>,
    pub native: NativeCode,
}

/// What becomes of native code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NativeCode {
    /// It is not loaded.
    #[default]
    Refused,
    /// It is run in a process of its own, which is killed when time is up.
    InChild,
    /// This is that process.
    Here,
}

/// Of everything that answers may depend on besides the files.
pub fn host() -> String {
    let (version, build) = (env!("CARGO_PKG_VERSION"), crate::BUILD);
    format!("blis {version}+{build} {}-{}", std::env::consts::ARCH, std::env::consts::OS)
}

/// What is said when a hand was pulled before there was a verdict.
pub fn pulled(why: Pull, traits: Traits) -> VerdictDocument {
    let (status, told) = match why {
        Pull::Late => (Status::Limit, "it took too long"),
        Pull::Cancelled => (Status::HostError, "the request was cancelled; the candidate was not judged"),
    };
    let mut document = VerdictDocument::invalid(status, told.to_owned(), traits);
    document.clocked = true;
    document.stopped = (why == Pull::Cancelled).then(|| "cancelled".to_owned());
    document
}
