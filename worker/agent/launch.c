/* Makes a start record from an ASSIGN and starts a gang. This file keeps no state between two
 * calls. The caller keeps the list of attempts. Once the start record is written, the
 * attempt's key is overwritten in memory. All code here runs on the loop thread. */
#include "worker/agent/launch.h"

#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "api/core/assert.h"
#include "api/core/file.h"
#include "api/core/gang_start.h"
#include "api/core/log.h"
#include "api/core/sandbox.h"
#include "worker/agent/attempt.h"
#include "worker/agent/cores.h"
#include "worker/agent/gpus.h"
#include "worker/agent/grants.h"
#include "worker/agent/state_dir.h"

/* RANK_BESIDE: bytes of a rank beside its plan. BESIDE_SERVE: bytes of requests of a job that
 * serves, in its rank 0 and in seqgang. The others are processes and threads: GANG_PIDS for the
 * gang, and RANK_PIDS for each rank, beside twice the threads that compute. */
enum {
    RANK_BESIDE = 64 << 20,
    BESIDE_SERVE = 2 * RANK_BODIES_SIZE,
    GANG_PIDS = 64,
    RANK_PIDS = 64
};

static int grant(const struct launch *l, const struct msg *m, struct gang_start *s, struct err *e)
{
    struct grants g = {0};
    grants_take(&g, l->state_dir, m->grants, m->n_grants);
    if (grants_spec(&g, l->state_dir, &s->spec, e) < 0) return -1;
    s->n_grants = g.n;
    memcpy(s->grants, g.dir, sizeof s->grants);
    return 0;
}

/* Makes the directory of the job. In a shared directory its parents exist, unless the file system
 * is gone. */
static int make_job_dir(const struct state_dir *d, const char *path, struct err *e)
{
    if (!d->shared) return file_make_dir(path, e);
    if (!mkdir(path, 0700) || errno == EEXIST) return 0;
    const int why = errno;
    return err_set(e, ERR_IO, "the shared directory %s cannot take the job: %s", d->files,
                   strerror(why));
}

static int start_fill(const struct launch *l, const struct msg *m, struct gang_start *s,
                      struct err *e)
{
    const struct state_dir *d = l->state_dir;
    *s = (struct gang_start){.abi = RANK_ABI,
                             .task = m->task,
                             .job = m->job,
                             .epoch = m->epoch,
                             .n_ranks = m->n_ranks,
                             .first_rank = m->first_rank,
                             .n_local = m->n_local,
                             .n_roots = d->n_roots,
                             .memory_limit = m->memory_limit,
                             .submitted_s = m->submitted_s,
                             .orphan_ms = l->orphan_ms,
                             .shared = d->shared != 0,
                             .sandbox = l->sandbox};
    memcpy(s->address, l->address, sizeof s->address);
    memcpy(s->key, m->key, sizeof s->key);
    memcpy(s->roots, d->roots, sizeof s->roots);
    memcpy(s->writable, d->writable, sizeof s->writable);
    s->n_writable = d->n_writable;
    snprintf(s->state_dir, sizeof s->state_dir, "%s", d->dir);
    for (int i = 0; i < m->n_uuids; i++) memcpy(s->gpus[i], m->uuids[i], sizeof s->gpus[i]);
    memcpy(s->prepared_id, m->prepared_id, sizeof s->prepared_id);
    snprintf(s->prepared_dir, sizeof s->prepared_dir, "%s/prepared", d->files);
    snprintf(s->job_dir, sizeof s->job_dir, "%s/jobs/%lld", d->files, (long long)m->job);
    s->spec = *m->spec;
    if (grant(l, m, s, e) < 0) return -1;
    if (make_job_dir(d, s->job_dir, e)) return -1;
    if (strlen(l->rank_program) >= sizeof s->seqrank)
        return err_set(e, ERR_TOO_LARGE, "the path %s is too long", l->rank_program);
    memcpy(s->seqrank, l->rank_program, strlen(l->rank_program) + 1);
    return 0;
}

/* Binds ranks that compute on the CPU to cores that no other attempt uses. If the final record
 * of an attempt was sent to seqd, its cores are free, although its gang may live a moment
 * longer. A rank with peers on other nodes has one more thread, which sends and receives. */
static bool bind(const struct launch *l, const struct gang_start *s, cpu_set_t cpus[JOB_MAX_RANKS])
{
    cpu_set_t used;
    CPU_ZERO(&used);
    for (const struct attempt *t = l->attempts; t; t = t->next)
        if (t->state != ATTEMPT_OVER && !t->final_sent) CPU_OR(&used, &used, &t->cpus);
    return s->task == TASK_RUN && !*s->gpus[0] &&
           pins_choose(l->pins, &used, s->n_local,
                       s->spec.resources.threads + (s->n_local < s->n_ranks), cpus);
}

/* The plan does not know the memory that sanitizers take. */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

/* Tells whether this node has the data of the attempt, or the attempt needs none. Otherwise its
 * ranks prepare the data first, for which no plan has the memory. */
static bool has_prepared(const struct launch *l, const struct gang_start *s)
{
    char path[FILE_PATH_SIZE];
    struct err e;
    return !*s->prepared_id || !state_dir_prepared(l->state_dir, s->prepared_id, path, &e);
}

/* Returns the limits of an attempt: the bytes that its plan holds here, with room for libraries,
 * stacks and tables, which no plan has. A job that serves has its requests in memory, too. A
 * preparation has no plan, and on a GPU the driver's memory and threads cannot be told. */
static struct cgroup_limits limits(const struct launch *l, const struct msg *m,
                                   const struct gang_start *s)
{
    struct cgroup_limits most = {0};
    const bool on_cpu = !strcmp(spec_text(&s->spec, s->spec.resources.device), "cpu");
    if (l->sandbox == SANDBOX_OFF || (s->task == TASK_RUN && !on_cpu)) return most;
    if (s->task == TASK_RUN && m->held > 0 && !SANITIZED && has_prepared(l, s))
        most.memory = m->held + m->held / 20 + m->n_local * RANK_BESIDE;
    if (most.memory && s->spec.kind == JOB_SERVE) most.memory += BESIDE_SERVE;
    most.pids = GANG_PIDS + m->n_local * (int64_t)(RANK_PIDS + 2 * s->spec.resources.threads);
    return most;
}

struct attempt *launch_attempt(const struct launch *l, const struct msg *m, struct err *e)
{
    cpu_set_t cpus[JOB_MAX_RANKS];
    char on[128];
    char dir[FILE_PATH_SIZE];
    struct gang_start *start = calloc(1, sizeof *start);
    struct attempt *t = NULL;
    assert(start);
    const bool named = state_dir_gang_dir(l->state_dir, m->job, m->epoch, dir) == 0;
    if (!named) err_set(e, ERR_TOO_LARGE, "--state %.80s... is too long: shorten it", dir);
    if (named && start_fill(l, m, start, e) == 0 &&
        state_dir_epoch_set(l->state_dir, m->job, m->epoch, e) == 0)
        t = attempt_begin(l->loop, dir, start,
                          &(struct attempt_options){bind(l, start, cpus) ? cpus : NULL,
                                                    limits(l, m, start), l->gang_program},
                          e);
    explicit_bzero(start->key, sizeof start->key);
    free(start);
    if (!t) {
        if (named) file_remove(dir, NULL);
        return NULL;
    }
    cores_print(&t->cpus, on, sizeof on);
    log_info("attempt.begin", "job=%lld epoch=%lld ranks=%d cpus=%s", (long long)m->job,
             (long long)m->epoch, m->n_local, *on ? on : "any");
    return t;
}

int launch_unfit_rank(const struct launch *l, const struct msg *m, struct err *e)
{
    struct gpu list[GPU_MAX];
    const int n = gpus_get(l->gpus, list);
    for (int i = 0; i < m->n_uuids; i++) {
        char why[160] = "this node does not have it";
        const int k = gpu_find(list, n, m->uuids[i]);
        if (k >= 0 && list[k].health == GPU_OK) continue;
        if (k >= 0) gpu_complaint(&list[k], why, sizeof why);
        err_set(e, ERR_DEVICE, "GPU %s of rank %d on node %s: %s", m->uuids[i], m->first_rank + i,
                l->node, why);
        return m->first_rank + i;
    }
    return -1;
}
