/* generate.c: a job of prompts or of a batch of requests, one after another, and its artifacts. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/job.h"
#include "worker/infer/infer.h"
#include "worker/infer/reply.h"
#include "worker/infer/results.h"

struct generator {
    const struct infer *in;
    const struct prompts *p;
    bool batch, writer; /* writer: rank 0 */
    struct infer_work work;
    struct request request;
    struct reply reply;
    struct artifact out;    /* prompts */
    struct results results; /* batch */
    struct infer_text *text;
};

/* ---- one prompt, one request ----------------------------------------------------------------- */

/* The first text of the job, for its RESULT. */
static int keep_text(struct generator *g, const struct infer_answer *a, struct err *e)
{
    const struct infer_choice *c = &a->choice[0];
    if (c->text) {
        g->text->text = strdup(c->text + c->begin);
        g->text->finish = c->finish;
        return g->text->text ? 0 : err_set(e, ERR_IO, "out of memory");
    }
    if (g->reply.ids) return (g->text->text = strdup("")) ? 0 : err_set(e, ERR_IO, "out of memory");
    unsigned char *bytes = malloc((size_t)c->n_text + 1);
    char *text = malloc(3 * (size_t)c->n_text + 1);
    if (bytes && text) sample_utf8(bytes, sample_bytes(c->tokens.id, c->n_text, bytes), text);
    free(bytes);
    if (!bytes || !text) {
        free(text);
        return err_set(e, ERR_IO, "out of memory for %lld tokens of text", (long long)c->n_text);
    }
    g->text->text = text;
    g->text->finish = c->finish;
    return 0;
}

/* What the model is called: its directory, or the job. */
static const char *model_name(const struct job_spec *spec)
{
    return spec_text(spec, *spec_text(spec, spec->model.path) ? spec->model.path : spec->name);
}

static int write_answer(struct generator *g, int i, const struct infer_answer *a, struct err *e)
{
    int64_t size;
    const char *prompt = prompts_at(g->p, i, &size);
    if (!g->writer) return 0;
    if (g->batch)
        return reply_batch(&g->reply, &g->request, i, model_name(g->in->spec), a, e) ||
                       results_add(&g->results, i, g->reply.line, g->reply.size, e)
                   ? -1
                   : 0;
    for (int64_t c = 0; c < a->n; c++)
        if (reply_prompt(&g->reply, &g->request, prompt, size, a, c, e) ||
            artifact_write(&g->out, g->reply.line, (size_t)g->reply.size, e))
            return -1;
    return 0;
}

static int answer(struct generator *g, int i, struct err *e)
{
    struct infer_answer a;
    infer_at(g->in, i + 1);
    if (infer_answer(g->in, &g->work, &g->request, &a, e)) return -1;
    g->text->ledger_equal = g->text->ledger_equal && a.ledger_equal;
    g->text->n_prompt_tokens += g->request.n_tokens;
    g->text->n_tokens += a.n_generated;
    pace_sum(&g->text->prefill, &a.prefill);
    pace_sum(&g->text->decode, &a.decode);
    int rc = write_answer(g, i, &a, e);
    if (!rc && !g->text->text) rc = keep_text(g, &a, e);
    infer_answer_fini(&a);
    return rc;
}

static int one_prompt(struct generator *g, int i, struct err *e)
{
    int64_t size;
    const char *prompt = prompts_at(g->p, i, &size);
    if (!g->batch) {
        request_of_prompt(&g->request, g->in->spec, prompt, size, i);
        if (g->request.refused.code == ERR_NONE) return answer(g, i, e);
        if (e) *e = g->request.refused;
        return g->p->n > 1 ? err_prefix(e, "prompt %d", i) : -1;
    }
    request_of_line(&g->request, g->in->spec, prompt, size);
    if (g->request.refused.code == ERR_NONE) return answer(g, i, e);
    if (g->writer) err_prefix(&g->request.refused, "line %lld", (long long)g->p->line[i]);
    return write_answer(g, i, NULL, e);
}

/* ---- the job --------------------------------------------------------------------------------- */

static int generator_open(struct generator *g, struct err *e)
{
    int64_t most = 0, size;
    g->reply.ids = !job_reads_bytes(g->in->spec);
    for (int i = 0; i < g->p->n; i++) {
        prompts_at(g->p, i, &size);
        if (size > most) most = size;
    }
    if (infer_work_init(&g->work, g->in, g->writer, e) || request_init(&g->request, most, e))
        return -1;
    g->request.tokenizer = g->in->tokenizer;
    g->request.no_tokenizer = g->in->no_tokenizer;
    g->request.chat = g->in->chat;
    g->reply.tokenizer = g->in->tokenizer;
    g->reply.created = g->in->chat.submitted_s;
    if (!g->writer) return 0;
    return g->batch ? results_open(&g->results, g->in->job_dir, g->p, e)
                    : artifact_open(&g->out, g->in->job_dir, "generate.jsonl", e);
}

static void generator_close(struct generator *g)
{
    results_close(&g->results);
    artifact_drop(&g->out);
    reply_fini(&g->reply);
    request_fini(&g->request);
    infer_work_fini(&g->work);
}

/* What an earlier attempt has answered, from rank 0 to everyone; [n] is the caller's to free. */
static uint8_t *share_answered(struct generator *g, struct err *e)
{
    const struct model *m = g->in->model;
    const int64_t n = g->p->n;
    uint8_t *answered = calloc((size_t)n + 1, 1);
    if (!answered) {
        err_set(e, ERR_IO, "out of memory for %lld requests", (long long)n);
        return NULL;
    }
    if (g->batch && g->writer) memcpy(answered, g->results.answered, (size_t)n);
    if (!g->batch || !m->comm ||
        !comm_broadcast(m->comm, PURPOSE_CONTROL, 0, answered, n, m->bounce, e))
        return answered;
    free(answered);
    return NULL;
}

/* The states after the prompt. A context is one: of one prompt. */
static int save_context(struct generator *g, struct err *e)
{
    const struct context *before = g->in->context;
    struct artifact_done *done = &g->text->context;
    struct context c = {.n_tokens = g->request.n_tokens + (before ? before->n_tokens : 0),
                        .states = g->work.states};
    if (g->p->n != 1 || g->batch)
        return err_field(e, ERR_INVALID, "context.save",
                         "context.save leaves the context of one prompt, not of %lld",
                         (long long)g->p->n);
    snprintf(c.model, sizeof c.model, "%s", g->in->digest);
    if (!g->writer) return 0;
    if (artifact_path(g->in->job_dir, "context.safetensors", done, e)) return -1;
    if (context_write(done->path, &g->work.layout, &c, e)) return -1;
    return artifact_describe(done, e);
}

static int finish(struct generator *g, struct err *e)
{
    struct infer_text *t = g->text;
    if (infer_agree(g->in, &t->ledger_equal, e)) return -1;
    if (g->in->spec->context.save && save_context(g, e)) return -1;
    if (!g->writer) return 0;
    if (!g->batch) {
        if (artifact_finish(&g->out, e)) return -1;
        t->artifact = g->out.done;
        return 0;
    }
    t->n_refused = g->results.n_refused; /* of all attempts */
    t->n_prompt_tokens = g->results.n_prompt_tokens;
    t->n_tokens = g->results.n_tokens;
    return results_finish(&g->results, g->in->job_dir, &t->artifact, &t->errors, e);
}

int infer_generate(const struct infer *in, const struct prompts *p, struct infer_text *out,
                   struct err *e)
{
    struct generator g = {.in = in,
                          .p = p,
                          .batch = in->spec->input.source.format == DATA_OPENAI_BATCH,
                          .writer = in->model->sp.shard.r == 0,
                          .results = {.fd = -1},
                          .text = out};
    uint8_t *answered = NULL;
    int rc = -1;
    *out = (struct infer_text){.n_prompts = p->n, .ledger_equal = true};
    if (generator_open(&g, e) || !(answered = share_answered(&g, e))) goto out;
    in->model->progress = in->progress;
    for (int i = 0; i < p->n; i++) out->n_resumed += answered[i];
    progress_begin(in->progress, PROGRESS_REQUESTS, (double)p->n, (double)out->n_resumed);
    for (int i = 0, n = (int)out->n_resumed; i < p->n; i++) {
        if (answered[i]) continue;
        if (infer_check_unit(in, g.results.fd, e) || one_prompt(&g, i, e)) goto out;
        progress_at(in->progress, ++n);
    }
    rc = finish(&g, e);
    if (!rc) progress_end(in->progress);
out:
    free(answered);
    generator_close(&g);
    if (rc) infer_text_fini(out);
    return rc;
}

void infer_text_fini(struct infer_text *t)
{
    free(t->text);
    t->text = NULL;
}
