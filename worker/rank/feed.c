/* feed.c: opens one order of samples for each sequence length of the stages, and one order for
 * the windows of the held-out evaluation. */
#include "worker/rank/feed.h"

#include "api/core/assert.h"
#include "api/core/job.h"
#include "worker/family/family.h"
#include "worker/plan/stage.h"

/* Returns the first stage whose sequence length is that of `stage`. All stages with this
 * length use one order, which is stored for the first of them. */
static int first_of_length(const struct job_spec *s, int stage)
{
    int i = -1;
    while (stage_seq_len(s, i) != stage_seq_len(s, stage)) i++;
    return i;
}

static bool latents(const struct job_spec *s)
{
    return family_diffusion(&s->model.shape);
}

static struct order_options order_options(const struct job_spec *s, int set, int64_t seq_len)
{
    return latents(s) ? latents_order_options(s, set) : data_order_options(s, set, seq_len);
}

static struct data_order *open_stage(const struct run *r, int stage, struct err *e)
{
    const int64_t seq_len = stage_seq_len(r->spec, stage);
    struct order_options o = order_options(r->spec, SET_TRAIN, seq_len);
    return data_order_open(r->data, &o, e);
}

static int open_eval(struct feed *f, const struct run *r, struct err *e)
{
    const struct job_spec *s = r->spec;
    const struct order_options o = order_options(s, SET_EVAL, 0);
    f->eval = data_order_open(r->data, &o, e);
    if (!f->eval) return -1;
    f->n_eval = data_order_samples(f->eval);
    const int64_t most = s->eval.max_tokens / stage_eval_seq_len(s);
    if (s->eval.max_tokens > 0 && most < f->n_eval) f->n_eval = most > 0 ? most : 1;
    return 0;
}

int feed_open(struct feed *f, struct run *r, struct err *e)
{
    *f = (struct feed){0};
    for (int i = -1; i < r->spec->n_stages; i++) {
        if (first_of_length(r->spec, i) != i) continue;
        f->order[i + 1] = open_stage(r, i, e);
        if (!f->order[i + 1]) return -1;
    }
    if (r->spec->eval.n_data && open_eval(f, r, e)) return -1;
    f->train_latents = (struct flow_source){r->data, f->order[0], r->spec, false};
    f->eval_latents = (struct flow_source){r->data, f->eval, r->spec, true};
    return 0;
}

void feed_close(struct feed *f)
{
    for (int i = 0; i <= SPEC_STAGES; i++) data_order_close(f->order[i]);
    data_order_close(f->eval);
    *f = (struct feed){0};
}

struct train_source feed_stage(const struct feed *f, const struct job_spec *s, int stage)
{
    if (latents(s)) return train_source_latents(&f->train_latents);
    return train_source_order(f->order[first_of_length(s, stage) + 1]);
}

struct train_source feed_eval(const struct feed *f, const struct job_spec *s)
{
    assert(f->eval);
    if (latents(s)) return train_source_latents(&f->eval_latents);
    return train_source_order(f->eval);
}

int feed_samples(const struct run *r, int64_t samples[SPEC_STAGES + 1], struct err *e)
{
    for (int i = -1; i < r->spec->n_stages; i++) {
        struct data_order *o = open_stage(r, i, e);
        if (!o) return -1;
        samples[i + 1] = data_order_samples(o);
        data_order_close(o);
    }
    return 0;
}
