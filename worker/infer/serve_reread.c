/* serve_reread.c: pieces of answers. A piece is at most a page of each rank, so that a request that
 * comes in the meantime waits for little. */
#include "worker/infer/serve_reread.h"

#include <stdlib.h>
#include "api/core/assert.h"
#include "api/core/mutant.h"
#include "worker/infer/prefill.h"
#include "worker/plan/paged.h"
#include "worker/plan/volume.h"

/* Returns the tokens of the largest piece. */
static int64_t most_tokens(const struct plan *p)
{
    const int64_t pages = (int64_t)p->sp * CACHE_PAGE;
    return pages < p->piece ? pages : p->piece;
}

int serve_reread_open(struct serve_reread *s, const struct infer *in, struct pages *p, int n,
                      struct err *e)
{
    const struct plan *plan = in->model->plan;
    *s = (struct serve_reread){.in = in, .pages = p, .n = n};
    if (!plan->n_kept_states) return 0;
    s->tokens = malloc((size_t)most_tokens(plan) * sizeof *s->tokens);
    return s->tokens ? 0 : err_set(e, ERR_IO, "out of memory for a piece of an answer");
}

void serve_reread_close(struct serve_reread *s)
{
    free(s->tokens);
    *s = (struct serve_reread){0};
}

bool serve_reread_begin(struct serve_reread *s, const struct infer_work *w)
{
    if (!s->tokens) return false; /* the job keeps no states, or has no pages */
    struct model *m = s->in->model;
    const int64_t from = w->request.n_tokens / CACHE_PAGE * CACHE_PAGE;
    const int64_t end = m->cache[w->slot].n_tokens / CACHE_PAGE * CACHE_PAGE;
    if (end <= from) return false;
    const int place = pages_last_state(s->pages, w->slot);
    if (from && place == PAGES_NO_STATE) return false;
    s->slot[w->slot] = (struct reread_slot){from, from, end};
    if (from && !mutant_on(MUTANT_ANSWER_DECODED))
        model_copy_states(m, m->plan->batch + place, w->slot);
    return true;
}

bool serve_reread_at(const struct serve_reread *s, int slot)
{
    return s->slot[slot].end > 0;
}

int serve_reread_next(const struct serve_reread *s)
{
    for (int k = 0; k < s->n; k++)
        if (serve_reread_at(s, k)) return k;
    return -1;
}

/* Copies the tokens of the positions [pos, pos + n). */
static void copy_tokens(const struct infer_work *w, int64_t pos, int64_t n, int32_t *out)
{
    const int64_t n_prompt = w->request.n_tokens;
    for (int64_t i = 0; i < n; i++, pos++)
        out[i] = pos < n_prompt ? w->request.tokens[pos] : w->tokens[pos - n_prompt];
}

static int run_piece(struct serve_reread *s, struct infer_work *w, const struct model_piece *p,
                     struct err *e)
{
    struct model *m = s->in->model;
    struct comm_count want[PURPOSE_N] = {0};
    if (mutant_on(MUTANT_ANSWER_DECODED)) return 0;
    model_use(m, w->slot);
    if (infer_check_stop(s->in, e) || model_piece(m, p, e)) return -1;
    if (!m->comm) return 0;
    if (plan_piece_comm(&m->shape, m->plan, m->rank, p->pos, p->n, want, e)) return -1;
    for (int k = 0; k < PURPOSE_N; k++) volume_add(&w->want[k], want[k], 1);
    return 0;
}

int serve_reread_piece(struct serve_reread *s, struct infer_work *w, bool *ended, struct err *e)
{
    struct reread_slot *r = &s->slot[w->slot];
    const struct model *m = s->in->model;
    const int64_t n_prompt = w->request.n_tokens, left = r->end - r->pos;
    int64_t n = most_tokens(m->plan);
    assert(serve_reread_at(s, w->slot) && left > 0);
    if (n > left) n = left;
    copy_tokens(w, r->pos, n, s->tokens);
    if (run_piece(s, w,
                  &(struct model_piece){.slot = w->slot,
                                        .adapter = m->cache[w->slot].adapter,
                                        .tokens = s->tokens,
                                        .pos = r->pos,
                                        .n = n},
                  e))
        return -1;
    r->pos += n;
    pages_keep(s->pages, w->slot,
               &(struct pages_text){.prompt = w->request.tokens,
                                    .answer = w->tokens,
                                    .n_prompt = n_prompt,
                                    .n_answer = r->pos - n_prompt});
    prefill_load_pages(s->in, s->pages, w->slot);
    *ended = r->pos == r->end;
    return 0;
}

void serve_reread_end(struct serve_reread *s, int slot)
{
    struct reread_slot *r = &s->slot[slot];
    if (r->pos > r->begin) {
        struct model *m = s->in->model;
        const int place = pages_keep_state(s->pages, slot);
        if (place != PAGES_NO_STATE) model_copy_states(m, slot, m->plan->batch + place);
    }
    *r = (struct reread_slot){0};
}
