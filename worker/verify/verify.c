#include "worker/verify/verify.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/job.h"
#include "api/core/jwrite.h"
#include "api/core/mutant.h"
#include "kernels/philox.h"
#include "worker/comm/ledger.h"
#include "worker/family/family.h"
#include "worker/hf/hf.h"
#include "worker/model/host_copy.h"
#include "worker/plan/volume.h"
#include "worker/train/scale.h"
#include "worker/verify/flow.h"
#include "worker/verify/gather.h"
#include "worker/verify/keep.h"
#include "worker/verify/rounding.h"

/* Logits of one chunk from all ranks together; rank 0 holds them outside the plan. */
#define GATHER_SIZE ((int64_t)4 << 20)

/* Both sides drop the same weights of attention: those of the first step. */
static void set_dropout(const struct job_spec *spec, struct model *m)
{
    m->sp.drop.rate = spec->train.attention_dropout;
    philox_key(spec->seed, 1, m->sp.drop.key);
}

/* ---- the ranks' side: as in training --------------------------------------------------------- */

/* A diffusion model, whose data verify_flow.c knows. */
static bool latents(const struct model *m)
{
    return m->plan->grid[0] > 0;
}

static struct flow_source flow_of(const struct verify_args *a, const struct data_order *order)
{
    return (struct flow_source){a->data, order, a->spec, false};
}

/* All rings run the same tokens, and their sum is n times one ring's. */
static int copies(const struct model *m)
{
    return plan_sum_ranks(m->plan) / m->plan->sp;
}

/* The scale of the loss comes off its gradient: a power of two, exactly. */
static void unscale(const struct model *m, float *grad, double scale)
{
    const struct tensor g = tensor_f32(grad, 1, m->plan->n_params, m->plan->n_params);
    if (scale != 1)
        m->be->ops->mix(m->be, &(struct mix_args){.a = g, .y = g, .alpha = (float)(1 / scale)});
}

/* Where a fault is injected. */
static void drop_grad(const struct verify_args *a)
{
    struct model *m = a->model;
    struct param p;
    if (!mutant_on(MUTANT_GRAD_DROPPED) || m->rank != 0) return;
    param_get(&m->shape, mutant_tensor(), &p);
    m->be->ops->fill(m->be, m->grad + p.offset, p.count, 0);
}

/* v->ledger_equal is true on a rank only if it is true on all of c. */
static int agree(struct comm *c, const struct model *m, struct verify *v, struct err *e)
{
    int64_t bad = !v->ledger_equal;
    if (c && comm_sum_i64(c, PURPOSE_CONTROL, &bad, 1, m->bounce, e)) return -1;
    v->ledger_equal = bad == 0;
    return 0;
}

static int run_ranks(const struct verify_args *a, const struct data_order *order, struct verify *v,
                     struct err *e)
{
    struct model *m = a->model;
    struct comm_count want[PURPOSE_N];
    const int n_copies = copies(m);
    double nll;
    progress_piece(m->progress, 0, (double)m->sp.shard.T);
    if (a->want)
        memcpy(want, a->want, sizeof want);
    else
        plan_comm(&m->shape, m->plan, m->world ? comm_rank(m->world) : 0, want);
    const struct flow_source flow = flow_of(a, order);
    if (latents(m) ? verify_flow_ranks(a, &flow, want, e)
                   : data_batch(order, &m->sp.shard, 0, &m->batch, e))
        return -1;
    set_dropout(a->spec, m);
    plan_met_comm(&m->shape, m->plan, &m->sp.shard, &m->batch.reach, want);
    v->n_tokens = m->batch.n_tokens;
    v->targets_p = m->batch.n_targets;
    int64_t n = v->targets_p > 0 ? v->targets_p : 1;
    m->be->ops->fill(m->be, m->grad, m->plan->n_grad, 0);
    if (m->world) comm_ledger_reset(m->world);
    const double scale = scale_fixed(a->spec, n);
    if (model_grad(m, &m->batch, (float)(scale / (double)(n * n_copies)), &nll, e)) return -1;
    if (m->world && comm_sum_f64(m->world, PURPOSE_LOSS, &nll, 1, m->bounce, e)) return -1;
    drop_grad(a);
    if (!m->plan->by_bucket && model_reduce_grad(m, e)) return -1;
    v->loss_p = nll / (double)(n * n_copies);
    want[PURPOSE_CONTROL] = (struct comm_count){0};
    v->ledger_equal = !m->world || ledger_equals(comm_ledger(m->world), want, 0);
    return agree(m->world, m, v, e);
}

/* ---- the reference: one rank, its batch from first principles -------------------------------- */

/* A fragment must lie in one document, and end before the document does only where the sequence
 * ends or an over-long document was cut. */
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

/* The same for a model that reads both ways: whom a row sees, and which tokens it must tell by
 * their place in the sequence. */
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
        if (learn) b->ids[row] = mask_token(&rule, 0, row, b->ids[row], &b->targets[row]);
        b->pos[row] = a->spec->data.reset_positions ? i : row;
        b->lo[row] = alone ? pos : 0;
        b->hi[row] = alone ? pos + f->length : b->n_tokens;
        b->n_targets += b->targets[row] >= 0;
    }
    return 0;
}

/* Rows [pos, pos + f->length) of one sequence on one rank. The packer says which tokens; where they
 * stand, whom they see and what they have to predict is worked out here. */
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

/* Sample 0 as one sequence of S rows on one rank. */
static int fill_reference(const struct verify_args *a, const struct data_order *order,
                          struct model *ref, struct err *e)
{
    struct batch *b = &ref->batch;
    struct sample s;
    int64_t pos = 0;
    data_sample(order, 0, &s);
    b->n_targets = 0;
    b->n_tokens = s.n_tokens;
    for (int64_t k = 0; k < s.n_fragments; k++) {
        struct fragment f;
        data_fragment(order, &s, k, &f);
        if (check_fragment(a->data, &f, pos, ref->plan->S, e)) return -1;
        if (fill_fragment(a, b, &f, pos, e)) return -1;
        pos += f.length;
    }
    b->n_tokens = pos;
    for (; pos < ref->plan->T; pos++) {
        b->ids[pos] = TOKEN_PAD, b->targets[pos] = -1;
        b->pos[pos] = b->lo[pos] = b->hi[pos] = 0;
    }
    return 0;
}

/* Its weights are the ranks' own, where those are whole. */
static int open_reference(const struct verify_args *a, struct model *ref, const struct plan *plan,
                          struct verify *v, struct err *e)
{
    const struct model *m = a->model;
    struct model_options o = {.shape = &m->shape,
                              .plan = plan,
                              .be = m->be,
                              .n_ranks = 1,
                              .arena = m->arena + m->plan->reference_offset,
                              .host = m->host ? m->host + m->plan->reference_host_offset : NULL,
                              .params = m->fetched ? NULL : m->params};
    if (model_init(ref, &o, e)) return -1;
    const struct plan_item *all = &plan->item[PLAN_GRAD_ACC];
    v->grad = m->grad;
    if (all->name) v->grad = (float *)((char *)o.arena + all->offset);
    if (all->name) model_note_placed(ref, all, all->size);
    model_note_placed(a->model, &(struct plan_item){.offset = m->plan->reference_offset},
                      ref->arena_end);
    model_note_placed(
        a->model, &(struct plan_item){.offset = m->plan->reference_host_offset, .in_host = true},
        ref->host_end);
    return 0;
}

static double reference_targets(const struct verify *v)
{
    return v->targets_1 > 0 ? (double)v->targets_1 : 1;
}

static int run_reference(const struct verify_args *a, const struct data_order *order,
                         struct model *ref, struct verify *v, struct err *e)
{
    const struct plan *plan = ref->plan;
    double nll;
    const struct flow_source flow = flow_of(a, order);
    progress_piece(ref->progress, progress_done(ref->progress), (double)plan->S);
    set_dropout(a->spec, ref);
    ref->batch.sample = 0;
    if (latents(ref) ? verify_flow_reference(&flow, ref, e) : fill_reference(a, order, ref, e))
        return -1;
    v->targets_1 = ref->batch.n_targets;
    const double n = reference_targets(v), scale = scale_fixed(a->spec, v->targets_1);
    ref->be->ops->fill(ref->be, ref->grad, plan->n_grad, 0);
    if (model_grad(ref, &ref->batch, (float)(scale / n), &nll, e)) return -1;
    if (model_reduce_grad(ref, e)) return -1;
    unscale(ref, ref->grad, scale);
    v->loss_1 = nll / n;
    return 0;
}

/* ---- comparing ------------------------------------------------------------------------------- */

static double ratio(double diff, double norm)
{
    if (!isfinite(diff) || !isfinite(norm)) return INFINITY;
    return norm > 0 ? diff / norm : diff > 0 ? INFINITY : 0;
}

/* Two flat gradients on the device, of which a piece is here at a time: outside the plan, as are
 * rows of logits. */
#define PIECE 65536
struct sides {
    const struct model *model;
    const float *g1, *gp;
    float one[PIECE], many[PIECE];
};

static struct sides *sides_new(const struct model *m, const float *g1, const float *gp,
                               struct err *e)
{
    struct sides *s = malloc(sizeof *s);
    if (!s) {
        err_set(e, ERR_IO, "out of memory for pieces of gradients");
        return NULL;
    }
    s->model = m;
    s->g1 = g1;
    s->gp = gp;
    return s;
}

/* Elements from `at` on, at most n of them; both: of the second as well. Returns how many. */
static int64_t sides_read(struct sides *s, int64_t at, int64_t n, bool both)
{
    struct be *be = s->model->be;
    if (n > PIECE) n = PIECE;
    copy_to_host(be, DT_F32, s->g1 + at, s->one, n);
    if (both) copy_to_host(be, DT_F32, s->gp + at, s->many, n);
    return n;
}

/* A norm below which a gradient may be nothing but rounding, as some are 0 by the model (a bias of
 * keys shifts all scores of a row by the same, which softmax does not see) or by the data (of equal
 * tokens, or of one frame, nothing turns on queries and keys).
 * Rounding leaves about 1e-8 of the whole gradient there, in bf16 up to 1e-4: against a thousandth
 * of it the first passes, the second by what the reference's second run measured, and a factor or a
 * missing part still shows. */
static double noise_norm(struct sides *s)
{
    double sum = 0;
    const struct model *m = s->model;
    for (int64_t at = 0; at < m->plan->n_params; at += PIECE) {
        const int64_t n = sides_read(s, at, m->plan->n_params - at, false);
        for (int64_t i = 0; i < n; i++) sum += (double)s->one[i] * s->one[i];
    }
    return 1e-3 * sqrt(sum);
}

static void compare_tensor(struct sides *s, const struct param *p, double noise,
                           struct verify_row *r)
{
    double diff = 0, one = 0, many = 0, dot = 0;
    for (int64_t at = 0; at < p->count; at += PIECE) {
        const int64_t n = sides_read(s, p->offset + at, p->count - at, true);
        for (int64_t i = 0; i < n; i++) {
            double x = s->one[i], y = s->many[i];
            diff += (x - y) * (x - y);
            one += x * x;
            many += y * y;
            dot += x * y;
        }
    }
    r->norm_1 = sqrt(one);
    r->norm_p = sqrt(many);
    r->rel_l2 = ratio(sqrt(diff), r->norm_1 > noise ? r->norm_1 : noise);
    r->cosine = one > 0 && many > 0 ? dot / (r->norm_1 * r->norm_p) : one == many ? 1 : 0;
}

/* First what is farthest beyond its bound. */
static int worse(const void *a, const void *b)
{
    const struct verify_row *x = a, *y = b;
    const double by = ratio(x->rel_l2, x->allowed), than = ratio(y->rel_l2, y->allowed);
    if (by != than) return by > than ? -1 : 1;
    if (x->rel_l2 != y->rel_l2) return x->rel_l2 > y->rel_l2 ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int compare_grads(const struct job_spec *spec, const struct model *ref, struct verify *v,
                         struct err *e)
{
    v->n_rows = param_tensors(&ref->shape);
    v->row = calloc((size_t)v->n_rows, sizeof *v->row);
    if (!v->row) return err_set(e, ERR_IO, "out of memory for %d tensors", v->n_rows);
    struct sides *s = sides_new(ref, ref->grad, v->grad, e);
    if (!s) return -1;
    const double noise = noise_norm(s);
    for (int i = 0; i < v->n_rows; i++) {
        struct param p;
        param_get(&ref->shape, i, &p);
        snprintf(v->row[i].name, sizeof v->row[i].name, "%s", p.name);
        v->row[i].index = i;
        v->row[i].allowed = spec->verify.grad_rel_l2;
        compare_tensor(s, &p, noise, &v->row[i]);
    }
    free(s);
    qsort(v->row, (size_t)v->n_rows, sizeof *v->row, worse);
    return 0;
}

struct logits { /* sums over all rows compared so far, and rank 0's buffers */
    double diff, norm, max_abs;
    float *own, *all, *one; /* one: a row of the reference */
    int64_t room;           /* rows */
    struct comm_count gathered;
};

static void compare_rows(struct logits *lg, const float *one, const float *many, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double x = one[i], d = x - (double)many[i];
        lg->diff += d * d;
        lg->norm += x * x;
        if (!(fabs(d) <= lg->max_abs)) lg->max_abs = fabs(d);
    }
}

/* Rows [row0, row0 + n) of every rank against the reference's rows at the same positions. */
static int compare_chunk(struct model *m, struct model *ref, struct logits *lg, int64_t row0,
                         int64_t n, struct err *e)
{
    const struct plan *p = m->plan;
    const int64_t S = m->sp.shard.S;
    int64_t V = m->shape.vocab, size = n * V * (int64_t)sizeof(float);
    struct tensor t = model_logits(m, row0, n);
    for (int64_t i = 0; i < n; i++)
        m->be->ops->download(m->be, lg->own + i * V, (float *)t.data + i * t.ld,
                             V * (int64_t)sizeof(float));
    float *all = m->comm ? lg->all : lg->own;
    if (m->comm && comm_gather(m->comm, PURPOSE_VERIFY, 0, lg->own, size, all, m->bounce, e))
        return -1;
    volume_add(&lg->gathered, volume_gather(p->sp, size, m->rank == 0), 1);
    for (int q = 0; ref && q < p->sp; q++) {
        struct shard sh;
        if (shard_init(&sh, S, p->sp, q, p->layout, p->rank_bits, e)) return -1;
        int64_t pos = shard_pos(&sh, row0), real = S - pos;
        if (real > n) real = n;
        if (real <= 0) continue;
        struct tensor want = model_logits(ref, pos, real);
        for (int64_t i = 0; i < real; i++) {
            m->be->ops->download(m->be, lg->one, (float *)want.data + i * want.ld, V * 4);
            compare_rows(lg, lg->one, all + ((int64_t)q * n + i) * V, V);
        }
    }
    return 0;
}

static int compare_logits(struct model *m, struct model *ref, struct verify *v, struct err *e)
{
    struct logits lg = {0};
    int64_t row_size = m->shape.vocab * (int64_t)sizeof(float), P = m->plan->sp;
    int rc = -1;
    lg.room = GATHER_SIZE / (P * row_size);
    if (lg.room < 1) lg.room = 1;
    if (lg.room > m->plan->loss_chunk) lg.room = m->plan->loss_chunk;
    lg.own = malloc((size_t)(lg.room * row_size));
    lg.all = malloc((size_t)(ref ? P * lg.room * row_size : 1));
    lg.one = malloc((size_t)row_size);
    if (!lg.own || !lg.all || !lg.one) {
        err_set(e, ERR_IO, "out of memory for %lld rows of logits", (long long)lg.room);
        goto out;
    }
    const struct shard *sh = &m->sp.shard;
    for (int s = 0; s < sh->n_segs; s++)
        for (int64_t i = 0; i < sh->seg_len; i += lg.room) {
            int64_t n = sh->seg_len - i < lg.room ? sh->seg_len - i : lg.room;
            if (compare_chunk(m, ref, &lg, s * sh->seg_len + i, n, e)) goto out;
        }
    v->logits_max_abs = lg.max_abs;
    v->logits_rel_l2 = ratio(sqrt(lg.diff), sqrt(lg.norm));
    v->gathered = lg.gathered;
    rc = 0;
out:
    free(lg.own);
    free(lg.all);
    free(lg.one);
    return rc;
}

/* Of the first ring: rank 0 gathered what it compared, after one agreement. The pass itself has
 * been compared before weights were gathered for the reference. */
static int compare_gathered(const struct model *m, struct verify *v, struct err *e)
{
    const uint32_t compared = 1u << PURPOSE_VERIFY | 1u << PURPOSE_CONTROL;
    const struct comm_count want[PURPOSE_N] = {
        [PURPOSE_VERIFY] = v->gathered,
        [PURPOSE_CONTROL] = volume_sum_small(plan_sum_ranks(m->plan), 1)};
    if (m->comm) v->ledger_equal &= ledger_equals(comm_ledger(m->comm), want, ~compared);
    return agree(m->comm, m, v, e);
}

static void judge(struct verify *v)
{
    v->equal = v->targets_1 == v->targets_p && v->loss_rel <= v->allowed_loss_rel &&
               v->logits_rel_l2 <= v->allowed_logits_rel_l2;
    v->nearest = -1;
    for (int i = 0; i < v->n_rows; i++) {
        if (v->row[i].rel_l2 <= v->row[i].allowed) continue;
        v->equal = false;
        if (v->nearest < 0 || v->row[i].index > v->row[v->nearest].index) v->nearest = i;
    }
}

/* ---- what the model itself makes of roundings ------------------------------------------------ */

/* Only the usual bound, which a job has that says nothing: one that a job names is its word. A part
 * that is missing, or a factor 1/P, must show whatever the second run measures: never more than
 * half of what P = 2 would make of that. */
static double widen(double allowed, double usual, double to)
{
    const double most = 0.25;
    if (allowed != usual || !(to > usual)) return allowed;
    return to < most ? to : most;
}

/* What failed on the device before its memory was read. */
static int check_device(const struct model *m, struct err *e)
{
    return m->be->ops->sync ? m->be->ops->sync(m->be, e) : 0;
}

/* Only where something is beyond its bound, and counts are right. The reference's gradient moves to
 * where the ranks' was, and that of the second run takes its place. */
static int widen_bounds(const struct job_spec *spec, struct model *ref, struct verify *v,
                        struct err *e)
{
    const struct job_tolerance usual = job_tolerance(spec->precision.params);
    struct sides *s = sides_new(ref, v->grad, ref->grad, e);
    const double scale = scale_fixed(spec, v->targets_1);
    const double passed = progress_done(ref->progress), S = (double)ref->plan->S;
    struct rounding c = {0};
    int rc = -1;
    progress_total(ref->progress, passed + S);
    progress_piece(ref->progress, passed, S);
    if (!s || rounding_init(&c, ref, v->grad, e) ||
        rounding_run(&c, (float)(scale / reference_targets(v)), e))
        goto out;
    unscale(ref, ref->grad, scale);
    const double noise = noise_norm(s);
    for (int i = 0; i < v->n_rows; i++) {
        struct verify_row own;
        struct param p;
        param_get(&ref->shape, v->row[i].index, &p);
        compare_tensor(s, &p, noise, &own);
        /* What is all rounding is the sum of a few, and drawn again on both sides. */
        const double margin = own.norm_1 < noise ? 2 * ROUNDING_MARGIN : ROUNDING_MARGIN;
        v->row[i].allowed = widen(v->row[i].allowed, usual.grad_rel_l2, margin * own.rel_l2);
    }
    v->allowed_loss_rel = widen(v->allowed_loss_rel, usual.loss_rel, ROUNDING_MARGIN * c.loss_rel);
    v->allowed_logits_rel_l2 = widen(v->allowed_logits_rel_l2, usual.grad_rel_l2,
                                     ROUNDING_MARGIN * c.logits_rel_l2);
    v->controlled = true;
    qsort(v->row, (size_t)v->n_rows, sizeof *v->row, worse);
    judge(v);
    rc = check_device(ref, e);
out:
    rounding_fini(&c);
    free(s);
    return rc;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* The verdict, of rank 0. Gradients are kept before the second run overwrites them. */
static int conclude(const struct verify_args *a, struct model *ref, struct verify *v, struct err *e)
{
    if (check_device(ref, e)) return -1;
    v->loss_rel = ratio(fabs(v->loss_p - v->loss_1), fabs(v->loss_1));
    v->allowed_loss_rel = a->spec->verify.loss_rel;
    v->allowed_logits_rel_l2 = a->spec->verify.grad_rel_l2;
    judge(v);
    if (a->job_dir && verify_keep_grads(a, ref->grad, v, e)) return -1;
    if (!v->equal && v->targets_1 == v->targets_p && widen_bounds(a->spec, ref, v, e)) return -1;
    return a->job_dir ? verify_keep_json(a, v, e) : 0;
}

/* The ranks' pass; their shards are gathered on the first one, which has the reference. */
static int run_whole(const struct verify_args *a, const struct data_order *order, struct model *ref,
                     struct verify *v, struct err *e)
{
    struct gathered w;
    gather_begin(&w, a->model, v->grad);
    const int rc = run_ranks(a, order, v, e);
    a->model->sp.drop.rate = 0;
    gather_end(&w);
    if (!rc && ref) unscale(ref, v->grad, scale_fixed(a->spec, v->targets_p));
    return rc ? -1 : gather_weights(a->model, ref ? ref->params : NULL, e);
}

int verify_run(const struct verify_args *a, struct verify *out, struct err *e)
{
    struct model *m = a->model;
    bool first = m->ring == 0 && m->rank == 0;
    struct model *ref = NULL;
    struct plan *plan = NULL;
    struct data_order *order = NULL;
    int rc = -1;
    *out = (struct verify){.n_ranks = plan_sum_ranks(m->plan)};
    struct order_options oo = latents(m) ? latents_order_options(a->spec, SET_TRAIN)
                                         : data_order_options(a->spec, SET_TRAIN, m->sp.shard.S);
    /* Documents that fit a sequence of the job may not fit what is compared of it. */
    if (oo.seq_len < a->spec->data.seq_len) oo.overlong = OVERLONG_SPLIT;
    order = data_order_open(a->data, &oo, e);
    if (!order) goto out;
    if (first) {
        ref = calloc(1, sizeof *ref);
        plan = calloc(1, sizeof *plan);
        if (!ref || !plan) {
            err_set(e, ERR_IO, "out of memory for the reference");
            goto out;
        }
        if (plan_reference(a->spec, m->plan, plan, e) || open_reference(a, ref, plan, out, e))
            goto out;
        m->progress = ref->progress = a->progress;
        progress_begin(a->progress, PROGRESS_TOKENS, (double)(m->sp.shard.T + plan->S), 0);
    }
    if (run_whole(a, order, ref, out, e)) goto out;
    if (m->ring) { /* its loss and gradients are in the sums; of logits the first ring's compare */
        rc = 0;
        goto out;
    }
    if (first && (run_reference(a, order, ref, out, e) || compare_grads(a->spec, ref, out, e)))
        goto out;
    if (latents(m) ? verify_flow_compare(m, ref, out, e) : compare_logits(m, ref, out, e)) goto out;
    if (compare_gathered(m, out, e)) goto out;
    if (first && conclude(a, ref, out, e)) goto out;
    if (first) progress_end(a->progress);
    rc = 0;
out:
    m->progress = NULL; /* the model runs on, in a training */
    data_order_close(order);
    free(ref);
    free(plan);
    if (rc) verify_fini(out);
    return rc;
}

void verify_fini(struct verify *v)
{
    free(v->row);
    v->row = NULL;
    v->n_rows = 0;
}

int verify_sentence(const struct verify *v, struct err *e)
{
    const struct verify_row *worst = &v->row[0];
    const struct verify_row *near = v->nearest < 0 ? worst : &v->row[v->nearest];
    if (v->targets_1 != v->targets_p)
        return err_set(e, ERR_CORRUPT,
                       "%d ranks do not equal 1 rank: %lld targets instead of %lld, worst tensor "
                       "%s: rel-L2 %.3g",
                       v->n_ranks, (long long)v->targets_p, (long long)v->targets_1, worst->name,
                       worst->rel_l2);
    return err_set(e, ERR_CORRUPT,
                   "%d ranks do not equal 1 rank: loss %.9g differs by %.3g relative from %.9g "
                   "(allowed %.3g), logits by rel-L2 %.3g, worst tensor %s: rel-L2 %.3g "
                   "(allowed %.3g), nearest to the output %s",
                   v->n_ranks, v->loss_p, v->loss_rel, v->loss_1, v->allowed_loss_rel,
                   v->logits_rel_l2, worst->name, worst->rel_l2, worst->allowed, near->name);
}
