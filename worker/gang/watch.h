/* watch.h: the watchdog that detects a hang. It is pure. Its caller passes samples and the time
 * between them, so that tests can choose samples and times.
 *
 * The watchdog sees progress if the last-operation record of a rank changes, or if the number
 * of bytes that a rank has read or written changes. The record changes with each operation of
 * the transport and each task of an operation that the CPU computes. Usually the whole time
 * without progress is counted. A rank is busy while it uses CPU time or waits for a processor
 * or a disk. While at least one rank is busy and no rank is stopped, only a tenth of the time
 * is counted. For this reason the limit is ten times as long for work without tasks and on a
 * machine under load, but an endless loop is still found. A rank with a GPU is always treated
 * as busy, because it sleeps while it waits for the GPU. If a rank waits for a peer that is
 * dead, the rank notices this (worker/comm) earlier than this watchdog. */
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
    bool runnable; /* whether at least one of the rank's threads runs or waits for a processor */
    bool on_gpu;   /* whether the rank computes on a GPU; if so, CPU time does not show the
                    * work of the rank */
};

struct watch {
    int64_t quiet_ms; /* time since the last progress of any rank; while a rank is busy and no
                       * rank is stopped, only a tenth of the time is counted */
    int64_t n_ops[JOB_MAX_RANKS], n_tasks[JOB_MAX_RANKS], cpu_ms[JOB_MAX_RANKS];
    int64_t moved[JOB_MAX_RANKS];
};

/* Processes the samples of this node's n ranks. The samples were made dt_ms after the previous
 * samples. */
void watch_tick(struct watch *w, const struct watch_sample *s, int n, int64_t dt_ms);
/* Returns the index of the slowest rank. If a rank is stopped, the stopped rank is the
 * slowest. Otherwise the slowest rank is the rank with the smallest number of operations,
 * among the ranks that have not exited. Returns 0 if all ranks have exited. */
int watch_slowest(const struct watch_sample *s, int n);
/* Returns a rank's progress, which is compared with the progress of ranks in other gangs (the
 * member `reached` of struct rank_fail). */
int64_t watch_reached(const struct watch_sample *s);
/* Writes a sentence that describes a hang, such as "no rank has moved for 31 s; rank 1 is the
 * slowest (its process is stopped): step 12, layer 3, hop 1, ring_kv, awaiting rank 0, after
 * 812 operations. ..." */
void watch_sentence(const struct watch *w, const struct watch_sample *s, int n, int first_rank,
                    char *out, size_t size);
/* Writes the position of one rank for the log, such as "step 12, layer 3, hop 1, ring_kv,
 * awaiting rank 0". */
void watch_where(const struct rank_lastop *op, char *out, size_t size);

#endif
