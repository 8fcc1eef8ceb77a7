/* added.c: finds added tokens, and passes the tokens and the text between them to the caller. It
 * has one trie for raw text and one trie for normalized text. */
#include "worker/text/added.h"

#include <stdlib.h>
#include <string.h>
#include "worker/text/unicode.h"

/* Largest number of added tokens in a file. Large files have 7,000 added tokens. */
#define TOKENS     (1 << 16)
#define TOKEN_SIZE 4096

struct added_node {
    int32_t child, sibling, token; /* indices; -1 if the node has no child, no sibling or no
                                    * token */
    unsigned char byte;
};

struct trie {
    struct added_node *node;
    int64_t n, room;
    int32_t root[256]; /* root[c] is the node for texts that begin with byte c, or -1 if no
                        * text begins with c */
};

struct added {
    struct added_token *token;
    int64_t n, room;
    struct vocab by_content; /* maps the content of a token to its index */
    /* by_id[id] is the index of the token with that id, or -1 if no token has that id */
    int32_t *by_id;
    int64_t size;
    struct trie trie[2]; /* trie[0] has the contents, and trie[1] the normalized forms */
    struct rune_bits *word, *space;
};

/* ---- trie ----------------------------------------------------------------------------------- */

static int32_t node_new(struct trie *t, unsigned char byte)
{
    if (buffer_grow((void **)&t->node, &t->room, t->n, 1, sizeof *t->node) < 0) return -1;
    t->node[t->n] = (struct added_node){-1, -1, -1, byte};
    return (int32_t)t->n++;
}

static int32_t child_of(const struct trie *t, int32_t node, unsigned char byte)
{
    int32_t c = t->node[node].child;
    while (c >= 0 && t->node[c].byte != byte) c = t->node[c].sibling;
    return c;
}

static int trie_add(struct trie *t, const struct text *s, int32_t token, struct err *e)
{
    const unsigned char *p = (const unsigned char *)s->data;
    int32_t at = t->root[p[0]];
    if (at < 0 && (at = t->root[p[0]] = node_new(t, p[0])) < 0) return buffer_full(e);
    for (int64_t i = 1; i < s->n; i++) {
        int32_t c = child_of(t, at, p[i]);
        if (c < 0) {
            if ((c = node_new(t, p[i])) < 0) return buffer_full(e);
            t->node[c].sibling = t->node[at].child;
            t->node[at].child = c;
        }
        at = c;
    }
    if (t->node[at].token >= 0) {
        return err_set(e, ERR_INVALID, "tokenizer.json: two added tokens are \"%.60s\" in the text",
                       s->data);
    }
    t->node[at].token = token;
    return 0;
}

/* Returns the index of the longest token with which s begins. *size gets the number of bytes of
 * the token. Returns -1 if s begins with no token. */
static int32_t trie_match(const struct trie *t, const char *s, int64_t n, int64_t *size)
{
    int32_t found = -1, at = t->root[(unsigned char)s[0]];
    for (int64_t i = 1; at >= 0; i++) {
        if (t->node[at].token >= 0) {
            found = t->node[at].token;
            *size = i;
        }
        if (i == n) break;
        at = child_of(t, at, (unsigned char)s[i]);
    }
    return found;
}

/* ---- reading -------------------------------------------------------------------------------- */

struct added_reading {
    struct added *a;
    const struct vocab *v;
    struct normalizer *normalizer;
    int64_t next_id;
};

static int read_flags(struct json j, struct added_token *t, struct err *e)
{
    static const char *const names[] = {"content", "single_word", "lstrip",
                                        "rstrip",  "normalized",  "special"};
    bool *const flags[] = {NULL,       &t->single_word, &t->lstrip,
                           &t->rstrip, &t->normalized,  &t->special};
    struct json v[6];
    if (json_members(j, "added_tokens", 6, names, v, e) < 0) return -1;
    for (int i = 1; i < 6; i++)
        if (json_bool(v[i], "added_tokens", i == 4, flags[i], e) < 0) return -1;
    if (json_text(v[0], "added_tokens.content", &t->content, e) < 0) return -1;
    if (t->content.n > TOKEN_SIZE)
        return err_set(e, ERR_TOO_LARGE, "tokenizer.json: added_tokens.content has over %d bytes",
                       TOKEN_SIZE);
    return 0;
}

static int read_form(const struct added_reading *r, struct added_token *t, struct err *e)
{
    struct text_run run = {.text = t->content.data, .n = t->content.n};
    if (t->normalized && r->normalizer &&
        normalizer_apply(r->normalizer, &run, false, false, e) < 0)
        return -1;
    if (text_add(&t->form, run.text, run.n) < 0) return buffer_full(e);
    return 0;
}

static void token_fini(struct added_token *t)
{
    text_fini(&t->content);
    text_fini(&t->form);
}

/* Adds t and takes ownership of it. If the list has a token with the content of t, t replaces
 * that token and gets the id of that token. */
static int put(struct added_reading *r, struct added_token *t, struct err *e)
{
    struct added *a = r->a;
    const int32_t had = vocab_find(&a->by_content, t->content.data, (size_t)t->content.n);
    if (had >= 0) {
        t->id = a->token[had].id;
        token_fini(&a->token[had]);
        a->token[had] = *t;
        return 0;
    }
    t->id = vocab_find(r->v, t->content.data, (size_t)t->content.n);
    if (t->id < 0) t->id = (int32_t)r->next_id++;
    if (a->n == TOKENS || t->id >= VOCAB_IDS) {
        token_fini(t);
        return err_set(e, ERR_TOO_LARGE, "tokenizer.json has over %d added_tokens", TOKENS);
    }
    if (buffer_grow((void **)&a->token, &a->room, a->n, 1, sizeof *a->token) < 0) {
        token_fini(t);
        return buffer_full(e);
    }
    a->token[a->n++] = *t;
    if (t->id >= a->size) a->size = t->id + 1;
    return vocab_add(&a->by_content, t->content.data, (size_t)t->content.n, a->n - 1, e);
}

static int one_token(void *who, struct json j, struct err *e)
{
    struct added_reading *r = who;
    struct added_token t = {0};
    if (read_flags(j, &t, e) < 0 || (t.content.n && read_form(r, &t, e) < 0)) {
        token_fini(&t);
        return -1;
    }
    if (t.content.n) return put(r, &t, e);
    token_fini(&t); /* a token without content is ignored */
    return 0;
}

static int index_tokens(struct added *a, struct err *e)
{
    a->by_id = malloc((size_t)(a->size + 1) * sizeof *a->by_id);
    if (!a->by_id) return buffer_full(e);
    for (int64_t i = 0; i < a->size; i++) a->by_id[i] = -1;
    memset(a->trie[0].root, -1, sizeof a->trie[0].root);
    memset(a->trie[1].root, -1, sizeof a->trie[1].root);
    for (int64_t i = 0; i < a->n; i++) {
        struct added_token *t = &a->token[i];
        a->by_id[t->id] = (int32_t)i;
        const int32_t named = vocab_find(&a->by_content, t->form.data, (size_t)t->form.n);
        t->skipped = named >= 0 && a->token[named].special;
        if (!t->form.n)
            return err_set(e, ERR_UNSUPPORTED,
                           "tokenizer.json: the normalizer leaves nothing of added token \"%.60s\"",
                           t->content.data);
        if (trie_add(&a->trie[t->normalized], &t->form, (int32_t)i, e) < 0) return -1;
    }
    return 0;
}

int added_open(struct json list, const struct vocab *v, struct normalizer *n, struct added **out,
               struct err *e)
{
    struct added *a = *out = calloc(1, sizeof *a);
    if (!a) return buffer_full(e);
    struct added_reading r = {a, v, n, v->n};
    a->word = unicode_bits(UNICODE_WORD);
    a->space = unicode_bits(UNICODE_SPACE);
    if (!a->word || !a->space) return buffer_full(e);
    return json_each(list, "added_tokens", one_token, &r, e) < 0 ? -1 : index_tokens(a, e);
}

void added_destroy(struct added *a)
{
    if (!a) return;
    for (int64_t i = 0; i < a->n; i++) token_fini(&a->token[i]);
    free(a->token);
    vocab_fini(&a->by_content);
    free(a->by_id);
    free(a->trie[0].node);
    free(a->trie[1].node);
    free(a->word);
    free(a->space);
    free(a);
}

const struct added_token *added_by_id(const struct added *a, int32_t id)
{
    return id >= 0 && id < a->size && a->by_id[id] >= 0 ? &a->token[a->by_id[id]] : NULL;
}

int32_t added_find(const struct added *a, const char *s, size_t n)
{
    const int32_t i = vocab_find(&a->by_content, s, n);
    return i < 0 ? -1 : a->token[i].id;
}

int64_t added_size(const struct added *a)
{
    return a->size;
}

/* ---- finding -------------------------------------------------------------------------------- */

static bool alone(const struct added *a, const struct text_run *r, int64_t begin, int64_t end)
{
    int size;
    if (begin && rune_in(a->word, rune_get(r->text + rune_before(r->text, begin), &size)))
        return false;
    return end == r->n || !rune_in(a->word, rune_get(r->text + end, &size));
}

/* Returns the offset at which the white space before `at` begins. */
static int64_t space_before(const struct added *a, const struct text_run *r, int64_t at)
{
    while (at > 0) {
        int size;
        const int64_t before = rune_before(r->text, at);
        if (!rune_in(a->space, rune_get(r->text + before, &size))) break;
        at = before;
    }
    return at;
}

static int64_t space_after(const struct added *a, const struct text_run *r, int64_t at)
{
    int size;
    while (at < r->n && rune_in(a->space, rune_get(r->text + at, &size))) at += size;
    return at;
}

static int give(const struct text_run *r, int64_t begin, int64_t end, int32_t id, part_fn *each,
                void *who, struct err *e)
{
    const struct text_run part = run_part(r, begin, end);
    return end > begin ? each(who, &part, id, e) : 0;
}

int added_split(const struct added *a, bool normalized, const struct text_run *r, part_fn *each,
                void *who, struct err *e)
{
    const struct trie *t = &a->trie[normalized];
    int64_t done = 0, size = 0;
    for (int64_t i = 0; t->n && i < r->n;) {
        const int32_t found = t->root[(unsigned char)r->text[i]] < 0
                                  ? -1
                                  : trie_match(t, r->text + i, r->n - i, &size);
        if (found < 0) {
            i++;
            continue;
        }
        const struct added_token *token = &a->token[found];
        int64_t begin = i, end = i + size;
        i = end;
        if (token->single_word && !alone(a, r, begin, end)) continue;
        if (token->lstrip) begin = space_before(a, r, begin);
        if (token->lstrip && begin < done) begin = done;
        if (token->rstrip) end = space_after(a, r, end);
        if (give(r, done, begin, -1, each, who, e) < 0 ||
            give(r, begin, end, token->id, each, who, e) < 0)
            return -1;
        done = end;
    }
    return give(r, done, r->n, -1, each, who, e);
}

/* ---- cuts ----------------------------------------------------------------------------------- */

/* Returns true if dividing a text between these runes does not change where the token is
 * found. Returns false if the token has `after` directly after `before`. Also returns false if
 * the token may end or begin between the runes, and the rune that is not part of the token
 * decides whether the token is found. */
static bool clear(const struct added *a, const struct added_token *t, uint32_t before,
                  uint32_t after)
{
    int size;
    char pair[8];
    const struct text *s = &t->form;
    const int n = rune_put(pair, before), both = n + rune_put(pair + n, after);
    if (memmem(s->data, (size_t)s->n, pair, (size_t)both)) return false;
    if ((t->lstrip || t->rstrip) && rune_in(a->space, before)) return false;
    const bool ends = rune_get(s->data + rune_before(s->data, s->n), &size) == before;
    if (ends && (t->rstrip || t->single_word)) return false;
    return !(t->single_word && rune_get(s->data, &size) == after);
}

bool added_cut(const struct added *a, bool normalized, uint32_t before, uint32_t after)
{
    for (int64_t i = 0; i < a->n; i++)
        if (a->token[i].normalized == normalized && !clear(a, &a->token[i], before, after))
            return false;
    return true;
}
