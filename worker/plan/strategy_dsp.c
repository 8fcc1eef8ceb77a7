/* Dynamic sequence parallelism (2403.10266). Attention runs along one dimension, which is whole on
 * every rank at that time. The program then changes the dimension (worker/plan/volume_switch.c).
 * For comparison, Ulysses runs on the same grid, in attention along space or along both
 * dimensions. */
#include "api/core/job.h"
#include "worker/plan/rules.h"
#include "worker/plan/strategy.h"

/* Checks that the number of ranks divides the heads, because heads are exchanged in blocks of
 * equal size. */
static int check_heads(const struct job_spec *s, struct err *e)
{
    const int64_t H = s->model.shape.n_heads;
    if (!strategy_form(STRATEGY_DSP, s->parallel.form)->grid_way || H % s->parallel.sp == 0)
        return 0;
    return err_field(
        e, ERR_INVALID, "parallel.sp",
        "parallel.form \"%s\" gives every rank as many attention heads: parallel.sp %d "
        "does not divide %lld of them; use a divisor, or parallel.form \"switch\"",
        spec_field("parallel.form")->words[s->parallel.form], s->parallel.sp, (long long)H);
}

static const struct strategy_form switched = {.what = "change the dimension they are spread along"};
static const struct strategy_form heads = {
    .what = "turn them into all places of some heads and back, for attention along space",
    .grid_way = GRID_HEADS_SPACE};
static const struct strategy_form heads_both = {
    .what = "turn them into all rows of some heads and back, for attention along space and time",
    .grid_way = GRID_HEADS_BOTH};

const struct strategy_row strategy_dsp = {
    .splits = SPLITS_GRID,
    .form = {[FORM_SWITCH] = &switched, [FORM_ULYSSES] = &heads, [FORM_ULYSSES_BOTH] = &heads_both},
    .first_form = FORM_SWITCH,
    .in_order = "",
    .check = check_heads};
