//! What went wrong in plugins during a simulation: counted, with the first message of each kind.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use blis_sim::cluster::Abort;
use blis_sim::units::Micros;

use super::{Fault, FaultKind, Kind};

/// What to do when a plugin fails in the middle of a simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// The run ends with the plugin's error.
    #[default]
    Fail,
    /// A built-in decides in its place, and the run says how often.
    Fallback,
}

/// The incidents of one simulation, shared by its plugins.
#[derive(Clone, Debug)]
pub struct Incidents {
    on_error: OnError,
    abort: Abort,
    log: Arc<Mutex<Log>>,
}

#[derive(Debug, Default)]
struct Log {
    first: Option<Incident>,
    counts: BTreeMap<(Arc<str>, Kind, FaultKind), Incident>,
}

/// Faults of one kind in one plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incident {
    /// Its name.
    pub plugin: Arc<str>,
    /// What it was asked for.
    pub kind: Kind,
    /// When the first one happened.
    pub at: Micros,
    /// The first one.
    pub fault: Fault,
    /// How many.
    pub count: u64,
}

impl Incidents {
    /// None yet. In a run that fails on errors, the first one sets `abort`.
    #[must_use]
    pub fn new(on_error: OnError, abort: Abort) -> Self {
        Self { on_error, abort, log: Arc::default() }
    }

    /// What to do when a plugin fails.
    #[must_use]
    pub fn on_error(&self) -> OnError {
        self.on_error
    }

    /// The first incident, in the order in which they happened.
    #[must_use]
    pub fn first(&self) -> Option<Incident> {
        self.log().first.clone()
    }

    /// All, by plugin, kind and kind of fault.
    #[must_use]
    pub fn all(&self) -> Vec<Incident> {
        self.log().counts.values().cloned().collect()
    }

    pub(super) fn record(&self, plugin: &Arc<str>, kind: Kind, at: Micros, fault: Fault) {
        if self.on_error == OnError::Fail {
            self.abort.set();
        }
        let mut log = self.log();
        let key = (Arc::clone(plugin), kind, fault.kind);
        if let Some(known) = log.counts.get_mut(&key) {
            known.count += 1;
            return;
        }
        let incident = Incident { plugin: Arc::clone(plugin), kind, at, fault, count: 1 };
        log.first.get_or_insert_with(|| incident.clone());
        log.counts.insert(key, incident);
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        // Nothing in here panics half-way.
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
