//! Pages of groups in the fast engine: the pool of the reference engine, and the pages of each request by number.

use std::num::NonZeroU32;

use super::pages::{GroupedKv, PageDemand, PageHit, PageTables};
use crate::numbers::count;

/// The number of the pages of one request.
pub(crate) type PagesNumber = NonZeroU32;

/// The pages of one request, and what the engine has to know of their future.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeldPages {
    pub tables: PageTables,
    /// The step in which it needs the pool next, while it decodes.
    pub next_event: u64,
    /// Its tokens that the last step computed, if it was in prefill.
    pub in_flight: u32,
    /// The first step in which it decodes.
    pub decodes_from: u64,
}

/// The pool of one instance, and the requests that hold some of it.
#[derive(Clone, Debug)]
pub(crate) struct FastPages {
    pub pool: GroupedKv,
    /// By number - 1.
    held: Vec<HeldPages>,
    unused: Vec<PagesNumber>,
}

impl FastPages {
    pub fn new(pool: GroupedKv) -> Self {
        Self { pool, held: Vec::new(), unused: Vec::new() }
    }

    pub fn held(&self, number: PagesNumber) -> &HeldPages {
        &self.held[number.get() as usize - 1]
    }

    pub fn held_mut(&mut self, number: PagesNumber) -> &mut HeldPages {
        &mut self.held[number.get() as usize - 1]
    }

    /// Pages that the demand takes from the free ones, as [`GroupedKv::needs`]. Of a request without pages `hit` is what it claims.
    pub fn needs(
        &self,
        number: Option<PagesNumber>,
        demand: &PageDemand<'_>,
        hit: Option<&PageHit>,
        capped: bool,
    ) -> u32 {
        let (no_tables, no_hit) = (PageTables::default(), PageHit::default());
        let tables = number.map_or(&no_tables, |number| &self.held(number).tables);
        self.pool.needs(tables, demand, hit.unwrap_or(&no_hit), capped)
    }

    /// A request that holds nothing yet takes its first pages. There must be enough free ones.
    pub fn enter(&mut self, demand: &PageDemand<'_>, hit: &PageHit) -> PagesNumber {
        let number = self.unused.pop().unwrap_or_else(|| {
            self.held.push(HeldPages::default());
            PagesNumber::new(count(self.held.len())).expect("one was just added")
        });
        let held = &mut self.held[number.get() as usize - 1];
        (held.next_event, held.in_flight, held.decodes_from) = (0, 0, 0);
        self.pool.take(&mut held.tables, demand, hit);
        number
    }

    /// Gives back what no later token of the request reads.
    pub fn drop_unread(&mut self, number: PagesNumber, finished: u32) {
        self.pool.drop_unread(&mut self.held[number.get() as usize - 1].tables, finished);
    }

    /// A request takes further pages. There must be enough free ones.
    pub fn extend(&mut self, number: PagesNumber, demand: &PageDemand<'_>) {
        let held = &mut self.held[number.get() as usize - 1];
        self.pool.drop_unread(&mut held.tables, demand.finished);
        self.pool.take(&mut held.tables, demand, &PageHit::default());
    }

    /// The first `demand.known` tokens of a request are known: full blocks get hashes.
    pub fn register(&mut self, number: PagesNumber, request: &crate::request::Request, known: u32) {
        self.pool.register(&mut self.held[number.get() as usize - 1].tables, request, known, None);
    }

    pub fn release(&mut self, number: PagesNumber) {
        self.pool.release(&mut self.held[number.get() as usize - 1].tables);
        self.unused.push(number);
    }
}
