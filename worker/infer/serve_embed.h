/* serve_embed.h: requests for vectors to a serve job of an embedding model:
 *
 *     {"input": a text, a list of ids, or a list of either, "encoding_format": "float" or "base64",
 *      "dimensions": the model's width, "user": ignored}
 *     -> {"object": "list", "data": [{"object": "embedding", "index", "embedding"}], "model",
 *         "usage": {"prompt_tokens", "total_tokens"}}
 *
 * Each input has a pass of its own, and its vector has the bits that an embed job with data.packing
 * "none" gives it (embed.h). The prompt of the model (embed.prompts) stands before each text. */
#ifndef SEQD_INFER_SERVE_EMBED_H
#define SEQD_INFER_SERVE_EMBED_H

#include "worker/infer/pooler.h"
#include "worker/infer/serve.h"

struct serve_embed {
    struct pooler pooler;
    struct text text; /* scratch */
};

int serve_embed_open(struct serve_embed *s, const struct infer *in, struct err *e);
void serve_embed_close(struct serve_embed *s);
/* Reads the body of q into q->request. q->request.refused has the reason if it cannot be answered.
 * Fails if there is no memory. */
int serve_embed_read(const struct infer *in, struct serve_request *q, struct err *e);
/* Computes the vector of a text of n tokens. want gets the counts of the pass. Fails with
 * ERR_CORRUPT if an element is not finite. Collective. */
int serve_embed_run(struct serve_embed *s, const int32_t *tokens, int64_t n,
                    struct comm_count want[PURPOSE_N], struct err *e);
/* Answers q with the last vector. r is its request. The answer of a list is complete with the last
 * of its inputs. */
int serve_embed_answer(struct serve_embed *s, struct serve_request *q, const struct request *r,
                       struct err *e);

#endif
