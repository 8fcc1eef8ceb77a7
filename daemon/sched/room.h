/* room.h: the room that nodes have for a job: the nodes that it may use, how many of its ranks each
 * could hold ever and now, and the nodes that may hold one gang together. Pure. */
#ifndef SEQD_DAEMON_SCHED_ROOM_H
#define SEQD_DAEMON_SCHED_ROOM_H

#include "daemon/sched/sched.h"

/* Nodes that may hold one gang together. */
struct room_group {
    int leader; /* a node of the group; -1: no group */
    int n_nodes;
    int32_t slots, free; /* slots, or GPUs if the job takes GPUs */
};

/* Tells whether node i's time ends before the job's time limit. */
bool room_ends(const struct sched_job *j, const struct sched_node *nodes, int i);
/* Tells whether node i is up, takes new work, and is not left out for this job. */
bool room_usable(const struct sched_job *j, const struct sched_node *nodes, int i);
/* Return how many ranks of the job node i could hold if it were idle, and how many it can hold
 * now. room_width does not ask whether the node is usable. room_free is 0 if it is not, and
 * negative if more slots are held than the node has. */
int32_t room_width(const struct sched_job *j, const struct sched_node *nodes, int i);
int32_t room_free(const struct sched_job *j, const struct sched_node *nodes, int i);
/* Tells whether node i has a place for a preparation. */
bool room_prepares(const struct sched_job *j, const struct sched_node *nodes, int i);
/* Returns the bytes of the node's memory that are free. */
int64_t room_memory(const struct sched_node *node);
/* Tells whether the job waits for memory alone: with enough of it on every node it would find a
 * place now. */
bool room_lacks_memory(const struct sched_job *j, const struct sched_node *nodes, int n);
/* Counts the GPUs of node i that suit the job and lack memory of the node beside them: among all
 * GPUs or among the free ones, whichever is more. */
int32_t room_cramped(const struct sched_job *j, const struct sched_node *nodes, int i);
/* Counts the GPUs of node i that suit the job. free NULL: counts all; else counts those that are
 * free now, and marks them in free[GPU_MAX]. */
int32_t room_gpus(const struct sched_job *j, const struct sched_node *nodes, int i, bool *free);
bool room_together(const struct sched_job *j, const struct sched_node *nodes, int a, int b);
/* Tells whether node i is the first usable one of its net, which stands for the whole net. */
bool room_leads(const struct sched_job *j, const struct sched_node *nodes, int i);
/* Returns the group with the most slots (or free ones), among the nodes that the job may use; with
 * j->only set, the group of that node. */
struct room_group room_widest(const struct sched_job *j, const struct sched_node *nodes, int n,
                              bool of_free);

#endif
