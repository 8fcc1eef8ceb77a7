/* proc.h: starts, talks to, kills and reaps one rank's process, for seqgang. */
#ifndef SEQD_GANG_PROC_H
#define SEQD_GANG_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/gang_start.h"
#include "api/core/loop.h"
#include "api/core/rank.h"

struct proc {
    int rank;
    int pid, pidfd, sock; /* pidfd and sock are -1 when closed */
    int64_t start_time;
    struct loop_fd *on_exit, *on_message;
    void *owner; /* the caller's pointer, for its callbacks */
    bool gone;   /* exited and reaped */
    bool published, ready, failed;
};

/* Forks and executes start->seqrank with the socket as RANK_SOCKET_FD and memfd as RANK_MEMFD, in
 * a new session. The kernel kills it when this process dies. stdout and stderr are appended to
 * DIR/rank-N.log. CUDA shows the rank only its own GPU, or none. The rank is bound to its CPUs if
 * DIR/cpus exists. When this returns, DIR/pids has its pid, and no message was sent to it. */
int proc_start(struct proc *p, int rank, const struct gang_start *start, const char *dir, int memfd,
               struct err *e);
/* Sends one packet. Returns -1 with errno when the rank is gone or does not read (its socket is
 * full). */
int proc_send(struct proc *p, enum rank_msg_type type, const void *payload, size_t size);
/* Sends RANK_ARGS. A rank that has already exited is not an error: its exit status tells why. */
int proc_send_args(struct proc *p, const struct gang_start *start, struct err *e);
/* Receives one packet into buf. Returns its size, 0 when the rank closed its end, -1 when there is
 * none. */
int64_t proc_receive(struct proc *p, void *buf, size_t size);
void proc_kill(struct proc *p); /* sends SIGKILL, unless the process is gone */
/* Reaps the process; call it once its pidfd is readable. */
struct rank_exit proc_reap(struct proc *p);
void proc_close(struct proc *p);
/* Kills and reaps every child left. A process that a rank started became a child of this process
 * when the rank died (subreaper). Call it only when all ranks have been reaped. */
void proc_kill_strays(void);

#endif
