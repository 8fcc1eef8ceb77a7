/* serving.h: the open requests to jobs that serve. Their bodies and answers pass through memory,
 * and are in no event, log or file.
 *
 * A request is sent to the node of rank 0 in pieces (ASK), while the node's session has few bytes
 * queued. Its answer comes in pieces (ANSWER). CREDIT tells the node how many bytes the client has
 * read. A request is lost if its node's session ends, if its attempt ends, or if the node says
 * so. All functions are called on the loop thread. tested: tests/daemon/test_seqd_serve.c */
#ifndef SEQD_DAEMON_LOOP_SERVING_H
#define SEQD_DAEMON_LOOP_SERVING_H

#include "api/core/loop.h"
#include "daemon/mailbox/outbox.h"
#include "daemon/state/cluster.h"

/* largest number of requests that are open at one time, and of those of one user */
enum { SERVINGS_OPEN = 500, SERVINGS_USER = SERVINGS_OPEN / 2 };

struct served;
struct servings;

struct served_calls {
    /* A piece of the answer. `status` and `stream` are valid in the first piece. `more` tells
     * whether another piece follows; if not, the request is over. The callee must not close or
     * credit another request inside the call. */
    void (*piece)(void *arg, const struct msg *m, bool first);
    /* The request is lost, and is over. */
    void (*lost)(void *arg);
};

struct served_body {
    const char *bytes; /* borrowed until `sent` is called, or until the request is over */
    size_t size;
    void (*sent)(void *arg); /* called when the last byte of the body was sent */
};

/* Borrows the cluster. `queued` returns the bytes that wait in a node's session; NULL stands for
 * none. */
struct servings *servings_create(struct loop *l, const struct cluster *k, const struct outbox *o,
                                 size_t (*queued)(void *arg, const char *node));
void servings_destroy(struct servings *s); /* calls no callback; s may be NULL */

/* Tells whether the job can take a request now. If not, *e has the reason, which is ERR_PEER. */
int serving_ready(const struct servings *s, const struct job *j, struct err *e);
/* Tells whether the user may have one more open request. If not, *e has the reason, which is
 * ERR_TOO_LARGE. */
int serving_room(const struct servings *s, const char *user, struct err *e);
/* Returns how many requests to the job are open. */
int serving_count(const struct servings *s, int64_t job);
/* Sends a request to job j, which serving_ready and serving_room have accepted. ask has endpoint,
 * named, model and user. The callbacks are called later, never inside this call. */
struct served *serving_open(struct servings *s, const struct job *j, const struct msg *ask,
                            const struct served_body *body, const struct served_calls *calls,
                            void *arg);
/* The client has read n more bytes of the answer. */
void serving_credit(struct served *r, size_t n);
/* The client has gone. The request is over, and no callback is called. */
void serving_close(struct served *r);

/* Handles an ANSWER. Returns false if this node has no attempt that could send it. */
bool servings_take(struct servings *s, const char *node, const struct msg *m);
/* Loses the requests on the node. */
void servings_node_down(struct servings *s, const char *node);
/* Loses the requests of the job, unless their attempt runs, or ends its requests. */
void servings_changed(struct servings *s, int64_t job);

#endif
