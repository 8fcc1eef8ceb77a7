/* shapes.h: the shapes of the jobs that wait. Jobs have the same shape if placement reads the same
 * values from all of them. While no earlier job of the pass changes that, all of them get the same
 * verdict. */
#ifndef SEQD_DAEMON_LOOP_SHAPES_H
#define SEQD_DAEMON_LOOP_SHAPES_H

#include "daemon/sched/sched.h"
#include "daemon/state/cluster.h"

/* All that placement reads of a job, except for its id, priority, backoff and user. Every byte
 * counts, so the struct is zeroed first. */
struct shape_key {
    int64_t wall_ms, step;
    int64_t alone;  /* the id of a job that shares its shape with no other job; otherwise 0 */
    int64_t shared; /* id of the shared directory that has its files, or 0 */
    int64_t rank, device_size, host; /* struct need, without the stages */
    const char *needs;
    int32_t n_stages, per_stage;
    int32_t n_ranks, ring, share, device;
    int32_t origin, only; /* enum shape_origin, and the index of that node or -1 */
    int32_t one_node, needs_data, crowded, serves;
};

struct shape {
    struct shape_key key;
    struct sched_job job; /* the description of its jobs (describe_job) */
    /* The verdict on the last job of the shape that waited, with the values of struct sched_line
     * before and after it. reason is NULL if there is no such job. */
    struct job_reason *reason; /* owns */
    int64_t first;
    uint64_t n_changes;
    struct job_reason
        *over; /* owns: the reason for the limit of a user with n_over jobs, or NULL */
    int32_t n_over;
};

struct shapes {
    struct shape *of; /* owns */
    int n, room;
    int32_t *slot; /* owns: 1 + the index of a shape, by the hash of its key; 0 if it is free */
    int n_slots;
    uint32_t old_abi; /* the ABI of the nodes of an older version; WIRE_ABI if there are none */
    bool mixed;       /* there are nodes of several older versions */
};

/* Forgets all shapes, and begins those of a new pass. */
void shapes_begin(struct shapes *t, const struct cluster *k);
/* Returns the index of the job's shape, which is added if it is new. Invalidates pointers to
 * shapes. */
int shapes_of(struct shapes *t, const struct cluster *k, const struct job *j, int64_t now_ms);
void shapes_fini(struct shapes *t);

#endif
