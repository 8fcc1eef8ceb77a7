/* infer.h: generation with a model that is loaded, over the ring; and what scoring shares with it.
 *
 * Generate: prefill of the prompt over the ring; keys and values stay where prefill left them; new
 * ones are stored in turn, CACHE_BLOCK tokens a rank (2408.04093's tree decoding, merged in rank
 * order). Every rank gets the same logits and chooses the same token. */
#ifndef SEQD_TRAIN_INFER_H
#define SEQD_TRAIN_INFER_H

#include <stdbool.h>
#include "worker/model/model.h"
#include "worker/train/artifact.h"
#include "worker/train/prompts.h"

struct infer {
    struct model *model; /* initialised, weights loaded */
    const struct job_spec *spec;
    const char *job_dir;
    bool (*stopped)(void *arg); /* asked between windows and between tokens */
    void *arg;
};

enum infer_finish { FINISH_STOP, FINISH_LENGTH };
const char *infer_finish_name(enum infer_finish f); /* "stop", "length" */

struct infer_text {
    char *text; /* owned: the first prompt's continuation, valid UTF-8 */
    int64_t n_prompts, n_prompt_tokens, n_tokens; /* of all prompts */
    enum infer_finish finish;                     /* of the first */
    bool ledger_equal;
    struct artifact_done artifact; /* rank 0: generate.jsonl, one line per prompt */
};

/* Collective; every rank has the same prompts. fails: ERR_TOO_LARGE when a prompt is longer than
 * the plan's sequence, naming data.seq_len. */
int infer_generate(const struct infer *in, const struct prompts *p, struct infer_text *out,
                   struct err *e);
void infer_text_fini(struct infer_text *t);

/* One prompt: tokens [n_prompt] are continued until the end of a document or `room` tokens; out
 * [room] gets them. request keys the random numbers. Also for tests. */
int infer_continue(const struct infer *in, const int32_t *tokens, int64_t n_prompt, int64_t request,
                   int32_t *out, int64_t room, int64_t *n_out, enum infer_finish *finish,
                   struct err *e);
/* Prefill of tokens [n] and the logits [V] behind the last one, on every rank. Also for tests. */
int infer_prefill(const struct infer *in, const int32_t *tokens, int64_t n, float *logits,
                  struct err *e);

/* ---- shared with score.c ---------------------------------------------------------------------- */

int infer_check_stop(const struct infer *in, struct err *e); /* ERR_ABORTED once stopped */
/* Says where the rank stands and starts counting what it moves. */
void infer_at(const struct infer *in, int64_t step);
/* *ok on every rank becomes true only if it is true on all. Collective. */
int infer_agree(const struct infer *in, bool *ok, struct err *e);

#endif
