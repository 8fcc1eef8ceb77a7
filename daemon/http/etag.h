/* etag.h: the entity tag of a job's document, and the tags that a client sends in return.
 *
 * A tag is "VERSION-DIGEST": the job's version, which every event of it counts up, and a digest of
 * the very document, which shows more than events (progress, the reason of the last scheduling
 * pass). So If-None-Match compares whole tags, and 304 means the same bytes; If-Match compares
 * versions alone, so that a step in between refuses no change. Pure.
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
/* Tells whether If-Match names that version: a list of "7" or "7-...", or *; a weak tag (W/"7")
 * never does, and a tag of another form is of no version. false and *bad: the header is
 * malformed. */
bool etag_match(const char *if_match, int64_t version, bool *bad);

#endif
