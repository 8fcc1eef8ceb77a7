/* serve_asks.c: a list of requests. Each piece is appended to the body of its request, and each
 * piece of an answer is cut from the text that the request has. */
#include "worker/infer/serve_asks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/openai_error.h"
#include "worker/infer/serve_list.h"
#include "worker/text/buffer.h"

struct serve_asks *serve_asks_create(void)
{
    struct serve_asks *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->last = &s->first;
    s->body_size = RANK_BODY_SIZE;
    s->bodies_size = RANK_BODIES_SIZE;
    return s;
}

void serve_asks_free_body(struct serve_asks *s, struct serve_request *q)
{
    s->n_bytes -= q->body.n;
    text_fini(&q->body);
}

/* Takes the request *at out of the list. */
static void erase(struct serve_asks *s, struct serve_request **at)
{
    struct serve_request *q = *at;
    *at = q->next;
    if (!q->next) s->last = at;
    serve_asks_free_body(s, q);
    request_fini(&q->request);
    text_fini(&q->out);
    serve_list_free(q->list);
    free(q);
}

void serve_asks_destroy(struct serve_asks *s)
{
    while (s && s->first) erase(s, &s->first);
    free(s);
}

static struct serve_request **find(struct serve_asks *s, uint64_t id)
{
    struct serve_request **at = &s->first;
    while (*at && (*at)->ask.id != id) at = &(*at)->next;
    return at;
}

struct serve_request *serve_asks_find(struct serve_asks *s, uint64_t id, int part)
{
    struct serve_request *q = s->first;
    while (q && (q->ask.id != id || (q->whole ? q->part : -1) != part)) q = q->next;
    return q;
}

struct serve_request *serve_asks_after(const struct serve_asks *s, enum serve_state state,
                                       const struct serve_request *q)
{
    struct serve_request *best = NULL;
    bool after = !q; /* x comes after q in the list: prompts of one list have the same turn */
    for (struct serve_request *x = s->first; x; x = x->next) {
        const bool later = !q || x->turn > q->turn || (x->turn == q->turn && after);
        after |= x == q;
        if (x != q && x->state == state && later && (!best || x->turn < best->turn)) best = x;
    }
    return best;
}

struct serve_request *serve_asks_next(const struct serve_asks *s, enum serve_state state)
{
    return serve_asks_after(s, state, NULL);
}

struct serve_request *serve_asks_at(const struct serve_asks *s, int slot)
{
    struct serve_request *q = s->first;
    while (q && (q->state != SERVE_AT_WORK || q->slot != slot)) q = q->next;
    return q;
}

bool serve_asks_open(const struct serve_asks *s)
{
    const struct serve_request *q = s->first;
    while (q && q->state == SERVE_IGNORED && q->closed) q = q->next;
    return q != NULL;
}

static enum serve_state state_of(const struct serve_request *q)
{
    if (q->state != SERVE_SPLIT) return q->state;
    return q->list->begun ? SERVE_AT_WORK : SERVE_WAITS;
}

int serve_asks_count(const struct serve_asks *s, enum serve_state state)
{
    int n = 0;
    for (const struct serve_request *q = s->first; q; q = q->next)
        n += !q->whole && state_of(q) == state;
    return n;
}

void serve_asks_begin(struct serve_request *q, int slot)
{
    q->state = SERVE_AT_WORK;
    q->slot = slot;
    if (q->whole) q->whole->list->begun = true;
}

/* ---- requests -------------------------------------------------------------------------------- */

/* Returns the most bytes of a request's body. */
static int64_t most_size(const struct serve_asks *s, const struct serve_request *q)
{
    const bool converts = q->ask.endpoint == SERVE_TOKENIZE || q->ask.endpoint == SERVE_DETOKENIZE;
    return converts && s->body_size > SERVE_TOKENS_SIZE ? SERVE_TOKENS_SIZE : s->body_size;
}

static void refuse_size(struct serve_request *q, int64_t most)
{
    struct err e = {0};
    err_field(&e, ERR_TOO_LARGE, "body", "the body has more than %lld bytes: send less at once",
              (long long)most);
    serve_asks_refuse(q, 413, "too_large", &e);
}

static void refuse_busy(struct serve_request *q)
{
    struct err e = {0};
    err_set(&e, ERR_IO, "there is no memory for the body now: ask again later");
    serve_asks_refuse(q, 503, "busy", &e);
}

static void append(struct serve_asks *s, struct serve_request *q, const struct rank_ask *a,
                   const char *bytes)
{
    const int64_t most = most_size(s, q);
    if (q->body.n + a->size > most) {
        refuse_size(q, most);
    } else if (s->n_bytes + a->size > s->bodies_size || text_add(&q->body, bytes, a->size) < 0) {
        refuse_busy(q);
    } else {
        s->n_bytes += a->size;
        return;
    }
    serve_asks_free_body(s, q);
}

void serve_asks_take(struct serve_asks *s, const struct rank_ask *a, const char *bytes)
{
    struct serve_request *q = *find(s, a->id);
    const bool last = a->flags & RANK_ASK_LAST;
    if (!q) {
        q = calloc(1, sizeof *q);
        if (!q) return; /* the client gets an answer when the job ends */
        q->ask = *a;
        *s->last = q;
        s->last = &q->next;
    }
    if (q->state == SERVE_COMES) append(s, q, a, bytes);
    if (q->state == SERVE_COMES && last) {
        q->state = SERVE_WHOLE;
        q->turn = s->n_turns++;
    } else if (q->state == SERVE_IGNORED && last) {
        q->state = SERVE_ENDED;
    }
}

void serve_asks_drop(struct serve_asks *s, uint64_t id)
{
    struct serve_request **at = find(s, id);
    if (!*at) return;
    if ((*at)->state == SERVE_AT_WORK) s->dropped |= (uint64_t)1 << (*at)->slot;
    s->n_dropped += (*at)->state != SERVE_ENDED && (*at)->state != SERVE_IGNORED;
    if ((*at)->list) serve_asks_end_parts(s, *at);
    erase(s, at);
}

/* ---- lists of prompts ------------------------------------------------------------------------ */

struct serve_request *serve_asks_add_part(struct serve_asks *s, struct serve_request *whole,
                                          int part)
{
    struct serve_request *q = calloc(1, sizeof *q);
    if (!q) return NULL;
    *q = (struct serve_request){.ask = whole->ask,
                                .state = SERVE_WHOLE,
                                .turn = whole->turn,
                                .created = whole->created,
                                .closed = true, /* it has no answer of its own */
                                .whole = whole,
                                .part = part};
    *s->last = q;
    s->last = &q->next;
    return q;
}

void serve_asks_begin_parts(struct serve_asks *s, const struct serve_request *whole)
{
    for (struct serve_request *q = s->first; q; q = q->next)
        if (q->whole == whole && q->state == SERVE_HELD) q->state = SERVE_WAITS;
}

void serve_asks_end_parts(struct serve_asks *s, const struct serve_request *whole)
{
    for (struct serve_request *q = s->first; q; q = q->next) {
        if (q->whole != whole) continue;
        if (q->state == SERVE_AT_WORK) s->dropped |= (uint64_t)1 << q->slot;
        q->state = SERVE_ENDED; /* the next serve_asks_send forgets it */
        q->whole = NULL;
        serve_asks_free_body(s, q);
    }
}

/* ---- answers --------------------------------------------------------------------------------- */

static bool answered(const struct serve_request *q)
{
    return q->state == SERVE_ENDED || q->state == SERVE_IGNORED;
}

/* Ends an answer for which there is no memory. */
static void refuse_rest(struct serve_request *q)
{
    struct err e = {0};
    err_set(&e, ERR_IO, "there is no memory for the answer now: ask again later");
    if (!q->begun) {
        text_fini(&q->out);
        q->status = 0;
    }
    serve_asks_refuse(q, 503, "busy", &e);
}

int serve_asks_put(struct serve_request *q, const char *bytes, int64_t n)
{
    if (answered(q)) return -1;
    if (text_add(&q->out, bytes, n) == 0) return 0;
    refuse_rest(q);
    return -1;
}

void serve_asks_refuse(struct serve_request *q, int status, const char *code, const struct err *e)
{
    char text[6 * sizeof e->text + 1024] = "data: ", *const json = text + 6;
    const bool stream = q->status != 0, coming = q->state == SERVE_COMES;
    int64_t n = openai_error_write(status, e->text, e->field, code, json, sizeof text - 6 - 2);
    if (n < 0) n = snprintf(json, 3, "{}");
    memcpy(json + n, "\n\n", 2);
    if (!q->status) q->status = status;
    /* without memory the answer is cut, and its last piece tells the end */
    (void)(stream ? text_add(&q->out, text, n + 8) : text_add(&q->out, json, n + 1));
    q->state = coming ? SERVE_IGNORED : SERVE_ENDED;
}

void serve_asks_fail(struct serve_asks *s, struct serve_request *q, int status, const char *code,
                     const struct err *e)
{
    struct serve_request *const whole = serve_asks_whole(q);
    if (whole->list) serve_asks_end_parts(s, whole);
    serve_asks_refuse(whole, status, code, e);
}

/* Tells whether a piece of the answer waits to be sent. The last one may be empty. */
static bool has_piece(const struct serve_request *q)
{
    return q->n_sent < q->out.n || (answered(q) && !q->closed);
}

/* Sends the next piece of an answer. Returns 1 if it was sent, 0 if there is no room, and -1 on an
 * error. */
static int send_piece(struct serve_request *q, const struct serve_door *door, struct err *e)
{
    const int64_t left = q->out.n - q->n_sent;
    const bool ends = answered(q);
    struct rank_answer a = {.id = q->ask.id, .status = q->begun ? 0 : q->status};
    a.size = left < RANK_PIECE_SIZE ? (int32_t)left : RANK_PIECE_SIZE;
    if (ends && a.size == left) {
        a.flags |= RANK_ANSWER_LAST;
        a.tokens = q->n_tokens < INT32_MAX ? (int32_t)q->n_tokens : INT32_MAX;
    }
    if (!q->begun && q->cursor.stream && q->status == 200) a.flags |= RANK_ANSWER_STREAM;
    const int sent = door->answer(door->arg, &a, q->out.data + q->n_sent, e);
    if (sent <= 0) return sent;
    q->begun = true;
    q->closed = a.flags & RANK_ANSWER_LAST;
    q->n_sent += a.size;
    if (q->n_sent == q->out.n && !ends) q->n_sent = q->out.n = 0;
    return 1;
}

int serve_asks_send(struct serve_asks *s, const struct serve_door *door, bool *more, struct err *e)
{
    struct serve_request **at = &s->first;
    *more = false;
    while (*at) {
        struct serve_request *q = *at;
        int sent = 1;
        while (sent && has_piece(q))
            if ((sent = send_piece(q, door, e)) < 0) return -1;
        *more |= has_piece(q);
        if (q->state == SERVE_ENDED && q->closed)
            erase(s, at);
        else
            at = &q->next;
    }
    return 0;
}
