/* unigram.c: finds the most probable sequence by Viterbi's algorithm over a trie of tokens. */
#include "worker/text/unigram.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "worker/text/rune.h"

/* The lowest score of a token minus this number is the score of the unknown token. */
#define UNK_PENALTY 10

/* An edge of the trie. One table has all edges, and maps (node, byte) to a node. */
struct edge {
    uint64_t key; /* the key is (node << 8 | byte) + 1; it is 0 if the slot is free */
    int32_t to;
};

struct unigram_place {
    double score;      /* score of the best path that ends at this place */
    int32_t begin, id; /* for the best path to this place: the beginning and the id of its last
                        * token; `begin` is -1 if no path has reached this place */
};

struct unigram {
    struct vocab *v;
    double *score;
    int64_t n, score_room; /* n is the number of tokens of the file */
    double least;
    int64_t unk; /* id of the unknown token; -1 if the model has no unknown token */
    bool byte_fallback;
    int32_t byte[256]; /* byte[x] is the id of the token <0xXX>, or -1 if there is no such token */
    struct edge *edge;
    int64_t n_edges, edge_slots;
    int32_t *token; /* for each node, the id of the token that ends at the node; -1 if no token
                     * ends at the node */
    int64_t n_nodes, node_room;
    struct unigram_place *place; /* scratch */
    int64_t place_room;
    struct text word;
};

/* ---- trie ----------------------------------------------------------------------------------- */

static struct edge *edge_of(const struct unigram *u, int32_t node, unsigned char byte)
{
    const uint64_t key = ((uint64_t)(uint32_t)node << 8 | byte) + 1;
    uint64_t i = key * 0x9e3779b97f4a7c15u;
    for (i ^= i >> 31;; i++) {
        struct edge *x = &u->edge[i & (uint64_t)(u->edge_slots - 1)];
        if (!x->key || x->key == key) return x;
    }
}

static int grow_edges(struct unigram *u)
{
    const struct edge *old = u->edge;
    const int64_t n_old = u->edge_slots;
    struct edge *wide = calloc((size_t)(n_old ? 2 * n_old : 1024), sizeof *wide);
    if (!wide) return -1;
    u->edge = wide;
    u->edge_slots = n_old ? 2 * n_old : 1024;
    for (int64_t i = 0; i < n_old; i++) {
        if (!old[i].key) continue;
        const uint64_t key = old[i].key - 1;
        *edge_of(u, (int32_t)(key >> 8), (unsigned char)key) = old[i];
    }
    free((void *)(uintptr_t)old);
    return 0;
}

static int new_node(struct unigram *u)
{
    if (buffer_grow((void **)&u->token, &u->node_room, u->n_nodes, 1, sizeof *u->token) < 0)
        return -1;
    u->token[u->n_nodes++] = -1;
    return 0;
}

static int trie_add(struct unigram *u, const char *s, int64_t n, int32_t id)
{
    int32_t at = 0;
    for (int64_t i = 0; i < n; i++) {
        if (2 * (u->n_edges + 1) > u->edge_slots && grow_edges(u) < 0) return -1;
        struct edge *x = edge_of(u, at, (unsigned char)s[i]);
        if (!x->key) {
            if (new_node(u) < 0) return -1;
            *x = (struct edge){((uint64_t)(uint32_t)at << 8 | (unsigned char)s[i]) + 1,
                               (int32_t)u->n_nodes - 1};
            u->n_edges++;
        }
        at = x->to;
    }
    u->token[at] = id;
    return 0;
}

/* ---- reading -------------------------------------------------------------------------------- */

struct unigram_pair {
    struct unigram *u;
    int n;
};

static int each_of_pair(void *who, struct json j, struct err *e)
{
    struct unigram_pair *p = who;
    struct unigram *u = p->u;
    struct jread r;
    double score;
    if (p->n++ == 0) return json_text(j, "model.vocab", &u->word, e);
    if (j.p) jread_init(&r, j.p, (size_t)j.n);
    if (p->n > 2 || !j.p || jread_next(&r) != J_NUMBER || jread_double(&r, &score) < 0)
        return err_set(e, ERR_INVALID, "tokenizer.json: model.vocab: want [token, score]");
    if (buffer_grow((void **)&u->score, &u->score_room, u->n, 1, sizeof *u->score) < 0)
        return buffer_full(e);
    u->score[u->n] = score;
    return 0;
}

static int each_token(void *who, struct json j, struct err *e)
{
    struct unigram *u = who;
    struct unigram_pair p = {u, 0};
    u->word.n = 0;
    if (json_each(j, "model.vocab", each_of_pair, &p, e) < 0) return -1;
    if (p.n != 2)
        return err_set(e, ERR_INVALID, "tokenizer.json: model.vocab: want [token, score]");
    if (vocab_add(u->v, u->word.data, (size_t)u->word.n, u->n, e) < 0) return -1;
    if (trie_add(u, u->word.data, u->word.n, (int32_t)u->n) < 0) return buffer_full(e);
    if (u->score[u->n] < u->least) u->least = u->score[u->n];
    u->n++;
    return 0;
}

static void byte_ids(struct unigram *u)
{
    static const char digit[] = "0123456789ABCDEF";
    for (int i = 0; i < 256; i++) {
        const char s[6] = {'<', '0', 'x', digit[i >> 4], digit[i & 15], '>'};
        u->byte[i] = vocab_find(u->v, s, 6);
    }
}

static int read_model(struct unigram *u, struct json j, struct err *e)
{
    static const char *const names[] = {"vocab", "unk_id", "byte_fallback"};
    struct json v[3];
    if (json_members(j, "model", 3, names, v, e) < 0 ||
        json_int(v[1], "model.unk_id", -1, &u->unk, e) < 0 ||
        json_bool(v[2], "model.byte_fallback", false, &u->byte_fallback, e) < 0)
        return -1;
    u->least = INFINITY;
    if (new_node(u) < 0 || grow_edges(u) < 0) return buffer_full(e);
    if (json_each(v[0], "model.vocab", each_token, u, e) < 0) return -1;
    if (u->unk >= u->n || (v[1].p && u->unk < 0))
        return err_set(e, ERR_INVALID,
                       "tokenizer.json: model.unk_id %lld is not an id of the %lld tokens",
                       (long long)u->unk, (long long)u->n);
    byte_ids(u);
    return 0;
}

struct unigram *unigram_open(struct json j, struct vocab *v, struct err *e)
{
    struct unigram *u = calloc(1, sizeof *u);
    if (!u) return buffer_full(e), NULL;
    u->v = v;
    if (read_model(u, j, e) == 0) return u;
    unigram_destroy(u);
    return NULL;
}

void unigram_destroy(struct unigram *u)
{
    if (!u) return;
    free(u->score);
    free(u->edge);
    free(u->token);
    free(u->place);
    text_fini(&u->word);
    free(u);
}

/* ---- the best path -------------------------------------------------------------------------- */

static void reach(struct unigram *u, int64_t begin, int64_t end, int32_t id, double score)
{
    struct unigram_place *p = &u->place[end];
    score += u->place[begin].score;
    if (p->begin < 0 || score > p->score) *p = (struct unigram_place){score, (int32_t)begin, id};
}

/* Extends the best path to the place `at` by each token that begins at this place. If none of
 * these tokens is exactly the next character, also extends the path by the unknown token. */
static int extend(struct unigram *u, const char *s, int64_t at, int64_t n, struct err *e)
{
    const int64_t rune_end = at + rune_size((unsigned char)s[at]);
    bool single = false;
    int32_t node = 0;
    for (int64_t i = at; i < n; i++) {
        const struct edge *x = edge_of(u, node, (unsigned char)s[i]);
        if (!x->key) break;
        node = x->to;
        if (u->token[node] < 0) continue;
        reach(u, at, i + 1, u->token[node], u->score[u->token[node]]);
        single |= i + 1 == rune_end;
    }
    if (single) return 0;
    struct unigram_place *p = &u->place[rune_end];
    const double score = u->least - UNK_PENALTY + u->place[at].score;
    if (p->begin >= 0 && score <= p->score) return 0;
    if (u->unk < 0) {
        return err_set(e, ERR_INVALID,
                       "tokenizer.json: a character has no token, and model.unk_id is missing");
    }
    *p = (struct unigram_place){score, (int32_t)at, (int32_t)u->unk};
    return 0;
}

/* Adds a run of unknown characters. If the vocabulary has the run, adds it as one token. If
 * not, but if all its bytes are tokens, adds the tokens of its bytes. In all other cases adds
 * the unknown token. */
static int put_unknown(struct unigram *u, const char *s, int64_t begin, int64_t end,
                       struct hits *out, struct err *e)
{
    int32_t id = vocab_find(u->v, s + begin, (size_t)(end - begin));
    bool all = id < 0 && u->byte_fallback;
    for (int64_t i = begin; all && i < end; i++) all = u->byte[(unsigned char)s[i]] >= 0;
    if (id < 0) id = (int32_t)u->unk;
    int rc = 0;
    for (int64_t i = begin; rc == 0 && all && i < end; i++)
        rc = text_hits_add(out, u->byte[(unsigned char)s[i]], begin, end);
    if (!all) rc = text_hits_add(out, id, begin, end);
    return rc < 0 ? buffer_full(e) : 0;
}

/* Walks along the best path from its end to its beginning. In each place on the path, sets
 * `begin` to the end of the token that begins at this place. */
static void mark_way(struct unigram *u, int64_t n)
{
    for (int64_t end = n, next = -1; end >= 0;) {
        const int64_t begin = end ? u->place[end].begin : -1;
        u->place[end].begin = (int32_t)next; /* from now on `begin` is the end of the token
                                              * that begins at this place */
        next = end;
        end = begin;
    }
}

int unigram_encode(struct unigram *u, const char *s, int64_t n, struct hits *out, struct err *e)
{
    if (buffer_grow((void **)&u->place, &u->place_room, 0, n + 1, sizeof *u->place) < 0)
        return buffer_full(e);
    for (int64_t i = 0; i <= n; i++) u->place[i] = (struct unigram_place){0, -1, -1};
    for (int64_t i = 0; i < n; i += rune_size((unsigned char)s[i]))
        if (extend(u, s, i, n, e) < 0) return -1;
    mark_way(u, n);
    for (int64_t begin = 0, end; begin < n; begin = end) {
        end = u->place[begin].begin;
        const int32_t id = u->place[end].id;
        if (id != u->unk) {
            if (text_hits_add(out, id, begin, end) < 0) return buffer_full(e);
            continue;
        }
        while (end < n && u->place[u->place[end].begin].id == u->unk) end = u->place[end].begin;
        if (put_unknown(u, s, begin, end, out, e) < 0) return -1;
    }
    return 0;
}
