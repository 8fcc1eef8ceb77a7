/* answer.c: answers requests: computes their prompts, chooses each token, and runs the passes,
 * each of which computes a token for several requests. */
#include "worker/infer/infer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/job.h"
#include "api/core/mem.h"
#include "api/core/mutant.h"
#include "worker/hf/tokenizer.h"
#include "worker/infer/agree.h"
#include "worker/infer/prefill.h"
#include "worker/model/finite.h"
#include "worker/plan/volume.h"

const char *infer_finish_name(enum infer_finish f)
{
    return f == FINISH_STOP ? "stop" : "length";
}

/* ---- working memory -------------------------------------------------------------------------- */

_Static_assert(SAMPLE_TOP == PLAN_ALTERNATIVES, "the plan counts them");

/* Returns the part of a plan's item that belongs to a slot. */
static void *slot_take(struct model *m, enum plan_id id, int64_t size, int slot)
{
    const int64_t stride = mem_round(size, MEM_ALIGN);
    char *all = model_take(m, id, (m->plan->batch - 1) * stride + size);
    return all ? all + slot * stride : NULL;
}

/* Returns the memory for the log-probabilities of a piece, of this rank and, with several ranks, of
 * each rank. All slots share it. */
static char *records_take(struct model *m, int64_t n_top)
{
    const int64_t record = (int64_t)(sizeof(double) + (size_t)n_top * sizeof(struct sample_top));
    const int64_t n = m->plan->sp > 1 ? m->plan->sp + 1 : 1;
    return model_take(m, PLAN_PROMPT_LOGPROBS, n * m->plan->T * record);
}

static int slot_init(struct infer_work *w, const struct infer *in, int slot, bool reports,
                     struct err *e)
{
    struct model *m = in->model;
    const int64_t V = m->shape.vocab, n = m->plan->n_decode, top = plan_alternatives(in->spec);
    *w = (struct infer_work){.slot = slot, .n_top = (int)top};
    w->logits = slot_take(m, PLAN_ANSWER_LOGITS, 2 * V * (int64_t)sizeof *w->logits, slot);
    w->first = w->logits + V;
    sampler_init(&w->sampler, V, slot_take(m, PLAN_SAMPLER, sampler_size(V), slot));
    w->tokens = slot_take(m, PLAN_ANSWER_TOKENS, n * (int64_t)sizeof *w->tokens, slot);
    if (reports && top >= 0) {
        const size_t token = sizeof *w->logprob + (size_t)top * sizeof *w->top;
        w->logprob = slot_take(m, PLAN_ANSWER_LOGPROBS, n * (int64_t)token, slot);
        w->top = (struct sample_top *)(w->logprob + n);
    }
    if (m->plan->paged) w->records = records_take(m, top);
    if (context_layout_init(&w->layout, &m->shape, e)) return -1;
    w->states = slot_take(m, PLAN_CONTEXT_BEHIND, w->layout.size, slot);
    return 0;
}

int infer_work_init(struct infer_work *w, const struct infer *in, bool reports, struct err *e)
{
    const struct plan *p = in->model->plan;
    assert(p->kind == JOB_GENERATE && p->n_decode == in->spec->sampling.max_tokens);
    memset(w, 0, (size_t)p->batch * sizeof *w);
    for (int i = 0; i < p->batch; i++)
        if (slot_init(&w[i], in, i, reports, e)) return -1;
    return 0;
}

void infer_work_fini(struct infer_work *w, int n)
{
    for (int i = 0; i < n; i++) {
        context_layout_fini(&w[i].layout);
        spell_fini(&w[i].spell);
        steer_fini(&w[i].steer);
        w[i] = (struct infer_work){0};
    }
}

static void infer_tokens_fini(struct infer_tokens *t)
{
    free(t->id);
    free(t->logprob);
    free(t->top);
    *t = (struct infer_tokens){0};
}

/* Copies tokens with their log-probabilities. logprob and top may be NULL. */
static int tokens_keep(struct infer_tokens *t, int64_t n, const int32_t *id, const double *logprob,
                       const struct sample_top *top, int n_top, struct err *e)
{
    const size_t k = (size_t)n, tops = k * (size_t)n_top;
    *t = (struct infer_tokens){.n = n, .n_top = n_top};
    t->id = malloc((k + 1) * sizeof *t->id);
    if (logprob) t->logprob = malloc((k + 1) * sizeof *t->logprob);
    if (logprob) t->top = malloc((tops + 1) * sizeof *t->top);
    if (!t->id || (logprob && (!t->logprob || !t->top))) {
        infer_tokens_fini(t);
        return err_set(e, ERR_IO, "out of memory for %lld tokens", (long long)n);
    }
    if (n) memcpy(t->id, id, k * sizeof *id);
    if (n && logprob) memcpy(t->logprob, logprob, k * sizeof *logprob);
    if (tops && logprob) memcpy(t->top, top, tops * sizeof *top);
    return 0;
}

/* ---- continuing ------------------------------------------------------------------------------ */

/* Reports that a logit of an answer is NaN or infinite. All ranks call this function, and they
 * report the same logit. */
static int blame_logits(const struct infer *in, const struct infer_work *w, struct err *e)
{
    struct prefill_again x = {in, w};
    return finite_blame(in->model, &(struct finite_again){prefill_again, &x}, e,
                        "a logit after token %lld of prompt %s",
                        (long long)(w->request.n_tokens + w->n), w->request.id);
}

bool infer_settle(const struct infer *in, struct infer_work *w, int n, struct infer_steps *steps)
{
    const struct model *m = in->model;
    const int P = m->plan->sp;
    struct comm_count want[PURPOSE_N] = {0};
    if (!m->comm) return true;
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < PURPOSE_N; k++) volume_add(&want[k], w[i].want[k], 1);
        memset(w[i].want, 0, sizeof w[i].want);
    }
    for (int rows = 1; rows <= n; rows++) {
        volume_add(&want[PURPOSE_DECODE], plan_decode_comm(&m->shape, P, rows),
                   steps->n_passes[rows]);
        volume_add(&want[PURPOSE_CONTROL], volume_sum_small(P, rows), steps->n_choices[rows]);
        steps->n_passes[rows] = steps->n_choices[rows] = 0;
    }
    return infer_moved(in, want);
}

static const struct token_ends bytes_end = {1, {TOKEN_EOD}};

static bool ends_text(const struct token_ends *ends, int32_t token)
{
    for (int i = 0; i < ends->n; i++)
        if (ends->id[i] == token) return true;
    return false;
}

/* Chooses a token, or AGREE_NO_TOKEN. If may_end is false, a token that ends the text is not
 * chosen. */
static int32_t choose(struct infer_work *w, const struct request *r, const struct token_ends *ends,
                      bool may_end, const struct sample_key *key)
{
    float kept[TOKEN_ENDS];
    const int n = may_end ? 0 : ends->n;
    for (int i = 0; i < n; i++) {
        if (ends->id[i] >= w->sampler.n_vocab) continue;
        kept[i] = w->logits[ends->id[i]];
        w->logits[ends->id[i]] = -INFINITY;
    }
    w->sampler.bias = r->bias;
    w->sampler.n_bias = r->n_bias;
    const int32_t token = steer_stuck(r, w->sampler.allowed)
                              ? AGREE_NO_TOKEN
                              : sampler_choose(&w->sampler, w->logits, &r->sample, -1, key);
    for (int i = n - 1; i >= 0; i--) { /* go through the list in descending order, because an
                                        * id may be listed twice */
        const int at = mutant_on(MUTANT_END_TWICE) ? n - 1 - i : i;
        if (ends->id[at] < w->sampler.n_vocab) w->logits[ends->id[at]] = kept[at];
    }
    return token;
}

/* Adds the token that was chosen last to the text of the answer. If the token completes a stop
 * string, w->stopped becomes the number of tokens of the stop string. If there is a tokenizer,
 * sets w->cut instead: to the number of bytes of the text before the stop string, or to -1 if
 * no stop string is complete. */
static int take_text(const struct infer *in, struct infer_work *w, struct err *e)
{
    struct stop *stop = &w->request.stop;
    const int32_t token = w->tokens[w->n - 1];
    w->cut = -1;
    if (!in->tokenizer) {
        w->stopped = stop_feed(stop, token < 256 ? token : -1);
        return 0;
    }
    if (spell_put(&w->spell, stop, token, &w->cut, e)) return -1;
    w->stopped = w->cut < 0 ? 0 : w->n - spell_tokens(&w->spell, w->cut);
    return 0;
}

/* First gets from the decoder the rest of the continuation's text, because this rest may
 * complete a stop string. Then stores the text up to the stop string, or the whole text if it
 * has no stop string. */
static int keep_text(struct infer_work *w, struct infer_choice *out, struct err *e)
{
    struct spell *s = &w->spell;
    int64_t cut = w->cut;
    if (cut < 0) {
        if (spell_finish(s, &w->request.stop, &cut, e)) return -1;
        if (cut >= 0 && w->n >= w->request.min_tokens) {
            out->finish = FINISH_STOP;
            out->n_text = spell_tokens(s, cut);
        } else {
            cut = s->all.n;
        }
    }
    out->begin = s->begin;
    out->size = cut;
    out->text = malloc((size_t)cut + 1);
    out->token_end = malloc((size_t)(s->n + 1) * sizeof *out->token_end);
    if (!out->text || !out->token_end)
        return err_set(e, ERR_IO, "out of memory for a text of %lld bytes", (long long)cut);
    if (cut) memcpy(out->text, s->all.data, (size_t)cut);
    out->text[cut] = 0;
    if (s->n) memcpy(out->token_end, s->end, (size_t)s->n * sizeof *out->token_end);
    return 0;
}

static struct infer_choice *choice_of(const struct infer_work *w)
{
    return &w->out->choice[w->sequence];
}

/* Begins a continuation in w->tokens. The prompt of the request is in the cache. */
static int begin_choice(const struct infer *in, struct infer_work *w, struct err *e)
{
    struct request *r = &w->request;
    w->n = w->stopped = 0;
    w->cut = -1;
    choice_of(w)->finish = FINISH_LENGTH;
    stop_begin(&r->stop);
    sampler_rewind(&w->sampler);
    steer_rewind(&w->steer, r);
    memcpy(w->logits, w->first, (size_t)in->model->shape.vocab * sizeof *w->logits);
    if (!in->tokenizer) return 0;
    return spell_begin(&w->spell, in->tokenizer, r->tokens, r->n_tokens, e);
}

static int end_choice(const struct infer *in, struct infer_work *w, struct err *e)
{
    const struct request *r = &w->request;
    struct infer_choice *out = choice_of(w);
    const bool logprobs = w->logprob && r->logprobs >= 0;
    out->n_text = w->n - w->stopped;
    w->out->n_generated += w->n;
    if (in->tokenizer && keep_text(w, out, e)) return -1;
    return tokens_keep(&out->tokens, w->n, w->tokens, logprobs ? w->logprob : NULL, w->top,
                       logprobs ? r->logprobs : 0, e);
}

static void note_token(const struct infer *in, struct infer_work *w)
{
    const struct request *r = &w->request;
    const double prompt = prefill_part(r), n = (double)(w->sequence * r->max_tokens + w->n);
    progress_tokens(in->progress, 1);
    prefill_done_part(in, w, prompt + (1 - prompt) * n / (double)(r->n * r->max_tokens));
}

static const struct token_ends *ends_of(const struct infer *in)
{
    return in->ends ? in->ends : &bytes_end;
}

/* Works that choose tokens at the same time. */
struct choosing {
    const struct infer *in;
    struct infer_work *const *at;
};

/* Tells whether a token would end the text here. Such a token is not added to the text. */
static bool ends_here(const struct infer *in, const struct infer_work *w, int32_t token)
{
    const struct request *r = &w->request;
    return !r->ignore_eos && w->n >= r->min_tokens && ends_text(ends_of(in), token);
}

/* Computes the log-probabilities of the token that this rank has chosen, if they are wanted. */
static void record_choice(const struct infer *in, struct infer_work *w)
{
    const int n_top = w->request.logprobs;
    const int32_t token = (int32_t)w->choice;
    if (!w->logprob || n_top < 0 || w->choice < 0 || ends_here(in, w, token)) return;
    sample_logprobs(w->logits, in->model->shape.vocab, token, &w->logprob[w->n], n_top,
                    w->top + w->n * n_top);
}

/* Chooses the next token of work i from its logits, on this rank, without a message to other
 * ranks, and records its log-probabilities. */
static void choose_next(void *arg, int64_t i, int worker)
{
    const struct choosing *c = arg;
    struct infer_work *w = c->at[i];
    const struct request *r = &w->request;
    const struct token_ends *const ends = ends_of(c->in);
    struct sample_key key = r->key;
    (void)worker;
    key.sequence = w->sequence;
    key.position = r->n_tokens + w->n;
    w->choice = sample_finite(w->logits, c->in->model->shape.vocab)
                    ? choose(w, r, ends, w->n >= r->min_tokens || r->ignore_eos, &key)
                    : AGREE_NOT_FINITE;
    record_choice(c->in, w);
}

/* Chooses a token for each work in the array at [n]. Then the ranks compare their choices. */
static int choose_tokens(const struct infer *in, struct infer_work *const *at, int n,
                         struct infer_steps *steps, struct err *e)
{
    struct model *m = in->model;
    struct agree_choice choice[JOB_MAX_BATCH];
    /* the works share the memory in which a mask is made */
    for (int i = 0; i < n; i++)
        at[i]->sampler.allowed = steer_mask(&at[i]->steer, &at[i]->request, ends_of(in));
    be_host_run(m->be, choose_next, &(struct choosing){in, at}, n);
    for (int i = 0; i < n; i++) {
        const struct request *r = &at[i]->request;
        choice[i] = (struct agree_choice){at[i]->choice, r->id, r->n_tokens + at[i]->n};
    }
    const int bad = agree_on(m->comm, m->bounce, choice, n, e);
    if (m->comm) steps->n_choices[n]++;
    if (bad == n) return 0;
    return bad < 0 ? -1 : blame_logits(in, at[bad], e);
}

/* Adds the token that all ranks have chosen. Sets *ended if the token ends the text, if it
 * completes a stop string, or if the continuation has its full length. A token that ends the text
 * is not added. A text that no token may continue ends as it would at its full length. */
static int take_token(const struct infer *in, struct infer_work *w, bool *ended, struct err *e)
{
    const struct request *r = &w->request;
    const struct token_ends *const ends = ends_of(in);
    const int32_t token = (int32_t)w->choice;
    bool closed;
    *ended = true;
    w->stopped = 0;
    w->cut = -1;
    if (w->choice == AGREE_NO_TOKEN) return 0;
    if (ends_here(in, w, token)) {
        choice_of(w)->finish = FINISH_STOP;
        return 0;
    }
    sampler_take(&w->sampler, token);
    w->tokens[w->n++] = token;
    note_token(in, w);
    if (take_text(in, w, e)) return -1;
    *ended = (w->stopped || w->cut >= 0) && w->n >= r->min_tokens;
    if (!*ended) w->stopped = 0, w->cut = -1;
    if (steer_take(&w->steer, r, token, ends, &closed, e)) return -1;
    if (*ended || closed) choice_of(w)->finish = FINISH_STOP;
    *ended |= closed || w->n == r->max_tokens;
    return 0;
}

/* Rewinds the cache to the end of the prompt. Restores the states after the prompt if there are
 * any. */
static void rewind_slot(const struct infer *in, struct infer_work *w)
{
    model_use(in->model, w->slot);
    if (in->model->plan->paged)
        in->model->cache[w->slot].n_tokens = w->request.n_tokens;
    else
        model_rewind(in->model);
    if (w->states) context_put(in->model, &w->layout, w->states);
}

/* Ends a continuation, and then begins the next one or completes the answer. */
static int next_choice(const struct infer *in, struct infer_work *w, struct err *e)
{
    if (end_choice(in, w, e)) return -1;
    if (++w->sequence < w->request.n) {
        rewind_slot(in, w);
        return begin_choice(in, w, e);
    }
    w->done = true;
    prefill_done_part(in, w, 1);
    return 0;
}

/* Runs each work until its answer is complete, or until a pass for its newest token
 * w->tokens[w->n - 1] is needed. If a continuation has ended, the next round of the loop
 * chooses the first token of the next continuation. */
static int advance(const struct infer *in, struct infer_work *w, int n, struct infer_steps *steps,
                   struct err *e)
{
    struct infer_work *at[JOB_MAX_BATCH];
    int n_at = 0;
    for (int i = 0; i < n; i++) {
        if (!w[i].out || w[i].done || w[i].prefills) continue;
        while (!w[i].request.max_tokens && !w[i].done)
            if (next_choice(in, &w[i], e)) return -1;
        if (!w[i].done) at[n_at++] = &w[i];
    }
    while (n_at) {
        int n_next = 0;
        if (choose_tokens(in, at, n_at, steps, e)) return -1;
        for (int i = 0; i < n_at; i++) {
            bool ended;
            if (take_token(in, at[i], &ended, e)) return -1;
            if (!ended) continue;
            if (next_choice(in, at[i], e)) return -1;
            if (!at[i]->done) at[n_next++] = at[i];
        }
        n_at = n_next;
    }
    return 0;
}

/* Copies the logits of each row of a pass to the row's work. */
static int take_logits(const struct infer *in, struct infer_work *w, const struct model_next *next,
                       int n, struct err *e)
{
    struct model *m = in->model;
    const int64_t V = m->shape.vocab;
    const int most = (int)(m->plan->loss_chunk < n ? m->plan->loss_chunk : n);
    for (int from = 0; from < n; from += most) {
        const int rows = n - from < most ? n - from : most;
        struct tensor t;
        if (model_decoded(m, from, rows, &t, e)) return -1;
        for (int i = 0; i < rows; i++)
            m->be->ops->download(m->be, w[next[from + i].slot].logits, (float *)t.data + i * t.ld,
                                 V * (int64_t)sizeof(float));
    }
    return 0;
}

int infer_step(const struct infer *in, struct infer_work *w, int n, struct infer_steps *steps,
               struct err *e)
{
    struct model_next next[JOB_MAX_BATCH];
    const int64_t begin_us = clock_us();
    int rows = 0;
    if (advance(in, w, n, steps, e)) return -1;
    for (int i = 0; i < n; i++)
        if (w[i].out && !w[i].done && !w[i].prefills)
            next[rows++] = (struct model_next){w[i].slot, w[i].tokens[w[i].n - 1]};
    if (rows) {
        if (infer_check_stop(in, e) || model_decode_all(in->model, next, rows, e)) return -1;
        steps->n_passes[rows]++;
        if (take_logits(in, w, next, rows, e)) return -1;
    }
    pace_until_now(&steps->pace, rows, begin_us);
    return 0;
}

/* Computes the prompt, and begins the first continuation. With pages, leaves both to
 * infer_piece. */
static int begin_answer(const struct infer *in, struct infer_work *w, struct err *e)
{
    struct model *m = in->model;
    const struct request *r = &w->request;
    model_use(m, w->slot);
    if (m->shape.adapters.n) model_use_adapter(m, r->adapter);
    sampler_begin(&w->sampler, r->tokens, r->n_tokens);
    if (m->plan->paged) {
        w->prefills = true;
        w->n_prefilled = w->out->n_kept = m->cache[w->slot].n_tokens;
        return 0;
    }
    return prefill_whole(in, w, e) || begin_choice(in, w, e) ? -1 : 0;
}

int infer_piece(const struct infer *in, struct infer_work *w, struct err *e)
{
    assert(w->out && w->prefills);
    if (prefill_piece(in, w, e)) return -1;
    if (w->n_prefilled < w->request.n_tokens) return 0;
    w->prefills = false;
    return begin_choice(in, w, e);
}

int infer_begin(const struct infer *in, struct infer_work *w, const struct request *r,
                struct infer_answer *out, struct err *e)
{
    *out = (struct infer_answer){.n = r->n};
    /* a copy, because the search for stop strings changes its state in the request */
    w->request = *r;
    w->out = out;
    w->done = w->prefills = false;
    w->sequence = w->n = 0;
    w->part = 0;
    assert(r->logprobs <= w->n_top);
    out->choice = calloc((size_t)r->n, sizeof *out->choice);
    if (!out->choice)
        return err_set(e, ERR_IO, "out of memory for %lld continuations", (long long)r->n);
    if (steer_begin(&w->steer, r, in->model->shape.vocab, e)) return -1;
    return infer_check_length(in, r->n_tokens, e) || begin_answer(in, w, e) ? -1 : 0;
}

void infer_answer_fini(struct infer_answer *a)
{
    for (int64_t i = 0; a->choice && i < a->n; i++) {
        infer_tokens_fini(&a->choice[i].tokens);
        free(a->choice[i].text);
        free(a->choice[i].token_end);
    }
    free(a->choice);
    infer_tokens_fini(&a->prompt);
    *a = (struct infer_answer){0};
}
