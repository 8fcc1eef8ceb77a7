/* task_generate.c: runs a generate job of text. It opens the context, and gets the tokenizer,
 * the end ids and the prompts from rank 0. Then it calls infer_generate() and sends the
 * result. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/job.h"
#include "api/core/jwrite.h"
#include "worker/family/family.h"
#include "worker/hf/hf.h"
#include "worker/model/stored.h"
#include "worker/rank/model_tokenizer.h"
#include "worker/rank/roots.h"
#include "worker/rank/task_infer.h"
#include "worker/rank/text_ends.h"

struct task_context {
    struct context_layout layout;
    struct context context; /* the loaded context, whose states are in the plan's memory; NULL if
                             * no context was loaded */
};

/* Largest number of bytes of generated text in a RESULT. The artifact has the whole text. */
#define RESULT_TEXT_SIZE 4096

/* Returns the length of the longest prefix of s that has at most n bytes and ends between
 * characters. */
static size_t utf8_prefix(const char *s, size_t len, size_t n)
{
    if (len <= n) return len;
    while (n > 0 && ((unsigned char)s[n] & 0xC0) == 0x80) n--;
    return n;
}

static int send_text(struct run *r, const struct infer_text *t, const struct model *m,
                     struct err *e)
{
    char json[RANK_RESULT_SIZE];
    struct jwrite w;
    const char *text = t->text ? t->text : ""; /* t->text is NULL if no prompt was answered in
                                                * this attempt */
    size_t len = strlen(text), shown = utf8_prefix(text, len, RESULT_TEXT_SIZE);
    jwrite_init(&w, json, sizeof json);
    jwrite_object(&w, NULL);
    jwrite_strn(&w, "text", text, shown);
    jwrite_bool(&w, "text_cut", shown < len);
    jwrite_str(&w, "finish_reason", infer_finish_name(t->finish));
    jwrite_int(&w, "prompts", t->n_prompts);
    jwrite_int(&w, "n_prompt_tokens", t->n_prompt_tokens);
    jwrite_int(&w, "n_tokens", t->n_tokens);
    jwrite_double(&w, "prefill_tokens_s", pace_rate(&t->prefill));
    jwrite_double(&w, "decode_tokens_s", pace_rate(&t->decode));
    if (r->spec->input.source.format == DATA_OPENAI_BATCH) {
        jwrite_int(&w, "refused", t->n_refused);
        jwrite_int(&w, "resumed", t->n_resumed);
    }
    run_write_account(&w, r, t->ledger_equal, m);
    jwrite_end(&w);
    if (jwrite_finish(&w) < 0) return err_set(e, ERR_TOO_LARGE, "the result is too long");
    return link_send_result(r->link, json, e);
}

/* Computes the digest of the weights, and loads the context that precedes the prompts. Only
 * rank 0 reads the context, because rank 0 computes the beginning of every sequence. */
static int open_context(struct run *r, struct model *m, struct task_context *c, struct err *e)
{
    char path[RANK_PATH_SIZE];
    const struct job_spec *s = r->spec;
    const char *const of = !spec_random_weights(s) ? "model.path the model that made it"
                           : spec_new_model(s)     ? "model.config and seed of the job that made it"
                                                   : "model.path and seed of the job that made it";
    if (!*spec_text(s, s->context.load) && !s->context.save) return 0;
    const struct hf_flat weights = {"", NULL, m->dtype, stored_give, m};
    if (hf_flat_digest(&m->shape, &weights, c->context.model, e)) return -1;
    if (!*spec_text(s, s->context.load)) return 0;
    if (context_layout_init(&c->layout, &m->shape, e)) return -1;
    char *const states = model_take(m, PLAN_CONTEXT_BEFORE, c->layout.size);
    c->context.states = plan_on_host(&m->plan->item[PLAN_CONTEXT_BEFORE], m->arena, m->host);
    c->context.stride = c->layout.stride;
    if (run_first(r) &&
        (roots_file(spec_text(s, s->context.load), r->roots, r->n_roots, "context.load", path, e) ||
         context_read(path, &c->layout, of, &c->context, e)))
        return -1;
    if (c->context.states != states)
        m->be->ops->upload(m->be, states, c->context.states, c->layout.size);
    c->context.states = states;
    if (!r->comm) return 0;
    return comm_broadcast(r->comm, PURPOSE_CONTROL, 0, &c->context.n_tokens,
                          sizeof c->context.n_tokens, m->bounce, e);
}

int task_generate(struct run *r, struct err *e)
{
    struct token_ends ends = {0};
    struct vocabulary vocabulary = {0};
    struct model_tokenizer own = {0};
    struct prompts p = {0};
    struct infer_text out = {0};
    struct model *m = NULL;
    struct task_context c = {0};
    int rc = -1;
    if (family_diffusion(&r->spec->model.shape)) return task_sample(r, e);
    if (run_first(r) && prompts_read(&p, r->spec, r->roots, r->n_roots, e)) goto out;
    if (run_first(r) && model_tokenizer_open(r, &own, e)) goto out;
    m = task_open_model(r, e);
    if (!m || prompts_share(&p, r->comm, m->bounce, e)) goto out;
    if (model_tokenizer_share(r, &own, m->bounce, e)) goto out;
    if (open_context(r, m, &c, e)) goto out;
    struct infer in = {m, r->spec, r->args->job_dir, run_stopped, r, &r->progress};
    in.shared_epoch = r->args->shared ? r->args->epoch : 0;
    in.leave = run_leave;
    if (c.context.states) in.context = &c.context;
    in.digest = c.context.model;
    in.tokenizer = own.tokenizer;
    in.no_tokenizer = &own.why;
    in.chat = (struct request_chat){&own.chat, &own.no_chat, r->args->submitted_s};
    in.vocabulary = &vocabulary;
    if (text_ends_open(r, m, &ends, &in, e)) goto out;
    if (task_check_fence(r, e) || infer_generate(&in, &p, &out, e)) goto out;
    const struct artifact_done *const done[] = {&out.artifact, &out.errors, &out.context};
    if (run_first(r) && (task_send_artifacts(r, done, 3, e) || send_text(r, &out, m, e) ||
                         task_check_answered(out.n_prompts, out.n_refused, &out.refused, e)))
        goto out;
    rc = 0;
out:
    context_layout_fini(&c.layout);
    infer_text_fini(&out);
    prompts_fini(&p);
    vocabulary_fini(&vocabulary);
    model_tokenizer_fini(&own);
    free(m);
    return rc;
}
