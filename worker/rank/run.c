/* run.c: opens data, plan, backend, memory and comm, runs the task of the job's kind, and closes
 * everything in reverse order. */
#include "worker/rank/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "api/core/assert.h"
#include "api/core/job.h"
#include "api/core/job_paths.h"
#include "api/core/job_state.h"
#include "api/core/jwrite.h"
#include "api/core/clock.h"
#include "api/core/log.h"
#include "api/core/mem.h"
#include "worker/ckpt/fence.h"
#include "worker/data/latents.h"
#include "worker/family/family.h"
#include "worker/hf/adapter.h"
#include "worker/hf/hf.h"
#include "worker/plan/adapter_facts.h"
#include "worker/plan/check.h"
#include "worker/plan/stage.h"
#include "worker/rank/feed.h"
#include "worker/rank/ports.h"
#include "worker/rank/prepared.h"
#include "worker/rank/resident.h"
#include "worker/rank/roots.h"

/* A hop may take HOP_TIMEOUT_MS, or the limit that the job sets. If a hop takes longer, the
 * transfer fails with an error of the peer. This limit is only the last resort, because
 * seqgang finds hangs much sooner by the records of last operations. */
#define SAY_US         ((int64_t)10 * 1000000)
#define HOP_TIMEOUT_MS ((int64_t)1800 * 1000)

struct task {
    enum job_kind kind;
    bool needs_data;
    int (*call)(struct run *r, struct err *e);
};

static const struct task tasks[] = {
    {JOB_TRAIN, true, task_train},        {JOB_SCORE, true, task_score},
    {JOB_GENERATE, false, task_generate}, {JOB_VERIFY, true, task_verify},
    {JOB_EMBED, true, task_embed},        {JOB_MERGE, false, task_merge},
    {JOB_SERVE, false, task_serve},
};
_Static_assert(sizeof tasks / sizeof tasks[0] == JOB_KIND_N, "every task has its kind");

static const struct task *task_of(int kind)
{
    for (size_t i = 0; i < sizeof tasks / sizeof tasks[0]; i++)
        if ((int)tasks[i].kind == kind) return &tasks[i];
    return NULL;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Computes the number of steps if the job gives its length in tokens or passes. The data must
 * have been counted before the call. After the number of steps, computes the fields that
 * depend on this number (the warmup). */
static int derive_steps(struct run *r, struct err *e)
{
    struct job_spec *s = r->spec;
    if (s->kind != JOB_TRAIN || s->train.steps > 0) return 0;
    if (s->train.tokens > 0) {
        s->train.steps = stage_steps_of_tokens(s, s->train.tokens);
    } else {
        int64_t samples[SPEC_STAGES + 1];
        if (feed_samples(r, samples, e)) return -1;
        s->train.steps = stage_steps_of_passes(s, s->train.passes, samples);
    }
    return family_check(s, e);
}

/* Describes the adapters of model.adapters that the spec does not describe. Returns 1 if there was
 * one, else 0, or -1 on an error. */
static int open_adapters(struct run *r, struct err *e)
{
    char dir[RANK_PATH_SIZE], json[SPEC_CONFIG_SIZE], field[JOB_ADAPTER_FIELD];
    struct adapter_facts facts;
    int described = 0;
    for (int i = 0; i < spec_n_adapters(r->spec); i++) {
        struct spec_adapter *a = &r->spec->model.adapters[i];
        int64_t n;
        if (a->facts) continue;
        job_adapter_field(r->spec, i, field);
        if (roots_directory(spec_text(r->spec, a->path), r->roots, r->n_roots, field, dir, e))
            return -1;
        n = adapter_describe(dir, json, sizeof json, e);
        if (n < 0 || adapter_facts_read(json, (size_t)n, &facts, e)) {
            adapter_facts_listed(field, e);
            return -1;
        }
        n = adapter_facts_write(&facts, json, sizeof json);
        if (n < 0 || spec_intern(r->spec, json, (size_t)n, &a->facts))
            return err_field(e, ERR_TOO_LARGE, field, "%s has too many modules", field);
        described = 1;
    }
    return described;
}

/* Describes the adapter of the job, if the spec does not. Returns 1 if it did, 0 if the spec
 * describes it or has no adapter, and -1 on an error. */
static int open_adapter(struct run *r, struct err *e)
{
    char dir[RANK_PATH_SIZE], json[SPEC_CONFIG_SIZE];
    struct adapter_facts facts;
    struct job_spec *s = r->spec;
    if (spec_n_adapters(s)) return open_adapters(r, e);
    if (!s->model.adapter || s->adapter.type != ADAPTER_NONE) return 0;
    if (roots_directory(spec_text(s, s->model.adapter), r->roots, r->n_roots, "model.adapter", dir,
                        e))
        return -1;
    const int64_t n = adapter_describe(dir, json, sizeof json, e);
    if (n < 0) {
        snprintf(e->field, sizeof e->field, "model.adapter");
        return -1;
    }
    return adapter_facts_read(json, (size_t)n, &facts, e) || adapter_facts_fill(s, &facts, e) ? -1
                                                                                              : 1;
}

/* Completes the model's shape. If the job has no shape yet, reads the shape from model.config.
 * If model.config is empty, reads the shape from the model directory. */
static int open_shape(struct run *r, struct err *e)
{
    char dir[RANK_PATH_SIZE];
    struct job_spec *s = r->spec;
    const char *path = spec_text(s, s->model.path);
    const int adapted = open_adapter(r, e);
    if (adapted < 0) return -1;
    if (s->model.shape.width)
        return adapted ? family_check(s, e) : family_complete(&s->model.shape, e);
    if (*s->model.config) return config_open(s, e) || family_check(s, e) ? -1 : 0;
    if (roots_model(path, r->roots, r->n_roots, dir, e)) return -1;
    if (hf_read_dir(dir, &s->model.shape, e)) return err_prefix(e, "model.path");
    return family_check(s, e);
}

static int open_data(struct run *r, const struct task *t, struct err *e)
{
    if (open_shape(r, e)) return -1;
    const bool latents = family_diffusion(&r->spec->model.shape);
    if (!t->needs_data) return 0;
    if (prepared_ensure(r, e)) return -1;
    const bool first_here = r->args->rank == r->args->first_local;
    r->data = data_open(r->args->prepared_dir, r->args->prepared_id,
                        first_here ? DATA_CHECK : DATA_TRUST, e);
    const int64_t vocab = latents ? LATENTS_VOCAB : r->spec->model.shape.vocab;
    if (!r->data || data_check_vocab(r->data, vocab, e)) return -1;
    return derive_steps(r, e);
}

static int open_plan(struct run *r, struct err *e)
{
    if (family_complete(&r->spec->model.shape, e)) return -1;
    struct plan *p = malloc(sizeof *p);
    if (!p) return err_set(e, ERR_IO, "out of memory");
    int rc = plan_make(r->spec, r->args->memory_limit, p, e);
    if (!rc) rc = plan_of_rank(r->spec, p, r->args->rank, &r->plan, e);
    free(p);
    if (rc) return -1;
    if (r->plan.n_ranks != r->args->n_ranks)
        return err_field(e, ERR_INVALID, "resources.ranks",
                         "the plan wants %d ranks and %d were started", r->plan.n_ranks,
                         r->args->n_ranks);
    return 0;
}

static void *map_pages(int64_t size, struct err *e)
{
    void *p = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p != MAP_FAILED) return p;
    err_errno(e, "map %lld bytes", (long long)size);
    return NULL;
}

/* Allocates the memory of the plan. The backend allocates the device's part, which is in the
 * device's own memory if the device has its own memory. The host's part is allocated in the
 * memory of this process. */
static int open_memory(struct run *r, struct err *e)
{
    const struct plan *p = &r->plan;
    const struct be_options o = {.device = spec_text(r->spec, r->spec->resources.device),
                                 .n_threads = p->n_threads,
                                 .any_order = !p->rank_bits && !p->row_bits,
                                 .scratch_later = true,
                                 .n_tasks = &r->head->lastop[r->args->rank].n_tasks};
    /* CUDA waits for the whole device when it loads a kernel at its first launch. A transfer under
     * way at that time would wait for a peer that waits for this rank. */
    if (r->args->n_ranks > 1) setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    r->be = be_open(&o, e);
    if (!r->be) return -1;
    assert(r->be->own_memory == p->own_memory);
    if (!(r->arena = r->be->ops->alloc(r->be, p->arena_size, e))) return -1;
    if (p->host_size && !(r->host = map_pages(p->host_size, e))) return -1;
    if (p->own_memory && p->segment_size &&
        !(r->own_segment = r->be->ops->alloc(r->be, p->segment_size, e)))
        return -1;
    be_give_scratch(r->be, (char *)r->arena + p->item[PLAN_SCRATCH].offset,
                    p->item[PLAN_SCRATCH].size);
    return 0;
}

/* Opens the memory or the file to which the job offloads. */
static int open_offload(struct run *r, struct err *e)
{
    const struct rank_args *a = r->args;
    struct offload_options o = {.plan = &r->plan,
                                .be = r->be,
                                .host = r->host,
                                .fd = -1,
                                .n_tasks = &r->head->lastop[a->rank].n_tasks};
    const char *roots[RANK_ROOTS];
    if (!plan_stores(&r->plan)) return 0;
    for (int i = 0; i < a->n_writable; i++) roots[i] = a->writable[i];
    if (!r->plan.own_memory) {
        const char *path = spec_text(r->spec, r->spec->memory.offload_dir);
        const int dir = roots_writable(path, roots, a->n_writable, OFFLOAD_FIELD, e);
        if (dir < 0) return -1;
        o.fd = offload_file(dir, r->plan.offload.disk_size, e);
        close(dir);
        if (o.fd < 0) return -1;
    }
    r->offload = offload_open(&o, e);
    return r->offload ? 0 : -1;
}

/* Returns the size of the groups of ranks in which tensors are summed and gathered. Usually a
 * group is a ring. If a ring consists of all ranks or of only one rank, a group consists of
 * the ranks that share one set of shards. */
static int block_size(const struct plan *p)
{
    return p->sp > 1 && p->sp < p->n_ranks ? p->sp : p->zero_group;
}

/* Makes the rendezvous: publishes this rank's blob and receives the blobs of all ranks. If the
 * job has only one rank, the rank sends an empty blob. */
static int open_comm(struct run *r, struct err *e)
{
    struct comm_options o = {.rank = r->args->rank,
                             .n_ranks = r->args->n_ranks,
                             .first_local = r->args->first_local,
                             .n_local = r->args->n_local,
                             .transport = (enum transport_id)r->spec->parallel.transport,
                             .address = r->args->address,
                             .key = r->args->key,
                             .tls = r->spec->parallel.tls != 0,
                             .memfd = RANK_MEMFD,
                             .be = r->be,
                             .segment = r->own_segment,
                             .segment_size = r->plan.segment_size,
                             .view_size = block_size(&r->plan),
                             .hop_timeout_ms = r->spec->limits.step_timeout_s > 0
                                                   ? r->spec->limits.step_timeout_s * 1000
                                                   : HOP_TIMEOUT_MS,
                             .silence_ms = r->spec->limits.hop_timeout_s * 1000,
                             .connect_ms = r->spec->limits.init_timeout_s * 1000};
    char blob[BLOB_SIZE];
    int size = 0, rc = -1, n = r->args->n_ranks;
    struct rank_blob *blobs = calloc((size_t)n, sizeof *blobs);
    if (!blobs) return err_set(e, ERR_IO, "out of memory for %d blobs", n);
    if (n > 1) {
        r->comm = comm_listen(&o, blob, &size, e);
        if (!r->comm) goto out;
    }
    if (link_send_blob(r->link, blob, size, e)) goto out;
    if (link_receive_blobs(r->link, blobs, n, e)) goto out;
    if (r->args->confined && ports_confine(blobs, n, e)) goto out;
    if (n > 1) {
        if (comm_connect(r->comm, blobs, n, e)) goto out;
        r->segment = comm_segment(r->comm);
        /* without comm_watch a device could wait forever for data that never arrive */
        r->be->watch = comm_watch;
        r->be->watch_arg = r->comm;
    }
    rc = 0;
out:
    free(blobs);
    return rc;
}

static int open_head(struct run *r, struct err *e)
{
    void *p = mmap(NULL, sizeof *r->head, PROT_READ | PROT_WRITE, MAP_SHARED, RANK_MEMFD, 0);
    if (p == MAP_FAILED) return err_errno(e, "map the gang's page");
    r->head = p;
    if (r->head->magic != SHM_MAGIC)
        return err_set(e, ERR_PEER, "fd %d is not the gang's shared segment", RANK_MEMFD);
    struct rank_lastop *l = &r->head->lastop[r->args->rank];
    l->layer = l->hop = l->purpose = l->peer = -1;
    return 0;
}

static void close_memory(struct run *r)
{
    const struct plan *p = &r->plan;
    offload_close(r->offload);
    if (r->host) munmap(r->host, (size_t)p->host_size);
    if (r->own_segment) r->be->ops->free(r->be, r->own_segment, p->segment_size);
    if (r->arena) r->be->ops->free(r->be, r->arena, p->arena_size);
    be_close(r->be);
}

/* Logs the counts of a device that has CUDA's graphs. */
static void tell_graphs(const struct be_graphs *g)
{
    if (!g) return;
    log_debug("rank.graphs", "ops=%lld by_graph=%lld made=%lld", (long long)g->n_ops,
              (long long)g->n_by_graph, (long long)g->n_made);
    if (*g->why_off) log_warn("rank.graphs", "off=\"%s\"", g->why_off);
}

static void run_close(struct run *r)
{
    publish_close(&r->publish);
    if (r->be) tell_graphs(r->be->graphs);
    if (r->head) munmap(r->head, sizeof *r->head);
    if (r->be) r->be->watch = NULL;
    comm_close(r->comm);
    close_memory(r);
    data_close(r->data);
}

/* Sends the progress. Ignores an error, because link_stopped notices that a socket was closed. */
static void tell_progress(void *run, const struct rank_progress *now)
{
    struct run *r = run;
    link_send_progress(r->link, now, NULL);
    run_say(r, now, "");
}

void run_say(struct run *r, const struct rank_progress *now, const char *more)
{
    const int64_t us = clock_us();
    const int percent = now->total > 0 ? (int)(100 * now->done / now->total) : 0;
    if (r->said_us && percent == r->said_percent && us - r->said_us < SAY_US) return;
    r->said_us = us;
    r->said_percent = percent;
    log_info("rank.progress", "done=%.0f of=%.0f unit=%s percent=%d%s%s", now->done, now->total,
             progress_unit_name(now->unit), percent, *more ? " " : "", more);
}

/* Opens the output directory. This is done before the work, because otherwise the work would
 * be lost if the directory cannot be used. */
static int open_output(struct run *r, struct err *e)
{
    const struct rank_args *a = r->args;
    const char *roots[RANK_ROOTS];
    char owner[96];
    if (!run_first(r)) return 0;
    for (int i = 0; i < a->n_writable; i++) roots[i] = a->writable[i];
    snprintf(owner, sizeof owner, "seqd job %lld, submitted %lld\n", (long long)a->job,
             (long long)a->submitted_s);
    return publish_open(&r->publish, spec_text(r->spec, r->spec->output.path), roots, a->n_writable,
                        owner, e);
}

/* Ends the right of earlier attempts to publish checkpoints. If the directory is not shared, the
 * node has ended the earlier attempts itself. */
static int open_fence(struct run *r, struct err *e)
{
    const bool saves = r->spec->kind == JOB_TRAIN || r->spec->kind == JOB_MERGE ||
                       r->spec->kind == JOB_GENERATE;
    return saves && r->args->shared && run_first(r)
               ? fence_raise(r->args->job_dir, r->args->epoch, e)
               : 0;
}

int run_job(struct link *k, struct link_order *o, struct err *e)
{
    struct run *r = calloc(1, sizeof *r);
    const struct task *t = task_of(o->spec.kind);
    int rc = -1;
    if (!r) return err_set(e, ERR_IO, "out of memory");
    *r = (struct run){.link = k, .args = &o->args, .spec = &o->spec, .publish = {-1}};
    for (int i = 0; i < o->args.n_roots; i++) r->roots[r->n_roots++] = o->args.roots[i];
    for (int i = 0; i < o->args.n_grants; i++) r->roots[r->n_roots++] = o->args.grants[i];
    r->progress = (struct progress){.arg = r, .every_us = PROGRESS_EVERY_US};
    if (run_first(r)) r->progress.tell = tell_progress;
    if (open_head(r, e)) goto out;
    if (o->args.task == TASK_PREPARE) {
        rc = open_shape(r, e) || task_prepare(r, e) ? -1 : 0;
        goto out;
    }
    if (!t) {
        err_field(e, ERR_INVALID, "kind", "kind %d is unknown", o->spec.kind);
        goto out;
    }
    if (open_fence(r, e) || open_output(r, e) || open_data(r, t, e) || open_plan(r, e) ||
        open_memory(r, e) || open_offload(r, e) || open_comm(r, e) || link_send_ready(k, e))
        goto out;
    log_info("rank.ready",
             "job=%lld epoch=%lld kind=%s rank=%d ranks=%d threads=%d isa=%s device=\"%s\" "
             "library=\"%s\"",
             (long long)o->args.job, (long long)o->args.epoch, spec_kind_name(o->spec.kind),
             o->args.rank, o->args.n_ranks, r->plan.n_threads, r->be->isa, r->be->name,
             r->be->library ? r->be->library->text : "");
    rc = t->call(r, e);
out:
    run_close(r);
    free(r);
    return rc;
}

/* ---- shared ---------------------------------------------------------------------------------- */

bool run_first(const struct run *r)
{
    return r->args->rank == 0;
}

bool run_stopped(void *run)
{
    struct run *r = run;
    __atomic_fetch_add(&r->head->lastop[r->args->rank].n_ops, 1, __ATOMIC_RELEASE);
    return link_stopped(r->link);
}

int run_saved(struct run *r, struct err *e)
{
    r->link->saved = true;
    return err_set(e, ERR_ABORTED, "saved and stopped on request");
}

int run_leave(void *run, int journal, struct err *e)
{
    struct run *r = run;
    if (!run_first(r) || !link_saving(r->link)) return 0;
    if (journal >= 0 && fdatasync(journal)) return err_errno(e, "sync the journal");
    return run_saved(r, e);
}

void run_model_options(struct run *r, struct model_options *o)
{
    *o = (struct model_options){.shape = &r->spec->model.shape,
                                .plan = &r->plan,
                                .arena = r->arena,
                                .host = r->host,
                                .offload = r->offload,
                                .segment = r->segment,
                                .be = r->be,
                                .comm = r->comm,
                                .rank = r->args->rank,
                                .n_ranks = r->args->n_ranks};
}

int run_send_artifact(struct run *r, const struct artifact_done *a, struct err *e)
{
    char json[512];
    struct jwrite w;
    char path[FILE_PATH_SIZE];
    if (file_join(path, e, "%s/artifacts/%s", r->args->job_dir, a->name) ||
        publish_file(&r->publish, path, a->name, e))
        return -1;
    jwrite_init(&w, json, sizeof json);
    jwrite_object(&w, NULL);
    jwrite_str(&w, "name", a->name);
    jwrite_int(&w, "size", a->size);
    jwrite_str(&w, "sha256", a->sha256);
    jwrite_end(&w);
    int64_t n = jwrite_finish(&w);
    assert(n > 0);
    return link_send_event(r->link, EV_ARTIFACT, 0, json, e);
}

/* Writes the number of bytes that offloading has moved in the last step. In a proof, writes
 * the number of bytes that offloading has moved on all ranks in the proof's pass. */
static void write_offload(struct jwrite *w, const struct run *r)
{
    if (!r->offload) return;
    const struct offload_count c = offload_counted(r->offload);
    jwrite_object(w, "offload");
    jwrite_int(w, "bytes_out", c.bytes_out);
    jwrite_int(w, "bytes_in", c.bytes_in);
    jwrite_end(w);
}

void run_write_memory(struct jwrite *w, const struct run *r, int64_t high, int64_t host_high)
{
    struct resident res;
    const bool shared = r->comm && !r->plan.own_memory;
    resident_read(shared ? r->segment : NULL, r->plan.segment_size, &res);
    jwrite_object(w, "memory");
    jwrite_int(w, "planned", r->plan.arena_size + r->plan.segment_size);
    jwrite_int(w, "high", high);
    if (r->plan.own_memory) {
        jwrite_int(w, "host_planned", r->plan.host_size);
        jwrite_int(w, "host_high", host_high);
    }
    if (r->plan.offload.disk_size) jwrite_int(w, "disk_planned", r->plan.offload.disk_size);
    jwrite_int(w, "peak_rss", res.peak);
    jwrite_object(w, "resident");
    jwrite_int(w, "own", res.own);
    jwrite_int(w, "other_ranks", res.other_ranks);
    jwrite_int(w, "files", res.files);
    jwrite_end(w);
    jwrite_end(w);
}

void run_write_account(struct jwrite *w, const struct run *r, bool ledger_equal,
                       const struct model *m)
{
    jwrite_str(w, "ledger", ledger_equal ? "equal" : "differs");
    run_write_memory(w, r, m->placed_size, mem_round(m->host_end, PLAN_PAGE));
    write_offload(w, r);
}
