/* prompts.h: prompts of a generate job: the literal input.prompt, or a file.
 *
 *   text           the whole file is one prompt
 *   jsonl          one prompt a line, the string under input.text_key
 *   openai_batch   one request a line (worker/infer/requests.h), kept as the bytes of the line.
 *                  Every line must have a custom_id, and no two the same. Other errors in a
 *                  request are found later, and concern only that request. The lines of a
 *                  diffusion model's jsonl are treated the same (worker/infer/flow_request.h)
 *
 * Rank 0 reads; the others get a copy over the ring, so that a file that changes meanwhile cannot
 * make ranks disagree. */
#ifndef SEQD_INFER_PROMPTS_H
#define SEQD_INFER_PROMPTS_H

#include <stdint.h>
#include "api/core/err.h"
#include "worker/comm/comm.h"

struct job_spec;

#define PROMPTS_MAX      65536
#define PROMPTS_MAX_SIZE ((int64_t)64 << 20) /* bytes of all prompts together */

struct prompts {
    int n;
    int64_t *end;  /* owned, [n]: bytes [end[i-1], end[i]) of text are prompt i */
    char *text;    /* owned; not NUL-terminated */
    int64_t *line; /* owned, [n]: prompt i's line in the file, from 1; rank 0 only */
};

/* Reads the prompts in this process. roots: as in data_prepare. fails: ERR_INVALID (no prompt, an
 * empty one, a bad line, naming it), ERR_TOO_LARGE, ERR_NOT_FOUND. */
int prompts_read(struct prompts *p, const struct job_spec *spec, const char *const *roots,
                 int n_roots, struct err *e);
/* Sends rank 0's prompts to everyone; p is empty on the others. comm NULL: does nothing. */
int prompts_share(struct prompts *p, struct comm *comm, void *bounce, struct err *e);
void prompts_fini(struct prompts *p);

const char *prompts_at(const struct prompts *p, int i, int64_t *size);

#endif
