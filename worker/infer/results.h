/* results.h: keeps the answers of a batch, one for every request, over any number of attempts.
 * DIR/batch-DIGEST.jsonl is a journal with one line per request. The line is written by
 * reply_batch or, for a sample, by flow_generate.c, and is synced before the work begins its next
 * request. DIGEST is the digest of the requests, so that an edited batch starts from the
 * beginning. An attempt that finds a journal keeps the lines before the first incomplete line and
 * cuts off the rest. It then continues with the requests that have no line. When every request has
 * a line, the journal becomes the artifact results.jsonl by a hard link. If the requests ended in
 * another order or the link cannot be made, the artifact is a copy in the order of the requests.
 * The lines of refused requests are also written to errors.jsonl. A line has the number of its
 * request in "id", and must have the custom_id of that request. Only rank 0 calls these
 * functions. */
#ifndef SEQD_INFER_RESULTS_H
#define SEQD_INFER_RESULTS_H

#include "api/core/artifact.h"
#include "worker/infer/prompts.h"

struct results { /* {.fd = -1}: closed */
    int fd;
    char path[FILE_PATH_SIZE]; /* path of the journal */
    const struct prompts *p;   /* borrowed */
    uint8_t *answered;         /* owned, [p->n] */
    int64_t last;              /* index of the request of the last line; -1 if there is no line */
    bool mixed;                /* whether lines are in another order than the requests */
    int64_t n_answered, n_refused;
    int64_t n_prompt_tokens, n_tokens; /* sums over the answers, from their "usage" */
};

int results_open(struct results *r, const char *job_dir, const struct prompts *p, struct err *e);
/* Adds the line of request i, which must not have a line already. */
int results_add(struct results *r, int i, const char *line, int64_t size, struct err *e);
/* Publishes the results. Every request must have its line. errors->name is empty if no request was
 * refused. */
int results_finish(struct results *r, const char *job_dir, struct artifact_done *done,
                   struct artifact_done *errors, struct err *e);
void results_close(struct results *r);

#endif
