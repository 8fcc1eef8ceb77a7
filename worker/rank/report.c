/* report.c: inspects a directory (worker/hf/inspect.h), opens its tokenizer and template, and
 * writes the report as JSON. */
#include "worker/rank/report.h"

#include <stdio.h>
#include <stdlib.h>
#include "api/core/beneath.h"
#include "api/core/job.h"
#include "api/core/jwrite.h"
#include "worker/family/family.h"
#include "worker/gguf/model_file.h"
#include "worker/hf/inspect.h"
#include "worker/plan/plan.h"
#include "worker/text/chat_model.h"
#include "worker/text/tokenizer.h"

struct report {
    struct hf_summary s;
    struct faults faults;
    bool tokenizer, template;
    bool tokenizer_loads, template_loads;
    int64_t tokenizer_size; /* 1 + the largest id */
};

static void look_at_tokenizer(const char *dir, struct report *r)
{
    struct err e = {0};
    r->tokenizer = r->s.tokenizer == TOKENIZER_OWN || r->s.tokenizer == TOKENIZER_BYTE;
    if (!r->tokenizer) return;
    struct tokenizer *t = tokenizer_open(dir, &e);
    r->tokenizer_loads = t;
    if (!t) {
        err_prefix(&e, "its text is not read, token ids alone are");
        faults_add(&r->faults, &e);
        return;
    }
    r->tokenizer_size = tokenizer_size(t);
    tokenizer_destroy(t);
    if (!r->s.known || r->tokenizer_size <= r->s.shape.vocab) return;
    err_set(&e, ERR_INVALID,
            "%.200s/tokenizer.json: it has id %lld, and vocab_size of config.json is %lld: the two "
            "are of different models",
            dir, (long long)r->tokenizer_size - 1, (long long)r->s.shape.vocab);
    faults_add(&r->faults, &e);
}

static void look_at_template(const char *dir, struct report *r)
{
    struct err e = {0};
    struct chat_model m = {0};
    if (r->s.unreadable) return;
    r->template_loads = chat_model_open(&m, dir, &e) == 0;
    r->template = m.t || !r->template_loads;
    r->template_loads &= r->template;
    if (e.code) faults_add(&r->faults, &e);
    chat_model_close(&m);
}

static void int_or_null(struct jwrite *w, const char *key, int64_t v)
{
    if (v)
        jwrite_int(w, key, v);
    else
        jwrite_null(w, key);
}

/* Writes how many bytes the weights have with each value of model.weights that uses blocks.
 * Writes null for a value that is refused. */
static void put_blocks(struct jwrite *w, const struct hf_summary *s)
{
    const bool text = s->known && s->n_params && !family_diffusion(&s->shape);
    jwrite_object(w, "blocks_bytes");
    for (int f = WEIGHTS_MODEL + 1; f < WEIGHTS_N; f++)
        int_or_null(w, spec_weights_words[f],
                    text ? plan_blocks_size(&s->shape, (enum weights_id)f) : 0);
    jwrite_end(w);
}

/* Writes the reason why the weights of this model cannot be stored in blocks. Writes null if they
 * can be stored in blocks, or if the sizes are not known. */
static void put_blocks_fault(struct jwrite *w, const struct hf_summary *s)
{
    char room[PLAN_FAULT_SIZE];
    const char *why = !s->known || !s->n_params ? NULL
                      : family_diffusion(&s->shape)
                          ? "model.weights is for models of text"
                          : plan_blocks_fault(&s->shape, WEIGHTS_INT8, room);
    if (why)
        jwrite_str(w, "blocks_fault", why);
    else
        jwrite_null(w, "blocks_fault");
}

/* Writes the text of a fault, or null if there is no fault. */
static void put_fault(struct jwrite *w, const char *key, const struct err *why)
{
    if (why->code == ERR_NONE)
        jwrite_null(w, key);
    else
        jwrite_str(w, key, why->text);
}

static void put(struct jwrite *w, const char *path, const struct report *r, int max_faults)
{
    static const char *const kinds[] = {
        [TOKENIZER_AUTO] = "none", [TOKENIZER_BYTE] = "byte", [TOKENIZER_OWN] = "own"};
    jwrite_object(w, NULL);
    jwrite_str(w, "path", path);
    jwrite_bool(w, "loads", r->s.loads);
    jwrite_str(w, "model_type", r->s.model_type);
    if (r->s.known)
        jwrite_str(w, "family", r->s.family);
    else
        jwrite_null(w, "family");
    int_or_null(w, "parameters", r->s.n_params);
    jwrite_int(w, "weights_bytes", r->s.weights_size);
    put_fault(w, "weights_fault", &r->s.weights_fault);
    put_blocks(w, &r->s);
    put_blocks_fault(w, &r->s);
    jwrite_str(w, "dtypes", r->s.dtypes);
    jwrite_object(w, "tokenizer");
    jwrite_str(w, "kind", r->tokenizer ? kinds[r->s.tokenizer] : "none");
    int_or_null(w, "size", r->tokenizer_size);
    jwrite_bool(w, "loads", r->tokenizer_loads);
    put_fault(w, "fault", &r->s.tokenizer_fault);
    jwrite_end(w);
    jwrite_object(w, "chat_template");
    jwrite_bool(w, "there", r->template);
    jwrite_bool(w, "loads", r->template_loads);
    jwrite_end(w);
    if (r->s.ends_known) {
        jwrite_array(w, "generation_ends");
        for (int i = 0; i < r->s.ends.n; i++) jwrite_int(w, NULL, r->s.ends.id[i]);
        jwrite_end(w);
    } else {
        jwrite_null(w, "generation_ends");
    }
    jwrite_array(w, "faults");
    for (int i = 0; i < faults_kept(&r->faults) && i < max_faults; i++)
        jwrite_str(w, NULL, r->faults.fault[i].text);
    jwrite_end(w);
    jwrite_int(w, "n_faults", r->faults.n);
    jwrite_end(w);
}

int64_t report_write(const char *dir, const char *path, int max_faults, char *out, size_t size,
                     int *n_faults)
{
    static struct report r;
    struct jwrite w;
    r = (struct report){0};
    struct gguf *const kept = model_file_keep(dir);
    hf_inspect(dir, &r.s, &r.faults);
    look_at_tokenizer(dir, &r);
    look_at_template(dir, &r);
    model_file_leave(kept);
    jwrite_init(&w, out, size);
    put(&w, path, &r, max_faults);
    *n_faults = r.faults.n;
    return jwrite_finish(&w);
}

void report_failed(const char *path, const char *why, char *out, size_t size)
{
    static struct report r;
    struct err e;
    struct jwrite w;
    r = (struct report){0};
    err_set(&e, ERR_INVALID, "%s", why);
    faults_add(&r.faults, &e);
    r.s.weights_fault = r.s.tokenizer_fault = e;
    r.s.unreadable = true;
    jwrite_init(&w, out, size);
    put(&w, path, &r, 1);
    if (jwrite_finish(&w) > 0) return;
    jwrite_init(&w, out, size); /* the path alone is too long for the report */
    put(&w, "", &r, 1);
    jwrite_finish(&w);
}

int report_main(const char *dir, const char *const *roots, int n_roots)
{
    static char out[REPORT_SIZE];
    int n_faults;
    beneath_confine(roots, n_roots);
    if (report_write(dir, dir, FAULTS, out, sizeof out, &n_faults) < 0) {
        fprintf(stderr, "the report of %s does not fit\n", dir);
        return 1;
    }
    return puts(out) < 0 || fflush(stdout) || n_faults ? 1 : 0;
}
