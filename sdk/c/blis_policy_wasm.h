/* The exports of blis:policy@1.1.0 (sdk/wit/since-v1.1.0/policy.wit), forwarded to the table that
 * blis_plugin_v1() returns. Included by blis_policy.h; needs no C library.
 *
 * By the canonical ABI of the component model, parameters of more than 16 numbers are passed as one
 * pointer, results of more than one number are returned as a pointer, and records lie in memory as
 * structs do. Parameters lie in an arena that is emptied when the call returns. All interfaces are
 * exported; those of kinds that `describe` does not name are never called.
 */
#ifndef BLIS_POLICY_WASM_H
#define BLIS_POLICY_WASM_H

#define BLIS_W_EXPORT(name) __attribute__((export_name(name), used))
/* Functions called for each decision inline the policy's function: a call through a table costs 100 ns. */
#define BLIS_W_DECISION(name) __attribute__((flatten)) BLIS_W_EXPORT(name)
#define BLIS_W_IMPORT(name) __attribute__((import_module("blis:policy/host@1.1.0"), import_name(name)))

typedef struct blis_w_list {
    const void *start;
    size_t len;
} blis_w_list;

BLIS_W_IMPORT("log") void blis_w_import_log(uint32_t level, const char *data, size_t len);
BLIS_W_IMPORT("random") uint64_t blis_w_import_random(void);
BLIS_W_IMPORT("pick") uint32_t blis_w_import_pick(uint32_t n);
BLIS_W_IMPORT("prompt-blocks") void blis_w_import_prompt_blocks(blis_w_list *result);
BLIS_W_IMPORT("text") void blis_w_import_text(uint32_t name, blis_w_list *result);

/* `option<list<u32>>` */
typedef struct blis_w_changed {
    uint8_t is_known;
    blis_w_list indices;
} blis_w_changed;

BLIS_W_IMPORT("changed") void blis_w_import_changed(blis_w_changed *result);

/* Functions that compilers call implicitly. */
__attribute__((weak, no_builtin)) void *memset(void *to, int value, size_t len) {
    for (size_t i = 0; i < len; i++) ((unsigned char *)to)[i] = (unsigned char)value;
    return to;
}

__attribute__((weak, no_builtin)) void *memmove(void *to, const void *from, size_t len) {
    unsigned char *target = (unsigned char *)to;
    const unsigned char *source = (const unsigned char *)from;
    if (target <= source)
        for (size_t i = 0; i < len; i++) target[i] = source[i];
    else
        while (len-- > 0) target[len] = source[len];
    return to;
}

__attribute__((weak, no_builtin)) void *memcpy(void *to, const void *from, size_t len) {
    return memmove(to, from, len);
}

/* ---- Memory: blocks of 16, 32, 64 … bytes; a freed block is reused for the same size. ---- */

typedef union blis_w_block {
    struct {
        uint32_t shift; /* the block is 1 << shift bytes long, this header included */
        union blis_w_block *next;
    } head;
    unsigned char align[16];
} blis_w_block;

extern unsigned char __heap_base;

static uintptr_t blis_w_top;
static blis_w_block *blis_w_free_blocks[32];

/* A block of memory that was never used, and is therefore zero. */
static blis_w_block *blis_w_new_block(uint32_t shift) {
    if (blis_w_top == 0) blis_w_top = ((uintptr_t)&__heap_base + 15) & ~(uintptr_t)15;
    const uint64_t end = (uint64_t)blis_w_top + ((uint64_t)1 << shift);
    const uint64_t have = (uint64_t)__builtin_wasm_memory_size(0) << 16;
    if (end > have && __builtin_wasm_memory_grow(0, (size_t)((end - have + 0xffff) >> 16)) == (size_t)-1) __builtin_trap();
    blis_w_block *block = (blis_w_block *)blis_w_top;
    blis_w_top = (uintptr_t)end;
    return block;
}

static void *blis_w_take(size_t size, int zeroed) {
    if (size > (size_t)1 << 30) __builtin_trap();
    uint32_t shift = 5;
    while (((size_t)1 << shift) < size + sizeof(blis_w_block)) shift++;
    blis_w_block *block = blis_w_free_blocks[shift];
    if (block) {
        blis_w_free_blocks[shift] = block->head.next;
        if (zeroed) memset(block + 1, 0, size);
    } else {
        block = blis_w_new_block(shift);
    }
    block->head.shift = shift;
    return block + 1;
}

void *blis_alloc(size_t size) { return blis_w_take(size, 1); }

void blis_free(void *memory) {
    if (!memory) return;
    blis_w_block *block = (blis_w_block *)memory - 1;
    block->head.next = blis_w_free_blocks[block->head.shift];
    blis_w_free_blocks[block->head.shift] = block;
}

/* ---- The arena for what the host passes. ---- */

static unsigned char *blis_w_arena;
static size_t blis_w_arena_size, blis_w_arena_used;
/* Arenas that became too small during this call; parameters lie in them. */
static void *blis_w_outgrown[32];
static uint32_t blis_w_outgrown_count;

BLIS_W_EXPORT("cabi_realloc") void *blis_w_realloc(void *old, size_t old_size, size_t align, size_t size) {
    size_t offset = (blis_w_arena_used + align - 1) & ~(align - 1);
    if (offset > blis_w_arena_size || size > blis_w_arena_size - offset) {
        if (size > (size_t)1 << 29 || blis_w_outgrown_count == 32) __builtin_trap();
        if (blis_w_arena) blis_w_outgrown[blis_w_outgrown_count++] = blis_w_arena;
        blis_w_arena_size = 2 * blis_w_arena_size + size + 4096;
        blis_w_arena = (unsigned char *)blis_w_take(blis_w_arena_size, 0);
        offset = 0;
    }
    blis_w_arena_used = offset + size;
    if (old_size > 0) memcpy(blis_w_arena + offset, old, old_size < size ? old_size : size);
    return blis_w_arena + offset;
}

/* Memory in which the host writes the parameters of decisions: `size` bytes, which are the host's until it calls this
 * again. Without it the host would call cabi_realloc for every list of every decision, and write all rows anew. */
BLIS_W_EXPORT("blis_input") void *blis_w_input(size_t size) {
    static void *input;
    if (size > (size_t)1 << 29) __builtin_trap();
    blis_free(input);
    input = blis_w_take(size, 0);
    return input;
}

/* ---- The host, as the table's functions see it. ---- */

static char blis_w_failure[512];
static size_t blis_w_failure_len;
static uint32_t blis_w_failed;

static void blis_w_log(void *context, uint32_t level, blis_text message) {
    (void)context;
    blis_w_import_log(level, message.data, message.len);
}

static void blis_w_fail(void *context, blis_text message) {
    (void)context;
    blis_w_failed = 1;
    blis_w_failure_len = message.len < sizeof blis_w_failure ? message.len : sizeof blis_w_failure;
    memcpy(blis_w_failure, message.data, blis_w_failure_len);
}

static uint64_t blis_w_random(void *context) {
    (void)context;
    return blis_w_import_random();
}

static uint32_t blis_w_pick(void *context, uint32_t n) {
    (void)context;
    return blis_w_import_pick(n);
}

static size_t blis_w_prompt_blocks(void *context, const uint32_t **blocks) {
    (void)context;
    blis_w_list list;
    blis_w_import_prompt_blocks(&list);
    *blocks = (const uint32_t *)list.start;
    return list.len;
}

static blis_text blis_w_text(void *context, uint32_t name) {
    (void)context;
    blis_w_list list;
    blis_w_import_text(name, &list);
    blis_text text = {(const char *)list.start, list.len};
    return text;
}

static size_t blis_w_changed_indices(void *context, const uint32_t **indices) {
    (void)context;
    blis_w_changed changed;
    blis_w_import_changed(&changed);
    if (!changed.is_known) return SIZE_MAX;
    *indices = (const uint32_t *)changed.indices.start;
    return changed.indices.len;
}

static const blis_host blis_w_host = {0,           blis_w_log,           blis_w_fail, blis_w_random,
                                      blis_w_pick, blis_w_prompt_blocks, blis_w_text, blis_w_changed_indices};

/* ---- Calls. ---- */

static void *blis_w_state;

/* The end of a call. If the policy called fail, the reason goes to the host's log and the call traps. */
static void blis_w_done(void) {
    if (blis_w_failed) {
        blis_w_import_log(0, blis_w_failure, blis_w_failure_len);
        __builtin_trap();
    }
    blis_w_arena_used = 0;
    while (blis_w_outgrown_count > 0) blis_free(blis_w_outgrown[--blis_w_outgrown_count]);
}

/* `result<_, string>` and `decision`: 1 with a text, or 0. */
typedef struct blis_w_refusal {
    uint8_t refused;
    blis_text text;
} blis_w_refusal;

static blis_w_refusal blis_w_result;
static blis_w_list blis_w_bytes;

static const blis_w_refusal *blis_w_refuse_if(uint32_t refused) {
    refused |= blis_w_failed;
    if (refused && blis_w_failure_len == 0) {
        blis_text unsaid = BLIS_TEXT("the policy does not say why");
        blis_w_fail(0, unsaid);
    }
    blis_w_result.refused = refused != 0;
    blis_w_result.text.data = blis_w_failure;
    blis_w_result.text.len = refused ? blis_w_failure_len : 0;
    blis_w_failed = 0;
    blis_w_failure_len = 0;
    blis_w_done();
    return &blis_w_result;
}

/* `value`: the case, and 12 bytes that depend on it. */
typedef struct blis_w_value {
    uint8_t type;
    union {
        double number;
        blis_text text;
        struct {
            uint32_t columns;
            const double *numbers;
            size_t count;
        } table;
    } as;
} blis_w_value;

typedef struct blis_w_parameter {
    blis_text name, about;
    blis_w_value default_value;
    double min, max;
} blis_w_parameter;

typedef struct blis_w_description {
    blis_text name, version, about;
    blis_texts kinds, reads, events;
    uint8_t scores, every_step;
    const blis_w_parameter *parameters;
    size_t parameter_count;
} blis_w_description;

static blis_w_value blis_w_lowered(const blis_value *value) {
    blis_w_value result;
    result.type = (uint8_t)value->kind;
    if (value->kind == BLIS_IS_TEXT) {
        result.as.text = value->text;
    } else if (value->kind == BLIS_IS_TABLE) {
        result.as.table.columns = value->columns;
        result.as.table.numbers = value->numbers;
        result.as.table.count = value->count;
    } else {
        result.as.number = value->number;
    }
    return result;
}

static blis_value blis_w_lifted(const blis_w_value *value) {
    blis_value result = BLIS_NUMBER(0.0);
    result.kind = value->type;
    if (value->type == BLIS_IS_TEXT) {
        result.text = value->as.text;
    } else if (value->type == BLIS_IS_TABLE) {
        result.columns = value->as.table.columns;
        result.numbers = value->as.table.numbers;
        result.count = value->as.table.count;
    } else {
        result.number = value->as.number;
    }
    return result;
}

BLIS_W_EXPORT("blis:policy/plugin@1.1.0#describe") const blis_w_description *blis_w_describe(void) {
    static blis_w_description result;
    const blis_description *from = blis_plugin_v1()->describe();
    blis_w_parameter *parameters = (blis_w_parameter *)result.parameters;
    if (!parameters) parameters = (blis_w_parameter *)blis_alloc(from->parameter_count * sizeof *parameters);
    for (size_t i = 0; i < from->parameter_count; i++) {
        parameters[i].name = from->parameters[i].name;
        parameters[i].about = from->parameters[i].about;
        parameters[i].default_value = blis_w_lowered(&from->parameters[i].default_value);
        parameters[i].min = from->parameters[i].min;
        parameters[i].max = from->parameters[i].max;
    }
    result.name = from->name;
    result.version = from->version;
    result.about = from->about;
    result.kinds = from->kinds;
    result.reads = from->reads;
    result.events = from->events;
    result.scores = from->scores != 0;
    result.every_step = from->every_step != 0;
    result.parameters = parameters;
    result.parameter_count = from->parameter_count;
    return &result;
}

/* Size of a row of an instance, bytes. */
static size_t blis_w_stride;

BLIS_W_EXPORT("blis:policy/plugin@1.1.0#configure")
const blis_w_refusal *blis_w_configure(const char *kind, size_t kind_len, const blis_w_value *parameters,
                                       size_t parameter_count, const blis_instance_info *instances,
                                       size_t instance_count, const blis_model_fact *model_facts,
                                       size_t model_fact_count) {
    const blis_policy_v1 *table = blis_plugin_v1();
    const blis_description *description = table->describe();
    if (parameter_count != description->parameter_count) __builtin_trap();
    blis_w_stride = description->reads.count * sizeof(double);
    blis_value *values = (blis_value *)blis_w_take(parameter_count * sizeof *values, 0);
    for (size_t i = 0; i < parameter_count; i++) values[i] = blis_w_lifted(&parameters[i]);
    const blis_setup setup = {{kind, kind_len}, instances, instance_count, values, model_facts, model_fact_count};
    if (blis_w_state) table->destroy(blis_w_state);
    blis_w_state = table->create(&blis_w_host, &setup);
    blis_free(values);
    return blis_w_refuse_if(!blis_w_state);
}

BLIS_W_EXPORT("blis:policy/plugin@1.1.0#save") const blis_w_list *blis_w_save(void) {
    static size_t capacity;
    const blis_policy_v1 *table = blis_plugin_v1();
    size_t len = table->save(&blis_w_host, blis_w_state, (uint8_t *)blis_w_bytes.start, capacity);
    if (len > capacity) {
        blis_free((void *)blis_w_bytes.start);
        capacity = len;
        blis_w_bytes.start = blis_w_take(capacity, 0);
        len = table->save(&blis_w_host, blis_w_state, (uint8_t *)blis_w_bytes.start, capacity);
        if (len > capacity) __builtin_trap();
    }
    blis_w_bytes.len = len;
    blis_w_done();
    return &blis_w_bytes;
}

BLIS_W_EXPORT("blis:policy/plugin@1.1.0#restore")
const blis_w_refusal *blis_w_restore(const uint8_t *bytes, size_t len) {
    return blis_w_refuse_if(!blis_plugin_v1()->restore(&blis_w_host, blis_w_state, bytes, len));
}

/* `option<u32>` */
typedef struct blis_w_index {
    uint8_t is_some;
    uint32_t index;
} blis_w_index;

/* Numbers for the rows of a decision. */
static blis_w_list blis_w_numbers;
static size_t blis_w_numbers_capacity;

static double *blis_w_room_for(uint32_t count) {
    if (count > blis_w_numbers_capacity) {
        blis_free((void *)blis_w_numbers.start);
        blis_w_numbers_capacity = count;
        blis_w_numbers.start = blis_w_take(blis_w_numbers_capacity * sizeof(double), 0);
    }
    blis_w_numbers.len = count;
    return (double *)blis_w_numbers.start;
}

/* The same where each of them is `number` if the policy writes none. */
static double *blis_w_filled(uint32_t count, double number) {
    double *numbers = blis_w_room_for(count);
    for (uint32_t i = 0; i < count; i++) numbers[i] = number;
    return numbers;
}

/* generated: begin exports (BLIS_RECORD=1 cargo test -p blis-abi) */
typedef struct blis_w_admit_parameters {
    blis_request request;
    blis_ages ages;
    uint32_t count;
    const double *instances;
    size_t numbers;
} blis_w_admit_parameters;

BLIS_W_DECISION("blis:policy/admission@1.1.0#admit")
const blis_w_refusal *blis_w_admit(const blis_w_admit_parameters *given) {
    static blis_w_refusal decision;
    decision.refused = !blis_plugin_v1()->admit(&blis_w_host, blis_w_state, &given->request, &given->ages,
        given->instances, given->count, blis_w_stride, &decision.text);
    blis_w_done();
    return &decision;
}

typedef struct blis_w_route_parameters {
    blis_request request;
    blis_ages ages;
    uint32_t count;
    const double *instances;
    size_t numbers;
} blis_w_route_parameters;

BLIS_W_DECISION("blis:policy/routing@1.1.0#route")
uint32_t blis_w_route(const blis_w_route_parameters *given) {
    const uint32_t result = blis_plugin_v1()->route(&blis_w_host, blis_w_state, &given->request, &given->ages,
        given->instances, given->count, blis_w_stride);
    blis_w_done();
    return result;
}

typedef struct blis_w_scores_parameters {
    blis_request request;
    blis_ages ages;
    uint32_t count;
    const double *instances;
    size_t numbers;
} blis_w_scores_parameters;

BLIS_W_DECISION("blis:policy/routing-scores@1.1.0#scores")
const blis_w_list *blis_w_scores(const blis_w_scores_parameters *given) {
    double *numbers = blis_w_room_for(given->count);
    if (blis_plugin_v1()->scores) blis_plugin_v1()->scores(&blis_w_host, blis_w_state, &given->request, &given->ages,
        given->instances, given->count, blis_w_stride, numbers);
    blis_w_done();
    return &blis_w_numbers;
}

typedef struct blis_w_filter_parameters {
    blis_request request;
    blis_ages ages;
    uint32_t count;
    const double *instances;
    size_t numbers;
} blis_w_filter_parameters;

BLIS_W_DECISION("blis:policy/routing-filter@1.1.0#filter")
const blis_w_list *blis_w_filter(const blis_w_filter_parameters *given) {
    double *numbers = blis_w_room_for(given->count);
    blis_plugin_v1()->filter(&blis_w_host, blis_w_state, &given->request, &given->ages, given->instances,
        given->count, blis_w_stride, numbers);
    blis_w_done();
    return &blis_w_numbers;
}

typedef struct blis_w_priority_parameters {
    blis_request request;
} blis_w_priority_parameters;

BLIS_W_DECISION("blis:policy/priority@1.1.0#priority")
int64_t blis_w_priority(const blis_w_priority_parameters *given) {
    const int64_t result = blis_plugin_v1()->priority(&blis_w_host, blis_w_state, &given->request);
    blis_w_done();
    return result;
}

typedef struct blis_w_rank_parameters {
    blis_request request;
    blis_queued queued;
} blis_w_rank_parameters;

BLIS_W_DECISION("blis:policy/scheduling@1.1.0#rank")
double blis_w_rank(const blis_w_rank_parameters *given) {
    const double result = blis_plugin_v1()->rank(&blis_w_host, blis_w_state, &given->request, &given->queued);
    blis_w_done();
    return result;
}

BLIS_W_DECISION("blis:policy/preemption@1.1.0#victim")
uint32_t blis_w_victim(uint64_t now_us, uint32_t requester, const blis_running *batch, size_t batch_count) {
    const uint32_t result = blis_plugin_v1()->victim(&blis_w_host, blis_w_state, now_us, requester, batch,
        batch_count, sizeof(blis_running));
    blis_w_done();
    return result;
}

BLIS_W_DECISION("blis:policy/latency@1.1.0#step-time")
uint64_t blis_w_step_time(uint64_t step_prefill_requests, uint64_t step_prefill_tokens, uint64_t
    step_prefill_tokens_squared, uint64_t step_prefill_tokens_by_input, uint64_t step_prefill_tokens_by_context,
    uint64_t step_prefill_context, uint64_t step_decode_requests, uint64_t step_decode_context) {
    const blis_step step = {step_prefill_requests, step_prefill_tokens, step_prefill_tokens_squared,
        step_prefill_tokens_by_input, step_prefill_tokens_by_context, step_prefill_context, step_decode_requests,
        step_decode_context};
    const uint64_t result = blis_plugin_v1()->step_time(&blis_w_host, blis_w_state, &step);
    blis_w_done();
    return result;
}

BLIS_W_DECISION("blis:policy/latency@1.1.0#queueing-time")
uint64_t blis_w_queueing_time(uint32_t input_tokens) {
    const uint64_t result = blis_plugin_v1()->queueing_time(&blis_w_host, blis_w_state, input_tokens);
    blis_w_done();
    return result;
}

BLIS_W_DECISION("blis:policy/latency@1.1.0#constants")
const blis_latency_constants *blis_w_constants(void) {
    static blis_latency_constants result;
    result = (blis_latency_constants){1u, 0u, 0u, 0u, 0u};
    blis_plugin_v1()->constants(&blis_w_host, blis_w_state, &result);
    blis_w_done();
    return &result;
}

BLIS_W_DECISION("blis:policy/saturation@1.1.0#saturation")
double blis_w_saturation(uint64_t now_us, uint64_t ages_periodic_us, uint64_t ages_cache_us, uint64_t ages_gateway_us,
    uint64_t ages_pipeline_us, uint32_t count, const double *instances, size_t numbers) {
    const blis_ages ages = {ages_periodic_us, ages_cache_us, ages_gateway_us, ages_pipeline_us};
    (void)numbers;
    const double result = blis_plugin_v1()->saturation(&blis_w_host, blis_w_state, now_us, &ages, instances, count,
        blis_w_stride);
    blis_w_done();
    return result;
}

BLIS_W_DECISION("blis:policy/ceilings@1.1.0#ceilings")
const blis_w_list *blis_w_ceilings(uint64_t now_us, double saturation, const blis_band *bands, size_t bands_count) {
    double *numbers = blis_w_room_for((uint32_t)bands_count);
    blis_plugin_v1()->ceilings(&blis_w_host, blis_w_state, now_us, saturation, bands, bands_count, sizeof(blis_band),
        numbers);
    blis_w_done();
    return &blis_w_numbers;
}

BLIS_W_DECISION("blis:policy/fairness@1.1.0#fair-pick")
uint32_t blis_w_fair_pick(uint64_t now_us, double saturation, uint64_t band_oldest_wait_us, int32_t band_priority,
    uint32_t band_queued, const blis_flow *flows, size_t flows_count) {
    const blis_band band = {band_oldest_wait_us, band_priority, band_queued};
    const uint32_t result = blis_plugin_v1()->fair_pick(&blis_w_host, blis_w_state, now_us, saturation, &band, flows,
        flows_count, sizeof(blis_flow));
    blis_w_done();
    return result;
}

typedef struct blis_w_order_parameters {
    blis_request request;
    uint64_t expires_us;
} blis_w_order_parameters;

BLIS_W_DECISION("blis:policy/ordering@1.1.0#order")
double blis_w_order(const blis_w_order_parameters *given) {
    const double result = blis_plugin_v1()->order(&blis_w_host, blis_w_state, &given->request, given->expires_us);
    blis_w_done();
    return result;
}

BLIS_W_DECISION("blis:policy/eviction@1.1.0#evict")
const blis_w_index *blis_w_evict(uint64_t now_us, uint64_t demand_oldest_wait_us, int32_t demand_priority, uint32_t
    demand_queued, const blis_in_flight *in_flight, size_t in_flight_count) {
    const blis_band demand = {demand_oldest_wait_us, demand_priority, demand_queued};
    static blis_w_index result;
    result.index = blis_plugin_v1()->evict(&blis_w_host, blis_w_state, now_us, &demand, in_flight, in_flight_count,
        sizeof(blis_in_flight));
    result.is_some = result.index != BLIS_NONE_U32;
    blis_w_done();
    return &result;
}

BLIS_W_DECISION("blis:policy/scaling@1.1.0#scale")
const blis_w_list *blis_w_scale(uint64_t now_us, const blis_group *groups, size_t groups_count, const blis_group
    *history, size_t history_count) {
    double *numbers = blis_w_room_for((uint32_t)groups_count);
    blis_plugin_v1()->scale(&blis_w_host, blis_w_state, now_us, groups, groups_count, history, history_count,
        sizeof(blis_group), numbers);
    blis_w_done();
    return &blis_w_numbers;
}

BLIS_W_DECISION("blis:policy/drain@1.1.0#drain")
uint32_t blis_w_drain(uint64_t group_now_us, double group_price, uint32_t group_group, uint32_t group_model, uint32_t
    group_gpus, uint32_t group_min_replicas, uint32_t group_max_replicas, uint32_t group_replicas, const blis_replica
    *replicas, size_t replicas_count) {
    const blis_drain_group group = {group_now_us, group_price, group_group, group_model, group_gpus,
        group_min_replicas, group_max_replicas, group_replicas};
    const uint32_t result = blis_plugin_v1()->drain(&blis_w_host, blis_w_state, &group, replicas, replicas_count,
        sizeof(blis_replica));
    blis_w_done();
    return result;
}

BLIS_W_DECISION("blis:policy/placement@1.1.0#placement")
const blis_w_index *blis_w_placement(uint64_t replica_now_us, uint64_t replica_created_us, uint32_t replica_id,
    uint32_t replica_group, uint32_t replica_model, uint32_t replica_gpus, const blis_node *nodes, size_t nodes_count)
    {
    const blis_starting_replica replica = {replica_now_us, replica_created_us, replica_id, replica_group,
        replica_model, replica_gpus};
    static blis_w_index result;
    result.index = blis_plugin_v1()->placement(&blis_w_host, blis_w_state, &replica, nodes, nodes_count,
        sizeof(blis_node));
    result.is_some = result.index != BLIS_NONE_U32;
    blis_w_done();
    return &result;
}

BLIS_W_DECISION("blis:policy/kv-cache@1.1.0#keep")
const blis_w_list *blis_w_keep(uint64_t now_us, const blis_kv_chunk *chunks, size_t chunks_count) {
    double *numbers = blis_w_room_for((uint32_t)chunks_count);
    blis_plugin_v1()->keep(&blis_w_host, blis_w_state, now_us, chunks, chunks_count, sizeof(blis_kv_chunk), numbers);
    blis_w_done();
    return &blis_w_numbers;
}

BLIS_W_DECISION("blis:policy/kv-cache@1.1.0#store-chunks")
const blis_w_list *blis_w_store(uint64_t offer_now_us, uint64_t offer_queued_bytes, double offer_fill, uint32_t
    offer_tier, uint32_t offer_capacity, const blis_kv_chunk *chunks, size_t chunks_count) {
    const blis_chunk_offer offer = {offer_now_us, offer_queued_bytes, offer_fill, offer_tier, offer_capacity};
    double *numbers = blis_w_filled((uint32_t)chunks_count, 1);
    if (blis_plugin_v1()->store) blis_plugin_v1()->store(&blis_w_host, blis_w_state, &offer, chunks, chunks_count,
        sizeof(blis_kv_chunk), numbers);
    blis_w_done();
    return &blis_w_numbers;
}

BLIS_W_DECISION("blis:policy/kv-cache@1.1.0#load")
uint32_t blis_w_load(uint64_t hit_now_us, uint64_t hit_bytes, uint64_t hit_queued_bytes, double hit_bandwidth,
    uint32_t hit_request, uint32_t hit_gpu_tokens, uint32_t hit_tokens, uint32_t hit_input_tokens, uint32_t
    hit_prefill_tokens, uint32_t hit_waiting, uint32_t hit_running, uint32_t hit_slo_class, uint32_t hit_tenant,
    uint32_t hit_session, uint32_t hit_prefix_group, uint32_t hit_round) {
    const blis_kv_hit hit = {hit_now_us, hit_bytes, hit_queued_bytes, hit_bandwidth, hit_request, hit_gpu_tokens,
        hit_tokens, hit_input_tokens, hit_prefill_tokens, hit_waiting, hit_running, hit_slo_class, hit_tenant,
        hit_session, hit_prefix_group, hit_round};
    uint32_t result = 1;
    if (blis_plugin_v1()->load) result = 0 != blis_plugin_v1()->load(&blis_w_host, blis_w_state, &hit);
    blis_w_done();
    return result;
}

BLIS_W_DECISION("blis:policy/disaggregation@1.1.0#disaggregate")
const blis_prefill_choice *blis_w_disaggregate(uint64_t request_now_us, double request_transfer_us_per_token, uint32_t
    request_request, uint32_t request_input_tokens, uint32_t request_chosen, uint32_t request_transfers, uint32_t
    request_transfer_tokens, uint32_t request_slo_class, uint32_t request_tenant, uint32_t request_session, uint32_t
    request_prefix_group, uint32_t request_round, const blis_pool_instance *decode, size_t decode_count, const
    blis_pool_instance *prefill, size_t prefill_count) {
    const blis_routed_request request = {request_now_us, request_transfer_us_per_token, request_request,
        request_input_tokens, request_chosen, request_transfers, request_transfer_tokens, request_slo_class,
        request_tenant, request_session, request_prefix_group, request_round};
    static blis_prefill_choice result;
    result = (blis_prefill_choice){0u, 4294967295u, 4294967295u};
    blis_plugin_v1()->disaggregate(&blis_w_host, blis_w_state, &request, decode, decode_count, prefill, prefill_count,
        sizeof(blis_pool_instance), &result);
    result.remote = result.remote != 0;
    blis_w_done();
    return &result;
}

BLIS_W_DECISION("blis:policy/batching@1.1.0#budget")
const blis_step_budget *blis_w_budget(uint32_t step_decoding, uint32_t step_prefilling, uint32_t step_prefill_tokens,
    uint32_t step_waiting, uint32_t step_head_tokens, uint32_t step_free_kv_blocks, uint32_t step_total_kv_blocks,
    uint32_t step_block_size, uint32_t step_max_num_batched_tokens, uint32_t step_max_num_seqs) {
    const blis_step_state step = {step_decoding, step_prefilling, step_prefill_tokens, step_waiting, step_head_tokens,
        step_free_kv_blocks, step_total_kv_blocks, step_block_size, step_max_num_batched_tokens, step_max_num_seqs};
    static blis_step_budget result;
    result = (blis_step_budget){4294967295u, 4294967295u, 0u};
    blis_plugin_v1()->budget(&blis_w_host, blis_w_state, &step, &result);
    blis_w_done();
    return &result;
}

BLIS_W_DECISION("blis:policy/lifecycle@1.1.0#observe")
void blis_w_observe(uint64_t at_us, uint64_t ttft_us, uint64_t e2e_us, uint32_t kind, uint32_t request, uint32_t
    instance, uint32_t input_tokens, uint32_t generated_tokens, uint32_t slo_class, uint32_t tenant, uint32_t session,
    uint32_t prefix_group, uint32_t block) {
    const blis_event event = {at_us, ttft_us, e2e_us, kind, request, instance, input_tokens, generated_tokens,
        slo_class, tenant, session, prefix_group, block};
    blis_plugin_v1()->observe(&blis_w_host, blis_w_state, &event);
    blis_w_done();
}

/* generated: end exports */

#endif
