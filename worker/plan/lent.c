/* lent.c: decides when records and logits may use the memory of gradients. This is not possible in
 * a proof, because a proof reads logits and gradients at the same time. It is also not possible in
 * a step of several passes, because a later pass adds to the gradients of earlier passes. */
#include "worker/plan/lent.h"

#include <stdlib.h>
#include "api/core/job.h"
#include "api/core/mem.h"
#include "worker/program/op_rules.h"

static bool lends(const struct placer *b)
{
    const struct plan *p = b->p;
    return p->kind == JOB_TRAIN && !b->spec->verify.first_step && !p->by_bucket && p->pp == 1 &&
           p->micro_batches == 1 && p->n_windows == 1;
}

bool lent_may_lie_over(const struct placer *b)
{
    return lends(b) && b->p->n_ranks == 1 && !b->p->offload.on;
}

static int64_t logits_size(const struct plan *p, const struct program *out)
{
    bool any = false;
    for (int i = 0; i < out->n_ops; i++) any |= op_rules[out->op[i].kind]->logits;
    return any ? 4 * p->extent.loss_chunk * p->extent.vocab : 0;
}

/* Returns the number of bytes that the workspace saves if the logits are placed elsewhere.
 * `others` is the number of bytes of workspace that all sections except `out` need. */
static int64_t logits_worth(const struct placer *b, const struct sections *s, int64_t others)
{
    struct placement *apart = mem_scratch(sizeof *apart);
    struct extent x = b->p->extent;
    x.logits_apart = true;
    placement_make(&s->family.out, &s->out.steps, &x, apart);
    const int64_t with = s->out.at.work_size, without = apart->work_size;
    free(apart);
    return (with > others ? with : others) - (without > others ? without : others);
}

static int64_t layers_begin(const struct plan *p)
{
    return 4 * zero_grad_begin(&p->shards, 1);
}

/* Returns the smallest possible number of bytes from the first record to the first gradient of a
 * layer. */
static int64_t skip_of(const struct placer *b)
{
    const struct plan *p = b->p;
    int64_t most = 0;
    for (int l = 1; l <= p->shards.n_layers; l++) {
        const int64_t records = plan_record(b->m, p, l + 1);
        const int64_t skip = records - (4 * zero_grad_begin(&p->shards, l) - layers_begin(p));
        if (skip > most) most = skip;
    }
    return most;
}

void lent_decide(struct placer *b, const struct sections *s, int64_t records, int64_t work,
                 struct lent *out)
{
    struct plan *p = b->p;
    const int64_t layers = 4 * zero_grad_begin(&p->shards, p->shards.n_layers + 1) -
                           layers_begin(p);
    *out = (struct lent){.records = records};
    if (!lends(b) || b->overflow) return;
    out->logits = logits_size(p, &s->family.out);
    bool fits = out->logits <= layers;
    if (lent_may_lie_over(b) && !s->in.at.kept_size) {
        const int64_t skip = skip_of(b), saved = records - skip;
        const bool beside = out->logits <= layers - saved;
        out->over = saved > 0 && (beside || !fits || saved >= logits_worth(b, s, work));
        if (out->over) out->skip = skip, fits = beside;
    }
    p->extent.logits_apart = out->logits > 0 && fits;
}

void lent_put(struct placer *b, const struct lent *l)
{
    struct plan *p = b->p;
    p->grad_skip = l->skip / 4;
    if (lent_may_lie_over(b))
        placer_put(b, &(struct placer_want){PLAN_GRAD, "grad", PLAN_GRADIENTS,
                                            placer_times(b, p->n_grad + p->grad_skip, 4), 1});
    struct plan_item in = {.shared = true, .offset = p->item[PLAN_GRAD].offset + layers_begin(p)};
    if (l->over) {
        in.name = "kept", in.cls = PLAN_ACTIVATIONS, in.size = l->records;
        p->item[PLAN_KEPT] = in;
        in.offset += l->records;
    }
    if (!p->extent.logits_apart) return;
    in.name = "logits", in.cls = PLAN_WORKSPACE, in.size = l->logits;
    p->item[PLAN_LOGITS] = in;
}
