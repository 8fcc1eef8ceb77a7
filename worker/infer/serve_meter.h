/* serve_meter.h: counts the work of a serve job, and reports the counts to seqd. Only rank 0
 * reports. No function allocates memory. tested: tests/engine/test_serve.c */
#ifndef SEQD_INFER_SERVE_METER_H
#define SEQD_INFER_SERVE_METER_H

#include "worker/infer/infer.h"
#include "worker/infer/serve_asks.h"

#define SERVE_METER_US ((int64_t)1000000) /* shortest time between two reports */

struct serve_result;

struct serve_meter {
    struct rank_serving now, told; /* without the time */
    int64_t begun_us, told_us;
    int64_t n_seen[JOB_MAX_BATCH]; /* counted tokens of the request in each slot */
    bool still;                    /* set if the last report had nothing new, or if there is none */
};

void serve_meter_open(struct serve_meter *m, int64_t now_us);
/* A request begins in a slot. Its prompt has n_tokens, of which n_kept need not be computed. */
void serve_meter_begin(struct serve_meter *m, int slot, int64_t n_tokens, int64_t n_kept);
/* A pass has ended. Call it before the answers that the pass has completed are freed. */
void serve_meter_pass(struct serve_meter *m, const struct infer_work *work, int n,
                      const struct infer_steps *steps);
/* The cache has n pages, of which requests have n_used. */
void serve_meter_pages(struct serve_meter *m, int64_t n, int64_t n_used);
/* Reports the counts, if they have changed and if the time since the last report is long enough.
 * `always` reports them whatever the time is. */
int serve_meter_tell(struct serve_meter *m, const struct serve_door *door,
                     const struct serve_result *out, bool always, struct err *e);
/* Sets the tokens of a result, which are those of the reports. */
void serve_meter_result(const struct serve_meter *m, struct serve_result *out);
/* Returns the time until the next report, or -1 if there is nothing to report. */
int64_t serve_meter_wait_us(const struct serve_meter *m, int64_t now_us);

#endif
