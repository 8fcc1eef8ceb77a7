/* flow_generate.c: rank 0 reads a request and sends it to the other ranks. All ranks compute the
 * sample and check that its latents are finite. Rank 0 writes the artifact and the line of the
 * request. */
#include "worker/infer/flow_generate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/job.h"
#include "api/core/jwrite.h"
#include "worker/data/source.h"
#include "worker/infer/reply.h"
#include "worker/infer/results.h"
#include "worker/model/finite.h"
#include "worker/plan/volume.h"

/* Largest size of an answer in bytes. An answer has an escaped custom_id and numbers. */
enum { LINE_SIZE = 4096 };

/* Message that rank 0 sends to the other ranks. It either orders the ranks to compute a
 * sample, or ends the job. */
struct order {
    int64_t request; /* index of the request; -1 if there are no more requests */
    struct flow_sample s;
};

struct flow_work {
    struct flow_generate *g;
    const struct infer *in;
    struct model *m;
    struct results results; /* rank 0 */
    struct flow_request request;
    struct order order;
    struct plan here; /* plan for the grid of the current sample */
    struct reply reply;
    char line[LINE_SIZE];
};

/* ---- opening --------------------------------------------------------------------------------- */

/* Finds the file of requests and its root. The paths of captions are relative to this file. */
static int find_manifest(struct flow_generate *g, const struct job_spec *spec,
                         const char *const *roots, int n_roots, struct err *e)
{
    const char *path = spec_text(spec, spec->input.source.path);
    struct source_list list = {0};
    int rc = source_expand(&list, path, roots, n_roots, 0, "input.path", e);
    if (!rc && list.n != 1)
        rc = err_field(e, ERR_INVALID, "input.path", "%s matches %d files: want one", path, list.n);
    if (!rc) rc = file_join(g->manifest, e, "%s", list.file[0].path);
    if (!rc) g->root = roots[list.file[0].root];
    source_list_fini(&list);
    return rc;
}

int flow_generate_open(struct flow_generate *g, const struct job_spec *spec,
                       const char *const *roots, int n_roots, struct err *e)
{
    *g = (struct flow_generate){0};
    return find_manifest(g, spec, roots, n_roots, e) ||
                   prompts_read(&g->requests, spec, roots, n_roots, e)
               ? -1
               : 0;
}

void flow_generate_close(struct flow_generate *g)
{
    prompts_fini(&g->requests);
}

/* ---- a sample -------------------------------------------------------------------------------- */

/* Returns the bytes of a sample's caption. */
static int64_t caption_size(const struct model *m, const struct flow_sample *s)
{
    return s->x.text_len * m->shape.caption_channels * (int64_t)sizeof(float);
}

/* Compares the ledger with the plan's counts of the steps and with the counts of rank 0's
 * messages. */
static int check_steps(struct flow_work *w, const struct flow_sample *s, struct err *e)
{
    struct model *m = w->m;
    struct comm_count want[PURPOSE_N];
    int64_t grid[3];
    flow_grid(&m->shape, &s->x, grid);
    const int64_t patches[2] = {grid[1] * grid[2], grid[0]};
    if (plan_at_grid(w->in->spec, m->plan, patches, 1, &w->here, e)) return -1;
    const struct plan_forward x = {w->here.S, flow_sample_passes(&m->shape, s)};
    if (plan_forward_comm(&m->shape, &w->here, m->rank, &x, want, e)) return -1;
    const bool root = m->rank == 0;
    const int64_t caption = caption_size(m, s);
    volume_add(&want[PURPOSE_CONTROL], volume_broadcast(m->plan->sp, sizeof w->order, root), 1);
    volume_add(&want[PURPOSE_CONTROL], volume_broadcast(m->plan->sp, caption, root), caption > 0);
    w->g->ledger_equal &= infer_moved(w->in, want);
    return 0;
}

static void sample_name(int64_t i, char name[ARTIFACT_NAME])
{
    snprintf(name, ARTIFACT_NAME, "sample-%05lld.safetensors", (long long)i);
}

static int run_steps(struct flow_work *w, const struct flow_sample *s, struct err *e)
{
    if (flow_sample_begin(w->m, s, e)) return -1;
    for (int64_t k = 0; k < s->steps; k++) {
        if (infer_check_stop(w->in, e) || flow_sample_step(w->m, s, k, e)) return -1;
        progress_part(w->in->progress, (double)(k + 1) / (double)s->steps);
    }
    return 0;
}

/* Computes latents from noise. Sets *ok to true if all latents are finite, and to false
 * otherwise. Collective. */
static int make(struct flow_work *w, int64_t i, const struct flow_sample *s, bool *ok,
                struct err *e)
{
    if (run_steps(w, s, e) || check_steps(w, s, e)) return -1;
    infer_at(w->in, i + 1);
    return flow_sample_finite(w->m, s, ok, e);
}

/* Writes the sample as an artifact. *done is filled only on rank 0. Collective. */
static int keep(struct flow_work *w, int64_t i, const struct flow_sample *s,
                struct artifact_done *done, struct err *e)
{
    const bool writer = w->m->rank == 0;
    char name[ARTIFACT_NAME];
    sample_name(i, name);
    if (writer && artifact_path(w->in->job_dir, name, done, e)) return -1;
    if (flow_sample_save(w->m, s, done->path, e)) return -1;
    const struct comm_count want[PURPOSE_N] = {
        [PURPOSE_CONTROL] = flow_sample_traffic(w->m, s, w->m->rank)};
    w->g->ledger_equal &= infer_moved(w->in, want);
    return writer ? artifact_describe(done, e) : 0;
}

static int make_again(void *arg, struct err *e)
{
    struct flow_work *w = arg;
    return run_steps(w, &w->order.s, e);
}

/* Finds the cause of a sample that is not finite. If a weight is not finite, the job fails,
 * because no request can be answered. Otherwise every rank refuses this request, and rank 0 writes
 * the request's line. */
static int blame(struct flow_work *w, int64_t i, const struct flow_sample *s, struct err *e)
{
    const struct finite_again again = {make_again, w};
    char name[64], where[FINITE_WHERE];
    if (finite_weights(w->m, name, e)) return -1;
    if (*name) return finite_blame(w->m, NULL, e, "sample %lld", (long long)i);
    if (finite_where(w->m, &again, where, e)) return -1;
    /* reset the counts, because the messages of this search are not in the plan */
    infer_at(w->in, i + 1);
    err_set(&w->request.refused, ERR_CORRUPT,
            "the sample is NaN or infinity, and first so is %s: guidance %.16g is too large%s",
            *where ? where : "what guidance makes of the model's outputs", s->guidance,
            w->m->dtype == DT_F16 ? ", or set precision.params to bf16, since fp16 ends at 65504"
                                  : "");
    return 0;
}

static int sample(struct flow_work *w, int64_t i, const struct flow_sample *s,
                  struct artifact_done *done, struct err *e)
{
    bool ok = false;
    if (make(w, i, s, &ok, e)) return -1;
    if (ok) return keep(w, i, s, done, e);
    return blame(w, i, s, e);
}

/* ---- its line -------------------------------------------------------------------------------- */

/* Removes a file that has the name of this sample but belongs to a sample of other requests. */
static int remove_stale(struct flow_work *w, int64_t i, struct err *e)
{
    struct artifact_done done;
    char name[ARTIFACT_NAME];
    sample_name(i, name);
    return artifact_path(w->in->job_dir, name, &done, e) || file_remove(done.path, e) ? -1 : 0;
}

static int put_refusal(struct flow_work *w, int64_t i, struct err *e)
{
    const struct job_spec *spec = w->in->spec;
    struct request r = {.refused = w->request.refused};
    int64_t size;
    const char *line = prompts_at(&w->g->requests, (int)i, &size);
    err_prefix(&r.refused, "%.200s line %lld", spec_text(spec, spec->input.source.path),
               (long long)w->g->requests.line[i]);
    if (!w->g->refused.code) w->g->refused = r.refused;
    if (remove_stale(w, i, e) || request_id(line, size, r.id, e)) return -1;
    if (reply_batch(&w->reply, &r, i, NULL, NULL, e)) return -1;
    return results_add(&w->results, (int)i, w->reply.line, w->reply.size, e);
}

static int put_answer(struct flow_work *w, int64_t i, const struct artifact_done *done,
                      struct err *e)
{
    const struct flow_sample *s = &w->order.s;
    struct jwrite j;
    char id[48];
    snprintf(id, sizeof id, "req-%lld", (long long)i);
    jwrite_init(&j, w->line, sizeof w->line - 1);
    jwrite_object(&j, NULL);
    jwrite_str(&j, "id", id);
    jwrite_str(&j, "custom_id", w->request.id);
    jwrite_object(&j, "response");
    jwrite_int(&j, "status_code", 200);
    jwrite_str(&j, "request_id", id);
    jwrite_object(&j, "body");
    jwrite_str(&j, "artifact", done->name);
    jwrite_str(&j, "sha256", done->sha256);
    jwrite_int(&j, "size", done->size);
    jwrite_array(&j, "latents");
    for (int d = 0; d < 4; d++)
        jwrite_int(&j, NULL, d == 0 ? s->x.C : d == 1 ? s->x.T : d == 2 ? s->x.H : s->x.W);
    jwrite_end(&j);
    jwrite_int(&j, "steps", s->steps);
    jwrite_double(&j, "guidance", s->guidance);
    jwrite_end(&j);
    jwrite_end(&j);
    jwrite_null(&j, "error");
    jwrite_end(&j);
    const int64_t n = jwrite_finish(&j);
    assert(n > 0);
    w->line[n] = '\n';
    return results_add(&w->results, (int)i, w->line, n + 1, e);
}

/* ---- requests -------------------------------------------------------------------------------- */

/* Sends the order and its caption from rank 0 to the other ranks. */
static int tell(struct flow_work *w, struct err *e)
{
    struct model *m = w->m;
    struct order *o = &w->order;
    /* the other ranks know the index of the request only after they have received the order */
    infer_at(w->in, o->request + 1);
    if (!m->comm) return 0;
    if (comm_broadcast(m->comm, PURPOSE_CONTROL, 0, o, sizeof *o, m->bounce, e)) return -1;
    comm_where(m->comm)->step = o->request + 1;
    const int64_t size = caption_size(m, &o->s);
    if (o->request < 0 || !size) return 0;
    return comm_broadcast(m->comm, PURPOSE_CONTROL, 0, m->batch.latents.text, size, m->bounce, e);
}

/* Reads request i and its caption, on rank 0. If this fails, w->request.refused has the
 * reason. If this machine cannot read a file, the request is refused as well, although the
 * fault may be in the machine. */
static void read_request(struct flow_work *w, int64_t i)
{
    struct flow_request *r = &w->request;
    int64_t size;
    const char *line = prompts_at(&w->g->requests, (int)i, &size);
    flow_request_of_line(r, w->in->spec, line, size);
    if (r->refused.code != ERR_NONE || !*r->text) return;
    flow_request_caption(r, &w->m->shape, w->g->root, w->g->manifest, w->m->batch.latents.text,
                         &r->refused);
}

static int one_request(struct flow_work *w, int64_t i, struct err *e)
{
    struct artifact_done done = {0};
    read_request(w, i);
    if (w->request.refused.code != ERR_NONE) return put_refusal(w, i, e);
    w->order = (struct order){i, w->request.s};
    if (tell(w, e) || sample(w, i, &w->order.s, &done, e)) return -1;
    if (w->request.refused.code != ERR_NONE) return put_refusal(w, i, e);
    return put_answer(w, i, &done, e);
}

static int lead(struct flow_work *w, struct err *e)
{
    struct flow_generate *g = w->g;
    if (results_open(&w->results, w->in->job_dir, &g->requests, w->in->shared_epoch, e)) return -1;
    g->n_resumed = w->results.n_answered;
    progress_begin(w->in->progress, PROGRESS_REQUESTS, g->requests.n, (double)g->n_resumed);
    for (int i = 0, n = (int)g->n_resumed; i < g->requests.n; i++) {
        if (w->results.answered[i]) continue;
        progress_piece(w->in->progress, n, 1);
        if (infer_check_unit(w->in, w->results.fd, e) || one_request(w, i, e)) return -1;
        progress_at(w->in->progress, ++n);
    }
    progress_end(w->in->progress);
    w->order = (struct order){.request = -1};
    if (tell(w, e)) return -1;
    g->n_refused = w->results.n_refused;
    g->n_samples = w->results.n_answered - g->n_refused;
    return results_finish(&w->results, w->in->job_dir, &g->results, &g->errors, e);
}

static int follow(struct flow_work *w, struct err *e)
{
    for (;;) {
        struct artifact_done none = {0};
        if (infer_check_stop(w->in, e) || tell(w, e)) return -1;
        if (w->order.request < 0) return 0;
        if (sample(w, w->order.request, &w->order.s, &none, e)) return -1;
    }
}

int flow_generate_run(struct flow_generate *g, const struct infer *in, struct err *e)
{
    struct flow_work *w = calloc(1, sizeof *w);
    if (!w) return err_set(e, ERR_IO, "out of memory");
    *w = (struct flow_work){.g = g, .in = in, .m = in->model, .results = {.fd = -1}};
    g->ledger_equal = true;
    int rc = w->m->rank == 0 ? lead(w, e) : follow(w, e);
    if (!rc) rc = infer_agree(in, &g->ledger_equal, e);
    results_close(&w->results);
    reply_fini(&w->reply);
    free(w);
    return rc;
}

int flow_generate_sample(const struct flow_generate *g, const struct infer *in, int64_t i,
                         struct artifact_done *out, struct err *e)
{
    char name[ARTIFACT_NAME];
    assert(i < g->requests.n);
    sample_name(i, name);
    if (artifact_path(in->job_dir, name, out, e)) return -1;
    if (!file_exists(out->path)) return 0;
    return artifact_describe(out, e) ? -1 : 1;
}
