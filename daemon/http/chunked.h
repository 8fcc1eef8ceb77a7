/* chunked.h: reads a chunked body (RFC 9112, 7.1) strictly, which means that sizes are hexadecimal
 * digits and that every line and chunk ends with CR LF. Extensions and trailers are skipped. The
 * code is pure, and the bytes may be passed in pieces of any size. */
#ifndef SEQD_DAEMON_HTTP_CHUNKED_H
#define SEQD_DAEMON_HTTP_CHUNKED_H

#include <stddef.h>
#include <stdint.h>
#include "daemon/http/guard.h"

struct chunked { /* begins as {0} */
    int state;
    int64_t left;  /* bytes of the current chunk that are still to come */
    int64_t total; /* bytes of all chunks that have begun */
    /* digits read of the present size; bytes read of the present extension, or of the trailers */
    int n_digits, n_other;
};

/* Reads the next n bytes. Returns how many of them it has read, which is at least 1. *n_data of
 * these bytes, at *data (borrowed from bytes), belong to the body. *done is 1 if the body is
 * complete with the last byte that was read, and -1 if the body is refused, with the reason in
 * *why. */
size_t chunked_read(struct chunked *c, const char *bytes, size_t n, const char **data,
                    size_t *n_data, int *done, const struct request_verdict **why);

#endif
