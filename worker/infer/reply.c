/* reply.c: writes an answer member by member (text, log-probabilities with alternatives,
 * usage). An answer may have one of three forms, which are a continuation, a completion and a
 * chat. */
#include "worker/infer/reply.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/jwrite.h"
#include "worker/hf/tokenizer.h"
#include "worker/infer/reply_calls.h"
#include "worker/infer/reply_name.h"
#include "worker/text/buffer.h"

void reply_fini(struct reply *p)
{
    free(p->line);
    free(p->text);
    text_fini(&p->name);
    text_fini(&p->own_name);
    text_fini(&p->others);
    *p = (struct reply){0};
}

/* ---- text ------------------------------------------------------------------------------------ */

static int reserve_text(struct reply *p, int64_t n_tokens, struct err *e)
{
    int64_t room = 4 * n_tokens + 2; /* room for the bytes, followed by room for their UTF-8 */
    if (room <= p->text_room) return 0;
    char *text = realloc(p->text, (size_t)room);
    if (!text)
        return err_set(e, ERR_IO, "out of memory for a text of %lld tokens", (long long)n_tokens);
    p->text = text;
    p->text_room = room;
    return 0;
}

/* Returns the text before the stop string as UTF-8. If echo is set, the text of the prompt comes
 * before it. */
static const char *text_of(struct reply *p, const struct request *r, const struct infer_choice *c,
                           size_t *size)
{
    unsigned char *bytes = (unsigned char *)p->text;
    *size = 0;
    if (c->text) {
        const int64_t from = r->echo ? 0 : c->begin;
        *size = (size_t)(c->size > from ? c->size - from : 0);
        return c->text + from;
    }
    if (p->ids) return "";
    size_t n = r->echo ? sample_bytes(r->tokens, r->n_tokens, bytes) : 0;
    n += sample_bytes(c->tokens.id, c->n_text, bytes + n);
    *size = sample_utf8(bytes, n, p->text + n);
    return p->text + n;
}

/* Writes ids of the prompt and of a continuation. Used if the ids of the model are not bytes. */
static void write_ids(struct jwrite *w, const int32_t *prompt, int64_t n_prompt, const int32_t *id,
                      int64_t n)
{
    jwrite_array(w, "token_ids");
    for (int64_t i = 0; i < n_prompt; i++) jwrite_int(w, NULL, prompt[i]);
    for (int64_t i = 0; i < n; i++) jwrite_int(w, NULL, id[i]);
    jwrite_end(w);
}

/* ---- log-probabilities ----------------------------------------------------------------------- */

static void write_logprob(struct jwrite *w, const char *key, double v)
{
    if (isfinite(v))
        jwrite_double(w, key, v);
    else
        jwrite_double(w, key, -9999); /* -9999 replaces the logarithm of a probability that has
                                       * underflowed to 0 */
}

/* Writes the most likely tokens, and then the token itself if it is not one of them. */
static void write_alternatives(struct reply *p, struct jwrite *w, const struct infer_tokens *t,
                               int64_t i)
{
    const struct sample_top *top = t->top + i * t->n_top;
    const char *own = reply_name_own(p, t->id[i]);
    bool seen = false;
    jwrite_object(w, NULL);
    for (int k = 0; k < t->n_top; k++) {
        seen = seen || top[k].id == t->id[i];
        write_logprob(w, reply_name_other(p, top[k].id, t->id[i]), top[k].logprob);
    }
    if (!seen) write_logprob(w, own, t->logprob[i]);
    jwrite_end(w);
}

struct reply_part { /* tokens [0, n) of t; the first `unscored` tokens have no log-probability */
    const struct infer_tokens *t;
    int64_t n, unscored;
};

static void write_parts(struct reply *p, struct jwrite *w, const struct reply_part *part,
                        int n_parts)
{
    jwrite_array(w, "tokens");
    for (int k = 0; k < n_parts; k++)
        for (int64_t i = 0; i < part[k].n; i++)
            jwrite_str(w, NULL, reply_name(p, part[k].t->id[i]));
    jwrite_end(w);
    jwrite_array(w, "token_logprobs");
    for (int k = 0; k < n_parts; k++)
        for (int64_t i = 0; i < part[k].n; i++)
            if (i < part[k].unscored)
                jwrite_null(w, NULL);
            else
                write_logprob(w, NULL, part[k].t->logprob[i]);
    jwrite_end(w);
    jwrite_array(w, "top_logprobs");
    for (int k = 0; k < n_parts; k++)
        for (int64_t i = 0; i < part[k].n; i++)
            if (i < part[k].unscored)
                jwrite_null(w, NULL);
            else
                write_alternatives(p, w, part[k].t, i);
    jwrite_end(w);
}

/* Writes for each token the number of text bytes before it. Each token must have one byte or no
 * byte. */
static void write_offsets(const struct reply *p, struct jwrite *w, const struct reply_part *part,
                          int n_parts, int64_t offset)
{
    for (int k = 0; k < n_parts; k++)
        for (int64_t i = 0; i < part[k].n; i++) {
            jwrite_int(w, NULL, offset);
            offset += !p->ids && part[k].t->id[i] != TOKEN_EOD;
        }
}

/* Writes for each of the tokens [first, last) of a tokenizer (spell.h) the number of bytes between
 * `from` and the token's text. */
static void write_spelt_offsets(struct jwrite *w, const int64_t *token_end, int64_t first,
                                int64_t last, int64_t from)
{
    for (int64_t i = first; i < last; i++) {
        const int64_t at = i ? token_end[i - 1] : 0;
        jwrite_int(w, NULL, at > from ? at - from : 0);
    }
}

/* Writes the members for one token of a chat, or for one alternative. The caller has opened the
 * object. */
static void write_chat_token(struct reply *p, struct jwrite *w, const char *name, int32_t id,
                             double logprob)
{
    jwrite_str(w, "token", name);
    write_logprob(w, "logprob", logprob);
    p->name.n = 0;
    p->full |= p->tokenizer && tokenizer_piece(p->tokenizer, id, &p->name, NULL) < 0;
    if (!p->name.n) {
        jwrite_null(w, "bytes");
        return;
    }
    jwrite_array(w, "bytes");
    for (int64_t i = 0; i < p->name.n; i++) jwrite_int(w, NULL, (unsigned char)p->name.data[i]);
    jwrite_end(w);
}

static void write_chat_logprobs(struct reply *p, struct jwrite *w, const struct infer_choice *c)
{
    const struct infer_tokens *t = &c->tokens;
    jwrite_object(w, "logprobs");
    jwrite_array(w, "content");
    for (int64_t i = 0; i < c->n_text; i++) {
        jwrite_object(w, NULL);
        write_chat_token(p, w, reply_name_own(p, t->id[i]), t->id[i], t->logprob[i]);
        jwrite_array(w, "top_logprobs");
        for (int k = 0; k < t->n_top; k++) {
            const struct sample_top *top = &t->top[i * t->n_top + k];
            jwrite_object(w, NULL);
            write_chat_token(p, w, reply_name_other(p, top->id, t->id[i]), top->id, top->logprob);
            jwrite_end(w);
        }
        jwrite_end(w);
        jwrite_end(w);
    }
    jwrite_end(w);
    jwrite_end(w);
}

static void write_logprobs(struct reply *p, struct jwrite *w, const struct request *r,
                           const struct infer_answer *a, const struct infer_choice *c)
{
    const struct reply_part parts[] = {{&a->prompt, a->prompt.n, 1}, {&c->tokens, c->n_text, 0}};
    const struct reply_part *const first = r->echo ? parts : parts + 1;
    const int n = r->echo ? 2 : 1;
    jwrite_object(w, "logprobs");
    write_parts(p, w, first, n);
    jwrite_array(w, "text_offset");
    if (c->text)
        write_spelt_offsets(w, c->token_end, r->echo ? 0 : r->n_tokens, r->n_tokens + c->n_text,
                            r->echo ? 0 : c->begin);
    else
        write_offsets(p, w, first, n, 0);
    jwrite_end(w);
    jwrite_end(w);
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* Arguments of make_line. make_line calls `put` to write a line. It repeats the call with a
 * larger buffer until the line fits. */
struct reply_job {
    const struct request *r;
    const struct infer_answer *a;
    const char *prompt, *model;
    int64_t size, number;
    const struct reply_chunk *chunk;
    const char *choices; /* the JSON of all continuations; NULL unless it was made before */
};

static int make_line(struct reply *p, const struct reply_job *j,
                     void (*put)(struct reply *, struct jwrite *, const struct reply_job *),
                     struct err *e)
{
    struct jwrite w;
    for (;;) {
        jwrite_init(&w, p->line, (size_t)p->room);
        p->full = false;
        put(p, &w, j);
        if (p->full) return err_set(e, ERR_IO, "out of memory for the names of tokens");
        int64_t n = p->room > 1 ? jwrite_finish(&w) : -1;
        if (n >= 0 && n + 1 < p->room) {
            p->line[n] = '\n';
            p->size = n + 1;
            return 0;
        }
        int64_t room = (int64_t)w.len + (int64_t)w.len / 4 + 256;
        char *line = realloc(p->line, (size_t)room);
        if (!line)
            return err_set(e, ERR_IO, "out of memory for a line of %lld bytes", (long long)room);
        p->line = line;
        p->room = room;
    }
}

static void put_prompt(struct reply *p, struct jwrite *w, const struct reply_job *j)
{
    const struct infer_choice *c = &j->a->choice[j->number];
    size_t size = sample_utf8((const unsigned char *)j->prompt, (size_t)j->size, p->text);
    jwrite_object(w, NULL);
    jwrite_strn(w, "prompt", p->text, size);
    jwrite_int(w, "index", j->number);
    const char *text = text_of(p, j->r, c, &size);
    jwrite_strn(w, "text", text, size);
    jwrite_int(w, "n_prompt_tokens", j->r->n_tokens);
    jwrite_int(w, "n_tokens", c->tokens.n);
    jwrite_str(w, "finish_reason", infer_finish_name(c->finish));
    if (c->tokens.logprob) write_logprobs(p, w, j->r, j->a, c);
    jwrite_end(w);
}

int reply_prompt(struct reply *p, const struct request *r, const char *prompt, int64_t size,
                 const struct infer_answer *a, int64_t c, struct err *e)
{
    struct reply_job j = {.r = r, .a = a, .prompt = prompt, .size = size, .number = c};
    if (reserve_text(p, size + a->choice[c].tokens.n, e)) return -1;
    return make_line(p, &j, put_prompt, e);
}

/* Writes the message and the reason why it ended. */
static void write_message(struct reply *p, struct jwrite *w, const struct reply_job *j, int64_t i,
                          const char *text, size_t size)
{
    const struct reply_call_id id = {p->created, j->number, i};
    jwrite_object(w, "message");
    jwrite_str(w, "role", "assistant");
    if (j->r->calls)
        p->full |= reply_calls_write(w, j->r, &id, text, (int64_t)size, &p->others) < 0;
    else
        jwrite_strn(w, "content", text, size);
    jwrite_end(w);
}

static void put_choices(struct reply *p, struct jwrite *w, const struct reply_job *j)
{
    jwrite_array(w, "choices");
    for (int64_t i = 0; i < j->a->n; i++) {
        const struct infer_choice *c = &j->a->choice[i];
        size_t size;
        const char *text = text_of(p, j->r, c, &size);
        jwrite_object(w, NULL);
        jwrite_int(w, "index", p->first + i);
        if (j->r->is_chat)
            write_message(p, w, j, i, text, size);
        else
            jwrite_strn(w, "text", text, size);
        if (p->ids)
            write_ids(w, j->r->tokens, j->r->echo ? j->r->n_tokens : 0, c->tokens.id, c->n_text);
        jwrite_str(w, "finish_reason",
                   reply_calls_finish(j->r, infer_finish_name(c->finish), text, (int64_t)size));
        if (!c->tokens.logprob)
            jwrite_null(w, "logprobs");
        else if (j->r->is_chat)
            write_chat_logprobs(p, w, c);
        else
            write_logprobs(p, w, j->r, j->a, c);
        jwrite_end(w);
    }
    jwrite_end(w);
}

static const char *name_answer(char out[48], const struct reply_job *j)
{
    snprintf(out, 48, "%scmpl-%lld", j->r->is_chat ? "chat" : "", (long long)j->number);
    return out;
}

static void write_usage(struct jwrite *w, const struct request *r, const struct infer_answer *a)
{
    jwrite_object(w, "usage");
    jwrite_int(w, "prompt_tokens", r->n_tokens);
    jwrite_int(w, "completion_tokens", a->n_generated);
    jwrite_int(w, "total_tokens", r->n_tokens + a->n_generated);
    if (r->serves) {
        jwrite_object(w, "prompt_tokens_details");
        jwrite_int(w, "cached_tokens", a->n_kept);
        jwrite_end(w);
    }
    jwrite_end(w);
}

static void put_answer(struct reply *p, struct jwrite *w, const struct reply_job *j)
{
    const bool chat = j->r->is_chat;
    char id[48];
    jwrite_str(w, "id", name_answer(id, j));
    jwrite_str(w, "object", chat ? "chat.completion" : "text_completion");
    if (chat || j->r->serves) jwrite_int(w, "created", p->created);
    jwrite_str(w, "model", j->model);
    if (j->choices)
        jwrite_raw(w, "choices", j->choices);
    else
        put_choices(p, w, j);
    write_usage(w, j->r, j->a);
}

static void put_refusal(struct jwrite *w, const struct err *e, bool whole)
{
    jwrite_object(w, "error");
    jwrite_str(w, "code", err_name(e->code));
    jwrite_str(w, "message", e->text);
    if (*e->field)
        jwrite_str(w, "param", e->field);
    else
        jwrite_null(w, "param");
    if (whole) jwrite_str(w, "type", "invalid_request_error");
    jwrite_end(w);
}

static void put_batch(struct reply *p, struct jwrite *w, const struct reply_job *j)
{
    char id[48];
    snprintf(id, sizeof id, "req-%lld", (long long)j->number);
    jwrite_object(w, NULL);
    jwrite_str(w, "id", id);
    jwrite_str(w, "custom_id", j->r->id);
    jwrite_object(w, "response");
    jwrite_int(w, "status_code", j->a ? 200 : 400);
    jwrite_str(w, "request_id", id);
    jwrite_object(w, "body");
    if (j->a)
        put_answer(p, w, j);
    else
        put_refusal(w, &j->r->refused, true);
    jwrite_end(w);
    jwrite_end(w);
    if (j->a)
        jwrite_null(w, "error");
    else
        put_refusal(w, &j->r->refused, false);
    jwrite_end(w);
}

/* Returns the number of tokens of the longest continuation. a may be NULL. */
static int64_t longest_choice(const struct infer_answer *a)
{
    int64_t most = 0;
    for (int64_t i = 0; a && i < a->n; i++)
        if (a->choice[i].tokens.n > most) most = a->choice[i].tokens.n;
    return most;
}

int reply_batch(struct reply *p, const struct request *r, int64_t number, const char *model,
                const struct infer_answer *a, struct err *e)
{
    struct reply_job j = {.r = r, .a = a, .model = model, .number = number};
    if (reserve_text(p, r->n_tokens + longest_choice(a), e)) return -1;
    return make_line(p, &j, put_batch, e);
}

/* ---- served requests ------------------------------------------------------------------------- */

static void put_served(struct reply *p, struct jwrite *w, const struct reply_job *j)
{
    jwrite_object(w, NULL);
    put_answer(p, w, j);
    jwrite_end(w);
}

int reply_body(struct reply *p, const struct request *r, int64_t number, const char *model,
               const struct infer_answer *a, struct err *e)
{
    struct reply_job j = {.r = r, .a = a, .model = model, .number = number};
    if (reserve_text(p, r->n_tokens + longest_choice(a), e)) return -1;
    return make_line(p, &j, put_served, e);
}

static void put_part(struct reply *p, struct jwrite *w, const struct reply_job *j)
{
    jwrite_object(w, NULL);
    put_choices(p, w, j);
    jwrite_end(w);
}

int reply_choices(struct reply *p, const struct request *r, const struct infer_answer *a,
                  struct err *e)
{
    static const char head[] = "{\"choices\":[", tail[] = "]}\n";
    const int64_t before = sizeof head - 1, after = sizeof tail - 1;
    struct reply_job j = {.r = r, .a = a};
    if (reserve_text(p, r->n_tokens + longest_choice(a), e) || make_line(p, &j, put_part, e))
        return -1;
    p->size -= before + after;
    memmove(p->line, p->line + before, (size_t)p->size);
    return 0;
}

int reply_joined(struct reply *p, const struct request *r, int64_t number, const char *model,
                 const struct infer_answer *a, const char *choices, struct err *e)
{
    struct reply_job j = {.r = r, .a = a, .model = model, .number = number, .choices = choices};
    return make_line(p, &j, put_served, e);
}

/* Writes the log-probabilities of the tokens of a chunk. */
static void write_chunk_logprobs(struct reply *p, struct jwrite *w, const struct reply_job *j)
{
    const struct reply_chunk *k = j->chunk;
    const struct reply_part part[] = {{&k->prompt, k->prompt.n, 1}, {&k->tokens, k->tokens.n, 0}};
    const struct infer_choice view = {.tokens = k->tokens, .n_text = k->tokens.n};
    const int64_t last = j->r->n_tokens + k->n_before + k->tokens.n;
    if (j->r->is_chat) {
        write_chat_logprobs(p, w, &view);
        return;
    }
    jwrite_object(w, "logprobs");
    write_parts(p, w, part, 2);
    jwrite_array(w, "text_offset");
    if (k->token_end)
        write_spelt_offsets(w, k->token_end, last - k->tokens.n - k->prompt.n, last, k->begin);
    else
        write_offsets(p, w, part, 2, k->begin);
    jwrite_end(w);
    jwrite_end(w);
}

static void write_delta(const struct reply *p, struct jwrite *w, const struct reply_job *j)
{
    const struct reply_chunk *k = j->chunk;
    const struct reply_call_id id = {p->created, j->number, k->index};
    jwrite_object(w, "delta");
    if (k->begins) jwrite_str(w, "role", "assistant");
    if (k->call)
        reply_calls_delta(w, &id, k->call, k->call_index);
    else if (k->size || k->begins)
        jwrite_strn(w, "content", k->text, k->size);
    jwrite_end(w);
}

static void write_chunk(struct reply *p, struct jwrite *w, const struct reply_job *j)
{
    const struct reply_chunk *k = j->chunk;
    jwrite_object(w, NULL);
    jwrite_int(w, "index", p->first + k->index);
    if (j->r->is_chat)
        write_delta(p, w, j);
    else
        jwrite_strn(w, "text", k->text, k->size);
    if (p->ids) write_ids(w, k->prompt.id, k->prompt.n, k->tokens.id, k->tokens.n);
    if (k->finish)
        jwrite_str(w, "finish_reason", k->finish);
    else
        jwrite_null(w, "finish_reason");
    if (k->tokens.logprob)
        write_chunk_logprobs(p, w, j);
    else
        jwrite_null(w, "logprobs");
    jwrite_end(w);
}

/* Writes a chunk of a stream. If the job has no chunk, writes the usage that ends the stream. */
static void put_chunk(struct reply *p, struct jwrite *w, const struct reply_job *j)
{
    char id[48];
    const bool chat = j->r->is_chat;
    jwrite_object(w, NULL);
    jwrite_str(w, "id", name_answer(id, j));
    jwrite_str(w, "object", chat ? "chat.completion.chunk" : "text_completion");
    jwrite_int(w, "created", p->created);
    jwrite_str(w, "model", j->model);
    jwrite_array(w, "choices");
    if (j->chunk) write_chunk(p, w, j);
    jwrite_end(w);
    if (!j->chunk)
        write_usage(w, j->r, j->a);
    else if (j->r->usage)
        jwrite_null(w, "usage");
    jwrite_end(w);
}

int reply_chunk(struct reply *p, const struct request *r, int64_t number, const char *model,
                const struct reply_chunk *k, struct err *e)
{
    struct reply_job j = {.r = r, .model = model, .number = number, .chunk = k};
    return make_line(p, &j, put_chunk, e);
}

int reply_usage(struct reply *p, const struct request *r, int64_t number, const char *model,
                const struct infer_answer *a, struct err *e)
{
    struct reply_job j = {.r = r, .model = model, .number = number, .a = a};
    return make_line(p, &j, put_chunk, e);
}
