/* api.h: requests whose answers are JSON, and the meaning of refusals: problem+json is printed for
 * a person, with the field and the fix, and becomes an exit code. */
#ifndef SEQD_CLIENT_API_H
#define SEQD_CLIENT_API_H

#include "client/cli.h"
#include "client/http.h"
#include "client/json.h"

/* Tells whether the server, or a proxy before it, is busy or away for a moment: 429, 502, 503,
 * 504. The same request may succeed later. */
bool api_busy(int status);
/* Returns the time to wait before the next try: Retry-After of the reply, else wait_ms; at most
 * API_WAIT_MS. */
#define API_WAIT_MS 5000
int64_t api_wait_ms(const struct http_reply *r, int64_t wait_ms);
/* Requests q, API_TRIES times in all while the answer is retryable: 429, 503, 409 with Retry-After,
 * no answer to a request that is no GET, and 502 or 504 to a GET, a DELETE or a request with an
 * idempotency key. Returns CLI_OK with the last answer, of any status, which the caller frees with
 * http_reply_fini, or CLI_ERROR with the message printed. */
#define API_TRIES 5
int api_ask(struct cli *c, const struct http_request *q, struct http_reply *r);

/* api_get, api_list, api_post, api_delete, api_patch and api_job return an enum cli_exit, with the
 * message printed unless it is CLI_OK. The caller frees *out with jv_free. All ask as api_ask. */
int api_get(struct cli *c, const char *path, struct jv **out);
/* Gets all pages of a list, oldest first, as one page: *out is {data, next_cursor, has_more}. path
 * has no query. */
int api_list(struct cli *c, const char *path, struct jv **out);
/* Posts body; NULL: an empty one. Each try of api_ask has the same idempotency key; key NULL: none
 * is sent. */
int api_post(struct cli *c, const char *path, const char *body, const char *key, struct jv **out);
/* Deletes. Tried again as by api_ask: a second deletion does no harm. */
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
