/* shapes.c: makes the key of a job's shape, and finds shapes by their keys. */
#include "daemon/loop/shapes.h"

#include <stdlib.h>
#include <string.h>
#include "api/core/choices.h"
#include "api/core/job.h"
#include "daemon/loop/describe.h"
#include "daemon/state/wall.h"

/* The node on which rank 0 should be, by the reason for it. */
enum shape_origin { ORIGIN_NONE, ORIGIN_TOY, ORIGIN_OWN, ORIGIN_SOURCE, ORIGIN_DATA };

void shapes_fini(struct shapes *t)
{
    for (int i = 0; i < t->n; i++) {
        job_reason_drop(t->of[i].reason);
        job_reason_drop(t->of[i].over);
    }
    free(t->of);
    free(t->slot);
    *t = (struct shapes){0};
}

/* Makes an empty table of slots. */
static void clear_slots(struct shapes *t, int n)
{
    free(t->slot);
    t->n_slots = n;
    t->slot = calloc((size_t)n, sizeof *t->slot);
    if (!t->slot) abort();
}

void shapes_begin(struct shapes *t, const struct cluster *k)
{
    for (int i = 0; i < t->n; i++) {
        job_reason_drop(t->of[i].reason);
        job_reason_drop(t->of[i].over);
    }
    t->n = 0;
    clear_slots(t, 256);
    t->old_abi = WIRE_ABI;
    t->mixed = false;
    for (int i = 0; i < k->nodes.n; i++) {
        const struct node *n = &k->nodes.node[i];
        if (!n->up || n->abi >= WIRE_ABI) continue;
        t->mixed = t->mixed || (t->old_abi < WIRE_ABI && t->old_abi != n->abi);
        t->old_abi = n->abi;
    }
}

static void set_origin(const struct cluster *k, const struct job *j, struct shape_key *key)
{
    const bool own = *j->checkpoint_node && j->is.resumes;
    key->origin = *j->only            ? ORIGIN_TOY
                  : own               ? ORIGIN_OWN
                  : *j->source        ? ORIGIN_SOURCE
                  : *j->prepared_node ? ORIGIN_DATA
                                      : ORIGIN_NONE;
    const char *const names[] = {"", j->only, j->checkpoint_node, j->source, j->prepared_node};
    const int64_t shared[] = {0, 0, j->checkpoint_shared, j->source_shared, j->prepared_shared};
    key->shared = shared[key->origin];
    key->only = key->shared ? -1 : describe_node_index(k, names[key->origin]);
    if (j->prepared_shared) key->needs_data |= 4;
    key->step = own ? j->checkpoint_step : *j->source ? j->source_step : 0;
    if (*j->prepared_node) key->needs_data |= 2; /* data that another node may have to make again */
}

static void set_need(const struct need *n, struct shape_key *key)
{
    key->rank = n->rank;
    key->device_size = n->device;
    key->host = n->host;
    key->n_stages = n->n_stages;
    key->per_stage = n->per_stage;
}

static struct shape_key key_of(const struct shapes *t, const struct cluster *k, const struct job *j,
                               int64_t now_ms)
{
    struct shape_key key;
    memset(&key, 0, sizeof key);
    key.n_ranks = j->is.n_ranks;
    key.share = j->is.share;
    key.ring = j->is.ring;
    key.device = describe_device(j);
    key.one_node = j->is.one_node;
    key.needs_data = job_needs_data(j);
    key.crowded = j->crowded;
    key.serves = j->is.kind == JOB_SERVE;
    key.wall_ms = wall_left_ms(j, now_ms);
    set_need(j->need, &key);
    set_origin(k, j, &key);
    if (t->old_abi < WIRE_ABI) key.needs = spec_needs(job_spec(j), t->old_abi);
    /* The reason of a job that waits for its own checkpoint names the job. */
    const bool named = key.origin == ORIGIN_OWN;
    if (j->n_left || *j->avoid_gpu || *j->only || named || t->mixed) key.alone = j->id;
    return key;
}

static uint64_t hash(const struct shape_key *key)
{
    uint64_t word[sizeof *key / sizeof(uint64_t)], h = 0;
    _Static_assert(sizeof word == sizeof *key, "a key is whole words");
    memcpy(word, key, sizeof word);
    for (size_t i = 0; i < sizeof word / sizeof *word; i++) {
        h = (h ^ word[i]) * UINT64_C(0x9e3779b97f4a7c15);
        h ^= h >> 32;
    }
    return h;
}

/* Returns the slot of the key, which is free if there is no such shape. */
static int32_t *find_slot(const struct shapes *t, const struct shape_key *key,
                          const struct need *need)
{
    uint64_t i = hash(key);
    for (;; i++) {
        int32_t *at = &t->slot[i & (uint64_t)(t->n_slots - 1)];
        const struct shape *s = *at ? &t->of[*at - 1] : NULL;
        if (!s) return at;
        if (memcmp(&s->key, key, sizeof *key)) continue;
        const size_t n = key->n_stages > 1 ? (size_t)key->n_stages : 0;
        if (!memcmp(s->job.need->stage, need->stage, n * sizeof *need->stage)) return at;
    }
}

static void grow(struct shapes *t)
{
    if (t->n == t->room) {
        t->room = t->room ? 2 * t->room : 64;
        t->of = realloc(t->of, (size_t)t->room * sizeof *t->of);
        if (!t->of) abort();
    }
    if (2 * t->n < t->n_slots) return;
    clear_slots(t, 2 * t->n_slots);
    for (int i = 0; i < t->n; i++) *find_slot(t, &t->of[i].key, t->of[i].job.need) = i + 1;
}

int shapes_of(struct shapes *t, const struct cluster *k, const struct job *j, int64_t now_ms)
{
    const struct shape_key key = key_of(t, k, j, now_ms);
    grow(t);
    int32_t *at = find_slot(t, &key, j->need);
    if (*at) return *at - 1;
    struct shape *s = &t->of[t->n];
    s->key = key;
    s->reason = s->over = NULL;
    describe_job(k, j, now_ms, &s->job);
    *at = ++t->n;
    return t->n - 1;
}
