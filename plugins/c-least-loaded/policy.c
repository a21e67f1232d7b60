/* The least loaded instance, in C: waiting, running and in flight, as the built-in `least-loaded`.
 *
 * Between two decisions a few loads change, and the host reports which. So the state keeps all loads and, for
 * every chunk of 16 neighbouring instances, the least load and how many instances have it: a decision reads the
 * changed loads and a sixteenth of the rest. A new state builds this index from the next call, so there is nothing
 * to save. The built-in also counts the equally good instances first and calls the host's pick once: hence both
 * route every request to the same instance.
 *
 *     sdk/build-guest.sh plugins/c-least-loaded/policy.c c-least-loaded.wasm     (sandboxed)
 *     cc -O2 -shared -fPIC -Isdk/c plugins/c-least-loaded/policy.c -o c-least-loaded.so
 */
#define BLIS_POLICY_IMPLEMENTATION
#include "blis_policy.h"

/* Number of neighbouring instances in a chunk. */
#define CHUNK 16

/* A row: the columns in `reads`. */
typedef struct instance {
    double queue_depth, batch_size, in_flight;
} instance;

typedef struct least {
    uint32_t load;
    uint32_t tied; /* number of instances with this load */
} least;

typedef struct state {
    size_t count; /* number of instances; 0: no loads are known */
    uint32_t *loads;
    least *chunks;
} state;

static const blis_description description = {
    .name = BLIS_TEXT("c-least-loaded"),
    .version = BLIS_TEXT("1.0.0"),
    .about = BLIS_TEXT("The instance with the fewest requests waiting, running and in flight."),
    .kinds = BLIS_LIST(BLIS_TEXT("routing")),
    .reads = BLIS_LIST(BLIS_TEXT("queue-depth"), BLIS_TEXT("batch-size"), BLIS_TEXT("in-flight")),
};

static const blis_description *describe(void) { return &description; }

static void *create(const blis_host *host, const blis_setup *setup) {
    (void)host, (void)setup;
    return blis_alloc(sizeof(state));
}

static void forget(state *self) {
    blis_free(self->loads);
    blis_free(self->chunks);
    self->loads = NULL;
    self->chunks = NULL;
    self->count = 0;
}

static void destroy(void *self) {
    forget(self);
    blis_free(self);
}

static size_t save(const blis_host *host, const void *self, uint8_t *buffer, size_t capacity) {
    (void)host, (void)self, (void)buffer, (void)capacity;
    return 0;
}

static uint32_t restore(const blis_host *host, void *self, const uint8_t *bytes, size_t len) {
    (void)host, (void)bytes;
    forget(self);
    return len == 0;
}

/* A load that exceeds 32 bits counts as the largest, as in the built-in. */
static uint32_t load_of(const instance *row) {
    const double load = row->queue_depth + row->batch_size + row->in_flight;
    return load < UINT32_MAX ? (uint32_t)load : UINT32_MAX;
}

static least least_of(const uint32_t *loads, size_t count) {
    least found = {UINT32_MAX, 0};
    for (size_t i = 0; i < count; i++) found.load = loads[i] < found.load ? loads[i] : found.load;
    for (size_t i = 0; i < count; i++) found.tied += loads[i] == found.load;
    return found;
}

static size_t chunk_len(const state *self, size_t chunk) {
    const size_t left = self->count - chunk * CHUNK;
    return left < CHUNK ? left : CHUNK;
}

static void update_chunk(state *self, size_t chunk) {
    const uint32_t *loads = self->loads + chunk * CHUNK;
    const size_t len = chunk_len(self, chunk);
    /* A chunk of constant length compiles to faster code. */
    self->chunks[chunk] = len == CHUNK ? least_of(loads, CHUNK) : least_of(loads, len);
}

static void update_all(state *self, const void *instances, size_t count, size_t stride) {
    const size_t chunks = (count + CHUNK - 1) / CHUNK;
    if (count != self->count) {
        forget(self);
        self->loads = blis_alloc(count * sizeof *self->loads);
        self->chunks = blis_alloc(chunks * sizeof *self->chunks);
        self->count = count;
    }
    const char *row = instances;
    for (size_t i = 0; i < count; i++, row += stride) self->loads[i] = load_of((const instance *)row);
    for (size_t chunk = 0; chunk < chunks; chunk++) update_chunk(self, chunk);
}

/* Updates the loads at the given indices. */
static void follow(state *self, const uint32_t *indices, size_t changed, const void *instances, size_t count,
                   size_t stride) {
    if (count != self->count) {
        update_all(self, instances, count, stride);
        return;
    }
    /* Updates all loads before the chunks: reading what was just written is slow. */
    for (size_t i = 0; i < changed; i++)
        self->loads[indices[i]] = load_of(BLIS_ROW(instance, instances, stride, indices[i]));
    for (size_t i = 0; i < changed; i++) update_chunk(self, indices[i] / CHUNK);
}

/* One of `tied` equally good instances, by number. */
static uint32_t pick(const blis_host *host, uint32_t tied) { return tied < 2 ? 0 : host->pick(host->context, tied); }

/* Number of indices of equally loaded instances that are kept. */
#define REMEMBERED 16

/* Routes without known loads. */
static uint32_t route_without_index(const blis_host *host, const void *instances, size_t count, size_t stride) {
    uint32_t least = UINT32_MAX, tied = 0, indices[REMEMBERED];
    const char *row = instances;
    for (size_t i = 0; i < count; i++, row += stride) {
        const uint32_t here = load_of((const instance *)row);
        if (here > least) continue; /* the common case */
        if (here < least) tied = 0;
        least = here;
        if (tied < REMEMBERED) indices[tied] = (uint32_t)i;
        tied++;
    }
    uint32_t chosen = pick(host, tied);
    if (chosen < REMEMBERED) return indices[chosen];
    /* More ties than are kept are rare: search for the others again. */
    size_t i = indices[REMEMBERED - 1] + 1;
    chosen -= REMEMBERED;
    while (load_of(BLIS_ROW(instance, instances, stride, i)) != least || chosen-- > 0) i++;
    return (uint32_t)i;
}

static uint32_t route(const blis_host *host, void *state_, const blis_request *request, const blis_ages *ages,
                      const void *instances, size_t count, size_t stride) {
    state *self = state_;
    (void)request, (void)ages;
    /* For a few instances, reading all is as fast as following the changes. If any row may have changed, no index is
     * built, because the next decision may be the same. */
    const uint32_t *indices = NULL;
    const size_t changed = count > CHUNK ? host->changed(host->context, &indices) : SIZE_MAX;
    if (changed == SIZE_MAX) {
        self->count = 0;
        return route_without_index(host, instances, count, stride);
    }
    follow(self, indices, changed, instances, count, stride);
    const size_t chunks = (count + CHUNK - 1) / CHUNK;
    uint32_t load = UINT32_MAX, tied = 0;
    for (size_t i = 0; i < chunks; i++) load = self->chunks[i].load < load ? self->chunks[i].load : load;
    for (size_t i = 0; i < chunks; i++) tied += self->chunks[i].load == load ? self->chunks[i].tied : 0;
    uint32_t nth = pick(host, tied);
    for (size_t chunk = 0;; chunk++) {
        const uint32_t here = self->chunks[chunk].load == load ? self->chunks[chunk].tied : 0;
        if (nth >= here) {
            nth -= here;
            continue;
        }
        size_t index = chunk * CHUNK;
        while (self->loads[index] != load || nth-- > 0) index++;
        return (uint32_t)index;
    }
}

static const blis_policy_v1 table = {
    BLIS_TABLE_HEAD,
    .describe = describe,
    .create = create,
    .destroy = destroy,
    .save = save,
    .restore = restore,
    .route = route,
};

const blis_policy_v1 *blis_plugin_v1(void) { return &table; }
