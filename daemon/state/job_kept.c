/* job_kept.c: copies the fold of a job, and puts it back. */
#include "daemon/state/job_kept.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/job.h"
#include "daemon/state/attempt.h"

struct job_kept {
    struct job job;             /* its spec, arrays and `stored` are copies; it owns no more */
    struct attempt_part *parts; /* owns; NULL without an attempt */
};

/* Returns a copy of n elements, or NULL if there are none. */
static void *copy_of(const void *from, int n, size_t size)
{
    if (!from || n <= 0) return NULL;
    void *to = malloc((size_t)n * size);
    if (!to) abort();
    return memcpy(to, from, (size_t)n * size);
}

static int n_gpus(const struct job *j)
{
    const struct job_place *last = j->n_places ? &j->places[j->n_places - 1] : NULL;
    return last ? last->first_rank + last->n_ranks : 0;
}

struct job_kept *job_kept_take(const struct job *j)
{
    struct job_kept *k = malloc(sizeof *k);
    const struct farthest *r = &j->farthest;
    if (!k) abort();
    k->job = *j;
    k->job.spec = NULL;
    k->job.packed = NULL;
    k->job.after = NULL; /* made from the spec */
    job_set_spec(&k->job, job_spec(j));
    k->job.failure = copy_of(j->failure, 1, sizeof *j->failure);
    k->job.stored = j->stored ? copy_of(j->stored, 1, strlen(j->stored) + 1) : NULL;
    k->job.places = copy_of(j->places, j->n_places, sizeof *j->places);
    k->job.away_ms = copy_of(j->away_ms, j->n_places, sizeof *j->away_ms);
    k->job.gpus = copy_of(j->gpus, n_gpus(j), sizeof *j->gpus);
    k->job.left = copy_of(j->left, j->n_left, sizeof *j->left);
    k->job.farthest.name = copy_of(r->name, r->n_names, sizeof *r->name);
    k->job.farthest.failed = copy_of(r->failed, r->n_failed, sizeof *r->failed);
    k->parts = j->attempt ? copy_of(j->attempt->parts, j->attempt->n_parts, sizeof *k->parts)
                          : NULL;
    return k;
}

/* Frees the members of the fold that a job owns. */
static void free_fold(struct job *j)
{
    free(j->spec);
    free(j->packed);
    free(j->failure);
    free(j->stored);
    free(j->after);
    free(j->places);
    free(j->away_ms);
    free(j->gpus);
    free(j->left);
    farthest_fini(&j->farthest);
}

void job_kept_destroy(struct job_kept *k)
{
    if (!k) return;
    free_fold(&k->job);
    free(k->parts);
    free(k);
}

/* Sets the members beside the fold, which are those of the live job. */
static void keep_beside(struct job *to, const struct job *live)
{
    to->result = live->result;
    to->plan = live->plan;
    to->metrics = live->metrics;
    to->progress = live->progress;
    to->serving = live->serving;
    to->attempt = live->attempt;
    to->over_disk = live->over_disk;
    to->n_orders = live->n_orders;
    to->based_seq = live->based_seq;
    to->n_skipped = live->n_skipped;
    to->need = live->need;
    to->reason_code = live->reason_code;
    to->reason = live->reason;
    to->shared_reason = live->shared_reason;
    to->next = live->next;
    to->next_placed = live->next_placed;
    to->last_placed = live->last_placed;
    to->in_placed = live->in_placed;
}

void job_kept_put_back(struct job_kept *k, struct job *j)
{
    struct job_attempt *a = j->attempt;
    const size_t size = a && k->parts ? (size_t)a->n_parts * sizeof *k->parts : 0;
    if (size) memcpy(a->parts, k->parts, size);
    keep_beside(&k->job, j);
    free_fold(j);
    *j = k->job;
    free(k->parts);
    free(k);
}
