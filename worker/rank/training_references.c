/* training_references.c: rank 0 looks for the file of references, and sends its numbers to the
 * other ranks. If there is no file, all ranks compute the references. */
#include <stdlib.h>
#include <string.h>
#include "api/core/job.h"
#include "api/core/log.h"
#include "worker/rank/training.h"
#include "worker/train/prefer_reference.h"

/* Reads the file, on rank 0. A damaged file in the job's directory is written again. *found becomes
 * 1 if the file was read. */
static int read_file(struct training *t, int64_t *found, struct err *e)
{
    const struct references *r = &t->references;
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
                     "before its first step: start from its weights in model.path",
                     t->last.path);
}

/* Sends the references that rank 0 has to all ranks. */
static int share(struct training *t, struct err *e)
{
    struct references *r = &t->references;
    if (!t->r->comm) return 0;
    return comm_broadcast(t->r->comm, PURPOSE_CONTROL, 0, r->x, r->n * (int64_t)sizeof *r->x,
                          t->train.model.bounce, e);
}

/* Describes the samples of all steps of the job. */
static struct prefer_reference samples_of(struct training *t)
{
    const struct run *r = t->r;
    return (struct prefer_reference){.rank = r->args->rank,
                                     .n_drawn = r->spec->train.steps * r->spec->train.global_batch,
                                     .n_different = data_order_samples(t->feed.order[0]),
                                     .n_documents = t->references.n,
                                     .reference = t->references.x,
                                     .stopped = run_stopped,
                                     .arg = t->r};
}

static int take_found(struct training *t, struct err *e)
{
    struct prefer_reference p = samples_of(t);
    return share(t, e) || prefer_reference_check(&t->train.prefer, &p, e) ? -1 : 0;
}

static int compute(struct training *t, struct err *e)
{
    const struct run *r = t->r;
    struct prefer_reference p = samples_of(t);
    log_info("rank.references", "documents=%lld", (long long)p.n_documents);
    if (prefer_reference_run(&t->train.prefer, &p, e)) return -1;
    if (!p.ledger_equal) log_error("rank.ledger", "references rank=%d", r->args->rank);
    t->ledger_equal = t->ledger_equal && p.ledger_equal;
    t->train.others_ok = t->train.others_ok && p.control_equal;
    return run_first(r) ? references_write(r->args->job_dir, &t->references, e) : 0;
}

int training_references(struct training *t, struct err *e)
{
    struct references *r = &t->references;
    int64_t found = 0;
    if (!t->r->plan.pairs) return 0;
    r->n = data_stats(t->r->data)->n_documents;
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
