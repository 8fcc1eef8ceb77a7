/* answer.c: the answer of a request: its prompt, and the choice of each token. */
#include "worker/infer/infer.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/job.h"
#include "worker/hf/tokenizer.h"
#include "worker/model/finite.h"
#include "worker/plan/volume.h"

const char *infer_finish_name(enum infer_finish f)
{
    return f == FINISH_STOP ? "stop" : "length";
}

/* ---- working memory -------------------------------------------------------------------------- */

_Static_assert(SAMPLE_TOP == PLAN_ALTERNATIVES, "the plan counts them");

int infer_work_init(struct infer_work *w, const struct infer *in, bool reports, struct err *e)
{
    struct model *m = in->model;
    const int64_t V = m->shape.vocab, n = m->plan->n_decode, top = plan_alternatives(in->spec);
    assert(m->plan->kind == JOB_GENERATE && n == in->spec->sampling.max_tokens);
    *w = (struct infer_work){.n_top = (int)top};
    w->logits = model_take(m, PLAN_ANSWER_LOGITS, 2 * V * (int64_t)sizeof *w->logits);
    w->first = w->logits + V;
    sampler_init(&w->sampler, V, model_take(m, PLAN_SAMPLER, sampler_size(V)));
    w->tokens = model_take(m, PLAN_ANSWER_TOKENS, n * (int64_t)sizeof *w->tokens);
    if (reports && top >= 0) {
        const size_t token = sizeof *w->logprob + (size_t)top * sizeof *w->top;
        w->logprob = model_take(m, PLAN_ANSWER_LOGPROBS, n * (int64_t)token);
        w->top = (struct sample_top *)(w->logprob + n);
    }
    if (context_layout_init(&w->layout, &m->shape, e)) return -1;
    w->states = model_take(m, PLAN_CONTEXT_BEHIND, w->layout.size);
    return 0;
}

void infer_work_fini(struct infer_work *w)
{
    context_layout_fini(&w->layout);
    spell_fini(&w->spell);
    *w = (struct infer_work){0};
}

static void infer_tokens_fini(struct infer_tokens *t)
{
    free(t->id);
    free(t->logprob);
    free(t->top);
    *t = (struct infer_tokens){0};
}

/* Copies; logprob and top may be NULL. */
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

/* ---- the log-probabilities of a prompt ------------------------------------------------------- */

/* What one row says of the token after it: a double, then the alternatives. */
static size_t record_size(int n_top)
{
    return sizeof(double) + (size_t)n_top * sizeof(struct sample_top);
}

/* Records of this rank's rows; those without a token after them stay zero. Returns the first token
 * whose log-probability is NaN or infinity. */
static int64_t record_rows(const struct infer *in, struct infer_work *w, const struct request *r,
                           char *records)
{
    struct model *m = in->model;
    int64_t bad = FINITE_NONE;
    const struct shard *sh = &m->sp.shard;
    const int64_t V = m->shape.vocab, step = m->plan->loss_chunk;
    struct sample_top top[SAMPLE_TOP];
    for (int64_t row0 = 0; row0 < sh->T; row0 += step) {
        const int64_t n = row0 + step < sh->T ? step : sh->T - row0;
        const struct tensor logits = model_logits(m, row0, n);
        for (int64_t i = 0; i < n; i++) {
            const int64_t pos = shard_pos(sh, row0 + i);
            char *to = records + (size_t)(row0 + i) * record_size(r->logprobs);
            double chosen;
            if (pos + 1 >= r->n_tokens) continue;
            m->be->ops->download(m->be, w->logits, (float *)logits.data + i * logits.ld,
                                 V * (int64_t)sizeof(float));
            sample_logprobs(w->logits, V, r->tokens[pos + 1], &chosen, r->logprobs, top);
            memcpy(to, &chosen, sizeof chosen);
            memcpy(to + sizeof chosen, top, (size_t)r->logprobs * sizeof *top);
            if (!isfinite(chosen) && pos + 1 < bad) bad = pos + 1;
        }
    }
    return bad;
}

/* From rank order to the order of the prompt. */
static int order_records(const struct infer *in, const struct request *r, const char *records,
                         struct infer_tokens *out, struct err *e)
{
    const struct model *m = in->model;
    const int64_t T = m->sp.shard.T;
    if (tokens_keep(out, r->n_tokens, r->tokens, NULL, NULL, r->logprobs, e)) return -1;
    out->logprob = calloc((size_t)r->n_tokens, sizeof *out->logprob);
    out->top = calloc((size_t)(r->n_tokens * r->logprobs) + 1, sizeof *out->top);
    if (!out->logprob || !out->top)
        return err_set(e, ERR_IO, "out of memory for the prompt's log-probabilities");
    for (int q = 0; q < m->plan->sp; q++) {
        const struct shard sh = shard_of(&m->sp.shard, q);
        for (int64_t i = 0; i < T; i++) {
            const int64_t at = shard_pos(&sh, i) + 1;
            const char *from = records + (size_t)(q * T + i) * record_size(r->logprobs);
            if (at >= r->n_tokens) continue;
            memcpy(&out->logprob[at], from, sizeof(double));
            memcpy(&out->top[at * r->logprobs], from + sizeof(double),
                   (size_t)r->logprobs * sizeof *out->top);
        }
    }
    return 0;
}

/* After a forward pass of the prompt: its log-probabilities, gathered by rank 0. Collective. */
static int prompt_logprobs(const struct infer *in, struct infer_work *w, const struct request *r,
                           struct infer_tokens *out, struct err *e)
{
    struct model *m = in->model;
    const size_t mine = (size_t)m->sp.shard.T * record_size(r->logprobs);
    const bool first = m->sp.shard.r == 0;
    char *rows = calloc(1, mine), *all = rows;
    int64_t bad;
    int rc = -1;
    if (m->comm && first) all = malloc(mine * (size_t)m->plan->sp);
    if (!rows || !all) {
        err_set(e, ERR_IO, "out of memory for the prompt's log-probabilities");
        goto out;
    }
    bad = record_rows(in, w, r, rows);
    if (finite_least(m, &bad, e)) goto out;
    if (bad != FINITE_NONE) {
        finite_blame_forward(m, e, "the log-probability of token %lld of prompt %s", (long long)bad,
                             r->id);
        goto out;
    }
    if (m->comm && comm_gather(m->comm, PURPOSE_CONTROL, 0, rows, (int64_t)mine, all, m->bounce, e))
        goto out;
    rc = first ? order_records(in, r, all, out, e) : 0;
out:
    if (all != rows) free(all);
    free(rows);
    return rc;
}

/* ---- continuing ------------------------------------------------------------------------------ */

/* A prompt and the n tokens that were chosen after it. */
struct text_again {
    const struct infer *in;
    const struct request *r;
    const int32_t *tokens;
    int64_t n;
};

static int text_again(void *arg, struct err *e)
{
    const struct text_again *x = arg;
    struct tensor unused;
    int rc = infer_forward(x->in, x->r->tokens, x->r->n_tokens, e);
    for (int64_t i = 0; i < x->n && !rc; i++)
        rc = model_decode(x->in->model, x->tokens[i], &unused, e);
    return rc;
}

#define NOT_FINITE (-1) /* in place of a token: a logit is NaN or infinity */

static bool all_finite(const float *logits, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(logits[i])) return false;
    return true;
}

/* After n tokens of an answer, where every rank has found the same. */
static int blame_logits(const struct infer *in, const struct request *r, const int32_t *tokens,
                        int64_t n, struct err *e)
{
    struct text_again x = {in, r, tokens, n};
    return finite_blame(in->model, &(struct finite_again){text_again, &x}, e,
                        "a logit after token %lld of prompt %s", (long long)(r->n_tokens + n),
                        r->id);
}

/* The rank whose choice is not that of the most; of two that differ, the second. -1: all agree.
 * *like: a rank that chose as most did. */
static int odd_rank(const int64_t *choice, int P, int *like)
{
    int most = 0, odd = -1;
    for (int q = 0; q < P; q++) {
        int n = 0;
        for (int k = 0; k < P; k++) n += choice[k] == choice[q];
        if (n > most) most = n, *like = q;
    }
    for (int q = 0; q < P && odd < 0; q++)
        if (choice[q] != choice[*like]) odd = q;
    return odd;
}

static char *choice_text(char out[64], int rank, int64_t choice)
{
    if (choice == NOT_FINITE)
        snprintf(out, 64, "rank %d has logits that are NaN or infinity", rank);
    else
        snprintf(out, 64, "rank %d chose token %lld", rank, (long long)choice);
    return out;
}

/* Every rank chooses for itself, from logits that have to be the same bits: a rank that computes
 * wrongly would continue with a text of its own, and its keys would spoil those of all. */
static int agree_on(const struct infer *in, struct infer_work *w, const struct request *r,
                    int64_t position, int32_t token, struct err *e)
{
    struct model *m = in->model;
    char one[64], other[64];
    int like = 0;
    if (!m->comm) return 0;
    const int64_t *choice = comm_each_i64(m->comm, PURPOSE_CONTROL, token, m->bounce, e);
    if (!choice) return -1;
    w->n_choices++;
    const int odd = odd_rank(choice, m->plan->sp, &like);
    if (odd < 0) return 0;
    return err_set(
        e, ERR_CORRUPT,
        "after token %lld of prompt %s %s and %s: their logits should be the same bits, so one of "
        "them computes wrongly (memory, processor), or their processors are of different kinds",
        (long long)position, r->id, choice_text(one, odd, choice[odd]),
        choice_text(other, like, choice[like]));
}

/* The logits after the prompt from their owner, each choice, and of an echoed prompt the
 * log-probabilities. */
static int expect_shared(const struct infer *in, const struct infer_work *w,
                         const struct request *r, struct comm_count *want, struct err *e)
{
    const struct model *m = in->model;
    const int P = m->plan->sp, me = m->sp.shard.r;
    int64_t row;
    const int root = infer_owner(in, r->n_tokens - 1, &row, e);
    if (root < 0) return -1;
    volume_add(want, volume_broadcast(P, 4 * m->shape.vocab, me == root), 1);
    volume_add(want, volume_sum_small(P, 1), w->n_choices);
    if (r->echo && r->logprobs >= 0) {
        const int64_t mine = m->sp.shard.T * (int64_t)record_size(r->logprobs);
        volume_add(want, volume_gather(P, mine, me == 0), 1);
        volume_add(want, volume_sum_small(P, 1), 1);
    }
    return 0;
}

/* Of one request, since infer_at. */
static int compare_ledger(const struct infer *in, const struct infer_work *w,
                          const struct request *r, int64_t n_decodes, bool *equal, struct err *e)
{
    const struct model *m = in->model;
    struct comm_count want[PURPOSE_N];
    *equal = true;
    if (!m->comm) return 0;
    if (infer_expect(in, 1, want, e)) return -1;
    volume_add(&want[PURPOSE_DECODE], plan_decode_comm(&m->shape, m->plan->sp), n_decodes);
    if (expect_shared(in, w, r, &want[PURPOSE_CONTROL], e)) return -1;
    *equal = infer_moved(in, want);
    return 0;
}

static const struct token_ends bytes_end = {1, {TOKEN_EOD}};

static bool ends_text(const struct token_ends *ends, int32_t token)
{
    for (int i = 0; i < ends->n; i++)
        if (ends->id[i] == token) return true;
    return false;
}

/* may_end false: none of the ends. */
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
    const int32_t token = sampler_choose(&w->sampler, w->logits, &r->sample, -1, key);
    for (int i = n - 1; i >= 0; i--) /* backwards: an id may be there twice */
        if (ends->id[i] < w->sampler.n_vocab) w->logits[ends->id[i]] = kept[i];
    return token;
}

/* The last of n tokens becomes text. *stopped: how many of them are the stop string's that it
 * completes; *cut: with a tokenizer, the bytes of the whole text before that string. */
static int take_text(const struct infer *in, struct infer_work *w, struct request *r, int64_t n,
                     int64_t *stopped, int64_t *cut, struct err *e)
{
    const int32_t token = w->tokens[n - 1];
    if (!in->tokenizer) {
        *stopped = stop_feed(&r->stop, token < 256 ? token : -1);
        return 0;
    }
    if (spell_put(&w->spell, &r->stop, token, cut, e)) return -1;
    *stopped = *cut < 0 ? 0 : n - spell_tokens(&w->spell, *cut);
    return 0;
}

/* Keeps the text up to the stop string, which the last characters that the decoder held may have
 * completed. */
static int keep_text(struct infer_work *w, struct request *r, int64_t n, int64_t cut,
                     struct infer_choice *out, struct err *e)
{
    struct spell *s = &w->spell;
    if (cut < 0) {
        if (spell_finish(s, &r->stop, &cut, e)) return -1;
        if (cut >= 0 && n >= r->min_tokens) {
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

/* One continuation into w->tokens, after a prompt that is in the cache. */
static int continue_one(const struct infer *in, struct infer_work *w, struct request *r,
                        int64_t sequence, int64_t *n_out, struct infer_choice *out, struct err *e)
{
    struct model *m = in->model;
    const int64_t V = m->shape.vocab;
    const int n_top = r->logprobs > 0 ? r->logprobs : 0;
    const struct token_ends *const ends = in->ends ? in->ends : &bytes_end;
    struct sample_key key = r->key;
    int64_t n = 0, stopped = 0, cut = -1;
    key.sequence = sequence;
    out->finish = FINISH_LENGTH;
    stop_begin(&r->stop);
    sampler_rewind(&w->sampler);
    if (in->tokenizer && spell_begin(&w->spell, in->tokenizer, r->tokens, r->n_tokens, e))
        return -1;
    memcpy(w->logits, w->first, (size_t)V * sizeof *w->logits);
    while (n < r->max_tokens) {
        key.position = r->n_tokens + n;
        const bool may_end = !r->ignore_eos && n >= r->min_tokens;
        const bool finite = all_finite(w->logits, V);
        const int32_t token = finite ? choose(w, r, ends, may_end || r->ignore_eos, &key)
                                     : NOT_FINITE;
        if (agree_on(in, w, r, key.position, token, e)) return -1;
        if (!finite) return blame_logits(in, r, w->tokens, n, e);
        if (may_end && ends_text(ends, token)) {
            out->finish = FINISH_STOP;
            break;
        }
        if (w->logprob && r->logprobs >= 0)
            sample_logprobs(w->logits, V, token, &w->logprob[n], n_top, w->top + n * n_top);
        sampler_take(&w->sampler, token);
        w->tokens[n++] = token;
        progress_tokens(in->progress, 1);
        progress_part(in->progress,
                      (double)(sequence * r->max_tokens + n) / (double)(r->n * r->max_tokens));
        if (take_text(in, w, r, n, &stopped, &cut, e)) return -1;
        if ((stopped || cut >= 0) && n >= r->min_tokens) {
            out->finish = FINISH_STOP;
            break;
        }
        stopped = 0;
        cut = -1;
        if (n == r->max_tokens) break;
        struct tensor next;
        if (infer_check_stop(in, e) || model_decode(m, token, &next, e)) return -1;
        m->be->ops->download(m->be, w->logits, next.data, V * (int64_t)sizeof(float));
    }
    *n_out = n;
    out->n_text = n - stopped;
    return in->tokenizer ? keep_text(w, r, n, cut, out, e) : 0;
}

static int all_continuations(const struct infer *in, struct infer_work *w, struct request *r,
                             struct infer_answer *out, struct err *e)
{
    struct model *m = in->model;
    const bool logprobs = w->logprob && r->logprobs >= 0;
    w->n_choices = 0;
    for (int64_t c = 0; c < r->n; c++) {
        struct infer_choice *choice = &out->choice[c];
        int64_t n = 0;
        if (c > 0) model_rewind(m);
        if (c > 0 && w->states) context_put(m, &w->layout, w->states);
        const int64_t begin_us = clock_us();
        if (continue_one(in, w, r, c, &n, choice, e)) return -1;
        pace_until_now(&out->decode, m->n_decoded, begin_us);
        if (tokens_keep(&choice->tokens, n, w->tokens, logprobs ? w->logprob : NULL, w->top,
                        logprobs ? r->logprobs : 0, e))
            return -1;
        out->n_generated += n;
    }
    return compare_ledger(in, w, r, out->decode.n, &out->ledger_equal, e);
}

/* The prompt is a part of its request, by tokens; what is generated is the rest. */
static int forward_prompt(const struct infer *in, const struct request *r, struct infer_answer *out,
                          struct err *e)
{
    const int64_t begin_us = clock_us();
    const double at = progress_done(in->progress), n = (double)(r->n * r->max_tokens);
    const double prompt = (double)r->n_tokens / ((double)r->n_tokens + n);
    progress_piece(in->progress, at, prompt);
    if (infer_forward(in, r->tokens, r->n_tokens, e)) return -1;
    pace_until_now(&out->prefill, r->n_tokens, begin_us);
    progress_piece(in->progress, at + prompt, 1 - prompt);
    return 0;
}

int infer_answer(const struct infer *in, struct infer_work *w, const struct request *request,
                 struct infer_answer *out, struct err *e)
{
    struct request *r = &w->request; /* a copy: matching stop strings moves their states */
    *out = (struct infer_answer){.n = request->n};
    *r = *request;
    out->choice = calloc((size_t)r->n, sizeof *out->choice);
    if (!out->choice)
        return err_set(e, ERR_IO, "out of memory for %lld continuations", (long long)r->n);
    assert(r->logprobs <= w->n_top);
    if (infer_check_length(in, r->n_tokens, e) || forward_prompt(in, r, out, e)) goto fail;
    if (w->states) context_take(in->model, &w->layout, w->states);
    sampler_begin(&w->sampler, r->tokens, r->n_tokens);
    if (r->echo && r->logprobs >= 0 && prompt_logprobs(in, w, r, &out->prompt, e)) goto fail;
    if (infer_last_logits(in, r->n_tokens, w->first, e) || all_continuations(in, w, r, out, e))
        goto fail;
    return 0;
fail:
    infer_answer_fini(out);
    return -1;
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
