/* api.h: sends requests whose answers are JSON, and handles refusals. A refusal
 * (application/problem+json) is printed with its field and its fix, and becomes an exit code. */
#ifndef SEQD_CLIENT_API_H
#define SEQD_CLIENT_API_H

#include "client/cli.h"
#include "client/http.h"
#include "client/json.h"

/* Tells whether the status is 429, 502, 503 or 504, which means that the server, or a proxy in
 * front of it, is busy or cannot be reached for a moment. The same request may succeed later. */
bool api_busy(int status);
/* Returns the time to wait before the next try, at most API_WAIT_MS. It is the reply's
 * Retry-After; if the reply has no such header, it is wait_ms. */
#define API_WAIT_MS 5000
int64_t api_wait_ms(const struct http_reply *r, int64_t wait_ms);
/* Sends q, at most API_TRIES times. q is sent again if the status is 429 or 503, or is 409 with
 * Retry-After. After 502 or 504, q is sent again if it is a GET, is a DELETE or has an idempotency
 * key. If there was no answer, q is sent again unless it is a GET. Returns CLI_OK with the last
 * answer, which may have any status. The caller frees the answer with http_reply_fini. If the last
 * try got no answer, prints the message and returns CLI_ERROR. */
#define API_TRIES 5
int api_ask(struct cli *c, const struct http_request *q, struct http_reply *r);

/* api_get, api_list, api_post, api_delete, api_patch, api_job and api_newest_step return an enum
 * cli_exit, and print the message unless it is CLI_OK. The caller frees *out with jv_free. All of
 * them send requests as api_ask does. */
int api_get(struct cli *c, const char *path, struct jv **out);
/* Gets all pages of a list, oldest first, and joins them. *out has the form of one page: {data,
 * next_cursor, has_more}. `path` has no query. */
int api_list(struct cli *c, const char *path, struct jv **out);
/* Posts body; NULL posts an empty body. All tries of api_ask send the same idempotency key. If
 * `key` is NULL, they send none. */
int api_post(struct cli *c, const char *path, const char *body, const char *key, struct jv **out);
/* Deletes a resource. Tries again as api_ask does, because a second deletion does no harm. */
int api_delete(struct cli *c, const char *path, struct jv **out);
/* Changes a resource if its version is if_match, which is in quotes ("7"). If the version differs,
 * the resource is not changed; the result is CLI_OK, and *out is NULL. */
int api_patch(struct cli *c, const char *path, const char *body, const char *if_match,
              struct jv **out);
/* Gets one job. */
int api_job(struct cli *c, int64_t id, struct jv **out);
/* Gets the step of the newest of a job's checkpoints, which is 0 if the job has none. If `quiet` is
 * set and seqd refuses to list them, prints no message and gets 0. */
int api_newest_step(struct cli *c, int64_t id, bool quiet, int64_t *step);

/* Makes 128 random bits and writes them as a quoted RFC 8941 string, such as "\"3f...\"". */
#define API_KEY 40
void api_key(char out[API_KEY]);

/* Prints the problem in a reply, and returns the exit code that belongs to it. */
int api_refused(const struct http_reply *r, const char *path);
/* Prints v in the format of -o. json prints all of v. jsonl, yaml and csv print only the items of
 * the array under "data", if v has one. Returns true if it has printed v, and false for the
 * formats that a verb prints itself. */
bool api_print(const struct cli *c, const struct jv *v);
/* Prints one member of v, for --field PATH. If v has no such member or it is null, prints a
 * message and returns CLI_NOT_FOUND. */
int api_print_field(const struct cli *c, const struct jv *v);

#endif
