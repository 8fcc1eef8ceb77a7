/* sched.h: decides, in pure functions, which queued jobs start now and why the other jobs wait.
 *
 * A gang is placed as a whole or not at all. If one node can hold the gang, it is placed on one
 * node. Among several such nodes, the node with the fewest free slots is chosen. If no node can
 * hold the gang, it is split over several nodes into contiguous ranges of ranks. If the slots
 * allow it, a ring is not split. Otherwise, if the slots allow it, ranks that share layers are not
 * split. The number of nodes is kept as small as these rules allow. Nodes share a gang only if
 * their ranks can reach each other (sched_node.net). Jobs are ordered by priority, then by turns
 * of their users, then by age. A job that would fit on an idle cluster but does not fit now is
 * first in line. No job after it is placed, because otherwise later jobs could overtake it for
 * ever, unless it does not delay the first (backfill.h). A job that waits for its backoff, or that
 * these nodes could never hold, does not block the jobs after it.
 *
 * A checkpoint in a directory that nodes share (seqw --shared) holds a job to no node: the job may
 * run on each node that shares the directory, and on no other.
 *
 * Prepared data can be made again. If no placement of a gang includes the node that has its data,
 * the gang is placed without that node and makes the data where it runs. A checkpoint cannot be
 * made again, so rank 0 must be placed on the node that has the checkpoint. The job is said to be
 * held to that node. A held job that would fit if its node were idle does not block all later
 * jobs. Instead it reserves that node, and slots of other nodes for its other ranks, and later
 * jobs are placed on the remaining slots. No later job starts on that node before the held job, so
 * the held job cannot be overtaken either.
 *
 * A running job that has lost a node of its gang is placed as if it were queued. Its slots, GPUs
 * and memory on other nodes count as free for this job. For other jobs they count as held until
 * this job has stopped there.
 *
 * A node that has failed a job, or that lacks the job's files, is left out if the other nodes
 * could hold the job. A node in quarantine (quarantine.h) gets only its toy run, and a cordoned
 * node (cordon.h) gets no job at all. A node that is going to end gets no job whose time limit
 * ends later.
 *
 * The reason for which a job waits is written by the same code that would have placed it. If the
 * cause that the reason names is removed, the job starts (tests/daemon/test_seqd_sched.c).
 *
 * A rank also takes memory of its node, according to its plan. No byte is given to two ranks. A
 * node that does not report its memory can hold any number of ranks. If memory still runs out and
 * the kernel kills a job, the job's next attempt is alone on its nodes.
 *
 * A rank takes a slot of its node, or one of the node's GPUs. That GPU must be healthy, large
 * enough for the plan and free. It is chosen as near as possible to the GPUs of the rank's
 * neighbours in the ring. Slots and GPUs are separate lines, so a job that waits for GPUs does not
 * delay a job that needs slots. */
#ifndef SEQD_DAEMON_SCHED_SCHED_H
#define SEQD_DAEMON_SCHED_SCHED_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/gpu.h"
#include "api/wire.h"
#include "daemon/sched/need.h"

#define SCHED_NODES       4096
#define SCHED_REASON_SIZE 320 /* room for two names of 63 bytes, and counts */
#define SCHED_WHY_SIZE    64
/* Preparations that may run at the same time on a node. Each is one process that reads files. */
#define SCHED_MAX_PREPARE 4

/* A part is a contiguous range of ranks, which follows the range of the previous part. The struct
 * is small because every queued job has an array for the largest placement. */
struct sched_part {
    uint16_t node; /* index into nodes */
    uint16_t n_ranks;
};
_Static_assert(SCHED_NODES <= UINT16_MAX && JOB_MAX_RANKS <= UINT16_MAX, "a part is four bytes");

/* The resource that a rank takes. */
enum sched_device {
    SCHED_SLOTS,    /* slots of any node */
    SCHED_EMULATED, /* slots of nodes that have the device "emulated" */
    SCHED_GPUS,
};

struct sched_set { /* a set of nodes, by their indices */
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
    int32_t ring;  /* number of ranks of one ring, including the ranks that share layers with ranks
                    * of the ring; a divisor of n_ranks; 0 stands for n_ranks */
    int32_t share; /* number of ranks that share layers; a divisor of `ring`; 0 stands for 1 */
    bool prepare;  /* the job's next task is TASK_PREPARE, which needs a node but no slots */
    bool moves;    /* the job runs, and has lost a node. The members part and gpu are then input:
                    * they have the places that the job holds, and these count as free for the job.
                    * The value GPU_MAX in gpu stands for a GPU that is gone */
    /* the job's transport works only within one node, so all its ranks are placed on one node */
    bool one_node;
    /* step of the checkpoint for which the job must run on node `only`; 0 if there is none */
    int64_t checkpoint;
    /* `checkpoint` belongs to a different job, and this job begins from it */
    bool source;
    bool shared;     /* `checkpoint` lies in a shared directory */
    int64_t wall_ms; /* time that is left of its limit; 0 if it has no limit */
    /* end of its backoff, by the clock of sched_barred's now_ms */
    int64_t not_before_ms;
    /* index of the node on which rank 0 should be; -1 if rank 0 may be on any node */
    int only;
    /* if the job leaves out the node that has its data, 1 + the index of that node; otherwise 0 */
    int data;
    /* the job is the toy run of node `only`, which may be in quarantine. If `only` is -1, the
     * tested node is not among the nodes */
    bool toy;
    /* nodes that failed the job; they are used only if no other placement is possible */
    struct sched_set blamed;
    /* nodes that lack the job's files; they are used only if no other placement is possible, and
     * never while `awaited` is set */
    struct sched_set lacks;
    /* nodes without the shared directory that has the checkpoint of the job; they are never used */
    struct sched_set apart;
    /* nodes whose version does not know a field of the job; they are never used */
    struct sched_set old;
    /* the field that the nodes of `old` do not know; NULL if `old` is empty */
    const char *needs;
    bool awaited; /* a node that has the job's files is down */
    /* a node has been down only for a short time. Until it is up or lost, nodes of `blamed` and
     * `lacks` are not used */
    bool soon;
    int32_t device; /* enum sched_device */
    /* in/out: jobs of its user that have ranks on nodes; NULL if it has no user */
    int32_t *n_user;
    int32_t max_user; /* largest allowed *n_user; 0 means no limit */
    int64_t gpu_size; /* bytes of memory that a GPU must have */
    int64_t gpu_free; /* bytes of GPU memory that must be free now */
    /* memory of their nodes that its ranks take; NULL if it is not known */
    const struct need *need;
    int32_t first; /* next rank to place, which is 0 except while parts are chosen */
    bool alone;    /* it must run beside no other attempt */
    /* GPU of avoid_node on which the job failed last; it is used only if no other GPU fits */
    int avoid_gpu;
    int avoid_node; /* -1 if the job avoids no GPU */
    /* Output; input and output if the job moves. */
    int node; /* node of rank 0, as an index into nodes; -1 if the job waits */
    int n_parts;
    struct sched_part part[JOB_MAX_RANKS];
    /* for SCHED_GPUS, the GPU of each rank, as an index into its node's GPUs */
    uint8_t gpu[JOB_MAX_RANKS];
    char reason_code[32], reason[SCHED_REASON_SIZE];
};

enum sched_gpu_state {
    SCHED_GPU_FREE,
    SCHED_GPU_HELD, /* a job of this cluster holds it */
    SCHED_GPU_KEPT, /* reserved in this pass for a job that waits */
    SCHED_GPU_BUSY, /* processes that are not ours compute on it */
    SCHED_GPU_UNFIT,
};

struct sched_gpu {
    int64_t memory_size, memory_free;
    uint8_t state; /* enum sched_gpu_state; in/out: a placement sets HELD */
    uint8_t far[GPU_MAX];
};

struct sched_node {
    char name[NODE_NAME];
    bool up, quarantined;
    bool cordoned;            /* the node gets no new job; `why` has the reason in a few words */
    char why[SCHED_WHY_SIZE]; /* a reason such as "drained: a new kernel" */
    bool ends;                /* the node's time is limited, and it ends in left_ms */
    int64_t left_ms;
    int64_t
        kept_for[2]; /* in/out: ids of the two jobs that must run on this node, one in the line for
                      * slots and one in the line for GPUs. No other job of that line starts
                      * here */
    /* net of the node (node_net); nodes of one net can reach each other. 0 means that this node
     * can reach no other node */
    int32_t net;
    int32_t n_slots, n_reserved, n_preparing; /* in/out: placements are added */
    /* in/out: slots that are reserved for ranks of jobs that wait for a different node; a GPU that
     * is reserved in this way is marked SCHED_GPU_KEPT */
    int32_t n_kept;
    bool emulated;
    /* memory_size is 0 if it is unknown; memory_held (in/out) is the memory that all work on the
     * node takes */
    int64_t memory_size, memory_held;
    int n_attempts; /* in/out: attempts on the node, including preparations */
    bool alone;     /* in/out: one of these attempts must be alone on the node */
    int32_t n_gpus;
    struct sched_gpu gpu[GPU_MAX];
};

/* Tells whether rank 0 must be on node `only`, because its checkpoint is there or because the job
 * tests that node. */
static inline bool sched_held(const struct sched_job *j)
{
    return j->only >= 0 && (j->checkpoint || j->toy);
}
/* Tells whether the nodes that the job may use could hold the job if they were idle. */
bool sched_could(const struct sched_job *j, const struct sched_node *nodes, int n_nodes);

/* A pass places jobs one by one, in scheduling order. The line begins with zeros. */
struct sched_line {
    /* ids of the jobs that later jobs must wait for, in the line for slots and in the line for
     * GPUs */
    int64_t first[2];
    /* Grows when a job may have changed the nodes. While n_changes and the first of its line stay
     * the same, a job gets the verdict of an earlier job that waits and differs from it in id and
     * priority alone. */
    uint64_t n_changes;
};

/* Tells whether the job may not start now, wherever there is room, and writes why. Resets the
 * verdict. */
bool sched_barred(struct sched_job *j, int64_t now_ms);
/* Finds a place for the ranks of a job, and sets only the parts and the node of *j. Gives up the
 * node that has its data if it must. Returns false if there is no place now. */
bool sched_find(struct sched_job *j, const struct sched_node *nodes, int n_nodes);
/* Chooses the GPUs of the job's parts, and adds its place to the nodes. */
void sched_take(struct sched_job *j, struct sched_node *nodes);
/* Adds a place that sched_take has filled in to the nodes of another time. */
void sched_hold(const struct sched_job *j, struct sched_node *nodes);
/* Takes the place of an attempt from the nodes. Reads only device, need, prepare, part and gpu. */
void sched_release(const struct sched_job *held, struct sched_node *nodes);
/* Fills in the verdict of a job that is not barred, and adds its place to the nodes. */
void sched_place(struct sched_line *l, struct sched_job *j, struct sched_node *nodes, int n_nodes);

#endif
