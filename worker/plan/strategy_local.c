/* strategy_local.c: the row of "local". One rank has the whole sequence, so nothing is sent. */
#include "worker/plan/strategy.h"

static const struct strategy_form whole = {.what = ""};

const struct strategy_row strategy_local = {.form = {&whole}};
