/* prepare.c: prepares a spec for a job. It resolves the spec's names, checks it, asks nodes and
 * plans.
 *
 *   text -> json_spec_read -> names_resolve, refs_resolve -> [what checkpoint.resume was made with]
 *        -> [DESCRIBE to a node, for model.adapter] -> family_check
 *        -> [DESCRIBE to a node, for model.path -> family_check]
 *        -> [DESCRIBE to nodes, for files of data]
 *        -> planner's thread: prepare_plan -> the loop again */
#include "daemon/http/prepare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/device.h"
#include "api/core/job_paths.h"
#include "api/core/jwrite.h"
#include "daemon/spec/json.h"
#include "daemon/state/doc.h"
#include "daemon/state/gpus.h"
#include "daemon/state/memory.h"
#include "daemon/upload/uploads.h"
#include "worker/family/config.h"
#include "worker/family/family.h"
#include "worker/family/shape.h"
#include "worker/plan/check.h"
#include "worker/plan/choice.h"
#include "worker/plan/place.h"

static void finish(struct preparing *p, int status, const struct err *e)
{
    p->done(p->arg, status, e);
}

const char *prepare_shown(const struct preparing *p, const struct err *e)
{
    return e->code == ERR_DOES_NOT_FIT && *p->plan ? p->plan : NULL;
}

/* ---- planning -------------------------------------------------------------------------------- */

/* Returns the node with the largest memory, or NULL if no node is up. Jobs are planned for this
 * node. */
static const struct node *largest_node(const struct preparing *p)
{
    const struct nodes *t = control_nodes(p->R->control);
    const struct node *largest = NULL;
    for (int i = 0; i < t->n; i++)
        if (t->node[i].up && (!largest || t->node[i].memory_size > largest->memory_size))
            largest = &t->node[i];
    return largest;
}

static bool on_gpus(const struct preparing *p)
{
    return device_find(spec_text(&p->spec, p->spec.resources.device))->is_gpu;
}

/* Describes the GPUs to the planner. Each rank has a GPU of its own, and can use at most that
 * GPU's memory. The speed of the GPUs is not known. */
static void find_gpus(struct preparing *p, struct machine *m)
{
    struct gpus_offer o;
    int64_t *mib = &p->spec.resources.memory_mib;
    gpus_offer(control_nodes(p->R->control), p->spec.resources.ranks, &o);
    m->memory = gpus_limit(&o);
    m->ranks_per_node = o.per_node;
    if (o.memory_size && (!*mib || *mib > m->memory >> 20)) *mib = m->memory >> 20;
}

/* Adds the memory of the cluster's GPUs to the text of ERR_DOES_NOT_FIT. */
static void say_gpu(const struct preparing *p, struct err *e)
{
    struct gpus_offer o;
    const size_t n = strlen(e->text);
    gpus_offer(control_nodes(p->R->control), p->spec.resources.ranks, &o);
    if (e->code != ERR_DOES_NOT_FIT || !o.memory_size || p->hardware.given || !on_gpus(p)) return;
    snprintf(e->text + n, sizeof e->text - n,
             "; the smallest of the %d largest GPUs here, %s on node %s, has %lld MiB, of which "
             "%lld are CUDA's own",
             p->spec.resources.ranks, o.gpu, o.node, (long long)(o.memory_size >> 20),
             (long long)(GPU_RESERVE >> 20));
}

/* Finds the machine on which the ranks would run. If the job does not set the memory of a rank, a
 * rank gets its share of the largest node's memory. The share is stored in the spec, so that each
 * rank later makes the same plan as seqd. */
static void find_machine(struct preparing *p, struct machine *m)
{
    const struct node *n = largest_node(p);
    int64_t *mib = &p->spec.resources.memory_mib;
    if (p->hardware.given) {
        machine_of_hardware(&p->hardware, m);
        if (!*mib || *mib > m->memory >> 20) *mib = m->memory >> 20;
        return;
    }
    *m = (struct machine){0};
    if (on_gpus(p)) {
        find_gpus(p, m);
        return;
    }
    if (n) machine_of_profile(&n->profile, n->n_cores, m);
    if (n && !*mib) *mib = (n->memory_size >> 20) / p->spec.resources.ranks;
}

/* Counts the devices on which a job of more ranks could run: slots or GPUs of the nodes that have
 * joined, of the largest of them if the ranks must be on one node. Returns 0 if no node has
 * joined. */
static int count_devices(const struct preparing *p)
{
    const struct nodes *t = control_nodes(p->R->control);
    const bool one = p->spec.parallel.transport == TRANSPORT_SHM, gpus = on_gpus(p);
    int n = 0;
    if (p->hardware.given) return p->hardware.devices;
    for (int i = 0; i < t->n; i++) {
        const int own = !t->node[i].joined ? 0 : gpus ? t->node[i].n_gpus : t->node[i].n_slots;
        if (!one)
            n += own;
        else if (own > n)
            n = own;
    }
    return n;
}

/* Tells whether the cluster has a node that is older than the field at path. For a node that is
 * down but not lost, the version that it last spoke counts. */
static bool older_node(const struct preparing *p, const char *path)
{
    const struct nodes *t = control_nodes(p->R->control);
    const uint32_t since = spec_field(path)->since;
    for (int i = 0; i < t->n; i++)
        if (t->node[i].joined && !t->node[i].lost && t->node[i].abi < since) return true;
    return false;
}

/* Tells whether the cluster may have a node whose version is not known. This is true if no node is
 * up. It is also true while a node that was up before seqd's restart may connect again. */
static bool unknown_node(const struct preparing *p)
{
    const struct nodes *t = control_nodes(p->R->control);
    for (int i = 0; i < t->n; i++)
        if (!t->node[i].joined && !t->node[i].lost) return true;
    return !largest_node(p);
}

/* If the cluster has a node of an older version, restricts "auto" to choices that such a node can
 * run. "auto" then does not divide the model (pp, tp), does not group ranks (parallel.ulysses,
 * zero_group), and does not answer several prompts at the same time (infer.batch). A value that
 * the job sets is not changed. If the version of a node is unknown, "auto" only avoids answering
 * several prompts at the same time. A job may need a divided model to fit into memory, but no job
 * needs several prompts. */
static void keep_to_nodes(struct preparing *p)
{
    p->older = false;
    if (p->hardware.given) return;
    if (older_node(p, "parallel.pp")) {
        if (!p->asked.parallel.pp) p->asked.parallel.pp = 1;
        if (!p->asked.parallel.tp) p->asked.parallel.tp = 1;
    }
    p->older = older_node(p, "parallel.zero_group");
    if ((older_node(p, "infer.batch") || unknown_node(p)) && !p->spec.infer.batch)
        p->spec.infer.batch = p->asked.infer.batch = 1;
}

static void on_planned(void *arg, bool dropped)
{
    struct preparing *p = arg;
    if (dropped) {
        p->bad = err_set(&p->why, ERR_PEER, "seqd is stopping: send it again");
        p->plan[0] = 0;
    }
    if (!p->bad && p->goal != PREPARE_PLAN)
        p->bad = memory_refuse(control_nodes(p->R->control), &p->spec, p->plan, &p->why);
    if (p->bad) say_gpu(p, &p->why);
    finish(p, 0, p->bad ? &p->why : NULL);
}

static void make_plan(struct preparing *p)
{
    struct err *e = &p->why;
    *e = (struct err){0};
    p->plan[0] = 0;
    find_machine(p, &p->machine);
    p->limits = (struct plan_limits){p->spec.resources.memory_mib << 20, count_devices(p)};
    keep_to_nodes(p);
    p->task = (struct errand){.work = prepare_plan,
                              .done = on_planned,
                              .arg = p,
                              .line = p->who.user,
                              .later = p->goal != PREPARE_SUBMIT};
    int bad = p->goal != PREPARE_PLAN && gpus_refuse(control_nodes(p->R->control), &p->spec, e);
    if (!bad) bad = errands_do(p->R->planner, &p->task, e);
    /* the user has too many specs that wait */
    if (bad) finish(p, e->code == ERR_TOO_LARGE ? 429 : 0, e);
}

/* ---- data on a node -------------------------------------------------------------------------- */

static void on_sources(void *arg, const struct err *e)
{
    if (e)
        finish(arg, 0, e);
    else
        make_plan(arg);
}

static void find_sources(struct preparing *p)
{
    struct err e;
    if (adapters_check(&p->adapters, &e)) {
        finish(p, 0, &e);
        return;
    }
    if (p->hardware.given) { /* the data of a plan for other hardware need not exist here */
        make_plan(p);
        return;
    }
    p->sources.control = p->R->control;
    p->sources.grants = &p->grants;
    p->sources.done = on_sources;
    p->sources.arg = p;
    sources_find(&p->sources, &p->spec);
}

/* ---- a model on a node ----------------------------------------------------------------------- */

/* If a different job made the model, returns the node that has it, on which the job runs. Otherwise
 * returns "", which means any node. */
static const char *holder(const struct preparing *p)
{
    return job_ref_is(spec_text(&p->spec, p->spec.model.path)) ? p->source.node : "";
}

static bool is_known(const struct preparing *p, const char *path)
{
    return *p->known.path && !strcmp(p->known.path, path) && !strcmp(p->known.node, holder(p)) &&
           names_grants_same(&p->known.grants, &p->grants);
}

static void keep_known(struct preparing *p)
{
    snprintf(p->known.path, sizeof p->known.path, "%s", spec_text(&p->spec, p->spec.model.path));
    snprintf(p->known.node, sizeof p->known.node, "%s", holder(p));
    memcpy(p->known.config, p->spec.model.config, sizeof p->known.config);
    p->known.grants = p->grants;
}

static void take_config(struct preparing *p, const char *config)
{
    struct err e;
    memcpy(p->spec.model.config, config, sizeof p->spec.model.config);
    if (config_open(&p->spec, &e) || family_check(&p->spec, &e)) {
        adapters_blame(&p->adapters, &e);
        finish(p, 0, &e);
    } else {
        find_sources(p);
    }
}

static void on_described(void *arg, const struct msg *m, const struct err *e)
{
    struct preparing *p = arg;
    struct err bad;
    if (e) {
        bad = *e;
        const bool of_node = bad.code == ERR_INTERNAL || bad.code == ERR_PEER;
        if (!*bad.field && !of_node) snprintf(bad.field, sizeof bad.field, "model.path");
        finish(p, bad.code == ERR_NOT_FOUND || bad.code == ERR_CORRUPT ? 400 : 0, &bad);
        return;
    }
    if (!doc_is_json(m->config)) {
        err_set(&bad, ERR_INTERNAL,
                "a node described the model at %.200s by what is not a JSON object",
                spec_text(&p->spec, p->spec.model.path));
        finish(p, 0, &bad);
        return;
    }
    memcpy(p->spec.model.config, m->config, sizeof p->spec.model.config);
    keep_known(p);
    take_config(p, p->known.config);
}

static void describe_or_plan(struct preparing *p)
{
    const char *path = spec_text(&p->spec, p->spec.model.path), *node = holder(p);
    struct msg m = {.type = MSG_DESCRIBE};
    struct err e;
    if (!*path) {
        find_sources(p);
        return;
    }
    if (strlen(path) >= sizeof m.path) {
        err_field(&e, ERR_INVALID, "model.path", "model.path is longer than %zu bytes",
                  sizeof m.path - 1);
        finish(p, 0, &e);
        return;
    }
    snprintf(m.path, sizeof m.path, "%s", path);
    if (is_known(p, path)) {
        take_config(p, p->known.config);
        return;
    }
    m.grants = p->grants.list;
    m.n_grants = p->grants.n;
    /* If a different job made the model, ask only the node that has it. */
    control_ask(p->R->control, *node ? node : NULL, &m, on_described, p);
}

/* ---- the first step -------------------------------------------------------------------------- */

/* If the number of ranks is not given, sets it to the number of devices. Refuses any other number
 * of ranks. */
static int take_hardware(struct preparing *p, struct err *e)
{
    int32_t *ranks = &p->spec.resources.ranks;
    if (!p->hardware.given) return 0;
    if (!*ranks) *ranks = p->hardware.devices;
    if (*ranks == p->hardware.devices) return 0;
    return err_field(e, ERR_INVALID, "hardware.devices",
                     "hardware.devices %d is not resources.ranks %d: a device is a rank, leave one "
                     "of them out",
                     p->hardware.devices, *ranks);
}

/* Reads the spec and checks it as far as possible without a node. */
static int read_text(struct preparing *p, const char *text, size_t size, struct err *e)
{
    const struct names_of names = {p->R->uploads, p->R->state_dir};
    int bad = p->goal == PREPARE_PLAN ? json_plan_read(text, size, &p->spec, &p->hardware, e)
                                      : json_spec_read(text, size, JSON_FOR_PEOPLE, &p->spec, e);
    return bad || take_hardware(p, e) || names_resolve(&p->spec, &names, &p->who, e) ? -1 : 0;
}

static void on_adapter(void *arg, int status, const struct err *why)
{
    struct preparing *p = arg;
    struct err e;
    if (why) {
        finish(p, status, why);
        return;
    }
    p->asked = p->spec;
    if (family_check(&p->spec, &e)) {
        adapters_blame(&p->adapters, &e);
        finish(p, 0, &e);
    } else {
        describe_or_plan(p);
    }
}

static void find_adapter(struct preparing *p)
{
    struct adapters *a = &p->adapters;
    names_grants(&p->spec, p->R->uploads ? uploads_files(p->R->uploads) : NULL, &p->grants);
    a->control = p->R->control;
    a->grants = &p->grants;
    a->node = p->source.adapter_node;
    a->elsewhere = p->hardware.given;
    a->done = on_adapter;
    a->arg = p;
    adapters_find(a, &p->spec);
}

/* Reads the model from the spec of the job that made the checkpoint. If this version cannot read
 * that spec, the node compares the models instead. */
static void on_made(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct preparing *p = arg;
    struct job_spec *s = malloc(sizeof *s);
    struct err e;
    if (!s) abort();
    if (failed) {
        finish(p, 0, failed);
    } else {
        const char *text = rows->n_rows ? rows->row[0].text[1] : "";
        p->resumes = !json_spec_read(text, strlen(text), JSON_STORED, s, &e) &&
                     !family_check(s, &e);
        if (p->resumes) p->made = s->model.shape;
        find_adapter(p);
    }
    free(s);
}

static void on_refs(void *arg, const struct refs_found *found, const struct err *why)
{
    struct preparing *p = arg;
    struct job_ref from;
    if (why) {
        finish(p, 0, why);
        return;
    }
    p->source = *found;
    const char *resume = spec_text(&p->spec, p->spec.checkpoint.resume_path);
    if (p->spec.kind == JOB_TRAIN && p->spec.checkpoint.resume == RESUME_PATH &&
        job_ref_is(resume) && !job_ref_read(resume, "checkpoint.resume", &from, NULL))
        store_read(control_store(p->R->control), ASK_JOB, (const int64_t[4]){from.job}, NULL,
                   on_made, p);
    else
        find_adapter(p);
}

/* ---- the jobs of `after` --------------------------------------------------------------------- */

/* Tells whether the user may name the job: it is there, and it is the user's or the user sees all.
 */
static bool may_name(const struct preparing *p, const struct store_rows *rows, int64_t id)
{
    for (int i = 0; i < rows->n_rows; i++)
        if (rows->row[i].n[0] == id)
            return rows->row[i].n[1] < STORE_GONE && principal_owns(&p->who, rows->row[i].text[0]);
    return false;
}

static void on_after(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct preparing *p = arg;
    struct err e;
    if (failed) {
        finish(p, 0, failed);
        return;
    }
    for (int i = 0; i < p->spec.n_after; i++) {
        const struct spec_after *a = &p->spec.after[i];
        const char *field = a->any ? "after_any" : "after";
        if (may_name(p, rows, a->job)) continue;
        err_field(&e, ERR_INVALID, field,
                  "%s: there is no job %lld, or it was removed: seqctl ls lists yours", field,
                  (long long)a->job);
        finish(p, 0, &e);
        return;
    }
    refs_resolve(p->R, &p->spec, &p->who, on_refs, p);
}

static void check_after(struct preparing *p)
{
    char list[SPEC_AFTER * 21 + 2] = "[";
    int at = 1;
    for (int i = 0; i < p->spec.n_after; i++)
        at += snprintf(list + at, sizeof list - (size_t)at, "%s%lld", i ? "," : "",
                       (long long)p->spec.after[i].job);
    snprintf(list + at, sizeof list - (size_t)at, "]");
    store_read(control_store(p->R->control), ASK_STATES, (const int64_t[4]){0}, list, on_after, p);
}

void prepare(struct preparing *p, const char *text, size_t size, prepare_done *done, void *arg)
{
    struct err e;
    p->done = done;
    p->arg = arg;
    p->plan[0] = 0;
    p->source = (struct refs_found){0};
    p->resumes = false;
    if (read_text(p, text, size, &e))
        finish(p, 0, &e);
    else if (p->spec.n_after)
        check_after(p);
    else
        refs_resolve(p->R, &p->spec, &p->who, on_refs, p);
}
