/* Rows of two words that old jobs used as strategies. They meant Megatron's tensor parallelism
 * (1909.08053), either without sequence parallelism or with it (2205.05198). Jobs use parallel.tp
 * for this now. A job that names one of these words as its strategy is refused, and the error
 * names parallel.tp. */
#include "worker/plan/strategy.h"

static const struct strategy_form whole = {.what = "all-reduce the halves of each block"};
static const struct strategy_form spread = {.what = "gather and scatter the halves of each block"};

const struct strategy_row strategy_tp = {
    .splits = SPLITS_SOFTMAX, .form = {&whole}, .splits_model = true};
const struct strategy_row strategy_tp_sp = {
    .splits = SPLITS_SOFTMAX, .form = {&spread}, .splits_model = true};
