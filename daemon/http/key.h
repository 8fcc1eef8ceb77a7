/* key.h: Idempotency-Key. The first request with a key stores it in the transaction of its jobs; a
 * later request with the same key and body is answered with these jobs. Each user has keys of its
 * own. */
#ifndef SEQD_DAEMON_HTTP_KEY_H
#define SEQD_DAEMON_HTTP_KEY_H

#include "api/core/sha256.h"
#include "daemon/http/routes.h"

#define KEY_MAX 255

/* Tells the job of a key. job 0: the key is new. status: the HTTP status of the answer with e; 0:
 * by its code. */
typedef void key_found(void *arg, int64_t job, int status, const struct err *e);

struct submit_key {
    char text[USER_NAME + KEY_MAX + 1]; /* "USER KEY"; "": the request has none */
    char fingerprint[SHA256_HEX];       /* digest of the canonical body */
    /* used while the request is under way */
    struct routes *R;
    struct http_req *r;
    struct submit_key *next;
    bool held;
    key_found *found;
    void *arg;
};

/* Reads the request's key. fails: ERR_INVALID for a key of a wrong length, and for a body that is
 * not JSON. */
int key_read(struct submit_key *k, struct routes *R, struct http_req *r,
             const struct principal *who, struct err *e);
/* Holds the key until key_drop. fails: ERR_CONFLICT while another request holds it; the client may
 * try again. Without a key nothing is held. */
int key_hold(struct submit_key *k, struct err *e);
void key_drop(struct submit_key *k);
/* Finds the first job of an earlier request with this key. Without a key, found is called at once
 * with job 0. */
void key_find(struct submit_key *k, key_found *found, void *arg);

#endif
