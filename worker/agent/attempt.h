/* attempt.h: one attempt on this node: its directory, its gang, and how much of its spool and logs
 * seqd has. api/core/gang_start.h describes the directory.
 *
 * An attempt is ALIVE while its gang runs, DYING while the gang is gone but a rank may still run,
 * and OVER when the spool ends with the final record. The agent adds that record if the gang could
 * not. */
#ifndef SEQD_AGENT_ATTEMPT_H
#define SEQD_AGENT_ATTEMPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/file.h"
#include "api/core/gang_start.h"
#include "api/core/loop.h"
#include "api/core/spool.h"
#include "api/wire.h"

enum attempt_state { ATTEMPT_ALIVE, ATTEMPT_DYING, ATTEMPT_OVER };

struct attempt_log {
    int fd; /* -1: not opened yet, or no such file yet */
    int64_t sent, acked;
};

struct attempt {
    struct attempt *next;
    int64_t job, epoch;
    char dir[FILE_PATH_SIZE];
    enum attempt_state state;
    int gang_pid;    /* pid of the gang, if it is this agent's child; 0: it was adopted or
                      * reaped */
    int gang_status; /* status from waitpid; 0: none, as for a gang that is not this agent's
                      * child */
    int sock;        /* socket to the gang; -1: not connected */
    struct loop *loop;
    struct loop_fd *on_sock;
    void (*nudge)(void *owner, struct attempt *a); /* called when the spool has grown or the gang
                                                    * is gone */
    void *owner;
    bool save_wanted, stop_wanted, forget_wanted, final_sent;
    bool finish_failed;      /* the final record could not be written, as on a full disk; logged
                              * once */
    struct rank_blob *blobs; /* owned; kept until the gang has them */
    int n_blobs;
    struct spool spool; /* for reading; spool.seq is the number of the last record sent */
    bool spool_open;
    int64_t acked_seq;
    int n_logs, first_rank;
    char prepared_id[80];  /* id of the data that the attempt uses; "": a preparation */
    int n_running, n_gpus; /* ranks on this node, and ranks with a GPU among them; 0 for a
                            * preparation */
    bool stale;            /* seqd does not expect the attempt, and is told of its end */
    bool expected;         /* named by a message of an EXPECT whose last message has not come */
    int64_t oom_kills;     /* probe_oom_kills() when the attempt began on this node; -1: not
                            * known */
    bool judged, oom;      /* judged: attempt_oom has decided; oom: its answer */
    cpu_set_t cpus;        /* cores of the attempt's ranks; empty: the ranks are not bound */
    struct attempt_log log[JOB_MAX_RANKS];
};

/* Makes an attempt from its directory after a restart of the agent. Returns NULL when its start
 * record was never completed: then no gang ever ran. */
struct attempt *attempt_adopt(struct loop *l, const char *dir, int64_t job, int64_t epoch);
/* Makes the directory and the durable start record, then starts program (seqgang). cpus: the CPUs
 * of each rank; NULL: ranks are not bound. After a failure no control group is left; the directory
 * may be left. */
struct attempt *attempt_begin(struct loop *l, const char *dir, struct gang_start *start,
                              const cpu_set_t *cpus, const char *program, struct err *e);
void attempt_free(struct attempt *a); /* the gang continues to run */

/* Connects to the gang. If the gang is dead, checks whether its ranks are dead, too, and then
 * writes the final record if it is missing. Called at intervals, and after the gang's process was
 * reaped. Returns true if it should be called again soon. */
bool attempt_check(struct attempt *a);
/* Forward a request to the gang, at once or as soon as it is connected. Repeated calls are
 * allowed. */
void attempt_save(struct attempt *a);
void attempt_stop(struct attempt *a);
void attempt_blobs(struct attempt *a, const struct rank_blob *blobs, int n);

/* Begins to send again after the acknowledged bytes, for a new session. */
void attempt_rewind(struct attempt *a);
void attempt_ack(struct attempt *a, const struct msg *m);
/* Puts the next record to send into buf of SPOOL_RECORD_SIZE. Returns its size, 0 when there is no
 * record to send now. *final tells whether it is the final record, which comes only after every
 * log byte has been sent. */
int64_t attempt_record(struct attempt *a, void *buf, bool *final);
/* Tells whether the attempt ended for lack of memory: the record (of attempt_record) is of an exit
 * by a signal or of a lost gang, and the kernel has killed processes for memory since the attempt
 * began. The first such record decides for all later ones, since later kills may be of another
 * attempt. */
bool attempt_oom(struct attempt *a, const void *record, int64_t size);
/* Reads the next log bytes, at most size (WIRE_CHUNK). Returns their number, 0 when there are none
 * now. */
int64_t attempt_log_bytes(struct attempt *a, void *buf, size_t size, int *rank, int64_t *offset);

#endif
