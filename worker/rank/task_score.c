/* task_score.c: runs a score job: opens the model, calls score_run(), and sends the artifacts
 * and the result. */
#include <stdlib.h>
#include "api/core/jwrite.h"
#include "worker/infer/score.h"
#include "worker/rank/task_infer.h"

static int send_score(struct run *r, const struct score *s, const struct model *m, struct err *e)
{
    char json[2048];
    struct jwrite w;
    jwrite_init(&w, json, sizeof json);
    jwrite_object(&w, NULL);
    jwrite_double(&w, "nll", s->total.nll);
    jwrite_int(&w, "tokens", s->total.n_targets);
    jwrite_int(&w, "bytes", s->total.n_bytes);
    jwrite_double(&w, "ppl", score_ppl(&s->total));
    jwrite_double(&w, "bits_per_byte", score_bits_per_byte(s->text_nll, s->total.n_bytes));
    jwrite_int(&w, "unscored", s->n_unscored);
    jwrite_int(&w, "documents", s->n_documents);
    jwrite_int(&w, "windows", s->n_windows);
    jwrite_int(&w, "resumed", s->n_resumed);
    jwrite_double(&w, "tokens_s", pace_rate(&s->pace));
    run_write_account(&w, r, s->ledger_equal, m);
    jwrite_end(&w);
    if (jwrite_finish(&w) < 0) return err_set(e, ERR_TOO_LARGE, "the result is too long");
    return link_send_result(r->link, json, e);
}

int task_score(struct run *r, struct err *e)
{
    struct score out;
    struct model *m = task_open_model(r, e);
    if (!m) return -1;
    struct infer in = {m, r->spec, r->args->job_dir, run_stopped, r, &r->progress};
    in.leave = run_leave;
    int rc = score_run(&in, r->data, &out, e);
    const struct artifact_done *const done[] = {&out.artifact, &out.buckets, &out.logprobs};
    if (!rc && run_first(r))
        rc = task_send_artifacts(r, done, 3, e) || send_score(r, &out, m, e) ? -1 : 0;
    free(m);
    return rc;
}
