/* verify.c: runs the ranks' side and then the reference, compares tensors piece by piece, and
 * writes a sentence that names the largest difference. */
#include "worker/verify/verify.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/job.h"
#include "api/core/jwrite.h"
#include "api/core/mutant.h"
#include "worker/comm/ledger.h"
#include "worker/hf/hf.h"
#include "worker/model/host_copy.h"
#include "worker/plan/volume.h"
#include "worker/train/scale.h"
#include "worker/verify/flow.h"
#include "worker/verify/follow.h"
#include "worker/verify/keep.h"
#include "worker/verify/logits.h"
#include "worker/verify/proof.h"

/* ---- the ranks' side: as in training --------------------------------------------------------- */

/* Tells whether m is a diffusion model, whose data flow.c fills. */
static bool latents(const struct model *m)
{
    return m->plan->grid[0] > 0;
}

int proof_copies(const struct model *m)
{
    return plan_sum_ranks(m->plan) / m->plan->sp;
}

void proof_drop_gradient(struct model *m)
{
    const struct zero *z = &m->plan->shards;
    struct param p;
    if (!mutant_on(MUTANT_GRAD_DROPPED) || m->rank != 0) return;
    param_get(&m->shape, mutant_tensor(), &p);
    const int b = zero_bucket(z, p.offset);
    if (p.trained && zero_owns(z, b))
        m->be->ops->fill(m->be, model_bucket_gradient(m, b) + p.offset - zero_begin(z, b), p.count,
                         0);
}

int proof_agree(struct comm *c, const struct model *m, struct verify *v, struct err *e)
{
    int64_t bad = !v->ledger_equal;
    if (c && comm_sum_i64(c, PURPOSE_CONTROL, &bad, 1, m->bounce, e)) return -1;
    v->ledger_equal = bad == 0;
    return 0;
}

/* Sets the number of pairs of the sample, and corrects the expected counts for it. */
static void meet_pairs(const struct proof *p, struct comm_count want[PURPOSE_N])
{
    const struct model *m = p->a->model;
    if (!m->plan->pairs) return;
    p->v->pairs.n_p = data_pairs(p->order, 0);
    plan_met_pairs(m->plan, p->v->pairs.n_p, want);
}

/* Sums the loss over ranks. With pairs, as many numbers are summed as in a step. */
static int sum_loss(struct model *m, double *loss, struct err *e)
{
    double value[PREFER_VALUES] = {*loss};
    if (!m->all) return 0;
    const int n = plan_loss_values(m->plan);
    if (comm_sum_f64(m->all, PURPOSE_LOSS, value, n, m->bounce, e)) return -1;
    *loss = value[0];
    return 0;
}

static int run_ranks(const struct proof *p, struct gathered *w, struct err *e)
{
    const struct verify_args *a = p->a;
    struct verify *v = p->v;
    struct model *m = a->model;
    struct comm_count want[PURPOSE_N];
    const int n_copies = proof_copies(m);
    double nll;
    progress_piece(m->progress, 0, (double)m->sp.shard.T);
    if (a->want)
        memcpy(want, a->want, sizeof want);
    else
        plan_comm(&m->shape, m->plan, m->all ? comm_rank(m->all) : 0, want);
    const struct flow_source flow = verify_flow_source(a, p->order);
    if (latents(m) ? verify_flow_ranks(a, &flow, want, e)
                   : data_batch(p->order, &m->sp.shard, 0, &m->batch, e))
        return -1;
    reference_dropout(a->spec, m);
    plan_met_comm(&m->shape, m->plan, &m->sp.shard, &m->batch.reach, want);
    v->n_tokens = m->batch.n_tokens;
    v->targets_p = m->batch.n_targets;
    meet_pairs(p, want);
    const int64_t n = proof_mean_of(v->targets_p, v->pairs.n_p);
    m->be->ops->fill(m->be, m->grad, m->plan->n_grad, 0);
    if (m->all) comm_ledger_reset(m->all);
    offload_reset(m->offload);
    const double scale = scale_fixed(a->spec, n);
    if (model_grad(m, &m->batch, (float)(scale / (double)(n * n_copies)), &nll, e)) return -1;
    if (sum_loss(m, &nll, e)) return -1;
    proof_drop_gradient(m);
    if (!m->plan->by_bucket && model_reduce_grad(m, e)) return -1;
    if (gather_gradient(w, e)) return -1;
    v->loss_p = nll / (double)(n * n_copies);
    want[PURPOSE_CONTROL] = (struct comm_count){0};
    want[PURPOSE_VERIFY] = w->moved;
    const int64_t bytes = plan_offloaded(m->plan, m->sp.shard.T);
    const struct offload_count stored = {bytes, bytes};
    v->ledger_equal = p->pairs.ledger_equal && offload_moved(m->offload, &stored) &&
                      (!m->all || ledger_equals(comm_ledger(m->all), want, 0));
    return proof_agree(m->all, m, v, e);
}

/* ---- comparing ------------------------------------------------------------------------------- */

double verify_ratio(double diff, double norm)
{
    if (!isfinite(diff) || !isfinite(norm)) return INFINITY;
    return norm > 0 ? diff / norm : diff > 0 ? INFINITY : 0;
}

/* The gradients of the ranks and of the reference, which are flat arrays on the device. They are
 * read in pieces. The plan does not count the memory of these pieces. */
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

/* Reads at most n elements of the reference's gradient, from `at` on. If `both` is set, reads the
 * elements with these indices of the ranks' gradient as well. Returns the number of elements. */
static int64_t sides_read(struct sides *s, int64_t at, int64_t n, bool both)
{
    struct be *be = s->model->be;
    if (n > PIECE) n = PIECE;
    host_copy_out(be, DT_F32, s->g1 + at, s->one, n);
    if (both) host_copy_out(be, DT_F32, s->gp + at, s->many, n);
    return n;
}

/* Returns a norm below which a gradient may consist only of rounding. It is a thousandth of the
 * norm of the whole gradient. Some gradients are 0 in exact arithmetic. The model can be the
 * cause: a bias of keys changes all scores of a row equally, which leaves the softmax unchanged.
 * The data can be the cause: if all tokens are equal, or if there is one frame, the loss does not
 * depend on queries and keys. Rounding then leaves a gradient of about 1e-8 of the whole gradient,
 * or in bf16 up to 1e-4. Differences are divided by at least the returned norm. So 1e-8 is
 * accepted. 1e-4 is accepted if the bound was widened after other runs of the reference. A wrong
 * factor or a missing part is still noticed. */
static double noise_norm(struct sides *s)
{
    double sum = 0;
    const struct model *m = s->model;
    for (int64_t at = 0; at < m->plan->n_trained; at += PIECE) {
        const int64_t n = sides_read(s, at, m->plan->n_trained - at, false);
        for (int64_t i = 0; i < n; i++) sum += (double)s->one[i] * s->one[i];
    }
    return 1e-3 * sqrt(sum);
}

static void compare_tensor(struct sides *s, const struct param *p, double noise,
                           struct verify_row *r)
{
    double diff = 0, one = 0, many = 0, dot = 0;
    for (int64_t at = 0; at < p->count; at += PIECE) {
        const int64_t n = sides_read(s, p->grad_offset + at, p->count - at, true);
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
    r->rel_l2 = verify_ratio(sqrt(diff), r->norm_1 > noise ? r->norm_1 : noise);
    r->cosine = one > 0 && many > 0 ? dot / (r->norm_1 * r->norm_p) : one == many ? 1 : 0;
}

/* Sorts tensors by how far they exceed their bounds. The worst tensor is the first. */
static int worse(const void *a, const void *b)
{
    const struct verify_row *x = a, *y = b;
    const double by = verify_ratio(x->rel_l2, x->allowed),
                 than = verify_ratio(y->rel_l2, y->allowed);
    if (by != than) return by > than ? -1 : 1;
    if (x->rel_l2 != y->rel_l2) return x->rel_l2 > y->rel_l2 ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Sets the stage of each row. The rows must still have the order of the tensors. */
static void find_stages(const struct model *m, struct verify *v)
{
    const struct pipe *p = &m->plan->pipe;
    for (int b = 0, k = 0; b < p->first[p->n]; b++) {
        int first, last;
        param_range(&m->shape, b, &first, &last);
        for (; k < v->n_rows && v->row[k].index < last; k++) v->row[k].stage = pipe_stage(p, b);
    }
}

static int compare_grads(const struct verify_args *a, const struct model *ref, struct verify *v,
                         struct err *e)
{
    const int n = param_tensors(&ref->shape);
    v->row = calloc((size_t)n, sizeof *v->row);
    if (!v->row) return err_set(e, ERR_IO, "out of memory for %d tensors", n);
    struct sides *s = sides_new(ref, ref->grad, v->grad, e);
    if (!s) return -1;
    const double noise = noise_norm(s);
    v->n_rows = 0;
    for (int i = 0; i < n; i++) {
        struct param p;
        param_get(&ref->shape, i, &p);
        if (!p.trained) continue;
        struct verify_row *r = &v->row[v->n_rows++];
        snprintf(r->name, sizeof r->name, "%s", p.name);
        r->index = i;
        r->allowed = a->spec->verify.grad_rel_l2;
        compare_tensor(s, &p, noise, r);
    }
    free(s);
    find_stages(a->model, v);
    qsort(v->row, (size_t)v->n_rows, sizeof *v->row, worse);
    return 0;
}

/* Compares the first ring's ledger with the expected counts of one agreement and of the data that
 * rank 0 gathered for the comparison. The ledger of the pass itself was compared before the
 * weights were gathered for the reference. */
static int compare_gathered(const struct model *m, struct verify *v, struct err *e)
{
    const uint32_t compared = 1u << PURPOSE_VERIFY | 1u << PURPOSE_CONTROL;
    const struct comm_count want[PURPOSE_N] = {
        [PURPOSE_VERIFY] = v->gathered,
        [PURPOSE_CONTROL] = volume_sum_small(plan_sum_ranks(m->plan) * m->plan->tp, 1)};
    if (m->holders) v->ledger_equal &= ledger_equals(comm_ledger(m->holders), want, ~compared);
    return proof_agree(m->holders, m, v, e);
}

/* Returns the largest gap that is allowed between two choices of experts. Choices may differ if
 * two router logits differ by less than their errors. Usually these errors are at most about as
 * large as the errors of the model's logits. But some rows have larger errors, and the worst of
 * millions of rows decides: correct ranks had gaps of 11 times the error of the logits. If a
 * router is wrong, some row has a gap of more than the standard deviation of its logits. */
static double gap_for(double logits_rel_l2)
{
    return fmin(1, 20 * logits_rel_l2);
}

static void judge(struct verify *v)
{
    v->allowed_gap = gap_for(v->allowed_logits_rel_l2);
    v->equal = v->targets_1 == v->targets_p && v->loss_rel <= v->allowed_loss_rel &&
               v->logits_rel_l2 <= v->allowed_logits_rel_l2 && v->routes.gap <= v->allowed_gap &&
               pairs_equal(&v->pairs);
    v->nearest = -1;
    for (int i = 0; i < v->n_rows; i++) {
        if (v->row[i].rel_l2 <= v->row[i].allowed) continue;
        v->equal = false;
        if (v->nearest < 0 || v->row[i].index > v->row[v->nearest].index) v->nearest = i;
    }
}

/* ---- the model's response to roundings ------------------------------------------------------- */

/* Widens the bound if the job names none, so that the usual bound applies. A bound that the job
 * names is not changed. A missing part, or a factor 1/P, must be noticed whatever the further runs
 * of the reference measure. So the bound is never more than half of the difference that a missing
 * part or a factor 1/P makes with P = 2. */
static double widen(double allowed, double usual, double to)
{
    const double most = 0.25;
    if (allowed != usual || !(to > usual)) return allowed;
    return to < most ? to : most;
}

/* Fails if an operation on the device has failed, because results that were read from it are then
 * invalid. */
static int check_device(const struct model *m, struct err *e)
{
    return m->be->ops->sync ? m->be->ops->sync(m->be, e) : 0;
}

static bool near(double measured, double allowed, double usual, double part)
{
    return allowed == usual && !(measured <= part * allowed);
}

/* Tells whether a difference comes near to a bound that may be widened, or exceeds it. */
static bool near_bounds(const struct verify *v, struct job_tolerance usual, double part)
{
    bool any = near(v->loss_rel, v->allowed_loss_rel, usual.loss_rel, part) ||
               near(v->routes.gap, v->allowed_gap, gap_for(usual.grad_rel_l2), part) ||
               near(v->logits_rel_l2, v->allowed_logits_rel_l2, usual.grad_rel_l2, part);
    for (int i = 0; i < VERIFY_PAIR_PARTS; i++)
        any |= near(v->pairs.part[i].rel_l2, v->pairs.part[i].allowed, pairs_usual(i, usual), part);
    for (int i = 0; i < v->n_rows && !any; i++)
        any = near(v->row[i].rel_l2, v->row[i].allowed, usual.grad_rel_l2, part);
    return any;
}

/* Measures, for each tensor, the difference between its gradient in the latest run and in the
 * first run. Keeps the largest difference. `s` has both gradients. */
static void measure_rounding(struct sides *s, double noise, struct verify *v)
{
    const struct rounding_rule rule = rounding_rule(s->model->dtype);
    for (int i = 0; i < v->n_rows; i++) {
        struct verify_row own;
        struct param t;
        param_get(&s->model->shape, v->row[i].index, &t);
        compare_tensor(s, &t, noise, &own);
        /* A gradient below `noise` is a sum of few roundings, which differ in every run. */
        const double rel = own.norm_1 < noise ? rule.noise * own.rel_l2 : own.rel_l2;
        if (!(rel <= v->row[i].rounding)) v->row[i].rounding = rel;
    }
}

/* Runs the reference again. The gradient of its first run moves to v->grad. */
static int run_again(struct proof *p, struct err *e)
{
    struct reference *r = p->ref;
    struct model *m = &r->model;
    struct verify *v = p->v;
    m->be->ops->copy(m->be, v->grad, m->grad, r->plan.n_trained * (int64_t)sizeof *v->grad);
    struct sides *s = sides_new(m, v->grad, m->grad, e);
    if (!s) return -1;
    const double noise = noise_norm(s);
    int rc = 0;
    for (int run = 0; run < rounding_rule(m->dtype).runs && !rc; run++) {
        rc = reference_again(r, run, e);
        if (!rc) measure_rounding(s, noise, v);
    }
    free(s);
    return rc;
}

/* Widens the bounds. It is called only if a difference is near its bound and the ranks and the
 * reference have the same number of targets. */
static int widen_bounds(struct proof *p, struct job_tolerance usual, struct err *e)
{
    struct reference *r = p->ref;
    struct verify *v = p->v;
    const struct rounding_rule rule = rounding_rule(r->model.dtype);
    const double margin = rule.margin;
    const double more = rule.runs * (double)r->n_samples * (double)r->plan.S;
    progress_total(p->a->progress, progress_done(p->a->progress) + more);
    if (run_again(p, e)) return -1;
    for (int i = 0; i < v->n_rows; i++) {
        struct verify_row *row = &v->row[i];
        row->allowed = widen(row->allowed, usual.grad_rel_l2, margin * row->rounding);
    }
    v->allowed_loss_rel = widen(v->allowed_loss_rel, usual.loss_rel, margin * r->rounding.loss_rel);
    v->allowed_logits_rel_l2 = widen(v->allowed_logits_rel_l2, usual.grad_rel_l2,
                                     margin * r->rounding.logits_rel_l2);
    for (int i = 0; i < VERIFY_PAIR_PARTS; i++) {
        double *allowed = &v->pairs.part[i].allowed;
        *allowed = widen(*allowed, pairs_usual(i, usual), margin * r->pairs.rounding[i]);
    }
    v->controlled = true;
    qsort(v->row, (size_t)v->n_rows, sizeof *v->row, worse);
    judge(v);
    return check_device(&r->model, e);
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Gives the verdict, on rank 0. Gradients are written to files before the other runs overwrite
 * them. */
static int conclude(struct proof *p, struct err *e)
{
    const struct verify_args *a = p->a;
    const struct job_tolerance usual = job_tolerance(a->spec->precision.params);
    struct model *ref = &p->ref->model;
    struct verify *v = p->v;
    if (check_device(ref, e)) return -1;
    v->loss_rel = verify_ratio(fabs(v->loss_p - v->loss_1), fabs(v->loss_1));
    v->allowed_loss_rel = a->spec->verify.loss_rel;
    v->allowed_logits_rel_l2 = a->spec->verify.grad_rel_l2;
    const struct job_tolerance asked = {a->spec->verify.loss_rel, a->spec->verify.grad_rel_l2};
    for (int i = 0; i < VERIFY_PAIR_PARTS; i++) v->pairs.part[i].allowed = pairs_usual(i, asked);
    judge(v);
    if (a->job_dir && a->spec->verify.keep_grads && verify_keep_grads(a, ref->grad, v, e))
        return -1;
    const double part = rounding_rule(ref->dtype).near;
    if (v->targets_1 == v->targets_p && near_bounds(v, usual, part) && widen_bounds(p, usual, e))
        return -1;
    return a->job_dir ? verify_keep_json(a, v, e) : 0;
}

/* Runs the ranks' pass and gathers their shards on the first rank, which has the reference. */
static int pass_whole(struct proof *p, struct err *e)
{
    struct model *m = p->a->model;
    struct gathered w;
    gather_begin(&w, m, p->v->grad, p->ref ? p->ref->plan.n_trained : 0);
    const int rc = run_ranks(p, &w, e);
    sp_drop_nothing(&m->sp.drop);
    gather_end(&w);
    if (rc || gather_weights(&w, p->ref ? p->ref->model.params : NULL, e)) return -1;
    p->v->gathered = w.moved;
    return 0;
}

static int compare_outputs(struct proof *p, struct err *e)
{
    struct model *m = p->a->model, *ref = p->ref ? &p->ref->model : NULL;
    struct logits sums = {0};
    if (latents(m)) return verify_flow_compare(m, ref, p->v, e);
    if (logits_compare(m, ref, &sums, e)) return -1;
    logits_end(&sums, p->v);
    volume_add(&p->v->gathered, sums.moved, 1);
    if (!m->plan->pairs) return 0;
    if (pairs_compare(&p->pairs, p->ref ? &p->ref->pairs : NULL, e)) return -1;
    volume_add(&p->v->gathered, p->pairs.moved, 1);
    if (p->ref) pairs_end(&p->ref->pairs, &p->v->pairs);
    return 0;
}

/* Runs the proof of a plan with one stage. All ranks then have all layers. */
static int run_whole(struct proof *p, struct err *e)
{
    struct model *m = p->a->model;
    follow_keep(m, &p->kept, 0);
    if (pass_whole(p, e)) return -1;
    int32_t *const to = p->ref ? reference_routes(p->ref, 0) : NULL;
    if (follow_gather(m, to, p->ref ? p->ref->plan.T : 0, &p->v->gathered, e)) return -1;
    /* Ranks of other rings return at this point. Their loss and gradients are already in the sums,
     * and only the first ring's logits are compared. */
    if (m->ring) return 0;
    if (p->ref && (reference_run(p->ref, 0, e) || reference_end(p->ref, p->v, e))) return -1;
    return compare_outputs(p, e) || compare_gathered(m, p->v, e) ? -1 : 0;
}

static int open_order(struct proof *p, struct err *e)
{
    const struct verify_args *a = p->a;
    struct order_options oo = latents(a->model)
                                  ? latents_order_options(a->spec, SET_TRAIN)
                                  : data_order_options(a->spec, SET_TRAIN, a->model->sp.shard.S);
    /* A document that fits in a sequence of the job may be longer than the verified length. */
    const bool shorter = oo.seq_len < a->spec->data.seq_len;
    if (shorter) oo.overlong = oo.pairs ? OVERLONG_DROP : OVERLONG_SPLIT;
    p->order = data_order_open(a->data, &oo, e);
    if (p->order) return 0;
    if (!shorter || !oo.pairs || e->code != ERR_INVALID) return -1;
    return err_field(e, ERR_INVALID, "verify.max_tokens",
                     "verify.max_tokens %lld: no pair of answers of data.train fits in a sequence "
                     "of %lld tokens, and none is cut: raise it, at most to data.seq_len %lld",
                     (long long)a->spec->verify.max_tokens, (long long)oo.seq_len,
                     (long long)a->spec->data.seq_len);
}

/* Opens the reference, on rank 0. */
static int open_reference(struct proof *p, struct err *e)
{
    struct model *m = p->a->model;
    if (m->ring || m->rank || m->tensor_rank || !pipe_first(&m->plan->pipe)) return 0;
    p->ref = reference_open(p->a, p->order, p->v, e);
    if (!p->ref) return -1;
    const double each = (double)(m->sp.shard.T + p->ref->plan.S);
    m->progress = p->a->progress;
    progress_begin(m->progress, PROGRESS_TOKENS, (double)p->ref->n_samples * each, 0);
    return 0;
}

/* Makes the other ranks wait until the reference has its weights. The reference may read them from
 * files, which can take longer than the time limit for a transfer of tensors. */
static int wait_reference(const struct model *m, struct err *e)
{
    int64_t filled = 1;
    if (!reference_fills(m)) return 0;
    return comm_broadcast(m->job, PURPOSE_CONTROL, 0, &filled, sizeof filled, m->bounce, e);
}

static int run(struct proof *p, struct err *e)
{
    struct model *m = p->a->model;
    if (open_order(p, e) || open_reference(p, e) || wait_reference(m, e) ||
        pairs_open(&p->pairs, p->a, p->order, e))
        return -1;
    const bool stages = m->plan->pp > 1;
    if (stages ? proof_stages(p, e) : run_whole(p, e)) return -1;
    if (!p->ref) return 0;
    const int64_t n = proof_mean_of(p->v->targets_p, p->v->pairs.n_p);
    reference_unscale(p->ref, p->v->grad, n);
    if (compare_grads(p->a, &p->ref->model, p->v, e) || conclude(p, e)) return -1;
    progress_end(p->a->progress);
    return 0;
}

int verify_run(const struct verify_args *a, struct verify *out, struct err *e)
{
    struct model *m = a->model;
    struct proof p = {.a = a, .v = out};
    *out = (struct verify){.n_ranks = m->plan->n_ranks,
                           .n_stages = m->plan->pp,
                           .n_samples = plan_verify_samples(m->plan)};
    const int rc = run(&p, e);
    m->progress = NULL; /* because a training may follow, which uses this model */
    m->routing = NULL;
    sp_drop_nothing(&m->sp.drop);
    pairs_close(&p.pairs);
    data_order_close(p.order);
    reference_close(p.ref);
    if (rc) verify_fini(out);
    return rc;
}

void verify_fini(struct verify *v)
{
    free(v->row);
    v->row = NULL;
    v->n_rows = 0;
}

/* Writes " of stage 1 of 3", or "" if there is only one stage. */
static const char *where(const struct verify *v, const struct verify_row *row, char out[48])
{
    out[0] = 0;
    if (v->n_stages > 1) snprintf(out, 48, " of stage %d of %d", row->stage, v->n_stages);
    return out;
}

int verify_sentence(const struct verify *v, struct err *e)
{
    const struct verify_row *worst = &v->row[0];
    const struct verify_row *near = v->nearest < 0 ? worst : &v->row[v->nearest];
    char at[48], near_at[48];
    where(v, worst, at);
    where(v, near, near_at);
    if (!(v->routes.gap <= v->allowed_gap))
        return err_set(e, ERR_CORRUPT,
                       "%d ranks do not equal 1 rank: of %lld choices of experts %lld differ, the "
                       "farthest by %.3g of its logits' deviation (allowed %.3g), worst tensor "
                       "%s%s: rel-L2 %.3g",
                       v->n_ranks, (long long)v->routes.rows, (long long)v->routes.turned,
                       v->routes.gap, v->allowed_gap, worst->name, at, worst->rel_l2);
    char text[160];
    snprintf(text, sizeof text, "worst tensor %s%s: rel-L2 %.3g", worst->name, at, worst->rel_l2);
    if (pairs_sentence(v, text, e)) return -1;
    if (v->targets_1 != v->targets_p)
        return err_set(e, ERR_CORRUPT,
                       "%d ranks do not equal 1 rank: %lld targets instead of %lld, worst tensor "
                       "%s%s: rel-L2 %.3g",
                       v->n_ranks, (long long)v->targets_p, (long long)v->targets_1, worst->name,
                       at, worst->rel_l2);
    return err_set(e, ERR_CORRUPT,
                   "%d ranks do not equal 1 rank: loss %.9g differs by %.3g relative from %.9g "
                   "(allowed %.3g), logits by rel-L2 %.3g, worst tensor %s%s: rel-L2 %.3g "
                   "(allowed %.3g), nearest to the output %s%s",
                   v->n_ranks, v->loss_p, v->loss_rel, v->loss_1, v->allowed_loss_rel,
                   v->logits_rel_l2, worst->name, at, worst->rel_l2, worst->allowed, near->name,
                   near_at);
}
