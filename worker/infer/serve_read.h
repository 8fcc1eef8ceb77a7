/* serve_read.h: reads the requests of a serve job on rank 0, and writes their answers. */
#ifndef SEQD_INFER_SERVE_READ_H
#define SEQD_INFER_SERVE_READ_H

#include "worker/infer/serve.h"

/* The bytes of bodies that are read before a pass. The requests at work wait for so long. */
#define SERVE_READ_SIZE (1LL << 20)

struct serve_reader {
    const struct infer *in;
    int n_slots;
    bool closed; /* set when new requests are refused */
    struct reply reply;
    struct text scratch;
};

void serve_read_open(struct serve_reader *s, const struct infer *in, int n_slots);
void serve_read_fini(struct serve_reader *s);
void serve_read_close(struct serve_reader *s); /* refuses new requests from now on */

struct request_call serve_read_call(const struct serve_request *q);
/* Sets up r, and reads the body [size] of a request into it. The caller frees r. */
int serve_read_body(const struct infer *in, struct request *r, const struct request_call *c,
                    const char *body, int64_t size, struct err *e);
/* Reads requests whose pieces are complete, until SERVE_READ_SIZE bytes are read or no such request
 * is left. Then each of them waits, or it is answered. */
void serve_read_some(struct serve_reader *s, struct serve_asks *asks, struct serve_result *out);
/* Appends the parts of a streamed answer that can be sent now. */
int serve_read_stream(struct serve_reader *s, struct serve_request *q, const struct infer_work *w,
                      const struct infer_answer *a, struct err *e);
/* Completes the answer. */
int serve_read_answer(struct serve_reader *s, struct serve_request *q, const struct request *r,
                      const struct infer_answer *a, struct err *e);

#endif
