/* prepare_latents.h: the result of a preparation of latents. */
#ifndef SEQD_RANK_PREPARE_LATENTS_H
#define SEQD_RANK_PREPARE_LATENTS_H

#include "worker/rank/run.h"

/* Checks every sample of the training set and of the evaluation set, and sends the counts as
 * the result. If the model cannot learn from a sample, the job is refused in this way before
 * any rank starts. Fails as data_order_open, latents_sample and latents_check do, or with the
 * errors of the link. */
int prepare_latents(struct run *r, const struct data *d, struct err *e);

#endif
