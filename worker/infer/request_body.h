/* request_body.h: the reader of a request's body, which batches and served requests share. */
#ifndef SEQD_INFER_REQUEST_BODY_H
#define SEQD_INFER_REQUEST_BODY_H

#include "api/core/jread.h"
#include "worker/infer/requests.h"

struct request_body {
    struct request *r;
    const struct job_spec *spec;
    struct jread j;
    uint32_t seen;                 /* one bit for each member, in the order of members[] */
    int64_t best_of, top_logprobs; /* -1 if they are not given */
    bool length;                   /* set if max_tokens was given, by either of its names */
    bool options;                  /* set if stream_options was given */
    struct err *e;
};

/* Sets all options of r to those of the job. */
void request_defaults(struct request *r, const struct job_spec *spec);
struct request_body request_body_begin(struct request *r, const struct job_spec *spec);
/* Reads the object that begins at b->j. */
int request_body_take(struct request_body *b);
/* Checks the rules that concern several members. */
int request_body_check(struct request_body *b);
/* Sets the members of the request that depend on whether the body has a seed. Before the body is
 * read, r->key.seed must be -1. */
void request_body_end(struct request_body *b);

#endif
