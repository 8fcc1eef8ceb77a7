/* gang.h: a gang and its ranks. gang.c makes them act, and truth.c answers queries about them. */
#ifndef SEQD_TESTS_SIM_GANG_H
#define SEQD_TESTS_SIM_GANG_H

#include "api/core/gang_start.h"
#include "api/core/spool.h"
#include "tests/sim/sim.h"

enum {
    STEPS = 10,
    NONCES = 1 << 17,
    LINGER_MS = 200, /* the longest time for which ranks run after their gang has ended */
    FIRST_PID = 5000000
};

enum fate {
    GOOD,
    EXITS,
    SEGV,
    KILLED,
    INTERNAL,
    INVALID,
    NO_SPACE,
    HANGS,
    NEVER_READY,
    DIES,
    N_FATES
};
enum stage { BORN, STARTED, WAITS_BLOBS, RUNS, ENDED };

struct gang {
    int node, pid;
    char dir[200];
    bool alive, reaped, stop, save, blobs, done, saved;
    int64_t job, epoch;
    int task, n_ranks, first, n_local;
    char gpu[SIM_GPUS][GPU_UUID_SIZE];
    enum stage stage;
    enum fate fate;
    int fate_step;
    /* stop_ms is the time by which the gang has stopped */
    int64_t next_ms, paused_ms, linger_ms, stop_ms;
    int lock_fd, listen_fd, sock_fd, steps;
    struct spool spool;
    int64_t log_size[JOB_MAX_RANKS];
};

extern struct gang gangs[SIM_GANGS];
/* active lists the gangs that may have processes */
extern int n_gangs, active[SIM_GANGS], n_active;
struct gang_truth { /* the truth about one job */
    int checkpoint[SIM_NODES], faults;
};
extern struct gang_truth truth[SIM_JOBS + 1];

void truth_reset(void);
bool gang_has_ranks(const struct gang *g);
/* returns a nonce for the gang's report, which is used only once */
int64_t truth_say(const struct gang *g, int type);

#endif
