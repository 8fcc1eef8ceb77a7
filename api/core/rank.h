/* rank.h: the messages between seqgang and its seqrank processes. gang_start.h has what seqw
 * writes for seqgang.
 *
 * All structs are plain data of one build on one machine. The programs are installed together, and
 * RANK_ABI is checked first. But a gang that outlives an upgrade still has its files and its
 * connection to the agent, and the records of its spool reach seqd. Therefore RANK_ABI, struct
 * rank_msg and the payloads of all messages except ARGS are the same as in 0.2.0. The size of ARGS
 * tells its version. Each rank has one SOCK_SEQPACKET pair for its messages (inherited as fd
 * RANK_SOCKET_FD). A message is one packet: struct rank_msg followed by `size` payload bytes.
 *
 *   gang -> rank   ARGS   struct rank_args, then struct job_spec    first message
 *   rank -> gang   BLOB   at most BLOB_SIZE bytes                   once, after comm_listen
 *   gang -> rank   BLOBS  n_ranks x struct rank_blob                when seqd has gathered all
 *   rank -> gang   READY                                            the ring is open
 *   rank -> gang   STEP   struct rank_step                          rank 0, each optimizer step
 *   rank -> gang   PROGRESS struct rank_progress                    rank 0, at most once a second
 *   rank -> gang   SERVING struct rank_serving                      rank 0 of a job that serves, at
 *                                                                   most once a second
 *   rank -> gang   EVENT  struct rank_event + JSON text             checkpoints, artifacts, notes
 *   rank -> gang   RESULT JSON text (at most RANK_RESULT_SIZE)      rank 0, once, before exit 0
 *   rank -> gang   FAIL   struct rank_fail                          then the rank exits 1
 *   gang -> rank   STOP                                             exit with ERR_ABORTED
 *   gang -> rank   SAVE                                             save if the work can, then
 *                                                                   exit with RANK_EXIT_SAVED
 *   gang -> rank   ASK    struct rank_ask + bytes of the body       rank 0 of a job that serves
 *   gang -> rank   DROP   uint64_t, the id of a request             forget it, without an answer
 *   rank -> gang   ANSWER struct rank_answer + bytes of the body    rank 0 of a job that serves
 *
 * Requests and their answers never enter the spool, a file, a log or an event. The body of a
 * request is sent in pieces, and so is the body of its answer. Each piece is at most
 * RANK_PIECE_SIZE bytes. Rank 0 answers a request only when it has the last piece of its body. The
 * gang reads the socket of rank 0 at all times, so rank 0 may send an answer without waiting for
 * its reader. At SAVE a job that serves ends its open requests, for at most serve.drain_s. Rank 0
 * then sends RESULT and exits with RANK_EXIT_SAVED.
 *
 * Only rank 0 acts upon SAVE. It exits at the end of a step or of a unit of work. In training, the
 * all-reduce at the end of each step tells the other ranks, so that all ranks exit after the same
 * step. In other jobs the exit of rank 0 ends the gang. Work that has nothing to save ignores
 * SAVE.
 *
 * The shared segment of the shared-memory transport is one memfd, which seqgang makes and ranks
 * inherit as fd RANK_MEMFD. If seqgang dies, the sockets of its ranks close, and the ranks get
 * SIGKILL because they have set PR_SET_PDEATHSIG. */
#ifndef SEQD_CORE_RANK_H
#define SEQD_CORE_RANK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/limits.h"
#include "api/core/purpose.h"

#define RANK_ABI          9u
#define RANK_SOCKET_FD    3
#define RANK_MEMFD        4
#define RANK_PATH_SIZE    1024
#define RANK_RESULT_SIZE  32768
#define RANK_ROOTS        8
#define RANK_GRANTS       16
#define RANK_MODELS       20000 /* largest number of models that seqrank --models lists */
#define RANK_MODELS_PAGE  256   /* models in one answer */
#define RANK_KEY_SIZE     32
#define RANK_ADDRESS_SIZE 64
#define RANK_EXIT_SAVED   3 /* exit status of a rank that has saved and stopped after SAVE */
/* The exit status of a seqrank --describe or --trace that refuses its request. */
#define RANK_EXIT_REFUSED 4
/* The format of a directory in which a job makes files, among the files that a node is asked for:
 * FIELD:writable:PATH. */
#define RANK_WRITABLE "writable"
/* The third word of a command line of seqrank begins so, if it is to enter a sandbox before it
 * reads a file. The state directory of seqw follows. */
#define RANK_CONFINED "--confined="
/* In the arguments of seqrank --trace it follows the word of data.packing if the job learns
 * preferences. A seqrank that does not know it refuses the word. */
#define TRACE_PAIRS "+pairs"

/* The code of the note (EV_NOTE) by which rank 0 of a serve job tells that all ranks have loaded
 * the model. The job takes requests from then on. */
#define RANK_NOTE_SERVES "serving"

enum rank_msg_type {
    RANK_ARGS = 1,
    RANK_BLOBS,
    RANK_STOP,
    RANK_BLOB,
    RANK_READY,
    RANK_STEP,
    RANK_PROGRESS,
    RANK_EVENT,
    RANK_RESULT,
    RANK_FAIL,
    RANK_EXIT, /* struct rank_exit, written to the spool by seqgang, or by seqw if seqgang died */
    /* Sent by the agent to seqgang, which sends it to the ranks. The agent adds the reason as a
     * text with its NUL. Rank 0 gets this text, which the clients of a serve job see. */
    RANK_SAVE,
    RANK_ASK,
    RANK_ANSWER,
    RANK_DROP,
    RANK_SERVING
};

struct rank_msg {
    uint32_t abi, type;
    int32_t rank;
    uint32_t size; /* payload bytes that follow */
};

enum rank_task { TASK_PREPARE, TASK_RUN }; /* TASK_RUN: by spec.kind */

struct rank_args {
    int64_t job;
    int64_t epoch;
    int32_t task; /* enum rank_task */
    int32_t rank, n_ranks;
    int32_t first_local, n_local;    /* The ranks of this gang are [first_local, first_local +
                                      * n_local). They share fd RANK_MEMFD. The other ranks of the
                                      * job run on other nodes. If n_local is 0, no rank runs
                                      * here */
    char address[RANK_ADDRESS_SIZE]; /* TCP address of this node's ranks; empty means loopback */
    unsigned char
        key[RANK_KEY_SIZE]; /* secret of the attempt, by which a process proves that it is one of
                             * the attempt's ranks */
    int32_t n_roots;
    char roots[RANK_ROOTS][RANK_PATH_SIZE]; /* paths that the user names must lie beneath one of
                                             * these directories */
    int32_t n_writable;
    char writable[RANK_ROOTS][RANK_PATH_SIZE]; /* directories beneath which the job may publish
                                                * results */
    int32_t n_grants;
    char grants[RANK_GRANTS][RANK_PATH_SIZE]; /* private directories that this job may read */
    char prepared_dir[RANK_PATH_SIZE];        /* parent of the directories of prepared data; the
                                               * name of each is the id of its data */
    char prepared_id[80];                     /* id of this job's prepared data; empty for
                                               * TASK_PREPARE */
    char job_dir[RANK_PATH_SIZE]; /* directory with checkpoints/ and artifacts/ of this job */
    int64_t memory_limit;         /* largest number of bytes that this rank may plan; 0 means no
                                   * limit */
    /* Time of the submission in seconds since 1970, UTC. It is the only time that a job's work may
     * depend on, because every attempt must do the same work. */
    int64_t submitted_s;
    int32_t confined; /* whether the rank is in a sandbox and may connect to peers' ports alone, to
                       * which it restricts itself once it has the blobs */
    int32_t shared;   /* whether nodes share job_dir: an attempt elsewhere may still write there */
};

/* Tells whether id can be the name of a directory of prepared data. Such a name has only
 * lower-case hex digits. */
bool rank_prepared_id_good(const char *id);

/* Tells whether the signal is caused by a fault of the program itself (SEGV, BUS, ILL, FPE, ABRT).
 * Other signals are sent from outside the program. */
bool rank_signal_own(int signo);

struct rank_blob {
    int32_t rank, size;
    char data[BLOB_SIZE];
};

enum { RANK_PURPOSES = PURPOSE_STAGE }; /* the number of purposes in struct rank_step of 0.2.0 */

/* One optimizer step, reported by rank 0. comm and planned are the counts of rank 0. ledger_ok is
 * true if the counts of every rank equal the plan: each rank compares its own counts, and the
 * results are summed over the ranks. The sum itself needs messages. Their counts are compared with
 * the plan in the next step, and are part of that step's ledger_ok. */
struct rank_step {
    int64_t step; /* 1-based, after the update */
    double loss, grad_norm, lr;
    int64_t tokens, targets; /* tokens and targets of all ranks in this step */
    int64_t step_us, comm_wait_us;
    struct comm_count comm[RANK_PURPOSES], planned[RANK_PURPOSES];
    int32_t ledger_ok;
    int64_t memory_high, memory_planned; /* bytes of this rank's arena plus its comm segment */
    /* Bytes of the host's memory, counted only if the device has memory of its own. */
    int64_t host_high, host_planned;
    struct comm_count stage, planned_stage; /* counts for PURPOSE_STAGE, which comm and planned do
                                             * not have */
    /* objective.type "dpo": pairs of answers in this step, and means over them: the rewards of both
     * answers, and the share of pairs whose chosen answer has the larger one. pairs is 0 for other
     * objectives. */
    int64_t pairs;
    double reward_chosen, reward_rejected, accuracy;
};
#define RANK_STEP_BEFORE offsetof(struct rank_step, stage)
_Static_assert(RANK_PURPOSES == 13 && PURPOSE_N == RANK_PURPOSES + 1, "as in 0.2.0, and one more");
/* Returns the messages and bytes of the step for a purpose, as counted or as planned. */
static inline const struct comm_count *rank_step_comm(const struct rank_step *s, int purpose)
{
    return purpose == PURPOSE_STAGE ? &s->stage : &s->comm[purpose];
}
static inline const struct comm_count *rank_step_planned(const struct rank_step *s, int purpose)
{
    return purpose == PURPOSE_STAGE ? &s->planned_stage : &s->planned[purpose];
}

/* Units of progress. */
enum progress_unit {
    PROGRESS_STEPS,    /* train: optimizer steps */
    PROGRESS_TOKENS,   /* score, embed: tokens of the data; verify: tokens of rank 0's passes */
    PROGRESS_REQUESTS, /* generate: prompts, lines of a batch or samples */
    PROGRESS_BYTES,    /* preparing: bytes of the sources; each source is read twice, so its bytes
                        * count twice. merge: bytes of the model and of its adapter, in the
                        * precision that is written */
    PROGRESS_SAMPLES,  /* train with pairs of answers, before the first step: samples whose
                        * references are computed */
    PROGRESS_UNIT_N
};
const char *progress_unit_name(int unit); /* "steps", ... */

/* Progress of an attempt. Rank 0 sends it if the job has no steps to report. No decision depends
 * on it. */
struct rank_progress {
    int32_t unit; /* enum progress_unit */
    int32_t pad;
    double done;        /* units done in all attempts, with the finished part of the present
                         * unit */
    double total;       /* total units, or 0 if the total is not known yet; it grows if more work
                         * is found */
    double from;        /* units that earlier attempts had done */
    int64_t tokens;     /* generate: tokens that this attempt generated; 0 for other kinds */
    int64_t elapsed_us; /* time since this attempt began its first unit */
};

/* The work of a job that serves. Rank 0 sends it while the numbers change, and once more when they
 * have not changed. No decision depends on it. A later version may add members at the end. */
struct rank_serving {
    /* ---- sums over this attempt ---- */
    int64_t requests, refused, dropped; /* answered with 200, with an error, not at all */
    int64_t prompt_tokens;              /* tokens of prompts, without kept ones */
    int64_t tokens;                     /* generated tokens, also of requests at work */
    int64_t kept_tokens;                /* tokens of prompts whose pages were kept */
    int64_t passes, rows;               /* passes that compute next tokens, and their rows */
    int64_t pass_us;                    /* duration of these passes */
    int64_t elapsed_us;                 /* time since this attempt began to serve */
    /* ---- now ---- */
    int64_t at_work, queued;   /* requests that passes compute, and that wait for a slot */
    int64_t pages, pages_used; /* pages of all ranks' caches, and those that requests have */
};

struct rank_event {
    /* one of the enum job_event EV_CHECKPOINT, EV_CHECKPOINT_REMOVED, EV_ARTIFACT, EV_EVAL,
     * EV_VERIFIED and EV_NOTE. JSON follows the struct. */
    int32_t type;
    int32_t pad;
    int64_t step;
};

struct rank_fail {
    int32_t code; /* enum err_code */
    char field[96];
    char text[512]; /* a sentence, which names step, layer, hop and peer if they are known */
    /* Progress of the rank that hangs, which is also the rank that the error names. 0 means that
     * this failure is not a hang. 1 means that the rank's process is stopped. The gang sets this
     * number, and seqd compares it with the numbers of gangs on other nodes. */
    int64_t reached;
};

struct rank_exit {
    int32_t rank, pid, exit_status, signal; /* signal is 0 unless the rank was killed by a
                                             * signal */
};

enum {
    RANK_PIECE_SIZE = 64 << 10,
    RANK_MODEL_SIZE = 200,       /* a name, a colon, the name of an adapter, NUL */
    RANK_WHY_SIZE = 512,         /* largest reason of SAVE, with its NUL */
    RANK_USER_SIZE = 72,         /* a user's name with its NUL */
    RANK_ASKS = 1024,            /* largest number of requests that are open in an attempt */
    RANK_BODY_SIZE = 64 << 20,   /* largest body of a request */
    RANK_BODIES_SIZE = 256 << 20 /* largest number of bytes of all bodies at one time */
};

/* Paths of a request beneath /openai/v1. */
enum serve_endpoint {
    SERVE_COMPLETIONS,
    SERVE_CHAT, /* chat/completions */
    SERVE_TOKENIZE,
    SERVE_DETOKENIZE,
    SERVE_EMBEDDINGS,
    SERVE_MODELS, /* answered by seqd alone */
    SERVE_ENDPOINT_N
};

/* Flags of struct rank_ask. */
#define RANK_ASK_LAST 1u /* the last piece of this body */

/* A piece of a request. `size` bytes of its body follow. */
struct rank_ask {
    uint64_t id;           /* seqd gives it; unique in the attempt */
    uint32_t endpoint;     /* enum serve_endpoint */
    uint32_t flags;        /* RANK_ASK_LAST or 0 */
    int32_t adapter_named; /* index in model.adapters, or -1 if the request names no adapter */
    int32_t size;          /* at most RANK_PIECE_SIZE */
    char model[RANK_MODEL_SIZE]; /* the `model` that the answer shows */
    char user[RANK_USER_SIZE];   /* who asks; "" if seqd knows no users */
};

/* Flags of struct rank_answer. */
#define RANK_ANSWER_LAST   1u /* the last piece of this body */
#define RANK_ANSWER_STREAM 2u /* the body is text/event-stream; set in the first piece */

/* A piece of an answer. `size` bytes of its body follow. */
struct rank_answer {
    uint64_t id;
    int32_t status; /* HTTP status in the first piece, 0 in the others */
    uint32_t flags; /* RANK_ANSWER_LAST, RANK_ANSWER_STREAM */
    int32_t size;   /* at most RANK_PIECE_SIZE */
    int32_t tokens; /* in the last piece: tokens of the prompts and of the answers, for limits */
};

/* The final record. The last spool record of an attempt on a node is RANK_EXIT with rank RANK_GANG
 * (in rank_msg and in rank_exit). It means that no process of this attempt is left on this node.
 * Every other record and every byte of the ranks' logs was sent before it. exit_status is an enum
 * gang_end, and signal is 0. seqgang writes this record. If seqgang died (GANG_LOST), seqw writes
 * the record after it has confirmed that every rank is dead.
 *
 * The cause of a failed attempt is its first record that is a RANK_FAIL, or a RANK_EXIT of a rank
 * whose status or signal is not 0. The status RANK_EXIT_SAVED after RANK_SAVE is not a cause.
 * Later records are consequences (ERR_ABORTED, ERR_PEER, SIGKILL by the gang). RANK_FAIL with rank
 * RANK_GANG means that no rank could be started, for example because seqgang or seqrank cannot be
 * run. A hang is RANK_FAIL with ERR_TIMEOUT. The gang writes it in the name of the rank that has
 * made the least progress. If other nodes have ranks, the gang then waits HANG_GRACE_MS before it
 * ends its ranks, so that the other gangs find their own hangs and seqd can compare them. */
#define RANK_GANG (-1)

enum gang_end {
    GANG_DONE,     /* every rank here exited 0 */
    GANG_FAILED,   /* a rank failed, died or hung; earlier records tell which rank, and how */
    GANG_STOPPED,  /* stopped, as RANK_STOP asked */
    GANG_ORPHANED, /* no agent was connected for orphan_ms, so the gang stopped by itself */
    GANG_LOST,     /* seqgang died or never ran, and its ranks are dead */
    GANG_UNKNOWN,  /* this node does not know the attempt (REPORT with seq 0) */
    GANG_SAVED,    /* a rank here exited with RANK_EXIT_SAVED after RANK_SAVE, and no rank
                    * failed */
    GANG_END_N
};

/* The last operation of a rank. It is in shared memory, so that seqgang can read it even while the
 * rank hangs. */
struct rank_lastop {
    int64_t step;
    int32_t layer, hop, purpose, peer; /* -1 for a value that the operation does not have */
    int64_t n_ops;                     /* grows with every operation of the transport */
    int64_t n_tasks; /* grows while the CPU computes. If neither n_tasks nor n_ops grows, the rank
                      * hangs */
};

/* First page of the shared segment (fd RANK_MEMFD). seqgang makes and zeroes the segment, and sets
 * magic, n_ranks and abort_rank. Everything after this page belongs to worker/comm/shm.c. To abort
 * the ranks, seqgang stores 1 in `abort`, adds 1 to every door and wakes all waiters on the doors
 * (FUTEX_WAKE, shared). Every rank that waits in the transport then fails with ERR_ABORTED after
 * one futex wake. worker/comm/shm.c defines the meaning of the bits of a door. */
#define SHM_MAGIC 0x73657164u /* "seqd" */
struct shm_head {
    uint32_t magic, n_ranks;
    uint32_t abort;     /* atomic; 0 or 1 */
    int32_t abort_rank; /* the rank whose death caused the abort, or -1 if there is none */
    uint32_t door
        [JOB_MAX_RANKS]; /* futex words; word i changes with each event that rank i may wait for */
    struct rank_lastop lastop[JOB_MAX_RANKS];
};

#endif
