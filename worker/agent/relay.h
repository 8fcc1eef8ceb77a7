/* relay.h: sends seqd the records of the spools of this node's attempts, and the bytes of their
 * logs.
 *
 * Order on the stream: records are sent as they are written. Each call sends at most
 * RELAY_LOG_SIZE bytes of logs, so that a rank with much output delays no other. The final record
 * of an attempt follows the last byte of its logs.
 *
 * buf: SPOOL_RECORD_SIZE bytes for the record or chunk that is being sent. Loop thread.
 * tested: tests/agent/test_agent_life.c */
#ifndef SEQD_AGENT_RELAY_H
#define SEQD_AGENT_RELAY_H

#include <stdint.h>
#include "api/core/err.h"
#include "api/core/rank.h"
#include "api/wire.h"

#define RELAY_LOG_SIZE WIRE_CHUNK /* most bytes of logs that one relay_logs sends */

struct agent_session;
struct attempt;

/* Send as much as the session takes now (session_can_send); later calls send the rest. */
void relay_records(struct agent_session *s, struct attempt *t, char *buf);
void relay_logs(struct agent_session *s, struct attempt *first, char *buf); /* for the whole list */

/* Sends the final record of an attempt that has no spool, because this node does not have it or it
 * never began. Without a session the record is lost; seqd's next EXPECT asks for it again. */
void relay_end(struct agent_session *s, int64_t job, int64_t epoch, enum gang_end how);
/* Sends the reason that the attempt did not begin. rank: the rank that could not be started, or
 * RANK_GANG. */
void relay_failure(struct agent_session *s, int64_t job, int64_t epoch, int rank,
                   const struct err *why);

#endif
