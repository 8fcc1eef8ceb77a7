/* Rows of two words of old jobs: Megatron's tensor parallelism (1909.08053), alone and with
 * sequence parallelism in between (2205.05198). A job gets it by parallel.tp: as strategies the
 * words are refused, with that advice. */
#include "worker/plan/strategy.h"

static const struct strategy_form whole = {.what = "all-reduce the halves of each block"};
static const struct strategy_form spread = {.what = "gather and scatter the halves of each block"};

const struct strategy_row strategy_tp = {
    .splits = SPLITS_SOFTMAX, .form = {&whole}, .splits_model = true};
const struct strategy_row strategy_tp_sp = {
    .splits = SPLITS_SOFTMAX, .form = {&spread}, .splits_model = true};
