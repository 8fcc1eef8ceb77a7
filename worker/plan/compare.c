/* compare.c: the alternatives that a choice is only compared with: forms and strategies that run
 * when a job asks for them, and tensor parallelism, which jobs do not run. All have the degree that
 * was chosen. */
#include "api/core/job.h"
#include <stdlib.h>
#include "api/core/mem.h"
#include "worker/family/family.h"
#include "worker/plan/check.h"
#include "worker/plan/strategy.h"
#include "worker/plan/volume.h"
#include "worker/plan/weigh.h"

static const char waits[] = "taken when the data are prepared, if their documents make it cheaper; "
                            "these are the most bytes it can be";
static const char published[] = "the published form, for comparing: runs when asked for";
static const char others[] = "runs when asked for";
static const char not_run[] = "not run by jobs: it splits the model, not the sequence: every rank "
                              "computes all rows for a part of the heads, and what it sends does "
                              "not shrink with the number of ranks; parallel.zero 3 shares weights "
                              "out as well";

static bool listed(const struct choice *c, const struct option *o)
{
    for (int i = 0; i < c->n + c->n_compared; i++) {
        const struct option *x = &c->option[i];
        if (x->strategy == o->strategy && x->form == o->form && x->exchange == o->exchange &&
            x->sp == o->sp && x->dp == o->dp && x->pp == o->pp && x->tp == o->tp &&
            x->zero_group == o->zero_group && x->ulysses == o->ulysses)
            return true;
    }
    return false;
}

static const char *note_of(const struct choice *c, const struct option *o)
{
    if (strategy_form(o->strategy, o->form)->published) return published;
    return o->form == FORM_ALL_GATHER && c->waits ? waits : others;
}

static void compare(struct weighing *w, enum strategy_id strategy, enum form_id form,
                    enum exchange_id exchange)
{
    struct choice *c = w->out;
    const struct option b = c->option[0];
    struct job_spec *asked = mem_scratch(sizeof *asked);
    const struct job_spec *keep = w->asked;
    *asked = *w->asked;
    asked->parallel.form = form;
    if (!strategy_row(strategy)->states) exchange = (enum exchange_id)asked->parallel.exchange;
    if (strategy != (enum strategy_id)b.strategy) asked->parallel.layout = LAYOUT_AUTO;
    w->asked = asked;
    if (!strategy_row(strategy)->rings) asked->parallel.ulysses = 0;
    const struct option way = {.strategy = strategy,
                               .exchange = exchange,
                               .sp = b.sp,
                               .dp = b.dp,
                               .pp = b.pp,
                               .tp = b.tp,
                               .zero_group = b.zero_group};
    struct option o;
    const bool made = weigh_set(w, &way) && weigh_try(w, &o);
    w->asked = keep;
    free(asked);
    if (!made || listed(c, &o) || o.ulysses == 1 || o.ulysses == b.sp) return;
    o.note = note_of(c, &o);
    weigh_append(w, &o);
}

/* ---- tensor parallelism ---------------------------------------------------------------------- */

/* Two halves of each block; recomputing one repeats its forward. */
static void count_tensor(const struct model_shape *m, struct plan *p, int P)
{
    const bool back = p->kind == JOB_TRAIN || p->kind == JOB_VERIFY;
    const bool again = back && p->recompute == RECOMPUTE_FULL;
    volume_add(&p->comm[PURPOSE_TENSOR], volume_tensor(P, 0, p->S, m->width, false),
               2 * m->n_layers * p->micro_batches * (1 + back + again));
}

/* A rank's part is a thinner model: H / P heads and ffn / P columns, on whole sequences. With
 * sequence parallelism between them, the residual streams are sharded too. Embeddings and the head
 * are whole. Only the decoder's program can be written so: of any other, neither memory nor
 * gradients between rings are counted. */
static void compare_tensor(struct weighing *w, enum strategy_id strategy)
{
    struct choice *c = w->out;
    const struct option b = c->option[0];
    const struct job_spec *asked = w->asked;
    struct plan *p = w->plan;
    struct err e;
    const int P = b.sp;
    if (b.pp > 1 || b.tp > 1) return; /* it is counted on one stage, of whole layers */
    *w->spec = *asked;
    w->spec->parallel.strategy = STRATEGY_LOCAL;
    w->spec->parallel.layout = LAYOUT_AUTO;
    w->spec->parallel.sp = w->spec->parallel.tp = 1;
    w->spec->resources.ranks = w->spec->parallel.dp = b.dp;
    w->spec->parallel.zero_group = w->spec->parallel.ulysses = 0;
    if (family_check(w->spec, &e)) return;
    struct model_shape *m = &w->spec->model.shape;
    const bool thin = family_row(m)->slices_heads;
    const int64_t heads = m->n_heads, kv_heads = m->n_kv_heads, ffn = m->ffn_width;
    if (heads % P || kv_heads % P || ffn % P || (!thin && b.dp > 1)) return;
    if (thin) m->n_heads = heads / P, m->n_kv_heads = kv_heads / P, m->ffn_width = ffn / P;
    const int64_t limit = weigh_limit(asked);
    if (plan_make(w->spec, limit, p, &e) && e.code != ERR_DOES_NOT_FIT) return;
    m->n_heads = heads, m->n_kv_heads = kv_heads, m->ffn_width = ffn;
    if (strategy_row(strategy)->splits_streams) {
        /* And the streams between attention and MLP, where they are kept. */
        const int64_t mid = p->item[PLAN_KEPT].name && p->recompute == RECOMPUTE_NONE;
        const int64_t streams = p->item[PLAN_X].size + p->item[PLAN_DX].size +
                                mid * m->n_layers * p->stream_size;
        p->arena_size -= streams - streams / P;
    }
    p->segment_size += volume_bounce_size(P);
    if (thin) p->flops *= P;
    p->n_ranks = p->zero_group = b.dp * P;
    p->sp = P;
    p->strategy = strategy;
    count_tensor(m, p, P);
    const int64_t size = p->arena_size + p->segment_size;
    struct option o = weigh_option(w, w->spec, limit <= 0 || size <= limit);
    if (!thin) o.size = 0;
    o.runs = false;
    o.note = not_run;
    weigh_append(w, &o);
}

/* Every form, and every exchange of states; of groups one size, which no other strategy is. */
static void compare_all(struct weighing *w, enum strategy_id id)
{
    const struct strategy_row *row = strategy_row(id);
    const bool forms = strategy_has_forms(id);
    for (int x = EXCHANGE_RING; x <= EXCHANGE_SCAN && row->states; x++)
        compare(w, id, FORM_AUTO, (enum exchange_id)x);
    for (int form = 0; form < FORM_N && forms; form++)
        if (row->form[form]) compare(w, id, (enum form_id)form, EXCHANGE_AUTO);
    if (!row->states && !forms) compare(w, id, FORM_AUTO, EXCHANGE_AUTO);
}

void weigh_compared(struct weighing *w)
{
    const struct option b = w->out->option[0];
    const struct family_row *f = family_row(&w->asked->model.shape);
    if (b.sp == 1 || w->asked->kind == JOB_GENERATE) return;
    for (int id = STRATEGY_AUTO + 1; id < STRATEGY_N; id++) {
        const struct strategy_row *row = strategy_row(id);
        if (row->splits == SPLITS_ANY || !strategy_fits(id, f)) continue;
        if (row->splits_model)
            compare_tensor(w, (enum strategy_id)id);
        else
            compare_all(w, (enum strategy_id)id);
    }
}
