/* watch.h: the watchdog that detects a hang. It is pure: its caller passes samples and their time,
 * so that tests choose both.
 *
 * Progress is a change in the last-operation record of any rank, or in the number of bytes that a
 * rank has read or written. The record changes with each operation of the transport and each task
 * of an operation that the CPU computes. Time without progress usually counts in full. But it
 * counts only a tenth while some rank is busy, which means that it uses CPU time or waits for a
 * processor or a disk, provided that no rank is stopped. So the limit is ten times as long for
 * work without tasks and on a machine under load, and an endless loop is still found. A rank with
 * a GPU always counts as busy, because it sleeps while it waits for the GPU. A rank finds a
 * missing peer itself, and sooner than this watchdog (worker/comm). */
#ifndef SEQD_GANG_WATCH_H
#define SEQD_GANG_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include "api/core/rank.h"

struct watch_sample {
    struct rank_lastop op;
    int64_t cpu_ms;
    int64_t moved; /* bytes read and written, in the count of process_moved */
    char state;    /* state in /proc/PID/stat; 'T' means stopped */
    bool runnable; /* one of the rank's threads runs or waits for a processor */
    bool on_gpu;   /* the rank computes on a GPU, whose work is not visible in CPU time */
};

struct watch {
    int64_t quiet_ms; /* time without progress of any rank, in which time with a busy rank counts a
                       * tenth */
    int64_t n_ops[JOB_MAX_RANKS], n_tasks[JOB_MAX_RANKS], cpu_ms[JOB_MAX_RANKS];
    int64_t moved[JOB_MAX_RANKS];
};

/* Processes samples of this node's n ranks, which were made dt_ms after the previous ones. */
void watch_tick(struct watch *w, const struct watch_sample *s, int n, int64_t dt_ms);
/* Returns the index of the slowest rank. That is a stopped rank, if there is one. Otherwise it is
 * the rank with the fewest operations among those that have not exited, or 0 if all have
 * exited. */
int watch_slowest(const struct watch_sample *s, int n);
/* Returns a rank's progress for comparison with ranks of other gangs (the member `reached` of
 * struct rank_fail). */
int64_t watch_reached(const struct watch_sample *s);
/* Writes the sentence about a hang: "no rank has moved for 31 s; rank 1 is the slowest (its
 * process is stopped): step 12, layer 3, hop 1, ring_kv, awaiting rank 0, after 812 operations.
 * ..." */
void watch_sentence(const struct watch *w, const struct watch_sample *s, int n, int first_rank,
                    char *out, size_t size);
/* Writes the position of one rank for the dump: "step 12, layer 3, hop 1, ring_kv, awaiting rank
 * 0". */
void watch_where(const struct rank_lastop *op, char *out, size_t size);

#endif
