/* range.h: reads a request for one range of bytes (RFC 9110, 14), and the conditions on an entity
 * tag. The functions are pure. tested: tests/daemon/test_seqd_tar.c */
#ifndef SEQD_DAEMON_HTTP_RANGE_H
#define SEQD_DAEMON_HTTP_RANGE_H

#include <stdbool.h>
#include <stdint.h>

struct range {
    bool given;
    /* both inclusive, as in the header; if first is -1, the range is the end of the file, `last`
     * bytes long */
    int64_t first, last;
};

/* Returns the range that a request asks for: "bytes=5-9", "bytes=5-" or "bytes=-5". `range` and
 * `if_range` are the headers of these names, or NULL. `etag` is the file's entity tag with its
 * quotes, or NULL if the file has no tag. If `range` has none of these forms, or if if_range is
 * not `etag`, the request asks for no range. */
struct range range_of(const char *range, const char *if_range, const char *etag);
/* Computes the bytes [*from, *to) of the answer in a file of total bytes. Returns false if the
 * range is outside the file. */
bool range_resolve(const struct range *g, int64_t total, int64_t *from, int64_t *to);
/* Tells whether the header If-None-Match has this entity tag or is "*". if_none_match is NULL if
 * the request has no such header. */
bool range_none_match(const char *if_none_match, const char *etag);

#endif
