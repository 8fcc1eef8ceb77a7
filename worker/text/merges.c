/* merges.c: reads merges, as ["a", "b"] or as "a b", into a hash table keyed by the two ids. */
#include "worker/text/merges.h"

#include <stdlib.h>
#include <string.h>
#include "api/core/mutant.h"

struct merges_reading {
    struct merges *m;
    const struct vocab *v;
    struct text line, whole; /* scratch */
    int64_t n_prefix;
    const char *part[2];
    int64_t size[2];
    int n_parts;
};

static int rehash(struct merges *m)
{
    const struct merges old = *m;
    m->n_slots = old.n_slots ? 2 * old.n_slots : 1024;
    m->slot = malloc((size_t)m->n_slots * sizeof *m->slot);
    if (!m->slot) {
        *m = old;
        return -1;
    }
    for (int64_t i = 0; i < m->n_slots; i++) m->slot[i].rank = -1;
    for (int64_t i = 0; i < old.n_slots; i++) {
        if (old.slot[i].rank < 0) continue;
        uint64_t at = merge_hash(old.slot[i].pair);
        while (m->slot[at & (uint64_t)(m->n_slots - 1)].rank >= 0) at++;
        m->slot[at & (uint64_t)(m->n_slots - 1)] = old.slot[i];
    }
    free(old.slot);
    return 0;
}

/* Adds a merge. If a pair is listed twice, the rank that is listed later is used. */
static int put(struct merges *m, int32_t a, int32_t b, int32_t id)
{
    const uint64_t pair = (uint64_t)(uint32_t)a << 32 | (uint32_t)b;
    if (2 * (m->n + 1) > m->n_slots && rehash(m) < 0) return -1;
    if (buffer_grow((void **)&m->id, &m->id_room, m->n, 1, sizeof *m->id) < 0) return -1;
    uint64_t at = merge_hash(pair);
    struct merge_slot *s;
    while ((s = &m->slot[at & (uint64_t)(m->n_slots - 1)])->rank >= 0 && s->pair != pair) at++;
    const bool first = mutant_on(MUTANT_MERGE_FIRST) && s->rank >= 0;
    if (!first) *s = (struct merge_slot){pair, (int32_t)m->n, id};
    m->id[m->n++] = id;
    return 0;
}

static int unknown(const struct merges_reading *r, const char *s, int64_t n, struct err *e)
{
    return err_set(e, ERR_INVALID, "tokenizer.json: merge %lld: \"%.*s\" is not in the vocabulary",
                   (long long)r->m->n, n > 60 ? 60 : (int)n, s);
}

static int merge(struct merges_reading *r, struct err *e)
{
    int32_t id[2];
    for (int i = 0; i < 2; i++) {
        id[i] = vocab_find(r->v, r->part[i], (size_t)r->size[i]);
        if (id[i] < 0) return unknown(r, r->part[i], r->size[i], e);
    }
    if (r->size[1] < r->n_prefix) return unknown(r, r->part[1], r->size[1], e);
    r->whole.n = 0;
    if (text_add(&r->whole, r->part[0], r->size[0]) < 0 ||
        text_add(&r->whole, r->part[1] + r->n_prefix, r->size[1] - r->n_prefix) < 0)
        return buffer_full(e);
    const int32_t to = vocab_find(r->v, r->whole.data, (size_t)r->whole.n);
    if (to < 0) return unknown(r, r->whole.data, r->whole.n, e);
    return put(r->m, id[0], id[1], to) < 0 ? buffer_full(e) : 0;
}

static int malformed(const struct merges_reading *r, struct err *e)
{
    return err_set(e, ERR_INVALID,
                   "tokenizer.json: merge %lld: want \"a b\" or [\"a\", \"b\"] of two tokens",
                   (long long)r->m->n);
}

static int one_part(void *who, struct json j, struct err *e)
{
    struct merges_reading *r = who;
    const int64_t at = r->line.n;
    if (r->n_parts == 2) return malformed(r, e);
    if (json_text(j, "model.merges", &r->line, e) < 0) return -1;
    r->size[r->n_parts++] = r->line.n - at;
    return 0;
}

static int one_merge(void *who, struct json j, struct err *e)
{
    struct merges_reading *r = who;
    r->line.n = 0;
    r->n_parts = 0;
    if (json_kind(j) == '[') {
        if (json_each(j, "model.merges", one_part, r, e) < 0) return -1;
        if (r->n_parts != 2) return malformed(r, e);
        r->part[0] = r->line.data;
        r->part[1] = r->line.data + r->size[0];
        return merge(r, e);
    }
    if (json_text(j, "model.merges", &r->line, e) < 0) return -1;
    if (!strncmp(r->line.data, "#version", 8)) return 0;
    const char *space = memchr(r->line.data, ' ', (size_t)r->line.n);
    const char *end = r->line.data + r->line.n;
    if (!space || memchr(space + 1, ' ', (size_t)(end - space - 1))) return malformed(r, e);
    r->part[0] = r->line.data;
    r->size[0] = space - r->line.data;
    r->part[1] = space + 1;
    r->size[1] = end - r->part[1];
    return merge(r, e);
}

int merges_open(struct merges *m, struct json j, const struct vocab *v, int64_t n_prefix,
                struct err *e)
{
    struct merges_reading r = {.m = m, .v = v, .n_prefix = n_prefix};
    const int rc = json_each(j, "model.merges", one_merge, &r, e);
    text_fini(&r.line);
    text_fini(&r.whole);
    return rc;
}

void merges_fini(struct merges *m)
{
    free(m->slot);
    free(m->id);
    *m = (struct merges){0};
}
