/* wire.h: the messages between seqd and seqw as plain structs, packed to and from cluster.proto.
 * Only wire*.c use protobuf-c. Every count and length of a received message is checked.
 *
 * The session. Each node has one session, which seqw opens. Messages in one direction keep their
 * order.
 *   seqw  HELLO      has the node's name, its instance (an id of the state directory, which a
 *                    restart keeps), and every attempt whose directory is here, whether it is
 *                    alive, or has ended and was not yet forgotten
 *   seqd  WELCOME    is followed by an ACK for the records of those attempts that seqd already
 *                    has, so that they are not sent again, and then by EXPECT, the list of the
 *                    attempts that seqd believes are on the node. seqw stops an attempt that runs
 *                    and is not listed, and forgets an attempt that ended and is not listed. For a
 *                    listed attempt that it does not know, it sends a final record with
 *                    GANG_UNKNOWN. EXPECT is repeated every 30 s. A list of more than
 *                    WIRE_ATTEMPTS is sent in several messages; in the last message `more` is 0
 *   seqd  REFUSED    replaces WELCOME. It has the reason, and the time before which the node must
 *                    not connect again. Then the session is closed. If the ABI was the reason,
 *                    seqw immediately sends HELLO with another ABI. While a node is up, its name
 *                    belongs to its instance: seqd refuses another instance of that name, and
 *                    replaces the session if the same instance connects again
 *   seqd  ASSIGN     starts this gang, once per epoch: ranks [first_rank, first_rank + n_local) of
 *                    an attempt that may have other ranks on other nodes. A node that has the
 *                    attempt already ignores ASSIGN. A node answers by GANG_UNKNOWN if the epoch
 *                    is not newer than the newest epoch of the job that this node has had, or if
 *                    the agent is ending or has no room
 *   seqw  REPORT     has the attempt's spool record number seq = 1, 2, ..., from the record after
 *                    the last ACK. In a new session some records are sent again; seqd drops
 *                    records that it has and sends an ACK. seq 0 marks a report that is not from a
 *                    spool, is never repeated and is not acknowledged
 *   seqw  LOG        has bytes of a rank's log at offset, also from the last ACK
 *   seqw  REPORT     with the final record (rank.h) is sent after all other records and all log
 *                    bytes. It answers STOP; seqd sends FORGET once the record is durable
 *   seqd  BLOBS, SAVE, STOP, FORGET: idempotent, so that seqd may send them again at any time, as
 *         after a reconnect. SAVE is answered like STOP, by the final record, which is GANG_SAVED
 *         if rank 0 has saved
 *   seqd  REMOVE     asks to remove the files of a job that has ended from this node. It is
 *                    idempotent, and is sent again in every session and at intervals, until
 *   seqw  REMOVED    reports that the files are gone, durably, or the reason why they are not
 *   seqw  HEARTBEAT  is sent every WELCOME.heartbeat_ms from the agent's loop, with the present
 *                    state of the node's GPUs in the form of HELLO. After three and a half periods
 *                    of silence seqd closes the session
 *   seqw  PROFILE    is sent after WELCOME in each session, once the node has been measured
 *   seqw  JOIN       over a Session asks to renew the node's certificate
 *   seqd  JOINED     has the new certificate. Otherwise REFUSED has the reason, and the session
 *                    continues
 *   seqw  LEAVING    is sent after WELCOME if the time at which the node ends is known, and has
 *                    that time. At SIGTERM it means that the node's jobs must save now, and that
 *                    the agent ends when they have saved
 *   seqd  ASK        has a piece of a request to a job that serves. seqw passes it to rank 0. It is
 *                    sent while the node's session has few bytes queued
 *   seqw  ANSWER     has a piece of the answer. At most WIRE_WINDOW bytes of one answer may be on
 *                    their way; seqd sends CREDIT for bytes that the client has read. The last
 *                    piece ends the request. If the gang is gone, or cannot take the request, the
 *                    answer is 503 without bytes
 *   seqd  DROP       ends a request without an answer. A session that ends drops all requests of
 *                    the node, and seqd answers their clients. No request or answer is stored or
 *                    sent again
 *   seqd  QUIT       tells the agent to stop every gang of its node and then to end. seqd --dev
 *                    and the seqd of a `seqd run` with a join key send it when they end
 *   seqd  DESCRIBE, FETCH, TRACE are questions with a number, which the answer repeats. Each is
 *         answered once: DESCRIBE by DESCRIBED (or by FETCHED if it asks for all models), FETCH
 *         and TRACE by FETCHED
 *
 * Over `Join`, which needs no certificate (api/rpc.h), the node sends one JOIN with a token and
 * gets JOINED or REFUSED; then the node closes the stream. A node with a join key sends PROVE
 * before that, and JOIN only after a PROOF that is right.
 *
 * Versions. Both programs speak WIRE_ABI and WIRE_ABI_BEFORE. A session speaks the ABI of its
 * HELLO. seqw first sends a HELLO with WIRE_ABI. If a seqd that knows no newer ABI answers
 * REFUSED, seqw sends a HELLO with WIRE_ABI_BEFORE. If that is answered by a WELCOME of a seqd
 * that knows WIRE_ABI, seqw ends the session, and the next session speaks WIRE_ABI. Additions of
 * WIRE_ABI are never sent to a peer that speaks WIRE_ABI_BEFORE:
 *   a message: its row in wire.c has the first ABI that knows it (wire_knows). For a peer without
 *              that message, link_send and the agent's send_msg return -1, and the session
 *              continues. So the sender keeps the state in its tables, as it does for a node that
 *              is down, and the API and the log tell why it waits: "node n1 speaks protocol 6"
 *   a field of a message: it is a row of the message's list in wire.c. A peer that speaks
 *              WIRE_ABI_BEFORE ignores the field, so the sender must not depend on it there
 *   a field of the job spec: its row in spec.c ends with the ABI that has it. A peer without the
 *              field is sent the spec without it. A job in which the field is not at its default,
 *              or in which a word is newer than its field, is not placed on such a node
 *              (spec_needs)
 * tests/previous.fields lists the fields and words of the previous version.
 *
 * A node may report only about itself. REPORT and LOG are accepted from the node that has the part
 * of the attempt, for the ranks of that part. DESCRIBED and FETCHED are accepted once, from the
 * node that was asked. HEARTBEAT and PROFILE contain nothing about other nodes. Any other report
 * is dropped, counted and logged. But if the report is about an attempt that was on this node and
 * is over, it is only dropped. */
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

#define WIRE_ABI 7u /* the ABI of this version */
/* The ABI of the version in tests/previous; any other ABI is REFUSED. */
#define WIRE_ABI_BEFORE 6u
#define WIRE_SANDBOX    96 /* bytes of the text about the sandbox in HELLO */
#define WIRE_GRANTS     RANK_GRANTS
#define WIRE_FILES      (1 + 2 * SPEC_SOURCES) /* largest number of files of one question */
#define WIRE_MAX_SIZE   (4 << 20)              /* largest number of bytes of one message */
#define NODE_NAME       PKI_NAME_SIZE
#define WIRE_CHUNK      65536      /* largest number of bytes of a log or a file in one message */
#define WIRE_WINDOW     WIRE_CHUNK /* largest number of bytes of an answer without a CREDIT */
/* Largest number of bytes of the answer to a TRACE, or to a DESCRIBE of all models. */
#define WIRE_TRACE_SIZE (1 << 20)
/* Largest number of attempts in one HELLO or EXPECT, and on one node. A node has up to 4096 slots,
 * and an attempt has at least 1 rank. */
#define WIRE_ATTEMPTS      4096
#define WIRE_INSTANCE_SIZE 16
#define WIRE_TOKEN_SIZE    160 /* a join token, with its NUL */
#define WIRE_HEARTBEAT_MS  2000
#define WIRE_MAX_TIME_S    ((int64_t)1 << 37) /* seconds: until the year 6300 */

enum msg_type {
    /* seqw -> seqd */
    MSG_HELLO = 1, /* first message of a session */
    MSG_HEARTBEAT, /* reports that the loop of the node runs */
    MSG_REPORT,    /* one spooled record of an attempt; see struct msg */
    MSG_LOG,       /* bytes of one rank's log, from an offset */
    MSG_DESCRIBED, /* answer to MSG_DESCRIBE */
    MSG_FETCHED,   /* answer to MSG_FETCH: bytes of a file, or err; 0 bytes mark the end of the
                    * file */
    /* seqd -> seqw */
    MSG_WELCOME,  /* first answer: session accepted */
    MSG_ASSIGN,   /* start this gang */
    MSG_BLOBS,    /* all blobs of an attempt */
    MSG_STOP,     /* ends this attempt; its ranks are asked to stop, and are killed if they have
                   * not stopped after some time */
    MSG_ACK,      /* spool and log offsets up to which seqd has stored everything durably */
    MSG_EXPECT,   /* the attempts that seqd expects on this node; the node compares them with its
                   * own */
    MSG_FETCH,    /* asks for at most WIRE_CHUNK bytes of a file of the job, from offset */
    MSG_DESCRIBE, /* asks for seqrank --describe of a model directory, for seqrank
                   * --describe-adapter, or for seqrank --models */
    MSG_FORGET,   /* the attempt is final and acknowledged, so its directory may be removed */
    MSG_TRACE,    /* asks for the sources of samples of prepared data; MSG_FETCHED answers with
                   * JSON */
    /* seqw -> seqd */
    MSG_PROFILE, /* the measured speed of the node */
    /* seqd -> seqw */
    MSG_REFUSED, /* reason why a HELLO gets no session, or why a JOIN gets no certificate */
    /* seqw -> seqd */
    MSG_JOIN, /* asks for a certificate */
    /* seqd -> seqw */
    MSG_JOINED, /* the certificate */
    MSG_REMOVE, /* asks the node to remove those files of the job that `what` names */
    /* seqw -> seqd */
    MSG_REMOVED, /* the files are removed; has their total bytes, or err */
    /* seqd -> seqw */
    MSG_SAVE, /* asks to save at the next step boundary and then to end this attempt */
    /* seqw -> seqd */
    MSG_LEAVING, /* the node ends at end_s */
    /* seqd -> seqw */
    MSG_QUIT, /* asks to stop every gang and to end, as after SIGINT */
    MSG_ASK,  /* a piece of a request, for rank 0 of an attempt that serves */
    /* seqw -> seqd */
    MSG_ANSWER, /* a piece of the answer */
    /* seqd -> seqw */
    MSG_CREDIT, /* the client has read `total` more bytes of the answer */
    MSG_DROP,   /* the client has gone, so no answer is needed */
    /* seqw -> seqd */
    MSG_PROVE, /* asks for a proof that seqd has the key of this node's --join-key */
    /* seqd -> seqw */
    MSG_PROOF, /* the proof */
    MSG_TYPE_N
};

/* Tells whether nodes send messages of this type. seqd sends messages of all other types. */
static inline bool msg_from_node(enum msg_type t)
{
    return t <= MSG_FETCHED || t == MSG_PROFILE || t == MSG_JOIN || t == MSG_REMOVED ||
           t == MSG_LEAVING || t == MSG_ANSWER || t == MSG_PROVE;
}

struct wire_trace { /* arguments of seqrank --trace (worker/rank/trace.h) */
    int64_t seq_len, seed, first, count, max_fragments;
    char packing[16], overlong[16]; /* words of data.packing and data.overlong */
};

struct disk_use { /* a node's state directory, in bytes */
    int64_t jobs, prepared;
    int64_t size, free; /* bytes of the directory's file system; size 0 means not reported */
};

struct wire_attempt {
    int64_t job, epoch;
    int32_t slots; /* HELLO: number of ranks of the attempt that are running on the node */
    int32_t gpus;  /* HELLO, since ABI 7: number of ranks of the attempt that have a GPU and need
                    * no slot */
};

struct msg {
    enum msg_type type;
    uint32_t abi; /* HELLO: the session's ABI. WELCOME, REFUSED: the newest ABI that seqd speaks; 0
                   * stands for ABI 6 */
    /* HELLO */
    char node[NODE_NAME], version[32];
    char sandbox[WIRE_SANDBOX]; /* HELLO, since ABI 7: the parts of the sandbox of the node's ranks,
                                 * as text for people; "" if the agent does not say */
    unsigned char instance[WIRE_INSTANCE_SIZE];
    int32_t n_slots, n_cores;
    int64_t memory_size; /* bytes of memory of the machine */
    char address
        [RANK_ADDRESS_SIZE]; /* numeric address on which the node's ranks listen for ranks of other
                              * nodes; "" if ranks of other nodes cannot reach this node */
    int64_t
        shared; /* HELLO, HEARTBEAT, since ABI 7: id of the shared directory (api/core/shared.h) in
                     * which the node keeps files of jobs; 0 if it has none or cannot reach it */
    bool emulated; /* the node accepts jobs of the device "emulated", for tests */
    int n_gpus;    /* HELLO, HEARTBEAT */
    const struct gpu *gpus;
    struct disk_use disk; /* HEARTBEAT */
    int n_attempts;       /* HELLO: attempts found here; EXPECT: attempts expected here */
    const struct wire_attempt *attempts;
    bool more;            /* EXPECT: the list continues in the next message. ASK, ANSWER: so does
                           * the body */
    int64_t heartbeat_ms; /* WELCOME */
    int64_t retry_ms;     /* REFUSED: time before which the node must not connect again */
    /* used by most messages: the attempt that the message is about */
    int64_t job, epoch;
    /* ASSIGN: the gang's start record. The agent adds the values that it knows itself
     * (directories, program). */
    int32_t task, n_ranks, first_rank, n_local;
    char prepared_id[80];
    int64_t memory_limit, submitted_s;
    int64_t held; /* since ABI 7: bytes of the node's memory that are held for the ranks there; 0 if
                   * the number is not known */
    unsigned char key[RANK_KEY_SIZE]; /* secret of the attempt, the same on all its nodes */
    const struct job_spec *spec;
    int n_uuids; /* UUIDs of GPUs, one for each rank here, in rank order; n_uuids is 0 if the job
                  * uses no GPUs */
    const char (*uuids)[GPU_UUID_SIZE];
    /* ASSIGN, DESCRIBE: absolute paths of private directories that the ranks may read, such as the
     * uploads of the job's owner. Directories that the job names by job:ID are not listed, because
     * the node knows their paths. */
    int n_grants;
    const char *const *grants;
    /* BLOBS */
    int n_blobs;
    const struct rank_blob *blobs;
    /* REPORT: seq counts the attempt's spool records from 1; data is struct rank_msg + payload.
     * LOG: bytes [offset, offset + size) of the rank's log. ACK: records up to seq are durable,
     * and so are the bytes of the rank's log before offset. If seq is 0, the ACK is not about
     * records; if rank is -1, it is not about a log. An ACK that repeats an offset asks for the
     * bytes after this offset again. FETCH asks for at most WIRE_CHUNK bytes of a file of the job,
     * from offset on. `path` is the name of an artifact, or a path such as
     * "checkpoints/step-00000500/hf/config.json". FETCHED: data begins at the offset of the
     * question; size is 0 at the end of the file. total is the present size of the whole file in
     * bytes. stamp is a number that changes when the file is replaced or written; 0 means that the
     * agent sends no stamp. */
    int64_t seq, offset, total, stamp;
    int32_t rank;
    /* REPORT of an exit by a signal, or of a lost gang, since ABI 7: tells whether memory ran out.
     * It is set if the kernel has killed a process of seqw's control group for memory since the
     * attempt began on the node. */
    bool oom;
    const void *data;
    size_t size;
    /* DESCRIBE, DESCRIBED, FETCH, FETCHED: the number of the question, which its answer
     * repeats. ASK, ANSWER, CREDIT, DROP: the request's id, which is unique in the attempt. */
    int64_t request;
    /* ASK: enum serve_endpoint; index of the named adapter in model.adapters, or -1; the name of
     * the model that the answer shows; the user who asks, or "" */
    int32_t endpoint, named;
    char model[RANK_MODEL_SIZE], user[RANK_USER_SIZE];
    /* ANSWER: HTTP status in the first piece, and 0 in the others. If the status is 503 and the
     * last piece has no bytes, the request is lost. stream: the body is text/event-stream. */
    int32_t status;
    bool stream;
    char path[RANK_PATH_SIZE];
    /* DESCRIBE, since ABI 7: each text has the form "FIELD:FORMAT:PATH". The question is whether a
     * file exists at each PATH or, if FORMAT is RANK_WRITABLE, a directory in which a job can make
     * files. `path` is empty then. */
    int n_files;
    const char *const *files;
    bool models;                   /* DESCRIBE: asks for all models beneath the node's roots that
                                    * have the index `offset` or a higher one; FETCHED repeats this
                                    * offset. path is empty */
    bool adapter;                  /* DESCRIBE, since ABI 7: path is the directory of an adapter */
    char config[SPEC_CONFIG_SIZE]; /* DESCRIBED: sizes of the model at path, in the form of
                                    * model.config, or the output of
                                    * seqrank --describe-adapter */
    struct err err;                /* if err.code is ERR_NONE, config is valid */
    struct wire_trace trace;       /* TRACE, of prepared_id */
    struct profile profile;        /* PROFILE */
    int32_t what;                  /* REMOVE, REMOVED: enum removal_what */
    /* LEAVING. end_s is the time of the end in seconds since 1970, UTC; 0 withdraws the end that
     * was announced. margin_s is the time before end_s at which the node's jobs must save and
     * stop. */
    int64_t end_s, margin_s;
    /* SAVE, STOP, REFUSED, QUIT */
    char reason[512];
    /* JOIN: token is the join token or "", and pem is the request for a certificate. JOINED: pem
     * is the certificate. These texts are PEM (api/pki.h). PROVE: token is a nonce. PROOF: token is
     * the proof (api/join_key.h). */
    const char *token, *pem;
    int32_t code; /* QUIT, since ABI 7: the exit status of the agent */
};

/* Tells whether `name` may be the name of a node. It is checked because names of nodes appear in
 * logs, in JSON and in commands. */
bool wire_name_good(const char *name);
bool wire_speaks(uint32_t abi); /* WIRE_ABI or WIRE_ABI_BEFORE */
/* Tells whether a peer that speaks abi accepts messages of type `type`. wire_speaks(abi) must be
 * true. */
bool wire_knows(uint32_t abi, enum msg_type type);
/* Returns the ABI to speak with a seqd that answered with `theirs` (the member abi of struct
 * msg). */
uint32_t wire_choose(uint32_t theirs);
/* Writes the reason why no session can speak abi, and the remedy. Call it only if wire_speaks(abi)
 * is false. */
void wire_refusal(uint32_t abi, char *out, size_t size);
/* Packs m into arena memory. Returns NULL if the arena or WIRE_MAX_SIZE is too small. */
void *wire_pack(const struct msg *m, struct arena *a, size_t *size);
/* Packs m for a peer that speaks abi, and leaves out the fields of a spec that the peer does not
 * know. Fails as wire_pack does, and also returns NULL if the peer does not know the message. */
void *wire_pack_for(const struct msg *m, uint32_t abi, struct arena *a, size_t *size);
/* Unpacks a message into *m, whose pointers point into the arena. A HELLO with an ABI that
 * wire_speaks refuses is read only up to its name, and the other members are 0. Fails with
 * ERR_INVALID or ERR_TOO_LARGE. The data may be malicious. */
int wire_unpack(const void *data, size_t size, struct arena *a, struct msg *m, struct err *e);

#endif
