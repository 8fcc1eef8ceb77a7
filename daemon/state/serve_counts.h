/* serve_counts.h: the counts of a job that serves, over all its attempts. Rank 0 reports its work
 * (struct rank_serving). seqd itself counts the requests that come through its own door and how
 * long their clients wait. The stored document of the job has all of it, so that the counts
 * continue after a restart of seqd. All functions that count accept NULL, which stands for a job
 * that does not serve. They use no clock: the caller gives the time. tested:
 * tests/daemon/test_seqd_serve_counts.c */
#ifndef SEQD_DAEMON_STATE_SERVE_COUNTS_H
#define SEQD_DAEMON_STATE_SERVE_COUNTS_H

#include <stdbool.h>
#include "api/core/jwrite.h"
#include "api/core/rank.h"
#include "api/wire.h"

#define SERVE_BUCKETS 14 /* bounds of a histogram */

/* Waits of clients, in seconds. */
enum serve_wait {
    SERVE_WAIT_FIRST,  /* from the whole request to the first piece of an answer in a stream */
    SERVE_WAIT_TOKEN,  /* between two pieces of a stream; each has a token, as a rule */
    SERVE_WAIT_ANSWER, /* from the whole request to the end of its answer, stream or not */
    SERVE_WAIT_N
};

struct serve_histogram {
    int64_t n[SERVE_BUCKETS + 1]; /* waits up to each bound, and longer ones, each counted once */
    double sum_s;
};

struct serve_counts {
    int64_t open; /* requests that seqd has passed on and that are not answered */
    int64_t lost; /* requests that a process, a node or a link has lost */
    struct serve_histogram wait[SERVE_WAIT_N]; /* requests that were answered with 200 */
    struct rank_serving before;                /* sums of the attempts before the present one */
    struct rank_serving now;                   /* the last report of the present attempt */
    double prompt_tokens_s, tokens_s;          /* between the last two reports */
    double rows;                               /* mean rows of a pass between them */
};

/* The times of a request at the door. */
struct serve_watch {
    int64_t begun_us; /* time at which it came */
    int64_t piece_us; /* time of the last piece of its answer; 0 if there was none */
    bool good;        /* answered with 200 */
    bool stream;
};

/* ---- seqd's door ---- */
void serve_counts_open(struct serve_counts *c, struct serve_watch *w, int64_t now_us);
/* A piece of an answer has come. status and stream are valid in the first piece. If `more` is not
 * set, the answer is complete. */
void serve_counts_piece(struct serve_counts *c, struct serve_watch *w, const struct msg *m,
                        int64_t now_us);
void serve_counts_lost(struct serve_counts *c);
void serve_counts_closed(struct serve_counts *c); /* the client has gone */

/* ---- rank 0 ---- */
/* Tells whether the members of a report are in range, so that sums of them are, too. */
bool serve_counts_good(const struct rank_serving *r);
void serve_counts_report(struct serve_counts *c, const struct rank_serving *r);
void serve_counts_attempt(struct serve_counts *c); /* an attempt begins */
/* Returns a copy of rank 0's result, malloc'd, in which the counts are those of all attempts.
 * `result` is an object. */
char *serve_counts_result(const struct serve_counts *c, const char *result);

/* ---- what is shown ---- */
/* Returns a sum over all attempts, and its name. Returns -1 if there is no sum with this index. */
int64_t serve_counts_sum(const struct serve_counts *c, int index, const char **name);
int64_t serve_counts_requests(const struct serve_counts *c); /* answered ones, of all attempts */
double serve_counts_bound(int bucket); /* the largest wait of a bucket, in seconds */
int64_t serve_counts_waits(const struct serve_histogram *h); /* returns the number of waits */
/* Writes the member `serving` of a job's document. If the job has no attempt now, the numbers of
 * this moment are 0. */
void serve_counts_write(const struct serve_counts *c, bool placed, struct jwrite *w);
/* Reads the object that serve_counts_write has written. Counts that are missing or out of range
 * are 0. */
void serve_counts_read(struct serve_counts *c, const char *json);

#endif
