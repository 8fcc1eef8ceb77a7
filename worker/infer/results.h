/* results.h: keeps the answers of a batch, one for every request, over any number of attempts.
 *
 * DIR/batch-DIGEST.jsonl is a journal with one line for each answered request. The line of a text
 * is made by reply_batch, and the line of a sample by flow_generate.c. A line is synced before
 * the work that answered the request begins its next request. DIGEST is the digest of the
 * requests, so an edited batch starts from the beginning. If an attempt finds a journal, it keeps
 * the lines before the first incomplete line, removes the rest of the file, and continues with
 * the requests that have no line.
 *
 * When every request has a line, the journal becomes the artifact results.jsonl by a hard
 * link. If the requests were not completed in the order in which the file lists them, or if
 * the link cannot be made, the artifact is a copy of the journal in the order of the requests.
 * The lines of refused requests are also written to errors.jsonl. In a line, "id" contains the
 * index of a request, and custom_id must be the custom_id of that request. Only rank 0 calls
 * these functions. */
#ifndef SEQD_INFER_RESULTS_H
#define SEQD_INFER_RESULTS_H

#include "api/core/artifact.h"
#include "worker/infer/prompts.h"

struct results { /* {.fd = -1} means that it is closed */
    int fd;
    char path[FILE_PATH_SIZE]; /* path of the journal */
    const struct prompts *p;   /* borrowed */
    uint8_t *answered;         /* owned, [p->n] */
    int64_t last;              /* index of the request of the last line; -1 if there is no line */
    bool shared;               /* other nodes may open the journal, too */
    bool mixed;                /* set if the lines are not in the order of the requests */
    int64_t n_answered, n_refused;
    int64_t n_prompt_tokens, n_tokens; /* sums over the answers, read from their "usage" */
};

/* Opens the journal. `epoch` is that of the attempt if nodes share job_dir, and otherwise 0.
 * Then the attempt continues in a copy, and results_finish fails with ERR_ABORTED once a later
 * attempt has opened the journal. */
int results_open(struct results *r, const char *job_dir, const struct prompts *p, int64_t epoch,
                 struct err *e);
/* Adds the line of request i. The request must not have a line yet. */
int results_add(struct results *r, int i, const char *line, int64_t size, struct err *e);
/* Publishes the results. Every request must have a line. errors->name becomes "" if no request was
 * refused. */
int results_finish(struct results *r, const char *job_dir, struct artifact_done *done,
                   struct artifact_done *errors, struct err *e);
void results_close(struct results *r);

#endif
