/* gang_start.h: the files of an attempt that seqw writes for seqgang. The directory of an attempt
 * is DIR = <state>/gangs/<job>-e<epoch>:
 *
 *   start       struct gang_start, by seqw, fsynced before it spawns `seqgang DIR`
 *   cpus        a cpu_set_t for each rank here: its process is bound to these CPUs. Written by
 *               seqw before `start`. If the file is missing, no rank is bound
 *   oom_kills   the number of processes of seqw's control group that the kernel had killed for
 *               memory, as text. Written by seqw before `start`. If the file is missing, the
 *               number is not known
 *   lock        locked (flock) by seqw before it starts seqgang, which inherits the descriptor and
 *               keeps it until it ends. A process that gets the lock knows that no gang runs or
 *               starts here. A seqgang exits at once if it does not have the lock, or finds `exit`
 *               or `pids`
 *   sock        SOCK_SEQPACKET; seqgang listens. It serves one agent, the newest to connect. Agent
 *               -> gang: struct rank_msg RANK_BLOBS with n_ranks struct rank_blob, RANK_SAVE,
 *               RANK_STOP. Gang -> agent: one byte after the connect and whenever the spool has
 *               grown; end of file when the gang is gone
 *   pids        a line "rank pid start_time" per rank, written before the rank gets its ARGS
 *   spool       the messages of the ranks (api/core/spool.h); its last record is the final record
 *   rank-N.log  stdout and stderr of rank N; gang.log those of seqgang
 *   exit        struct rank_exit, a copy of the final record: written last, fsynced */
#ifndef SEQD_CORE_GANG_START_H
#define SEQD_CORE_GANG_START_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include "api/core/gpu.h"
#include "api/core/job.h"
#include "api/core/rank.h"

#define GANG_LOCK_FD 3 /* the descriptor on which seqgang gets the lock from seqw */

struct gang_start {
    uint32_t abi; /* RANK_ABI */
    int32_t task;
    int64_t job, epoch;
    int32_t n_ranks; /* ranks of the whole attempt */
    int32_t first_rank, n_local;
    int32_t n_roots;
    int64_t memory_limit;
    int64_t orphan_ms;   /* time without an agent after which the gang stops; 0 = never */
    int64_t submitted_s; /* see struct rank_args */
    char address[RANK_ADDRESS_SIZE]; /* see struct rank_args */
    unsigned char key[RANK_KEY_SIZE];
    char roots[RANK_ROOTS][RANK_PATH_SIZE];
    char prepared_dir[RANK_PATH_SIZE];
    char prepared_id[80];
    char job_dir[RANK_PATH_SIZE];
    char seqrank[RANK_PATH_SIZE];            /* the program */
    char gpus[JOB_MAX_RANKS][GPU_UUID_SIZE]; /* the GPU of rank first_rank + i; "": none */
    /* The members above are as in 0.2.0: to adopt a gang of the other version, an agent reads
     * these members alone. The members below are for the seqgang of this version alone. */
    char version[32];
    int64_t spec_size; /* bytes of struct job_spec */
    int32_t n_grants;  /* see struct rank_args */
    char grants[RANK_GRANTS][RANK_PATH_SIZE];
    int32_t n_writable;
    char writable[RANK_ROOTS][RANK_PATH_SIZE];
    struct job_spec spec;
};

/* Writes the record, readable by its owner alone: it holds the attempt's key. Sets version and
 * spec_size. */
int gang_start_write(const char *path, struct gang_start *start, struct err *e);
/* Reads the record, malloc'd: the caller overwrites the key and frees it. *whole false: another
 * version wrote the record, and only the members up to gpus are valid. Returns NULL after a
 * failure. fails: ERR_NOT_FOUND; ERR_CORRUPT if the record is too short or of another ABI;
 * ERR_TOO_LARGE if it is longer than struct gang_start; else as file_read. */
struct gang_start *gang_start_read(const char *path, bool *whole, struct err *e);

/* Write and read DIR/oom_kills. gang_kills_read returns -1 if the count is not known. */
int gang_kills_write(const char *dir, int64_t kills, struct err *e);
int64_t gang_kills_read(const char *dir);
/* Write and read DIR/cpus. gang_cpus_read returns false if there is no such file for n ranks. Then
 * no rank is bound. */
int gang_cpus_write(const char *dir, const cpu_set_t *cpus, int n, struct err *e);
bool gang_cpus_read(const char *dir, cpu_set_t *cpus, int n);

#endif
