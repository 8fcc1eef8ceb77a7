/* sched_part.h: what the two halves of the scheduler share: sched.c, which places, and
 * sched_reason.c, which says why not. Private to them. */
#ifndef SEQD_DAEMON_SCHED_SCHED_PART_H
#define SEQD_DAEMON_SCHED_SCHED_PART_H

#include "daemon/sched/sched.h"

/* Nodes that may hold one gang together. */
struct group {
    int leader; /* a node of it; -1: none */
    int n_nodes;
    int32_t slots, free; /* or GPUs: whatever the job takes */
};

/* Node i is up and not left out for this job. */
bool sched_usable(const struct sched_job *j, const struct sched_node *nodes, int i);
/* Ranks of that job that node i could hold if it were idle, and that it can hold now. */
int32_t sched_width(const struct sched_job *j, const struct sched_node *nodes, int i);
int32_t sched_room(const struct sched_job *j, const struct sched_node *nodes, int i);
/* GPUs that it could have there, free ones or any, if the node had more memory beside them. */
int32_t sched_cramped(const struct sched_job *j, const struct sched_node *nodes, int i);
bool sched_together(const struct sched_job *j, const struct sched_node *nodes, int a, int b);
/* The group with the most slots (or free ones), among those the job may use. */
struct group sched_widest(const struct sched_job *j, const struct sched_node *nodes, int n,
                          bool of_free);

void because(struct sched_job *j, const char *code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void because_no_node(struct sched_job *j, const struct sched_node *nodes, int n);
void because_too_large(struct sched_job *j, const struct sched_node *nodes, int n,
                       const struct group *g);
void because_waiting(struct sched_job *j, const struct sched_node *nodes, int n);
void because_behind(struct sched_job *j, const struct sched_node *nodes, int n, int64_t first);
void because_preparing(struct sched_job *j, const struct sched_node *nodes, int n);

#endif
