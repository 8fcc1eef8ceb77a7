/* Linear attention sequence parallelism (2404.02882). Ranks pass states, whose size does not
 * depend on the length (worker/plan/volume_state.c). The softmax layers of a hybrid model use the
 * ring. */
#include "worker/plan/strategy.h"

static const struct strategy_form states = {
    .what = "pass states", .need = strategy_ring_need, .traffic = strategy_ring_traffic};

const struct strategy_row strategy_lasp = {.splits = SPLITS_LINEAR,
                                           .form = {&states},
                                           .states = true,
                                           .in_order = "states follow the sequence"};
