/* flow_generate.h: runs a generate job of a diffusion model: samples one request after another,
 * and writes an artifact for each of them.
 *
 * Rank 0 reads the requests and their captions and sends them to the other ranks. If a request
 * cannot be computed, it is refused, and the next one begins. The artifact is named
 * sample-NNNNN.safetensors, where NNNNN is the number of the request in the file, counted from 0.
 * It is complete before its request gets a line in the journal (results.h), so that a later
 * attempt computes no sample again. The line is:
 *
 *   {"id": "req-3", "custom_id": "a", "response": {"status_code": 200, "request_id": "req-3",
 *    "body": {"artifact": "sample-00003.safetensors", "sha256": "..", "size": 1234, "latents":
 *    [4, 15, 60, 106], "steps": 30, "guidance": 7}}, "error": null}
 *
 * The line of a refused request is the same as in a batch of text (reply.h). */
#ifndef SEQD_INFER_FLOW_GENERATE_H
#define SEQD_INFER_FLOW_GENERATE_H

#include "worker/infer/flow_request.h"
#include "worker/infer/infer.h"

struct flow_generate {
    struct prompts requests; /* rank 0: the lines of input.path; owned */
    const char *root;        /* rank 0: the root of input.path; borrowed */
    char manifest[FILE_PATH_SIZE];
    /* ---- results; n_*: on rank 0 ---- */
    int64_t n_samples, n_refused, n_resumed; /* n_resumed: answered by earlier attempts */
    struct err refused;                      /* the first refusal of this attempt */
    bool ledger_equal;                       /* this attempt's counts equal the plan's */
    struct artifact_done results, errors;    /* on rank 0; errors has no name if no request was
                                              * refused */
};

/* Reads input.path on rank 0. Fails as prompts_read does. */
int flow_generate_open(struct flow_generate *g, const struct job_spec *spec,
                       const char *const *roots, int n_roots, struct err *e);
/* Computes the samples that are missing. Collective. Fails with ERR_ABORTED when the job is
 * stopped, and with ERR_CORRUPT if a weight is not finite (the error names it). Also fails with
 * ERR_IO, with ERR_NO_SPACE, or with the errors of comm. */
int flow_generate_run(struct flow_generate *g, const struct infer *in, struct err *e);
/* Describes the artifact of request i, on rank 0 after the run. Returns 1, or 0 if the request was
 * refused, or -1 on an error. */
int flow_generate_sample(const struct flow_generate *g, const struct infer *in, int64_t i,
                         struct artifact_done *out, struct err *e);
void flow_generate_close(struct flow_generate *g);

#endif
