/* range.h: one range of bytes (RFC 9110, 14), and the conditions on a validator. Pure.
 * tested: tests/daemon/test_seqd_tar.c */
#ifndef SEQD_DAEMON_HTTP_RANGE_H
#define SEQD_DAEMON_HTTP_RANGE_H

#include <stdbool.h>
#include <stdint.h>

struct range {
    bool given;
    int64_t first, last; /* inclusive, as in the header; first -1: the final `last` bytes */
};

/* Returns the range that a request asks for: "bytes=5-9", "bytes=5-" or "bytes=-5". range,
 * if_range: its headers, or NULL. etag: the file's entity tag with its quotes; NULL: it has none.
 * No range is given by other text, or if If-Range names another tag. */
struct range range_of(const char *range, const char *if_range, const char *etag);
/* Computes the bytes [*from, *to) of the answer in a file of total bytes. false: the range lies
 * outside. */
bool range_resolve(const struct range *g, int64_t total, int64_t *from, int64_t *to);
/* Tells whether If-None-Match (NULL: without) names this entity tag, or any. */
bool range_none_match(const char *if_none_match, const char *etag);

#endif
