/* wordpiece.c: at each place of a word, tries tokens from the longest to the shortest. If
 * there is a place at which no token matches, the whole word is replaced by the unknown token. */
#include "worker/text/wordpiece.h"

#include <stdlib.h>
#include "worker/text/rune.h"

/* Largest accepted value of max_input_chars_per_word. It is limited because the time of the
 * search grows quadratically. */
#define WORD_RUNES 4096

struct wordpiece {
    const struct vocab *v;
    struct text prefix; /* prefix of tokens within a word */
    int32_t unk;        /* id of the unknown token; -1 if the model has no unknown token */
    int64_t max_runes;
    int64_t longest; /* number of bytes of the longest token */
    struct text work;
};

static int read_options(struct wordpiece *w, struct json j, struct err *e)
{
    static const char *const names[] = {"unk_token", "continuing_subword_prefix",
                                        "max_input_chars_per_word"};
    struct json v[3];
    struct text unk = {0};
    if (json_members(j, "model", 3, names, v, e) < 0 ||
        json_text(v[0], "model.unk_token", &unk, e) < 0)
        return text_fini(&unk), -1;
    w->unk = vocab_find(w->v, unk.data, (size_t)unk.n);
    text_fini(&unk);
    if (json_text(v[1], "model.continuing_subword_prefix", &w->prefix, e) < 0 ||
        json_int(v[2], "model.max_input_chars_per_word", 100, &w->max_runes, e) < 0)
        return -1;
    if (w->max_runes < 0 || w->max_runes > WORD_RUNES) {
        return err_set(e, ERR_TOO_LARGE,
                       "tokenizer.json: model.max_input_chars_per_word %lld: want 0 to %d",
                       (long long)w->max_runes, WORD_RUNES);
    }
    return 0;
}

struct wordpiece *wordpiece_open(struct json j, const struct vocab *v, struct err *e)
{
    struct wordpiece *w = calloc(1, sizeof *w);
    if (!w) return buffer_full(e), NULL;
    w->v = v;
    for (int64_t i = 0; i < v->n; i++)
        if (v->entry[i].size > w->longest) w->longest = v->entry[i].size;
    if (read_options(w, j, e) == 0) return w;
    wordpiece_destroy(w);
    return NULL;
}

void wordpiece_destroy(struct wordpiece *w)
{
    if (!w) return;
    text_fini(&w->prefix);
    text_fini(&w->work);
    free(w);
}

/* Returns the id of the longest token with which s [n] begins. *size gets the number of bytes
 * of s that the token covers. Returns -1 if there is no such token, and -2 if memory is out. */
static int32_t longest(struct wordpiece *w, const char *s, int64_t n, bool inner, int64_t *size)
{
    const int64_t before = inner ? w->prefix.n : 0;
    w->work.n = 0;
    if (text_add(&w->work, w->prefix.data, before) < 0) return -2;
    if (n > w->longest - before) n = w->longest - before;
    if (n <= 0) return -1;
    if (text_add(&w->work, s, n) < 0) return -2;
    for (*size = n; *size > 0; --*size) {
        const int32_t id = vocab_find(w->v, w->work.data, (size_t)(before + *size));
        if (id >= 0) return id;
    }
    return -1;
}

static int unknown(const struct wordpiece *w, int64_t n, struct hits *out, struct err *e)
{
    if (w->unk < 0)
        return err_set(e, ERR_INVALID, "tokenizer.json: model.unk_token is not in the vocabulary");
    return text_hits_add(out, w->unk, 0, n) < 0 ? buffer_full(e) : 0;
}

int wordpiece_encode(struct wordpiece *w, const char *s, int64_t n, struct hits *out, struct err *e)
{
    const int64_t had = out->n;
    int64_t runes = 0, size = 0;
    for (int64_t i = 0; i < n && runes <= w->max_runes; runes++)
        i += rune_size((unsigned char)s[i]);
    if (runes > w->max_runes) return unknown(w, n, out, e);
    for (int64_t i = 0; i < n; i += size) {
        const int32_t id = longest(w, s + i, n - i, i > 0, &size);
        if (id == -1) {
            out->n = had;
            return unknown(w, n, out, e);
        }
        if (id < 0 || text_hits_add(out, id, i, i + size) < 0) return buffer_full(e);
    }
    return 0;
}
