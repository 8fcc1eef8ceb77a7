/* reference.c: builds a batch from tokens and document ends, checks the packer's fragments, and
 * runs the samples one after another. */
#include "worker/verify/reference.h"

#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/job.h"
#include "kernels/philox.h"
#include "worker/family/family.h"
#include "worker/plan/slice.h"
#include "worker/train/scale.h"
#include "worker/verify/flow.h"
#include "worker/verify/proof.h"

void reference_dropout(const struct job_spec *spec, struct model *m)
{
    m->sp.drop.rate = spec->train.attention_dropout;
    m->sp.drop.adapters = m->shape.adapter.rank ? m->shape.adapter.dropout : 0;
    m->sp.drop.noise = spec->train.neftune_alpha;
    philox_key(spec->seed, 1, m->sp.drop.key);
}

void reference_unscale(const struct reference *r, float *grad, int64_t n)
{
    const struct model *m = &r->model;
    const double scale = scale_fixed(r->a->spec, n);
    const struct tensor g = tensor_f32(grad, 1, m->plan->n_trained, m->plan->n_trained);
    if (scale != 1)
        m->be->ops->mix(m->be, &(struct mix_args){.a = g, .y = g, .alpha = (float)(1 / scale)});
}

/* ---- a batch from first principles ----------------------------------------------------------- */

/* Checks a fragment. It must be in one document. It may end before the document's end only in two
 * cases: it ends at the end of the sequence, or the document was too long and was divided
 * there. */
static int check_fragment(const struct data *d, const struct fragment *f, int64_t pos, int64_t S,
                          struct err *e)
{
    const uint64_t *ends = data_documents(d);
    const int64_t start = f->document ? (int64_t)ends[f->document - 1] : 0;
    const int64_t end = (int64_t)ends[f->document], z = f->token + f->length;
    if (f->token >= start && f->length > 0 && z <= end &&
        (z == end || pos + f->length == S || f->length == S))
        return 0;
    return err_set(e, ERR_INTERNAL,
                   "the packer put tokens [%lld, %lld) into one fragment; document %lld is "
                   "[%lld, %lld)",
                   (long long)f->token, (long long)z, (long long)f->document, (long long)start,
                   (long long)end);
}

/* Fills rows for a model whose tokens see the tokens before and after them. Sets the rows that
 * each row sees, and the hidden tokens that the model must predict. */
static int hide_fragment(const struct verify_args *a, struct batch *b, const struct fragment *f,
                         int64_t pos, struct err *e)
{
    const struct mask_rule rule = data_order_options(a->spec, SET_TRAIN, 0).mask;
    const bool alone = a->spec->data.document_mask != 0;
    for (int64_t i = 0; i < f->length; i++) {
        const int64_t row = pos + i;
        uint8_t learn;
        if (data_read_mask(a->data, f->token + i, 1, &learn, e)) return -1;
        b->targets[row] = -1;
        if (learn) b->ids[row] = mask_token(&rule, b->sample, row, b->ids[row], &b->targets[row]);
        b->pos[row] = a->spec->data.reset_positions ? i : row;
        b->lo[row] = alone ? pos : 0;
        b->hi[row] = alone ? pos + f->length : b->n_tokens;
        b->n_targets += b->targets[row] >= 0;
    }
    return 0;
}

/* Fills rows [pos, pos + f->length) of one sequence on one rank. The packer only says which tokens
 * these are. This function computes their positions, their targets and the range of rows that each
 * row sees. */
static int fill_fragment(const struct verify_args *a, struct batch *b, const struct fragment *f,
                         int64_t pos, struct err *e)
{
    uint8_t learn = 0;
    if (data_read(a->data, f->token, f->length, b->ids + pos, e)) return -1;
    if (family_masked(&a->spec->model.shape)) return hide_fragment(a, b, f, pos, e);
    for (int64_t i = 0; i < f->length; i++) {
        const int64_t row = pos + i;
        const bool last = i + 1 == f->length;
        if (!last && data_read_mask(a->data, f->token + i + 1, 1, &learn, e)) return -1;
        b->targets[row] = last || !learn ? -1 : b->ids[row + 1];
        b->pos[row] = a->spec->data.reset_positions ? i : row;
        b->lo[row] = a->spec->data.document_mask ? pos : 0;
        b->hi[row] = row + 1;
        b->n_targets += b->targets[row] >= 0;
    }
    return 0;
}

/* Fills the batch with sample i as one sequence of S rows on one rank. */
static int fill_tokens(struct reference *r, int64_t i, struct err *e)
{
    struct model *m = &r->model;
    struct batch *b = &m->batch;
    struct sample s;
    int64_t pos = 0;
    data_sample(r->order, i, &s);
    b->n_targets = r->pairs.n = 0;
    b->n_tokens = s.n_tokens;
    for (int64_t k = 0; k < s.n_fragments; k++) {
        struct fragment f;
        const int64_t before = b->n_targets;
        data_fragment(r->order, &s, k, &f);
        if (check_fragment(r->a->data, &f, pos, m->plan->S, e)) return -1;
        if (fill_fragment(r->a, b, &f, pos, e)) return -1;
        if (r->plan.pairs && pairs_note(&r->pairs, r->a->data, &f, pos, b->n_targets - before, e))
            return -1;
        pos += f.length;
    }
    b->n_tokens = pos;
    for (; pos < m->plan->T; pos++) {
        b->ids[pos] = token_pad(m->shape.vocab), b->targets[pos] = -1;
        b->pos[pos] = b->lo[pos] = b->hi[pos] = 0;
    }
    return 0;
}

int32_t *reference_routes(struct reference *r, int64_t i)
{
    const struct plan_item *it = &r->plan.item[PLAN_ROUTES];
    if (!r->model.route_room) return NULL;
    return (int32_t *)((char *)r->model.route_room + i * it->stride);
}

/* Makes the model use the experts that the ranks chose for sample i. */
static void follow(struct reference *r, int64_t i)
{
    const struct model_shape *s = &r->model.shape;
    r->routing.follow = true;
    r->routing.expert = reference_routes(r, i);
    r->routing.own = r->routing.expert + s->n_layers * r->plan.T * s->experts_per_token;
    r->model.routing = &r->routing;
}

static int fill(struct reference *r, int64_t i, struct err *e)
{
    struct model *m = &r->model;
    if (m->route_room) follow(r, i);
    const struct flow_source flow = verify_flow_source(r->a, r->order);
    if (r->filled == i) return 0;
    r->filled = -1;
    m->batch.sample = i;
    if (m->plan->grid[0] ? verify_flow_reference(&flow, m, e) : fill_tokens(r, i, e)) return -1;
    r->filled = i;
    return 0;
}

/* Counts the targets and the pairs of all samples, because the loss of each sample is divided by
 * one of these counts. The loop runs from the last sample to the first, so that the batch has the
 * first sample afterwards. */
static int count_targets(struct reference *r, struct verify_pairs *v, struct err *e)
{
    for (int64_t i = r->n_samples - 1; i >= 0; i--) {
        if (fill(r, i, e)) return -1;
        r->n_targets += r->model.batch.n_targets;
        if (r->plan.pairs && pairs_match(&r->pairs, r->order, i, v, e)) return -1;
    }
    r->n_pairs = v->n_1;
    return 0;
}

bool reference_fills(const struct model *m)
{
    return m->shape.quant && (m->plan->tp > 1 || m->plan->pp > 1);
}

/* ---- opening --------------------------------------------------------------------------------- */

static void note_placed(struct reference *r)
{
    struct model *m = r->a->model;
    const struct plan_item device = {.offset = m->plan->reference_offset};
    const struct plan_item host = {.offset = m->plan->reference_host_offset, .in_host = true};
    model_note_placed(m, &device, r->model.arena_end);
    model_note_placed(m, &host, r->model.host_end);
}

static int place(struct reference *r, struct verify *out, struct err *e)
{
    struct model *m = r->a->model;
    const struct model_shape whole = slice_whole(&m->shape);
    const struct plan_item *all = &r->plan.item[PLAN_GRAD_ACC];
    const bool own = r->plan.item[PLAN_PARAMS].name != NULL;
    struct model_options o = {.shape = &whole,
                              .plan = &r->plan,
                              .be = m->be,
                              .n_ranks = 1,
                              .arena = m->arena + m->plan->reference_offset,
                              .host = m->host ? m->host + m->plan->reference_host_offset : NULL,
                              .params = own ? NULL : m->params};
    if (model_init(&r->model, &o, e)) return -1;
    if (r->plan.pairs) pairs_one_init(&r->pairs, r->a->spec, &r->model);
    if (r->plan.pairs) r->rounding.pairs = &r->pairs;
    out->grad = m->grad;
    if (all->name) out->grad = (float *)((char *)o.arena + all->offset);
    if (all->name) model_note_placed(&r->model, all, all->size);
    note_placed(r);
    return 0;
}

/* Fills the reference's own weights if they cannot be gathered. */
static int fill_weights(struct reference *r, struct err *e)
{
    const struct verify_args *a = r->a;
    if (!reference_fills(a->model)) return 0;
    assert(a->weights && r->plan.item[PLAN_PARAMS].name);
    return a->weights(a->weights_arg, &r->model, e);
}

struct reference *reference_open(const struct verify_args *a, const struct data_order *order,
                                 struct verify *out, struct err *e)
{
    struct reference *r = calloc(1, sizeof *r);
    if (!r) {
        err_set(e, ERR_IO, "out of memory for the reference");
        return NULL;
    }
    r->a = a;
    r->order = order;
    r->filled = r->kept = -1;
    r->n_samples = plan_verify_samples(a->model->plan);
    if (plan_reference(a->spec, a->model->plan, &r->plan, e) || place(r, out, e) ||
        fill_weights(r, e) || count_targets(r, &out->pairs, e)) {
        reference_close(r);
        return NULL;
    }
    if (r->model.route_room)
        memset(r->model.route_room, ROUTING_OWN, (size_t)r->plan.item[PLAN_ROUTES].size);
    out->targets_1 = r->n_targets;
    r->model.progress = a->progress;
    return r;
}

void reference_close(struct reference *r)
{
    if (r) rounding_fini(&r->rounding);
    if (r) pairs_one_fini(&r->pairs);
    free(r);
}

/* ---- running --------------------------------------------------------------------------------- */

/* Returns the number of targets or pairs over which the loss is a mean. */
static int64_t mean_of(const struct reference *r)
{
    return proof_mean_of(r->n_targets, r->n_pairs);
}

static float loss_scale(const struct reference *r)
{
    return (float)(scale_fixed(r->a->spec, mean_of(r)) / (double)mean_of(r));
}

static void clear_gradient(struct reference *r)
{
    r->model.be->ops->fill(r->model.be, r->model.grad, r->plan.n_grad, 0);
}

static void begin(struct reference *r)
{
    struct progress *p = r->model.progress;
    progress_piece(p, progress_done(p), (double)r->plan.S);
}

int reference_run(struct reference *r, int64_t i, struct err *e)
{
    struct model *m = &r->model;
    double nll = 0;
    begin(r);
    if (i == 0) clear_gradient(r);
    if (fill(r, i, e)) return -1;
    if (r->plan.pairs && pairs_base(&r->pairs, e)) return -1;
    reference_dropout(r->a->spec, m);
    r->routing.judged = true;
    const int rc = model_grad(m, &m->batch, loss_scale(r), &nll, e);
    r->routing.judged = false;
    if (!rc) r->nll += nll;
    return rc;
}

int reference_end(struct reference *r, struct verify *v, struct err *e)
{
    if (model_reduce_grad(&r->model, e)) return -1;
    reference_unscale(r, r->model.grad, mean_of(r));
    v->loss_1 = r->nll / (double)mean_of(r);
    pairs_end(&r->pairs, &v->pairs);
    v->routes = (struct verify_routes){r->routing.rows, r->routing.turned, r->routing.gap};
    return 0;
}

/* Computes the loss and the logits of sample i again, unless the batch still has that sample. The
 * results have the bits of the sample's first run. Progress does not count this pass. */
static int show(struct reference *r, int64_t i, struct err *e)
{
    struct model *m = &r->model;
    struct progress *told = m->progress;
    double nll;
    if (r->filled == i) return 0;
    if (fill(r, i, e)) return -1;
    m->progress = NULL;
    m->trained_loss = true;
    const int rc = (r->plan.pairs && pairs_base(&r->pairs, e)) || model_forward(m, &m->batch, e) ||
                   model_nll(m, &m->batch, &nll, e) ||
                   (r->plan.pairs && m->weigh.call(m->weigh.arg, &nll, e));
    m->trained_loss = false;
    m->progress = told;
    return rc ? -1 : 0;
}

/* Keeps a sample's results. If there is one sample, it is kept once for all runs. If there are
 * several samples, each sample's results replace the results of the previous sample. */
static int keep(struct reference *r, int64_t i, struct err *e)
{
    if (r->kept == i) return 0;
    if (show(r, i, e) || rounding_keep(&r->rounding, &r->model, e)) return -1;
    r->kept = i;
    return 0;
}

int reference_again(struct reference *r, int run, struct err *e)
{
    struct model *m = &r->model;
    clear_gradient(r);
    for (int64_t i = r->n_samples - 1; i >= 0; i--) {
        begin(r);
        if (keep(r, i, e) || rounding_run(&r->rounding, m, run, loss_scale(r), e)) return -1;
    }
    if (model_reduce_grad(m, e)) return -1;
    rounding_end(&r->rounding, m->dtype);
    reference_unscale(r, m->grad, mean_of(r));
    return 0;
}
