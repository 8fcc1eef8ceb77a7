/* relay.h: sends to seqd the spool records and the log bytes of this node's attempts.
 *
 * The records of a spool are sent in the order in which they were written. Each call sends at most
 * RELAY_LOG_SIZE bytes of logs, so that a rank with much output does not delay other attempts. The
 * final record of an attempt is sent after the last byte of its logs.
 *
 * buf has SPOOL_RECORD_SIZE bytes. It is used for the record or chunk that is being sent. The
 * functions are called on the loop thread. tested: tests/agent/test_agent_life.c */
#ifndef SEQD_AGENT_RELAY_H
#define SEQD_AGENT_RELAY_H

#include <stdint.h>
#include "api/core/err.h"
#include "api/core/rank.h"
#include "api/wire.h"

/* Largest number of bytes of logs that one call of relay_logs sends. */
#define RELAY_LOG_SIZE WIRE_CHUNK

struct agent_session;
struct attempt;

/* Send as many records or log bytes as the session accepts now (session_can_send). Later calls
 * send the rest. relay_logs sends log bytes of all attempts of the list. */
void relay_records(struct agent_session *s, struct attempt *t, char *buf);
void relay_logs(struct agent_session *s, struct attempt *first, char *buf);

/* Sends the final record of an attempt that has no spool. Such an attempt never began, or is
 * not on this node. If there is no session, the record is lost. In that case seqd's next
 * EXPECT lists the attempt, and this agent then sends the record again. */
void relay_end(struct agent_session *s, int64_t job, int64_t epoch, enum gang_end how);
/* Sends the reason why the attempt did not begin. rank is the rank that could not be started, or
 * RANK_GANG. */
void relay_failure(struct agent_session *s, int64_t job, int64_t epoch, int rank,
                   const struct err *why);

#endif
