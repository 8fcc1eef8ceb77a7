/* generate.c: runs a job of prompts or of a batch of requests, and writes its artifacts. Answers
 * at most plan->batch requests at the same time. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/job.h"
#include "worker/infer/infer.h"
#include "worker/infer/reply.h"
#include "worker/infer/results.h"

/* A prompt that is being answered. */
struct turn {
    int i;
    struct request request;
    struct infer_answer answer;
};

/* Lines of a prompt. They wait until the lines of all earlier prompts are written. */
struct held_lines {
    bool done;
    char *lines; /* owned */
    size_t size;
};

struct generator {
    const struct infer *in;
    const struct prompts *p;
    bool batch, writer; /* `writer` is true on rank 0, which writes the artifacts */
    /* number of works, which is the number of prompts that are answered together */
    int n;
    struct infer_work work[JOB_MAX_BATCH];
    struct turn turn[JOB_MAX_BATCH]; /* turn[k] is for the request that work[k] answers */
    struct infer_steps steps;        /* steps of all works */
    int next;                        /* index of the first prompt that has not begun */
    int n_done;
    /* index of the prompt whose text becomes part of RESULT; p->n if no prompt has a text yet */
    int first;
    struct reply reply;
    struct artifact out;     /* the artifact of a job of prompts */
    struct held_lines *held; /* owned [p->n] */
    int n_written;           /* number of prompts whose lines have been written to `out` */
    struct results results;  /* the results of a batch */
    uint8_t *answered;       /* owned [p->n]; 1 if an earlier attempt answered the prompt */
    struct infer_text *text;
};

/* ---- one prompt, one request ----------------------------------------------------------------- */

static char *copy_text(const struct generator *g, const struct infer_choice *c)
{
    if (c->text) return strdup(c->text + c->begin);
    if (g->reply.ids) return strdup("");
    unsigned char *bytes = malloc((size_t)c->n_text + 1);
    char *text = malloc(3 * (size_t)c->n_text + 1);
    if (bytes && text) sample_utf8(bytes, sample_bytes(c->tokens.id, c->n_text, bytes), text);
    if (!bytes) {
        free(text);
        text = NULL;
    }
    free(bytes);
    return text;
}

/* Keeps the first text of the job, which becomes part of its RESULT. */
static int keep_text(struct generator *g, int i, const struct infer_answer *a, struct err *e)
{
    const struct infer_choice *c = &a->choice[0];
    if (i > g->first) return 0;
    free(g->text->text);
    g->text->text = copy_text(g, c);
    if (!g->text->text)
        return err_set(e, ERR_IO, "out of memory for %lld tokens of text", (long long)c->n_text);
    if (c->text || !g->reply.ids) g->text->finish = c->finish;
    g->first = i;
    return 0;
}

/* Returns the name of the model that answers a request: that of its adapter, if it chose one. Else
 * it is the path of the model's directory or, if there is no directory, the job's name. */
static const char *model_name(const struct job_spec *spec, const struct request *r)
{
    if (r->adapter != ADAPTER_BASE) return spec_text(spec, spec->model.adapters[r->adapter].name);
    return spec_text(spec, *spec_text(spec, spec->model.path) ? spec->model.path : spec->name);
}

/* Writes the line in g->reply to the artifact. If lines of earlier prompts are not written
 * yet, keeps the line in memory until those lines are written. */
static int put_line(struct generator *g, int i, struct err *e)
{
    struct held_lines *h = &g->held[i];
    const size_t size = (size_t)g->reply.size;
    if (i == g->n_written) return artifact_write(&g->out, g->reply.line, size, e);
    char *lines = realloc(h->lines, h->size + size);
    if (!lines) return err_set(e, ERR_IO, "out of memory for a line of %zu bytes", size);
    memcpy(lines + h->size, g->reply.line, size);
    h->lines = lines;
    h->size += size;
    return 0;
}

/* Records that all lines of prompt i exist. Then writes the kept lines that have no unwritten
 * lines of earlier prompts before them. */
static int end_lines(struct generator *g, int i, struct err *e)
{
    g->held[i].done = true;
    while (g->n_written < g->p->n && g->held[g->n_written].done) {
        if (++g->n_written == g->p->n) break;
        struct held_lines *h = &g->held[g->n_written];
        if (h->size && artifact_write(&g->out, h->lines, h->size, e)) return -1;
        free(h->lines);
        h->lines = NULL;
        h->size = 0;
    }
    return 0;
}

static int write_answer(struct generator *g, int i, const struct request *r,
                        const struct infer_answer *a, struct err *e)
{
    int64_t size;
    const char *prompt = prompts_at(g->p, i, &size);
    if (!g->writer) return 0;
    if (g->batch)
        return reply_batch(&g->reply, r, i, model_name(g->in->spec, r), a, e) ||
                       results_add(&g->results, i, g->reply.line, g->reply.size, e)
                   ? -1
                   : 0;
    for (int64_t c = 0; c < a->n; c++)
        if (reply_prompt(&g->reply, r, prompt, size, a, c, e) || put_line(g, i, e)) return -1;
    return end_lines(g, i, e);
}

/* ---- all prompts ----------------------------------------------------------------------------- */

static bool settle(struct generator *g)
{
    return infer_settle(g->in, g->work, g->n, &g->steps);
}

static bool any_at_work(const struct generator *g)
{
    for (int k = 0; k < g->n; k++)
        if (g->work[k].out) return true;
    return false;
}

/* Counts a request as done. If no other request is being answered, sets progress to the number
 * of finished requests, which removes rounding errors from the sum. */
static void count_done(struct generator *g)
{
    struct progress *p = g->in->progress;
    g->n_done++;
    if (!any_at_work(g)) progress_at(p, fmax(g->n_done, progress_done(p)));
}

/* Writes the refusal of a request of a batch to its line of results.jsonl. If a prompt is refused,
 * the job fails. */
static int refuse(struct generator *g, struct turn *t, struct err *e)
{
    struct err *why = &t->request.refused;
    if (g->batch) {
        if (g->writer) err_prefix(why, "line %lld", (long long)g->p->line[t->i]);
        if (!g->text->refused.code) g->text->refused = *why;
        progress_add(g->in->progress, 1);
        count_done(g);
        return write_answer(g, t->i, &t->request, NULL, e);
    }
    if (e) *e = *why;
    return g->p->n > 1 ? err_prefix(e, "prompt %d", t->i) : -1;
}

/* Begins the next prompt in work k. The work must be idle. */
static int begin(struct generator *g, int k, struct err *e)
{
    struct turn *t = &g->turn[k];
    int64_t size;
    t->i = g->next++;
    const char *prompt = prompts_at(g->p, t->i, &size);
    g->text->ledger_equal &= settle(g);
    if (infer_check_unit(g->in, g->results.fd, e)) return -1;
    if (g->batch)
        request_of_line(&t->request, g->in->spec, prompt, size);
    else
        request_of_prompt(&t->request, g->in->spec, prompt, size, t->i);
    infer_at(g->in, t->i + 1);
    if (t->request.refused.code != ERR_NONE) return refuse(g, t, e);
    return infer_begin(g->in, &g->work[k], &t->request, &t->answer, e);
}

/* Begins a prompt in every idle work, as long as there are prompts that no work has begun. */
static int begin_all(struct generator *g, struct err *e)
{
    for (int k = 0; k < g->n; k++)
        while (!g->work[k].out) {
            while (g->next < g->p->n && g->answered[g->next]) g->next++;
            if (g->next == g->p->n) return 0;
            if (begin(g, k, e)) return -1;
        }
    return 0;
}

static int end(struct generator *g, int k, struct err *e)
{
    struct turn *t = &g->turn[k];
    struct infer_answer *a = &t->answer;
    g->work[k].out = NULL;
    g->text->n_prompt_tokens += t->request.n_tokens;
    g->text->n_tokens += a->n_generated;
    pace_sum(&g->text->prefill, &a->prefill);
    count_done(g);
    if (write_answer(g, t->i, &t->request, a, e) || keep_text(g, t->i, a, e)) return -1;
    infer_answer_fini(a);
    return 0;
}

static int answer_all(struct generator *g, struct err *e)
{
    infer_at(g->in, 0);
    for (;;) {
        if (begin_all(g, e)) return -1;
        if (!any_at_work(g)) break;
        if (infer_step(g->in, g->work, g->n, &g->steps, e)) return -1;
        for (int k = 0; k < g->n; k++)
            if (g->work[k].out && g->work[k].done && end(g, k, e)) return -1;
    }
    g->text->ledger_equal &= settle(g);
    g->text->decode = g->steps.pace;
    return 0;
}

/* ---- the job --------------------------------------------------------------------------------- */

static int generator_open(struct generator *g, struct err *e)
{
    int64_t most = 0, size;
    g->n = g->in->model->plan->batch;
    g->first = g->p->n;
    g->held = calloc((size_t)g->p->n + 1, sizeof *g->held);
    if (!g->held) return err_set(e, ERR_IO, "out of memory for %d prompts", g->p->n);
    g->reply.ids = !job_reads_bytes(g->in->spec);
    for (int i = 0; i < g->p->n; i++) {
        prompts_at(g->p, i, &size);
        if (size > most) most = size;
    }
    if (infer_work_init(g->work, g->in, g->writer, e)) return -1;
    for (int k = 0; k < g->n; k++) {
        struct request *r = &g->turn[k].request;
        if (request_init(r, most, e)) return -1;
        r->tokenizer = g->in->tokenizer;
        r->no_tokenizer = g->in->no_tokenizer;
        r->chat = g->in->chat;
        r->vocabulary = g->in->vocabulary;
    }
    g->reply.tokenizer = g->in->tokenizer;
    g->reply.created = g->in->chat.submitted_s;
    if (!g->writer) return 0;
    return g->batch ? results_open(&g->results, g->in->job_dir, g->p, g->in->shared_epoch, e)
                    : artifact_open(&g->out, g->in->job_dir, "generate.jsonl", e);
}

static void generator_close(struct generator *g)
{
    results_close(&g->results);
    artifact_drop(&g->out);
    reply_fini(&g->reply);
    for (int k = 0; k < g->n; k++) {
        infer_answer_fini(&g->turn[k].answer);
        request_fini(&g->turn[k].request);
    }
    infer_work_fini(g->work, g->n);
    for (int i = 0; g->held && i < g->p->n; i++) free(g->held[i].lines);
    free(g->held);
    free(g->answered);
}

/* Sends from rank 0 to the other ranks which requests earlier attempts have answered. */
static int share_answered(struct generator *g, struct err *e)
{
    const struct model *m = g->in->model;
    const int64_t n = g->p->n;
    g->answered = calloc((size_t)n + 1, 1);
    if (!g->answered) return err_set(e, ERR_IO, "out of memory for %lld requests", (long long)n);
    if (!g->batch) return 0;
    if (g->writer) memcpy(g->answered, g->results.answered, (size_t)n);
    if (m->comm && comm_broadcast(m->comm, PURPOSE_CONTROL, 0, g->answered, n, m->bounce, e))
        return -1;
    for (int64_t i = 0; i < n; i++) g->n_done += g->answered[i];
    return 0;
}

/* Saves the states after the prompt. Only one context can be saved, so the job must have only one
 * prompt. */
static int save_context(struct generator *g, struct err *e)
{
    const struct context *before = g->in->context;
    struct artifact_done *done = &g->text->context;
    struct context c = {.n_tokens = g->turn[0].request.n_tokens + (before ? before->n_tokens : 0),
                        .states = g->work[0].states};
    if (g->p->n != 1 || g->batch)
        return err_field(e, ERR_INVALID, "context.save",
                         "context.save leaves the context of one prompt, not of %lld",
                         (long long)g->p->n);
    snprintf(c.model, sizeof c.model, "%s", g->in->digest);
    if (!g->writer) return 0;
    if (artifact_path(g->in->job_dir, "context.safetensors", done, e)) return -1;
    if (context_write(done->path, &g->work[0].layout, &c, e)) return -1;
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
    t->n_refused = g->results.n_refused; /* this is the number for all attempts together */
    t->n_prompt_tokens = g->results.n_prompt_tokens;
    t->n_tokens = g->results.n_tokens;
    return results_finish(&g->results, g->in->job_dir, &t->artifact, &t->errors, e);
}

int infer_generate(const struct infer *in, const struct prompts *p, struct infer_text *out,
                   struct err *e)
{
    struct generator *g = calloc(1, sizeof *g);
    int rc = -1;
    *out = (struct infer_text){.n_prompts = p->n, .ledger_equal = true};
    if (!g) return err_set(e, ERR_IO, "out of memory for %lld prompts", (long long)p->n);
    g->in = in;
    g->p = p;
    g->batch = in->spec->input.source.format == DATA_OPENAI_BATCH;
    g->writer = in->model->sp.shard.r == 0;
    g->results.fd = -1;
    g->text = out;
    if (generator_open(g, e) || share_answered(g, e)) goto out;
    in->model->progress = in->progress;
    out->n_resumed = g->n_done;
    progress_begin(in->progress, PROGRESS_REQUESTS, (double)p->n, (double)out->n_resumed);
    if (answer_all(g, e)) {
        infer_name_adapter(in, e);
        goto out;
    }
    rc = finish(g, e);
    if (!rc) progress_end(in->progress);
out:
    generator_close(g);
    free(g);
    if (rc) infer_text_fini(out);
    return rc;
}

void infer_text_fini(struct infer_text *t)
{
    free(t->text);
    t->text = NULL;
}
