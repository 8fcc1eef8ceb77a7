/* prepared.h: a job's data, made by its preparation or on a node that lacks them. */
#ifndef SEQD_RANK_PREPARED_H
#define SEQD_RANK_PREPARED_H

#include "worker/rank/run.h"

/* Calls data_prepare for the job, with the tokenizer of model.path if text needs it, and with the
 * model's prompt for an embed job that asks for one. progress may be NULL. fails: as
 * roots_model, hf_embedding_prompt and data_prepare. */
int prepared_make(struct run *r, struct progress *progress, struct data_stats *out, struct err *e);

/* Makes the job's prepared data from its sources if this node has none. One of the ranks here
 * works, the others wait for it at the lock. The first rank here reports before and after, by a
 * NOTE of code "preparing" and one of code "prepared": in between, seqd suspends the start's
 * deadline. fails: ERR_CONFLICT when the sources here make other data; as prepared_make. */
int prepared_ensure(struct run *r, struct err *e);

#endif
