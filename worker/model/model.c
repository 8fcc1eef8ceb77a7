/* model.c: places a model's memory as the plan says, runs the model's sections for a batch,
 * forward and backward, and sums the loss. */
#include "worker/model/model.h"

#include <math.h>
#include <stddef.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/mem.h"
#include "api/core/mutant.h"
#include "kernels/precision.h"
#include "worker/plan/paged.h"
#include "worker/program/rope.h"

/* ---- placing --------------------------------------------------------------------------------- */

struct base {
    struct model *m;
    char *arena, *segment;
};

void model_note_placed(struct model *m, const struct plan_item *it, int64_t size)
{
    int64_t *end = it->in_segment ? &m->segment_end : it->in_host ? &m->host_end : &m->arena_end;
    if (it->offset + size > *end) *end = it->offset + size;
    if (it->mirrored && it->mirror + size > m->host_end) m->host_end = it->mirror + size;
    m->placed_size = mem_round(m->arena_end, PLAN_PAGE) + mem_round(m->segment_end, PLAN_PAGE);
}

void *model_take(struct model *m, enum plan_id id, int64_t size)
{
    const struct plan_item *it = &m->plan->item[id];
    if (!it->name) return NULL;
    assert(!it->in_segment && it->size == size);
    model_note_placed(m, it, size);
    return (it->in_host ? m->host : m->arena) + it->offset;
}

/* Returns the memory of an item of the plan, or NULL if the job does not use the item. Asserts
 * that the plan counted n instances of `size` bytes each, as this code does. Sets *stride to the
 * bytes from the start of one instance to the start of the next instance. If there is only one
 * instance, sets *stride to 0. */
static void *take(struct base *b, enum plan_id id, int64_t n, int64_t size, int64_t *stride)
{
    const struct plan_item *it = &b->m->plan->item[id];
    if (stride) *stride = it->stride;
    if (!it->name) return NULL;
    const int64_t count = it->stride ? n : 1;
    assert(it->size == (count - 1) * it->stride + size);
    model_note_placed(b->m, it, it->size);
    return (it->in_segment ? b->segment : b->arena) + it->offset;
}

static void place_items(struct base *b, void *params)
{
    struct model *m = b->m;
    const struct plan *p = m->plan;
    const int64_t T = p->T;
    int levels = 0;
    while ((1 << levels) < m->sp.shard.n_sums) levels++;
    m->params = params ? params : take(b, PLAN_PARAMS, 1, plan_weights_size(p), NULL);
    m->fetched = take(b, PLAN_FETCHED, 1, zero_window(&p->shards), NULL);
    m->grad = take(b, PLAN_GRAD, 1, (p->n_grad + p->grad_skip) * 4, NULL);
    m->tree = take(b, PLAN_TREE, levels, p->tree_size * 4, &m->tree_stride);
    m->all_lo = take(b, PLAN_LO_ALL, p->slots, 8 * p->ulysses * T, NULL);
    m->all_hi = take(b, PLAN_HI_ALL, p->slots, 8 * p->ulysses * T, NULL);
    m->host_all_lo = section_host(m, PLAN_LO_ALL);
    m->host_all_hi = section_host(m, PLAN_HI_ALL);
    m->route_room = model_take(m, PLAN_ROUTES, p->item[PLAN_ROUTES].size);
    take(b, PLAN_SCRATCH, 1, p->item[PLAN_SCRATCH].size, NULL); /* only counted here */
}

static int check_options(const struct model_options *o, struct err *e)
{
    const struct plan *p = o->plan;
    if (p->n_ranks != o->n_ranks || o->rank < 0 || o->rank >= o->n_ranks)
        return err_set(e, ERR_INVALID, "rank %d of %d, but the plan is for %d ranks", o->rank,
                       o->n_ranks, p->n_ranks);
    if (!o->arena || (p->segment_size && !o->segment) || (o->n_ranks > 1 && !o->comm) ||
        (p->host_size && !o->host) || (plan_stores(p) && !o->offload))
        return err_set(e, ERR_INVALID, "the plan needs an arena%s%s%s",
                       o->n_ranks > 1 ? ", a comm segment and a ring" : "",
                       p->host_size ? ", and a part of the host's memory" : "",
                       plan_stores(p) ? ", and a store" : "");
    if (!o->params && !p->item[PLAN_PARAMS].name)
        return err_set(e, ERR_INVALID, "the plan holds no weights and none were given");
    return 0;
}

int model_init(struct model *m, const struct model_options *o, struct err *e)
{
    if (check_options(o, e)) return -1;
    const struct model_shape *s = o->shape;
    memset(m, 0, offsetof(struct model, prog.all));
    m->shape = *s;
    m->plan = o->plan;
    m->be = o->be;
    m->arena = o->arena;
    m->host = o->host;
    m->offload = o->offload;
    m->bad_adapter = -1;
    m->dtype = dtype_of_precision(o->plan->precision);
    if (model_open_views(m, o, e)) return -1;
    m->sp.ops = sp_find(o->plan->strategy, o->plan->form);
    if (!m->sp.ops && !o->plan->grid[0])
        return err_set(e, ERR_UNSUPPORTED, "the plan's strategy has no row here");
    m->sp.be = o->be;
    m->sp.comm = m->comm;
    const struct model_shape own = family_slice(s);
    m->sp.shape = (struct sp_attn_shape){own.n_heads, own.n_kv_heads, own.head_dim,
                                         (float)(1 / sqrt((double)own.head_dim))};
    m->sp.rank_bits = o->plan->rank_bits;
    if (model_set_seq(m, o->plan->S, e) || sp_open_groups(&m->sp, e)) return -1;
    struct base b = {m, o->arena, o->segment};
    place_items(&b, o->params);
    section_place(m, o->arena, o->segment);
    model_set_rope(m, s->rope_theta);
    return 0;
}

/* Sets the frequencies for a sequence of S tokens and the tokens that are generated after it. */
static void set_frequencies(struct model *m, int64_t S)
{
    const int64_t size = m->plan->item[PLAN_INV_FREQ].size;
    if (m->plan->kind == JOB_GENERATE) S += m->plan->n_decode;
    m->prog.frame.rope_scale = 1;
    m->prog.frame.rope_single = m->shape.rope.compute == ROPE_HF;
    if (!m->inv_freq) return;
    const int n_tables = rope_tables(&m->shape);
    const int64_t D = size / 4 / n_tables; /* number of rotary columns of a head */
    m->prog.frame.rope_scale = (float)rope_frequencies(&m->shape, m->rope_theta, S, D, m->inv_freq);
    if (n_tables == 2) rope_local_frequencies(&m->shape, D, m->inv_freq + D / 2);
    if (m->inv_freq != m->prog.inv_freq)
        m->be->ops->upload(m->be, m->prog.inv_freq, m->inv_freq, size);
}

void model_set_rope(struct model *m, double theta)
{
    m->rope_theta = theta;
    set_frequencies(m, m->sp.shard.S);
}

int model_set_seq(struct model *m, int64_t S, struct err *e)
{
    const struct plan *p = m->plan;
    if (S > p->S)
        return err_set(e, ERR_TOO_LARGE, "a sequence has %lld tokens and the plan is for %lld",
                       (long long)S, (long long)p->S);
    m->cache[m->slot].used = m->cache[m->slot].n_decoded = 0;
    if (p->grid[0]) return model_set_grid(m, p->grid[0], S / p->grid[0], e);
    if (plan_shard(p, S, m->rank, &m->sp.shard, e)) return -1;
    m->cache[m->slot].shard = m->sp.shard;
    section_resize(m);
    if (model_by_length(m)) set_frequencies(m, S);
    return 0;
}

bool model_by_length(const struct model *m)
{
    return rope_by_length(&m->shape);
}

int model_set_grid(struct model *m, int64_t space, int64_t time, struct err *e)
{
    const struct plan *p = m->plan;
    if (dsp_rows((int64_t[]){space, time}, p->sp, p->rank_bits, 0) > p->extent.rows[ROWS_T] ||
        dsp_rows((int64_t[]){space, time}, p->sp, p->rank_bits, 1) > p->extent.rows[ROWS_ALT])
        return err_set(e, ERR_TOO_LARGE,
                       "a sample has %lld frames of %lld patches and the plan is for %lld of %lld",
                       (long long)time, (long long)space, (long long)p->grid[1],
                       (long long)p->grid[0]);
    if (shard_init_units(&m->sp.shard, space, time, p->sp, m->rank, p->rank_bits, e)) return -1;
    m->prog.grid[0] = space;
    m->prog.grid[1] = time;
    section_resize(m);
    return 0;
}

/* ---- a whole sequence ------------------------------------------------------------------------ */

/* Returns the address of element `offset` of the flat layout in the window that has the element's
 * bucket. */
static char *in_window(const struct model *m, int64_t offset)
{
    const struct zero *z = &m->plan->shards;
    const int b = zero_bucket(z, offset);
    return (char *)m->fetched + zero_window_at(z, b) +
           (offset - zero_begin(z, b)) * dtype_size(m->dtype);
}

struct tensor model_weight(const struct model *m, int64_t offset, int64_t rows, int64_t cols)
{
    const int64_t at = m->fetched ? 0 : zero_local(&m->plan->shards, offset);
    char *data = m->fetched ? in_window(m, offset) : (char *)m->params + at * dtype_size(m->dtype);
    return tensor_of(m->dtype, data, rows, cols, cols);
}

float *model_bucket_gradient(const struct model *m, int bucket)
{
    const struct zero *z = &m->plan->shards;
    if (m->plan->by_bucket) return m->grad + zero_grad_window_at(z, bucket);
    return m->grad + zero_grad_local(z, bucket) + (bucket ? m->plan->grad_skip : 0);
}

struct tensor model_rows(const struct model *m, void *base, int64_t cols)
{
    return tensor_of(m->dtype, base, m->sp.shard.T / m->plan->tp, cols, cols);
}

/* Returns the number of this rank's rows that are not padding. These rows come first in every
 * layout, because positions ascend with the row. */
int64_t model_prompt_rows(const struct shard *sh)
{
    int64_t n = 0;
    for (int i = 0; i < sh->n_segs; i++) {
        const int64_t left = sh->S - sh->pos[i];
        n += left < 0 ? 0 : left < sh->seg_len ? left : sh->seg_len;
    }
    return n;
}

void model_rewind(struct model *m)
{
    struct model_cache *c = &m->cache[m->slot];
    c->used = model_prompt_rows(&c->shard);
    c->n_decoded = 0;
}

static int sync(struct model *m, struct err *e)
{
    return m->be->ops->sync ? m->be->ops->sync(m->be, e) : 0;
}

/* Gathers lo, or hi, of the rows of all ranks of the group, run by run. */
static int gather_rows(struct model *m, const int64_t *own, int64_t *all, struct err *e)
{
    const struct shard *sh = &m->sp.shard;
    const int64_t run = sh->T / shard_runs(sh);
    int64_t cut[JOB_MAX_RANKS + 1];
    for (int w = 0; w <= sh->u; w++) cut[w] = w * run;
    for (int64_t at = 0; at < sh->T; at += run)
        if (comm_all_gather(m->sp.group, PURPOSE_HEADS, own + at, all + sh->u * at, cut, 8,
                            m->bounce, e))
            return -1;
    return 0;
}

/* Gathers the ranges of keys that the rows of all ranks of the group see. Strategies with
 * strategy_row.ranges compute with these rows. */
static int gather_ranges(struct model *m, const struct batch *b, struct err *e)
{
    const int64_t size = 8 * m->sp.shard.u * m->sp.shard.T;
    if (!m->all_lo || !m->sp.group) return 0;
    if (gather_rows(m, b->lo, m->all_lo, e) || gather_rows(m, b->hi, m->all_hi, e)) return -1;
    if (m->be->own_memory && section_windowed(m)) {
        m->be->ops->download(m->be, m->host_all_lo, m->all_lo, size);
        m->be->ops->download(m->be, m->host_all_hi, m->all_hi, size);
    }
    return 0;
}

/* Runs `in` and the layers. The last stage also fetches the weights of the head. b is the batch as
 * operations read it. */
static int forward(struct model *m, const struct batch *b, bool to_loss, struct err *e)
{
    m->sp.drop.sample = (uint32_t)b->sample;
    m->prog.frame.by_row = false;
    m->prog.frame.adapter[0] = m->cache[m->slot].adapter;
    return model_sections(m, b, to_loss, e);
}

int model_sections(struct model *m, const struct batch *b, bool to_loss, struct err *e)
{
    return gather_ranges(m, b, e) || section_forward(m, b, to_loss, e) ? -1 : 0;
}

void model_use_base(struct model *m, bool base)
{
    m->prog.frame.base = base;
}

void model_use_adapter(struct model *m, int32_t adapter)
{
    assert(adapter == ADAPTER_BASE || adapter < m->shape.adapters.n);
    m->cache[m->slot].adapter = adapter;
}

int model_forward(struct model *m, const struct batch *b, struct err *e)
{
    if (forward(m, batch_inputs(m, b), true, e)) return -1;
    model_rewind(m);
    return sync(m, e);
}

int model_lend(struct model *m, struct err *e)
{
    const struct pipe *p = &m->plan->pipe;
    for (int b = pipe_begin(p); b < pipe_end(p) && b <= m->shape.n_layers; b++)
        if (model_fetch(m, b, e)) return -1;
    return pipe_last(p) ? model_fetch_head(m, e) : 0;
}

/* Returns the address at which the embedding's own gradient is summed. Under determinism "ranks"
 * the gradient of a tied embedding has two buffers, one for the embedding and one for the head,
 * until both have been summed over ranks. With a single buffer, the order of the additions would
 * depend on the number of ranks. */
float *model_embed_grad(struct model *m)
{
    const bool apart = m->plan->rank_bits && m->plan->shards.tied_grads && !m->plan->by_bucket &&
                       !m->line;
    return apart ? m->grad + m->plan->grad_skip + m->plan->n_trained
                 : model_bucket_gradient(m, 0); /* it comes first in bucket 0 */
}

/* Sums the losses of the rows of n sum chunks, which begin with chunk `first`. In each chunk, rows
 * are added in ascending order. The sums of the chunks are added as a perfect binary tree. */
static double sum_nll(const struct model *m, int first, int n)
{
    double s = 0;
    if (n > 1) return sum_nll(m, first, n / 2) + sum_nll(m, first + n / 2, n / 2);
    const double *p = m->nll + first * m->sp.shard.sum_len;
    for (int64_t i = 0; i < m->sp.shard.sum_len; i++) s += p[i];
    return s;
}

/* Sums the losses of the rows of a sum chunk that have positions in [begin, end). */
static double chunk_nll_of(const struct model *m, int chunk, int64_t begin, int64_t end)
{
    const struct shard *sh = &m->sp.shard;
    double s = 0;
    for (int i = 0; i < sh->n_segs; i++) {
        const int64_t shift = i * sh->seg_len - sh->pos[i]; /* from a position to its row */
        int64_t row = begin + shift, last = end + shift;
        if (row < i * sh->seg_len) row = i * sh->seg_len;
        if (row < chunk * sh->sum_len) row = chunk * sh->sum_len;
        if (last > (i + 1) * sh->seg_len) last = (i + 1) * sh->seg_len;
        if (last > (chunk + 1) * sh->sum_len) last = (chunk + 1) * sh->sum_len;
        for (; row < last; row++) s += m->nll[row];
    }
    return s;
}

static double tree_nll_of(const struct model *m, int first, int n, int64_t begin, int64_t end)
{
    if (n == 1) return chunk_nll_of(m, first, begin, end);
    return tree_nll_of(m, first, n / 2, begin, end) +
           tree_nll_of(m, first + n / 2, n / 2, begin, end);
}

double model_nll_of(const struct model *m, int64_t begin, int64_t end)
{
    return tree_nll_of(m, 0, m->sp.shard.n_sums, begin, end);
}

/* Copies the loss of every row to the host. */
static void take_nll(struct model *m)
{
    const int64_t T = m->sp.shard.T, n = m->plan->item[PLAN_NLL].size / (8 * m->plan->T);
    const int64_t own = T / m->plan->tp, first = m->tensor_rank * own;
    if (m->be->own_memory) m->be->ops->download(m->be, m->nll, m->prog.nll, 8 * T * n);
    for (int64_t i = 0; n > 1 && i < T; i++) {
        double s = 0;
        for (int64_t k = 0; k < n; k++) s += m->nll[i * n + k];
        m->nll[i] = s;
    }
    /* clears the rows of the other ranks of m->tensor */
    for (int64_t i = 0; own < T && i < T; i++)
        if (i < first || i >= first + own) m->nll[i] = 0;
}

double model_sum_nll(struct model *m)
{
    take_nll(m);
    return sum_nll(m, 0, m->sp.shard.n_sums);
}

int model_nll(struct model *m, const struct batch *b, double *nll_sum, struct err *e)
{
    if (section_loss(m, batch_loss(m, b), e)) return -1;
    *nll_sum = model_sum_nll(m);
    return 0;
}

int model_weigh_rows(struct model *m, const struct batch *b, double *loss, struct err *e)
{
    double sum;
    if (!m->weigh.call) return 0;
    m->prog.frame.p = NULL; /* so that the input of the loss is computed for this batch */
    if (model_nll(m, b, &sum, e) || m->weigh.call(m->weigh.arg, loss, e)) return -1;
    batch_weights(m);
    return 0;
}

/* Returns 1. Under the fault MUTANT_LOSS_MEAN, returns the factor by which a rank's loss is wrong
 * if the means of the ranks are averaged. */
static double mean_of_means(const struct model *m, const struct batch *b)
{
    int64_t own = 0;
    if (!mutant_on(MUTANT_LOSS_MEAN)) return 1;
    for (int64_t i = 0; i < m->sp.shard.T; i++) own += b->targets[i] >= 0;
    return own ? (double)b->n_targets / (double)(own * m->plan->sp) : 1;
}

void model_begin_grad(struct model *m)
{
    m->grad_anew = !m->plan->by_bucket;
}

int model_grad(struct model *m, const struct batch *b, float scale, double *nll_sum, struct err *e)
{
    assert(m->grad);
    const double wrong = mean_of_means(m, b);
    scale = (float)(scale * wrong);
    model_place(m, b);
    const struct batch *there = m->be->own_memory ? &m->there : b;
    if (forward(m, there, false, e)) return -1;
    model_rewind(m);
    if (model_weigh_rows(m, there, nll_sum, e) || section_backward(m, there, scale, e)) return -1;
    if (!m->weigh.call) *nll_sum = model_sum_nll(m) * wrong;
    return sync(m, e);
}

int model_reduce_grad(struct model *m, struct err *e)
{
    const struct plan *p = m->plan;
    if (m->all) *comm_where(m->all) = (struct comm_where){comm_where(m->all)->step, -1, -1};
    for (int b = 0; m->tensor && b < zero_buckets(&p->shards); b++)
        if (zero_sums(&p->shards, b) && model_sum_slices(m, b, model_bucket_gradient(m, b), e))
            return -1;
    if (m->world && p->n_grad &&
        comm_sum_f32(m->world, PURPOSE_GRAD, m->grad, p->n_grad, m->bounce, e))
        return -1;
    if (p->rank_bits && p->shards.tied_grads && !m->line)
        m->be->ops->add(m->be, &(struct add_args){.y = m->grad,
                                                  .x = model_embed_grad(m),
                                                  .n = m->shape.vocab * m->shape.width});
    return 0;
}

/* ---- after the last layer -------------------------------------------------------------------- */

struct tensor model_states(struct model *m)
{
    return section_states(m);
}

int model_head(struct model *m, struct err *e)
{
    return section_head(m, e);
}

struct tensor model_normed(struct model *m, int64_t row0, int64_t n)
{
    assert(row0 >= 0 && row0 + n <= m->sp.shard.T);
    return section_normed(m, row0, n);
}

struct tensor model_logits(struct model *m, int64_t row0, int64_t n)
{
    assert(n <= m->plan->loss_chunk && row0 >= 0 && row0 + n <= m->sp.shard.T);
    return section_logits(m, row0, n);
}

/* ---- one token after another ----------------------------------------------------------------- */

/* Tells whether this rank stores token i after the prompt. One rank after another stores a block
 * of tokens, so that the caches of all ranks grow evenly. */
static bool stores(const struct model *m, int64_t i)
{
    return i / CACHE_BLOCK % m->plan->sp == m->rank;
}

void model_use(struct model *m, int slot)
{
    assert(slot >= 0 && slot < m->plan->batch);
    m->slot = slot;
}

/* Fails if the cache of a slot has no room for another token. */
static int check_room(const struct model *m, int slot, struct err *e)
{
    const struct plan *p = m->plan;
    const struct model_cache *c = &m->cache[slot];
    if (p->paged && c->n_tokens >= p->seq_len)
        return err_set(e, ERR_TOO_LARGE, "the tables were planned for %lld tokens",
                       (long long)p->seq_len);
    if (!p->paged && c->n_decoded >= p->n_decode)
        return err_set(e, ERR_TOO_LARGE, "the cache was planned for %lld new tokens",
                       (long long)p->n_decode);
    return 0;
}

static struct section_row next_row(const struct model *m, const struct model_next *next, int i,
                                   int n)
{
    const struct model_cache *c = &m->cache[next[i].slot];
    const int of = mutant_on(MUTANT_ADAPTER_ROW) ? next[(i + 1) % n].slot : next[i].slot;
    const bool paged = m->plan->paged;
    return (struct section_row){
        .slot = next[i].slot,
        .token = next[i].token,
        .adapter = m->cache[of].adapter,
        .pos = paged ? c->n_tokens : m->carry.n_tokens + c->shard.S + c->n_decoded,
        .own = paged ? paged_owner(m->plan->sp, c->n_tokens) == m->rank : stores(m, c->n_decoded)};
}

static void count_row(struct model *m, const struct section_row *row)
{
    struct model_cache *c = &m->cache[row->slot];
    if (m->plan->paged) {
        c->n_tokens++;
        return;
    }
    c->n_decoded++;
    c->used += row->own;
}

int model_decode_all(struct model *m, const struct model_next *next, int n, struct err *e)
{
    struct section_row row[JOB_MAX_BATCH] = {0};
    assert(m->plan->cache_rows && n > 0 && n <= m->plan->batch);
    for (int i = 0; i < n; i++) {
        if (check_room(m, next[i].slot, e)) return -1;
        row[i] = next_row(m, next, i, n);
    }
    if (section_decode(m, row, n, e)) return -1;
    for (int i = 0; i < n; i++) count_row(m, &row[i]);
    return 0;
}

int model_decoded(struct model *m, int from, int n, struct tensor *logits, struct err *e)
{
    assert(n <= m->plan->loss_chunk);
    *logits = section_logits(m, from, n);
    return sync(m, e);
}

int model_decode(struct model *m, int32_t token, struct tensor *logits, struct err *e)
{
    const struct model_next next = {m->slot, token};
    if (model_decode_all(m, &next, 1, e)) return -1;
    return model_decoded(m, 0, 1, logits, e);
}
