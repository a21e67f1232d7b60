/* The C interface of BLIS policies.
 *
 * A policy fills in one table, `blis_policy_v1`, and exports one function that returns it:
 *
 *     const blis_policy_v1 *blis_plugin_v1(void);
 *
 * The same source becomes a native library (`cc -shared -fPIC -O2`), which runs unsandboxed and only
 * with `--allow-native`, or a sandboxed WebAssembly module: compiled for wasm32, this header adds the
 * exports of the WIT package blis:policy@1.1.0 where BLIS_POLICY_IMPLEMENTATION is defined before it
 * is included, in one file. README.md beside it shows both.
 *
 * Rows of requests, batches and events have the layout of the WIT records of the same names
 * (sdk/wit/since-v1.1.0/policy.wit, which documents every field): numbers only, the largest first, no
 * padding. All times are microseconds of simulated time. A row of an instance has one double for each
 * column that `describe` lists in `reads`, in that order: declare a struct of doubles to match. The host
 * passes the size of a row (`stride`); use BLIS_ROW to step from row to row. Pointers that the host
 * passes are valid during the call only.
 *
 * Rules: no function may throw or longjmp out of the library; a function that cannot compute its result
 * calls host->fail and returns any value. A state is used by one thread at a time, but several states
 * may be in use at once: keep all data in the state, none in globals.
 */
#ifndef BLIS_POLICY_H
#define BLIS_POLICY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BLIS_ABI_VERSION 1u
/* Values of numbers that are missing. */
#define BLIS_NONE_U64 UINT64_MAX
#define BLIS_NONE_U32 UINT32_MAX
#define BLIS_NONE_I32 INT32_MIN

/* Initialises a blis_text with a string literal. */
#define BLIS_TEXT(literal) { (literal), sizeof(literal) - 1 }
/* Initialises a blis_texts with texts: BLIS_LIST(BLIS_TEXT("routing"), BLIS_TEXT("priority")). */
#define BLIS_LIST(...) \
    { (const blis_text[]){__VA_ARGS__}, sizeof((const blis_text[]){__VA_ARGS__}) / sizeof(blis_text) }
/* Initialises a blis_value with a number. */
#define BLIS_NUMBER(value) { .kind = BLIS_IS_NUMBER, .number = (value) }

enum { BLIS_ROUTED, BLIS_FIRST_TOKEN, BLIS_COMPLETED, BLIS_ENDED, BLIS_REJECTED, BLIS_BLOCK_STORED, BLIS_BLOCK_EVICTED };

/* generated: begin rows (BLIS_RECORD=1 cargo test -p blis-abi) */
/* A request at its arrival. The number of its output tokens is unknown to policies. */
typedef struct blis_request {
    uint64_t now_us, arrival_us, deadline_us, slo_ttft_us, slo_itl_us;
    uint32_t id, input_tokens, max_output_tokens, prompt_blocks, shared_blocks, block_size;
    int32_t class_priority, client_priority;
    uint32_t slo_class, tenant, session, model, client, prefix_group, round_index, tenant_in_flight;
    uint32_t adapter, stage;
} blis_request;

/* Ages of the columns by group: time since they were refreshed. The largest number for a group of which this service
 * has no column. (Constant columns and those of the router itself are never stale.) */
typedef struct blis_ages {
    uint64_t periodic_us, cache_us, gateway_us, pipeline_us;
} blis_ages;

/* A request that joins the waiting queue of its instance. */
typedef struct blis_queued {
    int64_t priority, turn;
    uint32_t generated_tokens, preemptions;
} blis_queued;

/* A request of the running batch. */
typedef struct blis_running {
    uint64_t arrival_us, deadline_us;
    int64_t priority;
    uint32_t id, input_tokens, computed_tokens, generated_tokens, kv_blocks, preemptions;
    int32_t class_priority;
    uint32_t slo_class, tenant, session;
} blis_running;

/* Sums over the requests of one engine step. A request computes n tokens on top of its context; it is in prefill
 * while its context is shorter than its prompt. */
typedef struct blis_step {
    uint64_t prefill_requests, prefill_tokens, prefill_tokens_squared, prefill_tokens_by_input,
        prefill_tokens_by_context, prefill_context, decode_requests, decode_context;
} blis_step;

/* A band: all requests of one priority in the gateway's queue. */
typedef struct blis_band {
    uint64_t oldest_wait_us;
    int32_t priority;
    uint32_t queued;
} blis_band;

/* A flow: the requests of one tenant in one band, with the request that goes first (its head). */
typedef struct blis_flow {
    double served_decayed, head_rank;
    uint64_t served_as_of_us, head_turn, head_wait_us, head_deadline_us, dispatched, served_input, served_output;
    uint32_t tenant, tenant_order, queued, in_flight, head_id, head_input_tokens, head_max_output_tokens,
        head_slo_class;
} blis_flow;

/* A dispatched request that may be evicted. */
typedef struct blis_in_flight {
    uint64_t dispatched_us;
    uint32_t id;
    int32_t priority;
    uint32_t input_tokens, tenant;
} blis_in_flight;

/* A group: replicas of one model with the same configuration, for a scaling policy. */
typedef struct blis_group {
    uint64_t now_us, scraped_us, next_ready_us, kv_tokens, in_flight_tokens, queued_tokens, oldest_wait_us,
        ttft_p90_us;
    uint64_t tpot_p90_us, input_tokens, cached_tokens, output_tokens;
    double price, kv_used, kv_used_max, saturation;
    uint32_t model, gpus, min_replicas, max_replicas, max_num_seqs, max_num_batched_tokens, replicas, ready;
    uint32_t loading, pending, draining, queue_depth, queue_depth_max, batch_size, in_flight, queued;
    uint32_t arrived, completed;
} blis_group;

/* The group of a replica that is to be removed. */
typedef struct blis_drain_group {
    uint64_t now_us;
    double price;
    uint32_t group, model, gpus, min_replicas, max_replicas, replicas;
} blis_drain_group;

/* A replica that may be removed. */
typedef struct blis_replica {
    uint64_t created_us, active_since_us, in_flight_tokens;
    double kv_utilization;
    uint32_t id, state, instance, queue_depth, batch_size, in_flight, pool, node;
    uint32_t on_node, group_on_node;
} blis_replica;

/* A replica that needs GPUs. */
typedef struct blis_starting_replica {
    uint64_t now_us, created_us;
    uint32_t id, group, model, gpus;
} blis_starting_replica;

/* A node that has room for a replica. */
typedef struct blis_node {
    uint64_t ready_us;
    double price;
    uint32_t pool, node, gpus, free_gpus, replicas, group_replicas;
} blis_node;

/* A chunk of a KV tier that is ranked, or may be stored. */
typedef struct blis_kv_chunk {
    uint64_t created_us, last_use_us, previous_use_us;
    uint32_t tier, position, tokens, uses, offers, touch, slo_class, tenant;
    uint32_t session, prefix_group, round, input_tokens, client, adapter;
} blis_kv_chunk;

/* The tier to which chunks are offered. */
typedef struct blis_chunk_offer {
    uint64_t now_us, queued_bytes;
    double fill;
    uint32_t tier, capacity;
} blis_chunk_offer;

/* What a tier has for a request. */
typedef struct blis_kv_hit {
    uint64_t now_us, bytes, queued_bytes;
    double bandwidth;
    uint32_t request, gpu_tokens, tokens, input_tokens, prefill_tokens, waiting, running, slo_class;
    uint32_t tenant, session, prefix_group, round;
} blis_kv_hit;

/* A request for which an instance that decodes was chosen, and the transfers of KV between instances. */
typedef struct blis_routed_request {
    uint64_t now_us;
    double transfer_us_per_token;
    uint32_t request, input_tokens, chosen, transfers, transfer_tokens, slo_class, tenant, session;
    uint32_t prefix_group, round;
} blis_routed_request;

/* An instance that may decode or prefill a request. */
typedef struct blis_pool_instance {
    uint64_t in_flight_tokens;
    double kv_utilization;
    uint32_t instance, queue_depth, batch_size, in_flight, uncached_tokens, free_kv_blocks, transfers,
        transfer_tokens;
} blis_pool_instance;

/* An instance before a step. Counts of tokens, requests and free blocks are on a grid: numbers up to 16 are exact,
 * larger ones have four significant binary digits, rounded down (17 is 16, 100 is 96). */
typedef struct blis_step_state {
    uint32_t decoding, prefilling, prefill_tokens, waiting, head_tokens, free_kv_blocks, total_kv_blocks, block_size;
    uint32_t max_num_batched_tokens, max_num_seqs;
} blis_step_state;

/* An event in the life of a request, or of a block in a prefix cache. */
typedef struct blis_event {
    uint64_t at_us, ttft_us, e2e_us;
    uint32_t kind, request, instance, input_tokens, generated_tokens, slo_class, tenant, session;
    uint32_t prefix_group, block;
} blis_event;

/* The constant times of a latency model, µs. */
typedef struct blis_latency_constants {
    uint64_t shortest_step_us, output_token_us, post_decode_us, scheduling_us, preemption_us;
} blis_latency_constants;

/* Where a request is prefilled and decoded. */
typedef struct blis_prefill_choice {
    uint32_t remote, decode, prefill;
} blis_prefill_choice;

/* What a step may compute of prompts. */
typedef struct blis_step_budget {
    uint32_t prefill_tokens, prefill_requests, reserve;
} blis_step_budget;

/* generated: end rows */

/* Row `i` of an array with rows that are `stride` bytes apart. */
#define BLIS_ROW(type, rows, stride, i) ((const type *)((const char *)(rows) + (size_t)(i) * (stride)))

/* Text, not necessarily terminated by 0. */
typedef struct blis_text {
    const char *data;
    size_t len;
} blis_text;

typedef struct blis_texts {
    const blis_text *items;
    size_t count;
} blis_texts;

enum { BLIS_IS_NUMBER, BLIS_IS_TEXT, BLIS_IS_TABLE };

typedef struct blis_value {
    uint32_t kind;         /* BLIS_IS_NUMBER, BLIS_IS_TEXT or BLIS_IS_TABLE */
    uint32_t columns;      /* of a table: numbers in a row */
    double number;         /* of a number */
    blis_text text;        /* of a text */
    const double *numbers; /* of a table, row by row */
    size_t count;          /* of a table: all its numbers */
} blis_value;

typedef struct blis_parameter {
    blis_text name, about;
    blis_value default_value; /* other values have the same type, and tables as many columns */
    double min, max;          /* of a number, or of every number of a table */
} blis_parameter;

/* Kinds, columns and events have the names of sdk/wit/since-v1.1.0/policy.wit. */
typedef struct blis_description {
    blis_text name, version, about;
    blis_texts kinds;    /* "admission", "routing", … */
    blis_texts reads;    /* "queue-depth", "in-flight", …: the columns of a row, in this order */
    blis_texts events;   /* "routed", "first-token", … */
    uint32_t scores;     /* 1 if the table has `scores` */
    uint32_t every_step; /* 1 if a step may get shorter as contexts grow (latency) */
    const blis_parameter *parameters;
    size_t parameter_count;
} blis_description;

/* Functions that a policy may call during a call by the host; `context` is their first argument. */
typedef struct blis_host {
    void *context;
    void (*log)(void *context, uint32_t level, blis_text message); /* 0 error, 1 warning, 2 information, 3 detail */
    void (*fail)(void *context, blis_text message);                /* this call has no valid result */
    uint64_t (*random)(void *context);
    uint32_t (*pick)(void *context, uint32_t n);
    size_t (*prompt_blocks)(void *context, const uint32_t **blocks); /* returns their number; valid during the call */
    blis_text (*text)(void *context, uint32_t name);
    /* During `admit`, `route`, `scores`, `filter` and `saturation`: the indices of the rows that may differ from those that this state
     * saw in the previous call of one of these for another request, in any order and possibly repeated. Returns their number; valid during
     * the call. Returns SIZE_MAX if any row may differ: after `create` and `restore`, after a call that failed, when
     * the signals were refreshed. */
    size_t (*changed)(void *context, const uint32_t **indices);
} blis_host;

typedef struct blis_instance_info {
    uint32_t id, max_num_seqs, total_kv_blocks, block_size;
} blis_instance_info;

typedef struct blis_model_fact {
    blis_text name;
    double value;
} blis_model_fact;

typedef struct blis_setup {
    blis_text kind; /* the name of the kind for which this state is used */
    const blis_instance_info *instances;
    size_t instance_count;
    const blis_value *parameters; /* as many as declared, in that order */
    const blis_model_fact *model_facts;
    size_t model_fact_count;
} blis_setup;

/* The first fields of the table below, for its initialiser. */
#define BLIS_TABLE_HEAD                                                                                   \
    .abi_version = BLIS_ABI_VERSION, .size = sizeof(blis_policy_v1),                                      \
    .struct_sizes = {sizeof(blis_request), sizeof(blis_ages), sizeof(blis_queued), sizeof(blis_running),  \
                     sizeof(blis_step), sizeof(blis_event), sizeof(blis_value)}

/* The table. A function of a kind that `describe` does not name may be NULL. */
typedef struct blis_policy_v1 {
    uint32_t abi_version; /* BLIS_ABI_VERSION */
    uint32_t size;        /* sizeof(blis_policy_v1) */
    /* sizeof of the structs above, in their order: request, ages, queued, running, step, event, value */
    uint32_t struct_sizes[7];
    uint32_t reserved;

    const blis_description *(*describe)(void);
    /* Returns NULL, after host->fail, if no state can be created. */
    void *(*create)(const blis_host *host, const blis_setup *setup);
    void (*destroy)(void *state);
    /* Writes at most `capacity` bytes and returns the number of bytes that the state needs. */
    size_t (*save)(const blis_host *host, const void *state, uint8_t *buffer, size_t capacity);
    /* Returns 0 if the state cannot be restored. */
    uint32_t (*restore)(const blis_host *host, void *state, const uint8_t *bytes, size_t len);

    /* The functions of kinds. `instances` and lists have rows of `stride` bytes; a row of an instance has a double for every
     * column in `reads`. Hosts accept tables that end after any function from `filter` on. */
    /* generated: begin functions (BLIS_RECORD=1 cargo test -p blis-abi) */
    /* Admits a request, or rejects it with a reason. The instances have a row each, one after the other, with the
     * columns that the description lists, in that order. Returns 1 to admit; 0 to reject, with a reason that stays
     * valid until the next call. */
    uint32_t (*admit)(const blis_host *host, void *state, const blis_request *request, const blis_ages *ages,
                      const void *instances, size_t count, size_t stride, blis_text *reason);
    /* The index of the instance of a request. There is at least one. Rows as for admission. */
    uint32_t (*route)(const blis_host *host, void *state, const blis_request *request, const blis_ages *ages,
                      const void *instances, size_t count, size_t stride);
    /* A score for each instance, without a choice. Higher is better. Called just before `route`, and only if scores
     * are recorded; as a scorer of a pipeline it is called for every request, and `route` is not: numbers below 0
     * count as 0, above 1 as 1. Writes one number for each row. */
    void (*scores)(const blis_host *host, const void *state, const blis_request *request, const blis_ages *ages,
                   const void *instances, size_t count, size_t stride, double *numbers);
    /* The priority of a request: a higher number goes first. */
    int64_t (*priority)(const blis_host *host, void *state, const blis_request *request);
    /* The rank of a request in a waiting queue: the smallest is scheduled first. Kept until the request leaves the
     * queue. */
    double (*rank)(const blis_host *host, void *state, const blis_request *request, const blis_queued *queued);
    /* The index of the victim in the running batch; the number is the index of the request that needs its blocks. The
     * batch is in the order of admission, and not empty. Called again until the requester has its blocks; choosing it
     * ends the calls. */
    uint32_t (*victim)(const blis_host *host, void *state, uint64_t now_us, uint32_t requester, const void *batch,
                       size_t batch_count, size_t stride);
    /* The constant times of the model. Called once. Before the call the result has what holds if nothing is written.
     * */
    void (*constants)(const blis_host *host, const void *state, blis_latency_constants *result);
    /* The time from arrival to the waiting queue of a request with so many prompt tokens. */
    uint64_t (*queueing_time)(const blis_host *host, const void *state, uint32_t input_tokens);
    /* The duration of an engine step. At least 1 µs. Must depend on the step only. */
    uint64_t (*step_time)(const blis_host *host, const void *state, const blis_step *step);
    /* Delivers an event, in simulated order and before any later decision. */
    void (*observe)(const blis_host *host, void *state, const blis_event *event);
    /* A number for each instance: 0 leaves it out. Any other number keeps it. If a filter leaves out all that the
     * filters before it kept, it keeps them all. Writes one number for each row. */
    void (*filter)(const blis_host *host, void *state, const blis_request *request, const blis_ages *ages,
                   const void *instances, size_t count, size_t stride, double *numbers);
    /* How full the service is: 0 empty, 1 full. More than 1 if it is overloaded; not below 0. Rows as for admission.
     * */
    double (*saturation)(const blis_host *host, void *state, uint64_t now_us, const blis_ages *ages,
                         const void *instances, size_t count, size_t stride);
    /* A ceiling for each band; the number is the saturation. Bands are in the order of their priority, the highest
     * first. A band waits while the saturation is at or above its ceiling, and so do all bands below it. Writes one
     * number for each row. */
    void (*ceilings)(const blis_host *host, void *state, uint64_t now_us, double saturation, const void *bands,
                     size_t bands_count, size_t stride, double *numbers);
    /* The index of the flow of a band that is served next; the number is the saturation. Flows are those with queued
     * requests, in the order of the names of tenants; there is at least one. */
    uint32_t (*fair_pick)(const blis_host *host, void *state, uint64_t now_us, double saturation,
                          const blis_band *band, const void *flows, size_t flows_count, size_t stride);
    /* The rank of a request in its flow: the smallest goes first; the number is the time at which it expires. Of
     * equal ones the one enqueued first. Kept until the request leaves the queue, which it does unserved when it
     * expires; the largest number if never. */
    double (*order)(const blis_host *host, void *state, const blis_request *request, uint64_t expires_us);
    /* The index of the request that makes room for a band. None evicts none. All requests are of a priority below 0
     * and below that of the band that waits, in the order of their dispatch; there is at least one. Returns
     * BLIS_NONE_U32 for none. */
    uint32_t (*evict)(const blis_host *host, void *state, uint64_t now_us, const blis_band *demand,
                      const void *in_flight, size_t in_flight_count, size_t stride);
    /* A number of replicas for each group, below 0 for none; the second list has the groups of earlier decisions.
     * Whole numbers, which count loading and pending replicas and no draining ones. The host applies the limits of
     * the group, and the stabilization windows and rates of the service. Earlier decisions, up to 20, are in the
     * order of time: as many rows for each as there are groups. Writes one number for each row. */
    void (*scale)(const blis_host *host, void *state, uint64_t now_us, const void *groups, size_t groups_count,
                  const void *history, size_t history_count, size_t stride, double *numbers);
    /* The index of the replica that is removed. The replicas are all of the group but those that drain, in the order
     * in which they were created; there is at least one. Called for each replica that is removed, after the one
     * before has left the list. An active one drains: it finishes its requests and gets no others; one that starts is
     * gone at once. */
    uint32_t (*drain)(const blis_host *host, void *state, const blis_drain_group *group, const void *replicas,
                      size_t replicas_count, size_t stride);
    /* The index of the node of a replica; without one it waits. The nodes have room for the replica, in the order of
     * its pools and of their nodes; at least one of them is ready. With none, or a node that is not ready, the
     * replica waits, and is placed anew whenever a replica starts or ends and a node comes or goes. A replica that
     * needs more GPUs than a node has takes the chosen node and the first others of the pool that have room. Returns
     * BLIS_NONE_U32 for none. */
    uint32_t (*placement)(const blis_host *host, void *state, const blis_starting_replica *replica, const void *nodes,
                          size_t nodes_count, size_t stride);
    /* A rank for each chunk: the smallest is evicted first. Of equal ones the least recently used, as in LRU of vLLM.
     * The chunks were touched now: stored, used by another request, or their request ended; a rank holds until the
     * next touch. A LoRA adapter is a chunk of tier 2 or 3: those without a running request are ranked when one of
     * them has to make room for another. Writes one number for each row. */
    void (*keep)(const blis_host *host, void *state, uint64_t now_us, const void *chunks, size_t chunks_count,
                 size_t stride, double *numbers);
    /* For each chunk whether it is stored: 0 is no. The chunks are not in the tier. Writes one number for each row.
     * */
    void (*store)(const blis_host *host, void *state, const blis_chunk_offer *offer, const void *chunks,
                  size_t chunks_count, size_t stride, double *numbers);
    /* Whether a request loads what was found. If not, it computes it. Called once each time that the request is to be
     * scheduled and finds something. Returns 0 for no. */
    uint32_t (*load)(const blis_host *host, void *state, const blis_kv_hit *hit);
    /* Where a request is prefilled and decoded; the lists are the instances that decode, and those that prefill.
     * There is at least one of each. Called once for each request, after the routing policy chose the instance that
     * decodes it. Before the call the result has what holds if nothing is written. */
    void (*disaggregate)(const blis_host *host, void *state, const blis_routed_request *request, const void *decode,
                         size_t decode_count, const void *prefill, size_t prefill_count, size_t stride,
                         blis_prefill_choice *result);
    /* The budget of a step. Must depend on the state only: the host asks once for each state and keeps the budget.
     * Where no request decodes, at least one token of one request is computed. Before the call the result has what
     * holds if nothing is written. */
    void (*budget)(const blis_host *host, const void *state, const blis_step_state *step, blis_step_budget *result);
    /* generated: end functions */
} blis_policy_v1;

#if defined(_WIN32)
#define BLIS_EXPORT __declspec(dllexport)
#else
#define BLIS_EXPORT __attribute__((visibility("default")))
#endif

BLIS_EXPORT const blis_policy_v1 *blis_plugin_v1(void);

/* Zeroed memory for a state, with or without a C library; aborts if there is none. */
#ifdef __wasm__
void *blis_alloc(size_t size);
void blis_free(void *memory);
#else
#include <stdlib.h>
static inline void *blis_alloc(size_t size) {
    void *memory = calloc(1, size ? size : 1);
    if (!memory) abort();
    return memory;
}
static inline void blis_free(void *memory) { free(memory); }
#endif

#if defined(__wasm__) && defined(BLIS_POLICY_IMPLEMENTATION)
#include "blis_policy_wasm.h"
#endif

#ifdef __cplusplus
}
#endif

#endif
