/* sched.h: decides which queued jobs start now, and why the others do not: a pure function.
 *
 * Gangs are all or nothing. A gang goes to one node where it fits (the one with the fewest free
 * slots), else over several: contiguous ranges of ranks, whole rings per node where the slots allow
 * it, else all ranks that share layers, and then as few nodes as possible. Nodes share a gang only
 * if their ranks can reach each other (sched_node.net). Order is priority, then age. A job that
 * would fit on an idle cluster and does not fit now is first in line: no job after it is placed, so
 * it cannot be overtaken for ever. Jobs that wait for their backoff or that these nodes could never
 * hold do not block.
 *
 * Prepared data can be made again: a gang that does not fit together with the node that has its
 * data is placed without that node, and makes the data where it runs. A checkpoint cannot be made
 * again: it holds rank 0 to its node. A held job that would fit if that node were idle is not
 * first in line for all jobs. It keeps that node, and slots of others for its other ranks, and
 * later jobs are placed around these. No later job starts on that node before it, so it cannot be
 * overtaken either.
 *
 * A running job that has lost a node of its gang is placed as if it were queued: its slots, GPUs
 * and memory on other nodes count as free for it, and stay held until it has stopped there.
 *
 * A node that failed this job, or lacks its files, is left out wherever the rest could take it. A
 * node in quarantine (quarantine.h) gets nothing but its toy run, one that is cordoned (cordon.h)
 * nothing at all. A node that ends gets no job whose time limit ends later.
 *
 * The reason a job waits is written by the same code that would have placed it: mend the cause that
 * it names and the job starts (tests/daemon/test_seqd_sched.c).
 *
 * A rank takes memory of its node, too, by its plan: no byte is given twice, and a node
 * that does not say how much it has holds any number. A job that the kernel killed when memory ran
 * out all the same is alone on its nodes for its next attempt.
 *
 * A rank takes a slot of its node, or one of the node's GPUs: a healthy GPU, large enough for the
 * plan, free, and as near to its neighbours of the ring as there is. The two are separate: a job
 * that waits for GPUs holds up none that needs slots. */
#ifndef SEQD_DAEMON_SCHED_SCHED_H
#define SEQD_DAEMON_SCHED_SCHED_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/gpu.h"
#include "api/wire.h"
#include "daemon/sched/need.h"

#define SCHED_NODES       256 /* one byte of a part names a node */
#define SCHED_REASON_SIZE 320 /* two names of 63 bytes and counts */
#define SCHED_WHY_SIZE    64
/* Preparations that may run at once on a node: each is one process that reads files. */
#define SCHED_MAX_PREPARE 4

/* A part is a contiguous range of ranks, which follow those of the part before. It is small,
 * because every queued job has room for the largest placement. */
struct sched_part {
    uint8_t node; /* index into nodes */
    uint8_t n_ranks;
};
_Static_assert(SCHED_NODES <= 256 && JOB_MAX_RANKS <= 255, "a part is two bytes");

/* The resource that a rank takes. */
enum sched_device {
    SCHED_SLOTS,    /* slots of any node */
    SCHED_EMULATED, /* slots, of nodes that have the device "emulated" */
    SCHED_GPUS,
};

struct sched_set { /* a set of nodes, by index */
    uint64_t bits[SCHED_NODES / 64];
};

static inline void sched_add(struct sched_set *s, int i)
{
    s->bits[i / 64] |= (uint64_t)1 << i % 64;
}

static inline bool sched_has(const struct sched_set *s, int i)
{
    return s->bits[i / 64] >> i % 64 & 1;
}

struct sched_job {
    int64_t id;
    int32_t priority, n_ranks;
    int32_t ring;            /* ranks of one ring and those that share layers with them; it divides
                              * n_ranks; 0: n_ranks */
    int32_t share;           /* ranks that share layers; it divides ring; 0: 1 */
    bool prepare;            /* next task is TASK_PREPARE: needs a node, no slots */
    bool moves;              /* it runs, and a node of it is lost. part and gpu are then input: the
                              * places that it holds, which count as free for it. GPU_MAX in gpu:
                              * that GPU has gone */
    bool one_node;           /* its transport stays within a node: all its ranks are on one */
    int64_t checkpoint;      /* step of its checkpoint on node `only`; 0: none holds it there */
    bool source;             /* that checkpoint is another job's, from which this job begins */
    int64_t wall_ms;         /* time left of its limit; 0: it has no limit */
    int64_t not_before_ms;   /* end of its backoff, by the clock that sched_pick is given */
    int only;                /* the node that rank 0 should be on, as an index; -1: any will do */
    int data;                /* 1 + the node with its data, which the job leaves out; 0: none */
    bool toy;                /* toy run of node `only`, even in quarantine; `only` -1: not here */
    struct sched_set blamed; /* nodes that failed it: taken only if nothing else will do */
    struct sched_set lacks;  /* nodes without its files: likewise, and never while awaited */
    struct sched_set old;    /* nodes whose version does not know one of its fields: never taken */
    const char *needs;       /* the field that old nodes do not know; NULL: old is empty */
    bool awaited;            /* true: a node that has its files is down */
    bool soon;        /* a node is down for a moment: blamed and lacks are not taken meanwhile */
    int32_t device;   /* enum sched_device */
    int32_t *n_user;  /* in/out: jobs of its user with ranks on nodes; NULL: it has no user */
    int32_t max_user; /* largest *n_user; 0: no limit */
    int64_t gpu_size; /* bytes of memory that a GPU must have */
    int64_t gpu_free; /* bytes of GPU memory that must be free now */
    const struct need *need; /* memory that its ranks take of their nodes; NULL: not known */
    int32_t first;           /* next rank to place; 0 except while parts are chosen */
    bool alone;              /* runs beside no other attempt */
    int avoid_gpu;  /* GPU of avoid_node that it failed on last: taken only if no other will do */
    int avoid_node; /* -1: it avoids no GPU */
    /* out; in/out if the job moves */
    int node; /* node of rank 0, an index into nodes; -1: the job waits */
    int n_parts;
    struct sched_part part[JOB_MAX_RANKS];
    uint8_t gpu[JOB_MAX_RANKS]; /* SCHED_GPUS: GPU of each rank, an index into its node's GPUs */
    char reason_code[32], reason[SCHED_REASON_SIZE];
};

enum sched_gpu_state {
    SCHED_GPU_FREE,
    SCHED_GPU_HELD, /* a job of this cluster has it */
    SCHED_GPU_KEPT, /* kept in this pass for a job that waits */
    SCHED_GPU_BUSY, /* processes of others compute on it */
    SCHED_GPU_UNFIT,
};

struct sched_gpu {
    int64_t memory_size, memory_free;
    uint8_t state; /* enum sched_gpu_state; in/out: placements make it HELD */
    uint8_t far[GPU_MAX];
};

struct sched_node {
    char name[NODE_NAME];
    bool up, quarantined;
    bool cordoned;            /* it gets nothing new; why: a few words */
    char why[SCHED_WHY_SIZE]; /* "drained: a new kernel" */
    bool ends;                /* the node's time is limited: it ends in left_ms */
    int64_t left_ms;
    int64_t
        kept_for[2]; /* in/out: the job that is held to it and waits for slots, for GPUs: no other
                      * job of that line starts here */
    int32_t net;     /* nodes of one net (node_net) reach each other; 0: this one reaches none */
    int32_t n_slots, n_reserved, n_preparing; /* in/out: placements are added */
    /* in/out: slots kept for ranks of jobs that wait for another node, as SCHED_GPU_KEPT for
     * GPUs */
    int32_t n_kept;
    bool emulated;
    int64_t memory_size, memory_held; /* size 0: unknown; held: in/out, by all work there */
    int n_attempts;                   /* in/out: attempts there, preparations too */
    bool alone;                       /* in/out: one of these attempts must be alone here */
    int32_t n_gpus;
    struct sched_gpu gpu[GPU_MAX];
};

/* Tells whether rank 0 must be on node `only`: its checkpoint is there, or it tests that node. */
static inline bool sched_held(const struct sched_job *j)
{
    return j->only >= 0 && (j->checkpoint || j->toy);
}
/* Tells whether the nodes that the job may use could take it, if they were idle. */
bool sched_could(const struct sched_job *j, const struct sched_node *nodes, int n_nodes);

/* Sorts jobs into scheduling order and fills every job's verdict. */
void sched_pick(struct sched_job *jobs, int n_jobs, struct sched_node *nodes, int n_nodes,
                int64_t now_ms);

#endif
