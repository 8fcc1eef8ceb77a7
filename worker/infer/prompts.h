/* prompts.h: reads the prompts of a generate job: the literal input.prompt, or a file.
 *
 *   text           the whole file is one prompt
 *   jsonl          one prompt a line, the string under input.text_key
 *   openai_batch   one request a line (worker/infer/requests.h), kept as the bytes of the line.
 *                  Every line must have a custom_id, and all must differ. Other errors in a
 *                  request are found later, and refuse only that request. The same holds for the
 *                  lines of a diffusion model's jsonl (worker/infer/flow_request.h)
 *
 * Only rank 0 reads; the others get a copy over the ring, so that all have the same prompts even
 * if the file changes meanwhile. */
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
    int64_t *end;  /* owned, [n]: bytes [end[i-1], end[i]) of text are prompt i */
    char *text;    /* owned; not NUL-terminated */
    int64_t *line; /* owned, [n]: line number of prompt i, from 1; 0: the prompt is not a line
                    * of a file, or this is not rank 0 */
};

/* Reads the prompts in this process. roots: as in data_prepare. fails: ERR_INVALID (no prompt, an
 * empty prompt, an invalid line, which is named, a custom_id that occurs twice, a file of another
 * format, a path that matches several files or lies beneath no root), ERR_TOO_LARGE,
 * ERR_NOT_FOUND, ERR_IO. */
int prompts_read(struct prompts *p, const struct job_spec *spec, const char *const *roots,
                 int n_roots, struct err *e);
/* Sends rank 0's prompts to all ranks. Before the call p is {0} on the others. comm NULL: does
 * nothing. */
int prompts_share(struct prompts *p, struct comm *comm, void *bounce, struct err *e);
void prompts_fini(struct prompts *p);

const char *prompts_at(const struct prompts *p, int i, int64_t *size);

#endif
