#include "worker/plan/strategy.h"

#include <assert.h>
#include <stddef.h>

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
    assert(row && row->form[FORM_BLOCKWISE]);
    return form >= 0 && form < FORM_N && row->form[form] ? (enum form_id)form : FORM_BLOCKWISE;
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

bool strategy_fits(int32_t id, const struct family_row *f)
{
    const enum splits_id of_family = f->task == MODEL_DIFFUSION ? SPLITS_GRID
                                     : f->linear                ? SPLITS_LINEAR
                                                                : SPLITS_SOFTMAX;
    const enum splits_id splits = strategy_row(id)->splits;
    return splits == SPLITS_ANY || splits == of_family;
}
