/* proc.h: starts, kills and reaps the process of one rank for seqgang, and exchanges messages with
 * it. */
#ifndef SEQD_GANG_PROC_H
#define SEQD_GANG_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/gang_start.h"
#include "api/core/loop.h"
#include "api/core/rank.h"

struct confine;

struct proc {
    int rank;
    int pid, pidfd, sock; /* pidfd and sock are -1 when closed */
    int64_t start_time;
    struct loop_fd *on_exit, *on_message;
    void *owner; /* pointer of the caller, which is passed to the caller's callbacks */
    bool gone;   /* set when the process has exited and was reaped */
    bool published, ready, failed;
};

struct proc_start { /* the start of an attempt's ranks; all members are borrowed for the call */
    const struct gang_start *record;
    const char *dir;
    int memfd;
    const struct confine *confine;
};

/* Forks and executes record->seqrank in a new session, with the socket as RANK_SOCKET_FD and
 * memfd as RANK_MEMFD, in the sandbox. The kernel kills the rank when this process dies. stdout
 * and stderr are appended to DIR/rank-N.log. CUDA shows the rank only the GPU of this rank, or
 * no GPU if the rank has none. The rank is bound to its CPUs if DIR/cpus exists. When this
 * function returns, DIR/pids has the rank's pid, and no message has been sent to the rank. */
int proc_start(struct proc *p, int rank, const struct proc_start *start, struct err *e);
/* Sends one packet. Returns -1 with errno if the rank is gone, or if its socket is full because
 * the rank does not read. */
int proc_send(struct proc *p, enum rank_msg_type type, const void *payload, size_t size);
/* Sends RANK_ARGS. If the rank has already exited, this is not an error here, because the exit
 * status of the rank shows the reason. `confined` is as in struct rank_args. */
int proc_send_args(struct proc *p, const struct gang_start *start, bool confined, struct err *e);
/* Receives one packet into buf. Returns the size of the packet, 0 if the rank has closed its end
 * of the socket, or -1 if there is no packet. */
int64_t proc_receive(struct proc *p, void *buf, size_t size);
void proc_kill(struct proc *p); /* sends SIGKILL, unless the process is gone already */
/* Reaps the process. Call this function once the process's pidfd is readable. */
struct rank_exit proc_reap(struct proc *p);
void proc_close(struct proc *p);
/* Kills and reaps every child process that still exists. These children are processes that
 * ranks have started. When a rank dies, they become children of this process, because this
 * process is a subreaper. Call this function only when all ranks have been reaped. */
void proc_kill_strays(void);

#endif
