/* serve_read.h: reads the requests of a serve job on rank 0, and writes their answers. */
#ifndef SEQD_INFER_SERVE_READ_H
#define SEQD_INFER_SERVE_READ_H

#include "worker/infer/serve.h"
#include "worker/infer/serve_thread.h"

/* The bytes of bodies that are read before a pass, and the last of them. The requests at work wait
 * for so long. A thread of rank 0 reads bodies that are larger than that. */
#define SERVE_READ_SIZE (32LL << 10)
/* Longest wait for messages while the thread reads, in ms. No message tells of its end. */
#define SERVE_READ_MS 2

/* A request whose body the thread reads. Its parts belong to the thread until serve_thread_end. */
struct serve_reading {
    const struct infer *in;
    struct serve_request q; /* a copy with ask, and the owned body, request and out */
    struct err why;         /* the reason of a refusal */
};

struct serve_reader {
    const struct infer *in;
    struct serve_thread thread;
    struct serve_reading reading;
    int n_slots;
    bool closed; /* set when new requests are refused */
    struct reply reply;
    struct text scratch;
};

void serve_read_open(struct serve_reader *s, const struct infer *in, int n_slots);
void serve_read_fini(struct serve_reader *s);
void serve_read_close(struct serve_reader *s); /* refuses new requests from now on */

/* Tells whether the thread reads a body. The caller must then call serve_read_some again within
 * SERVE_READ_MS. */
bool serve_read_busy(const struct serve_reader *s);
/* Reads requests whose pieces are complete, until SERVE_READ_SIZE bytes are read or no such request
 * is left. Then each of them waits, or it is answered. As long as the thread reads a long body, no
 * other request is read, because the tokenizer converts one text at a time. */
void serve_read_some(struct serve_reader *s, struct serve_asks *asks, struct serve_result *out);
/* Appends the parts of a streamed answer that can be sent now. */
int serve_read_stream(struct serve_reader *s, struct serve_request *q, const struct infer_work *w,
                      const struct infer_answer *a, struct err *e);
/* Counts a request if its answer has ended. q may be NULL. */
void serve_read_count(const struct serve_request *q, struct serve_result *out);
/* Completes the answer, or that of a prompt of a list. */
int serve_read_answer(struct serve_reader *s, struct serve_request *q, const struct request *r,
                      const struct infer_answer *a, struct err *e);

#endif
