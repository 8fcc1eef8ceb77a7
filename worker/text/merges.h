/* merges.h: stores the pairs of ids that can be merged. Each pair has a rank and a merged id. */
#ifndef SEQD_TEXT_MERGES_H
#define SEQD_TEXT_MERGES_H

#include "worker/text/json.h"
#include "worker/text/vocab.h"

struct merge_slot {
    uint64_t pair; /* first and second id */
    int32_t rank;  /* rank of the merge; -1 if the slot is free */
    int32_t id;    /* id of the merged token */
};

struct merges {
    struct merge_slot *slot;
    int64_t n_slots, n; /* n_slots is the size of the table, a power of two; n is the number of
                         * merges in the file */
    int32_t *id;        /* id of the merged token for each rank */
    int64_t id_room;
};

/* Reads the list of merges, each of which is "a b" or ["a", "b"]. The merged token is a,
 * followed by b without the first n_prefix bytes of b. */
int merges_open(struct merges *m, struct json j, const struct vocab *v, int64_t n_prefix,
                struct err *e);
void merges_fini(struct merges *m);

static inline uint64_t merge_hash(uint64_t pair)
{
    pair *= 0x9e3779b97f4a7c15u;
    return pair ^ pair >> 29;
}

/* Returns the merge of ids a and b, or NULL if they do not merge. */
static inline const struct merge_slot *merges_find(const struct merges *m, int32_t a, int32_t b)
{
    const uint64_t pair = (uint64_t)(uint32_t)a << 32 | (uint32_t)b;
    if (!m->n_slots) return NULL;
    for (uint64_t i = merge_hash(pair);; i++) {
        const struct merge_slot *s = &m->slot[i & (uint64_t)(m->n_slots - 1)];
        if (s->rank < 0) return NULL;
        if (s->pair == pair) return s;
    }
}

#endif
