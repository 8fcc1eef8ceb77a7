#include <stdlib.h>
#include <string.h>

#include "api/core/jwrite.h"
#include "worker/rank/run.h"
#include "worker/rank/weights.h"
#include "worker/train/score.h"

#define RESULT_TEXT_SIZE                                                                           \
    4096 /* bytes of generated text in a RESULT; all of it is in the artifact */

/* A model that only infers, with its weights. */
static struct model *open_model(struct run *r, struct err *e)
{
    struct model *m = calloc(1, sizeof *m);
    struct model_options o;
    struct weights_start from;
    if (!m) {
        err_set(e, ERR_IO, "out of memory");
        return NULL;
    }
    run_model_options(r, &o);
    if (!model_init(m, &o, e)) {
        struct ckpt_arrays a = {.params = m->params};
        if (!weights_load(r, m, &a, &from, e)) return m;
    }
    free(m);
    return NULL;
}

static int send_score(struct run *r, const struct score *s, int64_t high, struct err *e)
{
    char json[2048];
    struct jwrite w;
    jwrite_init(&w, json, sizeof json);
    jwrite_object(&w, NULL);
    jwrite_double(&w, "nll", s->total.nll);
    jwrite_int(&w, "tokens", s->total.n_targets);
    jwrite_int(&w, "bytes", s->total.n_bytes);
    jwrite_double(&w, "ppl", score_ppl(&s->total));
    jwrite_double(&w, "bits_per_byte", score_bits_per_byte(&s->total));
    jwrite_int(&w, "documents", s->n_documents);
    run_write_account(&w, r, s->ledger_equal, high);
    jwrite_end(&w);
    if (jwrite_finish(&w) < 0) return err_set(e, ERR_TOO_LARGE, "the result is too long");
    return link_send_result(r->link, json, e);
}

int task_score(struct run *r, struct err *e)
{
    struct score out;
    struct model *m = open_model(r, e);
    if (!m) return -1;
    struct infer in = {m, r->spec, r->args->job_dir, run_stopped, r};
    int rc = score_run(&in, r->data, &out, e);
    if (!rc && run_first(r))
        rc = run_send_artifact(r, &out.artifact, e) || send_score(r, &out, run_memory_high(m, 0), e)
                 ? -1
                 : 0;
    free(m);
    return rc;
}

/* The longest prefix of at most n bytes that ends between characters. */
static size_t utf8_prefix(const char *s, size_t len, size_t n)
{
    if (len <= n) return len;
    while (n > 0 && ((unsigned char)s[n] & 0xC0) == 0x80) n--;
    return n;
}

static int send_text(struct run *r, const struct infer_text *t, int64_t high, struct err *e)
{
    char json[RANK_RESULT_SIZE];
    struct jwrite w;
    const char *text = t->text ? t->text : ""; /* all answered by an earlier attempt, or refused */
    size_t len = strlen(text), shown = utf8_prefix(text, len, RESULT_TEXT_SIZE);
    jwrite_init(&w, json, sizeof json);
    jwrite_object(&w, NULL);
    jwrite_strn(&w, "text", text, shown);
    jwrite_bool(&w, "text_cut", shown < len);
    jwrite_str(&w, "finish_reason", infer_finish_name(t->finish));
    jwrite_int(&w, "prompts", t->n_prompts);
    jwrite_int(&w, "n_prompt_tokens", t->n_prompt_tokens);
    jwrite_int(&w, "n_tokens", t->n_tokens);
    if (r->spec->input.source.format == DATA_OPENAI_BATCH) {
        jwrite_int(&w, "refused", t->n_refused);
        jwrite_int(&w, "resumed", t->n_resumed);
    }
    run_write_account(&w, r, t->ledger_equal, high);
    jwrite_end(&w);
    if (jwrite_finish(&w) < 0) return err_set(e, ERR_TOO_LARGE, "the result is too long");
    return link_send_result(r->link, json, e);
}

int task_generate(struct run *r, struct err *e)
{
    struct prompts p = {0};
    struct infer_text out = {0};
    struct model *m = NULL;
    int rc = -1;
    if (run_first(r) && prompts_read(&p, r->spec, r->roots, r->args->n_roots, e)) goto out;
    m = open_model(r, e);
    if (!m || prompts_share(&p, r->comm, m->bounce, e)) goto out;
    struct infer in = {m, r->spec, r->args->job_dir, run_stopped, r};
    if (infer_generate(&in, &p, &out, e)) goto out;
    if (run_first(r) && (run_send_artifact(r, &out.artifact, e) ||
                         (*out.errors.name && run_send_artifact(r, &out.errors, e)) ||
                         send_text(r, &out, run_memory_high(m, 0), e)))
        goto out;
    rc = 0;
out:
    infer_text_fini(&out);
    prompts_fini(&p);
    free(m);
    return rc;
}
