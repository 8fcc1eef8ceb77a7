/* task_sample.c: runs a generate job of a diffusion model. */
#include <stdlib.h>
#include "api/core/jwrite.h"
#include "worker/infer/flow_generate.h"
#include "worker/rank/task_infer.h"

/* Sends one artifact for each request that was answered. */
static int send_samples(struct run *r, const struct flow_generate *g, const struct infer *in,
                        struct err *e)
{
    int64_t n = 0;
    for (int64_t i = 0; i < g->requests.n; i++) {
        struct artifact_done done;
        const int there = flow_generate_sample(g, in, i, &done, e);
        if (there < 0 || (there && run_send_artifact(r, &done, e))) return -1;
        n += there;
    }
    if (n == g->n_samples) return 0;
    return err_set(e, ERR_IO, "of %lld samples %lld are in %s/artifacts: some were removed",
                   (long long)g->n_samples, (long long)n, in->job_dir);
}

static int send_result(struct run *r, const struct flow_generate *g, const struct model *m,
                       struct err *e)
{
    char json[1024];
    struct jwrite w;
    jwrite_init(&w, json, sizeof json);
    jwrite_object(&w, NULL);
    jwrite_int(&w, "requests", g->requests.n);
    jwrite_int(&w, "samples", g->n_samples);
    jwrite_int(&w, "refused", g->n_refused);
    jwrite_int(&w, "resumed", g->n_resumed);
    run_write_account(&w, r, g->ledger_equal, m);
    jwrite_end(&w);
    if (jwrite_finish(&w) < 0) return err_set(e, ERR_TOO_LARGE, "the result is too long");
    return link_send_result(r->link, json, e);
}

int task_sample(struct run *r, struct err *e)
{
    struct flow_generate *g = calloc(1, sizeof *g);
    struct model *m = NULL;
    int rc = -1;
    if (!g) return err_set(e, ERR_IO, "out of memory");
    if (run_first(r) && flow_generate_open(g, r->spec, r->roots, r->n_roots, e)) goto out;
    m = task_open_model(r, e);
    if (!m) goto out;
    struct infer in = {m, r->spec, r->args->job_dir, run_stopped, r, &r->progress};
    in.shared_epoch = r->args->shared ? r->args->epoch : 0;
    in.leave = run_leave;
    if (task_check_fence(r, e) || flow_generate_run(g, &in, e)) goto out;
    const struct artifact_done *const done[] = {&g->results, &g->errors};
    if (run_first(r) && (send_samples(r, g, &in, e) || task_send_artifacts(r, done, 2, e) ||
                         send_result(r, g, m, e) ||
                         task_check_answered(g->requests.n, g->n_refused, &g->refused, e)))
        goto out;
    rc = 0;
out:
    flow_generate_close(g);
    free(g);
    free(m);
    return rc;
}
