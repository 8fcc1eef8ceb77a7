/* etag.h: the entity tag of a job's document, and the tags that a client sends back.
 *
 * A tag is "VERSION-DIGEST". The version of a job grows by one with each of its events. The digest
 * is computed over the whole document, which also shows state that has no event, such as progress
 * and the reason of the last scheduling pass. If-None-Match compares whole tags, so that 304 means
 * that the document has the same bytes. If-Match compares only versions. Otherwise a change would
 * fail if a training step came between the read and the change. The functions are pure. tested:
 * tests/daemon/test_seqd_edit.c */
#ifndef SEQD_DAEMON_HTTP_ETAG_H
#define SEQD_DAEMON_HTTP_ETAG_H

#include <stdbool.h>
#include <stdint.h>

#define ETAG_SIZE 64

/* Writes the tag of a job to out, and returns out. `json` is the job's document as it is sent. */
char *etag_of(const char *json, char out[ETAG_SIZE]);
/* Returns "version" of a job's document, or 0 if it has none. */
int64_t etag_version(const char *json);
/* Returns the version of the first tag in a list. The tag may be weak. Returns -1 if the first tag
 * has no version. */
int64_t etag_first(const char *tags);
/* Tells whether the header If-Match matches `version`. The header is * or a list of tags such as
 * "7" or "7-...". A weak tag (W/"7") never matches, and neither does a tag of a different form. If
 * the header is malformed, returns false and sets *bad. */
bool etag_match(const char *if_match, int64_t version, bool *bad);

#endif
