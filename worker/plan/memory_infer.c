/* memory_infer.c: places the additional buffers of generate and score. Prompts and answers are not
 * among them, because their sizes are in the requests. */
#include "api/core/job.h"
#include "api/core/mem.h"
#include "worker/family/family.h"
#include "worker/plan/placer.h"
#include "worker/program/rope.h"

int plan_alternatives(const struct job_spec *spec)
{
    return job_has_bodies(spec) ? PLAN_ALTERNATIVES : spec->sampling.logprobs;
}

int64_t plan_positions(const struct job_spec *s)
{
    const struct model_shape *m = &s->model.shape;
    if (spec_new_model(s)) return INT64_MAX; /* it is made as long as the job says */
    if (family_row(m)->position_table) return family_positions(m);
    if (m->max_pos < 1 || !family_rotates(m)) return INT64_MAX;
    const double n = rope_positions(m, s->model.rope.type != 0);
    return n < (double)INT64_MAX ? (int64_t)n : INT64_MAX;
}

int plan_batch_worth(const struct plan *p, int64_t memory_limit, enum plan_batch *by)
{
    const double weights = (double)p->item[PLAN_PARAMS].size, eighth = (double)memory_limit / 8;
    const double cache = (double)p->item[PLAN_CACHES].size / p->batch;
    const double room = eighth > weights ? eighth : weights;
    int n = 1;
    while (n < JOB_AUTO_BATCH && 32 * weights >= (n + 1) * (weights + n * cache)) n++;
    *by = n == JOB_AUTO_BATCH ? BATCH_MOST : BATCH_WORTH;
    if (n > 1 && n * cache > room) *by = BATCH_CACHES;
    while (n > 1 && n * cache > room) n--;
    return n;
}

void memory_contexts(struct placer *b, const struct family *f)
{
    int64_t size = 0; /* bytes of the states of the largest layer */
    for (int k = 0; k < f->n_kinds; k++) {
        const int64_t own = b->p->shards.n_all[ZERO_LAYER + k] ? placement_states_size(&f->layer[k])
                                                               : 0;
        if (own > size) size = own;
    }
    const bool generate = b->p->kind == JOB_GENERATE;
    const bool before = generate && *spec_text(b->spec, b->spec->context.load);
    const int64_t layers = placer_times(b, size, b->m->n_layers), batch = b->p->batch;
    const struct placer_want all[] = {
        {PLAN_CONTEXT_BEFORE, "context_before", PLAN_CACHE, layers, before, .host = HOST_TOO},
        {PLAN_CONTEXT_BEHIND, "context_behind", PLAN_CACHE, layers, generate ? batch : 0,
         .host = HOST_ALONE},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) placer_put(b, &all[i]);
}

static void put_generate(struct placer *b)
{
    const int64_t V = b->m->vocab, n = b->p->n_decode, top = plan_alternatives(b->spec);
    /* bytes of one token: its log-probability, and an id and a log-probability for each
     * alternative */
    const int64_t token = 8 + 16 * (top > 0 ? top : 0);
    const int64_t batch = b->p->batch;
    const struct placer_want all[] = {
        {PLAN_ANSWER_LOGITS, "answer_logits", PLAN_WORKSPACE, placer_times(b, V, 2 * 4), batch,
         .host = HOST_ALONE},
        {PLAN_SAMPLER, "sampler", PLAN_WORKSPACE, placer_times(b, V, 2 * 8 + 2 * 4 + 1), batch,
         .host = HOST_ALONE},
        {PLAN_ANSWER_TOKENS, "answer_tokens", PLAN_DATA, placer_times(b, n, 4), batch,
         .host = HOST_ALONE},
        {PLAN_ANSWER_LOGPROBS, "answer_logprobs", PLAN_DATA, placer_times(b, n, token),
         top >= 0 ? batch : 0, .host = HOST_ALONE},
        {PLAN_PROMPT_LOGPROBS, "prompt_logprobs", PLAN_DATA,
         placer_times(b, (b->p->sp > 1 ? b->p->sp + 1 : 1) * token, b->p->T),
         b->p->paged && top >= 0, .host = HOST_ALONE},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) placer_put(b, &all[i]);
}

static void put_score(struct placer *b)
{
    const struct plan *p = b->p;
    const int64_t bucket = b->spec->score.by_position_bucket;
    const int64_t n_buckets = bucket > 0 ? (p->S + bucket - 1) / bucket : 0;
    const int64_t rows = placer_times(b, placer_times(b, p->sp, p->T), 2 * 8);
    const struct placer_want all[] = {
        {PLAN_SCORE_WINDOW, "score_window", PLAN_DATA, placer_times(b, p->S, 4 + 1), 1,
         .host = HOST_ALONE},
        {PLAN_SCORE_ROWS, "score_rows", PLAN_DATA, rows, 1, .host = HOST_ALONE},
        {PLAN_SCORE_BUCKETS, "score_buckets", PLAN_DATA, placer_times(b, n_buckets, 3 * 8), 1,
         .host = HOST_ALONE},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) placer_put(b, &all[i]);
}

void memory_infer(struct placer *b)
{
    if (b->p->kind == JOB_GENERATE && b->m->vocab > 0 && !b->p->grid[0]) put_generate(b);
    if (b->p->kind == JOB_SCORE) put_score(b);
}
