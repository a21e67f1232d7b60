// @generated from the tables of sdk/abi: `BLIS_RECORD=1 cargo test -p blis-abi` writes it anew.

//! The functions of kinds in the C table, and a call of each.

#![allow(unsafe_code, reason = "the boundary itself")]

use core::ffi::c_void;

use crate::c_types::{CArguments, CHost, CResult, CText};
use crate::decisions::Function;
use crate::layout::structs;
use crate::rows::{Ages, Band, ChunkOffer, DrainGroup, Event, KvHit, LatencyConstants, PrefillChoice, Queued, Request, RoutedRequest, StartingReplica, Step, StepBudget, StepState};

structs! {
    /// The functions of kinds, in the order in which they were added: hosts accept tables that end after any of them.
    #[derive(Clone, Copy, Debug)]
    pub struct PolicyFunctions {
        /// Admits a request, or rejects it with a reason. The instances have a row each, one after the other, with the
        /// columns that the description lists, in that order.
        pub admit: Option<unsafe extern "C" fn(*const CHost, *mut c_void, *const Request, *const Ages, *const c_void, usize, usize, *mut CText) -> u32>,
        /// The index of the instance of a request. There is at least one. Rows as for admission.
        pub route: Option<unsafe extern "C" fn(*const CHost, *mut c_void, *const Request, *const Ages, *const c_void, usize, usize) -> u32>,
        /// A score for each instance, without a choice. Higher is better. Called just before `route`, and only if
        /// scores are recorded; as a scorer of a pipeline it is called for every request, and `route` is not: numbers
        /// below 0 count as 0, above 1 as 1.
        pub scores: Option<unsafe extern "C" fn(*const CHost, *mut c_void, *const Request, *const Ages, *const c_void, usize, usize, *mut f64)>,
        /// The priority of a request: a higher number goes first.
        pub priority: Option<unsafe extern "C" fn(*const CHost, *mut c_void, *const Request) -> i64>,
        /// The rank of a request in a waiting queue: the smallest is scheduled first. Kept until the request leaves the
        /// queue.
        pub rank: Option<unsafe extern "C" fn(*const CHost, *mut c_void, *const Request, *const Queued) -> f64>,
        /// The index of the victim in the running batch; the number is the index of the request that needs its blocks.
        /// The batch is in the order of admission, and not empty. Called again until the requester has its blocks;
        /// choosing it ends the calls.
        pub victim: Option<unsafe extern "C" fn(*const CHost, *mut c_void, u64, u32, *const c_void, usize, usize) -> u32>,
        /// The constant times of the model. Called once.
        pub constants: Option<unsafe extern "C" fn(*const CHost, *mut c_void, *mut LatencyConstants)>,
        /// The time from arrival to the waiting queue of a request with so many prompt tokens.
        pub queueing_time: Option<unsafe extern "C" fn(*const CHost, *mut c_void, u32) -> u64>,
        /// The duration of an engine step. At least 1 µs. Must depend on the step only.
        pub step_time: Option<unsafe extern "C" fn(*const CHost, *mut c_void, *const Step) -> u64>,
        /// Delivers an event that the policy subscribes to.
        pub observe: Option<unsafe extern "C" fn(*const CHost, *mut c_void, *const Event)>,
        /// A number for each instance: 0 leaves it out. Any other number keeps it. If a filter leaves out all that the
        /// filters before it kept, it keeps them all.
        pub filter: Option<unsafe extern "C" fn(*const CHost, *mut c_void, *const Request, *const Ages, *const c_void, usize, usize, *mut f64)>,
        /// How full the service is: 0 empty, 1 full. More than 1 if it is overloaded; not below 0. Rows as for
        /// admission.
        pub saturation: Option<unsafe extern "C" fn(*const CHost, *mut c_void, u64, *const Ages, *const c_void, usize, usize) -> f64>,
        /// A ceiling for each band; the number is the saturation. Bands are in the order of their priority, the highest
        /// first. A band waits while the saturation is at or above its ceiling, and so do all bands below it.
        pub ceilings: Option<unsafe extern "C" fn(*const CHost, *mut c_void, u64, f64, *const c_void, usize, usize, *mut f64)>,
        /// The index of the flow of a band that is served next; the number is the saturation. Flows are those with
        /// queued requests, in the order of the names of tenants; there is at least one.
        pub fair_pick: Option<unsafe extern "C" fn(*const CHost, *mut c_void, u64, f64, *const Band, *const c_void, usize, usize) -> u32>,
        /// The rank of a request in its flow: the smallest goes first; the number is the time at which it expires. Of
        /// equal ones the one enqueued first. Kept until the request leaves the queue, which it does unserved when it
        /// expires; the largest number if never.
        pub order: Option<unsafe extern "C" fn(*const CHost, *mut c_void, *const Request, u64) -> f64>,
        /// The index of the request that makes room for a band. None evicts none. All requests are of a priority below
        /// 0 and below that of the band that waits, in the order of their dispatch; there is at least one.
        pub evict: Option<unsafe extern "C" fn(*const CHost, *mut c_void, u64, *const Band, *const c_void, usize, usize) -> u32>,
        /// A number of replicas for each group, below 0 for none; the second list has the groups of earlier decisions.
        /// Whole numbers, which count loading and pending replicas and no draining ones. The host applies the limits of
        /// the group, and the stabilization windows and rates of the service. Earlier decisions, up to 20, are in the
        /// order of time: as many rows for each as there are groups.
        pub scale: Option<unsafe extern "C" fn(*const CHost, *mut c_void, u64, *const c_void, usize, *const c_void, usize, usize, *mut f64)>,
        /// The index of the replica that is removed. The replicas are all of the group but those that drain, in the
        /// order in which they were created; there is at least one. Called for each replica that is removed, after the
        /// one before has left the list. An active one drains: it finishes its requests and gets no others; one that
        /// starts is gone at once.
        pub drain: Option<unsafe extern "C" fn(*const CHost, *mut c_void, *const DrainGroup, *const c_void, usize, usize) -> u32>,
        /// The index of the node of a replica; without one it waits. The nodes have room for the replica, in the order
        /// of its pools and of their nodes; at least one of them is ready. With none, or a node that is not ready, the
        /// replica waits, and is placed anew whenever a replica starts or ends and a node comes or goes. A replica that
        /// needs more GPUs than a node has takes the chosen node and the first others of the pool that have room.
        pub placement: Option<unsafe extern "C" fn(*const CHost, *mut c_void, *const StartingReplica, *const c_void, usize, usize) -> u32>,
        /// A rank for each chunk: the smallest is evicted first. Of equal ones the least recently used, as in LRU of
        /// vLLM. The chunks were touched now: stored, used by another request, or their request ended; a rank holds
        /// until the next touch. A LoRA adapter is a chunk of tier 2 or 3: those without a running request are ranked
        /// when one of them has to make room for another.
        pub keep: Option<unsafe extern "C" fn(*const CHost, *mut c_void, u64, *const c_void, usize, usize, *mut f64)>,
        /// For each chunk whether it is stored: 0 is no. The chunks are not in the tier.
        pub store: Option<unsafe extern "C" fn(*const CHost, *mut c_void, *const ChunkOffer, *const c_void, usize, usize, *mut f64)>,
        /// Whether a request loads what was found. If not, it computes it. Called once each time that the request is to
        /// be scheduled and finds something.
        pub load: Option<unsafe extern "C" fn(*const CHost, *mut c_void, *const KvHit) -> u32>,
        /// Where a request is prefilled and decoded; the lists are the instances that decode, and those that prefill.
        /// There is at least one of each. Called once for each request, after the routing policy chose the instance
        /// that decodes it.
        pub disaggregate: Option<unsafe extern "C" fn(*const CHost, *mut c_void, *const RoutedRequest, *const c_void, usize, *const c_void, usize, usize, *mut PrefillChoice)>,
        /// The budget of a step. Must depend on the state only: the host asks once for each state and keeps the budget.
        /// Where no request decodes, at least one token of one request is computed.
        pub budget: Option<unsafe extern "C" fn(*const CHost, *mut c_void, *const StepState, *mut StepBudget)>,
    }
}

impl PolicyFunctions {
    /// None of them.
    pub const NONE: Self = Self {
        admit: None,
        route: None,
        scores: None,
        priority: None,
        rank: None,
        victim: None,
        constants: None,
        queueing_time: None,
        step_time: None,
        observe: None,
        filter: None,
        saturation: None,
        ceilings: None,
        fair_pick: None,
        order: None,
        evict: None,
        scale: None,
        drain: None,
        placement: None,
        keep: None,
        store: None,
        load: None,
        disaggregate: None,
        budget: None,
    };

    /// Whether it has `function`.
    #[must_use]
    pub const fn has(&self, function: Function) -> bool {
        match function {
            Function::Admit => self.admit.is_some(),
            Function::Route => self.route.is_some(),
            Function::Scores => self.scores.is_some(),
            Function::Filter => self.filter.is_some(),
            Function::Priority => self.priority.is_some(),
            Function::Rank => self.rank.is_some(),
            Function::Victim => self.victim.is_some(),
            Function::StepTime => self.step_time.is_some(),
            Function::QueueingTime => self.queueing_time.is_some(),
            Function::Constants => self.constants.is_some(),
            Function::Saturation => self.saturation.is_some(),
            Function::Ceilings => self.ceilings.is_some(),
            Function::FairPick => self.fair_pick.is_some(),
            Function::Order => self.order.is_some(),
            Function::Evict => self.evict.is_some(),
            Function::Scale => self.scale.is_some(),
            Function::Drain => self.drain.is_some(),
            Function::Placement => self.placement.is_some(),
            Function::Keep => self.keep.is_some(),
            Function::Store => self.store.is_some(),
            Function::Load => self.load.is_some(),
            Function::Disaggregate => self.disaggregate.is_some(),
            Function::Budget => self.budget.is_some(),
            #[allow(unreachable_patterns)]
            _ => false,
        }
    }

    /// Calls `function`; `None` if there is none.
    ///
    /// # Safety
    /// The functions are as the header says, `host` and `state` are theirs, and the addresses in `given` are those of rows that
    /// the table of decisions names for `function`, and of room for its results.
    #[inline]
    #[must_use]
    pub unsafe fn call(
        &self,
        function: Function,
        host: *const CHost,
        state: *mut c_void,
        given: &CArguments,
    ) -> Option<CResult> {
        let CArguments { request, ages, now_us, number, row, lists, stride, numbers, result } = *given;
        let [(first, count), (second, others)] = lists;
        let real = f64::from_bits(number);
        // SAFETY: as the caller guarantees.
        Some(unsafe {
            match function {
                Function::Admit => { let mut reason = CText::EMPTY; let admitted = self.admit?(host, state, request, ages, first, count, stride, &raw mut reason); CResult::Admitted(admitted, reason) }
                Function::Route => CResult::Index(self.route?(host, state, request, ages, first, count, stride)),
                Function::Scores => { self.scores?(host, state, request, ages, first, count, stride, numbers); CResult::Written }
                Function::Filter => { self.filter?(host, state, request, ages, first, count, stride, numbers); CResult::Written }
                Function::Priority => CResult::Whole(self.priority?(host, state, request).cast_unsigned()),
                Function::Rank => CResult::Real(self.rank?(host, state, request, row.cast())),
                Function::Victim => CResult::Index(self.victim?(host, state, now_us, number as u32, first, count, stride)),
                Function::StepTime => CResult::Whole(self.step_time?(host, state, row.cast())),
                Function::QueueingTime => CResult::Whole(self.queueing_time?(host, state, number as u32)),
                Function::Constants => { self.constants?(host, state, result.cast()); CResult::Written }
                Function::Saturation => CResult::Real(self.saturation?(host, state, now_us, ages, first, count, stride)),
                Function::Ceilings => { self.ceilings?(host, state, now_us, real, first, count, stride, numbers); CResult::Written }
                Function::FairPick => CResult::Index(self.fair_pick?(host, state, now_us, real, row.cast(), first, count, stride)),
                Function::Order => CResult::Real(self.order?(host, state, request, number)),
                Function::Evict => CResult::Index(self.evict?(host, state, now_us, row.cast(), first, count, stride)),
                Function::Scale => { self.scale?(host, state, now_us, first, count, second, others, stride, numbers); CResult::Written }
                Function::Drain => CResult::Index(self.drain?(host, state, row.cast(), first, count, stride)),
                Function::Placement => CResult::Index(self.placement?(host, state, row.cast(), first, count, stride)),
                Function::Keep => { self.keep?(host, state, now_us, first, count, stride, numbers); CResult::Written }
                Function::Store => { self.store?(host, state, row.cast(), first, count, stride, numbers); CResult::Written }
                Function::Load => CResult::Index(self.load?(host, state, row.cast())),
                Function::Disaggregate => { self.disaggregate?(host, state, row.cast(), first, count, second, others, stride, result.cast()); CResult::Written }
                Function::Budget => { self.budget?(host, state, row.cast(), result.cast()); CResult::Written }
                #[allow(unreachable_patterns)]
                _ => return None,
            }
        })
    }
}
