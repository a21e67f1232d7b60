//! Faults of plugins during a simulation: a count and the first message for each kind of fault.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use blis_sim::cluster::Abort;
use blis_sim::units::Micros;

use super::{Fault, FaultKind, Kind};

/// What the simulation does when a plugin fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// The run ends with the plugin's error.
    #[default]
    Fail,
    /// A built-in policy makes the decision instead, and the results count these decisions.
    Fallback,
}

/// The incidents of one simulation, shared by its plugins.
#[derive(Clone, Debug)]
pub struct Incidents {
    on_error: OnError,
    abort: Abort,
    log: Arc<Mutex<IncidentLog>>,
    meter: Option<Arc<Meter>>,
}

/// The resources that all plugins of a simulation have used together, in all their functions.
#[derive(Debug, Default)]
pub struct Meter {
    decisions: AtomicU64,
    used: AtomicU64,
    most: u64,
}

impl Meter {
    /// Number of decisions that plugins were called for.
    #[must_use]
    pub fn decisions(&self) -> u64 {
        self.decisions.load(Ordering::Relaxed)
    }

    /// Fuel or operations used so far, by decisions, events, starts and copies.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

/// The purpose of a call whose use is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MeteredCall {
    Decision,
    /// An event, the start of a guest, or a copy of it.
    Other,
}

#[derive(Debug, Default)]
struct IncidentLog {
    first: Option<Incident>,
    counts: BTreeMap<(Arc<str>, Kind, FaultKind), Incident>,
}

/// The faults of one kind in one plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incident {
    /// The name of the plugin.
    pub plugin: Arc<str>,
    /// The kind of decision.
    pub kind: Kind,
    /// Simulated time of the first fault.
    pub at: Micros,
    pub fault: Fault,
    /// Number of faults of this kind.
    pub count: u64,
}

impl Incidents {
    /// No incidents yet. In a run that fails on errors, the first incident sets `abort`.
    #[must_use]
    pub fn new(on_error: OnError, abort: Abort) -> Self {
        Self { on_error, abort, log: Arc::default(), meter: None }
    }

    /// Limits all plugins together to `most` fuel or operations, and measures their use.
    #[must_use]
    pub fn metered(self, most: u64) -> Self {
        Self { meter: Some(Arc::new(Meter { most, ..Meter::default() })), ..self }
    }

    /// The meter, if use is measured.
    #[must_use]
    pub fn meter(&self) -> Option<&Meter> {
        self.meter.as_deref()
    }

    /// Adds the use of a call; returns the limit if the total now exceeds it.
    pub(super) fn charge(&self, call: MeteredCall, used: impl FnOnce() -> Option<u64>) -> Option<u64> {
        let meter = self.meter.as_deref()?;
        if call == MeteredCall::Decision {
            meter.decisions.fetch_add(1, Ordering::Relaxed);
        }
        let used = used()?;
        let before = meter.used.fetch_add(used, Ordering::Relaxed);
        (before.saturating_add(used) > meter.most).then_some(meter.most)
    }

    /// Whether the plugins have used more than they may.
    pub(super) fn is_used_up(&self) -> bool {
        self.meter.as_deref().is_some_and(|meter| meter.used() > meter.most)
    }

    /// What the simulation does when a plugin fails.
    #[must_use]
    pub fn on_error(&self) -> OnError {
        self.on_error
    }

    /// The first incident in simulated order.
    #[must_use]
    pub fn first(&self) -> Option<Incident> {
        self.log().first.clone()
    }

    /// All incidents, sorted by plugin, kind and kind of fault.
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

    fn log(&self) -> MutexGuard<'_, IncidentLog> {
        // No code panics while it holds the lock, so the content is consistent even after poisoning.
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
