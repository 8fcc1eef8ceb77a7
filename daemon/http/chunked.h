/* chunked.h: reads a chunked body (RFC 9112, 7.1) strictly. Sizes must be hexadecimal digits, and
 * every line and chunk must end with CR LF. Extensions and trailers are skipped. The bytes may be
 * passed in pieces of any size. The functions are pure. */
#ifndef SEQD_DAEMON_HTTP_CHUNKED_H
#define SEQD_DAEMON_HTTP_CHUNKED_H

#include <stddef.h>
#include <stdint.h>
#include "daemon/http/guard.h"

struct chunked {  /* begins as {0}, but for most */
    int64_t most; /* largest number of bytes of the body; 0 stands for HTTP_MAX_BODY */
    int state;
    int64_t left;  /* bytes of the current chunk that are still to come */
    int64_t total; /* bytes of all chunks that have begun */
    /* number of digits of the present size so far; number of bytes of the present extension or of
     * the trailers so far */
    int n_digits, n_other;
};

/* Reads some of the next n bytes. Returns the number of bytes that it has read, at least 1. *data
 * and *n_data give the part of these bytes that belongs to the body; *data points into bytes.
 * *done is 1 if the last byte that was read completes the body. *done is -1 if the body is
 * refused; *why has the reason. */
size_t chunked_read(struct chunked *c, const char *bytes, size_t n, const char **data,
                    size_t *n_data, int *done, const struct request_verdict **why);

#endif
