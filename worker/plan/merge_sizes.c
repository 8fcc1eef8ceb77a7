/* merge_sizes.c: visits the weights of each section, as they are without adapters. */
#include "worker/plan/merge_sizes.h"

#include "api/core/mem.h"
#include "worker/family/family.h"
#include "worker/plan/plan.h"

/* Counts a section that the model has n times. `on` has a bit for each weight with an adapter; NULL
 * means that no weight has one. */
static void count(const struct program *p, const uint64_t *on, int64_t rank, int64_t n,
                  struct merge_sizes *out)
{
    for (int i = 0; i < p->n_weights; i++) {
        const struct weight *w = &p->weight[i];
        const int64_t block = param_block(w->transposed, w->stack, prog_count(w));
        out->elements += n * prog_count(w);
        if (block > out->block) out->block = block;
        if (!on || !freeze_has(on, i)) continue;
        const int64_t size = mem_round(rank * w->cols, PLAN_MERGE_ALIGN) +
                             mem_round(w->rows * rank, PLAN_MERGE_ALIGN);
        if (size > out->adapter) out->adapter = size;
        out->adapters += n * rank * (w->rows + w->cols);
        out->flops += 2 * (double)n * (double)rank * (double)w->rows * (double)w->cols;
    }
}

/* Returns the elements of a section's tensors that the adapter has whole. */
static int64_t saved_of(const struct program *p)
{
    int64_t n = 0;
    for (int i = 0; i < p->n_weights; i++)
        if (p->weight[i].saved) n += prog_count(&p->weight[i]);
    return n;
}

static int64_t layers_of(const struct model_shape *m, int kind)
{
    int64_t n = 0;
    for (int64_t l = 0; l < m->n_layers; l++) n += family_own_kind(m, l) == kind;
    return n;
}

void merge_sizes(const struct model_shape *m, struct merge_sizes *out)
{
    struct model_shape plain = *m;
    plain.adapter.rank = plain.freeze.n_kinds = 0;
    struct family *own = family_new(m), *f = family_new(&plain);
    *out = (struct merge_sizes){.saved = saved_of(&own->in) + saved_of(&own->out)};
    count(&f->in, NULL, 0, 1, out);
    count(&f->out, NULL, 0, 1, out);
    for (int k = 0; k < f->n_kinds; k++) {
        const int64_t n = layers_of(&plain, k);
        if (n) count(&f->layer[k], m->adapter.on[k], m->adapter.rank, n, out);
    }
    family_free(f);
    family_free(own);
}
