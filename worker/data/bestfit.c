/* bestfit.c: sorts pieces by length, longest first, and puts each piece into the fullest bin
 * that has enough room. A tree of bits is used to find that bin. */
#include "worker/data/bestfit.h"

#include <stdbool.h>
#include <stdlib.h>
#include "api/core/assert.h"
#include "worker/data/pack.h"

#define NO_BIN UINT32_MAX

/* The set of the free rooms of all bins. It is a subset of [0, size], stored as a tree of bits
 * in 64-bit words. A search for the smallest room that is not smaller than a given length takes
 * at most two steps per level. Bins of the longest possible sequence need 5 levels. */
enum { LEVELS = 5 };

struct rooms {
    uint64_t *level[LEVELS]; /* level 0 has a bit for each room; a higher level has a bit for each
                              * word of the level below, which is set if the word is not zero */
    int64_t n_words[LEVELS];
    int n_levels;
    uint32_t *head; /* [size + 1] the newest bin with this room */
    uint32_t *next; /* [n]: for each bin, the next older bin that has the same room */
    uint64_t *words;
};

static int rooms_init(struct rooms *r, int64_t size, int64_t n)
{
    int64_t bits = size + 1, total = 0;
    do {
        bits = (bits + 63) / 64;
        assert(r->n_levels < LEVELS);
        r->n_words[r->n_levels++] = bits;
        total += bits;
    } while (bits > 1);
    r->words = calloc((size_t)total, sizeof *r->words);
    r->head = malloc((size_t)(size + 1) * sizeof *r->head);
    r->next = malloc((size_t)(n ? n : 1) * sizeof *r->next);
    if (!r->words || !r->head || !r->next) return -1;
    for (int64_t i = 0; i <= size; i++) r->head[i] = NO_BIN;
    uint64_t *w = r->words;
    for (int l = 0; l < r->n_levels; l++) {
        r->level[l] = w;
        w += r->n_words[l];
    }
    return 0;
}

static void rooms_fini(struct rooms *r)
{
    free(r->words);
    free(r->head);
    free(r->next);
}

static void rooms_add(struct rooms *r, int64_t room, uint32_t bin)
{
    r->next[bin] = r->head[room];
    r->head[room] = bin;
    for (int l = 0; l < r->n_levels; l++, room /= 64)
        r->level[l][room / 64] |= (uint64_t)1 << (room % 64);
}

static uint32_t rooms_take(struct rooms *r, int64_t room)
{
    uint32_t bin = r->head[room];
    r->head[room] = r->next[bin];
    if (r->head[room] != NO_BIN) return bin;
    for (int l = 0; l < r->n_levels; l++, room /= 64) {
        r->level[l][room / 64] &= ~((uint64_t)1 << (room % 64));
        if (r->level[l][room / 64]) break;
    }
    return bin;
}

/* Returns the smallest room that is not smaller than `want`, or -1 if there is no such room. */
static int64_t rooms_find(const struct rooms *r, int64_t want)
{
    int64_t at = want; /* index into the bits of level l */
    for (int l = 0; l < r->n_levels; l++) {
        if (at / 64 >= r->n_words[l]) return -1;
        uint64_t word = r->level[l][at / 64] & ~(uint64_t)0 << (at % 64);
        if (word) {
            at = at / 64 * 64 + __builtin_ctzll(word);
            while (l-- > 0) at = at * 64 + __builtin_ctzll(r->level[l][at]);
            return at;
        }
        at = at / 64 + 1; /* continue after this word, one level up */
    }
    return -1;
}

static int longer_first(const void *a, const void *b, void *pieces)
{
    const struct piece *piece = pieces;
    uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    if (piece[i].length != piece[j].length) return piece[i].length > piece[j].length ? -1 : 1;
    return i < j ? -1 : i > j;
}

int bestfit_pack(const struct piece *piece, int64_t n, int64_t size, uint32_t *placed,
                 uint32_t *where, int64_t *n_bins, struct err *e)
{
    struct rooms r = {0};
    *n_bins = 0;
    if (rooms_init(&r, size, n) < 0) {
        rooms_fini(&r);
        return err_set(e, ERR_IO, "out of memory to pack %lld fragments", (long long)n);
    }
    for (int64_t i = 0; i < n; i++) placed[i] = (uint32_t)i;
    qsort_r(placed, (size_t)n, sizeof *placed, longer_first, (void *)piece);
    for (int64_t i = 0; i < n; i++) {
        const int64_t length = piece[placed[i]].length, found = rooms_find(&r, length);
        const uint32_t bin = found < 0 ? (uint32_t)(*n_bins)++ : rooms_take(&r, found);
        where[placed[i]] = bin;
        rooms_add(&r, (found < 0 ? size : found) - length, bin);
    }
    rooms_fini(&r);
    return 0;
}
