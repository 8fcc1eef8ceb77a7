/* task_embed.c: runs an embed job: opens the model, calls embed_run(), and sends the artifacts
 * and the result. */
#include <stdlib.h>
#include "api/core/job.h"
#include "api/core/jwrite.h"
#include "worker/infer/embed.h"
#include "worker/rank/task_infer.h"

static int send_embed(struct run *r, const struct embed *s, const struct model *m, struct err *e)
{
    char json[2048];
    struct jwrite w;
    jwrite_init(&w, json, sizeof json);
    jwrite_object(&w, NULL);
    jwrite_int(&w, "documents", s->n_documents);
    jwrite_int(&w, "tokens", s->n_tokens);
    if (s->n_truncated) jwrite_int(&w, "truncated", s->n_truncated);
    jwrite_int(&w, "dimensions", s->width);
    static const char *const pooling[POOLING_N] = {"last", "mean", "cls"};
    jwrite_str(&w, "pooling", pooling[r->spec->embed.pooling]);
    jwrite_bool(&w, "normalized", r->spec->embed.normalize);
    jwrite_double(&w, "tokens_s", pace_rate(&s->pace));
    run_write_account(&w, r, s->ledger_equal, m);
    jwrite_end(&w);
    if (jwrite_finish(&w) < 0) return err_set(e, ERR_TOO_LARGE, "the result is too long");
    return link_send_result(r->link, json, e);
}

int task_embed(struct run *r, struct err *e)
{
    struct embed out;
    struct model *m = task_open_model(r, e);
    if (!m) return -1;
    struct infer in = {m, r->spec, r->args->job_dir, run_stopped, r, &r->progress};
    int rc = embed_run(&in, r->data, &out, e);
    const struct artifact_done *const done[] = {&out.vectors, &out.ids};
    if (!rc && run_first(r))
        rc = task_send_artifacts(r, done, 2, e) || send_embed(r, &out, m, e) ? -1 : 0;
    free(m);
    return rc;
}
