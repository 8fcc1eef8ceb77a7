/* serve.c: the passes of a serve job. Rank 0 plans each pass, and all ranks run it. */
#include "worker/infer/serve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/job.h"
#include "worker/infer/pages.h"
#include "worker/infer/prefill.h"
#include "worker/infer/request_wire.h"
#include "worker/infer/serve_embed.h"
#include "worker/infer/serve_meter.h"
#include "worker/infer/serve_owners.h"
#include "worker/infer/serve_read.h"
#include "worker/infer/serve_reread.h"
#include "worker/infer/serve_turn.h"
#include "worker/infer/vocabulary.h"
#include "worker/plan/paged.h"
#include "worker/plan/volume.h"

/* The start of a pass, which rank 0 broadcasts. */
struct serve_pass {
    int32_t ends;     /* set in the last pass, which does nothing */
    int32_t begins;   /* set if a request begins */
    int32_t yields;   /* set if no answer is computed again any more */
    uint64_t dropped; /* a bit for each slot whose request is forgotten */
    uint64_t pages;   /* sum of rank 0's pages, after the drops */
    struct serve_begin {
        int64_t size; /* bytes of the request for other ranks, or of ids that become a vector */
        int32_t slot;
        uint32_t owner; /* of its prefix */
    } begin;
};
_Static_assert(JOB_MAX_BATCH <= 64, "a bit of serve_pass.dropped for each slot");

struct serve_slot {
    struct request request; /* owned while the slot is at work */
    struct infer_answer answer;
    int64_t turn; /* the order in which requests begin */
};

struct server {
    const struct infer *in; /* = &own */
    /* The caller's, but reports no progress: parts of requests that are at work together would
     * look like whole requests. */
    struct infer own;
    struct progress *progress;
    const struct serve_door *door; /* NULL on all ranks but rank 0 */
    struct serve_asks *asks;       /* of the door */
    struct serve_reader reader;
    struct serve_owners owners;
    bool embeds; /* the job answers with vectors */
    struct serve_embed embed;
    int n;
    struct infer_work work[JOB_MAX_BATCH];
    struct serve_slot slot[JOB_MAX_BATCH];
    struct infer_steps steps;
    struct serve_meter meter;
    struct pages pages; /* if the plan has pages */
    struct serve_reread reread;
    int32_t *table[JOB_MAX_BATCH];
    struct serve_pass pass;
    int64_t n_begun;  /* requests that have begun */
    int64_t n_pieces; /* pieces of prompts that were computed */
    int64_t used_us;  /* the last time at which there was a request */
    int64_t drain_us; /* the time at which the job began to drain; 0 means not yet */
    bool drains;      /* set if the order to drain had come at the end of the last pass */
    bool unsent;      /* set if bytes of answers wait for room */
    struct serve_result *out;
};

static int64_t now_us(const struct server *s)
{
    return s->door->now_us(s->door->arg);
}

static bool any_at_work(const struct server *s)
{
    for (int k = 0; k < s->n; k++)
        if (s->work[k].out) return true;
    return false;
}

/* ---- all ranks ------------------------------------------------------------------------------- */

static bool is_paged(const struct server *s)
{
    return s->in->model->plan->paged;
}

static void forget(struct server *s, int k)
{
    serve_reread_end(&s->reread, k);
    if (s->pages.page) pages_end(&s->pages, k);
    s->work[k].out = NULL;
    infer_answer_fini(&s->slot[k].answer);
    request_fini(&s->slot[k].request);
}

/* Sends bytes from rank 0 to all ranks, and counts them as expected. */
static int share(struct server *s, void *data, int64_t size, struct err *e)
{
    const struct model *m = s->in->model;
    struct comm_count *want = &s->work[0].want[PURPOSE_CONTROL];
    if (!m->comm || !size) return 0;
    volume_add(want, volume_broadcast(m->plan->sp, size, m->sp.shard.r == 0), 1);
    return comm_broadcast(m->comm, PURPOSE_CONTROL, 0, data, size, m->bounce, e);
}

/* Sends the request from rank 0, where *r is read, to the other ranks, which make it from the
 * bytes. */
static int share_request(struct server *s, struct request *r, int64_t size, struct err *e)
{
    const struct infer *in = s->in;
    char *bytes = malloc((size_t)size);
    if (!bytes)
        return err_set(e, ERR_IO, "out of memory for a request of %lld bytes", (long long)size);
    if (s->door) request_wire_write(r, bytes);
    int rc = share(s, bytes, size, e);
    if (!rc && !s->door) rc = request_wire_read(r, bytes, e);
    free(bytes);
    if (rc || s->door) return rc;
    r->tokenizer = in->tokenizer;
    r->vocabulary = in->vocabulary;
    if (!r->grammar) return 0;
    return vocabulary_prepare(in->vocabulary, in->tokenizer, in->model->shape.vocab, e);
}

/* Makes the request of a slot, which rank 0 has read before. */
static int take_request(struct server *s, const struct serve_begin *b, struct err *e)
{
    struct request *r = &s->slot[b->slot].request;
    struct serve_request *q = s->door ? serve_asks_at(s->asks, b->slot) : NULL;
    if (q) {
        *r = q->request;
        q->request = (struct request){0};
        serve_asks_free_body(s->asks, q);
    }
    return b->size ? share_request(s, r, b->size, e) : 0;
}

/* Returns the pages' view of a request. The last token of an answer is never computed. */
static struct pages_ask pages_of(const struct request *r, uint32_t owner)
{
    return (struct pages_ask){.owner = owner,
                              .adapter = r->adapter,
                              .tokens = r->tokens,
                              .n_tokens = r->n_tokens,
                              .n_positions = r->n_tokens + (r->max_tokens ? r->max_tokens - 1 : 0),
                              .whole = r->echo && r->logprobs >= 0};
}

/* Copies states from a slot to a place of kept states or, if `keep` is not set, from the place to
 * the slot. */
static void copy_states(struct server *s, int slot, int place, bool keep)
{
    struct model *m = s->in->model;
    if (place == PAGES_NO_STATE) return;
    place += m->plan->batch;
    if (keep)
        model_copy_states(m, slot, place);
    else
        model_copy_states(m, place, slot);
}

/* Gives pages to the request that begins in a slot. */
static void begin_pages(struct server *s, int k, uint32_t owner)
{
    const struct pages_ask a = pages_of(&s->slot[k].request, owner);
    s->in->model->cache[k].n_tokens = pages_begin(&s->pages, k, &a);
    prefill_load_pages(s->in, &s->pages, k);
    copy_states(s, k, pages_state(&s->pages, k), false);
    if (pages_used(&s->pages) > s->out->n_pages_used) s->out->n_pages_used = pages_used(&s->pages);
}

/* Computes a vector and answers with it, in one pass. The request needs no slot after it. */
static int embed(struct server *s, const struct serve_begin *b, struct err *e)
{
    struct serve_request *q = s->door ? serve_asks_at(s->asks, b->slot) : NULL;
    struct request r = {.n_tokens = b->size / (int64_t)sizeof *r.tokens};
    struct comm_count *want = s->work[0].want;
    int rc = -1;
    if (q) r = q->request, q->request = (struct request){0};
    if (!q && !(r.tokens = malloc((size_t)b->size)))
        return err_set(e, ERR_IO, "out of memory for %lld tokens", (long long)r.n_tokens);
    const int64_t begin_us = clock_us();
    if (share(s, r.tokens, b->size, e)) goto out;
    s->out->ledger_equal &= infer_settle(s->in, s->work, s->n, &s->steps);
    infer_at(s->in, ++s->n_begun);
    serve_meter_begin(&s->meter, b->slot, r.n_tokens, 0);
    if (serve_embed_run(&s->embed, r.tokens, r.n_tokens, want, e)) goto out;
    pace_until_now(&s->out->prefill, r.n_tokens, begin_us);
    q = s->door ? serve_asks_at(s->asks, b->slot) : NULL; /* it may be dropped meanwhile */
    struct serve_request *const whole = serve_asks_whole(q);
    rc = q ? serve_embed_answer(&s->embed, q, &r, e) : 0;
    serve_read_count(whole, s->out);
    if (s->door) s->asks->dropped = 0;
out:
    request_fini(&r);
    return rc;
}

/* Begins the request of a pass. infer_check_stop must not come before take_request: on rank 0 it
 * takes messages, and a drop would free the request that the pass has named. */
static int begin(struct server *s, const struct serve_begin *b, struct err *e)
{
    const int k = b->slot;
    if (s->embeds) return embed(s, b, e);
    assert(!s->work[k].out);
    if (take_request(s, b, e)) return -1;
    s->out->ledger_equal &= infer_settle(s->in, s->work, s->n, &s->steps);
    infer_at(s->in, ++s->n_begun);
    s->slot[k].turn = s->n_begun;
    if (is_paged(s)) begin_pages(s, k, b->owner);
    serve_meter_begin(&s->meter, k, s->slot[k].request.n_tokens,
                      is_paged(s) ? s->in->model->cache[k].n_tokens : 0);
    return infer_begin(s->in, &s->work[k], &s->slot[k].request, &s->slot[k].answer, e);
}

static void forget_dropped(struct server *s)
{
    for (int k = 0; k < s->n; k++)
        if (s->pass.dropped >> k & 1) forget(s, k);
}

/* Ends the answers that are computed again. */
static void forget_reread(struct server *s)
{
    for (int k; (k = serve_reread_next(&s->reread)) >= 0;) forget(s, k);
}

/* Checks that this rank has the pages that rank 0 has. */
static int check_pages(const struct server *s, struct err *e)
{
    if (!is_paged(s) || pages_sum(&s->pages) == s->pass.pages) return 0;
    return err_set(e, ERR_INTERNAL, "rank %d has other pages than rank 0 in pass %lld",
                   s->in->model->sp.shard.r, (long long)s->out->n_passes);
}

/* Returns the slot of the prompt of which the next piece is computed, or -1. */
static int next_prompt(const struct server *s)
{
    struct serve_prompt p[JOB_MAX_BATCH] = {0};
    for (int k = 0; k < s->n; k++) {
        const struct infer_work *w = &s->work[k];
        if (!w->out || !w->prefills) continue;
        p[k] = (struct serve_prompt){s->slot[k].turn, w->request.n_tokens - w->n_prefilled};
    }
    return serve_turn_piece(p, s->n, s->n_pieces);
}

/* Computes a piece of a prompt, and keeps its pages. */
static int run_piece(struct server *s, int k, struct err *e)
{
    struct infer_work *w = &s->work[k];
    s->n_pieces++;
    if (infer_piece(s->in, w, e)) return -1;
    const struct pages_text t = {.prompt = w->request.tokens, .n_prompt = w->n_prefilled};
    pages_keep(&s->pages, k, &t);
    prefill_load_pages(s->in, &s->pages, k);
    if (w->n_prefilled % CACHE_PAGE == 0) copy_states(s, k, pages_keep_state(&s->pages, k), true);
    return 0;
}

/* Computes a piece of an answer again, if there is one and no request is at work. */
static int run_reread(struct server *s, struct err *e)
{
    const int k = serve_reread_next(&s->reread);
    bool ended;
    if (k < 0 || any_at_work(s)) return 0;
    if (serve_reread_piece(&s->reread, &s->work[k], &ended, e)) return -1;
    if (ended) forget(s, k);
    return 0;
}

/* Does the pass that rank 0 has sent. */
static int run_pass(struct server *s, struct err *e)
{
    const struct serve_pass *p = &s->pass;
    if (!s->door) forget_dropped(s);
    if (!s->door && p->yields) forget_reread(s);
    if (check_pages(s, e) || (p->begins && begin(s, &p->begin, e))) return -1;
    if (any_at_work(s) && infer_step(s->in, s->work, s->n, &s->steps, e)) return -1;
    const int k = next_prompt(s);
    return k < 0 ? run_reread(s, e) : run_piece(s, k, e);
}

/* ---- rank 0: before a pass ------------------------------------------------------------------- */

static int free_slot(const struct server *s)
{
    for (int k = 0; k < s->n; k++)
        if (!s->work[k].out && !serve_reread_at(&s->reread, k)) return k;
    return -1;
}

/* Returns the owner of the prefix of a request. All users are one owner if they share prefixes. */
static uint32_t owner_of(struct server *s, struct serve_request *q)
{
    if (s->in->spec->serve.share_prefixes) return 0;
    if (!q->owner) q->owner = serve_owners_number(&s->owners, q->ask.user);
    return q->owner;
}

/* Tells whether there are pages for a request. */
static bool fits(void *arg, struct serve_request *q)
{
    struct server *s = arg;
    if (!is_paged(s)) return true;
    const struct pages_ask a = pages_of(&q->request, owner_of(s, q));
    return pages_fit(&s->pages, &a);
}

/* Returns the request that can begin in this pass, and sets *slot, or returns NULL. Answers that
 * are computed again make room for the oldest request. */
static struct serve_request *take_next(struct server *s, int *slot)
{
    struct serve_request *oldest = serve_asks_next(s->asks, SERVE_WAITS);
    *slot = free_slot(s);
    if (oldest && serve_reread_next(&s->reread) >= 0 && (*slot < 0 || !fits(s, oldest))) {
        s->pass.yields = 1;
        forget_reread(s);
        *slot = free_slot(s);
    }
    return *slot < 0 ? NULL : serve_turn_request(s->asks, fits, s);
}

/* Plans the next pass. A slot whose request is dropped is free. At most one request begins, so that
 * tokens of others, drops and a stop come before the next prompt. */
static void plan_pass(struct server *s)
{
    struct serve_pass *p = &s->pass;
    struct serve_request *q;
    *p = (struct serve_pass){.dropped = s->asks->dropped};
    s->asks->dropped = 0;
    forget_dropped(s);
    int k;
    q = take_next(s, &k);
    p->pages = is_paged(s) ? pages_sum(&s->pages) : 0;
    if (!q) return;
    serve_asks_begin(q, k);
    p->begins = 1;
    p->begin = (struct serve_begin){.slot = k, .owner = is_paged(s) ? owner_of(s, q) : 0};
    if (s->embeds)
        p->begin.size = q->request.n_tokens * (int64_t)sizeof *q->request.tokens;
    else if (s->in->model->comm)
        p->begin.size = request_wire_size(&q->request);
}

/* Ends the requests that are open when the time to drain is over. */
static void refuse_open(struct server *s)
{
    struct err why = {0};
    err_set(&why, ERR_ABORTED, "%s, and its time to drain is over: ask again later",
            s->door->draining(s->door->arg));
    for (struct serve_request *q = s->asks->first; q; q = q->next) {
        if (q->state == SERVE_AT_WORK) s->asks->dropped |= (uint64_t)1 << q->slot;
        if (q->state == SERVE_ENDED || q->state == SERVE_IGNORED) continue;
        serve_asks_fail(s->asks, q, 503, "draining", &why);
        s->out->n_refused++;
    }
}

/* Tells whether the job has nothing left to answer and should end. */
static bool should_end(struct server *s)
{
    const int64_t idle_us = s->in->spec->serve.idle_s * 1000000;
    const int64_t drain_us = s->in->spec->serve.drain_s * 1000000 + SERVE_BEAT_US;
    const bool open = serve_asks_open(s->asks);
    if (s->drain_us) return !open || now_us(s) - s->drain_us >= drain_us;
    return idle_us && !open && now_us(s) - s->used_us >= idle_us;
}

static void check_drain(struct server *s)
{
    const int64_t drain_us = s->in->spec->serve.drain_s * 1000000;
    if (!s->drain_us && s->door->draining(s->door->arg)) {
        s->drain_us = now_us(s);
        serve_read_close(&s->reader);
    }
    if (s->drain_us && now_us(s) - s->drain_us >= drain_us) refuse_open(s);
}

/* Tells whether the next pass has work. Messages that came during the last pass may have left
 * complete requests, drops, and the order to drain. */
static bool has_work(const struct server *s)
{
    return (s->drains && !s->drain_us) || any_at_work(s) || s->asks->dropped ||
           serve_reread_next(&s->reread) >= 0 || serve_asks_next(s->asks, SERVE_WHOLE) ||
           serve_asks_next(s->asks, SERVE_WAITS);
}

/* Returns how long rank 0 may wait for messages before the next pass, in ms. */
static int wait_ms(const struct server *s)
{
    const int64_t step_us = s->in->spec->limits.step_timeout_s * 1000000;
    const int64_t idle_us = s->in->spec->serve.idle_s * 1000000, now = now_us(s);
    int64_t us = step_us && step_us / 2 < SERVE_BEAT_US ? step_us / 2 : SERVE_BEAT_US;
    if (has_work(s)) return 0;
    if (serve_read_busy(&s->reader) && us > SERVE_READ_MS * 1000) us = SERVE_READ_MS * 1000;
    if (idle_us && s->used_us + idle_us - now < us) us = s->used_us + idle_us - now;
    if (s->drain_us) {
        const int64_t end_us = s->drain_us + s->in->spec->serve.drain_s * 1000000;
        if (end_us - now < us) us = end_us - now;
    }
    const int64_t report_us = serve_meter_wait_us(&s->meter, now);
    if (report_us >= 0 && report_us < us) us = report_us;
    return us > 0 ? (int)(us / 1000 + 1) : 0;
}

/* Gets messages, and plans the next pass. */
static int prepare_pass(struct server *s, struct err *e)
{
    const int wait = should_end(s) ? 0 : wait_ms(s);
    if (s->door->receive(s->door->arg, wait, s->unsent, e)) return -1;
    if (infer_check_stop(s->in, e)) return -1;
    check_drain(s);
    serve_read_some(&s->reader, s->asks, s->out);
    if (serve_asks_open(s->asks)) s->used_us = now_us(s);
    if (serve_asks_send(s->asks, s->door, &s->unsent, e)) return -1;
    if (serve_meter_tell(&s->meter, s->door, s->out, false, e)) return -1;
    plan_pass(s);
    s->pass.ends = should_end(s);
    return 0;
}

/* ---- rank 0: after a pass -------------------------------------------------------------------- */

/* Keeps the pages of the last continuation. */
static void keep_answer(struct server *s, int k)
{
    const struct infer_work *w = &s->work[k];
    const struct request *r = &w->request;
    pages_keep(&s->pages, k,
               &(struct pages_text){.prompt = r->tokens,
                                    .answer = w->tokens,
                                    .n_prompt = r->n_tokens,
                                    .n_answer = s->in->model->cache[k].n_tokens - r->n_tokens});
}

/* Leaves the slot of a complete request. In a model with states the slot first computes the answer
 * again, because new tokens leave other bits than a prompt does. */
static void leave_slot(struct server *s, int k)
{
    if (is_paged(s) && !s->pages.o.states) keep_answer(s, k);
    if (!serve_reread_begin(&s->reread, &s->work[k])) {
        forget(s, k);
        return;
    }
    infer_answer_fini(&s->slot[k].answer);
    s->work[k].out = NULL;
}

static int end_slot(struct server *s, int k, struct err *e)
{
    struct serve_slot *slot = &s->slot[k];
    struct serve_request *q = s->door ? serve_asks_at(s->asks, k) : NULL;
    struct serve_request *const whole = serve_asks_whole(q);
    progress_tokens(s->progress, slot->answer.n_generated);
    pace_sum(&s->out->prefill, &slot->answer.prefill);
    const int rc = q ? serve_read_answer(&s->reader, q, &slot->request, &slot->answer, e) : 0;
    serve_read_count(whole, s->out);
    leave_slot(s, k);
    return rc;
}

static int finish_pass(struct server *s, struct err *e)
{
    serve_meter_pass(&s->meter, s->work, s->n, &s->steps);
    serve_meter_pages(&s->meter, s->out->n_pages, is_paged(s) ? pages_used(&s->pages) : 0);
    for (int k = 0; k < s->n; k++) {
        if (!s->work[k].out) continue;
        struct serve_request *q = s->door ? serve_asks_at(s->asks, k) : NULL;
        if (q && serve_read_stream(&s->reader, q, &s->work[k], &s->slot[k].answer, e)) return -1;
        /* there was no memory for a part of its answer */
        if (q && q->state != SERVE_AT_WORK) s->asks->dropped |= (uint64_t)1 << k;
        if (s->work[k].done && end_slot(s, k, e)) return -1;
    }
    if (!s->door) return 0;
    if ((double)s->out->n_requests > progress_done(s->progress))
        progress_at(s->progress, (double)s->out->n_requests);
    /* first, because this takes messages, which may end requests */
    s->drains = s->door->draining(s->door->arg);
    /* now, because rank 0 may wait for messages before the next pass */
    return serve_asks_send(s->asks, s->door, &s->unsent, e);
}

/* ---- the job --------------------------------------------------------------------------------- */

static int serve(struct server *s, struct err *e)
{
    infer_at(s->in, 0);
    for (;;) {
        if (s->door && prepare_pass(s, e)) return -1;
        if (share(s, &s->pass, sizeof s->pass, e)) return -1;
        if (!s->door && infer_check_stop(s->in, e)) return -1;
        s->out->n_passes++;
        if (s->pass.ends) break;
        if (run_pass(s, e) || finish_pass(s, e)) return -1;
    }
    s->out->ledger_equal &= infer_settle(s->in, s->work, s->n, &s->steps);
    s->out->decode = s->steps.pace;
    return infer_agree(s->in, &s->out->ledger_equal, e);
}

static int open_pages(struct server *s, struct err *e)
{
    const struct model *m = s->in->model;
    const struct plan *p = m->plan;
    if (!p->paged) return 0;
    for (int k = 0; k < s->n; k++) s->table[k] = m->cache[k].pages;
    s->out->n_pages = p->n_pages * p->sp;
    const struct pages_options o = {.P = p->sp,
                                    .rank = m->sp.shard.r,
                                    .n_pages = p->n_pages,
                                    .n_slots = s->n,
                                    .longest = p->seq_len,
                                    .states = paged_states(&m->shape),
                                    .n_states = p->n_kept_states,
                                    .table = s->table};
    if (pages_init(&s->pages, &o, e)) return -1;
    return serve_reread_open(&s->reread, s->in, &s->pages, s->n, e);
}

int serve_run(const struct infer *in, const struct serve_door *door, struct serve_result *out,
              struct err *e)
{
    struct server *s = calloc(1, sizeof *s);
    int rc = -1;
    *out = (struct serve_result){.ledger_equal = true};
    if (!s) return err_set(e, ERR_IO, "out of memory for a server");
    s->own = *in;
    s->own.progress = NULL;
    s->in = &s->own;
    s->progress = in->progress;
    s->door = door;
    s->asks = door ? door->asks : NULL;
    s->n = in->model->plan->batch;
    s->out = out;
    serve_read_open(&s->reader, in, s->n);
    s->embeds = job_embeds(in->spec);
    if (open_pages(s, e)) goto out;
    if (s->embeds ? serve_embed_open(&s->embed, s->in, e)
                  : infer_work_init(s->work, s->in, door != NULL, e))
        goto out;
    in->model->progress = NULL;
    progress_begin(s->progress, PROGRESS_REQUESTS, 0, 0);
    if (door) serve_meter_open(&s->meter, s->used_us = now_us(s));
    rc = serve(s, e);
    if (rc && e) infer_name_adapter(in, e);
    if (!rc) progress_end(s->progress);
    if (!rc && door) rc = serve_meter_tell(&s->meter, door, out, true, e);
    if (door) out->n_dropped = s->asks->n_dropped;
out:
    serve_meter_result(&s->meter, out);
    serve_reread_close(&s->reread);
    for (int k = 0; k < s->n; k++) forget(s, k);
    pages_fini(&s->pages);
    serve_owners_fini(&s->owners);
    infer_work_fini(s->work, s->n);
    serve_embed_close(&s->embed);
    serve_read_fini(&s->reader);
    free(s);
    return rc;
}
