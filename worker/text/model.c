/* model.c: opens the vocabulary. Then opens BPE, WordPiece or Unigram, according to the type
 * in the file, and passes calls to that model. */
#include "worker/text/model.h"

#include <stdlib.h>
#include "worker/text/bpe.h"
#include "worker/text/unigram.h"
#include "worker/text/wordpiece.h"

struct token_model { /* one of the three models */
    struct bpe *bpe;
    struct wordpiece *wordpiece;
    struct unigram *unigram;
};

/* Reads {"token": id, ...}. */
static int read_vocabulary(struct json j, struct vocab *v, struct err *e)
{
    struct text key = {0};
    struct jread r;
    int rc = -1;
    if (j.p) jread_init(&r, j.p, (size_t)j.n);
    if (!j.p || jread_next(&r) != J_OBJECT)
        return err_set(e, ERR_INVALID, "tokenizer.json: model.vocab: want an object of ids");
    for (;;) {
        int64_t id;
        const enum jtok t = jread_next(&r);
        if (t == J_OBJECT_END) rc = 0;
        if (t == J_ERROR) err_set(e, ERR_INVALID, "tokenizer.json: %s", r.err.text);
        if (t != J_KEY) break;
        key.n = 0;
        if (text_add(&key, r.text, (int64_t)r.len) < 0) {
            buffer_full(e);
            break;
        }
        const size_t n = jread_unescape(&r, key.data);
        if (jread_next(&r) != J_NUMBER || jread_int(&r, &id) < 0) {
            err_set(e, ERR_INVALID, "tokenizer.json: model.vocab \"%.*s\": want an id",
                    n > 60 ? 60 : (int)n, key.data);
            break;
        }
        if (vocab_add(v, key.data, n, id, e) < 0) break;
    }
    text_fini(&key);
    return rc;
}

static int open_bpe(struct token_model *m, struct json j, struct vocab *v, bool byte_level,
                    struct err *e)
{
    m->bpe = bpe_open(j, v, byte_level, e);
    return m->bpe ? 0 : -1;
}

static int open_wordpiece(struct token_model *m, struct json j, struct vocab *v, struct err *e)
{
    m->wordpiece = wordpiece_open(j, v, e);
    return m->wordpiece ? 0 : -1;
}

static int open_unigram(struct token_model *m, struct json j, struct vocab *v, struct err *e)
{
    m->unigram = unigram_open(j, v, e);
    return m->unigram ? 0 : -1;
}

static int open_type(struct token_model *m, struct json j, struct vocab *v, bool byte_level,
                     struct err *e)
{
    static const char *const names[] = {"type", "merges", "vocab"};
    struct json f[3];
    if (json_members(j, "model", 3, names, f, e) < 0) return -1;
    /* A file that has merges but no type is an old BPE file. */
    const bool bpe = json_is(f[0], "BPE") || (!f[0].p && f[1].p);
    const bool wordpiece = json_is(f[0], "WordPiece");
    if (byte_level && !bpe)
        return err_set(e, ERR_UNSUPPORTED,
                       "tokenizer.json: ByteLevel with a model that is not BPE");
    if (json_is(f[0], "Unigram")) return open_unigram(m, j, v, e);
    if ((bpe || wordpiece) && read_vocabulary(f[2], v, e) < 0) return -1;
    if (bpe) return open_bpe(m, j, v, byte_level, e);
    if (wordpiece) return open_wordpiece(m, j, v, e);
    return err_set(e, ERR_UNSUPPORTED, "tokenizer.json: model %.*s is not known",
                   f[0].n > 60 ? 60 : (int)f[0].n, f[0].p ? f[0].p : "without a type");
}

struct token_model *model_open(struct json j, struct vocab *v, bool byte_level, struct err *e)
{
    struct token_model *m = calloc(1, sizeof *m);
    if (!m) return buffer_full(e), NULL;
    if (open_type(m, j, v, byte_level, e) == 0) return m;
    model_destroy(m);
    return NULL;
}

void model_destroy(struct token_model *m)
{
    if (!m) return;
    bpe_destroy(m->bpe);
    wordpiece_destroy(m->wordpiece);
    unigram_destroy(m->unigram);
    free(m);
}

int model_encode(struct token_model *m, const char *s, int64_t n, struct hits *out, struct err *e)
{
    if (m->wordpiece) return wordpiece_encode(m->wordpiece, s, n, out, e);
    if (m->unigram) return unigram_encode(m->unigram, s, n, out, e);
    return bpe_encode(m->bpe, s, n, out, e);
}

bool model_cut(struct token_model *m, uint32_t a, uint32_t b)
{
    return m->bpe && bpe_cut(m->bpe, a, b);
}
