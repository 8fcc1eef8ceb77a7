/* gguf_merges.c: divides each piece into two parts in every possible way, and looks up the two
 * parts by a rolling hash. The hash of a prefix or suffix is computed in constant time. The
 * work is counted and limited, because the work for a malicious file could take hours. */
#include "worker/gguf/gguf_merges.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct gguf_merge {
    int32_t left, right;           /* ids */
    int32_t left_size, right_size; /* characters */
    double score;                  /* score of the whole piece */
    int64_t order;
};

struct gguf_merges {
    const struct gguf_piece *piece;
    int32_t n;
    int32_t *slot; /* owned: hash table; a slot has 1 + the id of a piece, or 0 if it is free */
    uint64_t n_slots;
    struct gguf_merge *merge; /* owned */
    int64_t n_merges, room;
    int64_t work; /* number of bytes that were compared and of slots that were inspected */
};

/* Largest allowed value of the member `work`. To reach it takes seconds. */
#define WORK ((int64_t)1 << 32)

static const uint64_t base = 0x9e3779b97f4a7c15u;

static uint64_t hash(uint64_t h, const char *s, int64_t n)
{
    for (int64_t i = 0; i < n; i++) h = h * base + (unsigned char)s[i] + 1;
    return h;
}

static uint64_t slot_of(const struct gguf_merges *m, uint64_t h)
{
    return (h ^ h >> 29) * 0xd6e8feb86659fd93u >> 20 & (m->n_slots - 1);
}

/* Returns the id of the n bytes at s, whose hash is h. Returns -1 if no piece has these bytes. */
static int32_t find(struct gguf_merges *m, uint64_t h, const char *s, int64_t n)
{
    for (uint64_t k = slot_of(m, h); m->slot[k]; k = (k + 1) & (m->n_slots - 1)) {
        const struct gguf_piece *p = &m->piece[m->slot[k] - 1];
        m->work += p->n == n ? n : 1;
        if (p->n == n && !memcmp(p->text, s, (size_t)n)) return m->slot[k] - 1;
    }
    return -1;
}

/* Refuses pieces for which more work than WORK is needed. The vocabularies of real models need
 * less. */
static int check_work(const struct gguf_merges *m, struct err *e)
{
    if (m->work <= WORK) return 0;
    return err_set(e, ERR_TOO_LARGE,
                   "tokenizer.ggml.tokens are too long or too much alike to look for merges: give "
                   "the published directory with its tokenizer.json");
}

/* Fills the table. If several pieces are equal, the last of them is kept, as in a Python
 * dictionary. */
static int fill(struct gguf_merges *m, struct err *e)
{
    for (m->n_slots = 16; m->n_slots < 2 * (uint64_t)m->n;) m->n_slots *= 2;
    m->slot = calloc(m->n_slots, sizeof *m->slot);
    if (!m->slot) return err_set(e, ERR_IO, "out of memory for %d tokens", (int)m->n);
    for (int32_t i = 0; i < m->n; i++) {
        const struct gguf_piece *p = &m->piece[i];
        uint64_t k = slot_of(m, hash(0, p->text, p->n));
        for (; m->slot[k]; k = (k + 1) & (m->n_slots - 1)) {
            const struct gguf_piece *q = &m->piece[m->slot[k] - 1];
            m->work += q->n == p->n ? p->n : 1;
            if (q->n == p->n && !memcmp(q->text, p->text, (size_t)p->n)) break;
        }
        m->slot[k] = i + 1;
        if (check_work(m, e) < 0) return -1;
    }
    return 0;
}

static bool begins(char c)
{
    return ((unsigned char)c & 0xc0) != 0x80;
}

static int add(struct gguf_merges *m, const struct gguf_merge *x, struct err *e)
{
    if (m->n_merges == GGUF_MERGES)
        return err_set(e, ERR_TOO_LARGE,
                       "tokenizer.ggml.tokens make more than %d merges: give the published "
                       "directory with its tokenizer.json",
                       GGUF_MERGES);
    if (m->n_merges == m->room) {
        const int64_t room = m->room ? 2 * m->room : 4096;
        struct gguf_merge *more = realloc(m->merge, (size_t)room * sizeof *more);
        if (!more) return err_set(e, ERR_IO, "out of memory for %lld merges", (long long)room);
        m->merge = more;
        m->room = room;
    }
    m->merge[m->n_merges++] = *x;
    return 0;
}

/* Compares two divisions of one piece by the ids of their parts. */
static int by_ids(const void *a, const void *b)
{
    const struct gguf_merge *x = a, *y = b;
    if (x->left != y->left) return x->left < y->left ? -1 : 1;
    return (x->right > y->right) - (x->right < y->right);
}

static int cut(struct gguf_merges *m, int32_t id, struct err *e)
{
    const struct gguf_piece *p = &m->piece[id];
    const uint64_t all = hash(0, p->text, p->n);
    const int64_t first = m->n_merges;
    /* `before` is the hash of the prefix; `power` is base^(number of bytes after the prefix) */
    uint64_t before = 0, power = 1;
    int32_t n_chars = 0, at_char = 0;
    for (int64_t i = 0; i < p->n; i++) n_chars += begins(p->text[i]);
    uint64_t inverse = base; /* becomes the inverse of base modulo 2^64, by Newton's iteration */
    for (int i = 0; i < 6; i++) inverse *= 2 - base * inverse;
    for (int64_t i = 0; i < p->n; i++) power *= base;
    for (int64_t i = 1; i < p->n; i++) {
        before = hash(before, p->text + i - 1, 1);
        power *= inverse;
        at_char += begins(p->text[i - 1]);
        if (!begins(p->text[i])) continue;
        const int32_t left = find(m, before, p->text, i);
        const int32_t right = left < 0 ? -1 : find(m, all - before * power, p->text + i, p->n - i);
        if (right < 0) continue;
        const struct gguf_merge x = {left, right, at_char, n_chars - at_char, p->score, 0};
        if (add(m, &x, e) < 0) return -1;
    }
    if (check_work(m, e) < 0) return -1;
    if (m->n_merges - first > 1)
        qsort(m->merge + first, (size_t)(m->n_merges - first), sizeof *m->merge, by_ids);
    return 0;
}

static int by_score(const void *a, const void *b)
{
    const struct gguf_merge *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    if (x->left_size != y->left_size) return x->left_size > y->left_size ? -1 : 1;
    if (x->right_size != y->right_size) return x->right_size > y->right_size ? -1 : 1;
    return (x->order > y->order) - (x->order < y->order);
}

static void write(const struct gguf_merges *m, struct jwrite *w)
{
    for (int64_t i = 0; i < m->n_merges; i++) {
        const struct gguf_merge *x = &m->merge[i];
        jwrite_array(w, NULL);
        jwrite_str(w, NULL, m->piece[x->left].text);
        jwrite_str(w, NULL, m->piece[x->right].text);
        jwrite_end(w);
    }
}

int gguf_merges_write(const struct gguf_piece *piece, int32_t n, struct jwrite *w, struct err *e)
{
    struct gguf_merges m = {.piece = piece, .n = n};
    int rc = fill(&m, e);
    for (int32_t i = 0; rc == 0 && i < n; i++)
        if (piece[i].cuts) rc = cut(&m, i, e);
    for (int64_t i = 0; i < m.n_merges; i++) m.merge[i].order = i;
    if (m.n_merges) qsort(m.merge, (size_t)m.n_merges, sizeof *m.merge, by_score);
    if (rc == 0) write(&m, w);
    free(m.slot);
    free(m.merge);
    return rc;
}
