// @generated from the tables of sdk/abi: `BLIS_RECORD=1 cargo test -p blis-abi` writes it anew.

//! The exports of a WebAssembly module for each trait, by the canonical ABI.

/// The exports of one trait. Uses `GUEST` and `__sdk` of `export_policy!`.
#[doc(hidden)]
#[macro_export]
macro_rules! __blis_wasm {
    (Admission) => {
        #[unsafe(export_name = "blis:policy/admission@1.1.0#admit")]
        unsafe extern "C" fn admit(given: *const u64) -> *const __sdk::wasm::HostRefusal {
            #[repr(C)]
            struct GivenParameters { request: $crate::Request, ages: $crate::Ages, count: u32, instances: __sdk::wasm::HostList<f64> }
            // SAFETY: written by the host.
            let given = unsafe { &*given.cast::<GivenParameters>() };
            let request = &given.request;
            let cluster = unsafe { __sdk::wasm::cluster(given.ages, given.count as usize, given.instances) };
            GUEST.reason(|policy| $crate::Admission::admit(policy, request, &cluster))
        }
    };
    (Routing) => {
        #[unsafe(export_name = "blis:policy/routing@1.1.0#route")]
        unsafe extern "C" fn route(given: *const u64) -> usize {
            #[repr(C)]
            struct GivenParameters { request: $crate::Request, ages: $crate::Ages, count: u32, instances: __sdk::wasm::HostList<f64> }
            // SAFETY: written by the host.
            let given = unsafe { &*given.cast::<GivenParameters>() };
            let request = &given.request;
            let cluster = unsafe { __sdk::wasm::cluster(given.ages, given.count as usize, given.instances) };
            GUEST.index(|policy| $crate::Routing::route(policy, request, &cluster))
        }
        #[unsafe(export_name = "blis:policy/routing-scores@1.1.0#scores")]
        unsafe extern "C" fn scores(given: *const u64) -> *const (usize, usize) {
            #[repr(C)]
            struct GivenParameters { request: $crate::Request, ages: $crate::Ages, count: u32, instances: __sdk::wasm::HostList<f64> }
            // SAFETY: written by the host.
            let given = unsafe { &*given.cast::<GivenParameters>() };
            let request = &given.request;
            let cluster = unsafe { __sdk::wasm::cluster(given.ages, given.count as usize, given.instances) };
            GUEST.numbers(|policy, numbers| $crate::Routing::scores(policy, request, &cluster, numbers))
        }
    };
    (Filter) => {
        #[unsafe(export_name = "blis:policy/routing-filter@1.1.0#filter")]
        unsafe extern "C" fn filter(given: *const u64) -> *const (usize, usize) {
            #[repr(C)]
            struct GivenParameters { request: $crate::Request, ages: $crate::Ages, count: u32, instances: __sdk::wasm::HostList<f64> }
            // SAFETY: written by the host.
            let given = unsafe { &*given.cast::<GivenParameters>() };
            let request = &given.request;
            let cluster = unsafe { __sdk::wasm::cluster(given.ages, given.count as usize, given.instances) };
            GUEST.numbers(|policy, numbers| $crate::Filter::filter(policy, request, &cluster, numbers))
        }
    };
    (Priority) => {
        #[unsafe(export_name = "blis:policy/priority@1.1.0#priority")]
        unsafe extern "C" fn priority(given: *const u64) -> i64 {
            #[repr(C)]
            struct GivenParameters { request: $crate::Request }
            // SAFETY: written by the host.
            let given = unsafe { &*given.cast::<GivenParameters>() };
            let request = &given.request;
            GUEST.number(|policy| $crate::Priority::priority(policy, request))
        }
    };
    (Scheduling) => {
        #[unsafe(export_name = "blis:policy/scheduling@1.1.0#rank")]
        unsafe extern "C" fn rank(given: *const u64) -> f64 {
            #[repr(C)]
            struct GivenParameters { request: $crate::Request, queued: $crate::Queued }
            // SAFETY: written by the host.
            let given = unsafe { &*given.cast::<GivenParameters>() };
            let request = &given.request;
            let queued = &given.queued;
            GUEST.number(|policy| $crate::Scheduling::rank(policy, request, queued))
        }
    };
    (Preemption) => {
        #[unsafe(export_name = "blis:policy/preemption@1.1.0#victim")]
        unsafe extern "C" fn victim(now_us: u64, requester: u32, batch: *const $crate::Running, batch_count: usize) -> usize {
            let batch = unsafe { __sdk::wasm::rows(batch, batch_count) };
            GUEST.index(|policy| $crate::Preemption::victim(policy, now_us, requester as _, batch))
        }
    };
    (Latency) => {
        #[unsafe(export_name = "blis:policy/latency@1.1.0#step-time")]
        unsafe extern "C" fn step_time(step_prefill_requests: u64, step_prefill_tokens: u64, step_prefill_tokens_squared: u64, step_prefill_tokens_by_input: u64, step_prefill_tokens_by_context: u64, step_prefill_context: u64, step_decode_requests: u64, step_decode_context: u64) -> u64 {
            let step = &$crate::Step { prefill_requests: step_prefill_requests, prefill_tokens: step_prefill_tokens, prefill_tokens_squared: step_prefill_tokens_squared, prefill_tokens_by_input: step_prefill_tokens_by_input, prefill_tokens_by_context: step_prefill_tokens_by_context, prefill_context: step_prefill_context, decode_requests: step_decode_requests, decode_context: step_decode_context };
            GUEST.number(|policy| $crate::Latency::step_time(policy, step))
        }
        #[unsafe(export_name = "blis:policy/latency@1.1.0#queueing-time")]
        unsafe extern "C" fn queueing_time(input_tokens: u32) -> u64 {
            GUEST.number(|policy| $crate::Latency::queueing_time(policy, input_tokens as _))
        }
        #[unsafe(export_name = "blis:policy/latency@1.1.0#constants")]
        unsafe extern "C" fn constants() -> *const $crate::LatencyConstants {
            GUEST.record(|policy| $crate::Latency::constants(policy))
        }
    };
    (Saturation) => {
        #[unsafe(export_name = "blis:policy/saturation@1.1.0#saturation")]
        unsafe extern "C" fn saturation(now_us: u64, periodic_us: u64, cache_us: u64, gateway_us: u64, pipeline_us: u64, count: usize, instances: *const f64, numbers: usize) -> f64 {
            let cluster = unsafe { __sdk::wasm::cluster($crate::Ages { periodic_us: periodic_us, cache_us: cache_us, gateway_us: gateway_us, pipeline_us: pipeline_us }, count, __sdk::wasm::list(instances, numbers)) };
            GUEST.number(|policy| $crate::Saturation::saturation(policy, now_us, &cluster))
        }
    };
    (Ceilings) => {
        #[unsafe(export_name = "blis:policy/ceilings@1.1.0#ceilings")]
        unsafe extern "C" fn ceilings(now_us: u64, saturation: f64, bands: *const $crate::Band, bands_count: usize) -> *const (usize, usize) {
            let bands = unsafe { __sdk::wasm::rows(bands, bands_count) };
            GUEST.numbers(|policy, numbers| $crate::Ceilings::ceilings(policy, now_us, saturation, bands, numbers))
        }
    };
    (Fairness) => {
        #[unsafe(export_name = "blis:policy/fairness@1.1.0#fair-pick")]
        unsafe extern "C" fn fair_pick(now_us: u64, saturation: f64, band_oldest_wait_us: u64, band_priority: i32, band_queued: u32, flows: *const $crate::Flow, flows_count: usize) -> usize {
            let band = &$crate::Band { oldest_wait_us: band_oldest_wait_us, priority: band_priority, queued: band_queued };
            let flows = unsafe { __sdk::wasm::rows(flows, flows_count) };
            GUEST.index(|policy| $crate::Fairness::fair_pick(policy, now_us, saturation, band, flows))
        }
    };
    (Ordering) => {
        #[unsafe(export_name = "blis:policy/ordering@1.1.0#order")]
        unsafe extern "C" fn order(given: *const u64) -> f64 {
            #[repr(C)]
            struct GivenParameters { request: $crate::Request, expires_us: u64 }
            // SAFETY: written by the host.
            let given = unsafe { &*given.cast::<GivenParameters>() };
            let request = &given.request;
            let expires_us = given.expires_us;
            GUEST.number(|policy| $crate::Ordering::order(policy, request, expires_us))
        }
    };
    (Eviction) => {
        #[unsafe(export_name = "blis:policy/eviction@1.1.0#evict")]
        unsafe extern "C" fn evict(now_us: u64, demand_oldest_wait_us: u64, demand_priority: i32, demand_queued: u32, in_flight: *const $crate::InFlight, in_flight_count: usize) -> *const __sdk::wasm::ChosenIndex {
            let demand = &$crate::Band { oldest_wait_us: demand_oldest_wait_us, priority: demand_priority, queued: demand_queued };
            let in_flight = unsafe { __sdk::wasm::rows(in_flight, in_flight_count) };
            GUEST.chosen(|policy| $crate::Eviction::evict(policy, now_us, demand, in_flight))
        }
    };
    (Scaling) => {
        #[unsafe(export_name = "blis:policy/scaling@1.1.0#scale")]
        unsafe extern "C" fn scale(now_us: u64, groups: *const $crate::Group, groups_count: usize, history: *const $crate::Group, history_count: usize) -> *const (usize, usize) {
            let groups = unsafe { __sdk::wasm::rows(groups, groups_count) };
            let history = unsafe { __sdk::wasm::rows(history, history_count) };
            GUEST.numbers(|policy, numbers| $crate::Scaling::scale(policy, now_us, groups, history, numbers))
        }
    };
    (Drain) => {
        #[unsafe(export_name = "blis:policy/drain@1.1.0#drain")]
        unsafe extern "C" fn drain(group_now_us: u64, group_price: f64, group_group: u32, group_model: u32, group_gpus: u32, group_min_replicas: u32, group_max_replicas: u32, group_replicas: u32, replicas: *const $crate::Replica, replicas_count: usize) -> usize {
            let group = &$crate::DrainGroup { now_us: group_now_us, price: group_price, group: group_group, model: group_model, gpus: group_gpus, min_replicas: group_min_replicas, max_replicas: group_max_replicas, replicas: group_replicas };
            let replicas = unsafe { __sdk::wasm::rows(replicas, replicas_count) };
            GUEST.index(|policy| $crate::Drain::drain(policy, group, replicas))
        }
    };
    (Placement) => {
        #[unsafe(export_name = "blis:policy/placement@1.1.0#placement")]
        unsafe extern "C" fn placement(replica_now_us: u64, replica_created_us: u64, replica_id: u32, replica_group: u32, replica_model: u32, replica_gpus: u32, nodes: *const $crate::Node, nodes_count: usize) -> *const __sdk::wasm::ChosenIndex {
            let replica = &$crate::StartingReplica { now_us: replica_now_us, created_us: replica_created_us, id: replica_id, group: replica_group, model: replica_model, gpus: replica_gpus };
            let nodes = unsafe { __sdk::wasm::rows(nodes, nodes_count) };
            GUEST.chosen(|policy| $crate::Placement::placement(policy, replica, nodes))
        }
    };
    (KvCache) => {
        #[unsafe(export_name = "blis:policy/kv-cache@1.1.0#keep")]
        unsafe extern "C" fn keep(now_us: u64, chunks: *const $crate::KvChunk, chunks_count: usize) -> *const (usize, usize) {
            let chunks = unsafe { __sdk::wasm::rows(chunks, chunks_count) };
            GUEST.numbers(|policy, numbers| $crate::KvCache::keep(policy, now_us, chunks, numbers))
        }
        #[unsafe(export_name = "blis:policy/kv-cache@1.1.0#store-chunks")]
        unsafe extern "C" fn store(offer_now_us: u64, offer_queued_bytes: u64, offer_fill: f64, offer_tier: u32, offer_capacity: u32, chunks: *const $crate::KvChunk, chunks_count: usize) -> *const (usize, usize) {
            let offer = &$crate::ChunkOffer { now_us: offer_now_us, queued_bytes: offer_queued_bytes, fill: offer_fill, tier: offer_tier, capacity: offer_capacity };
            let chunks = unsafe { __sdk::wasm::rows(chunks, chunks_count) };
            GUEST.numbers(|policy, numbers| $crate::KvCache::store(policy, offer, chunks, numbers))
        }
        #[unsafe(export_name = "blis:policy/kv-cache@1.1.0#load")]
        unsafe extern "C" fn load(hit_now_us: u64, hit_bytes: u64, hit_queued_bytes: u64, hit_bandwidth: f64, hit_request: u32, hit_gpu_tokens: u32, hit_tokens: u32, hit_input_tokens: u32, hit_prefill_tokens: u32, hit_waiting: u32, hit_running: u32, hit_slo_class: u32, hit_tenant: u32, hit_session: u32, hit_prefix_group: u32, hit_round: u32) -> u32 {
            let hit = &$crate::KvHit { now_us: hit_now_us, bytes: hit_bytes, queued_bytes: hit_queued_bytes, bandwidth: hit_bandwidth, request: hit_request, gpu_tokens: hit_gpu_tokens, tokens: hit_tokens, input_tokens: hit_input_tokens, prefill_tokens: hit_prefill_tokens, waiting: hit_waiting, running: hit_running, slo_class: hit_slo_class, tenant: hit_tenant, session: hit_session, prefix_group: hit_prefix_group, round: hit_round };
            GUEST.flag(|policy| $crate::KvCache::load(policy, hit))
        }
    };
    (Disaggregation) => {
        #[unsafe(export_name = "blis:policy/disaggregation@1.1.0#disaggregate")]
        unsafe extern "C" fn disaggregate(request_now_us: u64, request_transfer_us_per_token: f64, request_request: u32, request_input_tokens: u32, request_chosen: u32, request_transfers: u32, request_transfer_tokens: u32, request_slo_class: u32, request_tenant: u32, request_session: u32, request_prefix_group: u32, request_round: u32, decode: *const $crate::PoolInstance, decode_count: usize, prefill: *const $crate::PoolInstance, prefill_count: usize) -> *const $crate::PrefillChoice {
            let request = &$crate::RoutedRequest { now_us: request_now_us, transfer_us_per_token: request_transfer_us_per_token, request: request_request, input_tokens: request_input_tokens, chosen: request_chosen, transfers: request_transfers, transfer_tokens: request_transfer_tokens, slo_class: request_slo_class, tenant: request_tenant, session: request_session, prefix_group: request_prefix_group, round: request_round };
            let decode = unsafe { __sdk::wasm::rows(decode, decode_count) };
            let prefill = unsafe { __sdk::wasm::rows(prefill, prefill_count) };
            GUEST.record(|policy| $crate::Disaggregation::disaggregate(policy, request, decode, prefill))
        }
    };
    (Batching) => {
        #[unsafe(export_name = "blis:policy/batching@1.1.0#budget")]
        unsafe extern "C" fn budget(step_decoding: u32, step_prefilling: u32, step_prefill_tokens: u32, step_waiting: u32, step_head_tokens: u32, step_free_kv_blocks: u32, step_total_kv_blocks: u32, step_block_size: u32, step_max_num_batched_tokens: u32, step_max_num_seqs: u32) -> *const $crate::StepBudget {
            let step = &$crate::StepState { decoding: step_decoding, prefilling: step_prefilling, prefill_tokens: step_prefill_tokens, waiting: step_waiting, head_tokens: step_head_tokens, free_kv_blocks: step_free_kv_blocks, total_kv_blocks: step_total_kv_blocks, block_size: step_block_size, max_num_batched_tokens: step_max_num_batched_tokens, max_num_seqs: step_max_num_seqs };
            GUEST.record(|policy| $crate::Batching::budget(policy, step))
        }
    };
    (Lifecycle) => {
        #[unsafe(export_name = "blis:policy/lifecycle@1.1.0#observe")]
        extern "C" fn observe(at_us: u64, ttft_us: u64, e2e_us: u64, kind: u32, request: u32, instance: u32, input_tokens: u32, generated_tokens: u32, slo_class: u32, tenant: u32, session: u32, prefix_group: u32, block: u32) {
            GUEST.number(|policy| $crate::Lifecycle::observe(policy, &$crate::Event { at_us: at_us, ttft_us: ttft_us, e2e_us: e2e_us, kind: kind, request: request, instance: instance, input_tokens: input_tokens, generated_tokens: generated_tokens, slo_class: slo_class, tenant: tenant, session: session, prefix_group: prefix_group, block: block }))
        }
    };
}
