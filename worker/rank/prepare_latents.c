/* prepare_latents.c: reads the header of every sample, checks whether the model can learn from
 * the sample, and reports the counts and the largest sizes. */
#include "worker/rank/prepare_latents.h"

#include "api/core/job.h"
#include "api/core/jwrite.h"
#include "worker/data/flow.h"

struct seen { /* Counts of the training set or of the evaluation set. */
    int64_t n_samples, patches, values;
    int64_t largest; /* number of patches of the largest sample */
};

static int look_at(struct run *r, const struct data_order *o, int64_t n, struct seen *s,
                   const struct data *d, struct err *e)
{
    struct latents_sample x;
    int64_t grid[3];
    if (latents_sample(o, n, &x, e) || latents_check(d, r->spec, &x, e)) return -1;
    flow_grid(&r->spec->model.shape, &x, grid);
    const int64_t patches = grid[0] * grid[1] * grid[2];
    s->n_samples++;
    s->patches += patches;
    s->values += x.C * x.T * x.H * x.W;
    if (patches > s->largest) s->largest = patches;
    return 0;
}

static int look_at_all(struct run *r, const struct data *d, int set, struct seen *s, struct err *e)
{
    struct order_options oo = latents_order_options(r->spec, set);
    int rc = 0;
    *s = (struct seen){0};
    /* with in_order, the order has every sample exactly once, even if the sources have weights */
    oo.in_order = true;
    struct data_order *o = data_order_open(d, &oo, e);
    if (!o) return -1;
    for (int64_t n = 0; !rc && n < data_order_samples(o); n++) rc = look_at(r, o, n, s, d, e);
    data_order_close(o);
    return rc;
}

/* Counts the samples of a pass in the way in which a training counts them. If the sources have
 * weights, a pass may contain a sample several times or not at all. */
static int count_pass(const struct run *r, const struct data *d, int64_t *n, struct err *e)
{
    const struct order_options oo = latents_order_options(r->spec, SET_TRAIN);
    struct data_order *o = data_order_open(d, &oo, e);
    if (!o) return -1;
    *n = data_order_samples(o);
    data_order_close(o);
    return 0;
}

static void write_set(struct jwrite *w, const char *set, const struct seen *s)
{
    jwrite_object(w, NULL);
    jwrite_str(w, "set", set);
    jwrite_int(w, "samples", s->n_samples);
    jwrite_int(w, "patches", s->patches);
    jwrite_int(w, "values", s->values);
    jwrite_int(w, "largest_patches", s->largest);
    jwrite_end(w);
}

int prepare_latents(struct run *r, const struct data *d, struct err *e)
{
    struct seen train, eval = {0};
    char json[RANK_RESULT_SIZE];
    struct jwrite w;
    int64_t per_pass;
    if (look_at_all(r, d, SET_TRAIN, &train, e) || count_pass(r, d, &per_pass, e)) return -1;
    const bool held_out = data_stats(d)->eval_documents > 0;
    if (held_out && look_at_all(r, d, SET_EVAL, &eval, e)) return -1;
    jwrite_init(&w, json, sizeof json);
    jwrite_object(&w, NULL);
    jwrite_str(&w, "prepared_id", data_stats(d)->id);
    jwrite_int(&w, "n_tokens", train.patches);
    jwrite_int(&w, "n_documents", train.n_samples);
    jwrite_array(&w, "orders");
    write_set(&w, "train", &train);
    if (held_out) write_set(&w, "eval", &eval);
    jwrite_end(&w);
    jwrite_int(&w, "samples_per_pass", per_pass);
    jwrite_end(&w);
    if (jwrite_finish(&w) < 0) return err_set(e, ERR_TOO_LARGE, "the result is too long");
    return link_send_result(r->link, json, e);
}
