/* prompts.h: reads the prompts of a generate job from the literal input.prompt or from a file.
 *   text           the whole file is one prompt
 *   jsonl          each line is one prompt, the string under input.text_key
 *   openai_batch   each line is one request (worker/infer/requests.h), kept as the bytes of the
 *                  line. Every line must have a custom_id, and all of them must differ. Other
 *                  errors in a line are found later, and only the request of this line is refused
 *                  because of them. The same holds for the lines of a diffusion model's jsonl
 *                  (worker/infer/flow_request.h)
 * Only rank 0 reads the file; the other ranks get a copy over the ring, so that all ranks have the
 * same prompts even if the file changes in the meantime. */
#ifndef SEQD_INFER_PROMPTS_H
#define SEQD_INFER_PROMPTS_H

#include <stdint.h>
#include "api/core/err.h"
#include "worker/comm/comm.h"

struct job_spec;

#define PROMPTS_MAX      65536
#define PROMPTS_MAX_SIZE ((int64_t)64 << 20) /* most bytes of a file of prompts */

struct prompts {
    int n;
    int64_t *end;  /* owned, [n]: prompt i is bytes [end[i-1], end[i]) of text */
    char *text;    /* owned; not NUL-terminated */
    int64_t *line; /* owned, [n]: line number of prompt i, counted from 1; 0 if the prompt is not a
                    * line of a file, and on ranks other than rank 0 */
};

/* Reads the prompts in this process. roots are as in data_prepare. Fails with ERR_INVALID if there
 * is no prompt, if a prompt is empty, if a line is invalid (the error names it), if a custom_id
 * occurs twice, if the file has another format, or if the path matches several files or lies
 * beneath no root. Also fails with ERR_TOO_LARGE, ERR_NOT_FOUND or ERR_IO. */
int prompts_read(struct prompts *p, const struct job_spec *spec, const char *const *roots,
                 int n_roots, struct err *e);
/* Sends rank 0's prompts to all ranks. Before the call p must be {0} on the other ranks. If comm
 * is NULL, this function does nothing. */
int prompts_share(struct prompts *p, struct comm *comm, void *bounce, struct err *e);
void prompts_fini(struct prompts *p);

const char *prompts_at(const struct prompts *p, int i, int64_t *size);

#endif
