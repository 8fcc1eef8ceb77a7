/* serve_embed.c: reads inputs by a table of members, and writes vectors as numbers that read back
 * as the same fp32, or as base64 of their bytes. */
#include "worker/infer/serve_embed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/job.h"
#include "api/core/jread.h"
#include "api/core/jwrite.h"
#include "api/core/utf8.h"
#include "worker/infer/request_text.h"
#include "worker/infer/serve_list.h"
#include "worker/model/finite.h"
#include "worker/text/buffer.h"

int serve_embed_open(struct serve_embed *s, const struct infer *in, struct err *e)
{
    *s = (struct serve_embed){0};
    return pooler_open(&s->pooler, in, e);
}

void serve_embed_close(struct serve_embed *s)
{
    pooler_close(&s->pooler);
    text_fini(&s->text);
}

/* ---- requests -------------------------------------------------------------------------------- */

struct input {
    const struct infer *in;
    struct serve_request *q;
    struct request *r;
    struct jread j;
    unsigned seen; /* one bit for each member */
};

static int refuse_input(struct err *e)
{
    return err_field(e, ERR_INVALID, "input",
                     "input must be a string, a list of token ids, a list of strings, or a list of "
                     "lists of token ids");
}

/* Takes a text, after the prompt of the model. */
static int take_text(struct input *b, struct err *e)
{
    struct request *r = b->r;
    const int64_t before = b->in->embed_prompt ? (int64_t)strlen(b->in->embed_prompt) : 0;
    if (before) memcpy(r->text, b->in->embed_prompt, (size_t)before);
    const int64_t n = (int64_t)jread_unescape(&b->j, r->text + before);
    if (!n) return err_field(e, ERR_INVALID, "input", "input is empty: give a text");
    if (!request_text_take(r, b->in->spec, r->text, before + n, true, e)) return 0;
    return strcmp(e->field, "prompt") ? -1 : err_about(e, "input");
}

/* Reads ids up to the end of their list. t is the first token of the list. */
static int take_ids(struct input *b, enum jtok t, struct err *e)
{
    const int64_t V = b->in->spec->model.shape.vocab;
    int64_t id;
    for (; t != J_ARRAY_END; t = jread_next(&b->j)) {
        if (t != J_NUMBER || jread_int(&b->j, &id)) return refuse_input(e);
        if (id < 0 || id >= V)
            return err_field(e, ERR_INVALID, "input",
                             "input holds the token %lld: the vocabulary has %lld", (long long)id,
                             (long long)V);
        assert(b->r->n_tokens < b->r->room); /* each id takes at least two bytes of the body */
        b->r->tokens[b->r->n_tokens++] = (int32_t)id;
    }
    return 0;
}

static int take_input(struct input *b, enum jtok t, struct err *e)
{
    if (t == J_STRING) return take_text(b, e);
    if (t != J_ARRAY) return refuse_input(e);
    t = jread_next(&b->j);
    if (t != J_STRING && t != J_ARRAY) return take_ids(b, t, e);
    if (t == J_STRING ? take_text(b, e) : take_ids(b, jread_next(&b->j), e)) return -1;
    return jread_next(&b->j) == J_ARRAY_END ? 0 : refuse_input(e);
}

static int take_format(struct input *b, enum jtok t, struct err *e)
{
    b->q->base64 = t == J_STRING && jread_is(&b->j, "base64");
    if (b->q->base64 || (t == J_STRING && jread_is(&b->j, "float"))) return 0;
    return err_field(e, ERR_INVALID, "encoding_format",
                     "encoding_format must be \"float\" or \"base64\"");
}

static int take_dimensions(struct input *b, enum jtok t, struct err *e)
{
    const int64_t width = b->in->spec->model.shape.width;
    int64_t n;
    if (t == J_NUMBER && !jread_int(&b->j, &n) && n == width) return 0;
    return err_field(e, ERR_UNSUPPORTED, "dimensions",
                     "dimensions must be %lld, the width of the model: leave it out",
                     (long long)width);
}

static int take_name(struct input *b, enum jtok t, struct err *e)
{
    (void)b;
    if (t == J_STRING) return 0;
    return err_field(e, ERR_INVALID, "model", "model and user must be strings");
}

static const struct input_member {
    const char *name;
    int (*take)(struct input *, enum jtok, struct err *);
} members[] = {{"input", take_input},
               {"encoding_format", take_format},
               {"dimensions", take_dimensions},
               {"model", take_name},
               {"user", take_name}};
#define N_MEMBERS (sizeof members / sizeof *members)

static int take_member(struct input *b, struct err *e)
{
    char name[64];
    size_t i = 0;
    while (i < N_MEMBERS && !jread_is(&b->j, members[i].name)) i++;
    if (i == N_MEMBERS) {
        if (jread_copy(&b->j, name, sizeof name)) strcpy(name, "(a long name)");
        utf8_show(name);
        return err_field(e, ERR_INVALID, name, "unknown member \"%s\": leave it out", name);
    }
    if (b->seen >> i & 1)
        return err_field(e, ERR_INVALID, members[i].name, "%s occurs twice", members[i].name);
    b->seen |= 1u << i;
    const enum jtok t = jread_next(&b->j);
    return t == J_NULL || t == J_ERROR ? 0 : members[i].take(b, t, e);
}

static int refuse_length(const struct job_spec *s, int64_t n, struct err *e)
{
    const int64_t most = plan_positions(s);
    char how[96];
    if (n > most)
        snprintf(how, sizeof how, "; the model itself ends at %lld positions", (long long)most);
    else
        snprintf(how, sizeof how, ", or raise data.seq_len to %lld", (long long)n);
    return err_field(e, ERR_TOO_LARGE, "input",
                     "input has %lld tokens: the job was planned for data.seq_len %lld: shorten "
                     "the text%s",
                     (long long)n, (long long)s->data.seq_len, how);
}

static int take_body(struct input *b, struct err *e)
{
    const int64_t S = b->in->spec->data.seq_len;
    int rc = 0;
    if (jread_next(&b->j) != J_OBJECT)
        rc = err_field(e, ERR_INVALID, "body", "body must be an object");
    while (!rc && jread_next(&b->j) == J_KEY) rc = take_member(b, e);
    if (!rc) jread_next(&b->j); /* the end of the text */
    if (b->j.err.code != ERR_NONE) {
        *e = (struct err){0};
        return err_field(e, ERR_INVALID, "body", "the body cannot be read: %s", b->j.err.text);
    }
    if (rc) return rc;
    if (!b->r->n_tokens)
        return err_field(e, ERR_INVALID, "input", "input is missing or empty: give one token");
    b->r->too_long = b->r->n_tokens > S;
    if (!b->r->too_long) return 0;
    return refuse_length(b->in->spec, b->r->n_tokens, e);
}

int serve_embed_read(const struct infer *in, struct serve_request *q, struct err *e)
{
    struct input b = {.in = in, .q = q, .r = &q->request};
    struct err why = {0};
    const size_t before = in->embed_prompt ? strlen(in->embed_prompt) : 0;
    if (request_init(b.r, q->body.n + (int64_t)before, e)) return -1;
    b.r->tokenizer = in->tokenizer;
    b.r->no_tokenizer = in->no_tokenizer;
    b.r->n = 1;
    jread_init(&b.j, q->body.data ? q->body.data : "", (size_t)q->body.n);
    if (take_body(&b, &why)) b.r->refused = why;
    request_trim(b.r);
    return 0;
}

/* ---- passes ---------------------------------------------------------------------------------- */

int serve_embed_run(struct serve_embed *s, const int32_t *tokens, int64_t n,
                    struct comm_count want[PURPOSE_N], struct err *e)
{
    const struct infer *in = s->pooler.in;
    struct model *m = in->model;
    if (infer_check_length(in, n, e) || infer_forward(in, tokens, n, e)) return -1;
    if (m->comm) {
        if (infer_expect(in, 1, want, e)) return -1;
        pooler_expect(m, 1, &want[PURPOSE_CONTROL]);
    }
    const int rc = pooler_run(&s->pooler, model_states(m), 0, n, e);
    return rc > 0 ? finite_blame_forward(m, e, "a hidden state") : rc;
}

/* ---- answers --------------------------------------------------------------------------------- */

static int put_numbers(struct text *t, const double *x, int64_t n)
{
    char number[32];
    int rc = text_add(t, "[", 1);
    for (int64_t i = 0; i < n && !rc; i++) {
        /* nine digits tell each fp32 from its neighbours */
        const int size = snprintf(number, sizeof number, "%.9g%s", (double)(float)x[i],
                                  i + 1 < n ? "," : "]");
        rc = text_add(t, number, size);
    }
    return rc;
}

/* Writes the bytes of the fp32 numbers, little-endian. */
static int put_base64(struct text *t, const double *x, int64_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t bits = 0;
    int held = 0, rc = text_add(t, "\"", 1);
    for (int64_t i = 0; i < 4 * n && !rc; i++) {
        const float v = (float)x[i / 4];
        uint32_t word;
        memcpy(&word, &v, sizeof word);
        bits = bits << 8 | (word >> 8 * (i % 4) & 255);
        if (++held < 3 && i + 1 < 4 * n) continue;
        const uint32_t all = bits << 8 * (3 - held);
        char out[4] = {digits[all >> 18 & 63], digits[all >> 12 & 63], digits[all >> 6 & 63],
                       digits[all & 63]};
        for (int k = held + 1; k < 4; k++) out[k] = '=';
        rc = text_add(t, out, 4);
        bits = 0;
        held = 0;
    }
    return rc ? rc : text_add(t, "\"", 1);
}

static int put_vector(struct serve_embed *s, const struct serve_request *q, struct err *e)
{
    char head[80];
    const double *x = s->pooler.vector;
    const int64_t C = s->pooler.in->model->shape.width;
    const int n = snprintf(head, sizeof head,
                           "{\"object\":\"embedding\",\"index\":%d,\"embedding\":", q->part);
    s->text.n = 0;
    if (text_add(&s->text, head, n) < 0 ||
        (q->base64 ? put_base64(&s->text, x, C) : put_numbers(&s->text, x, C)) < 0 ||
        text_add(&s->text, "}", 1) < 0)
        return buffer_full(e);
    return 0;
}

/* Completes the answer. list [size] is the JSON of the vectors, without its brackets. */
static void put_answer(struct serve_request *q, const char *list, int64_t size, int64_t n_tokens)
{
    static const char head[] = "{\"object\":\"list\",\"data\":[";
    char tail[6 * RANK_MODEL_SIZE + 200];
    struct jwrite w;
    jwrite_init(&w, tail + 1, sizeof tail - 1);
    jwrite_object(&w, NULL);
    jwrite_str(&w, "model", q->ask.model);
    jwrite_object(&w, "usage");
    jwrite_int(&w, "prompt_tokens", n_tokens);
    jwrite_int(&w, "total_tokens", n_tokens);
    jwrite_end(&w);
    jwrite_end(&w);
    const int64_t n = jwrite_finish(&w);
    assert(n > 0);
    memcpy(tail, "],", 2); /* in the place of the brace */
    q->status = 200;
    q->n_tokens = n_tokens;
    if (serve_asks_put(q, head, sizeof head - 1) || serve_asks_put(q, list, size) ||
        serve_asks_put(q, tail, n + 1))
        return;
    q->state = SERVE_ENDED;
}

int serve_embed_answer(struct serve_embed *s, struct serve_request *q, const struct request *r,
                       struct err *e)
{
    if (put_vector(s, q, e)) return -1;
    if (!q->whole) {
        put_answer(q, s->text.data, s->text.n, r->n_tokens);
        return 0;
    }
    struct serve_request *const whole = q->whole;
    const int got = serve_list_take(q, r, &(struct infer_answer){0}, s->text.data, s->text.n, e);
    if (got <= 0) return got;
    char *all = serve_list_join(whole->list);
    if (!all) return buffer_full(e);
    put_answer(whole, all + 1, (int64_t)strlen(all) - 2, whole->list->n_prompt_tokens);
    free(all);
    return 0;
}
