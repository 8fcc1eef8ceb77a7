/* plan.c: plan_make(). It checks the shape, replaces every "auto", tries modes until the memory
 * fits, and then computes communication and flops. */
#include "worker/plan/plan.h"

#include <stdio.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/device.h"
#include "api/core/job.h"
#include "api/core/mem.h"
#include "worker/family/family.h"
#include "worker/plan/advice.h"
#include "worker/plan/merge_sizes.h"
#include "worker/plan/paged.h"
#include "worker/plan/place.h"
#include "worker/plan/rules.h"
#include "worker/plan/strategy.h"
#include "worker/plan/traffic.h"
#include "worker/plan/update.h"

static bool has_backward(enum job_kind kind)
{
    return kind == JOB_TRAIN || kind == JOB_VERIFY;
}

/* Returns the length of the longest sequence of the run. Memory is placed once, for this
 * length. */
static int64_t sequence_length(const struct job_spec *s)
{
    int64_t n = s->kind == JOB_MERGE ? 1 : s->data.seq_len; /* a merge has no sequence */
    for (int i = 0; s->kind == JOB_TRAIN && i < s->n_stages; i++)
        if (s->stages[i].seq_len > n) n = s->stages[i].seq_len;
    if (s->kind == JOB_GENERATE && n <= 0)
        n = (int64_t)strnlen(s->text + s->input.prompt, SPEC_TEXT_SIZE - s->input.prompt);
    if (s->kind == JOB_VERIFY && s->verify.max_tokens > 0 && (n <= 0 || n > s->verify.max_tokens))
        n = s->verify.max_tokens;
    return n;
}

/* Tells whether a bucket may be updated before the gradients of the other buckets are known. This
 * is true if the bucket's gradient is summed once in a step and the update waits for no other
 * bucket. */
static bool can_fuse(const struct job_spec *s, const struct plan *p)
{
    return s->kind == JOB_TRAIN && p->micro_batches == 1 && p->n_windows == 1 && !update_waits(s);
}

/* Sets the grid of a diffusion model's largest sample: the number of patches of a frame, and the
 * number of frames. */
static int find_grid(const struct job_spec *s, struct plan *p, struct err *e)
{
    const struct model_shape *m = &s->model.shape;
    const int64_t size[3] = {s->data.frames, s->data.height, s->data.width};
    const int64_t patch[3] = {m->patch_t, m->patch_h, m->patch_w};
    int64_t n[3];
    if (family_row(m)->task != MODEL_DIFFUSION) return 0;
    for (int i = 0; i < 3; i++) {
        if (size[i] < 1 || patch[i] < 1)
            return err_field(e, ERR_INVALID,
                             i == 0   ? "data.frames"
                             : i == 1 ? "data.height"
                                      : "data.width",
                             "a diffusion model's plan needs data.frames, data.height and "
                             "data.width: the sizes of its largest latents");
        n[i] = (size[i] + patch[i] - 1) / patch[i];
    }
    p->grid[0] = n[1] * n[2];
    p->grid[1] = n[0];
    if (mem_mul(p->grid[0], p->grid[1], &p->S) || p->S > JOB_MAX_SEQ)
        return err_field(e, ERR_TOO_LARGE, "data.frames",
                         "a sample has %lld x %lld patches, at most %lld are allowed",
                         (long long)p->grid[0], (long long)p->grid[1], (long long)JOB_MAX_SEQ);
    return 0;
}

/* Divides the sequence into windows (LASP in time). Memory is then planned for one window. */
static void cut_windows(const struct job_spec *s, struct plan *p)
{
    int64_t window;
    p->n_windows = 1;
    if (p->kind != JOB_TRAIN || p->grid[0] || s->memory.time_chunk < 1 ||
        mem_mul(s->memory.time_chunk, p->sp, &window) || window >= p->S)
        return;
    p->n_windows = (p->S + window - 1) / window;
    p->S = window;
}

/* Sets the owners of shards. */
static void set_zero(struct plan *p, int stage, int group)
{
    p->zero = p->kind == JOB_TRAIN && plan_sum_ranks(p) > 1 ? stage : 0;
    p->zero_group = p->zero && group ? group : plan_sum_ranks(p);
}

/* Chooses the data that the plan offloads. Only a training has an optimizer. */
static void set_offload(struct plan *p, bool activations, bool optimizer)
{
    p->offload.on = activations;
    p->offload.optimizer = optimizer && p->kind == JOB_TRAIN;
    p->by_bucket = p->fused || p->zero >= 2 || p->offload.optimizer;
}

static bool asks(const struct job_spec *s, enum offload_id which)
{
    return has_backward(s->kind) &&
           (s->memory.offload == (int32_t)which || s->memory.offload == OFFLOAD_ALL);
}

static bool asks_pieces(const struct job_spec *s)
{
    return s->memory.mlp_chunk_tokens > 0 && family_mlps(&s->model.shape).dense;
}

/* Tells whether the plan may run MLPs in pieces. Pieces change the order in which gradients of
 * weights are summed. So under "ranks" they may not depend on a limit of memory. */
static bool may_cut(const struct job_spec *s, const struct plan *p)
{
    return has_backward(p->kind) && s->memory.mlp_chunk_tokens < 0 && !p->rank_bits &&
           family_mlps(&s->model.shape).dense;
}

/* Tells whether the plan may offload. A training in windows may not, because windows keep only
 * states. On the CPU, a plan may offload only if the job names a directory. */
static bool may_offload(const struct job_spec *s, const struct plan *p)
{
    return has_backward(p->kind) && s->memory.offload == OFFLOAD_AUTO && !s->memory.time_chunk &&
           (p->own_memory || *spec_text(s, s->memory.offload_dir));
}

/* Checks a grid whose layers are divided among ranks (GRID_TENSOR). These ranks must also be able
 * to divide its places. */
static int check_places(const struct plan *p, const int64_t grid[2], struct err *e)
{
    if (grid[0] % p->tp == 0) return 0;
    return err_field(e, ERR_INVALID, "parallel.tp",
                     "parallel.tp %d does not divide the %lld patches of a frame", p->tp,
                     (long long)grid[0]);
}

/* Returns the largest number of prompts that are processed together. If the plan decides,
 * place_batch() may choose a smaller number. */
static int batch_limit(const struct job_spec *s)
{
    const int said = rules_together(s);
    if (!job_generates(s)) return 1;
    if (said > 0) return said;
    return rules_batch(s, NULL) ? 1 : JOB_AUTO_BATCH;
}

/* Returns the kind of job whose work this job does. */
static enum job_kind plan_kind(const struct job_spec *s)
{
    if (s->kind != JOB_SERVE) return (enum job_kind)s->kind;
    return job_embeds(s) ? JOB_EMBED : JOB_GENERATE;
}

int plan_choose(const struct job_spec *s, int sp, struct plan *p, struct err *e)
{
    const struct model_shape *m = &s->model.shape;
    *p = (struct plan){.kind = plan_kind(s), .sp = sp, .S = sequence_length(s)};
    if (find_grid(s, p, e)) return -1;
    p->seq_len = p->S;
    cut_windows(s, p);
    p->dp = s->parallel.dp > 0 ? s->parallel.dp : 1;
    p->pp = job_stages(s);
    p->tp = job_tp(s);
    p->pipe = pipe_whole(m->n_layers);
    const struct axes a = plan_axes(p);
    p->n_ranks = axes_ranks(&a);
    p->n_threads = s->resources.threads > 0 ? s->resources.threads : 1;
    p->own_memory = device_find(spec_text(s, s->resources.device))->own_memory;
    p->rank_bits = s->determinism == DET_RANKS;
    p->precision = (enum precision_id)s->precision.params;
    p->micro_batches = s->kind == JOB_VERIFY ? plan_verify_samples(p)
                       : s->kind == JOB_TRAIN && s->train.global_batch > p->dp
                           ? s->train.global_batch / p->dp
                           : 1;
    p->fused = can_fuse(s, p);
    p->ema = s->kind == JOB_TRAIN && s->ema.decay > 0;
    p->pairs = job_learns_pairs(s);
    p->label_smoothing = has_backward(p->kind) && !p->pairs ? s->objective.label_smoothing : 0;
    p->noise = has_backward(p->kind) && s->train.neftune_alpha > 0;
    p->z_loss = has_backward(p->kind) && !p->pairs ? s->objective.z_loss : 0;
    p->batch = batch_limit(s);
    set_zero(p, s->parallel.zero, s->parallel.zero_group);
    p->strategy = (enum strategy_id)s->parallel.strategy;
    p->layout = (enum layout_id)s->parallel.layout;
    p->recompute = has_backward(p->kind) ? (enum recompute_id)s->memory.recompute : RECOMPUTE_NONE;
    p->mlp_chunk = has_backward(p->kind) && asks_pieces(s) ? s->memory.mlp_chunk_tokens : 0;
    set_offload(p, asks(s, OFFLOAD_ACTIVATIONS), asks(s, OFFLOAD_OPTIMIZER));
    if (p->strategy == STRATEGY_AUTO) p->strategy = strategy_default(m, sp);
    if (sp == 1 && strategy_row(p->strategy)->over_ranks) p->strategy = STRATEGY_LOCAL;
    p->form = strategy_form_id(p->strategy, s->parallel.form);
    p->ulysses = strategy_group(m, p->strategy, sp, s->parallel.ulysses);
    if (p->layout == LAYOUT_AUTO)
        p->layout = strategy_layout(m, p->strategy, sp / p->ulysses, p->rank_bits);
    p->exchange = (enum exchange_id)s->parallel.exchange;
    if (p->exchange == EXCHANGE_AUTO) p->exchange = EXCHANGE_RING;
    paged_choose(s, p);
    assert(strategy_takes(m, p->strategy, p->layout, sp)); /* family_check() has checked it */
    assert(m->grid_way != GRID_TENSOR || sp == 1);
    return check_places(p, p->grid, e);
}

int plan_shard(const struct plan *p, int64_t S, int s, struct shard *out, struct err *e)
{
    if (p->grid[0]) return shard_init_units(out, p->grid[0], p->grid[1], p->sp, s, p->rank_bits, e);
    if (p->tp > 1) return shard_init_parts(out, S, p->sp, p->ulysses, s, p->layout, p->tp, e);
    return shard_init_groups(out, S, p->sp, p->ulysses, s, p->layout, p->rank_bits, e);
}

int64_t plan_held(const struct plan *p, int64_t S)
{
    return p->n_windows > 1 ? p->S : S;
}

static int64_t total(const struct plan *p)
{
    return p->arena_size + p->segment_size;
}

/* Tells whether a sum of plan_comm may overflow. It computes an upper bound of each sum in
 * doubles, so that plan_comm can count in int64_t. */
static bool comm_overflows(const struct model_shape *m, const struct plan *p)
{
    const int64_t kv = m->n_kv_heads * m->head_dim;
    const double hop = 8.0 * (double)p->T * (double)(kv > m->width ? kv : m->width);
    const double samples = (double)p->micro_batches;
    return p->sp * hop * 3 * m->n_layers * samples > 4e18 ||
           64 * (double)p->n_grad * samples > 4e18;
}

/* Counts flops. A multiply-add is 2 flops. Causal attention counts half of S x S, and recomputed
 * values do not count. With pairs, the head runs once more. LASP in time computes every window
 * twice, except the last window. The first time it computes only the states at the window's border,
 * without the losses. */
static double count_flops(const struct model_shape *m, const struct plan *p)
{
    struct merge_sizes merge;
    if (p->kind == JOB_MERGE) return merge_sizes(m, &merge), merge.flops;
    const bool losses = p->kind != JOB_GENERATE && p->kind != JOB_EMBED;
    const double once = traffic_products(m, p, losses) +
                        (has_backward(p->kind) ? traffic_products_back(m, p) : 0) +
                        (p->pairs ? traffic_products_out(m, p) : 0);
    const double ahead = p->n_windows > 1 ? traffic_products(m, p, false) : 0;
    return 2 * (once * (double)p->n_windows + ahead * (double)(p->n_windows - 1)) *
           (double)p->micro_batches * p->dp * p->tp;
}

int plan_at_grid(const struct job_spec *spec, const struct plan *p, const int64_t grid[2],
                 int64_t micro_batches, struct plan *out, struct err *e)
{
    struct shard sh;
    int64_t S;
    if (grid[0] < 1 || grid[1] < 1 || mem_mul(grid[0], grid[1], &S) ||
        shard_init_units(&sh, grid[0], grid[1], p->sp, 0, p->rank_bits, e))
        return err_field(e, ERR_INVALID, "data",
                         "a sample of %lld x %lld patches cannot be planned", (long long)grid[0],
                         (long long)grid[1]);
    const int64_t alt = shard_share(grid[1], p->sp, p->rank_bits) * grid[0];
    if (sh.T > p->T || alt > p->extent.rows[ROWS_ALT])
        return err_field(e, ERR_TOO_LARGE, "data.frames",
                         "a sample has %lld x %lld patches and the plan is for %lld x %lld",
                         (long long)grid[0], (long long)grid[1], (long long)p->grid[0],
                         (long long)p->grid[1]);
    if (check_places(p, grid, e)) return -1;
    *out = *p;
    out->grid[0] = grid[0];
    out->grid[1] = grid[1];
    out->S = out->seq_len = S;
    out->T = sh.T;
    out->micro_batches = micro_batches;
    plan_comm(&spec->model.shape, out, 0, out->comm);
    out->flops = count_flops(&spec->model.shape, out);
    return 0;
}

int plan_at(const struct job_spec *spec, const struct plan *p, int64_t S, int64_t micro_batches,
            struct plan *out, struct err *e)
{
    struct shard sh;
    if (p->grid[0]) /* each sample has its own grid, which plan_at_grid() checks */
        return plan_at_grid(spec, p, p->grid, micro_batches, out, e);
    if (S > p->S)
        return err_field(e, ERR_TOO_LARGE, "data.seq_len",
                         "a sequence has %lld tokens and the plan is for %lld", (long long)S,
                         (long long)p->S);
    if (plan_shard(p, S, 0, &sh, e)) return -1;
    *out = *p;
    out->S = S;
    if (out->n_windows == 1) out->seq_len = S;
    out->T = sh.T;
    out->micro_batches = micro_batches;
    plan_comm(&spec->model.shape, out, 0, out->comm);
    out->flops = count_flops(&spec->model.shape, out);
    return 0;
}

/* Sets the error of a job that does not fit. It has no advice if asked is NULL. */
static int does_not_fit(const struct job_spec *asked, const struct job_spec *s,
                        const struct plan *p, const struct plan_limits *limits, struct err *e)
{
    char need[24], have[24], part[24], advice[ADVICE_SIZE];
    struct sentence more = sentence_in(advice, sizeof advice);
    enum plan_class largest = 0;
    for (int i = 1; i < PLAN_CLASS_N; i++)
        if (p->class_size[i] > p->class_size[largest]) largest = (enum plan_class)i;
    if (asked && p->kind != JOB_MERGE) advice_add(&more, asked, s, p, limits);
    return err_field(e, ERR_DOES_NOT_FIT, "resources.memory_mib",
                     "needs %s per rank, limit %s; the largest part is %s, %s%s",
                     plan_bytes(need, total(p)), plan_bytes(have, limits->memory),
                     plan_class_name(largest), plan_bytes(part, p->class_size[largest]), advice);
}

static int check_shape(const struct job_spec *s, struct err *e)
{
    const struct model_shape *m = &s->model.shape;
    const struct family_row *row = family_row(m);
    struct model_shape whole = *m;
    if (family_complete(&whole, e)) return -1;
    if (memcmp(&whole, m, sizeof whole) != 0)
        return err_field(e, ERR_INVALID, "model.config",
                         "the model's sizes are not complete: see family_complete()");
    if ((m->tp > 1 ? m->tp : 1) != job_tp(s))
        return err_field(e, ERR_INTERNAL, "parallel.tp",
                         "the model's shape is of %d slices, the "
                         "job's parallel.tp %d",
                         m->tp, s->parallel.tp);
    if (m->n_layers < 1 || m->n_layers > ZERO_LAYERS_MAX || m->width < 1 || m->n_heads < 1 ||
        m->n_kv_heads < 1 || m->head_dim < 2 || m->ffn_width < 1 ||
        (m->vocab < 1 && row->task != MODEL_DIFFUSION))
        return err_field(e, ERR_INVALID, "model.config", "the model's sizes are not known");
    /* The first computations are in doubles. They make sure that everything after them can count
     * in int64_t. */
    const double width = (double)m->width, heads = (double)m->n_heads * (double)m->head_dim;
    const double experts = m->n_experts > 1 ? (double)m->n_experts : 1;
    const double values = m->value_dim ? (double)m->n_heads * (double)m->value_dim : heads;
    const double layer = width * (4 * heads + 4 * values + 3 * (double)m->ffn_width * experts + 2);
    if (2 * (double)m->vocab * width + m->n_layers * layer > 1e15)
        return err_field(e, ERR_DOES_NOT_FIT, "model.config",
                         "the model has over 10^15 parameters");
    return 0;
}

static bool fits(const struct plan *p, int64_t limit)
{
    return limit <= 0 || total(p) <= limit;
}

/* Places the first mode that fits. The modes are the recompute modes up to `last`, each with dense
 * MLPs first whole and then in pieces. If no mode fits, the last mode remains placed. */
static int place_modes(const struct job_spec *spec, int64_t limit, enum recompute_id last,
                       struct plan *p, struct err *e)
{
    const int64_t asked = p->mlp_chunk;
    for (enum recompute_id r = p->recompute; r <= last; r++) {
        p->recompute = r;
        p->mlp_chunk = asked;
        if (place_ranks(spec, limit, p, e)) return -1;
        if (fits(p, limit)) return 0;
        if (!may_cut(spec, p)) continue;
        p->mlp_chunk = PLAN_MLP_CHUNK;
        if (place_ranks(spec, limit, p, e)) return -1;
        if (fits(p, limit)) return 0;
    }
    return 0;
}

/* Places as many prompts together as fit and are worth their memory, but at least one. The plan
 * needs more memory for each further prompt. */
static int place_batch(const struct job_spec *spec, int64_t limit, struct plan *p, struct err *e)
{
    if (place_ranks(spec, limit, p, e)) return -1;
    const int worth = plan_batch_worth(p, limit, &p->batch_by);
    /* most: largest number of prompts that is known to fit; over: smallest number of prompts that
     * is known not to fit */
    int most = 1, over = worth;
    if (over < p->batch) {
        p->batch = over;
        if (place_ranks(spec, limit, p, e)) return -1;
    }
    if (fits(p, limit)) return 0;
    while (over - most > 1) {
        const int n = (most + over) / 2;
        p->batch = n;
        if (place_ranks(spec, limit, p, e)) return -1;
        if (fits(p, limit))
            most = n;
        else
            over = n;
    }
    p->batch = most;
    if (most < worth) p->batch_by = BATCH_FITS;
    return place_ranks(spec, limit, p, e);
}

/* Tries the modes in order. Offloading is the last mode. With activations offloaded, every value
 * that may be recomputed is recomputed, because it would take longer to copy the value. */
static int place_first(const struct job_spec *spec, int64_t limit, struct plan *p, struct err *e)
{
    const bool any = p->recompute == RECOMPUTE_AUTO;
    const enum recompute_id last = any ? RECOMPUTE_FULL : p->recompute;
    const int64_t asked = p->mlp_chunk;
    if (!rules_together(spec) && p->batch > 1) return place_batch(spec, limit, p, e);
    if (any) p->recompute = p->offload.on ? RECOMPUTE_FULL : RECOMPUTE_NONE;
    if (place_modes(spec, limit, last, p, e)) return -1;
    if (!may_offload(spec, p)) return 0;
    for (int i = 0; !fits(p, limit) && i < (p->kind == JOB_TRAIN ? 3 : 1); i++) {
        set_offload(p, i != 1, i >= 1); /* activations; the optimizer; both */
        p->recompute = any && !p->offload.on ? RECOMPUTE_NONE : last;
        p->mlp_chunk = asked;
        if (place_modes(spec, limit, last, p, e)) return -1;
    }
    return 0;
}

static int make(const struct job_spec *asked, const struct job_spec *spec,
                const struct plan_limits *limits, struct plan *p, struct err *e)
{
    const int dp = spec->parallel.dp > 0 ? spec->parallel.dp : 1;
    const int others = dp * job_stages(spec) * job_tp(spec);
    const int sp = spec->parallel.sp > 0            ? spec->parallel.sp
                   : spec->resources.ranks > others ? spec->resources.ranks / others
                                                    : 1;
    if (check_shape(spec, e) || plan_choose(spec, sp, p, e)) return -1;
    if (place_first(spec, limits->memory, p, e)) return -1;
    if (p->kind != JOB_MERGE && comm_overflows(&spec->model.shape, p))
        return err_field(e, ERR_DOES_NOT_FIT, "train.global_batch",
                         "a step would send more than 10^18 bytes");
    if (p->kind != JOB_MERGE) plan_comm(&spec->model.shape, p, 0, p->comm);
    p->flops = count_flops(&spec->model.shape, p);
    plan_explain(spec, p);
    return fits(p, limits->memory) ? 0 : does_not_fit(asked, spec, p, limits, e);
}

int plan_make(const struct job_spec *spec, int64_t memory_limit, struct plan *p, struct err *e)
{
    return make(spec, spec, &(struct plan_limits){memory_limit, 0}, p, e);
}

int plan_asked(const struct job_spec *asked, const struct job_spec *s,
               const struct plan_limits *limits, struct plan *p, struct err *e)
{
    return make(asked, s, limits, p, e);
}

int plan_try(const struct job_spec *spec, int64_t memory_limit, struct plan *p, struct err *e)
{
    return make(NULL, spec, &(struct plan_limits){memory_limit, 0}, p, e);
}
