/* chunked.h: reads a chunked body (RFC 9112, 7.1) strictly: sizes of hexadecimal digits, CR LF at
 * every border. Extensions and trailers are skipped. Pure; bytes may come in any pieces. */
#ifndef SEQD_DAEMON_HTTP_CHUNKED_H
#define SEQD_DAEMON_HTTP_CHUNKED_H

#include <stddef.h>
#include <stdint.h>
#include "daemon/http/guard.h"

struct chunked { /* begins as {0} */
    int state;
    int64_t left;          /* bytes left of the chunk */
    int64_t total;         /* bytes of all chunks begun */
    int n_digits, n_other; /* digits of this size; bytes of this extension, or of the trailers */
};

/* Reads the next n bytes. Returns how many bytes it took, at least 1. *n_data of them, at *data
 * (borrowed from bytes), belong to the body. *done: 1 when the body is complete with the last byte
 * taken; -1 when it is refused, and *why says why. */
size_t chunked_read(struct chunked *c, const char *bytes, size_t n, const char **data,
                    size_t *n_data, int *done, const struct request_verdict **why);

#endif
