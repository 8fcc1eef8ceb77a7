/* etag.h: the entity tag of a job's document, and the tags that a client sends in return.
 *
 * A tag is "VERSION-DIGEST". The version of a job grows by one with each of its events. The digest
 * is that of the whole document, which shows more than events: progress, the reason of the last
 * scheduling pass. So If-None-Match compares whole tags, and 304 means the same bytes. If-Match
 * compares versions alone, so that a training step in between does not refuse the change. Pure.
 * tested: tests/daemon/test_seqd_edit.c */
#ifndef SEQD_DAEMON_HTTP_ETAG_H
#define SEQD_DAEMON_HTTP_ETAG_H

#include <stdbool.h>
#include <stdint.h>

#define ETAG_SIZE 64

/* Makes the tag of a job. json: the job's document, as it is sent. Returns out. */
char *etag_of(const char *json, char out[ETAG_SIZE]);
/* Returns "version" of a job's document; 0: it has none. */
int64_t etag_version(const char *json);
/* Returns the version that the first tag of a list names, weak or not; -1: it names none. */
int64_t etag_first(const char *tags);
/* Tells whether If-Match names that version. The header is * or a list of tags such as "7" or
 * "7-...". A weak tag (W/"7") and a tag of another form never match. false and *bad: the header is
 * malformed. */
bool etag_match(const char *if_match, int64_t version, bool *bad);

#endif
