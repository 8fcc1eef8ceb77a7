/* prepared.h: makes the data of a job, either in its preparation or on a node that lacks the
 * data. */
#ifndef SEQD_RANK_PREPARED_H
#define SEQD_RANK_PREPARED_H

#include "worker/rank/run.h"

/* Calls data_prepare for the job, with the tokenizer of model.path if text needs it, and with the
 * model's prompt for an embed job that asks for one. progress may be NULL. Fails as roots_model,
 * hf_embedding_prompt and data_prepare do. */
int prepared_make(struct run *r, struct progress *progress, struct data_stats *out, struct err *e);

/* Makes the job's prepared data from its sources if this node has none. One of the ranks here does
 * the work, and the other ranks wait for it at the lock. The first rank on this node sends a NOTE
 * with the code "preparing" before the work, and a NOTE with the code "prepared" after it. Between
 * these two notes seqd suspends the deadline of the start. Fails with ERR_CONFLICT if the sources
 * on this node give data with another id, and otherwise as prepared_make does. */
int prepared_ensure(struct run *r, struct err *e);

#endif
