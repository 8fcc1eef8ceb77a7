/* jobs.c: makes jobs, answers queries about a job, and keeps the table of jobs. */
#include "daemon/state/jobs.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/job.h"
#include "daemon/state/attempt.h"
#include "daemon/state/serve_counts.h"

/* ---- one job --------------------------------------------------------------------------------- */

static size_t spec_size(const struct job_spec *s)
{
    return offsetof(struct job_spec, text) + s->text_used;
}

int64_t job_size(const struct job *j)
{
    return (int64_t)(sizeof *j + spec_size(job_spec(j)) + (j->plan ? strlen(j->plan) : 0));
}

struct job *job_create(int64_t id, const struct job_spec *spec)
{
    struct job *j = calloc(1, sizeof *j);
    if (!j) return NULL;
    j->spec = malloc(spec_size(spec));
    j->need = calloc(1, sizeof *j->need);
    if (!j->spec || !j->need) {
        job_destroy(j);
        return NULL;
    }
    memcpy(j->spec, spec, spec_size(spec));
    job_set_facts(j);
    job_set_need(j, j->need);
    j->reason_code = j->reason = "";
    j->id = id;
    j->err_rank = -1;
    j->steps = spec->kind == JOB_TRAIN ? spec->train.steps : 0;
    if (spec->kind == JOB_SERVE && !(j->serving = calloc(1, sizeof *j->serving))) {
        job_destroy(j);
        return NULL;
    }
    return j;
}

void job_destroy(struct job *j)
{
    if (!j) return;
    free(j->spec);
    free(j->packed);
    free(j->need);
    free(j->failure);
    free(j->places);
    free(j->away_ms);
    free(j->gpus);
    free(j->left);
    farthest_fini(&j->farthest);
    free(j->result);
    free(j->plan);
    free(j->metrics);
    free(j->stored);
    free(j->serving);
    free(j->after);
    job_reason_drop(j->shared_reason);
    free(j);
}

void job_spec_copy(const struct job *j, struct job_spec *out)
{
    size_t n = spec_size(job_spec(j));
    memcpy(out, j->spec, n);
    memset((char *)out + n, 0, sizeof *out - n);
}

void job_set_spec(struct job *j, const struct job_spec *spec)
{
    struct job_spec *copy = malloc(spec_size(spec));
    if (!copy) abort();
    memcpy(copy, spec, spec_size(spec));
    free(j->spec);
    free(j->packed);
    j->packed = NULL;
    j->spec = copy;
    job_set_facts(j);
}

void job_set_plan(struct job *j, char *json)
{
    free(j->plan);
    j->plan = json;
    struct need n;
    need_read(&n, json ? json : "{}",
              &(struct need_of){job_takes_gpus(j), job_spec(j)->parallel.pp, j->is.ring});
    job_set_need(j, &n);
}

void job_set_need(struct job *j, const struct need *n)
{
    const size_t n_stages = n->n_stages > 1 ? (size_t)n->n_stages : 0;
    const size_t size = offsetof(struct need, stage) + n_stages * sizeof *n->stage;
    struct need *copy = malloc(size);
    if (!copy) abort();
    memcpy(copy, n, size);
    free(j->need);
    j->need = copy;
}

const struct err *job_err(const struct job *j)
{
    static const struct err none;
    return j->failure ? j->failure : &none;
}

void job_set_err(struct job *j, const struct err *e)
{
    if (!e->code) {
        free(j->failure);
        j->failure = NULL;
        return;
    }
    if (!j->failure && !(j->failure = malloc(sizeof *j->failure))) abort();
    *j->failure = *e;
}

struct job_reason *job_reason_create(const char *code, const char *text)
{
    const size_t n = strnlen(text, JOB_REASON_SIZE - 1);
    struct job_reason *r = malloc(sizeof *r + n + 1);
    if (!r) abort();
    r->n_users = 1;
    snprintf(r->code, sizeof r->code, "%s", code);
    memcpy(r->text, text, n);
    r->text[n] = 0;
    return r;
}

void job_reason_drop(struct job_reason *r)
{
    if (r && !--r->n_users) free(r);
}

void job_reason_set(struct job *j, struct job_reason *r)
{
    if (r) r->n_users++;
    job_reason_drop(j->shared_reason);
    j->shared_reason = r;
    j->reason_code = r ? r->code : "";
    j->reason = r ? r->text : "";
}

bool job_takes_gpus(const struct job *j)
{
    return j->is.takes_gpus;
}

bool job_placed(const struct job *j)
{
    return j->state == JOB_STARTING || j->state == JOB_RUNNING || j->state == JOB_STOPPING;
}

int job_gpu_rank(const struct job *j, const char *node, const char *uuid)
{
    return job_placed(j) ? job_gpu_given(j, node, uuid) : -1;
}

int job_gpu_given(const struct job *j, const char *node, const char *uuid)
{
    for (int i = 0; i < j->n_places && j->gpus; i++) {
        const struct job_place *p = &j->places[i];
        if (strcmp(p->node, node)) continue;
        for (int r = p->first_rank; r < p->first_rank + p->n_ranks; r++)
            if (!strcmp(j->gpus[r], uuid)) return r;
    }
    return -1;
}

bool job_needs_data(const struct job *j)
{
    return !j->is.no_data && !*j->prepared_id;
}

int32_t job_slots(const struct job *j, const char *node)
{
    int32_t n = 0;
    if (!job_placed(j) || j->task != TASK_RUN || j->gpus) return 0;
    for (int i = 0; i < j->n_places; i++)
        if (!node || !strcmp(j->places[i].node, node)) n += j->places[i].n_ranks;
    return n;
}

int64_t job_memory(const struct job *j, const struct job_place *p)
{
    return j->task == TASK_RUN ? need_of(j->need, p->first_rank, p->n_ranks) : NEED_ERRAND;
}

int job_away(const struct job *j)
{
    int first = -1;
    for (int i = 0; i < j->n_places; i++)
        if (j->away_ms[i] && (first < 0 || j->away_ms[i] < j->away_ms[first])) first = i;
    return first;
}

bool job_away_on(const struct job *j, const char *node)
{
    for (int i = 0; i < j->n_places; i++)
        if (j->away_ms[i] && !strcmp(j->places[i].node, node)) return true;
    return false;
}

const char *job_phase(const struct job *j)
{
    if (j->state == JOB_STARTING && j->task == TASK_PREPARE) return "preparing";
    if (j->state == JOB_STOPPING && j->saving) return "saving";
    if (j->state == JOB_RUNNING && j->progress.unit == PROGRESS_SAMPLES &&
        j->progress.done < j->progress.total)
        return "reference";
    return job_state_name(j->state);
}

void job_set_wake(struct job *j, int64_t utc_ms, int64_t now_ms)
{
    int64_t left_ms = j->not_before_ms - utc_ms;
    if (left_ms < 0) left_ms = 0;
    if (left_ms > j->backoff_ms) left_ms = j->backoff_ms;
    j->wake_ms = now_ms + left_ms;
}

int64_t job_where(const struct job *j)
{
    if (job_spec(j)->kind != JOB_TRAIN) return (int64_t)j->progress.done;
    return j->step_epoch == j->epoch ? j->step : 0;
}

bool job_answered(const struct job *j)
{
    return job_spec(j)->kind == JOB_SERVE && j->attempt && j->attempt->answered;
}

int32_t job_failed_here(const struct job *j, const struct event *ev)
{
    return farthest_count(&j->farthest, ev);
}

bool job_gives_up(const struct job *j, int64_t at_ms)
{
    return at_ms - (j->stepped_ms ? j->stepped_ms : j->tried_ms) >= JOB_RETRY_MS;
}

/* ---- the table ------------------------------------------------------------------------------- */

int jobs_init(struct jobs *t)
{
    *t = (struct jobs){.n_buckets = 1024};
    t->bucket = calloc((size_t)t->n_buckets, sizeof *t->bucket);
    return t->bucket ? 0 : -1;
}

static void destroy_one(void *arg, struct job *j)
{
    jobs_remove(arg, j);
    job_destroy(j);
}

void jobs_fini(struct jobs *t)
{
    if (t->bucket) jobs_each(t, destroy_one, t);
    free(t->bucket);
    t->bucket = NULL;
}

static struct job **slot(const struct jobs *t, int64_t id)
{
    return &t->bucket[(uint64_t)id % (uint64_t)t->n_buckets];
}

struct job *jobs_find(const struct jobs *t, int64_t id)
{
    struct job *j = *slot(t, id);
    while (j && j->id != id) j = j->next;
    return j;
}

/* Grows the table to keep the chains short. If there is no memory, the chains just become
 * longer. */
static void grow(struct jobs *t)
{
    struct jobs bigger = {
        .n_buckets = t->n_buckets * 4, .n = t->n, .placed = t->placed, .n_after = t->n_after};
    bigger.bucket = calloc((size_t)bigger.n_buckets, sizeof *bigger.bucket);
    if (!bigger.bucket) return;
    for (int i = 0; i < t->n_buckets; i++)
        for (struct job *j = t->bucket[i], *next; j; j = next) {
            next = j->next;
            struct job **at = slot(&bigger, j->id);
            j->next = *at;
            *at = j;
        }
    free(t->bucket);
    *t = bigger;
}

void jobs_add(struct jobs *t, struct job *j)
{
    if (t->n > 2 * t->n_buckets) grow(t);
    struct job **at = slot(t, j->id);
    j->next = *at;
    *at = j;
    t->n++;
    t->n_after += j->after != NULL;
    if (j->attempt || job_placed(j)) jobs_note_placed(t, j);
}

void jobs_note_placed(struct jobs *t, struct job *j)
{
    if (j->in_placed) return;
    j->in_placed = true;
    j->last_placed = NULL;
    j->next_placed = t->placed;
    if (t->placed) t->placed->last_placed = j;
    t->placed = j;
}

static void leave_placed(struct jobs *t, struct job *j)
{
    if (!j->in_placed) return;
    *(j->last_placed ? &j->last_placed->next_placed : &t->placed) = j->next_placed;
    if (j->next_placed) j->next_placed->last_placed = j->last_placed;
    j->in_placed = false;
}

void jobs_prune_placed(struct jobs *t)
{
    for (struct job *j = t->placed, *next; j; j = next) {
        next = j->next_placed;
        if (!j->attempt && !job_placed(j)) leave_placed(t, j);
    }
}

void jobs_remove(struct jobs *t, struct job *j)
{
    struct job **at = slot(t, j->id);
    while (*at && *at != j) at = &(*at)->next;
    if (!*at) return;
    *at = j->next;
    j->next = NULL;
    t->n--;
    t->n_after -= j->after != NULL;
    leave_placed(t, j);
}

void jobs_each(struct jobs *t, void (*call)(void *arg, struct job *j), void *arg)
{
    for (int i = 0; i < t->n_buckets; i++)
        for (struct job *j = t->bucket[i], *next; j; j = next) {
            next = j->next;
            call(arg, j);
        }
}

void jobs_each_some(struct jobs *t, int *at, int n_buckets, void (*call)(void *arg, struct job *j),
                    void *arg)
{
    const int n = n_buckets < t->n_buckets ? n_buckets : t->n_buckets;
    for (int i = 0; i < n; i++, ++*at) {
        if (*at >= t->n_buckets) *at = 0;
        for (struct job *j = t->bucket[*at]; j; j = j->next) call(arg, j);
    }
}

void jobs_each_placed(struct jobs *t, void (*call)(void *arg, struct job *j), void *arg)
{
    for (struct job *j = t->placed, *next; j; j = next) {
        next = j->next_placed;
        call(arg, j);
    }
}
