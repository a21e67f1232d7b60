//! Requests dispatched to an instance and not yet completed: the only signal that the router counts itself. `column` is
//! the count by instance, [`Signals::in_flight`](crate::policy::Signals::in_flight).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::ids::InstanceIndex;
use crate::limits::IN_FLIGHT_CHANGES;
use crate::outcome::{Outcome, Status};
use crate::policy::{Changes, Reads};
use crate::request::Name;
use crate::units::Micros;

/// Counts of requests in flight, by instance and by tenant.
#[derive(Clone, Debug, Default)]
pub(super) struct InFlightCounter {
    /// Requests in flight, indexed by tenant name; grows when tenants appear.
    pub by_tenant: Vec<u32>,
    /// Requests that will be complete in the future: (time, instance, tenant).
    ending: BinaryHeap<Reverse<(Micros, InstanceIndex, Name)>>,
    /// [`Semantics::completed_at_step_start`](crate::semantics::Semantics::completed_at_step_start).
    at_step_start: bool,
    counting: bool,
    /// The entries of the column that changed last, the latest last, after `changes_before` other changes.
    changes: Vec<u32>,
    changes_before: u64,
}

impl InFlightCounter {
    pub fn new(at_step_start: bool) -> Self {
        Self { at_step_start, ..Self::default() }
    }

    /// Counts only if the signal is read.
    pub fn start(&mut self, reads: Reads) {
        self.counting = reads.in_flight;
    }

    /// Counts a request of `tenant` that is dispatched to `instance`.
    pub fn dispatched(&mut self, column: &mut [u32], instance: InstanceIndex, tenant: Name) {
        if !self.counting {
            return;
        }
        column[instance.index()] += 1;
        self.changed(instance);
        if tenant != Name::NONE {
            if self.by_tenant.len() <= tenant.index() {
                self.by_tenant.resize(tenant.index() + 1, 0);
            }
            self.by_tenant[tenant.index()] += 1;
        }
    }

    /// Removes the requests that were complete before `now`.
    pub fn catch_up(&mut self, column: &mut [u32], now: Micros) {
        while let Some(&Reverse((at, instance, tenant))) = self.ending.peek()
            && at < now
        {
            self.ending.pop();
            self.end(column, instance, tenant);
        }
    }

    /// When the next of the requests that have ended is complete; [`Micros::MAX`] if all are.
    pub fn next_end(&self) -> Micros {
        self.ending.peek().map_or(Micros::MAX, |&Reverse((at, ..))| at)
    }

    /// Removes a request that ended, now or when its output will be complete.
    pub fn ended(&mut self, column: &mut [u32], outcome: &Outcome) {
        let Some(instance) = outcome.instance.filter(|_| self.counting) else { return };
        match (outcome.status, outcome.e2e) {
            (Status::Queued | Status::Running | Status::Arriving | Status::InGateway, _) => {}
            (_, Some(e2e)) if !self.at_step_start => {
                self.ending.push(Reverse((outcome.arrival.saturating_add(e2e), instance, outcome.tags.tenant)));
            }
            _ => self.end(column, instance, outcome.tags.tenant),
        }
    }

    /// Removes a request of `tenant` that leaves `instance` now.
    pub fn left(&mut self, column: &mut [u32], instance: InstanceIndex, tenant: Name) {
        if self.counting {
            self.end(column, instance, tenant);
        }
    }

    /// The recent changes of the counts by instance, and of the other columns of the router.
    pub fn changes(&self) -> Changes<'_> {
        Changes::new(self.changes_before, &self.changes)
    }

    /// Records that a column of the router changed for `instance`.
    pub fn changed(&mut self, instance: InstanceIndex) {
        if self.changes.len() == 2 * IN_FLIGHT_CHANGES {
            self.changes.drain(..IN_FLIGHT_CHANGES);
            self.changes_before += IN_FLIGHT_CHANGES as u64;
        }
        self.changes.push(instance.0);
    }

    fn end(&mut self, column: &mut [u32], instance: InstanceIndex, tenant: Name) {
        column[instance.index()] -= 1;
        self.changed(instance);
        if tenant != Name::NONE {
            self.by_tenant[tenant.index()] -= 1;
        }
    }
}
