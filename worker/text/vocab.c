/* vocab.c: keeps the strings in one buffer, with a hash table by string and an array by id. */
#include "worker/text/vocab.h"

#include <stdlib.h>
#include <string.h>
#include "worker/text/buffer.h"

static uint32_t hash_of(const char *s, size_t n)
{
    uint64_t h = 0x9e3779b97f4a7c15u ^ n, w;
    for (; n >= 8; s += 8, n -= 8) {
        memcpy(&w, s, 8);
        h = (h ^ w) * 0xd6e8feb86659fd93u;
        h ^= h >> 32;
    }
    for (w = 0; n; n--) w = w << 8 | (unsigned char)*s++;
    h = (h ^ w) * 0xd6e8feb86659fd93u;
    return (uint32_t)(h ^ h >> 32);
}

static struct vocab_slot *slot_of(const struct vocab *v, uint32_t hash, const char *s, size_t n)
{
    for (int64_t i = hash;; i++) {
        struct vocab_slot *at = &v->slot[i & (v->n_slots - 1)];
        if (at->entry < 0) return at;
        const struct vocab_entry *e = &v->entry[at->entry];
        if (at->hash == hash && (size_t)e->size == n && !memcmp(v->pool + e->at, s, n)) return at;
    }
}

static int rehash(struct vocab *v)
{
    const int64_t n_slots = v->n_slots ? 2 * v->n_slots : 1024;
    struct vocab_slot *slot = malloc((size_t)n_slots * sizeof *slot);
    if (!slot) return -1;
    for (int64_t i = 0; i < n_slots; i++) slot[i].entry = -1;
    for (int64_t i = 0; i < v->n_slots; i++) {
        if (v->slot[i].entry < 0) continue;
        int64_t to = v->slot[i].hash & (n_slots - 1);
        while (slot[to].entry >= 0) to = (to + 1) & (n_slots - 1);
        slot[to] = v->slot[i];
    }
    free(v->slot);
    v->slot = slot;
    v->n_slots = n_slots;
    return 0;
}

static int entry_add(struct vocab *v, const char *s, size_t n)
{
    if (buffer_grow((void **)&v->entry, &v->entry_room, v->n, 1, sizeof *v->entry) < 0) return -1;
    if (buffer_grow((void **)&v->pool, &v->pool_room, v->pool_n, (int64_t)n + 1, 1) < 0) return -1;
    if (n) memcpy(v->pool + v->pool_n, s, n);
    v->entry[v->n++] = (struct vocab_entry){v->pool_n, (int32_t)n, -1};
    v->pool_n += (int64_t)n;
    return 0;
}

static int id_room(struct vocab *v, int64_t id)
{
    const int64_t had = v->size;
    if (id < had) return 0;
    if (buffer_grow((void **)&v->by_id, &v->by_id_room, had, id + 1 - had, sizeof *v->by_id) < 0)
        return -1;
    for (int64_t i = had; i <= id; i++) v->by_id[i] = -1;
    v->size = id + 1;
    return 0;
}

int vocab_add(struct vocab *v, const char *s, size_t n, int64_t id, struct err *e)
{
    if (id < 0 || id >= VOCAB_IDS) {
        return err_set(e, ERR_TOO_LARGE, "tokenizer.json: token \"%.*s\" has id %lld: want 0 to %d",
                       n > 40 ? 40 : (int)n, s, (long long)id, VOCAB_IDS - 1);
    }
    if (2 * (v->n + 1) > v->n_slots && rehash(v) < 0) return buffer_full(e);
    if (id_room(v, id) < 0) return buffer_full(e);
    const uint32_t hash = hash_of(s, n);
    struct vocab_slot *at = slot_of(v, hash, s, n);
    if (at->entry < 0) {
        if (entry_add(v, s, n) < 0) return buffer_full(e);
        *at = (struct vocab_slot){hash, (int32_t)(v->n - 1)};
    }
    v->entry[at->entry].id = (int32_t)id;
    v->by_id[id] = at->entry;
    return 0;
}

int32_t vocab_find(const struct vocab *v, const char *s, size_t n)
{
    if (!v->n_slots) return -1;
    const struct vocab_slot *at = slot_of(v, hash_of(s, n), s, n);
    return at->entry < 0 ? -1 : v->entry[at->entry].id;
}

const char *vocab_content(const struct vocab *v, int32_t id, size_t *n)
{
    if (id < 0 || id >= v->size || v->by_id[id] < 0) return NULL;
    const struct vocab_entry *e = &v->entry[v->by_id[id]];
    *n = (size_t)e->size;
    return v->pool + e->at;
}

void vocab_fini(struct vocab *v)
{
    free(v->pool);
    free(v->entry);
    free(v->slot);
    free(v->by_id);
    *v = (struct vocab){0};
}
