/* truth.c: the acts of gangs and their live processes. The checker compares seqd's state with
 * them, and the simulated system calls of the agent read them. */
#include <signal.h>
#include <sys/types.h>
#include "api/core/process.h"
#include "tests/sim/gang.h"

static struct {
    int64_t job, epoch;
    int type;
} said[NONCES];
static int64_t n_said;
struct gang_truth truth[SIM_JOBS + 1];

void truth_reset(void)
{
    n_said = 0;
    memset(truth, 0, sizeof truth);
}

bool gang_has_ranks(const struct gang *g)
{
    return (g->alive && g->stage < ENDED) || g->linger_ms > sim_now;
}

/* ---- the truth ------------------------------------------------------------------------------- */

bool gang_said(int64_t nonce, int64_t job, int64_t epoch, int type)
{
    return nonce > 0 && nonce < n_said + 1 && said[nonce].job == job &&
           said[nonce].epoch == epoch && said[nonce].type == type;
}

int64_t gang_next_said(int64_t nonce, int64_t job, int64_t epoch)
{
    while (++nonce <= n_said)
        if (said[nonce].job == job && said[nonce].epoch == epoch) return nonce;
    return 0;
}

int64_t truth_say(const struct gang *g, int type)
{
    if (n_said + 1 == NONCES) abort();
    said[++n_said].job = g->job;
    said[n_said].epoch = g->epoch;
    said[n_said].type = type;
    return n_said;
}

bool gang_done(int64_t job, int64_t epoch)
{
    int n = 0, want = 0;
    for (int i = 0; i < n_gangs; i++) {
        const struct gang *g = &gangs[i];
        if (g->job != job || g->epoch != epoch) continue;
        want = g->n_ranks;
        if (g->done) n += g->n_local;
    }
    return want && n == want;
}

int64_t gang_log_size(int64_t job, int64_t epoch, int rank)
{
    for (int i = 0; i < n_gangs; i++) {
        const struct gang *g = &gangs[i];
        if (g->job == job && g->epoch == epoch && rank >= g->first && rank < g->first + g->n_local)
            return g->log_size[rank];
    }
    return -1;
}

int gang_faults(int64_t job)
{
    return job > 0 && job <= SIM_JOBS ? truth[job].faults : 0;
}

bool gang_part_alive(int64_t job, int64_t epoch, const char *node)
{
    for (int i = 0; i < n_active; i++) {
        const struct gang *g = &gangs[active[i]];
        if (g->job == job && g->epoch == epoch && !strcmp(node_name(g->node), node) &&
            gang_has_ranks(g))
            return true;
    }
    return false;
}

int gang_ranks(int node)
{
    int n = 0;
    for (int i = 0; i < n_active; i++) {
        const struct gang *g = &gangs[active[i]];
        if (g->node == node && g->task == TASK_RUN && !*g->gpu[0] && gang_has_ranks(g))
            n += g->n_local;
    }
    return n;
}

int64_t gang_memory(int node, int64_t of_rank(int64_t job))
{
    int64_t sum = 0;
    for (int i = 0; i < n_active; i++) {
        const struct gang *g = &gangs[active[i]];
        if (g->node == node && g->task == TASK_RUN && gang_has_ranks(g))
            sum += g->n_local * of_rank(g->job);
    }
    return sum;
}

bool gang_uses_gpu(int node, const char *uuid)
{
    for (int i = 0; i < n_active; i++) {
        const struct gang *g = &gangs[active[i]];
        for (int k = 0; k < g->n_local && k < SIM_GPUS && g->node == node && gang_has_ranks(g); k++)
            if (!strcmp(g->gpu[k], uuid)) return true;
    }
    return false;
}

int gangs_alive(void)
{
    int n = 0;
    for (int i = 0; i < n_active; i++) n += gangs[active[i]].alive;
    return n;
}

/* ---- the agent's calls to the system --------------------------------------------------------- */

pid_t __wrap_waitpid(pid_t pid, int *status, int flags);
int __wrap_kill(pid_t pid, int signo);

pid_t __wrap_waitpid(pid_t pid, int *status, int flags)
{
    for (int i = 0; i < n_gangs; i++) {
        struct gang *g = &gangs[i];
        if (g->pid != pid || g->alive || g->reaped) continue;
        g->reaped = true;
        if (status) *status = 0;
        return pid;
    }
    return 0;
}

/* Finds the gang of a rank. The pid of a rank is FIRST_PID + 100 * gang + 1 + its index in the
 * gang. */
static struct gang *gang_of_rank(int pid)
{
    const int i = (pid - FIRST_PID) / 100;
    return pid > FIRST_PID && i < n_gangs ? &gangs[i] : NULL;
}

int __wrap_kill(pid_t pid, int signo)
{
    struct gang *g = gang_of_rank(pid);
    if (g && signo == SIGKILL) g->linger_ms = 0;
    return 0;
}

/* The simulator's seqd has no requests of clients. */
void process_hide(void)
{
}

int64_t process_switches(int pid)
{
    (void)pid;
    return 0;
}

int process_stat(int pid, struct process_stat *out)
{
    return -1;
}

int process_alive(int pid, int64_t start_time)
{
    const struct gang *g = gang_of_rank(pid);
    return g && gang_has_ranks(g);
}
