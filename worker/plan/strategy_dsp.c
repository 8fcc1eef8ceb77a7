/* Dynamic sequence parallelism (2403.10266): attention is along one dimension, which no rank splits
 * then; the program changes the dimension (worker/plan/volume_switch.c). */
#include "worker/plan/strategy.h"

static const struct strategy_form switched = {.what = "change the dimension they are spread along"};

const struct strategy_row strategy_dsp = {
    .splits = SPLITS_GRID, .form = {&switched}, .in_order = ""};
