/* link.h: a rank's end of its conversation with seqgang (protocol: api/core/rank.h).
 *
 * One SOCK_SEQPACKET socket, inherited. Receiving blocks only where a rank has nothing else to do
 * (ARGS, BLOBS); afterwards link_stopped is asked between steps and never blocks. A closed socket
 * means that seqgang is gone: the same as STOP. */
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
    int rank;     /* -1 until ARGS came */
    bool stopped; /* STOP was received or the socket closed */
    bool saving;  /* SAVE was received */
    bool saved;   /* the work that SAVE asked for is done: the rank leaves with RANK_EXIT_SAVED */
};

/* The first message of seqgang: 98 KiB of paths and texts alone, so the caller keeps it off the
 * stack. */
struct link_order {
    struct rank_args args;
    struct job_spec spec;
};
_Static_assert(sizeof(struct link_order) == sizeof(struct rank_args) + sizeof(struct job_spec),
               "ARGS is the two structs with nothing between them");

void link_init(struct link *k, int fd); /* the caller keeps fd */

/* Waits for ARGS. fails: ERR_PEER (another build, another message, closed), ERR_ABORTED (STOP),
 * ERR_INVALID when a number in it is out of range, a text has no end or prepared_id is no
 * id; ERR_IO. */
int link_receive_order(struct link *k, struct link_order *o, struct err *e);
/* Waits for BLOBS; out has room for n and gets them in rank order. fails: ERR_PEER (as
 * link_receive_order, or another rank or size in a blob), ERR_ABORTED (STOP), ERR_IO. */
int link_receive_blobs(struct link *k, struct rank_blob *out, int n, struct err *e);
/* Tells whether STOP was received or seqgang is gone. Does not block. */
bool link_stopped(struct link *k);
/* Tells whether SAVE was received. Does not block. */
bool link_saving(struct link *k);

int link_send_blob(struct link *k, const char *blob, int size, struct err *e);
int link_send_ready(struct link *k, struct err *e);
int link_send_step(struct link *k, const struct rank_step *s, struct err *e);
int link_send_progress(struct link *k, const struct rank_progress *p, struct err *e);
int link_send_event(struct link *k, enum job_event type, int64_t step, const char *json,
                    struct err *e);
/* Sends an EV_NOTE with this code and text. */
int link_send_note(struct link *k, const char *code, const char *text, struct err *e);
int link_send_result(struct link *k, const char *json, struct err *e);
/* Sends the error as the last message of a rank that fails; a socket that is gone is no further
 * error. */
void link_send_fail(struct link *k, const struct err *why);

#endif
