/* serve_stream.h: the parts of an answer that can be sent before the answer is complete. */
#ifndef SEQD_INFER_SERVE_STREAM_H
#define SEQD_INFER_SERVE_STREAM_H

#include "worker/infer/infer.h"
#include "worker/infer/reply.h"

/* The place in an answer up to which it was sent. */
struct serve_cursor {
    bool stream;    /* set if the answer is sent as it is made */
    int64_t choice; /* index of the continuation */
    int64_t n_tokens;
    int64_t n_bytes; /* with a tokenizer, offset in the text of prompt and continuation; 0 before
                      * the first part. Without one, number of the bytes of these tokens and of an
                      * echoed prompt */
    bool begun;      /* set if a part of the continuation was sent */
    bool after_call; /* set if the last part was a call */
    int64_t n_calls; /* number of calls that were sent */
    struct calls_piece piece;
};

/* Finds the next part of the answer in work w, or in the complete answer if w has ended. Moves the
 * cursor past the part. Returns 1 if there is a part, 0 if there is none now, and -1 if there is no
 * memory. The part is valid until the next pass or the next call with the same `text`. A text ends
 * at a whole character. It does not have the start of what may become a stop string. */
int serve_stream_next(struct serve_cursor *c, const struct infer *in, const struct infer_work *w,
                      const struct infer_answer *a, struct text *text, struct reply_chunk *out);

#endif
