/* body.h: a small JSON object of a request, read into variables: one row for each member. */
#ifndef SEQD_DAEMON_HTTP_BODY_H
#define SEQD_DAEMON_HTTP_BODY_H

#include "daemon/http/http.h"

enum body_type { BODY_TEXT, BODY_INT, BODY_BOOL };

struct body_member {
    const char *name;
    enum body_type type;
    void *out;      /* char[size], int64_t or bool; unchanged where the member is not given */
    size_t size;    /* BODY_TEXT: size of out, with the NUL */
    int64_t lo, hi; /* BODY_INT: the range */
    bool given;     /* set by body_read */
};

/* Reads the body; a missing body counts as {}. fails: ERR_INVALID naming the member and the values
 * it may have. */
int body_read(const struct http_req *r, struct body_member *m, int n, struct err *e);

#endif
