/* watch.h: the hang watchdog. It is pure: its caller passes samples and their time, so that tests
 * choose both.
 *
 * Progress is a change in any rank's last-operation record (an operation of the transport, or a
 * task of an operation that the CPU computes), or in the number of bytes that a rank has read or
 * written. Without progress, time counts a tenth while a rank uses CPU time, or waits for a
 * processor or a disk, unless a rank is stopped. So work without tasks and a machine under load
 * get ten times the limit, and an endless loop is still found. A rank with a GPU always counts as
 * busy in this way, since it sleeps while it waits for the GPU. A rank finds a missing peer
 * itself, sooner (worker/comm). */
#ifndef SEQD_GANG_WATCH_H
#define SEQD_GANG_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include "api/core/rank.h"

struct watch_sample {
    struct rank_lastop op;
    int64_t cpu_ms;
    int64_t moved; /* bytes read and written, as process_moved counts them */
    char state;    /* state of /proc/PID/stat: 'T' is stopped */
    bool runnable; /* one of its threads runs, or waits for a processor */
    bool on_gpu;   /* computes on a GPU, which CPU time does not show */
};

struct watch {
    int64_t quiet_ms; /* time without progress of any rank; busy time counts a tenth */
    int64_t n_ops[JOB_MAX_RANKS], n_tasks[JOB_MAX_RANKS], cpu_ms[JOB_MAX_RANKS];
    int64_t moved[JOB_MAX_RANKS];
};

/* Takes samples of this node's n ranks, dt_ms after the previous ones. */
void watch_tick(struct watch *w, const struct watch_sample *s, int n, int64_t dt_ms);
/* Returns the index of the slowest rank: a stopped rank, else, of the ranks that have not exited,
 * the rank with the fewest operations; 0 if all have exited. */
int watch_slowest(const struct watch_sample *s, int n);
/* Returns a rank's progress, for comparison with ranks of other gangs: `reached` of struct
 * rank_fail. */
int64_t watch_reached(const struct watch_sample *s);
/* Writes "no rank has moved for 31 s; rank 1 is the slowest (its process is stopped): step 12,
 * layer 3, hop 1, ring_kv, awaiting rank 0, after 812 operations. ..." */
void watch_sentence(const struct watch *w, const struct watch_sample *s, int n, int first_rank,
                    char *out, size_t size);
/* Describes one rank's position for the dump: "step 12, layer 3, hop 1, ring_kv, awaiting rank
 * 0". */
void watch_where(const struct rank_lastop *op, char *out, size_t size);

#endif
