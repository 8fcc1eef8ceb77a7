/* api.h: requests whose answers are JSON, and the meaning of refusals: problem+json is printed for
 * a person, with the field and the fix, and becomes an exit code. */
#ifndef SEQD_CLIENT_API_H
#define SEQD_CLIENT_API_H

#include "client/cli.h"
#include "client/http.h"
#include "client/json.h"

/* api_get, api_list, api_post, api_delete, api_patch and api_job return an enum cli_exit, with the
 * message printed unless it is CLI_OK. The caller frees *out with jv_free. */
int api_get(struct cli *c, const char *path, struct jv **out);
/* Gets all pages of a list, oldest first, as one page: *out is {data, next_cursor, has_more}. path
 * has no query. */
int api_list(struct cli *c, const char *path, struct jv **out);
/* Posts body; NULL: an empty one. A retryable failure (no answer, 429, 503, 409 with Retry-After)
 * is tried API_TRIES times in all, with the same idempotency key; key NULL: none is sent. */
#define API_TRIES 5
int api_post(struct cli *c, const char *path, const char *body, const char *key, struct jv **out);
/* Deletes. A failure is retried as in api_post: a second deletion does no harm. */
int api_delete(struct cli *c, const char *path, struct jv **out);
/* Changes a resource if its version is if_match ("7", in quotes). CLI_OK with *out NULL: it has
 * another version, and nothing was changed. */
int api_patch(struct cli *c, const char *path, const char *body, const char *if_match,
              struct jv **out);
/* Gets one job. */
int api_job(struct cli *c, int64_t id, struct jv **out);

/* Makes 128 random bits as a quoted RFC 8941 string: "\"3f...\"". */
#define API_KEY 40
void api_key(char out[API_KEY]);

/* Prints the problem in a reply and returns its exit code. */
int api_refused(const struct http_reply *r, const char *path);
/* Prints v as the -o format asks: json prints all of it; jsonl, yaml and csv print only the items
 * of the array under "data", if v has one. Returns true when it did, false for the formats that a
 * verb prints itself. */
bool api_print(const struct cli *c, const struct jv *v);
/* Prints one member of v, for --field PATH. Returns CLI_NOT_FOUND, its message printed, if there
 * is none or it is null. */
int api_print_field(const struct cli *c, const struct jv *v);

#endif
