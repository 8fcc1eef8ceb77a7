/* strategy.c: the table of the strategies' rows, and functions that read a row. */
#include "worker/plan/strategy.h"

#include <stddef.h>
#include "api/core/assert.h"
#include "api/core/job.h"

#define ROW(id, name) extern const struct strategy_row strategy_##name;
STRATEGIES(ROW)
#undef ROW

static const struct strategy_row *const rows[STRATEGY_N] = {
#define ROW(id, name) [STRATEGY_##id] = &strategy_##name,
    STRATEGIES(ROW)
#undef ROW
};

const struct strategy_row *strategy_row(int32_t id)
{
    return id >= 0 && id < STRATEGY_N ? rows[id] : NULL;
}

const char *strategy_word(int32_t id)
{
    return spec_field("parallel.strategy")->words[id];
}

enum form_id strategy_form_id(int32_t id, int32_t form)
{
    const struct strategy_row *row = strategy_row(id);
    assert(row && row->form[row->first_form]);
    return form >= 0 && form < FORM_N && row->form[form] ? (enum form_id)form : row->first_form;
}

const struct strategy_form *strategy_form(int32_t id, int32_t form)
{
    return strategy_row(id)->form[strategy_form_id(id, form)];
}

bool strategy_has_forms(int32_t id)
{
    int n = 0;
    for (int form = 0; form < FORM_N; form++) n += strategy_row(id)->form[form] != NULL;
    return n > 1;
}

enum splits_id strategy_splits(const struct family_row *f)
{
    if (f->task == MODEL_DIFFUSION) return SPLITS_GRID;
    return f->linear ? SPLITS_LINEAR : SPLITS_SOFTMAX;
}

bool strategy_fits(int32_t id, const struct family_row *f)
{
    const struct strategy_row *row = strategy_row(id);
    return !row || row->splits == SPLITS_ANY || row->splits == strategy_splits(f);
}

bool strategy_zigzag_fits(const struct family_row *f)
{
    return strategy_splits(f) == SPLITS_SOFTMAX && f->task == MODEL_CAUSAL_LM;
}

enum strategy_id strategy_default(const struct model_shape *m, int sp)
{
    const struct family_row *f = family_row(m);
    if (sp == 1) return STRATEGY_LOCAL;
    for (int id = 0; id < STRATEGY_N; id++)
        if (rows[id] && rows[id]->splits == strategy_splits(f)) return (enum strategy_id)id;
    assert(!"a family whose sequences no strategy splits");
    return STRATEGY_LOCAL;
}

enum layout_id strategy_layout(const struct model_shape *m, int32_t id, int rings, bool rank_bits)
{
    const bool zigzag = strategy_row(id)->zigzag && strategy_zigzag_fits(family_row(m));
    return zigzag && rings > 1 && !rank_bits ? LAYOUT_ZIGZAG : LAYOUT_CONTIGUOUS;
}

int strategy_group(const struct model_shape *m, int32_t id, int sp, int asked)
{
    const struct strategy_row *row = strategy_row(id);
    if (!row || !row->ranges) return 1;
    if (!row->rings) return sp;
    int u = asked > 0 ? asked : sp;
    while (asked <= 0 && (sp % u || m->n_kv_heads % u)) u--;
    return u;
}

bool strategy_takes(const struct model_shape *m, int32_t id, enum layout_id layout, int sp)
{
    const struct family_row *f = family_row(m);
    const struct strategy_row *row = strategy_row(id);
    if (row && row->splits == SPLITS_ANY && sp > 1) return false;
    return strategy_fits(id, f) && (layout != LAYOUT_ZIGZAG || strategy_zigzag_fits(f));
}
