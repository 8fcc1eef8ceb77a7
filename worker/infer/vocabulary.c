/* vocabulary.c: sorts the tokens by their bytes, and lays the tree of their common beginnings
 * out in the order of its walk. In a string most tokens are allowed by their number of characters,
 * without a look at their bytes, and the walk visits the rest. */
#include "worker/infer/vocabulary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/utf8.h"
#include "worker/text/buffer.h"

/* The tokens whose bytes are those on the path from the root to the node are
 * id[first, first + n). */
struct vocabulary_node {
    int32_t skip; /* index after the nodes below */
    int32_t first;
    uint16_t n;
    uint8_t byte, depth; /* depth is 1 for a first byte */
};

struct token_bytes {
    const char *bytes;
    int32_t size, id;
};

struct token_list {
    struct token_bytes *v; /* owned */
    int64_t n, room;
    struct text bytes;
};

int64_t vocabulary_words(int64_t n_vocab)
{
    return (n_vocab + 63) / 64;
}

void vocabulary_fini(struct vocabulary *v)
{
    free(v->all.node);
    free(v->rest.node);
    free(v->id);
    free(v->plain);
    free(v->state);
    text_fini(&v->bytes);
    *v = (struct vocabulary){0};
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static int add_piece(struct token_list *p, int32_t id, int64_t from, struct err *e)
{
    const int64_t size = p->bytes.n - from;
    if (size < 1 || size > VOCABULARY_TOKEN) {
        p->bytes.n = from;
        return 0;
    }
    if (buffer_grow((void **)&p->v, &p->room, p->n, 1, sizeof *p->v) < 0) return buffer_full(e);
    p->v[p->n++] = (struct token_bytes){.size = (int32_t)size, .id = id};
    return 0;
}

static int add_byte(struct token_list *p, int32_t id, struct err *e)
{
    const char byte = (char)id;
    if (text_add(&p->bytes, &byte, 1) < 0) return buffer_full(e);
    return add_piece(p, id, p->bytes.n - 1, e);
}

static int read_pieces(struct token_list *p, struct tokenizer *t, int64_t n_vocab, struct err *e)
{
    const int64_t most = t ? tokenizer_size(t) : 256, n = most < n_vocab ? most : n_vocab;
    for (int32_t id = 0; id < n; id++) {
        const int64_t from = p->bytes.n;
        if (!t && add_byte(p, id, e)) return -1;
        if (!t || tokenizer_is_special(t, id)) continue;
        if (tokenizer_piece(t, id, &p->bytes, e) < 0 || add_piece(p, id, from, e)) return -1;
    }
    const char *at = p->bytes.data;
    for (int64_t i = 0; i < p->n; at += p->v[i++].size) p->v[i].bytes = at;
    return 0;
}

/* Returns the number of characters, or 0 if the bytes are not whole characters. */
static int32_t characters(const struct token_bytes *p)
{
    int32_t i = 0, n = 0;
    for (int k; i < p->size && (k = utf8_len(p->bytes + i, p->bytes + p->size)) > 0; n++) i += k;
    return i == p->size ? n : 0;
}

/* Returns the number of characters of a token after which a text stays in a string. Returns 0 for
 * other tokens. */
static int32_t plain_characters(const struct token_bytes *p)
{
    for (int32_t i = 0; i < p->size; i++)
        if ((unsigned char)p->bytes[i] < 0x20 || p->bytes[i] == '"' || p->bytes[i] == '\\')
            return 0;
    return characters(p);
}

/* Checks that each character that every grammar may ask for alone has a token. Keeps the tokens
 * that are allowed. Names and literals of a grammar may have other bytes (vocabulary_covers). */
static int check_bytes(struct vocabulary *v, struct token_list *p, struct err *e)
{
    bool *const alone = v->alone, ends = true;
    int64_t kept = 0;
    for (int64_t i = 0; i < p->n; i++)
        if (p->v[i].size == 1) alone[(unsigned char)p->v[i].bytes[0]] = true;
    for (int c = ' '; c < 0x7f; c++)
        if (!alone[c])
            return err_set(e, ERR_UNSUPPORTED,
                           "the vocabulary has no token for the character "
                           "\"%c\" alone",
                           c);
    for (int c = 0x80; c < 0xc0; c++) ends &= alone[c];
    for (int64_t i = 0; i < p->n; i++)
        if (ends || characters(&p->v[i])) p->v[kept++] = p->v[i];
    p->n = kept;
    if (!ends) memset(alone + 0x80, 0, 0x80); /* these tokens are not kept */
    return 0;
}

static int by_bytes(const void *a, const void *b)
{
    const struct token_bytes *x = a, *y = b;
    const int order = memcmp(x->bytes, y->bytes, (size_t)(x->size < y->size ? x->size : y->size));
    if (order) return order;
    return x->size != y->size ? x->size - y->size : x->id - y->id;
}

/* ---- the tree -------------------------------------------------------------------------------- */

static int32_t common(const struct token_bytes *x, const struct token_bytes *y)
{
    int32_t n = 0;
    while (n < x->size && n < y->size && x->bytes[n] == y->bytes[n]) n++;
    return n;
}

/* Adds the nodes of piece i, which follows `before` in the order of bytes. open [depth] has the
 * nodes on the path to `before`. */
static int add_nodes(struct vocabulary_tree *t, const struct token_bytes *before,
                     const struct token_bytes *p, int64_t i, int32_t *open, struct err *e)
{
    const int32_t same = before ? common(before, p) : 0, size = before ? before->size : 0;
    for (int32_t d = size; d > same; d--) t->node[open[d]].skip = (int32_t)t->n;
    if (buffer_grow((void **)&t->node, &t->room, t->n, p->size - same, sizeof *t->node) < 0)
        return buffer_full(e);
    for (int32_t d = same + 1; d <= p->size; d++) {
        open[d] = (int32_t)t->n;
        t->node[t->n++] = (struct vocabulary_node){
            .first = (int32_t)i, .byte = (uint8_t)p->bytes[d - 1], .depth = (uint8_t)d};
    }
    struct vocabulary_node *last = &t->node[open[p->size]];
    if (!last->n) last->first = (int32_t)i;
    last->n += last->n < UINT16_MAX;
    return 0;
}

/* Makes the tree of pieces, or only of those without a bit in `leave`. The pieces of a node follow
 * each other, because they have the same bytes. */
static int make_tree(struct vocabulary_tree *t, const struct token_list *p, const uint64_t *leave,
                     struct err *e)
{
    int32_t open[VOCABULARY_TOKEN + 1];
    const struct token_bytes *before = NULL;
    for (int64_t i = 0; i < p->n; i++) {
        const struct token_bytes *now = &p->v[i];
        if (leave && leave[now->id / 64] >> now->id % 64 & 1) continue;
        if (add_nodes(t, before, now, i, open, e)) return -1;
        before = now;
    }
    for (int32_t d = before ? before->size : 0; d > 0; d--) t->node[open[d]].skip = (int32_t)t->n;
    return 0;
}

/* Makes the masks of the tokens that stay in a string. */
static int make_plain(struct vocabulary *v, const struct token_list *p, struct err *e)
{
    const int64_t words = vocabulary_words(v->n_vocab);
    v->n_plain = 0;
    for (int64_t i = 0; i < p->n; i++) {
        const int32_t n = plain_characters(&p->v[i]);
        if (n > v->n_plain) v->n_plain = n;
    }
    v->plain = calloc((size_t)(v->n_plain * words), sizeof *v->plain);
    if (!v->plain) return buffer_full(e);
    for (int64_t i = 0; i < p->n; i++) {
        const int32_t n = plain_characters(&p->v[i]), id = p->v[i].id;
        if (n) v->plain[(n - 1) * words + id / 64] |= (uint64_t)1 << id % 64;
    }
    for (int64_t i = words; i < v->n_plain * words; i++) v->plain[i] |= v->plain[i - words];
    return 0;
}

static int make(struct vocabulary *v, struct token_list *p, struct tokenizer *t, struct err *e)
{
    if (read_pieces(p, t, v->n_vocab, e) || check_bytes(v, p, e) || make_plain(v, p, e)) return -1;
    qsort(p->v, (size_t)p->n, sizeof *p->v, by_bytes);
    v->id = malloc((size_t)(p->n + 1) * sizeof *v->id);
    v->state = malloc((VOCABULARY_TOKEN + 1) * sizeof *v->state);
    if (!v->id || !v->state || text_add(&v->bytes, "", 0) < 0) return buffer_full(e);
    for (int64_t i = 0; i < p->n; i++) v->id[i] = p->v[i].id;
    const uint64_t *const plain = v->plain + (v->n_plain - 1) * vocabulary_words(v->n_vocab);
    return make_tree(&v->all, p, NULL, e) || make_tree(&v->rest, p, plain, e) ? -1 : 0;
}

int vocabulary_prepare(struct vocabulary *v, struct tokenizer *t, int64_t n_vocab, struct err *e)
{
    struct token_list p = {0};
    struct err why = v->failed;
    if (why.code != ERR_NONE) return err_set(e, why.code, "%s", why.text);
    if (v->n_vocab) return 0;
    v->n_vocab = n_vocab;
    const int rc = make(v, &p, t, &why);
    free(p.v);
    text_fini(&p.bytes);
    if (!rc) return 0;
    vocabulary_fini(v);
    if (why.code != ERR_IO) v->failed = why; /* memory may come back */
    return err_set(e, why.code, "%s", why.text);
}

/* ---- the bytes of a grammar ------------------------------------------------------------------ */

/* Tells whether a token has exactly these bytes. */
static bool has_token(const struct vocabulary *v, const char *bytes, int n)
{
    const struct vocabulary_node *node = v->all.node;
    int64_t end = v->all.n;
    for (int64_t i = 0, d = 0; i < end;) {
        if (node[i].byte != (unsigned char)bytes[d]) {
            i = node[i].skip;
            continue;
        }
        if (++d == n) return node[i].n > 0;
        end = node[i++].skip;
    }
    return false;
}

/* Returns the index of the first byte that no token has alone, or n. */
static int first_missing(const struct vocabulary *v, const char *bytes, int n)
{
    int i = 0;
    while (i < n && v->alone[(unsigned char)bytes[i]]) i++;
    return i;
}

int vocabulary_covers(const struct vocabulary *v, const struct grammar *g, struct err *e)
{
    int64_t n_bytes;
    const char *at = grammar_bytes(g, &n_bytes), *const end = at + n_bytes;
    for (int k; at < end; at += k) {
        const int length = utf8_len(at, end);
        k = length ? length : 1;
        const int missing = first_missing(v, at, k);
        if (missing < k && !has_token(v, at, k))
            return err_set(e, ERR_UNSUPPORTED,
                           "the vocabulary has no token for the byte 0x%02x, which a name, a value "
                           "or the form of a call needs: leave out names and values with it",
                           (unsigned char)at[missing]);
    }
    return 0;
}

/* ---- masks ----------------------------------------------------------------------------------- */

static void walk(const struct vocabulary *v, const struct vocabulary_tree *t,
                 const struct grammar *g, uint64_t *mask)
{
    for (int64_t i = 0; i < t->n;) {
        const struct vocabulary_node *node = &t->node[i];
        if (!grammar_step(g, &v->state[node->depth - 1], node->byte, &v->state[node->depth])) {
            i = node->skip;
            continue;
        }
        for (int32_t k = node->first; k < node->first + node->n; k++)
            mask[v->id[k] / 64] |= (uint64_t)1 << v->id[k] % 64;
        i++;
    }
}

void vocabulary_mask(const struct vocabulary *v, const struct grammar *g,
                     const struct grammar_state *s, uint64_t *mask)
{
    const int64_t words = vocabulary_words(v->n_vocab);
    const int32_t room = grammar_string_room(g, s), n = room < v->n_plain ? room : v->n_plain;
    v->state[0] = *s;
    if (n > 0)
        memcpy(mask, v->plain + (n - 1) * words, (size_t)words * sizeof *mask);
    else
        memset(mask, 0, (size_t)words * sizeof *mask);
    walk(v, room >= 0 ? &v->rest : &v->all, g, mask);
}

int vocabulary_take(struct vocabulary *v, struct tokenizer *t, const struct grammar *g,
                    struct grammar_state *s, int32_t token, struct err *e)
{
    const char byte = (char)token;
    v->bytes.n = 0;
    if (t ? tokenizer_piece(t, token, &v->bytes, e) : text_add(&v->bytes, &byte, 1)) return -1;
    for (int64_t i = 0; i < v->bytes.n; i++) {
        const bool good = grammar_step(g, s, (unsigned char)v->bytes.data[i], &v->state[0]);
        assert(good); /* the mask has allowed the token */
        *s = v->state[0];
    }
    return 0;
}
