/* intake.h: turns the bytes of a client into bytes that the HTTP library may read: heads that
 * guard.h accepts, and bodies of a known length or with chunks framed again (chunked.h). It holds
 * the state of one connection's requests, one at a time. It knows neither the client's socket nor
 * deadlines. */
#ifndef SEQD_DAEMON_HTTP_INTAKE_H
#define SEQD_DAEMON_HTTP_INTAKE_H

#include "daemon/http/chunked.h"
#include "daemon/http/guard.h"
#include "daemon/http/sock.h"

enum intake_phase {
    INTAKE_HEAD,   /* reading a head; in[] has the bytes read so far */
    INTAKE_LENGTH, /* handing a body over, `left` bytes to go */
    INTAKE_CHUNKS,
    INTAKE_DONE /* the request is handed over, or there will be no other */
};

struct client_intake {
    enum intake_phase phase;
    char *in; /* GUARD_HEAD_SIZE bytes; NULL while it holds none */
    size_t in_size, looked;
    int64_t left;
    struct chunked chunks;
    struct guard_request request;
    const struct request_verdict *verdict; /* refusal of the request, which is the last; or NULL */
};

struct intake_rules {
    bool local_only;                    /* local_only of guard_head */
    const struct request_verdict *busy; /* refusal of all requests but health's; or NULL */
};

/* Sets *to and *n to the buffer for the next bytes: in[], or piece, which stays the caller's. -1:
 * no memory. */
int intake_room(struct client_intake *k, char *piece, size_t piece_size, char **to, size_t *n);
/* Takes n bytes that were read into the buffer of intake_room. -1: the library is gone, or there
 * is no memory. */
int intake_took(struct client_intake *k, const char *at, size_t n, const struct intake_rules *r,
                struct sock *library);
/* Handles bytes that were read already, after the request was answered. -1: as intake_took. */
int intake_next(struct client_intake *k, const struct intake_rules *r, struct sock *library);
void intake_free(struct client_intake *k);

#endif
