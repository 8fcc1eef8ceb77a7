/* prompts.h: reads the prompts of a generate job from the literal input.prompt or from a file.
 *   text           the whole file is one prompt
 *   jsonl          each line is one prompt, the string under input.text_key
 *   openai_batch   each line is one request (worker/infer/requests.h), and its bytes are stored
 *                  without a change. Every line must have a custom_id that no other line has.
 *                  Other errors in a line are found later, and then only the request of this line
 *                  is refused. The same holds for the lines of a diffusion model's jsonl
 *                  (worker/infer/flow_request.h)
 * Only rank 0 reads the file. The other ranks get a copy from rank 0. For this reason all
 * ranks have the same prompts, even if the file changes while it is read. */
#ifndef SEQD_INFER_PROMPTS_H
#define SEQD_INFER_PROMPTS_H

#include <stdint.h>
#include "api/core/err.h"
#include "worker/comm/comm.h"

struct job_spec;

#define PROMPTS_MAX      65536
#define PROMPTS_MAX_SIZE ((int64_t)64 << 20) /* Largest size of a file of prompts, in bytes. */

struct prompts {
    int n;
    int64_t *end; /* owned, [n]: prompt i is bytes [end[i-1], end[i]) of text */
    char *text;   /* owned; not NUL-terminated */
    /* Owned, [n]: line number of prompt i, counted from 1. It is 0 if the prompt is not a line of
     * a file, and on all ranks except rank 0. */
    int64_t *line;
};

/* Reads the prompts in this process. The parameter `roots` has the same meaning as in
 * data_prepare. Fails with ERR_INVALID if there is no prompt, if a prompt is empty, or if a
 * line is invalid; the error names the line. Also fails with ERR_INVALID if a custom_id occurs
 * twice, if the format of the file is not the expected format, or if the path matches several
 * files or is not beneath a root. Also fails with ERR_TOO_LARGE, ERR_NOT_FOUND or ERR_IO. */
int prompts_read(struct prompts *p, const struct job_spec *spec, const char *const *roots,
                 int n_roots, struct err *e);
/* Sends rank 0's prompts to all ranks. On the other ranks p must be {0} before the call. If comm
 * is NULL, does nothing. */
int prompts_share(struct prompts *p, struct comm *comm, void *bounce, struct err *e);
void prompts_fini(struct prompts *p);

const char *prompts_at(const struct prompts *p, int i, int64_t *size);

#endif
