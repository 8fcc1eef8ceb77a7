/* prepare_latents.h: the result of a preparation of latents. */
#ifndef SEQD_RANK_PREPARE_LATENTS_H
#define SEQD_RANK_PREPARE_LATENTS_H

#include "worker/rank/run.h"

/* Looks at every sample of both sets, so that a sample that the model cannot learn from is refused
 * before any rank starts, and sends the counts as the result. fails: as data_order_open,
 * latents_sample and latents_check; the link's errors. */
int prepare_latents(struct run *r, const struct data *d, struct err *e);

#endif
