/* The least loaded instance, in C: waiting, running and in flight, as the built-in `least-loaded`.
 *
 * It keeps no state, so `create` returns a pointer to anything and `save` needs no bytes. Counting the
 * equally good ones first and asking the host for one of them afterwards is what the built-in does,
 * too: hence both place every request alike.
 *
 *     sdk/build-guest.sh plugins/c-least-loaded/policy.c c-least-loaded.wasm     (sandboxed)
 *     cc -O2 -shared -fPIC -Isdk/c plugins/c-least-loaded/policy.c -o c-least-loaded.so
 */
#define BLIS_POLICY_IMPLEMENTATION
#include "blis_policy.h"

static const blis_description description = {
    .name = BLIS_TEXT("c-least-loaded"),
    .version = BLIS_TEXT("1.0.0"),
    .about = BLIS_TEXT("The instance with the fewest requests waiting, running and in flight."),
    .kinds = BLIS_ROUTING,
    .reads = BLIS_READS_LOAD | BLIS_READS_IN_FLIGHT,
};

static const blis_description *describe(void) { return &description; }

static void *create(const blis_host *host, const blis_setup *setup) {
    (void)host, (void)setup;
    return blis_alloc(1);
}

static void destroy(void *state) { blis_free(state); }

static size_t save(const blis_host *host, const void *state, uint8_t *buffer, size_t capacity) {
    (void)host, (void)state, (void)buffer, (void)capacity;
    return 0;
}

static uint32_t restore(const blis_host *host, void *state, const uint8_t *bytes, size_t len) {
    (void)host, (void)state, (void)bytes;
    return len == 0;
}

/* So many places of equally loaded instances are remembered. */
#define REMEMBERED 16

static uint64_t load(const blis_instance *instance) {
    return (uint64_t)instance->queue_depth + instance->batch_size + instance->in_flight;
}

static uint32_t route(const blis_host *host, void *state, const blis_request *request, const blis_ages *ages,
                      const void *instances, size_t count, size_t stride) {
    (void)state, (void)request, (void)ages;
    uint64_t least = UINT64_MAX;
    uint32_t tied = 0, places[REMEMBERED] = {0};
    const char *row = instances;
    for (size_t i = 0; i < count; i++, row += stride) {
        const uint64_t here = load((const blis_instance *)row);
        if (here > least) continue; /* as most are */
        if (here < least) {
            least = here;
            tied = 0;
        }
        if (tied < REMEMBERED) places[tied] = (uint32_t)i;
        tied++;
    }
    if (tied < 2) return places[0];
    uint32_t chosen = host->pick(host->context, tied);
    if (chosen < REMEMBERED) return places[chosen];
    /* So many are rare: look for the others again. */
    size_t i = places[REMEMBERED - 1] + 1;
    chosen -= REMEMBERED;
    while (load(BLIS_ROW(blis_instance, instances, stride, i)) != least || chosen-- > 0) i++;
    return (uint32_t)i;
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
