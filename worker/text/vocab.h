/* vocab.h: maps strings to their ids, and ids to strings. */
#ifndef SEQD_TEXT_VOCAB_H
#define SEQD_TEXT_VOCAB_H

#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"

/* All ids are below this limit, which is 16 times the size of the largest published vocabulary. */
#define VOCAB_IDS (1 << 24)

struct vocab_entry {
    int64_t at; /* offset in the pool */
    int32_t size, id;
};
struct vocab_slot {
    uint32_t hash;
    int32_t entry; /* index of the entry; -1 if the slot is free */
};

struct vocab {
    char *pool;
    int64_t pool_n, pool_room;
    struct vocab_entry *entry;
    int64_t n, entry_room;
    struct vocab_slot *slot;
    int64_t n_slots; /* number of slots of the hash table, a power of two; at most half of the
                      * slots are in use */
    int32_t *by_id;  /* index of the entry of each id; -1 if the id has no entry */
    int64_t by_id_room;
    int64_t size; /* 1 + the largest id */
};

/* Adds a string with its id. If the string exists already, its id is replaced. If two strings
 * are added with one id, vocab_content returns the string that was added later. */
int vocab_add(struct vocab *v, const char *s, size_t n, int64_t id, struct err *e);
/* returns the id, or -1 if the string is not in the vocabulary */
int32_t vocab_find(const struct vocab *v, const char *s, size_t n);
const char *vocab_content(const struct vocab *v, int32_t id, size_t *n);
void vocab_fini(struct vocab *v);

#endif
