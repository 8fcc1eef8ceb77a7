/* flow_generate.h: runs a generate job of a diffusion model: computes a sample for one request
 * after another, and writes an artifact for each sample.
 *
 * Rank 0 reads the requests and their captions and sends them to the other ranks. If a request
 * cannot be computed, it is refused, and the work continues with the next request. The artifact
 * is named sample-NNNNN.safetensors, where NNNNN is the index of the request in the file, counted
 * from 0. The artifact is complete before its request gets a line in the journal (results.h), so
 * that a later attempt does not compute a sample for a second time. The line is:
 *
 *   {"id": "req-3", "custom_id": "a", "response": {"status_code": 200, "request_id": "req-3",
 *    "body": {"artifact": "sample-00003.safetensors", "sha256": "..", "size": 1234, "latents":
 *    [4, 15, 60, 106], "steps": 30, "guidance": 7}}, "error": null}
 *
 * The line of a refused request has the form that reply.h describes. */
#ifndef SEQD_INFER_FLOW_GENERATE_H
#define SEQD_INFER_FLOW_GENERATE_H

#include "worker/infer/flow_request.h"
#include "worker/infer/infer.h"

struct flow_generate {
    struct prompts requests; /* owned, filled on rank 0: the lines of input.path */
    const char *root;        /* borrowed, set on rank 0: the root of input.path */
    char manifest[FILE_PATH_SIZE];
    /* ---- results ---- */
    int64_t n_samples, n_refused, n_resumed; /* counted on rank 0; n_resumed is the number of
                                              * requests that earlier attempts completed */
    struct err refused;                      /* the first refusal in this attempt */
    bool ledger_equal;                       /* set if the counts of messages and bytes of this
                                              * attempt are equal to those of the plan */
    /* filled only on rank 0; the name of `errors` is "" if no request was refused */
    struct artifact_done results, errors;
};

/* Reads input.path on rank 0. Fails as prompts_read does. */
int flow_generate_open(struct flow_generate *g, const struct job_spec *spec,
                       const char *const *roots, int n_roots, struct err *e);
/* Computes the samples that do not exist yet. Collective. Fails with ERR_ABORTED if the job is
 * stopped. Fails with ERR_CORRUPT if a weight is not finite; the error names the weight. Also
 * fails with ERR_IO, with ERR_NO_SPACE, or with the errors of comm. */
int flow_generate_run(struct flow_generate *g, const struct infer *in, struct err *e);
/* Describes the artifact of request i. Call it on rank 0 after the run. Returns 1 after it has
 * described the artifact, 0 if the request was refused, and -1 on an error. */
int flow_generate_sample(const struct flow_generate *g, const struct infer *in, int64_t i,
                         struct artifact_done *out, struct err *e);
void flow_generate_close(struct flow_generate *g);

#endif
