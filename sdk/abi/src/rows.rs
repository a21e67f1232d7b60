//! The inputs of policies: rows of numbers.
//!
//! A row has only numbers, the largest first, and no padding: its memory is that of the WIT record and of the C struct
//! of the same name, and rows are copied as they lie in memory.
//!
//! All times are microseconds of simulated time. Names (classes, tenants, sessions, models …) are numbers: equal names
//! have equal numbers, 0 is an unspecified name, and the host has the text. A number that may be missing has a reserved
//! value for that case, and a method that returns an `Option`.

#![allow(unsafe_code)] // in what `rows!` expands to

use crate::layout::{Row, number, rows, structs, word};
use crate::sets::EventKind;

/// Value of a time that is missing: no deadline, no latency.
pub const NONE_U64: u64 = u64::MAX;
/// Value of a count or index that is missing: no output limit, no instance.
pub const NONE_U32: u32 = u32::MAX;
/// Value of a client priority that is missing.
pub const NONE_I32: i32 = i32::MIN;

rows! {
    /// A request at its arrival. The number of its output tokens is unknown to policies.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Request: "request" {
        /// Time of the decision, µs.
        pub now_us: u64,
        /// Arrival at the service, µs.
        pub arrival_us: u64,
        /// Deadline of the client, µs; the largest number if there is none ([`Self::deadline`]).
        pub deadline_us: u64 [optional],
        /// Time to first token that the client asks for, µs; the largest number if it asks for none
        /// ([`Self::slo_ttft`]).
        pub slo_ttft_us: u64 [optional],
        /// Inter-token latency that the client asks for, µs; the largest number if it asks for none
        /// ([`Self::slo_itl`]).
        pub slo_itl_us: u64 [optional],
        /// Id of the request in the workload, from 0.
        pub id: u32,
        /// Length of the prompt, tokens.
        pub input_tokens: u32,
        /// Maximum number of output tokens that the client allows; the largest number if it set no limit
        /// ([`Self::output_limit`]).
        pub max_output_tokens: u32 [optional],
        /// Number of full KV blocks of the prompt.
        pub prompt_blocks: u32,
        /// How many of these blocks, from the first on, may be equal to blocks of other requests (`prompt_blocks` of
        /// the host returns their ids).
        pub shared_blocks: u32,
        /// Size of a KV block, tokens.
        pub block_size: u32,
        /// Priority of its service class: a higher number goes first; below 0 may be rejected under load.
        pub class_priority: i32,
        /// Priority set by the client, a lower number goes first (as in vLLM); the smallest number if it set none
        /// ([`Self::client_priority`]).
        pub client_priority: i32 [optional],
        /// Name of the service class.
        pub slo_class: u32 [name],
        /// Name of the tenant.
        pub tenant: u32 [name],
        /// Name of the session.
        pub session: u32 [name],
        /// Name of the requested model.
        pub model: u32 [name],
        /// Name of the load generator's client.
        pub client: u32 [name],
        /// Name of the prefix group: its requests start with the same tokens.
        pub prefix_group: u32 [name],
        /// Round in its session, from 0.
        pub round_index: u32,
        /// Number of requests of its tenant in flight. Kept up to date if the policy reads
        /// [`crate::Column::InFlight`].
        pub tenant_in_flight: u32,
        /// Name of the requested LoRA adapter.
        pub adapter: u32 [name],
        /// Part of its computation that the decision is about: 0 all of it. Later versions add others.
        pub stage: u32,
    }

    /// Ages of the columns by group: time since they were refreshed. The largest number for a group of which this
    /// service has no column. (Constant columns and those of the router itself are never stale.)
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Ages: "ages" {
        /// Of what the instances report at intervals, µs.
        pub periodic_us: u64,
        /// Of the contents of their prefix caches, µs.
        pub cache_us: u64,
        /// Of the signals of a gateway in front of the router, µs.
        pub gateway_us: u64,
        /// Of what a metrics pipeline delivers, µs.
        pub pipeline_us: u64,
    }

    /// A request that joins the waiting queue of its instance.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Queued: "queued request" {
        /// Priority on the instance: a lower number is scheduled first.
        pub priority: i64,
        /// Position in the order of joining the queue: up from 1 for new requests, down from -1 for preempted ones.
        pub turn: i64,
        /// Output tokens generated so far; more than 0 only after a preemption.
        pub generated_tokens: u32,
        /// Number of preemptions of this request.
        pub preemptions: u32,
    }

    /// A request of the running batch.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Running: "request of the batch" {
        /// Arrival at the service, µs.
        pub arrival_us: u64,
        /// Deadline of the client, µs; the largest number if there is none ([`Self::deadline`]).
        pub deadline_us: u64 [optional],
        /// Priority on the instance: a lower number is scheduled first.
        pub priority: i64,
        /// Id of the request in the workload, from 0.
        pub id: u32 [at_most(NONE_U32 as i64 - 1)],
        /// Length of the prompt, tokens.
        pub input_tokens: u32 [at_most(NONE_U32 as i64 - 1)],
        /// Number of tokens with computed KV.
        pub computed_tokens: u32 [at_most(NONE_U32 as i64 - 1)],
        /// Output tokens generated so far.
        pub generated_tokens: u32 [at_most(NONE_U32 as i64 - 1)],
        /// Number of KV blocks that it holds, shared ones included.
        pub kv_blocks: u32 [at_most(NONE_U32 as i64 - 1)],
        /// Number of earlier preemptions of this request.
        pub preemptions: u32 [at_most(NONE_U32 as i64 - 1)],
        /// Priority of its service class: a higher number goes first.
        pub class_priority: i32,
        /// Name of the service class.
        pub slo_class: u32 [name],
        /// Name of the tenant.
        pub tenant: u32 [name],
        /// Name of the session.
        pub session: u32 [name],
    }

    /// Sums over the requests of one engine step. A request computes n tokens on top of its context; it is in prefill
    /// while its context is shorter than its prompt.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Step: "step" {
        /// Number of requests in prefill.
        pub prefill_requests: u64 [sum, at_most(1 << 60)],
        /// Sum of n over prefill.
        pub prefill_tokens: u64 [sum, at_most(1 << 60)],
        /// Sum of n · n over prefill.
        pub prefill_tokens_squared: u64 [sum, at_most(1 << 60)],
        /// Sum of n · prompt over prefill.
        pub prefill_tokens_by_input: u64 [sum, at_most(1 << 60)],
        /// Sum of n · context over prefill.
        pub prefill_tokens_by_context: u64 [sum, at_most(1 << 60)],
        /// Sum of context over prefill.
        pub prefill_context: u64 [sum, at_most(1 << 60)],
        /// Number of decoding requests, which compute one token each.
        pub decode_requests: u64 [sum, at_most(1 << 60)],
        /// Sum of context over decode.
        pub decode_context: u64 [sum, at_most(1 << 60)],
    }

    /// An event in the life of a request, or of a block in a prefix cache.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Event: "event" {
        /// Time of the event, µs.
        pub at_us: u64,
        /// Time to first token, µs; the largest number if there was none, or not yet ([`Self::ttft`]).
        pub ttft_us: u64 [optional],
        /// End-to-end latency, µs; the largest number unless it completed ([`Self::e2e`]).
        pub e2e_us: u64 [optional],
        /// The kind by number: an [`EventKind`] ([`Self::what`]).
        pub kind: u32,
        /// Id of the request; 0 for events of blocks.
        pub request: u32,
        /// Id of the instance; the largest number if the request reached none ([`Self::instance`]).
        pub instance: u32 [optional],
        /// Length of the prompt, tokens.
        pub input_tokens: u32,
        /// Output tokens generated so far.
        pub generated_tokens: u32,
        /// Name of the service class.
        pub slo_class: u32 [name],
        /// Name of the tenant.
        pub tenant: u32 [name],
        /// Name of the session.
        pub session: u32 [name],
        /// Name of the prefix group: its requests start with the same tokens.
        pub prefix_group: u32 [name],
        /// Id of the block, as `prompt_blocks` of the host returns it; 0 for events of requests.
        pub block: u32,
    }

    /// A band: all requests of one priority in the gateway's queue.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Band: "band" {
        /// Time that its oldest request has waited in the queue, µs; 0 if none waits.
        pub oldest_wait_us: u64,
        /// Priority of its requests: a higher number goes first; below 0 may be rejected under load.
        pub priority: i32,
        /// Number of its requests in the queue.
        pub queued: u32,
    }

    /// A flow: the requests of one tenant in one band, with the request that goes first (its head).
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct Flow: "flow" {
        /// Tokens served to the tenant, prompts once and outputs twice, halved every 60 s: the value at `served_as_of_us`.
        /// At the time t it is `served_decayed` · 2^(−(t − `served_as_of_us`) / 60 000 000).
        pub served_decayed: f64,
        /// Of its head: the rank that the ordering policy gave it.
        pub head_rank: f64 [at_least(f64::MIN)],
        /// Time for which `served_decayed` holds, µs: that of the latest service.
        pub served_as_of_us: u64 [hidden],
        /// Of its head: the number of its turn among all requests that were enqueued so far.
        pub head_turn: u64,
        /// Of its head: time since it was enqueued, µs.
        pub head_wait_us: u64,
        /// Of its head: deadline of the client, µs; the largest number if there is none ([`Self::head_deadline`]).
        pub head_deadline_us: u64 [optional],
        /// Requests of the flow that were dispatched so far.
        pub dispatched: u64,
        /// Prompt tokens of all requests of the tenant that were dispatched so far.
        pub served_input: u64,
        /// Output tokens of all requests of the tenant that ended so far.
        pub served_output: u64,
        /// Name of the tenant.
        pub tenant: u32 [name],
        /// Position of the tenant in the order of the names of tenants.
        pub tenant_order: u32,
        /// Requests of the flow in the queue, at least 1.
        pub queued: u32 [at_least(1.0)],
        /// Requests of the tenant, of any band, that were dispatched and have not ended.
        pub in_flight: u32,
        /// Of its head: id of the request in the workload.
        pub head_id: u32 [at_most(NONE_U32 as i64 - 1)],
        /// Of its head: length of the prompt, tokens.
        pub head_input_tokens: u32 [at_least(1.0)],
        /// Of its head: maximum number of output tokens that the client allows; the largest number if it set no limit
        /// ([`Self::head_output_limit`]).
        pub head_max_output_tokens: u32 [optional],
        /// Of its head: name of the service class.
        pub head_slo_class: u32 [name],
    }

    /// A dispatched request that may be evicted.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct InFlight: "request in flight" {
        /// Time at which it was dispatched, µs.
        pub dispatched_us: u64 [called(&["dispatched_at", "dispatched_at_us"])],
        /// Id of the request in the workload, from 0.
        pub id: u32 [at_most(NONE_U32 as i64 - 1)],
        /// Priority of its service class, below 0: a higher number goes first.
        pub priority: i32 [at_most(-1)],
        /// Length of the prompt, tokens.
        pub input_tokens: u32 [at_least(1.0)],
        /// Name of the tenant.
        pub tenant: u32 [name],
    }

    /// A group: replicas of one model with the same configuration, for a scaling policy.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct Group: "group" {
        /// Time of the decision, µs.
        pub now_us: u64,
        /// Time at which the signals were measured, µs; at most `now_us`.
        pub scraped_us: u64,
        /// Time at which the first of the loading replicas is expected to be ready, µs; the largest number if none is
        /// loading ([`Self::next_ready`]).
        pub next_ready_us: u64 [optional],
        /// KV cache of a replica, tokens.
        pub kv_tokens: u64,
        /// Prompt tokens that were not cached, of requests that were dispatched and have no token yet; sum over the
        /// ready replicas.
        pub in_flight_tokens: u64,
        /// Prompt tokens of the requests in the gateway's queue.
        pub queued_tokens: u64,
        /// Time that the oldest request in the gateway's queue has waited, µs; 0 if none waits.
        pub oldest_wait_us: u64,
        /// P90 of TTFT over the requests that got their first token in the 60 s before `scraped_us`, µs; 0 without
        /// any.
        pub ttft_p90_us: u64,
        /// P90 of TPOT over the requests that completed in the 60 s before `scraped_us`, µs; 0 without any.
        pub tpot_p90_us: u64,
        /// Prompt tokens of the requests that completed in these 60 s.
        pub input_tokens: u64,
        /// Of these, the tokens that were cached.
        pub cached_tokens: u64,
        /// Output tokens of the requests that completed in these 60 s.
        pub output_tokens: u64,
        /// Price of a GPU, dollars per hour; 0 without a price list.
        pub price: f64,
        /// Shares of used KV blocks, each from 0 to 1; sum over the ready replicas.
        pub kv_used: f64 [at_most(NONE_U32 as i64)],
        /// The largest of these shares; 0 without ready replicas.
        pub kv_used_max: f64 [at_most(1)],
        /// The saturation by the policy of flow control: 0 empty, 1 full; -1 without flow control.
        pub saturation: f64 [at_least(-1.0)],
        /// Name of the model that it serves. Groups of one model share its requests and show the same gateway.
        pub model: u32 [name],
        /// GPUs of a replica.
        pub gpus: u32,
        /// Fewest replicas that it may have.
        pub min_replicas: u32,
        /// Most replicas that it may have.
        pub max_replicas: u32,
        /// Maximum batch size of a replica (sequences).
        pub max_num_seqs: u32,
        /// Largest step of a replica, tokens.
        pub max_num_batched_tokens: u32,
        /// Replicas by the last decision: ready, loading and pending ones.
        pub replicas: u32,
        /// Replicas that served when the signals were measured.
        pub ready: u32,
        /// Replicas that have a GPU and do not serve yet.
        pub loading: u32,
        /// Replicas that wait for a GPU.
        pub pending: u32,
        /// Replicas that finish their requests and get no others.
        pub draining: u32,
        /// Requests in waiting queues; sum over the ready replicas.
        pub queue_depth: u32,
        /// Requests in the longest waiting queue of a ready replica.
        pub queue_depth_max: u32,
        /// Requests in running batches; sum over the ready replicas.
        pub batch_size: u32,
        /// Requests that were dispatched and have not ended; sum over the ready replicas.
        pub in_flight: u32,
        /// Requests in the gateway's queue; 0 without flow control.
        pub queued: u32,
        /// Requests for its model that arrived in the 60 s before `scraped_us`.
        pub arrived: u32,
        /// Requests that completed in these 60 s.
        pub completed: u32,
    }

    /// The group of a replica that is to be removed.
    #[derive(Clone, Copy, Debug, Default, PartialEq)]
    pub struct DrainGroup: "group of replicas" {
        /// Time of the decision, µs.
        pub now_us: u64,
        /// Price of a GPU, dollars per hour; 0 without a price list.
        pub price: f64,
        /// Number of the group, from 0, in the order of their declaration.
        pub group: u32,
        /// Name of the model that it serves.
        pub model: u32 [name],
        /// GPUs of a replica.
        pub gpus: u32,
        /// Fewest replicas that it may have.
        pub min_replicas: u32,
        /// Most replicas that it may have.
        pub max_replicas: u32,
        /// Replicas that it is to have, without those that drain.
        pub replicas: u32,
    }

    /// A replica that may be removed.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct Replica: "replica" {
        /// Time at which it was created, µs.
        pub created_us: u64,
        /// Time at which it became active, µs; the largest number while it starts ([`Self::active_since`]).
        pub active_since_us: u64 [optional],
        /// Prompt tokens that were not cached, of requests that were dispatched to it and have no token yet.
        pub in_flight_tokens: u64,
        /// Share of its KV blocks in use, from 0 to 1.
        pub kv_utilization: f64 [at_most(1)],
        /// Number of the replica, from 0, in the order in which all replicas were created.
        pub id: u32,
        /// 0 waits for GPUs, 1 loading, 2 warming up, 3 active.
        pub state: u32 [at_most(3)],
        /// Id of its instance; the largest number while it starts ([`Self::instance`]).
        pub instance: u32 [optional],
        /// Requests in its waiting queue.
        pub queue_depth: u32,
        /// Requests in its running batch.
        pub batch_size: u32,
        /// Requests that were dispatched to it and have not ended.
        pub in_flight: u32,
        /// Number of the pool of its node, the first of several; the largest number while it waits for GPUs, and without
        /// node pools.
        pub pool: u32 [optional],
        /// Number of its node in the pool; the largest number without one.
        pub node: u32 [optional],
        /// Replicas of any group on its node, itself included, without those that drain; of several nodes the largest
        /// number; 0 without a node.
        pub on_node: u32,
        /// Of these, the replicas of its group.
        pub group_on_node: u32,
    }

    /// A replica that needs GPUs.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct StartingReplica: "starting replica" {
        /// Time of the decision, µs.
        pub now_us: u64,
        /// Time at which it was created, µs: since then it has waited.
        pub created_us: u64,
        /// Number of the replica, from 0, in the order in which all replicas were created.
        pub id: u32,
        /// Number of its group, from 0, in the order of their declaration.
        pub group: u32,
        /// Name of the model that it serves.
        pub model: u32 [name],
        /// GPUs that it needs.
        pub gpus: u32,
    }

    /// A node that has room for a replica.
    #[derive(Clone, Copy, Debug, Default, PartialEq)]
    pub struct Node: "node" {
        /// Time from which the replica can start there, µs: that of the decision or before if the node is ready, later if it
        /// is still provisioned. Of several nodes the time of the last.
        pub ready_us: u64,
        /// Price of the node, dollars per hour; 0 without a price list.
        pub price: f64,
        /// Number of its pool, from 0.
        pub pool: u32,
        /// Number of the node in its pool, which belongs to no other node, before or after.
        pub node: u32,
        /// GPUs of the node.
        pub gpus: u32,
        /// Of these, the free ones.
        pub free_gpus: u32,
        /// Replicas of any group on it.
        pub replicas: u32,
        /// Of these, the replicas of the group.
        pub group_replicas: u32,
    }

    /// A chunk of a KV tier that is ranked, or may be stored.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct KvChunk: "chunk" {
        /// Time at which it was stored, µs.
        pub created_us: u64,
        /// Time of its last use, µs: when a request first used chunks of the tier, and again when that request ended.
        pub last_use_us: u64,
        /// `last_use_us` when the request came that uses it now, µs; the largest number if it is the first.
        pub previous_use_us: u64 [optional],
        /// 1: the CPU tier. For `keep` also 2 and 3: a LoRA adapter in a slot on the GPU and in host memory.
        pub tier: u32 [at_most(3)],
        /// Tokens of the prompt in front of it.
        pub position: u32,
        /// Number of its tokens.
        pub tokens: u32,
        /// Requests that used it since it was stored, the one that stored it included.
        pub uses: u32,
        /// Times it was offered for storing, if that is counted: with a store threshold, and for `store`.
        pub offers: u32,
        /// Why it is ranked: 0 stored, 1 used by another request, 2 a request that used it has ended.
        pub touch: u32 [at_most(2)],
        /// Service class of the request that used it last.
        pub slo_class: u32 [name_number],
        /// Tenant of that request.
        pub tenant: u32 [name_number],
        /// Session of that request.
        pub session: u32 [name_number],
        /// Prefix group of that request.
        pub prefix_group: u32 [name_number],
        /// Index of that request in its session, from 0.
        pub round: u32,
        /// Length of the prompt of that request, tokens.
        pub input_tokens: u32,
        /// Client of that request: what kind of request it is, such as `type` of a Bailian trace.
        pub client: u32 [name_number],
        /// LoRA adapter of that request.
        pub adapter: u32 [name_number],
    }

    /// The tier to which chunks are offered.
    #[derive(Clone, Copy, Debug, Default, PartialEq)]
    pub struct ChunkOffer: "tier" {
        /// Time of the offer, µs.
        pub now_us: u64,
        /// Bytes that wait to be stored or are being stored, on the link of one GPU.
        pub queued_bytes: u64 [sum],
        /// Share of the chunks of the tier that are in use, from 0 to 1.
        pub fill: f64 [at_most(1)],
        /// 1: the CPU tier.
        pub tier: u32,
        /// Number of chunks that the tier holds.
        pub capacity: u32,
    }

    /// What a tier has for a request.
    #[derive(Clone, Copy, Debug, Default, PartialEq)]
    pub struct KvHit: "hit in a tier" {
        /// Time of the decision, µs.
        pub now_us: u64,
        /// Size of what was found, on the link of one GPU, bytes.
        pub bytes: u64 [sum],
        /// Bytes of loads that are queued or in progress, on the link of one GPU.
        pub queued_bytes: u64 [sum],
        /// Bandwidth of a load while nothing is stored, bytes/µs.
        pub bandwidth: f64,
        /// Id of the request.
        pub request: u32,
        /// Tokens of its prompt that the GPU has, in front of the others.
        pub gpu_tokens: u32,
        /// Tokens behind them that were found.
        pub tokens: u32,
        /// Length of its prompt, tokens.
        pub input_tokens: u32,
        /// Prompt tokens that the requests of the running batch still have to compute after this step.
        pub prefill_tokens: u32,
        /// Requests in the waiting queue, this one included.
        pub waiting: u32,
        /// Requests in the running batch.
        pub running: u32,
        /// Service class of the request.
        pub slo_class: u32 [name_number],
        /// Its tenant.
        pub tenant: u32 [name_number],
        /// Its session.
        pub session: u32 [name_number],
        /// Its prefix group.
        pub prefix_group: u32 [name_number],
        /// Its index in its session, from 0.
        pub round: u32,
    }

    /// A request for which an instance that decodes was chosen, and the transfers of KV between instances.
    #[derive(Clone, Copy, Debug, Default, PartialEq)]
    pub struct RoutedRequest: "routed request" {
        /// Time of the decision, µs.
        pub now_us: u64,
        /// Time of the latest transfers, µs per token: their moving average, in which each new one counts 0.1; 0 before the
        /// first.
        pub transfer_us_per_token: f64,
        /// Id of the request.
        pub request: u32 [called(&["id"])],
        /// Length of its prompt, tokens.
        pub input_tokens: u32,
        /// Index of the chosen instance among those that decode.
        pub chosen: u32,
        /// Transfers in progress.
        pub transfers: u32,
        /// Tokens that they transfer.
        pub transfer_tokens: u32,
        /// Service class of the request.
        pub slo_class: u32 [name],
        /// Its tenant.
        pub tenant: u32 [name],
        /// Its session.
        pub session: u32 [name],
        /// Its prefix group.
        pub prefix_group: u32 [name],
        /// Its index in its session, from 0.
        pub round: u32,
    }

    /// An instance that may decode or prefill a request.
    #[derive(Clone, Copy, Debug, Default, PartialEq)]
    pub struct PoolInstance: "instance" {
        /// Prompt tokens in flight that were not cached, of requests without a first token.
        pub in_flight_tokens: u64,
        /// Share of its KV blocks in use, 0 to 1.
        pub kv_utilization: f64 [at_most(1)],
        /// Number of the instance.
        pub instance: u32 [called(&["id"])],
        /// Requests in its waiting queue.
        pub queue_depth: u32,
        /// Requests in its running batch.
        pub batch_size: u32,
        /// Requests that the router sent and that have not ended.
        pub in_flight: u32,
        /// Tokens of the prompt of the request that it has not cached.
        pub uncached_tokens: u32 [called(&["uncached", "uncached_tokens"])],
        /// Its free KV blocks.
        pub free_kv_blocks: u32,
        /// Transfers in progress to or from it.
        pub transfers: u32,
        /// Tokens that they transfer.
        pub transfer_tokens: u32,
    }

    /// Where a request is prefilled and decoded.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct PrefillChoice: "choice" {
        /// Whether another instance than the one that decodes it prefills it: 1 or 0.
        pub remote: u32,
        /// Index among the instances that decode; the largest number for the chosen one.
        pub decode: u32,
        /// Index among the instances that prefill; the largest number if the routing policy of prefill chooses.
        pub prefill: u32,
    }

    /// An instance before a step. Counts of tokens, requests and free blocks are on a grid: numbers up to 16 are exact, larger ones
    /// have four significant binary digits, rounded down (17 is 16, 100 is 96).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct StepState: "step state" {
        /// Requests of the batch that decode.
        pub decoding: u32,
        /// Requests of the batch that are in prefill.
        pub prefilling: u32,
        /// Tokens of their prompts that they still have to compute.
        pub prefill_tokens: u32,
        /// Requests in the waiting queue.
        pub waiting: u32,
        /// Length of the prompt at the head of the waiting queue, with what it generated before a preemption, tokens; 0 without one.
        pub head_tokens: u32,
        /// Free KV blocks.
        pub free_kv_blocks: u32,
        /// All KV blocks, exactly.
        pub total_kv_blocks: u32,
        /// Size of a KV block, tokens, exactly.
        pub block_size: u32 [at_least(1.0)],
        /// Token budget of a step, exactly.
        pub max_num_batched_tokens: u32 [at_least(1.0)],
        /// Maximum batch size, requests, exactly.
        pub max_num_seqs: u32 [at_least(1.0)],
    }

    /// What a step may compute of prompts.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct StepBudget: "budget" {
        /// Most prompt tokens; the largest number for no limit but the token budget.
        pub prefill_tokens: u32 [optional],
        /// Most requests that compute a part of their prompts; the largest number for no limit.
        pub prefill_requests: u32 [optional],
        /// KV blocks that stay free when a request enters a batch that is not empty.
        pub reserve: u32,
    }

    /// The constant times of a latency model, µs.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct LatencyConstants: "constants" {
        /// Lower bound of the duration of every step that computes a token, at least 1 µs.
        pub shortest_step_us: u64,
        /// Added to TTFT and to every inter-token latency, µs.
        pub output_token_us: u64,
        /// Added to the end-to-end latency, µs.
        pub post_decode_us: u64,
        /// Added to the scheduling delay, µs.
        pub scheduling_us: u64,
        /// Duration of a preemption, µs; recorded only.
        pub preemption_us: u64,
    }

    /// The capacity of an instance, which is constant during a run.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct InstanceInfo: "instance" {
        /// Id of the instance, from 0.
        pub id: u32,
        /// Maximum batch size (sequences).
        pub max_num_seqs: u32,
        /// Number of its KV blocks.
        pub total_kv_blocks: u32,
        /// Size of a KV block, tokens.
        pub block_size: u32,
    }
}

impl Replica {
    /// Time at which it became active in µs; `None` while it starts.
    #[must_use]
    pub fn active_since(&self) -> Option<u64> {
        (self.active_since_us != NONE_U64).then_some(self.active_since_us)
    }

    /// Id of its instance; `None` while it starts.
    #[must_use]
    pub fn instance(&self) -> Option<u32> {
        (self.instance != NONE_U32).then_some(self.instance)
    }
}

/// A replica that waits for GPUs; the times and numbers that are known are 0.
impl Default for Replica {
    fn default() -> Self {
        Self { active_since_us: NONE_U64, instance: NONE_U32, pool: NONE_U32, node: NONE_U32, ..Self::ZERO }
    }
}

impl KvChunk {
    /// Time of the use before the present one in µs; `None` if there was none.
    #[must_use]
    pub fn previous_use(&self) -> Option<u64> {
        (self.previous_use_us != NONE_U64).then_some(self.previous_use_us)
    }
}

/// A chunk of one token that was not used before; everything else is 0.
impl Default for KvChunk {
    fn default() -> Self {
        Self { previous_use_us: NONE_U64, tier: 1, tokens: 1, ..Self::ZERO }
    }
}

/// The chosen instance prefills and decodes the request.
impl Default for PrefillChoice {
    fn default() -> Self {
        Self::new(false)
    }
}

impl PrefillChoice {
    /// The chosen instance decodes the request; another one prefills it if `remote`, which the routing policy of prefill chooses.
    #[must_use]
    pub fn new(remote: bool) -> Self {
        Self { remote: u32::from(remote), decode: NONE_U32, prefill: NONE_U32 }
    }

    /// The same with index `instance` among the instances that prefill.
    #[must_use]
    pub fn prefilled_by(self, instance: usize) -> Self {
        Self { prefill: u32::try_from(instance).unwrap_or(NONE_U32 - 1), ..self }
    }

    /// The same with index `instance` among the instances that decode.
    #[must_use]
    pub fn decoded_by(self, instance: usize) -> Self {
        Self { decode: u32::try_from(instance).unwrap_or(NONE_U32 - 1), ..self }
    }
}

impl Request {
    /// Deadline of the client in µs, if there is one.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        (self.deadline_us != NONE_U64).then_some(self.deadline_us)
    }

    /// Time to first token that the client asks for in µs, if any.
    #[must_use]
    pub fn slo_ttft(&self) -> Option<u64> {
        (self.slo_ttft_us != NONE_U64).then_some(self.slo_ttft_us)
    }

    /// Inter-token latency that the client asks for in µs, if any.
    #[must_use]
    pub fn slo_itl(&self) -> Option<u64> {
        (self.slo_itl_us != NONE_U64).then_some(self.slo_itl_us)
    }

    /// Maximum number of output tokens that the client allows, if it set a limit.
    #[must_use]
    pub fn output_limit(&self) -> Option<u32> {
        (self.max_output_tokens != NONE_U32).then_some(self.max_output_tokens)
    }

    /// Priority set by the client, if any: a lower number goes first.
    #[must_use]
    pub fn client_priority(&self) -> Option<i32> {
        (self.client_priority != NONE_I32).then_some(self.client_priority)
    }
}

/// No class, no tenant, no deadline, no targets, no output limit and no client priority; all other fields are 0.
impl Default for Request {
    fn default() -> Self {
        Self {
            deadline_us: NONE_U64,
            slo_ttft_us: NONE_U64,
            slo_itl_us: NONE_U64,
            max_output_tokens: NONE_U32,
            client_priority: NONE_I32,
            ..Self::ZERO
        }
    }
}

/// All signals are fresh, and there is no gateway and no metrics pipeline.
impl Default for Ages {
    fn default() -> Self {
        Self { gateway_us: NONE_U64, pipeline_us: NONE_U64, ..Self::ZERO }
    }
}

impl Running {
    /// Deadline of the client in µs, if there is one.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        (self.deadline_us != NONE_U64).then_some(self.deadline_us)
    }
}

/// No deadline; all other fields are 0.
impl Default for Running {
    fn default() -> Self {
        Self { deadline_us: NONE_U64, ..Self::ZERO }
    }
}

impl Flow {
    /// Deadline of the client of the head in µs, if there is one.
    #[must_use]
    pub fn head_deadline(&self) -> Option<u64> {
        (self.head_deadline_us != NONE_U64).then_some(self.head_deadline_us)
    }

    /// Maximum number of output tokens that the client of the head allows, if it set a limit.
    #[must_use]
    pub fn head_output_limit(&self) -> Option<u32> {
        (self.head_max_output_tokens != NONE_U32).then_some(self.head_max_output_tokens)
    }
}

/// One request in the queue, without deadline and output limit; all other fields are 0.
impl Default for Flow {
    fn default() -> Self {
        Self { head_deadline_us: NONE_U64, queued: 1, head_max_output_tokens: NONE_U32, ..Self::ZERO }
    }
}

impl Group {
    /// Time at which the first of the loading replicas is expected to be ready in µs, if any is loading.
    #[must_use]
    pub fn next_ready(&self) -> Option<u64> {
        (self.next_ready_us != NONE_U64).then_some(self.next_ready_us)
    }

    /// The saturation by the policy of flow control, if there is one.
    #[must_use]
    pub fn saturation(&self) -> Option<f64> {
        (self.saturation >= 0.0).then_some(self.saturation)
    }
}

/// At most one replica of one GPU, and none now; no flow control. All other fields are 0.
impl Default for Group {
    fn default() -> Self {
        Self { next_ready_us: NONE_U64, saturation: -1.0, gpus: 1, max_replicas: 1, ..Self::ZERO }
    }
}

impl Event {
    /// The kind of the event; `None` for a kind that a later version of the interface added.
    #[must_use]
    pub fn what(&self) -> Option<EventKind> {
        EventKind::ALL.into_iter().find(|&kind| kind as u32 == self.kind)
    }

    /// Id of the instance, if the request reached one.
    #[must_use]
    pub fn instance(&self) -> Option<usize> {
        (self.instance != NONE_U32).then_some(self.instance as usize)
    }

    /// Time to first token in µs, if the first token was generated.
    #[must_use]
    pub fn ttft(&self) -> Option<u64> {
        (self.ttft_us != NONE_U64).then_some(self.ttft_us)
    }

    /// End-to-end latency in µs, if the request completed.
    #[must_use]
    pub fn e2e(&self) -> Option<u64> {
        (self.e2e_us != NONE_U64).then_some(self.e2e_us)
    }
}

/// Kind 0, no instance and no latencies; all other fields are 0.
impl Default for Event {
    fn default() -> Self {
        Self { ttft_us: NONE_U64, e2e_us: NONE_U64, instance: NONE_U32, ..Self::ZERO }
    }
}

/// No limits.
impl Default for StepBudget {
    fn default() -> Self {
        Self { prefill_tokens: NONE_U32, prefill_requests: NONE_U32, reserve: 0 }
    }
}

/// A lower bound of 1 µs for steps; all other constants are 0.
impl Default for LatencyConstants {
    fn default() -> Self {
        Self { shortest_step_us: 1, ..Self::ZERO }
    }
}
