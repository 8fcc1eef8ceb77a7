/* compare.c: weighs alternatives only for comparison with the choice. They are forms and
 * strategies that run only if a job asks for them. Every alternative runs at the degree of the
 * choice. */
#include "api/core/job.h"
#include <stdlib.h>
#include "api/core/mem.h"
#include "worker/family/family.h"
#include "worker/plan/check.h"
#include "worker/plan/strategy.h"
#include "worker/plan/weigh.h"

static const char waits[] = "taken when the data are prepared, if their documents make it cheaper; "
                            "these are the most bytes it can be";
static const char published[] = "the published form, for comparing: runs when asked for";
static const char others[] = "runs when asked for";
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

/* Compares every form and every exchange of states. Groups of usp are compared at one size. This
 * size is neither one rank (as in "rsa") nor all ranks (as in "ulysses"). */
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
    if (b.sp == 1 || job_generates(w->asked)) return;
    for (int id = STRATEGY_AUTO + 1; id < STRATEGY_N; id++) {
        const struct strategy_row *row = strategy_row(id);
        if (row->splits == SPLITS_ANY || row->splits_model || !strategy_fits(id, f)) continue;
        compare_all(w, (enum strategy_id)id);
    }
}
