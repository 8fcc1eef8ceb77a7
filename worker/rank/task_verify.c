/* task_verify.c: runs a verify job: loads weights, calls verify_run(), sends the comparison,
 * and fails if the two computations differ. */
#include <stdlib.h>
#include "api/core/jwrite.h"
#include "worker/rank/run.h"
#include "worker/rank/weights.h"
#include "worker/verify/verify.h"

static int report(struct run *r, const struct verify *v, const struct model *m, struct err *e)
{
    char json[4096];
    struct jwrite w;
    for (int i = 0; i < VERIFY_ARTIFACTS; i++)
        if (*v->artifact[i].name && run_send_artifact(r, &v->artifact[i], e)) return -1;
    jwrite_init(&w, json, sizeof json);
    jwrite_object(&w, NULL);
    jwrite_bool(&w, "equal", v->equal);
    jwrite_int(&w, "ranks", v->n_ranks);
    jwrite_int(&w, "rings", r->plan.dp);
    if (v->n_stages > 1) jwrite_int(&w, "stages", v->n_stages);
    if (v->n_samples > 1) jwrite_int(&w, "samples", v->n_samples);
    jwrite_int(&w, "tokens", v->n_tokens);
    jwrite_int(&w, "targets", v->targets_1);
    jwrite_double(&w, "loss_sp1", v->loss_1);
    jwrite_double(&w, "loss_spP", v->loss_p);
    jwrite_double(&w, "loss_rel", v->loss_rel);
    jwrite_double(&w, "logits_max_abs", v->logits_max_abs);
    jwrite_double(&w, "logits_rel_l2", v->logits_rel_l2);
    jwrite_str(&w, "worst_tensor", v->row[0].name);
    jwrite_double(&w, "worst_rel_l2", v->row[0].rel_l2);
    jwrite_int(&w, "n_tensors", v->n_rows);
    run_write_account(&w, r, v->ledger_equal, m);
    jwrite_end(&w);
    if (jwrite_finish(&w) < 0) return err_set(e, ERR_TOO_LARGE, "the result is too long");
    return link_send_result(r->link, json, e);
}

int task_verify(struct run *r, struct err *e)
{
    struct model *m = calloc(1, sizeof *m);
    struct verify v = {0};
    struct model_options o;
    int rc = -1;
    if (!m) return err_set(e, ERR_IO, "out of memory");
    run_model_options(r, &o);
    if (model_init(m, &o, e)) goto out;
    if (weights_load(r, m, e)) goto out;
    struct verify_args a = {.spec = r->spec,
                            .model = m,
                            .data = r->data,
                            .job_dir = r->args->job_dir,
                            .weights = weights_reference,
                            .weights_arg = r,
                            .progress = &r->progress};
    if (verify_run(&a, &v, e)) goto out;
    if (run_first(r)) {
        if (report(r, &v, m, e)) goto out;
        if (!v.equal) {
            verify_sentence(&v, e);
            goto out;
        }
    }
    rc = 0;
out:
    verify_fini(&v);
    free(m);
    return rc;
}
