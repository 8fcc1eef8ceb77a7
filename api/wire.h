/* wire.h: the messages between seqd and seqw as plain structs, packed to and from cluster.proto.
 * Only wire*.c use protobuf-c. Every count and length is checked on the way in.
 *
 * The session (one per node, dialled by seqw; order is kept in each direction)
 *   seqw  HELLO      its name, its instance (an id of the state directory, the same after a
 *                    restart), and every attempt whose directory is here: alive, or ended and not
 *                    yet forgotten
 *   seqd  WELCOME    then ACK for the records it already has of those attempts (saves resending),
 *                    then EXPECT: the attempts it believes are here. seqw stops one that runs and
 *                    is not listed, forgets one that ended and is not listed, and answers a listed
 *                    unknown one with a final record of GANG_UNKNOWN. EXPECT again every 30 s. A
 *                    list of more than WIRE_ATTEMPTS takes several messages; in the last `more`
 *                    is 0
 *   seqd  REFUSED    in place of WELCOME: the reason, and the time before which not to dial again.
 *                    Then the session is closed; after a wrong ABI seqw says HELLO with another
 *                    ABI at once. A name that is up belongs to its instance: another instance is
 *                    refused until the name is down, the same instance replaces its own session at
 *                    once
 *   seqd  ASSIGN     start this gang (ranks [first_rank, first_rank + n_local) of an attempt that
 *                    may have others on other nodes), once per epoch. It is ignored if the node
 *                    has the attempt. Else it is answered GANG_UNKNOWN if its epoch is not newer
 *                    than the job's newest there, or if the agent ends or is full
 *   seqw  REPORT     the attempt's spool record number seq = 1, 2, ..., from the one after the
 *                    last ACK; in a new session some records come again: seqd drops those it has
 *                    and ACKs. seq 0: not from a spool, never repeated, not acknowledged
 *   seqw  LOG        bytes of rank's log at offset, again from the last ACK
 *   seqw  REPORT     the final record (rank.h): after all other records and all log bytes. It
 *                    answers STOP; seqd sends FORGET once the record is durable.
 *   seqd  BLOBS, SAVE, STOP, FORGET: idempotent; sent again at will (after a reconnect). SAVE is
 *         answered like STOP, by the final record: GANG_SAVED where rank 0 has saved
 *   seqd  REMOVE     a job has ended: its files on this node are to go. Idempotent; sent again in
 *                    every session, and at intervals, until
 *   seqw  REMOVED    the files are gone, durably; or the reason that they are not
 *   seqw  HEARTBEAT  every WELCOME.heartbeat_ms, from its loop: with its GPUs as they are now, as
 *                    HELLO has them. After three and a half periods of silence seqd closes the
 *                    session
 *   seqw  PROFILE    after WELCOME, once the node has been measured: again in each session
 *   seqw  JOIN       over a Session: asks to renew its certificate
 *   seqd  JOINED     the new certificate; or REFUSED with the reason, and the session stays
 *   seqw  LEAVING    after WELCOME, if the time at which the node ends is known: that time. At
 *                    SIGTERM: the node's jobs are to save now, and its agent ends when they have
 *   seqd  QUIT       the agent is to stop every gang of its node and to end, as when a seqd --dev
 *                    ends
 *   seqd  DESCRIBE, FETCH, TRACE -> DESCRIBED, FETCHED, FETCHED: one answer each, with the number
 *         of its question; DESCRIBE of all models -> FETCHED
 *
 * Over `Join`, which needs no certificate (api/rpc.h), there is one JOIN with a token, and JOINED
 * or REFUSED; then the node closes it.
 *
 * Versions: both programs speak WIRE_ABI and WIRE_ABI_BEFORE. A session speaks the ABI of its
 * HELLO. seqw says WIRE_ABI first, and WIRE_ABI_BEFORE after a REFUSED of a seqd that knows no
 * newer one. A WELCOME of a seqd that knows WIRE_ABI ends such a session, and the next session
 * speaks WIRE_ABI. Additions of WIRE_ABI are never sent to a peer that speaks the one before:
 *   a message: its row in wire.c has the first ABI that knows it (wire_knows). link_send and the
 *              agent's send_msg return -1 for a peer without it, and the session stays. So the
 *              sender keeps the truth in its tables, as for a node that is down, and says in the
 *              API and in the log why it waits: "node n1 speaks protocol 6"
 *   a field of a message: a row of the message's list in wire.c. WIRE_ABI_BEFORE ignores it: the
 *              sender must not count on it there
 *   a field of the job spec: its row in spec.c ends with the ABI that has it. A peer without it is
 *              sent the spec less that field. A job in which the field is not at its default, or
 *              in which a word is newer than its field, is not placed on such a node (spec_needs)
 * tests/previous.fields lists the fields and words that the version before has.
 *
 * A node reports on itself alone. REPORT and LOG are taken from the node that has the part of the
 * attempt, for the ranks of that part. DESCRIBED and FETCHED are taken once, from the node that
 * was asked. HEARTBEAT and PROFILE say nothing about other nodes. Other reports are dropped,
 * counted and logged. A report on an attempt that was the node's own and is over is only
 * dropped. */
#ifndef SEQD_API_WIRE_H
#define SEQD_API_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/gpu.h"
#include "api/core/limits.h"
#include "api/core/mem.h"
#include "api/core/profile.h"
#include "api/core/rank.h"
#include "api/pki.h"

struct job_spec;

#define WIRE_ABI           7u /* the ABI of this version */
#define WIRE_ABI_BEFORE    6u /* the ABI of the version in tests/previous; any other is REFUSED */
#define WIRE_GRANTS        RANK_GRANTS
#define WIRE_FILES         (1 + 2 * SPEC_SOURCES) /* files of one question */
#define WIRE_MAX_SIZE      (4 << 20)              /* bytes of one message */
#define NODE_NAME          PKI_NAME_SIZE
#define WIRE_CHUNK         65536     /* bytes of log in one message */
#define WIRE_TRACE_SIZE    (1 << 20) /* answer to a TRACE, or to a DESCRIBE of all models */
#define WIRE_ATTEMPTS      4096 /* in one HELLO or EXPECT, and on one node: 4096 slots of 1 rank */
#define WIRE_INSTANCE_SIZE 16
#define WIRE_TOKEN_SIZE    160 /* a join token, with its NUL */
#define WIRE_HEARTBEAT_MS  2000
#define WIRE_MAX_TIME_S    ((int64_t)1 << 37) /* seconds: until the year 6300 */

enum msg_type {
    /* seqw -> seqd */
    MSG_HELLO = 1, /* first message of a session */
    MSG_HEARTBEAT, /* the loop of the node runs */
    MSG_REPORT,    /* one spooled record of an attempt: see below */
    MSG_LOG,       /* bytes of one rank's log at an offset */
    MSG_DESCRIBED, /* answer to MSG_DESCRIBE */
    MSG_FETCHED,   /* answer to MSG_FETCH: bytes of a file; size 0 = end; err when it failed */
    /* seqd -> seqw */
    MSG_WELCOME,  /* first answer: session accepted */
    MSG_ASSIGN,   /* start this gang */
    MSG_BLOBS,    /* all blobs of an attempt */
    MSG_STOP,     /* end this attempt: ask its ranks to stop, wait, then kill */
    MSG_ACK,      /* spool and log offsets that are durable at seqd */
    MSG_EXPECT,   /* the attempts that seqd expects on this node, to compare */
    MSG_FETCH,    /* read at most WIRE_CHUNK bytes of a file of the job, from offset */
    MSG_DESCRIBE, /* run seqrank --describe on a model directory; or seqrank --models */
    MSG_FORGET,   /* attempt is final and acknowledged: its directory may go */
    MSG_TRACE,    /* tell the sources of samples of prepared data; answered by MSG_FETCHED: JSON */
    /* seqw -> seqd */
    MSG_PROFILE, /* the node's measurements of itself */
    /* seqd -> seqw */
    MSG_REFUSED, /* first answer: no session, and why; to a JOIN: no certificate */
    /* seqw -> seqd */
    MSG_JOIN, /* asks for a certificate */
    /* seqd -> seqw */
    MSG_JOINED, /* the certificate */
    MSG_REMOVE, /* remove files of the job here: `what` */
    /* seqw -> seqd */
    MSG_REMOVED, /* the files are gone: total bytes; or err */
    /* seqd -> seqw */
    MSG_SAVE, /* save at the next step boundary, then end this attempt */
    /* seqw -> seqd */
    MSG_LEAVING, /* this node ends at end_s */
    /* seqd -> seqw */
    MSG_QUIT, /* stop every gang and end, as after SIGINT */
    MSG_TYPE_N
};

/* Tells whether nodes send messages of this type; seqd sends the others. */
static inline bool msg_from_node(enum msg_type t)
{
    return t <= MSG_FETCHED || t == MSG_PROFILE || t == MSG_JOIN || t == MSG_REMOVED ||
           t == MSG_LEAVING;
}

struct wire_trace { /* arguments of seqrank --trace (worker/rank/trace.h) */
    int64_t seq_len, seed, first, count, max_fragments;
    char packing[16], overlong[16]; /* words of data.packing and data.overlong */
};

struct disk_use { /* bytes, of a node's state directory */
    int64_t jobs, prepared;
    int64_t size, free; /* numbers of its file system; size 0: not reported */
};

struct wire_attempt {
    int64_t job, epoch;
    int32_t slots; /* HELLO: ranks of the attempt that run here now */
    int32_t gpus;  /* HELLO, since ABI 7: ranks with a GPU, which take no slot */
};

struct msg {
    enum msg_type type;
    uint32_t abi; /* HELLO: the session's ABI; WELCOME, REFUSED: the newest that seqd speaks, 0:
                   * seqd has ABI 6 */
    /* HELLO */
    char node[NODE_NAME], version[32];
    unsigned char instance[WIRE_INSTANCE_SIZE];
    int32_t n_slots, n_cores;
    int64_t memory_size; /* bytes of the machine */
    char address
        [RANK_ADDRESS_SIZE]; /* numeric; the node's ranks listen on it for ranks of other nodes;
                              * "": they cannot be reached */
    bool emulated;           /* the node takes jobs of the device "emulated": tests */
    int n_gpus;              /* HELLO, HEARTBEAT */
    const struct gpu *gpus;
    struct disk_use disk; /* HEARTBEAT */
    int n_attempts;       /* HELLO: attempts found here; EXPECT: attempts expected here */
    const struct wire_attempt *attempts;
    bool more;            /* EXPECT: the list continues in the next message */
    int64_t heartbeat_ms; /* WELCOME */
    int64_t retry_ms;     /* REFUSED: time before which not to dial again */
    /* most other messages */
    int64_t job, epoch;
    /* ASSIGN: the gang's start record, less the values that the agent itself knows (directories,
     * program) */
    int32_t task, n_ranks, first_rank, n_local;
    char prepared_id[80];
    int64_t memory_limit, submitted_s;
    unsigned char key[RANK_KEY_SIZE]; /* secret of the attempt, the same for all its nodes */
    const struct job_spec *spec;
    int n_uuids; /* UUIDs of GPUs, one per rank here, in rank order; 0: the job takes none */
    const char (*uuids)[GPU_UUID_SIZE];
    /* ASSIGN, DESCRIBE: absolute private directories that its ranks may read, as the uploads of its
     * owner. Directories that the job names by job:ID are not among them: the node knows them. */
    int n_grants;
    const char *const *grants;
    /* BLOBS */
    int n_blobs;
    const struct rank_blob *blobs;
    /* REPORT: seq counts the attempt's spool records from 1; data is struct rank_msg + payload.
     * LOG: bytes [offset, offset + size) of rank's log.
     * ACK: records up to seq are durable (0: none is meant), and the bytes of rank's log before
     * offset (rank -1: no log is meant). An ACK that repeats an offset asks for the bytes after it
     * again. FETCH: at most WIRE_CHUNK bytes from offset of a file of job: `path` is the name of
     * an artifact, or "checkpoints/step-00000500/hf/config.json". FETCHED: data, size 0 at the
     * end, offset as asked; total: bytes of the whole file now; stamp: a number that changes when
     * the file is replaced or written, 0: the agent sends none. */
    int64_t seq, offset, total, stamp;
    int32_t rank;
    /* REPORT of an exit by a signal, or of a lost gang. Tells whether the kernel has killed
     * processes of seqw's control group for memory since the attempt began on the node. Since ABI
     * 7 */
    bool oom;
    const void *data;
    size_t size;
    /* DESCRIBE / DESCRIBED / FETCH / FETCHED: request pairs question and answer */
    int64_t request;
    char path[RANK_PATH_SIZE];
    /* DESCRIBE, since ABI 7: "FIELD:FORMAT:PATH" of data; `path` is then empty. The question: does
     * each PATH have a file? */
    int n_files;
    const char *const *files;
    bool models;                   /* DESCRIBE: all models beneath the node's roots, from number
                                    * `offset` on, which FETCHED repeats; path is empty */
    char config[SPEC_CONFIG_SIZE]; /* DESCRIBED: sizes of the model at path, as model.config */
    struct err err;                /* code ERR_NONE: config is valid */
    struct wire_trace trace;       /* TRACE, of prepared_id */
    struct profile profile;        /* PROFILE */
    int32_t what;                  /* REMOVE, REMOVED: enum removal_what */
    /* LEAVING. end_s: UTC, seconds since 1970; 0: the end that was announced is withdrawn.
     * margin_s: time before end_s at which its jobs are to save and stop. */
    int64_t end_s, margin_s;
    /* SAVE, STOP, REFUSED, QUIT */
    char reason[512];
    /* JOIN: the token, or "", and the request; JOINED: the certificate. PEM (api/pki.h) */
    const char *token, *pem;
};

/* Tells whether a node may have that name. Names of nodes appear in logs, in JSON and in
 * commands. */
bool wire_name_good(const char *name);
bool wire_speaks(uint32_t abi); /* WIRE_ABI or WIRE_ABI_BEFORE */
/* Tells whether a peer that speaks abi takes messages of that type. wire_speaks(abi) must be
 * true. */
bool wire_knows(uint32_t abi, enum msg_type type);
/* Returns the ABI to speak with a seqd that answered with `theirs` (abi of struct msg). */
uint32_t wire_choose(uint32_t theirs);
/* Writes why no session can speak abi, which wire_speaks refuses, and what to do. */
void wire_refusal(uint32_t abi, char *out, size_t size);
/* Packs m into arena memory. NULL when the arena or WIRE_MAX_SIZE is too small. */
void *wire_pack(const struct msg *m, struct arena *a, size_t *size);
/* Packs m for a peer that speaks abi, without the fields of a spec that it does not know. NULL
 * also if the peer does not know the message. */
void *wire_pack_for(const struct msg *m, uint32_t abi, struct arena *a, size_t *size);
/* Unpacks into *m; pointers point into the arena. A HELLO with an ABI that wire_speaks refuses is
 * read up to its name: the other members are 0. fails: ERR_INVALID, ERR_TOO_LARGE. Hostile input
 * is expected. */
int wire_unpack(const void *data, size_t size, struct arena *a, struct msg *m, struct err *e);

#endif
