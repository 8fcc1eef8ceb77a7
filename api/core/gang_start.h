/* gang_start.h: the files of an attempt that seqw writes for seqgang. The directory of an attempt
 * is DIR = <state>/gangs/<job>-e<epoch>:
 *
 *   start       struct gang_start. seqw writes and fsyncs it before it spawns `seqgang DIR`
 *   cpus        a cpu_set_t for each rank here, to which the rank's process is bound. seqw writes
 *               it before `start`. If the file is missing, no rank is bound
 *   oom_kills   as text, the number of processes of seqw's control group that the kernel had
 *               killed for memory. seqw writes it before `start`. If the file is missing, the
 *               number is not known
 *   lock        seqw locks it (flock) before it starts seqgang, which inherits the descriptor and
 *               keeps it until it ends. So a process that gets the lock knows that no gang runs or
 *               is starting here. A seqgang exits immediately if it does not have the lock, or
 *               finds `exit` or `pids`
 *   sock        SOCK_SEQPACKET socket on which seqgang listens. It serves only one agent, the
 *               newest to connect. The agent sends struct rank_msg RANK_BLOBS with n_ranks struct
 *               rank_blob, RANK_SAVE, and RANK_STOP. The gang sends one byte after the connect and
 *               whenever the spool has grown; the agent reads end of file when the gang is gone
 *   pids        a line "rank pid start_time" per rank, written before the rank gets its ARGS
 *   spool       the messages of the ranks (api/core/spool.h); its last record is the final record
 *   rank-N.log  stdout and stderr of rank N; gang.log has those of seqgang
 *   exit        struct rank_exit, a copy of the final record, which is written last and fsynced */
#ifndef SEQD_CORE_GANG_START_H
#define SEQD_CORE_GANG_START_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include "api/core/gpu.h"
#include "api/core/job.h"
#include "api/core/rank.h"
#include "api/core/sandbox.h"

#define GANG_LOCK_FD 3 /* the descriptor on which seqgang inherits the lock from seqw */

struct gang_start {
    uint32_t abi; /* RANK_ABI */
    int32_t task;
    int64_t job, epoch;
    int32_t n_ranks; /* ranks of the whole attempt */
    int32_t first_rank, n_local;
    int32_t n_roots;
    int64_t memory_limit;
    int64_t orphan_ms;   /* time without an agent after which the gang stops; 0 means never */
    int64_t submitted_s; /* see struct rank_args */
    char address[RANK_ADDRESS_SIZE]; /* see struct rank_args */
    unsigned char key[RANK_KEY_SIZE];
    char roots[RANK_ROOTS][RANK_PATH_SIZE];
    char prepared_dir[RANK_PATH_SIZE];
    char prepared_id[80];
    char job_dir[RANK_PATH_SIZE];
    char seqrank[RANK_PATH_SIZE];            /* the program */
    char gpus[JOB_MAX_RANKS][GPU_UUID_SIZE]; /* the GPU of rank first_rank + i, or "" if it has
                                              * none */
    /* The members above are the same as in version 0.2.0. An agent that adopts a gang of another
     * version reads only the members above. The members below are read only by the seqgang of this
     * version. */
    char version[32];
    int64_t spec_size; /* bytes of struct job_spec */
    int32_t n_grants;  /* see struct rank_args */
    char grants[RANK_GRANTS][RANK_PATH_SIZE];
    int32_t n_writable;
    char writable[RANK_ROOTS][RANK_PATH_SIZE];
    int32_t sandbox; /* enum sandbox_mode. The granted paths of a rank are those above: the roots
                      * and the writable ones without their private directories, the grants,
                      * job_dir, and prepared_id in prepared_dir */
    int32_t shared;  /* whether nodes share job_dir (seqw --shared) */
    char state_dir[RANK_PATH_SIZE]; /* private to the agent */
    struct job_spec spec;
};

/* Writes the record, which only its owner can read because it holds the attempt's key. Sets
 * version and spec_size. */
int gang_start_write(const char *path, struct gang_start *start, struct err *e);
/* Reads the record into memory from malloc. The caller overwrites the key in this memory and then
 * frees it. If *whole is false, another version wrote the record, and only the members up to gpus
 * are valid. Returns NULL after a failure. The error is ERR_CORRUPT if the record is too short or
 * has an unknown ABI, and ERR_TOO_LARGE if it is longer than struct gang_start. Other errors, such
 * as ERR_NOT_FOUND, are those of file_read. */
struct gang_start *gang_start_read(const char *path, bool *whole, struct err *e);

/* Write and read DIR/oom_kills. gang_kills_read returns -1 if the count is not known. */
int gang_kills_write(const char *dir, int64_t kills, struct err *e);
int64_t gang_kills_read(const char *dir);
/* Write and read DIR/cpus. gang_cpus_read returns false if the file does not exist or is not for n
 * ranks. Then no rank is bound. */
int gang_cpus_write(const char *dir, const cpu_set_t *cpus, int n, struct err *e);
bool gang_cpus_read(const char *dir, cpu_set_t *cpus, int n);

#endif
