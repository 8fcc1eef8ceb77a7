/* serve_tokens.c: reads the two small bodies, and writes the answers with growing text. */
#include "worker/infer/serve_tokens.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/job.h"
#include "api/core/jread.h"
#include "api/core/jwrite.h"
#include "api/core/utf8.h"
#include "worker/infer/request_text.h"
#include "worker/text/buffer.h"

struct body {
    const struct infer *in;
    struct request *r;
    struct jread j;
    bool ids;     /* detokenize */
    bool special; /* tokenize: add the ids around a text */
    bool seen;    /* prompt or tokens */
    int64_t size; /* bytes of the text in r->text */
};

static int take_ids(struct body *b, struct err *e)
{
    struct request *r = b->r;
    enum jtok t = jread_next(&b->j);
    int64_t id;
    if (t != J_ARRAY)
        return err_field(e, ERR_INVALID, "tokens", "tokens must be a list of token ids");
    while ((t = jread_next(&b->j)) == J_NUMBER && !jread_int(&b->j, &id)) {
        if (id < 0 || id >= b->in->spec->model.shape.vocab)
            return err_field(e, ERR_INVALID, "tokens",
                             "tokens holds the id %lld: the vocabulary has %lld", (long long)id,
                             (long long)b->in->spec->model.shape.vocab);
        r->tokens[r->n_tokens++] = (int32_t)id;
    }
    if (t == J_ARRAY_END) return 0;
    return err_field(e, ERR_INVALID, "tokens", "tokens must be a list of token ids");
}

static int take_text(struct body *b, struct err *e)
{
    if (jread_next(&b->j) != J_STRING)
        return err_field(e, ERR_INVALID, "prompt", "prompt must be a string");
    b->size = (int64_t)jread_unescape(&b->j, b->r->text);
    return 0;
}

static int take_member(struct body *b, struct err *e)
{
    char given[64];
    const char *const name = b->ids ? "tokens" : "prompt";
    if (jread_is(&b->j, name)) {
        if (b->seen) return err_field(e, ERR_INVALID, name, "%s occurs twice", name);
        b->seen = true;
        return b->ids ? take_ids(b, e) : take_text(b, e);
    }
    if (jread_is(&b->j, "model")) return jread_skip(&b->j);
    if (!b->ids && jread_is(&b->j, "add_special_tokens")) {
        const enum jtok t = jread_next(&b->j);
        b->special = t == J_TRUE;
        if (t == J_TRUE || t == J_FALSE) return 0;
        return err_field(e, ERR_INVALID, "add_special_tokens",
                         "add_special_tokens must be true or false");
    }
    if (jread_copy(&b->j, given, sizeof given)) strcpy(given, "(a long name)");
    utf8_show(given);
    return err_field(e, ERR_INVALID, given,
                     "unknown member \"%s\": the body takes %s%s and model, leave the rest out",
                     given, name, b->ids ? "" : ", add_special_tokens");
}

static int take_body(struct body *b, struct err *e)
{
    const char *const name = b->ids ? "tokens" : "prompt";
    int rc = 0;
    enum jtok t = jread_next(&b->j);
    if (t != J_OBJECT) rc = err_field(e, ERR_INVALID, "body", "the body must be an object");
    while (!rc && (t = jread_next(&b->j)) == J_KEY) rc = take_member(b, e);
    if (!rc) jread_next(&b->j);
    if (b->j.err.code != ERR_NONE) {
        *e = (struct err){0};
        return err_field(e, ERR_INVALID, "body", "the body cannot be read: %s", b->j.err.text);
    }
    if (rc || b->seen) return rc;
    return err_field(e, ERR_INVALID, name, "%s is missing", name);
}

/* Writes a document whose list of ids or whose text may be long: q->out grows to its size. */
static int put_document(struct serve_request *q, const char *text, int64_t size,
                        void (*put)(struct jwrite *, const char *, int64_t, const void *),
                        const void *arg, struct err *e)
{
    struct jwrite w;
    for (int64_t room = 256;; room = (int64_t)w.len + 2) {
        if (buffer_grow((void **)&q->out.data, &q->out.room, 0, room, 1) < 0)
            return err_set(e, ERR_IO, "out of memory for an answer");
        jwrite_init(&w, q->out.data, (size_t)room - 1);
        put(&w, text, size, arg);
        const int64_t n = jwrite_finish(&w);
        if (n < 0) continue;
        q->out.n = n;
        break;
    }
    q->status = 200;
    q->state = SERVE_ENDED;
    return 0;
}

static void put_ids(struct jwrite *w, const char *text, int64_t size, const void *arg)
{
    const struct body *b = arg;
    (void)text, (void)size;
    jwrite_object(w, NULL);
    jwrite_int(w, "count", b->r->n_tokens);
    jwrite_int(w, "max_model_len", b->in->spec->data.seq_len);
    jwrite_array(w, "tokens");
    for (int64_t i = 0; i < b->r->n_tokens; i++) jwrite_int(w, NULL, b->r->tokens[i]);
    jwrite_end(w);
    jwrite_end(w);
}

static void put_text(struct jwrite *w, const char *text, int64_t size, const void *arg)
{
    (void)arg;
    jwrite_object(w, NULL);
    jwrite_strn(w, "prompt", text, (size_t)size);
    jwrite_end(w);
}

static int put_tokens(struct body *b, struct serve_request *q, struct err *e)
{
    struct request *r = b->r;
    if (request_text_take(r, b->in->spec, r->text, b->size, b->special, e)) return -1;
    return put_document(q, NULL, 0, put_ids, b, e);
}

/* Writes the text of ids. Tokens that are bytes become valid UTF-8. */
static int put_prompt(struct body *b, struct serve_request *q, struct text *scratch, struct err *e)
{
    const struct request *r = b->r;
    int64_t n = 0;
    if (!request_text_reads(r, b->in->spec))
        return request_text_refuse(r, b->in->spec, "tokens", e);
    scratch->n = 0;
    if (r->tokenizer) {
        if (tokenizer_decode(r->tokenizer, r->tokens, r->n_tokens, false, scratch, e)) return -1;
        return put_document(q, scratch->data ? scratch->data : "", scratch->n, put_text, b, e);
    }
    if (buffer_grow((void **)&scratch->data, &scratch->room, 0, 4 * r->n_tokens + 2, 1) < 0)
        return err_set(e, ERR_IO, "out of memory for a text");
    unsigned char *const bytes = (unsigned char *)scratch->data;
    n = (int64_t)sample_bytes(r->tokens, r->n_tokens, bytes);
    const size_t size = sample_utf8(bytes, (size_t)n, scratch->data + n);
    return put_document(q, scratch->data + n, (int64_t)size, put_text, b, e);
}

int serve_tokens_answer(const struct infer *in, struct serve_request *q, struct text *scratch,
                        struct err *e)
{
    struct request r;
    struct body b = {.in = in, .r = &r, .special = true};
    b.ids = q->ask.endpoint == SERVE_DETOKENIZE;
    if (request_init(&r, q->body.n, e)) return -1;
    r.tokenizer = in->tokenizer;
    r.no_tokenizer = in->no_tokenizer;
    jread_init(&b.j, q->body.data ? q->body.data : "", (size_t)q->body.n);
    int rc = take_body(&b, e);
    if (!rc) rc = b.ids ? put_prompt(&b, q, scratch, e) : put_tokens(&b, q, e);
    request_fini(&r);
    return rc;
}
