/* link.h: the rank's end of its conversation with seqgang (protocol: api/core/rank.h). The
 * rank inherits the SOCK_SEQPACKET socket of this conversation. The rank blocks only while it
 * waits for ARGS and for BLOBS, because it has no other work at these times. After that it
 * calls link_stopped between steps, and link_stopped never blocks. A closed socket means that
 * seqgang is gone, and has the same effect as STOP. */
#ifndef SEQD_RANK_LINK_H
#define SEQD_RANK_LINK_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/job.h"
#include "api/core/job_state.h"
#include "api/core/rank.h"

struct link {
    int fd;
    int rank;                /* index of this rank; -1 until ARGS has been received */
    bool stopped;            /* set when STOP was received or the socket was closed */
    bool saving;             /* set when SAVE was received */
    char why[RANK_WHY_SIZE]; /* the reason of SAVE; "" if rank 0 of a serve job got none yet */
    /* Set when this rank has saved because SAVE asked for it. The rank then exits with
     * RANK_EXIT_SAVED. */
    bool saved;
    /* For rank 0 of a serve job. Gets each message that link_stopped does not know, and the bytes
     * that follow its header. NULL: such messages have no meaning, and are ignored. */
    void (*take)(void *arg, const struct rank_msg *h, const char *bytes);
    void *take_arg;
    char *room; /* borrowed: LINK_ROOM bytes for a message; set with `take` */
};
#define LINK_ROOM (sizeof(struct rank_ask) + RANK_PIECE_SIZE)

/* The first message of seqgang. Its paths and texts alone have 98 KiB, so callers do not put this
 * struct on the stack. */
struct link_order {
    struct rank_args args;
    struct job_spec spec;
};
_Static_assert(sizeof(struct link_order) == sizeof(struct rank_args) + sizeof(struct job_spec),
               "ARGS is the two structs with nothing between them");

void link_init(struct link *k, int fd); /* the caller remains the owner of fd */

/* Waits for ARGS. Fails with ERR_PEER if seqgang and this program are of different builds, if
 * seqgang sends a message that is not ARGS, or if it has closed the socket. Fails with
 * ERR_ABORTED if STOP is received. Fails with ERR_INVALID if a number in the message is out of
 * range, if a text has no end, or if prepared_id is not an id. Also fails with ERR_IO. */
int link_receive_order(struct link *k, struct link_order *o, struct err *e);
/* Waits for BLOBS. out has room for n blobs, and gets the blobs in the order of the ranks.
 * Fails with ERR_PEER if link_receive_order would fail with it, and also if a blob has a wrong
 * rank or size. Fails with ERR_ABORTED if STOP is received. Also fails with ERR_IO. */
int link_receive_blobs(struct link *k, struct rank_blob *out, int n, struct err *e);
/* Returns true if STOP was received or if the socket was closed. Does not block. */
bool link_stopped(struct link *k);
/* Returns true if SAVE was received. Does not block. */
bool link_saving(struct link *k);
/* Waits until a message has come, at most wait_ms, and takes the messages that have come. If `room`
 * is set, also returns when a message can be sent. Does not wait if wait_ms is 0. */
void link_wait(struct link *k, int wait_ms, bool room);
/* Sends a piece of an answer with a->size bytes, without waiting. Returns 1 if it was sent, 0 if
 * there is no room for it now, and -1 on an error. */
int link_send_answer(struct link *k, const struct rank_answer *a, const char *bytes, struct err *e);

int link_send_blob(struct link *k, const char *blob, int size, struct err *e);
int link_send_ready(struct link *k, struct err *e);
int link_send_step(struct link *k, const struct rank_step *s, struct err *e);
int link_send_progress(struct link *k, const struct rank_progress *p, struct err *e);
int link_send_serving(struct link *k, const struct rank_serving *s, struct err *e);
int link_send_event(struct link *k, enum job_event type, int64_t step, const char *json,
                    struct err *e);
/* Sends an EV_NOTE with this code and text. */
int link_send_note(struct link *k, const char *code, const char *text, struct err *e);
int link_send_result(struct link *k, const char *json, struct err *e);
/* Sends the error as the last message of a rank that fails. Does not return an error if it
 * cannot send, because the socket may be closed. */
void link_send_fail(struct link *k, const struct err *why);

#endif
