/* reason.h: writes the reason for which a job waits, as a sentence with counts that tells which
 * change would help. */
#ifndef SEQD_DAEMON_SCHED_REASON_H
#define SEQD_DAEMON_SCHED_REASON_H

#include "daemon/sched/room.h"

void reason(struct sched_job *j, const char *code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void reason_no_node(struct sched_job *j, const struct sched_node *nodes, int n);
void reason_too_large(struct sched_job *j, const struct sched_node *nodes, int n,
                      const struct room_group *g);
/* Sets the reason of a job whose ranks would fit on idle nodes by their number, but not by their
 * memory. */
void reason_too_heavy(struct sched_job *j, const struct sched_node *nodes, int n);
void reason_waiting(struct sched_job *j, const struct sched_node *nodes, int n);
void reason_behind(struct sched_job *j, const struct sched_node *nodes, int n, int64_t first);
void reason_preparing(struct sched_job *j, const struct sched_node *nodes, int n);

#endif
