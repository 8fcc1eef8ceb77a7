/* training_references.c: rank 0 looks for the file of references, and sends its numbers to the
 * other ranks. If there is no file, all ranks compute the references, and rank 0 reports how many
 * samples are done, which is the phase `reference` of the job. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/file.h"
#include "api/core/job.h"
#include "api/core/log.h"
#include "worker/plan/stage.h"
#include "worker/rank/training.h"
#include "worker/train/prefer_reference.h"

enum { BEGIN_SIZE = CKPT_PATH_SIZE + 96 };

/* Writes how a new job begins with all that the checkpoint has learnt. If there is no checkpoint,
 * nothing is learnt. An adapter with modules of its own begins no training of preferences
 * (worker/plan/check_saved.c). */
static const char *how_to_begin(const struct training *t, char out[BEGIN_SIZE])
{
    const char *const dir = t->last.path;
    const struct ckpt_start s = ckpt_start_of(dir);
    char merged[CKPT_PATH_SIZE + 8];
    snprintf(merged, sizeof merged, "%s/hf", dir);
    if (!dir[0])
        snprintf(out, BEGIN_SIZE, "submit a new job");
    else if (!t->r->spec->model.shape.adapter.saves || !strcmp(s.below, "hf"))
        snprintf(out, BEGIN_SIZE, "begin from its %s: %s %s/%s", s.what, s.field, dir, s.below);
    else if (file_exists(merged))
        snprintf(out, BEGIN_SIZE, "begin from its merged model: model.path %s", merged);
    else
        snprintf(out, BEGIN_SIZE,
                 "merge %s/%s into its base and begin from the merged model, in model.path", dir,
                 s.below);
    return out;
}

/* Reads the file, on rank 0. A damaged file in the job's directory is written again. *found becomes
 * 1 if the file was read. */
static int read_file(struct training *t, int64_t *found, struct err *e)
{
    const struct references *r = &t->references;
    char begin[BEGIN_SIZE];
    struct err why = {0};
    if (!t->last.path[0]) {
        *found = references_read(t->r->args->job_dir, r, false, &why) == 1;
        if (why.code) log_warn("rank.references", "reason=\"%s\"", why.text);
        return 0;
    }
    const int rc = references_read(t->last.path, r, true, e);
    *found = rc == 1;
    if (rc) return rc < 0 ? -1 : 0;
    return err_field(e, ERR_CONFLICT, "checkpoint.resume",
                     "%s has no references of these data, which objective.type \"dpo\" computes "
                     "before its first step: %s",
                     t->last.path, how_to_begin(t, begin));
}

/* Sends the references that rank 0 has to all ranks. */
static int share(struct training *t, struct err *e)
{
    struct references *r = &t->references;
    if (!t->r->comm) return 0;
    return comm_broadcast(t->r->comm, PURPOSE_CONTROL, 0, r->x, r->n * (int64_t)sizeof *r->x,
                          t->train.model.bounce, e);
}

/* Tells whether rank 0 was asked to save. Before the first step there is nothing to save, so rank 0
 * ends the attempt at once. */
static bool is_save(struct run *r)
{
    return run_first(r) && link_saving(r->link) && !run_stopped(r);
}

static bool ends(void *arg)
{
    return run_stopped(arg) || is_save(arg);
}

/* Describes the samples of all steps of the job, or those of its evaluations. */
static struct prefer_reference samples_of(struct training *t, enum data_set set)
{
    struct run *r = t->r;
    const struct data_stats *s = data_stats(r->data);
    struct prefer_reference p = {.rank = r->args->rank,
                                 .reference = t->references.x,
                                 .progress = &r->progress,
                                 .stopped = ends,
                                 .arg = r};
    if (set == SET_EVAL) {
        p.source = &t->held;
        p.seq_len = stage_eval_seq_len(r->spec);
        p.n_drawn = t->feed.n_eval;
        p.n_different = data_order_samples(t->feed.eval);
        p.first_document = s->n_documents;
        p.n_documents = s->eval_documents;
        return p;
    }
    p.n_drawn = r->spec->train.steps * r->spec->train.global_batch;
    p.n_different = data_order_samples(t->feed.order[0]);
    p.n_documents = s->n_documents;
    return p;
}

/* Checks that the references that were found are enough for the steps or the evaluations. */
static int check_found(struct training *t, enum data_set set, struct err *e)
{
    struct prefer_reference p = samples_of(t, set);
    char begin[BEGIN_SIZE];
    const int complete = prefer_reference_init(&p, &t->train.prefer, e)
                             ? -1
                             : prefer_reference_complete(&p, e);
    prefer_reference_fini(&p);
    if (complete) return complete < 0 ? -1 : 0;
    if (set == SET_EVAL)
        return err_field(e, ERR_CONFLICT, "eval.max_tokens",
                         "eval.max_tokens draws pairs whose references were not computed before "
                         "the first step of the job that this one continues: leave "
                         "eval.max_tokens, eval.seq_len and the data as they were, or %s",
                         how_to_begin(t, begin));
    return err_field(e, ERR_CONFLICT, "train.steps",
                     "train.steps draws pairs whose references were not computed before the first "
                     "step of the job that this one continues: leave train.steps, "
                     "train.global_batch and the data as they were, or %s",
                     how_to_begin(t, begin));
}

static int take_found(struct training *t, struct err *e)
{
    if (share(t, e) || check_found(t, SET_TRAIN, e)) return -1;
    return t->feed.n_eval ? check_found(t, SET_EVAL, e) : 0;
}

static int compute_set(struct training *t, struct prefer_reference *p, struct err *e)
{
    struct run *r = t->r;
    if (prefer_reference_run(&t->train.prefer, p, e))
        return e->code == ERR_ABORTED && is_save(r) ? run_saved(r, e) : -1;
    if (!p->ledger_equal) log_error("rank.ledger", "references rank=%d", r->args->rank);
    t->ledger_equal = t->ledger_equal && p->ledger_equal;
    t->train.others_ok = t->train.others_ok && p->control_equal;
    return 0;
}

/* Computes the references of n_sets sets, and reports progress over the samples of all of them. */
static int compute_sets(struct training *t, struct prefer_reference *p, int n_sets, struct err *e)
{
    int64_t n = 0;
    for (int set = 0; set < n_sets; set++) {
        if (prefer_reference_init(&p[set], &t->train.prefer, e)) return -1;
        n += p[set].n_samples;
    }
    log_info("rank.references", "samples=%lld", (long long)n);
    progress_begin(&t->r->progress, PROGRESS_SAMPLES, (double)n, 0);
    for (int set = 0; set < n_sets; set++)
        if (compute_set(t, &p[set], e)) return -1;
    progress_end(&t->r->progress);
    return 0;
}

static int compute(struct training *t, struct err *e)
{
    struct prefer_reference p[SET_N];
    const int n_sets = t->feed.n_eval ? SET_N : SET_TRAIN + 1;
    for (int set = 0; set < n_sets; set++) p[set] = samples_of(t, (enum data_set)set);
    const int rc = compute_sets(t, p, n_sets, e);
    for (int set = 0; set < n_sets; set++) prefer_reference_fini(&p[set]);
    if (rc) return -1;
    return run_first(t->r) ? references_write(t->r->args->job_dir, &t->references, e) : 0;
}

int training_references(struct training *t, struct err *e)
{
    struct references *r = &t->references;
    const struct data_stats *s = data_stats(t->r->data);
    int64_t found = 0;
    if (!t->r->plan.pairs) return 0;
    if (t->feed.n_eval) t->held = feed_eval(&t->feed, t->r->spec);
    r->n = s->n_documents + s->eval_documents;
    r->x = calloc((size_t)r->n, sizeof *r->x);
    if (!r->x) return err_set(e, ERR_IO, "out of memory for %lld references", (long long)r->n);
    memcpy(r->data_id, t->r->args->prepared_id, sizeof r->data_id);
    memcpy(r->base, t->base.sha256, sizeof r->base);
    if (run_first(t->r) && read_file(t, &found, e)) return -1;
    if (t->r->comm &&
        comm_sum_i64(t->r->comm, PURPOSE_CONTROL, &found, 1, t->train.model.bounce, e))
        return -1;
    if (found ? take_found(t, e) : compute(t, e)) return -1;
    t->train.prefer.reference = r->x;
    return 0;
}
