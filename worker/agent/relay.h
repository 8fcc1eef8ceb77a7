/* relay.h: sends seqd the records of the spools of this node's attempts, and the bytes of their
 * logs.
 *
 * Order on the stream: records as they are written; logs within RELAY_LOG_SIZE per call, so that a
 * talkative rank delays no other; the final record of an attempt follows the last byte of its logs.
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

/* Sends as much as the session takes now (session_can_send), and the rest in a later call. */
void relay_records(struct agent_session *s, struct attempt *t, char *buf);
void relay_logs(struct agent_session *s, struct attempt *first, char *buf); /* for the whole list */

/* Sends the final record of an attempt that has no spool: it is not here, or never began. Without a
 * session it is lost: seqd's next EXPECT asks again. */
void relay_end(struct agent_session *s, int64_t job, int64_t epoch, enum gang_end how);
/* Tells seqd why the attempt never began. rank: the rank that could not be started, or
 * RANK_GANG. */
void relay_failure(struct agent_session *s, int64_t job, int64_t epoch, int rank,
                   const struct err *why);

#endif
