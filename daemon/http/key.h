/* key.h: the header Idempotency-Key. The first request with a key stores it in the same
 * transaction as its jobs. A later request with the same key and body is answered with the stored
 * jobs. A key belongs to the user that sent it. */
#ifndef SEQD_DAEMON_HTTP_KEY_H
#define SEQD_DAEMON_HTTP_KEY_H

#include "api/core/sha256.h"
#include "daemon/http/routes.h"

#define KEY_MAX 255

/* Called with the job that belongs to a key. `job` is 0 if the key is new. If e is set, `status`
 * is the HTTP status of the answer; 0 means that e's code determines the status. */
typedef void key_found(void *arg, int64_t job, int status, const struct err *e);

struct submit_key {
    char text[USER_NAME + KEY_MAX + 1]; /* "USER KEY", or "" if the request has no
                                         * Idempotency-Key */
    char fingerprint[SHA256_HEX];       /* digest of the body in canonical form */
    /* used while the request is under way */
    struct routes *R;
    struct http_req *r;
    struct submit_key *next;
    bool held;
    key_found *found;
    void *arg;
};

/* Reads the request's key. Fails with ERR_INVALID if the key has a wrong length or the body is not
 * JSON. */
int key_read(struct submit_key *k, struct routes *R, struct http_req *r,
             const struct principal *who, struct err *e);
/* Holds the key until key_drop. Fails with ERR_CONFLICT while a second request holds the same key;
 * the client may then try again. If the request has no key, does nothing. */
int key_hold(struct submit_key *k, struct err *e);
void key_drop(struct submit_key *k);
/* Finds the first job of an earlier request with this key. If the request has no key, calls found
 * immediately with job 0. */
void key_find(struct submit_key *k, key_found *found, void *arg);

#endif
