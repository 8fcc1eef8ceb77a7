/* reason.h: writes the reason for which a job waits. The reason is a sentence with counts, and
 * tells which change would help. */
#ifndef SEQD_DAEMON_SCHED_REASON_H
#define SEQD_DAEMON_SCHED_REASON_H

#include "daemon/sched/room.h"

void reason(struct sched_job *j, const char *code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void reason_no_node(struct sched_job *j, const struct sched_node *nodes, int n);
void reason_too_large(struct sched_job *j, const struct sched_node *nodes, int n,
                      const struct room_group *g);
/* Sets the reason of a job for whose ranks idle nodes have enough slots but not enough memory. */
void reason_too_heavy(struct sched_job *j, const struct sched_node *nodes, int n);
void reason_waiting(struct sched_job *j, const struct sched_node *nodes, int n);
void reason_behind(struct sched_job *j, const struct sched_node *nodes, int n, int64_t first);
void reason_preparing(struct sched_job *j, const struct sched_node *nodes, int n);

#endif
