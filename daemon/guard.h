/* guard.h: what a request must be before anything else looks at it: a pure function of its headers,
 * shown one by one, because a header fetched by name shows one value of several. */
#ifndef SEQD_DAEMON_GUARD_H
#define SEQD_DAEMON_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct guard {
    bool local_only; /* only loopback names, only our own pages */
    bool target_too_long, bad_target;
    /* filled by guard_header */
    int n_length, n_encoding, n_host;
    bool chunked, foreign_host, foreign_origin, is_json;
    long long length;
};

struct guard_verdict {
    int status;
    const char *code, *text;
};

void guard_header(struct guard *g, const char *name, const char *value);
const struct guard_verdict *guard_check(const struct guard *g); /* NULL: let it in */

/* A problem+json body of the HTTP front's own. Returns its length. */
int64_t guard_problem(int status, const char *code, const char *detail, int64_t request, char *out,
                      size_t size);

#endif
