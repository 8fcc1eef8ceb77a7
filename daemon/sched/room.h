/* room.h: computes the room that nodes have for a job. It tells which nodes the job may use, how
 * many of the job's ranks a node could hold if it were idle, how many it can hold now, and which
 * nodes may hold one gang together. The functions are pure. */
#ifndef SEQD_DAEMON_SCHED_ROOM_H
#define SEQD_DAEMON_SCHED_ROOM_H

#include "daemon/sched/sched.h"

/* Nodes that may hold one gang together. */
struct room_group {
    int leader; /* a node of the group; -1 if no nodes can form a group */
    int n_nodes;
    int32_t slots, free; /* counts of slots, or of GPUs if the job takes GPUs */
};

/* Tells whether node i's time ends before the job's time limit. */
bool room_ends(const struct sched_job *j, const struct sched_node *nodes, int i);
/* Tells whether node i is up, accepts new work, and is not left out for this job. */
bool room_usable(const struct sched_job *j, const struct sched_node *nodes, int i);
/* Return how many ranks of the job node i could hold if it were idle, and how many it can hold
 * now. room_width does not check whether the node is usable. room_free returns 0 if the node is
 * not usable. If more slots are held than the node has, room_free returns a negative number. */
int32_t room_width(const struct sched_job *j, const struct sched_node *nodes, int i);
int32_t room_free(const struct sched_job *j, const struct sched_node *nodes, int i);
/* Tells whether node i has room for a preparation. */
bool room_prepares(const struct sched_job *j, const struct sched_node *nodes, int i);
/* Returns the bytes of the node's memory that are free. */
int64_t room_memory(const struct sched_node *node);
/* Tells whether the job waits only for memory, so that it could start now if every node had enough
 * memory. */
bool room_lacks_memory(const struct sched_job *j, const struct sched_node *nodes, int n);
/* Counts the GPUs of node i that suit the job but for whose ranks the node's host memory is too
 * small. Returns the larger of two such counts, one over all GPUs and one over the free GPUs. */
int32_t room_cramped(const struct sched_job *j, const struct sched_node *nodes, int i);
/* Counts the GPUs of node i that suit the job. If `free` is NULL, counts all of these GPUs.
 * Otherwise counts only GPUs that are free now, and marks them in free[GPU_MAX]. */
int32_t room_gpus(const struct sched_job *j, const struct sched_node *nodes, int i, bool *free);
bool room_together(const struct sched_job *j, const struct sched_node *nodes, int a, int b);
/* Tells whether node i is the first usable node of its net. This node represents the whole net. It
 * is called for all nodes in ascending order; *seen is 0 before the first, and keeps the nets below
 * 64 that have a usable node. */
bool room_leads(const struct sched_job *j, const struct sched_node *nodes, int i, uint64_t *seen);
/* Returns the group with the largest number of slots among the nodes that the job may use. If
 * of_free is set, returns the group with the largest number of free slots. If j->only is set,
 * returns the group of node j->only. */
struct room_group room_widest(const struct sched_job *j, const struct sched_node *nodes, int n,
                              bool of_free);

#endif
