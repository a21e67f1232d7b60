/* The C interface of BLIS policies.
 *
 * A policy fills in one table, `blis_policy_v1`, and exports one function that returns it:
 *
 *     const blis_policy_v1 *blis_plugin_v1(void);
 *
 * The same source becomes a native library (`cc -shared -fPIC -O2`), which runs unsandboxed and only
 * with `--allow-native`, or a sandboxed WebAssembly module: compiled for wasm32, this header adds the
 * exports of the WIT package blis:policy@1.0.0 where BLIS_POLICY_IMPLEMENTATION is defined before it
 * is included, in one file. README.md beside it shows both.
 *
 * Structs have the layout of the WIT records of the same names (sdk/wit/since-v1.0.0/policy.wit, which
 * documents every field): numbers only, the largest first, no padding. All times are microseconds of
 * simulated time. The host passes the size of a row (`stride`): later versions may append fields, so
 * use BLIS_ROW to step from row to row. Pointers that the host passes are valid during the call only.
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

typedef struct blis_request {
    uint64_t now_us, arrival_us, deadline_us;
    uint32_t id, input_tokens, max_output_tokens, prompt_blocks, shared_blocks, block_size;
    int32_t class_priority, client_priority;
    uint32_t slo_class, tenant, session, model, client, prefix_group, round_index, tenant_in_flight;
} blis_request;

typedef struct blis_staleness {
    uint64_t load_us, cached_blocks_us;
} blis_staleness;

typedef struct blis_instance {
    double kv_utilization, cache_hit_rate;
    uint64_t preemption_count;
    uint32_t queue_depth, batch_size, in_flight, cached_blocks, free_kv_blocks, total_kv_blocks;
} blis_instance;

typedef struct blis_queued {
    int64_t priority, turn;
    uint32_t generated_tokens, preemptions;
} blis_queued;

typedef struct blis_running {
    uint64_t arrival_us, deadline_us;
    int64_t priority;
    uint32_t id, input_tokens, computed_tokens, generated_tokens, kv_blocks, preemptions;
    int32_t class_priority;
    uint32_t slo_class, tenant, session;
} blis_running;

typedef struct blis_step {
    uint64_t prefill_requests, prefill_tokens, prefill_tokens_squared, prefill_tokens_by_input;
    uint64_t prefill_tokens_by_context, prefill_context, decode_requests, decode_context;
} blis_step;

enum { BLIS_ROUTED, BLIS_FIRST_TOKEN, BLIS_COMPLETED, BLIS_ENDED, BLIS_REJECTED, BLIS_BLOCK_STORED, BLIS_BLOCK_EVICTED };

typedef struct blis_event {
    uint64_t at_us, ttft_us, e2e_us;
    uint32_t kind, request, instance, input_tokens, generated_tokens;
    uint32_t slo_class, tenant, session, prefix_group, block;
} blis_event;

/* Row `i` of an array with rows that are `stride` bytes apart. */
#define BLIS_ROW(type, rows, stride, i) ((const type *)((const char *)(rows) + (size_t)(i) * (stride)))

/* Kinds, columns and events are sets of bits. */
enum { BLIS_ADMISSION = 1, BLIS_ROUTING = 2, BLIS_PRIORITY = 4, BLIS_SCHEDULING = 8, BLIS_PREEMPTION = 16, BLIS_LATENCY = 32 };
enum { BLIS_READS_LOAD = 1, BLIS_READS_IN_FLIGHT = 2, BLIS_READS_CACHED_BLOCKS = 4 };
enum { BLIS_OBSERVES_ROUTED = 1, BLIS_OBSERVES_FIRST_TOKEN = 2, BLIS_OBSERVES_COMPLETED = 4, BLIS_OBSERVES_ENDED = 8, BLIS_OBSERVES_REJECTED = 16, BLIS_OBSERVES_BLOCKS = 32 };

/* Text, not necessarily terminated by 0. */
typedef struct blis_text {
    const char *data;
    size_t len;
} blis_text;

typedef struct blis_parameter {
    blis_text name, about;
    double default_value, min, max;
} blis_parameter;

typedef struct blis_description {
    blis_text name, version, about;
    uint32_t kinds, reads, events;
    uint32_t scores;     /* 1 if the table has `scores` */
    uint32_t every_step; /* 1 if a step may get shorter as contexts grow (latency) */
    uint32_t parameter_count;
    const blis_parameter *parameters;
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
    /* During `admit`, `route` and `scores`: the indices of the rows that may differ from those that this state saw
     * in the previous `admit` or `route`, in any order and possibly repeated. Returns their number; valid during
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
    uint32_t kind; /* one bit: the kind for which this state is used */
    uint32_t instance_count;
    const blis_instance_info *instances;
    const double *parameters; /* as many as declared, in that order */
    const blis_model_fact *model_facts;
    size_t model_fact_count;
} blis_setup;

typedef struct blis_latency_constants {
    uint64_t shortest_step_us, output_token_us, post_decode_us, scheduling_us, preemption_us;
} blis_latency_constants;

/* The first fields of the table below, for its initialiser. */
#define BLIS_TABLE_HEAD                                                                                   \
    .abi_version = BLIS_ABI_VERSION, .size = sizeof(blis_policy_v1),                                      \
    .struct_sizes = {sizeof(blis_request), sizeof(blis_staleness), sizeof(blis_instance), sizeof(blis_queued), \
                     sizeof(blis_running), sizeof(blis_step), sizeof(blis_event)}

/* The table. A function of a kind that `describe` does not name may be NULL. */
typedef struct blis_policy_v1 {
    uint32_t abi_version; /* BLIS_ABI_VERSION */
    uint32_t size;        /* sizeof(blis_policy_v1) */
    /* sizeof of the structs above, in their order: request, staleness, instance, queued, running, step, event */
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

    /* Returns 1 to admit; 0 to reject, with a reason that stays valid until the next call. */
    uint32_t (*admit)(const blis_host *host, void *state, const blis_request *request, const blis_staleness *staleness,
                      const void *instances, size_t count, size_t stride, blis_text *reason);
    uint32_t (*route)(const blis_host *host, void *state, const blis_request *request, const blis_staleness *staleness,
                      const void *instances, size_t count, size_t stride);
    /* Writes `count` scores; must not change the state. */
    void (*scores)(const blis_host *host, const void *state, const blis_request *request, const blis_staleness *staleness,
                   const void *instances, size_t count, size_t stride, double *scores);
    int64_t (*priority)(const blis_host *host, void *state, const blis_request *request);
    double (*rank)(const blis_host *host, void *state, const blis_request *request, const blis_queued *queued);
    uint32_t (*victim)(const blis_host *host, void *state, uint64_t now_us, uint32_t requester,
                       const void *batch, size_t count, size_t stride);
    void (*constants)(const blis_host *host, const void *state, blis_latency_constants *constants);
    uint64_t (*queueing_time)(const blis_host *host, const void *state, uint32_t input_tokens);
    uint64_t (*step_time)(const blis_host *host, const void *state, const blis_step *step);
    void (*observe)(const blis_host *host, void *state, const blis_event *event);
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
