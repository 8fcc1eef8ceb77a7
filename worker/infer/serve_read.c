/* serve_read.c: turns bodies into requests and answers into bodies, and words errors in the
 * form of the API. */
#include "worker/infer/serve_read.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "api/core/job.h"
#include "worker/infer/serve_embed.h"
#include "worker/infer/serve_list.h"
#include "worker/infer/serve_tokens.h"
#include "worker/text/buffer.h"

void serve_read_open(struct serve_reader *s, const struct infer *in, int n_slots)
{
    *s = (struct serve_reader){.in = in, .n_slots = n_slots};
    s->reply.ids = !job_reads_bytes(in->spec);
    s->reply.tokenizer = in->tokenizer;
}

void serve_read_fini(struct serve_reader *s)
{
    if (serve_thread_end(&s->thread, true)) {
        text_fini(&s->reading.q.body);
        text_fini(&s->reading.q.out);
        request_fini(&s->reading.q.request);
    }
    reply_fini(&s->reply);
    text_fini(&s->scratch);
}

void serve_read_close(struct serve_reader *s)
{
    s->closed = true;
}

/* ---- requests -------------------------------------------------------------------------------- */

/* Reads the body of q into its request, which the caller frees. */
static int read_request(const struct infer *in, struct serve_request *q, struct err *e)
{
    struct request *r = &q->request;
    const struct request_call call = {.id = q->ask.id,
                                      .chat = q->ask.endpoint == SERVE_CHAT,
                                      .adapter = q->ask.adapter_named,
                                      .epoch = in->epoch,
                                      .part = q->part};
    if (request_init(r, q->body.n, e)) return -1;
    r->tokenizer = in->tokenizer;
    r->no_tokenizer = in->no_tokenizer;
    r->chat = in->chat;
    r->vocabulary = in->vocabulary;
    request_of_body(r, in->spec, &call, q->body.data ? q->body.data : "", q->body.n);
    request_trim(r);
    return 0;
}

/* Answers with the reason of a refusal. */
static void refuse(struct serve_asks *asks, struct serve_request *q, struct err *why)
{
    const bool found = why->code != ERR_NOT_FOUND, fault = why->code == ERR_IO;
    if (q->whole) err_prefix(why, "entry %d of the list", q->part);
    serve_asks_fail(asks, q,
                    fault   ? 503
                    : found ? 400
                            : 404,
                    q->request.too_long ? "context_length_exceeded" : err_name(why->code), why);
}

static void refuse_full(struct serve_request *q, int queue)
{
    struct err why = {0};
    err_set(&why, ERR_CONFLICT,
            "%d requests wait already, the most that serve.queue allows: ask again later", queue);
    serve_asks_refuse(q, 429, "queue_full", &why);
}

static void refuse_closed(struct serve_asks *asks, struct serve_request *q)
{
    struct err why = {0};
    err_set(&why, ERR_ABORTED, "the job ends: it takes no new requests, ask another job");
    serve_asks_fail(asks, q, 503, "draining", &why);
}

static bool is_full(const struct serve_reader *s, const struct serve_asks *asks)
{
    const int n = serve_asks_count(asks, SERVE_WAITS) + serve_asks_count(asks, SERVE_AT_WORK);
    return n >= s->n_slots + s->in->spec->serve.queue;
}

static bool known_adapter(const struct serve_reader *s, int32_t adapter)
{
    return adapter == ADAPTER_BASE || (adapter >= 0 && adapter < spec_n_adapters(s->in->spec));
}

static bool converts(const struct serve_request *q)
{
    return q->ask.endpoint == SERVE_TOKENIZE || q->ask.endpoint == SERVE_DETOKENIZE;
}

/* Returns the member of a body that may be a list of prompts, or NULL. */
static const char *listed_member(const struct serve_request *q)
{
    if (q->whole) return NULL;
    if (q->ask.endpoint == SERVE_EMBEDDINGS) return "input";
    return q->ask.endpoint == SERVE_COMPLETIONS ? "prompt" : NULL;
}

/* Reads the body of q into q->request, or answers q if it converts. If the body has
 * a list of prompts, only sets q->lists. Sets *why if q is refused. */
static void read_body(const struct infer *in, struct serve_request *q, struct text *scratch,
                      struct err *why)
{
    const char *const member = listed_member(q);
    int rc = 0;
    *why = (struct err){0};
    q->lists = member && serve_list_found(q, member);
    if (q->lists) return;
    if (converts(q))
        serve_tokens_answer(in, q, scratch, why);
    else if (q->ask.endpoint == SERVE_EMBEDDINGS)
        rc = serve_embed_read(in, q, why);
    else
        rc = read_request(in, q, why);
    if (!rc && why->code == ERR_NONE) *why = q->request.refused;
}

/* Lets a request that was read wait, or splits it. */
static int take_good(struct serve_asks *asks, struct serve_request *q, struct err *why)
{
    if (q->whole) return serve_list_read(q, why);
    if (q->lists) return serve_list_split(asks, q, listed_member(q), why);
    q->state = SERVE_WAITS;
    return 0;
}

/* Takes a request that was read, or ends it. */
static void take_read(struct serve_reader *s, struct serve_asks *asks, struct serve_request *q,
                      struct err *why)
{
    if (q->state == SERVE_ENDED) return;
    q->cursor.stream = q->request.stream;
    if (why->code == ERR_NONE && !q->whole && is_full(s, asks))
        refuse_full(q, s->in->spec->serve.queue);
    else if (why->code != ERR_NONE || take_good(asks, q, why))
        refuse(asks, q, why);
}

/* Counts a request that was read, and frees its body, because other ranks get the tokens. */
static void count_read(struct serve_asks *asks, struct serve_request *q, struct serve_result *out)
{
    serve_read_count(q, out);
    serve_asks_free_body(asks, q);
}

/* ---- long bodies ----------------------------------------------------------------------------- */

/* The work of the thread. As long as it runs, no other thread converts text to tokens. Tokens are
 * converted to text in the meantime, which changes nothing in the tokenizer. */
static void read_long(void *arg)
{
    struct serve_reading *r = arg;
    struct text scratch = {0};
    read_body(r->in, &r->q, &scratch, &r->why);
    text_fini(&scratch);
}

static void begin_long(struct serve_reader *s, struct serve_request *q)
{
    q->state = SERVE_READ;
    s->reading = (struct serve_reading){
        .in = s->in, .q = {.ask = q->ask, .body = q->body, .whole = q->whole, .part = q->part}};
    q->body = (struct text){0};
    serve_thread_begin(&s->thread, read_long, &s->reading);
}

/* Gives the read parts to their request, unless it has ended in the meantime. */
static void end_long(struct serve_reader *s, struct serve_asks *asks, struct serve_result *out)
{
    struct serve_request *r = &s->reading.q;
    struct serve_request *q = serve_asks_find(asks, r->ask.id, r->whole ? r->part : -1);
    if (q && q->state == SERVE_READ) {
        q->body = r->body;
        q->request = r->request;
        q->out = r->out;
        q->lists = r->lists;
        q->base64 = r->base64;
        if (r->state == SERVE_ENDED) q->state = SERVE_ENDED, q->status = r->status;
        take_read(s, asks, q, &s->reading.why);
        count_read(asks, q, out);
        return;
    }
    serve_asks_free_body(asks, r);
    request_fini(&r->request);
    text_fini(&r->out);
}

bool serve_read_busy(const struct serve_reader *s)
{
    return s->thread.begun;
}

/* ---- requests, the rest ---------------------------------------------------------------------- */

static void refuse_task(const struct job_spec *s, struct err *why)
{
    if (job_embeds(s))
        err_field(why, ERR_UNSUPPORTED, "model",
                  "the model's job answers with vectors: ask /openai/v1/embeddings, or a job with "
                  "serve.task \"text\"");
    else
        err_field(why, ERR_UNSUPPORTED, "model",
                  "the model's job answers with text: ask for vectors from a job with serve.task "
                  "\"embed\"");
}

/* Checks the rules that concern no member of the body but the model. */
static int check_model(const struct serve_reader *s, const struct serve_request *q, struct err *why)
{
    if (converts(q)) return 0;
    if (job_embeds(s->in->spec) != (q->ask.endpoint == SERVE_EMBEDDINGS))
        refuse_task(s->in->spec, why);
    else if (!known_adapter(s, q->ask.adapter_named))
        err_field(why, ERR_NOT_FOUND, "model", "the job has no such adapter");
    return why->code == ERR_NONE ? 0 : -1;
}

/* Reads a request, or gives it to the thread. */
static void read_whole(struct serve_reader *s, struct serve_asks *asks, struct serve_request *q)
{
    struct err why = {0};
    if (!q->whole) q->created = (int64_t)time(NULL);
    if (check_model(s, q, &why)) {
        refuse(asks, q, &why);
    } else if (!converts(q) && !q->whole && is_full(s, asks)) {
        refuse_full(q, s->in->spec->serve.queue);
    } else if (q->body.n > SERVE_READ_SIZE) {
        begin_long(s, q);
    } else {
        read_body(s->in, q, &s->scratch, &why);
        take_read(s, asks, q, &why);
    }
}

/* Refuses the requests that have begun to come, and those that are complete. */
static void refuse_new(struct serve_asks *asks, struct serve_result *out)
{
    for (struct serve_request *q = asks->first; q; q = q->next) {
        if (q->state > SERVE_READ) continue;
        refuse_closed(asks, q);
        serve_asks_free_body(asks, q);
        out->n_refused++;
    }
}

static void set_state(struct serve_asks *asks, enum serve_state from, enum serve_state to)
{
    for (struct serve_request *q = asks->first; q; q = q->next)
        if (q->state == from) q->state = to;
}

void serve_read_some(struct serve_reader *s, struct serve_asks *asks, struct serve_result *out)
{
    struct serve_request *q;
    int64_t size = 0;
    if (s->closed) refuse_new(asks, out);
    if (serve_thread_end(&s->thread, false)) {
        end_long(s, asks, out);
        set_state(asks, SERVE_READ, SERVE_WHOLE);
    }
    while (!s->thread.begun && size < SERVE_READ_SIZE && (q = serve_asks_next(asks, SERVE_WHOLE))) {
        size += q->body.n;
        read_whole(s, asks, q);
        if (q->state != SERVE_READ) count_read(asks, q, out);
    }
    if (s->thread.begun) set_state(asks, SERVE_WHOLE, SERVE_READ);
}

/* ---- answers --------------------------------------------------------------------------------- */

void serve_read_count(const struct serve_request *q, struct serve_result *out)
{
    if (!q || q->state != SERVE_ENDED) return;
    out->n_requests += q->status == 200;
    out->n_refused += q->status != 200;
}

/* Appends the line that was made last, as an event of a stream or as the whole answer. */
static void put_line(struct serve_reader *s, struct serve_request *q)
{
    if (!q->status) q->status = 200;
    if (q->cursor.stream) serve_asks_put(q, "data: ", 6);
    serve_asks_put(q, s->reply.line, s->reply.size);
    if (q->cursor.stream) serve_asks_put(q, "\n", 1);
}

int serve_read_stream(struct serve_reader *s, struct serve_request *q, const struct infer_work *w,
                      const struct infer_answer *a, struct err *e)
{
    struct serve_request *const whole = serve_asks_whole(q);
    struct reply_chunk k;
    int got;
    if (!q->cursor.stream) return 0;
    s->reply.created = q->created;
    s->reply.first = q->part * w->request.n;
    while ((got = serve_stream_next(&q->cursor, s->in, w, a, &s->scratch, &k)) > 0) {
        if (reply_chunk(&s->reply, &w->request, (int64_t)q->ask.id, q->ask.model, &k, e)) return -1;
        put_line(s, whole);
    }
    if (q->whole && whole->state == SERVE_ENDED) serve_asks_end_parts(whole->list->asks, whole);
    return got < 0 ? err_set(e, ERR_IO, "out of memory for a part of an answer") : 0;
}

/* Joins the answers to the prompts of a list. */
static int make_list(struct serve_reader *s, struct serve_request *q, const struct request *r,
                     const struct infer_answer *a, struct err *e)
{
    char *choices = serve_list_join(q->list);
    if (!choices) return err_set(e, ERR_IO, "out of memory for an answer");
    const int rc = reply_joined(&s->reply, r, (int64_t)q->ask.id, q->ask.model, a, choices, e);
    free(choices);
    return rc;
}

/* Takes the answer to a prompt of a list. Completes the answer if it was the last one. */
static int answer_part(struct serve_reader *s, struct serve_request *q, const struct request *r,
                       const struct infer_answer *a, struct err *e)
{
    struct reply *p = &s->reply;
    const struct serve_list *const l = q->whole->list;
    const bool stream = q->cursor.stream;
    p->first = q->part * r->n;
    if (!stream && reply_choices(p, r, a, e)) return -1;
    const int got = serve_list_take(q, r, a, p->line, stream ? 0 : p->size, e);
    if (got <= 0) return got;
    struct request all = *r;
    all.n_tokens = l->n_prompt_tokens;
    return serve_read_answer(
        s, q->whole, &all, &(struct infer_answer){.n_kept = l->n_kept, .n_generated = l->n_tokens},
        e);
}

int serve_read_answer(struct serve_reader *s, struct serve_request *q, const struct request *r,
                      const struct infer_answer *a, struct err *e)
{
    const int64_t id = (int64_t)q->ask.id;
    if (q->whole) return answer_part(s, q, r, a, e);
    q->n_tokens = r->n_tokens + a->n_generated;
    s->reply.created = q->created;
    s->reply.first = 0;
    if (!q->cursor.stream) {
        if (q->list ? make_list(s, q, r, a, e) : reply_body(&s->reply, r, id, q->ask.model, a, e))
            return -1;
        put_line(s, q);
    } else {
        if (r->usage) {
            if (reply_usage(&s->reply, r, id, q->ask.model, a, e)) return -1;
            put_line(s, q);
        }
        serve_asks_put(q, "data: [DONE]\n\n", 14);
    }
    q->state = SERVE_ENDED;
    return 0;
}
