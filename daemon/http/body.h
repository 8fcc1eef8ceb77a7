/* body.h: reads a small JSON object of a request into variables, with one row for each member. */
#ifndef SEQD_DAEMON_HTTP_BODY_H
#define SEQD_DAEMON_HTTP_BODY_H

#include "daemon/http/http.h"

enum body_type { BODY_TEXT, BODY_INT, BODY_BOOL };

struct body_member {
    const char *name;
    enum body_type type;
    /* points to char[size], int64_t or bool; unchanged if the body lacks the member */
    void *out;
    size_t size;    /* size of out with the NUL, for BODY_TEXT */
    int64_t lo, hi; /* the range of a BODY_INT */
    bool given;     /* set by body_read */
};

/* Reads the body. A missing body counts as {}. Fails with ERR_INVALID, and the error names the
 * member and the values that it may have. */
int body_read(const struct http_req *r, struct body_member *m, int n, struct err *e);

#endif
