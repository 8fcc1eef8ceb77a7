/* prepared.h: makes the data of a job, either in its preparation or on a node that lacks the
 * data. */
#ifndef SEQD_RANK_PREPARED_H
#define SEQD_RANK_PREPARED_H

#include "worker/rank/run.h"

/* Calls data_prepare for the job. If the data needs a tokenizer, passes the tokenizer of
 * model.path to data_prepare. If the job is an embed job that asks for the model's prompt,
 * passes the prompt, too. progress may be NULL. Fails as roots_model, hf_embedding_prompt and
 * data_prepare do. */
int prepared_make(struct run *r, struct progress *progress, struct data_stats *out, struct err *e);

/* Makes the job's prepared data from its sources if this node does not have the data. One of
 * the ranks on this node does the work, and the other ranks wait for it at the lock. The first
 * rank on this node sends a NOTE with the code "preparing" before the work, and a NOTE with
 * the code "prepared" after it. Between these two notes seqd suspends the deadline of the
 * start. Fails with ERR_CONFLICT if the id of the data that are made from the sources on this
 * node is not the id that the job states. Also fails as prepared_make does. */
int prepared_ensure(struct run *r, struct err *e);

#endif
