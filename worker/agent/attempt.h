/* attempt.h: one attempt on this node, with its directory, its gang, its spool and its logs. It
 * knows which parts of the spool and the logs seqd already has. api/core/gang_start.h describes
 * the directory.
 *
 * An attempt is ALIVE while its gang runs, DYING while the gang is gone but a rank may still be
 * running, and OVER when its spool ends with the final record. If the gang could not add that
 * record, the agent adds it. */
#ifndef SEQD_AGENT_ATTEMPT_H
#define SEQD_AGENT_ATTEMPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/cgroup.h"
#include "api/core/file.h"
#include "api/core/gang_start.h"
#include "api/core/loop.h"
#include "api/core/outflow.h"
#include "api/core/spool.h"
#include "api/wire.h"

/* Time for which a gang may stand still. It is longer than any wait of a gang. */
#define ATTEMPT_STILL_MS 30000

enum attempt_state { ATTEMPT_ALIVE, ATTEMPT_DYING, ATTEMPT_OVER };

struct attempt_log {
    int fd; /* descriptor of the log; -1 if the log is not opened yet, or if it does not exist
             * yet */
    int64_t sent, acked;
};

struct attempt {
    struct attempt *next;
    int64_t job, epoch;
    char dir[FILE_PATH_SIZE];
    enum attempt_state state;
    int gang_pid;    /* pid of the gang if it is this agent's child; 0 if it was adopted or
                      * reaped */
    int gang_status; /* status from waitpid; 0 if there is no status, for example if the gang is
                      * not this agent's child */
    int sock;        /* socket to the gang; -1 if it is not connected */
    struct loop *loop;
    struct loop_fd *on_sock;
    void (*nudge)(void *owner, struct attempt *a); /* called when the spool has grown or the gang
                                                    * is gone */
    /* Called with each packet of the gang, which is borrowed for the call. */
    void (*packet)(void *owner, struct attempt *a, const void *packet, size_t size);
    void *owner;
    int64_t switches; /* process_switches of the gang, and the time for which it stood still */
    int64_t still_ms;
    bool stood;         /* the gang was killed because it stood still */
    struct outflow out; /* pieces of requests on their way to the gang; closed without a socket */
    char *received;     /* owned: the packet that is being handled; NULL without a socket */
    char save_why[RANK_WHY_SIZE];
    bool save_wanted, stop_wanted, forget_wanted, final_sent;
    int n_answered;          /* answers that wait for their clients and whose last piece has come */
    bool finish_failed;      /* the final record could not be written, for example because the disk
                              * is full; this is logged once */
    struct rank_blob *blobs; /* owned: blobs that have not been sent to the gang yet */
    int n_blobs;
    struct spool spool; /* opened for reading; spool.seq is the number of the last record sent */
    bool spool_open;
    int64_t acked_seq;
    int n_logs, first_rank;
    char prepared_id[80];  /* id of the data that the attempt uses; "" for a preparation */
    int n_running, n_gpus; /* number of ranks on this node, and number of these ranks that have a
                            * GPU; both are 0 for a preparation */
    bool stale;            /* seqd does not expect the attempt, and the final record was sent */
    bool expected;         /* set if an EXPECT has named this attempt and the last message of
                            * that EXPECT has not been received yet */
    int64_t oom_kills;     /* result of probe_oom_kills() when the attempt began on this node; -1
                            * if it is not known */
    bool judged, oom;      /* judged means that attempt_oom has decided; oom is its answer */
    cpu_set_t cpus;        /* cores of the attempt's ranks; empty if the ranks are not bound to
                            * cores */
    struct attempt_log log[JOB_MAX_RANKS];
};

/* Makes an attempt from its directory after a restart of the agent. Returns NULL if the start
 * record is not complete. In that case no gang has run. */
struct attempt *attempt_adopt(struct loop *l, const char *dir, int64_t job, int64_t epoch);
struct attempt_options {   /* borrowed for the call */
    const cpu_set_t *cpus; /* the CPUs of each rank; NULL if ranks are not bound */
    struct cgroup_limits limits;
    const char *program; /* seqgang */
};

/* Makes the directory and the durable start record, then starts seqgang. After a failure the
 * control group is removed, but the directory may still exist. */
struct attempt *attempt_begin(struct loop *l, const char *dir, struct gang_start *start,
                              const struct attempt_options *o, struct err *e);
void attempt_free(struct attempt *a); /* the gang continues to run */

/* Connects to the gang. If the gang is dead, checks whether its ranks are dead, too. When the
 * ranks are dead, writes the final record if it is missing. Call this function at intervals, and
 * also after the process of the gang was reaped. Returns true if it should be called again
 * soon. */
bool attempt_check(struct attempt *a);
/* Kills the gang if it has stood still for most_ms, because no process would end its ranks. A
 * sound gang looks at its ranks every second; 0 means never. Call this function at intervals of
 * dt_ms. */
void attempt_watch(struct attempt *a, int64_t dt_ms, int64_t most_ms);
/* Send a request to the gang, either now or as soon as the gang is connected. Repeated calls
 * are allowed. `why` is a text for people, shorter than RANK_WHY_SIZE. */
void attempt_save(struct attempt *a, const char *why);
void attempt_stop(struct attempt *a);
void attempt_blobs(struct attempt *a, const struct rank_blob *blobs, int n);
/* Sends ASK or DROP to the gang. Returns -1 if the gang is not connected, or if the gang reads so
 * slowly that too many bytes wait. */
int attempt_ask(struct attempt *a, enum rank_msg_type type, const void *payload, size_t size);

/* Prepares for a new session. Sets the positions in the spool and the logs back to the end of the
 * acknowledged bytes, so that all later bytes are sent again. */
void attempt_rewind(struct attempt *a);
void attempt_ack(struct attempt *a, const struct msg *m);
/* Puts the next record to send into buf, which has SPOOL_RECORD_SIZE bytes. Returns its size, or 0
 * if there is no record to send now. *final tells whether it is the final record. It is sent only
 * after every log byte and, unless the attempt must stop, after every whole answer. */
int64_t attempt_record(struct attempt *a, void *buf, bool *final);
/* Returns true if the attempt ended for lack of memory. The parameter `record` is a record
 * that attempt_record returned. Only a record about an exit by a signal, or about a lost gang,
 * can show a lack of memory. For the first record of these kinds the answer is true if the
 * kernel has killed processes for lack of memory since the attempt began. Later records get
 * the answer of that first record, because processes that are killed later may belong to
 * another attempt. */
bool attempt_oom(struct attempt *a, const void *record, int64_t size);
/* Reads the next bytes of a log, at most size (WIRE_CHUNK). Returns the number of bytes, or 0 if
 * there are no new bytes. */
int64_t attempt_log_bytes(struct attempt *a, void *buf, size_t size, int *rank, int64_t *offset);

#endif
