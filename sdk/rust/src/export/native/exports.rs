// @generated from the tables of sdk/abi: `BLIS_RECORD=1 cargo test -p blis-abi` writes it anew.

//! The functions of kinds in the table of a native library.

use std::ffi::c_void;

use blis_abi::table::{CHost, CText, PolicyFunctions};

use super::{NativeTable, rows, with_policy};
use crate::policy::{Admission, Routing, Filter, Priority, Scheduling, Preemption, Latency, Saturation, Ceilings, Fairness, Ordering, Eviction, Scaling, Drain, Placement, KvCache, Disaggregation, Batching, Lifecycle, Policy};
use crate::rows::{Cluster, Ages, Band, ChunkOffer, DrainGroup, Event, Flow, Group, InFlight, KvChunk, KvHit, LatencyConstants, Node, PoolInstance, PrefillChoice, Queued, Replica, Request, RoutedRequest, Running, StartingReplica, Step, StepBudget, StepState};

/// Adds the functions of a kind; each method has the name of its trait.
#[allow(non_snake_case, missing_docs)]
impl<P: Policy> NativeTable<P> {
    pub const fn Admission(self) -> Self
    where
        P: Admission,
    {
        let functions = PolicyFunctions { admit: Some(admit::<P>), ..self.functions() };
        self.with(functions)
    }

    pub const fn Routing(self) -> Self
    where
        P: Routing,
    {
        let functions = PolicyFunctions { route: Some(route::<P>), scores: Some(scores::<P>), ..self.functions() };
        self.with(functions)
    }

    pub const fn Filter(self) -> Self
    where
        P: Filter,
    {
        let functions = PolicyFunctions { filter: Some(filter::<P>), ..self.functions() };
        self.with(functions)
    }

    pub const fn Priority(self) -> Self
    where
        P: Priority,
    {
        let functions = PolicyFunctions { priority: Some(priority::<P>), ..self.functions() };
        self.with(functions)
    }

    pub const fn Scheduling(self) -> Self
    where
        P: Scheduling,
    {
        let functions = PolicyFunctions { rank: Some(rank::<P>), ..self.functions() };
        self.with(functions)
    }

    pub const fn Preemption(self) -> Self
    where
        P: Preemption,
    {
        let functions = PolicyFunctions { victim: Some(victim::<P>), ..self.functions() };
        self.with(functions)
    }

    pub const fn Latency(self) -> Self
    where
        P: Latency,
    {
        let functions = PolicyFunctions { step_time: Some(step_time::<P>), queueing_time: Some(queueing_time::<P>), constants: Some(constants::<P>), ..self.functions() };
        self.with(functions)
    }

    pub const fn Saturation(self) -> Self
    where
        P: Saturation,
    {
        let functions = PolicyFunctions { saturation: Some(saturation::<P>), ..self.functions() };
        self.with(functions)
    }

    pub const fn Ceilings(self) -> Self
    where
        P: Ceilings,
    {
        let functions = PolicyFunctions { ceilings: Some(ceilings::<P>), ..self.functions() };
        self.with(functions)
    }

    pub const fn Fairness(self) -> Self
    where
        P: Fairness,
    {
        let functions = PolicyFunctions { fair_pick: Some(fair_pick::<P>), ..self.functions() };
        self.with(functions)
    }

    pub const fn Ordering(self) -> Self
    where
        P: Ordering,
    {
        let functions = PolicyFunctions { order: Some(order::<P>), ..self.functions() };
        self.with(functions)
    }

    pub const fn Eviction(self) -> Self
    where
        P: Eviction,
    {
        let functions = PolicyFunctions { evict: Some(evict::<P>), ..self.functions() };
        self.with(functions)
    }

    pub const fn Scaling(self) -> Self
    where
        P: Scaling,
    {
        let functions = PolicyFunctions { scale: Some(scale::<P>), ..self.functions() };
        self.with(functions)
    }

    pub const fn Drain(self) -> Self
    where
        P: Drain,
    {
        let functions = PolicyFunctions { drain: Some(drain::<P>), ..self.functions() };
        self.with(functions)
    }

    pub const fn Placement(self) -> Self
    where
        P: Placement,
    {
        let functions = PolicyFunctions { placement: Some(placement::<P>), ..self.functions() };
        self.with(functions)
    }

    pub const fn KvCache(self) -> Self
    where
        P: KvCache,
    {
        let functions = PolicyFunctions { keep: Some(keep::<P>), store: Some(store::<P>), load: Some(load::<P>), ..self.functions() };
        self.with(functions)
    }

    pub const fn Disaggregation(self) -> Self
    where
        P: Disaggregation,
    {
        let functions = PolicyFunctions { disaggregate: Some(disaggregate::<P>), ..self.functions() };
        self.with(functions)
    }

    pub const fn Batching(self) -> Self
    where
        P: Batching,
    {
        let functions = PolicyFunctions { budget: Some(budget::<P>), ..self.functions() };
        self.with(functions)
    }

    pub const fn Lifecycle(self) -> Self
    where
        P: Lifecycle,
    {
        let functions = PolicyFunctions { observe: Some(observe::<P>), ..self.functions() };
        self.with(functions)
    }

}

unsafe extern "C" fn admit<P: Admission>(host: *const CHost, state: *mut c_void, request: *const Request, ages: *const Ages, instances: *const c_void, count: usize, stride: usize, reason: *mut CText) -> u32 {
    // SAFETY: the host's arguments.
    unsafe {
        super::reason(host, state, reason, |policy: &mut P| {
            let instances = rows::<P::Signals>(instances, count, stride);
            let cluster = Cluster { ages: *ages, instances: &instances };
            policy.admit(&*request, &cluster)
        })
    }
}

unsafe extern "C" fn route<P: Routing>(host: *const CHost, state: *mut c_void, request: *const Request, ages: *const Ages, instances: *const c_void, count: usize, stride: usize) -> u32 {
    // SAFETY: the host's arguments.
    unsafe {
        super::index(host, state, |policy: &mut P| {
            let instances = rows::<P::Signals>(instances, count, stride);
            let cluster = Cluster { ages: *ages, instances: &instances };
            policy.route(&*request, &cluster)
        })
    }
}

unsafe extern "C" fn scores<P: Routing>(host: *const CHost, state: *mut c_void, request: *const Request, ages: *const Ages, instances: *const c_void, count: usize, stride: usize, result: *mut f64) {
    // SAFETY: the host's arguments.
    unsafe {
        super::numbers(host, state, "instances", count, result, |policy: &mut P, numbers| {
            let instances = rows::<P::Signals>(instances, count, stride);
            let cluster = Cluster { ages: *ages, instances: &instances };
            policy.scores(&*request, &cluster, numbers);
        });
    }
}

unsafe extern "C" fn filter<P: Filter>(host: *const CHost, state: *mut c_void, request: *const Request, ages: *const Ages, instances: *const c_void, count: usize, stride: usize, result: *mut f64) {
    // SAFETY: the host's arguments.
    unsafe {
        super::numbers(host, state, "instances", count, result, |policy: &mut P, numbers| {
            let instances = rows::<P::Signals>(instances, count, stride);
            let cluster = Cluster { ages: *ages, instances: &instances };
            policy.filter(&*request, &cluster, numbers);
        });
    }
}

unsafe extern "C" fn priority<P: Priority>(host: *const CHost, state: *mut c_void, request: *const Request) -> i64 {
    // SAFETY: the host's arguments.
    unsafe {
        super::number(host, state, |policy: &mut P| {
            policy.priority(&*request)
        })
    }
}

unsafe extern "C" fn rank<P: Scheduling>(host: *const CHost, state: *mut c_void, request: *const Request, queued: *const Queued) -> f64 {
    // SAFETY: the host's arguments.
    unsafe {
        super::number(host, state, |policy: &mut P| {
            policy.rank(&*request, &*queued)
        })
    }
}

unsafe extern "C" fn victim<P: Preemption>(host: *const CHost, state: *mut c_void, now_us: u64, requester: u32, batch: *const c_void, batch_count: usize, stride: usize) -> u32 {
    // SAFETY: the host's arguments.
    unsafe {
        super::index(host, state, |policy: &mut P| {
            let batch = rows::<Running>(batch, batch_count, stride);
            policy.victim(now_us, requester as _, &batch)
        })
    }
}

unsafe extern "C" fn step_time<P: Latency>(host: *const CHost, state: *mut c_void, step: *const Step) -> u64 {
    // SAFETY: the host's arguments.
    unsafe {
        super::number(host, state, |policy: &mut P| {
            policy.step_time(&*step)
        })
    }
}

unsafe extern "C" fn queueing_time<P: Latency>(host: *const CHost, state: *mut c_void, input_tokens: u32) -> u64 {
    // SAFETY: the host's arguments.
    unsafe {
        super::number(host, state, |policy: &mut P| {
            policy.queueing_time(input_tokens as _)
        })
    }
}

unsafe extern "C" fn constants<P: Latency>(host: *const CHost, state: *mut c_void, result: *mut LatencyConstants) {
    // SAFETY: the host's arguments.
    unsafe {
        super::record(host, state, result, |policy: &mut P| {
            policy.constants()
        });
    }
}

unsafe extern "C" fn saturation<P: Saturation>(host: *const CHost, state: *mut c_void, now_us: u64, ages: *const Ages, instances: *const c_void, count: usize, stride: usize) -> f64 {
    // SAFETY: the host's arguments.
    unsafe {
        super::number(host, state, |policy: &mut P| {
            let instances = rows::<P::Signals>(instances, count, stride);
            let cluster = Cluster { ages: *ages, instances: &instances };
            policy.saturation(now_us, &cluster)
        })
    }
}

unsafe extern "C" fn ceilings<P: Ceilings>(host: *const CHost, state: *mut c_void, now_us: u64, saturation: f64, bands: *const c_void, bands_count: usize, stride: usize, result: *mut f64) {
    // SAFETY: the host's arguments.
    unsafe {
        super::numbers(host, state, "bands", bands_count, result, |policy: &mut P, numbers| {
            let bands = rows::<Band>(bands, bands_count, stride);
            policy.ceilings(now_us, saturation, &bands, numbers);
        });
    }
}

unsafe extern "C" fn fair_pick<P: Fairness>(host: *const CHost, state: *mut c_void, now_us: u64, saturation: f64, band: *const Band, flows: *const c_void, flows_count: usize, stride: usize) -> u32 {
    // SAFETY: the host's arguments.
    unsafe {
        super::index(host, state, |policy: &mut P| {
            let flows = rows::<Flow>(flows, flows_count, stride);
            policy.fair_pick(now_us, saturation, &*band, &flows)
        })
    }
}

unsafe extern "C" fn order<P: Ordering>(host: *const CHost, state: *mut c_void, request: *const Request, expires_us: u64) -> f64 {
    // SAFETY: the host's arguments.
    unsafe {
        super::number(host, state, |policy: &mut P| {
            policy.order(&*request, expires_us)
        })
    }
}

unsafe extern "C" fn evict<P: Eviction>(host: *const CHost, state: *mut c_void, now_us: u64, demand: *const Band, in_flight: *const c_void, in_flight_count: usize, stride: usize) -> u32 {
    // SAFETY: the host's arguments.
    unsafe {
        super::chosen(host, state, |policy: &mut P| {
            let in_flight = rows::<InFlight>(in_flight, in_flight_count, stride);
            policy.evict(now_us, &*demand, &in_flight)
        })
    }
}

unsafe extern "C" fn scale<P: Scaling>(host: *const CHost, state: *mut c_void, now_us: u64, groups: *const c_void, groups_count: usize, history: *const c_void, history_count: usize, stride: usize, result: *mut f64) {
    // SAFETY: the host's arguments.
    unsafe {
        super::numbers(host, state, "groups", groups_count, result, |policy: &mut P, numbers| {
            let groups = rows::<Group>(groups, groups_count, stride);
            let history = rows::<Group>(history, history_count, stride);
            policy.scale(now_us, &groups, &history, numbers);
        });
    }
}

unsafe extern "C" fn drain<P: Drain>(host: *const CHost, state: *mut c_void, group: *const DrainGroup, replicas: *const c_void, replicas_count: usize, stride: usize) -> u32 {
    // SAFETY: the host's arguments.
    unsafe {
        super::index(host, state, |policy: &mut P| {
            let replicas = rows::<Replica>(replicas, replicas_count, stride);
            policy.drain(&*group, &replicas)
        })
    }
}

unsafe extern "C" fn placement<P: Placement>(host: *const CHost, state: *mut c_void, replica: *const StartingReplica, nodes: *const c_void, nodes_count: usize, stride: usize) -> u32 {
    // SAFETY: the host's arguments.
    unsafe {
        super::chosen(host, state, |policy: &mut P| {
            let nodes = rows::<Node>(nodes, nodes_count, stride);
            policy.placement(&*replica, &nodes)
        })
    }
}

unsafe extern "C" fn keep<P: KvCache>(host: *const CHost, state: *mut c_void, now_us: u64, chunks: *const c_void, chunks_count: usize, stride: usize, result: *mut f64) {
    // SAFETY: the host's arguments.
    unsafe {
        super::numbers(host, state, "chunks", chunks_count, result, |policy: &mut P, numbers| {
            let chunks = rows::<KvChunk>(chunks, chunks_count, stride);
            policy.keep(now_us, &chunks, numbers);
        });
    }
}

unsafe extern "C" fn store<P: KvCache>(host: *const CHost, state: *mut c_void, offer: *const ChunkOffer, chunks: *const c_void, chunks_count: usize, stride: usize, result: *mut f64) {
    // SAFETY: the host's arguments.
    unsafe {
        super::numbers(host, state, "chunks", chunks_count, result, |policy: &mut P, numbers| {
            let chunks = rows::<KvChunk>(chunks, chunks_count, stride);
            policy.store(&*offer, &chunks, numbers);
        });
    }
}

unsafe extern "C" fn load<P: KvCache>(host: *const CHost, state: *mut c_void, hit: *const KvHit) -> u32 {
    // SAFETY: the host's arguments.
    unsafe {
        super::flag(host, state, |policy: &mut P| {
            policy.load(&*hit)
        })
    }
}

unsafe extern "C" fn disaggregate<P: Disaggregation>(host: *const CHost, state: *mut c_void, request: *const RoutedRequest, decode: *const c_void, decode_count: usize, prefill: *const c_void, prefill_count: usize, stride: usize, result: *mut PrefillChoice) {
    // SAFETY: the host's arguments.
    unsafe {
        super::record(host, state, result, |policy: &mut P| {
            let decode = rows::<PoolInstance>(decode, decode_count, stride);
            let prefill = rows::<PoolInstance>(prefill, prefill_count, stride);
            policy.disaggregate(&*request, &decode, &prefill)
        });
    }
}

unsafe extern "C" fn budget<P: Batching>(host: *const CHost, state: *mut c_void, step: *const StepState, result: *mut StepBudget) {
    // SAFETY: the host's arguments.
    unsafe {
        super::record(host, state, result, |policy: &mut P| {
            policy.budget(&*step)
        });
    }
}

unsafe extern "C" fn observe<P: Lifecycle>(host: *const CHost, state: *mut c_void, event: *const Event) {
    // SAFETY: the host's arguments.
    unsafe { with_policy(host, state, (), |policy: &mut P| policy.observe(&*event)) }
}
