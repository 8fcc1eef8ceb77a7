/* openai.c: hands the requests of clients to jobs that serve, and their answers to the clients.
 * Prompts and answers are in no log and in no error that seqd writes. */
#include "daemon/http/openai.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/job.h"
#include "api/core/openai_error.h"
#include "daemon/access/auth.h"
#include "daemon/http/openai_model.h"
#include "daemon/http/reply.h"
#include "daemon/loop/serving.h"

/* Bytes that a body may have, and more for each token of data.seq_len. A token of a text has far
 * fewer on average. */
#define OPENAI_BODY_BYTES  (4LL << 20)
#define OPENAI_TOKEN_BYTES 64
#define OPENAI_GUARD_MS    500 /* time until the tokens of open requests are looked at again */

_Static_assert(WIRE_WINDOW <= HTTP_STREAM_SIZE, "a stream has room for all that may be on its way");

struct openai_request {
    struct openai_request *next, **link; /* links of the list R->openai */
    struct routes *R;
    struct http_req *r;      /* used until the answer begins */
    struct http_out *stream; /* used from then on; NULL again when the client has gone */
    struct served *served;   /* NULL when the job's part is over */
    struct principal who;    /* who has sent it */
    bool events;             /* the answer is text/event-stream */
    size_t written, credited;
    int64_t n_pieces; /* pieces of a stream; each has a token, as a rule */
};

static void destroy(struct openai_request *q)
{
    *q->link = q->next;
    if (q->next) q->next->link = q->link;
    free(q);
}

void openai_drop(struct routes *R)
{
    loop_timer_destroy(R->openai_guard);
    R->openai_guard = NULL;
    while (R->openai) destroy(R->openai);
}

/* ---- the stream ------------------------------------------------------------------------------ */

/* Gives the answer up. The user has used the tokens of a stream so far, as far as seqd knows. */
static void give_up(struct openai_request *q)
{
    if (!q->served) return;
    users_served(control_users(q->R->control), q->who.user, q->n_pieces,
                 control_now_ms(q->R->control));
    serving_close(q->served);
    q->served = NULL;
}

static void on_closed(void *arg)
{
    struct openai_request *q = arg;
    give_up(q);
    destroy(q);
}

/* Tells the job how much the client has read. */
static void on_want(void *arg)
{
    struct openai_request *q = arg;
    const size_t room = http_stream_room(q->stream);
    if (!q->served || !room) return;
    const size_t taken = q->written - (HTTP_STREAM_SIZE - room);
    serving_credit(q->served, taken - q->credited);
    q->credited = taken;
}

static void write_piece(struct openai_request *q, const struct msg *m)
{
    q->n_pieces++;
    q->written += m->size;
    if (m->size && http_stream_write(q->stream, m->data, m->size)) {
        give_up(q); /* the client has gone, or the node sent more than it may */
        http_stream_end(q->stream, false);
    } else if (!m->more) {
        http_stream_end(q->stream, true);
    }
}

/* ---- the job's answer ------------------------------------------------------------------------ */

static const char *type_of(const struct msg *m)
{
    return m->stream ? "text/event-stream" : "application/json";
}

static void begin_answer(struct openai_request *q, const struct msg *m)
{
    static const struct http_stream_calls calls = {on_want, on_closed};
    if (m->status == 503 || m->status == 429) http_set_header(q->r, "Retry-After", "1");
    if (!m->more) {
        http_reply(q->r, m->status, type_of(m), m->data, m->size);
        destroy(q);
        return;
    }
    q->events = m->stream;
    q->stream = http_stream_open(q->r, m->status, type_of(m), -1, &calls, q);
    q->r = NULL;
    if (q->stream) {
        write_piece(q, m);
        return;
    }
    give_up(q);
    destroy(q);
}

static void fail(struct openai_request *q, const char *text)
{
    struct err e;
    err_set(&e, ERR_PEER, "%s", text);
    reply_openai(q->r, 503, &e, "unavailable");
    destroy(q);
}

static void on_piece(void *arg, const struct msg *m, bool first)
{
    struct openai_request *q = arg;
    if (!m->more) { /* an end that is not rank 0's, such as that of a drain, has no total */
        q->served = NULL;
        users_served(control_users(q->R->control), q->who.user, m->total ? m->total : q->n_pieces,
                     control_now_ms(q->R->control));
    }
    if (!first) {
        write_piece(q, m);
    } else if (m->status < 200 || m->status > 599) {
        give_up(q);
        fail(q, "the job's answer has no status: ask again");
    } else {
        begin_answer(q, m);
    }
}

static const char lost_text[] =
    "the job lost this request, because a process or a node of it ended or stands still: ask again";

/* Ends an answer that has begun. A client that reads events gets the error as an event. */
static void cut(struct openai_request *q, int status, const char *text, const char *code)
{
    char error[512], out[600];
    openai_error_write(status, text, NULL, code, error, sizeof error);
    const int n = snprintf(out, sizeof out, "data: %s\n\n", error);
    const bool told = q->events && !http_stream_write(q->stream, out, (size_t)n);
    http_stream_end(q->stream, told);
}

static void on_lost(void *arg)
{
    struct openai_request *q = arg;
    q->served = NULL;
    if (q->stream)
        cut(q, 503, lost_text, "unavailable");
    else
        fail(q, lost_text);
}

/* Ends a request whose token is no longer valid. */
static void revoke(struct openai_request *q)
{
    static const char text[] = "the token of this request was revoked or has expired: ask with "
                               "another";
    struct err e;
    give_up(q);
    if (q->stream) {
        cut(q, 401, text, "unauthorized");
        return;
    }
    err_set(&e, ERR_UNAUTHORIZED, "%s", text);
    reply_openai(q->r, 401, &e, "unauthorized");
    destroy(q);
}

/* Requests were checked only when they began, and an answer may take long. */
static void on_guard(void *arg)
{
    struct routes *R = arg;
    for (struct openai_request *q = R->openai, *next; q; q = next) {
        next = q->next;
        if (q->served && !auth_valid(R->auth, q->who.token)) revoke(q);
    }
    loop_timer_set(R->openai_guard, OPENAI_GUARD_MS);
}

void openai_open(struct routes *R, struct loop *l)
{
    R->openai_guard = loop_timer_create(l, on_guard, R);
    loop_timer_set(R->openai_guard, OPENAI_GUARD_MS);
}

static void on_sent(void *arg)
{
    http_drop_body(((struct openai_request *)arg)->r);
}

/* Ends a request whose client went away before the answer began. The reply is dropped. */
static void on_gone(void *arg)
{
    struct openai_request *q = arg;
    give_up(q);
    http_reply(q->r, 503, "application/json", "", 0);
    destroy(q);
}

/* ---- requests -------------------------------------------------------------------------------- */

/* Answers that the model is not one of the user's. */
static void no_model(struct http_req *r, const struct err *e)
{
    reply_openai(r, reply_status(e->code), e,
                 e->code == ERR_NOT_FOUND ? "model_not_found" : "invalid");
}

static void not_ready(struct http_req *r, const struct err *e)
{
    reply_openai(r, e->code == ERR_TOO_LARGE ? 429 : 503, e, "unavailable");
}

/* Refuses a body whose prompt is certainly too long for the job. Rank 0 would convert it to tokens
 * between two passes, and all other requests would wait. */
static int check_size(const struct job *j, size_t size, struct err *e)
{
    const long long most = OPENAI_BODY_BYTES +
                           OPENAI_TOKEN_BYTES * (long long)job_spec(j)->data.seq_len;
    if (size <= (unsigned long long)most) return 0;
    return err_field(e, ERR_TOO_LARGE, "body",
                     "the body has %zu bytes, and job %lld of %lld tokens a request takes %lld: "
                     "send a shorter prompt",
                     size, (long long)j->id, (long long)job_spec(j)->data.seq_len, most);
}

static void put_number(struct http_req *r, const char *name, int64_t n)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)n);
    http_set_header(r, name, text);
}

/* Counts the request of a user. Headers have the rest of the user's minute. */
static int check_limits(struct routes *R, struct http_req *r, const struct principal *who,
                        struct err *e)
{
    struct users *t = control_users(R->control);
    struct users_left left;
    char body[6 * sizeof e->text + 256];
    const int rc = users_serve(t, who, control_now_ms(R->control), &left, e);
    if (left.asks >= 0) {
        put_number(r, "x-ratelimit-limit-requests", t->limits.asks);
        put_number(r, "x-ratelimit-remaining-requests", left.asks);
    }
    if (left.tokens >= 0) {
        put_number(r, "x-ratelimit-limit-tokens", t->limits.tokens);
        put_number(r, "x-ratelimit-remaining-tokens", left.tokens);
    }
    if (!rc) return 0;
    put_number(r, "Retry-After", left.wait_s);
    const int64_t n = openai_error_write(429, e->text, NULL, "rate_limit_exceeded", body,
                                         sizeof body);
    http_reply(r, 429, "application/json", body, n > 0 ? (size_t)n : 0);
    return -1;
}

static void start(struct routes *R, struct http_req *r, const struct principal *who,
                  const struct openai_model *m, const struct msg *ask)
{
    static const struct served_calls calls = {on_piece, on_lost};
    struct served_body body = {.sent = on_sent};
    struct openai_request *q = calloc(1, sizeof *q);
    if (!q) abort();
    *q = (struct openai_request){
        .next = R->openai, .link = &R->openai, .R = R, .r = r, .who = *who};
    if (q->next) q->next->link = &q->next;
    R->openai = q;
    body.bytes = http_body(r, &body.size);
    q->served = serving_open(control_servings(R->control), m->job, ask, &body, &calls, q);
    http_on_gone(r, on_gone, q);
}

static void ask(struct routes *R, struct http_req *r, const struct route_match *a,
                enum serve_endpoint endpoint)
{
    struct msg ask = {.endpoint = (int32_t)endpoint};
    struct openai_model m;
    struct err e;
    size_t size;
    const char *body = http_body(r, &size);
    if (openai_model_read(body, size, ask.model, &e) ||
        openai_model_find(R->control, a->who.user, ask.model, &m, &e)) {
        no_model(r, &e);
        return;
    }
    if (serving_ready(control_servings(R->control), m.job, &e) ||
        serving_room(control_servings(R->control), a->who.user, &e)) {
        not_ready(r, &e);
        return;
    }
    if (check_size(m.job, size, &e)) {
        reply_openai(r, 413, &e, "too_large");
        return;
    }
    if (check_limits(R, r, &a->who, &e)) return;
    ask.named = m.adapter;
    snprintf(ask.user, sizeof ask.user, "%s", a->who.user);
    start(R, r, &a->who, &m, &ask);
}

void route_openai_completions(struct routes *R, struct http_req *r, const struct route_match *a)
{
    ask(R, r, a, SERVE_COMPLETIONS);
}

void route_openai_chat(struct routes *R, struct http_req *r, const struct route_match *a)
{
    ask(R, r, a, SERVE_CHAT);
}

void route_openai_embeddings(struct routes *R, struct http_req *r, const struct route_match *a)
{
    ask(R, r, a, SERVE_EMBEDDINGS);
}

void route_openai_tokenize(struct routes *R, struct http_req *r, const struct route_match *a)
{
    ask(R, r, a, SERVE_TOKENIZE);
}

void route_openai_detokenize(struct routes *R, struct http_req *r, const struct route_match *a)
{
    ask(R, r, a, SERVE_DETOKENIZE);
}

void route_openai_models(struct routes *R, struct http_req *r, const struct route_match *a)
{
    char *list = openai_model_list(R->control, a->who.user);
    reply_json(r, 200, list);
    free(list);
}

void route_openai_model(struct routes *R, struct http_req *r, const struct route_match *a)
{
    char out[1024];
    struct openai_model m;
    struct jwrite w;
    struct err e;
    if (openai_model_find(R->control, a->who.user, a->name, &m, &e)) {
        no_model(r, &e);
        return;
    }
    if (serving_ready(control_servings(R->control), m.job, &e)) {
        not_ready(r, &e);
        return;
    }
    jwrite_init(&w, out, sizeof out);
    openai_model_write(&w, &m, a->who.user);
    if (jwrite_finish(&w) < 0) abort();
    reply_json(r, 200, out);
}
