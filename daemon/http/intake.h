/* intake.h: turns the bytes of a client into bytes that the HTTP library may read. The library
 * gets only heads that guard.h accepts. It gets only bodies that have a known length, or whose
 * chunks were checked and framed again (chunked.h). A client_intake is the state of the request
 * that a connection is reading. It has no access to the client's socket and knows no deadlines. */
#ifndef SEQD_DAEMON_HTTP_INTAKE_H
#define SEQD_DAEMON_HTTP_INTAKE_H

#include "daemon/http/chunked.h"
#include "daemon/http/guard.h"
#include "daemon/http/sock.h"

enum intake_phase {
    INTAKE_HEAD,   /* reading a head; in[] has the bytes so far */
    INTAKE_LENGTH, /* handing over a body, of which `left` bytes remain */
    INTAKE_CHUNKS,
    INTAKE_DONE /* the whole request is handed over, or no further request is read */
};

struct client_intake {
    enum intake_phase phase;
    char *in; /* GUARD_HEAD_SIZE bytes; NULL while no bytes are held */
    size_t in_size, looked;
    int64_t left;
    struct chunked chunks;
    struct guard_request request;
    /* refusal of this request, or NULL; after a refusal no request is read */
    const struct request_verdict *verdict;
};

struct intake_rules {
    bool local_only;                    /* local_only of guard_head */
    const struct request_verdict *busy; /* NULL, or the refusal of every request that is not for
                                         * health */
    /* Called before the first bytes of a request are passed to the library. Returns -1 if the
     * library cannot take it, and 1 if it can later; then the caller must call intake_next later.
     * May be NULL. */
    int (*attach)(void *arg);
    void *arg;
};

/* Sets *to and *n to the buffer for the next bytes. It is a part of in[], or `piece`, which the
 * caller continues to own. Returns -1 if there is no memory. */
int intake_room(struct client_intake *k, char *piece, size_t piece_size, char **to, size_t *n);
/* Handles n bytes that were read into the buffer of intake_room. Returns -1 if the library has
 * closed the connection or there is no memory. */
int intake_took(struct client_intake *k, const char *at, size_t n, const struct intake_rules *r,
                struct sock *library);
/* Handles bytes that were read before the previous request was answered. Call it after that
 * answer. Returns -1 as intake_took does. */
int intake_next(struct client_intake *k, const struct intake_rules *r, struct sock *library);
void intake_free(struct client_intake *k);

#endif
