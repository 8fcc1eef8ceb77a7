/* memory_program.c: places the buffers of a family's sections, from the family's programs. */
#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/device.h"
#include "api/core/job.h"
#include "api/core/mem.h"
#include "worker/family/family.h"
#include "worker/plan/attention.h"
#include "worker/plan/lent.h"
#include "worker/plan/paged.h"
#include "worker/plan/placer.h"
#include "worker/plan/strategy.h"
#include "worker/plan/volume.h"
#include "worker/program/mlp.h"
#include "worker/program/op_rules.h"
#include "worker/program/rope.h"

static int64_t max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static bool trains(const struct plan *p)
{
    return p->kind == JOB_TRAIN || p->kind == JOB_VERIFY;
}

#define SIZE_MOST ((int64_t)1 << 56)

/* ---- sections -------------------------------------------------------------------------------- */

struct schedule_mode plan_schedule(const struct plan *p, bool train)
{
    return (struct schedule_mode){
        .train = train, .pieces = p->mlp_chunk > 0, .recompute = p->recompute};
}

/* Makes one section of the plan, which is `in`, `out`, or a kind of layer. */
static void make_section(const struct program *program, const struct plan *p, struct section *out)
{
    const struct schedule_mode mode = plan_schedule(p, trains(p));
    schedule_make(program, &mode, &out->steps);
    placement_make(program, &out->steps, &p->extent, &out->at);
    out->weights_size = store_places(program, p->extent.unit, out->weight_at);
}

void plan_sections(const struct model_shape *m, const struct plan *p, struct sections *out)
{
    family_write(m, &out->family);
    make_section(&out->family.in, p, &out->in);
    for (int k = 0; k < out->family.n_kinds; k++)
        make_section(&out->family.layer[k], p, &out->layer[k]);
    make_section(&out->family.out, p, &out->out);
}

static int64_t layers_of(const struct model_shape *m, int kind, int n)
{
    int64_t count = 0;
    for (int l = 0; l < n; l++) count += family_layer_kind(m, l) == kind;
    return count;
}

static int layers(const struct plan *p)
{
    return pipe_layers(&p->pipe);
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Returns the number of streams that are offloaded. */
static int streams_out(const struct plan *p)
{
    return p->offload.n_out - least(plan_streams_passed(p), p->offload.n_out);
}

int plan_layers_before(const struct plan *p)
{
    return pipe_first(&p->pipe) ? 0 : pipe_begin(&p->pipe) - 1;
}

/* Returns the bytes of the records that are stored before a layer's record. Records are in the
 * order of the stage's layers, and the record of `in` comes last. */
static int64_t records_before(const struct model_shape *m, const struct plan *p,
                              const int64_t *size, int layers)
{
    int64_t at = 0;
    for (int k = 0; k < FAMILY_KINDS; k++)
        if (size[k])
            at += (layers_of(m, k, layers) - layers_of(m, k, plan_layers_before(p))) * size[k];
    return at;
}

int64_t plan_record(const struct model_shape *m, const struct plan *p, int b)
{
    const struct offload_plan *o = &p->offload;
    if (o->on) return (b == 0 ? o->n_records : b % o->n_records) * o->record_stride;
    return records_before(m, p, p->kept, b == 0 ? pipe_layers(&p->pipe) : b - 1);
}

int plan_streams_passed(const struct plan *p)
{
    const int first = p->shards.back_from - 1 - plan_layers_before(p), all = 1 + layers(p);
    return first < 0 ? 0 : first < all ? first : all;
}

int plan_stream(const struct plan *p, int b)
{
    /* number of buffers that streams use cyclically; the last stream has an additional buffer */
    const int ring = p->n_streams - 1;
    const int passed = plan_streams_passed(p);
    if (p->offload.on) return b == layers(p) ? ring : b % ring;
    return b < passed ? b % 2 : b - passed + least(passed, 2);
}

int64_t plan_stored_stream(const struct plan *p, int b)
{
    assert(b >= plan_streams_passed(p) && b < p->offload.n_out);
    return (b - plan_streams_passed(p)) * p->stream_size;
}

int64_t plan_stored_record(const struct model_shape *m, const struct plan *p, int b)
{
    assert(b > plan_layers_before(p) && b - plan_layers_before(p) <= p->offload.n_records_out);
    return streams_out(p) * p->stream_size + records_before(m, p, p->kept, b - 1);
}

int64_t plan_offloaded(const struct plan *p, int64_t T)
{
    return streams_out(p) * (T / p->tp) * p->offload.row_size + p->offload.records_size;
}

int64_t plan_cache(const struct model_shape *m, const struct plan *p, int b)
{
    assert(b >= 1);
    return records_before(m, p, p->cache, b - 1);
}

int64_t plan_shared(const struct program *in, const struct plan *p, int k, bool gradient)
{
    int64_t at = 0;
    for (int i = 0; i < k; i++) {
        const struct value *v = &in->value[in->shared[i]];
        const bool apart = v->rows == ROWS_TEXT || v->rows == ROWS_COND;
        const int64_t n = p->extent.rows[v->rows] * v->cols;
        const int64_t value = n * (v->f32 ? 4 : p->extent.unit);
        at += mem_round(gradient ? 4 * n * (apart ? p->extent.parts : 1) : value, MEM_ALIGN);
    }
    return at;
}

int plan_scan_pieces(int64_t n)
{
    return n % 4 == 0 ? 4 : n % 2 == 0 ? 2 : 1;
}

/* ---- the needs of all sections together ------------------------------------------------------ */

/* A callback. It is called once for `in` and once for `out` if the stage has them, and once for
 * each kind of layer that the stage has. */
struct visit {
    void (*call)(void *arg, const struct program *p);
    void *arg;
};

static void visit_sections(const struct family *f, const struct plan *p, const struct visit *v)
{
    if (pipe_first(&p->pipe)) v->call(v->arg, &f->in);
    for (int k = 0; k < f->n_kinds; k++)
        if (p->shards.n_of[ZERO_LAYER + k]) v->call(v->arg, &f->layer[k]);
    if (pipe_last(&p->pipe)) v->call(v->arg, &f->out);
}

/* The largest size of each kind of buffer, and the number of columns of the widest value. */
struct needs {
    struct op_need op;
    /* dense MLPs run in pieces, so the gradients of all weights of an MLP are summed together */
    bool pieces;
    double cols;
    /* with pages: the plan, and bytes of the room of paged_states_size() */
    const struct plan *paged;
    int64_t gathered;
};

static void need_section(void *arg, const struct program *p)
{
    struct needs *n = arg;
    for (int i = 0; i < p->n_ops; i++) {
        op_needs(p, &p->op[i], &n->op);
        if (n->paged && op_rules[p->op[i].kind]->cache == CACHE_STATE)
            n->gathered = max64(n->gathered,
                                paged_states_size(p, &p->op[i], n->paged->sp, n->paged->T,
                                                  precision_size(n->paged->precision)));
        if (!n->pieces || !p->has_input || !prog_is_mlp(p, i)) continue;
        const struct program_span s = prog_mlp_weights(p, i);
        n->op.gradient = max64(n->op.gradient, s.end - s.begin);
    }
    for (int v = 0; v < p->n_values; v++)
        if ((double)p->value[v].cols > n->cols) n->cols = (double)p->value[v].cols;
}

int64_t memory_largest_gradient(const struct model_shape *m, const struct plan *p)
{
    struct family *f = family_new(m);
    struct needs n = {.pieces = p->mlp_chunk > 0};
    visit_sections(f, p, &(struct visit){need_section, &n});
    /* the stage of the head also sums a gradient of the embedding */
    if (p->shards.borrows) need_section(&n, &f->in);
    family_free(f);
    return mem_round(n.op.gradient, 16);
}

/* ---- placing --------------------------------------------------------------------------------- */

static void attention_of(const struct plan *p, const struct needs *n, struct attention_need *out)
{
    *out = (struct attention_need){0};
    if (n->op.kv && !p->paged)
        plan_attention(p, n->op.heads, n->op.kv / 2 / n->op.head_dim, n->op.head_dim, out);
}

static struct extent extent_of(const struct placer *b, const struct needs *n)
{
    const struct plan *p = b->p;
    struct attention_need need;
    attention_of(p, n, &need);
    struct extent x = {.rows = {[ROWS_T] = max64(p->T, p->batch),
                                [ROWS_ALT] = p->T,
                                [ROWS_PART] = max64(p->T / p->tp, p->batch),
                                [ROWS_COND] = 2},
                       .unit = precision_size(p->precision),
                       .parts = b->sh.n_sums,
                       .train = trains(p),
                       .cache_rows = p->cache_rows,
                       .n_caches = p->paged ? 1 : p->batch,
                       .n_states = p->batch + p->n_kept_states,
                       .state_rows = p->paged ? CACHE_PAGE : 1,
                       .loss_chunk = p->kind == JOB_EMBED ? 0 : p->loss_chunk,
                       .vocab = family_slice(b->m).vocab,
                       .mlp_chunk = p->mlp_chunk,
                       .noise = p->noise,
                       .grid = {p->grid[0], p->grid[1]},
                       .attn_kept = need.kept,
                       .sp = p->sp,
                       .tp = p->tp,
                       .maps = p->sp > 1 && p->exchange != EXCHANGE_RING,
                       .ranges = strategy_row(p->strategy)->ranges && p->ulysses > 1 ? p->ulysses
                                                                                     : 0};
    x.rows[ROWS_TEXT] = b->m->text_len;
    if (p->grid[0]) x.rows[ROWS_ALT] = shard_share(p->grid[1], p->sp, p->rank_bits) * p->grid[0];
    return x;
}

static int64_t most_rows(const struct plan *p)
{
    int64_t n = 0;
    for (int i = 0; i < ROWS_N; i++) n = max64(n, p->extent.rows[i]);
    return n;
}

/* Returns an upper bound of the bytes that attention keeps for a layer. The published form keeps
 * the probabilities of all keys for every row and head. Every other form keeps less than eight
 * values for every row of the sequence. */
static double most_kept(const struct plan *p, const struct needs *n)
{
    const bool all = strategy_form(p->strategy, p->form)->published;
    const double rows = (double)p->T * p->sp, keys = all ? (double)n->op.heads * (double)p->T : 0;
    return 4 * rows * (keys + 8 * n->cols);
}

/* Returns the largest number of bytes that the host needs for any step of a section (op_stage). */
static int64_t stage_of(const struct program *p, const struct schedule *s, const struct extent *x)
{
    int64_t most = 0;
    for (int i = 0; i < s->n_forward; i++) most = max64(most, op_stage(p, &s->forward[i], x));
    for (int i = 0; i < s->n_backward; i++) most = max64(most, op_stage(p, &s->backward[i], x));
    return most;
}

static void put_stage(struct placer *b, const struct sections *s)
{
    const struct plan *p = b->p;
    const struct family *f = &s->family;
    int64_t most = max64(stage_of(&f->in, &s->in.steps, &p->extent),
                         stage_of(&f->out, &s->out.steps, &p->extent));
    for (int k = 0; k < f->n_kinds; k++)
        most = max64(most, stage_of(&f->layer[k], &s->layer[k].steps, &p->extent));
    placer_put(b, &(struct placer_want){PLAN_STAGE, "stage", PLAN_WORKSPACE, most, p->own_memory,
                                        .host = HOST_ALONE});
}

/* Tells whether the backward pass writes the layer's result again. This happens if the last
 * operation of the layer is a norm and the gradient of the norm reads its output. */
static bool writes_again(const struct program *p, const struct schedule *s)
{
    for (int i = 0; i < s->n_backward; i++) {
        const struct step *st = &s->backward[i];
        if (st->kind == STEP_FORWARD && p->op[st->op].out[0] == p->result) return true;
    }
    return false;
}

static bool any_writes_again(const struct placer *b, const struct sections *s)
{
    for (int k = 0; k < s->family.n_kinds; k++)
        if (layers_of(b->m, k, b->m->n_layers) &&
            writes_again(&s->family.layer[k], &s->layer[k].steps))
            return true;
    return false;
}

static int at_least_0(int n)
{
    return n > 0 ? n : 0;
}

/* Plans the copies of streams and records. p->kept must be known. An earlier stream arrives in a
 * buffer while the backward computes. If the backward writes a layer's result again, the result
 * must not be in that buffer, so the ring has three buffers. */
static void plan_layers_away(struct placer *b, const struct sections *s, int64_t row_size)
{
    struct offload_plan *o = &b->p->offload;
    const int L = pipe_layers(&b->p->pipe);
    o->n_ring = any_writes_again(b, s) ? 3 : 2;
    o->n_records = L < 2 ? L : 2;
    o->n_out = at_least_0(L - o->n_ring);
    o->n_records_out = at_least_0(L - o->n_records);
    o->row_size = row_size;
    for (int k = 0; k < s->family.n_kinds; k++)
        o->record_stride = max64(o->record_stride, b->p->kept[k]);
    o->records_size = records_before(b->m, b->p, b->p->kept,
                                     plan_layers_before(b->p) + o->n_records_out);
    o->slot_size = placer_times(b, streams_out(b->p), b->p->stream_size) + o->records_size;
    o->size = placer_times(b, b->p->slots, o->slot_size);
}

/* Plans the store: the data of layers, and then the optimizer. */
static void plan_offload(struct placer *b, const struct sections *s, int64_t row_size)
{
    struct offload_plan *o = &b->p->offload;
    *o = (struct offload_plan){.on = o->on, .optimizer = o->optimizer, .piece = o->piece};
    if (o->on) plan_layers_away(b, s, row_size);
    if (!plan_stores(b->p)) return;
    o->size = plan_place_away(b->p, o->size);
    b->overflow |= o->size < 0 || o->size > SIZE_MOST;
    if (b->overflow) return;
    if (!b->p->own_memory) o->disk_size = mem_round(o->size, PLAN_PAGE);
    placer_put(b, &(struct placer_want){PLAN_OFFLOAD, "offloaded",
                                        o->optimizer ? PLAN_OPTIMIZER : PLAN_ACTIVATIONS, o->size,
                                        b->p->own_memory, .host = HOST_ALONE});
}

/* Places the logits inside the workspace. */
static void put_logits(struct plan *p, const struct place *logits)
{
    if (!logits->size) return;
    p->item[PLAN_LOGITS] = (struct plan_item){.name = "logits",
                                              .cls = PLAN_WORKSPACE,
                                              .shared = true,
                                              .offset = p->item[PLAN_WORK].offset + logits->offset,
                                              .size = logits->size};
}

/* Returns the number of buffers for the streams of a training. The streams that no backward pass
 * reads share two buffers and alternate between them. */
static int streams_kept(const struct plan *p)
{
    const int passed = plan_streams_passed(p);
    return layers(p) + 1 - passed + least(passed, 2);
}

/* Places records, streams and the workspace. */
static void put_sections(struct placer *b, struct sections *s)
{
    struct plan *p = b->p;
    struct lent lent;
    const struct program *in = &s->family.in;
    const bool back = trains(p);
    const bool first = pipe_first(&p->pipe), last = pipe_last(&p->pipe);
    const int64_t in_kept = first ? s->in.at.kept_size : 0;
    int64_t work = first ? s->in.at.work_size : 0, kept = 0, cache = 0;
    const int64_t width = in->value[in->result].cols;
    bool in_place = true, grad_in_place = true;
    memset(p->kept, 0, sizeof p->kept);
    memset(p->cache, 0, sizeof p->cache);
    for (int k = 0; k < s->family.n_kinds; k++) {
        const struct placement *at = &s->layer[k].at;
        const int64_t n = p->shards.n_of[ZERO_LAYER + k];
        if (!n) continue;
        work = max64(work, at->work_size);
        in_place &= at->in_place;
        grad_in_place &= at->grad_in_place;
        p->kept[k] = at->kept_size;
        p->cache[k] = at->cache_size;
        kept += placer_times(b, n, at->kept_size);
        cache += placer_times(b, n, at->cache_size);
    }
    p->kept[FAMILY_KINDS] = in_kept;
    p->n_streams = back ? streams_kept(p) : in_place ? 1 : 2;
    p->n_dx = !zero_goes_back(&p->shards) ? 0 : grad_in_place ? 1 : 2;
    const int64_t stream = max64(p->T / p->tp, p->batch) * width * p->extent.unit;
    p->stream_size = mem_round(stream, MEM_ALIGN);
    plan_offload(b, s, width * p->extent.unit);
    if (p->offload.on) {
        p->n_streams = layers(p) + 1 - p->offload.n_out;
        kept = p->offload.n_records * p->offload.record_stride;
    }
    lent_decide(b, s, kept, work, &lent);
    if (p->extent.logits_apart) make_section(&s->family.out, p, &s->out);
    if (last) work = max64(work, s->out.at.work_size);
    lent_put(b, &lent);
    const int64_t streams = p->n_streams * p->slots;
    const int64_t shared = plan_shared(in, p, in->n_shared, false);
    const int64_t d_shared = plan_shared(in, p, in->n_shared, true);
    const struct placer_want all[] = {
        {PLAN_X, "residual", PLAN_ACTIVATIONS, stream, streams},
        {PLAN_KEPT, "kept", PLAN_ACTIVATIONS, kept + in_kept, lent.over ? 0 : p->slots},
        {PLAN_SHARED, "shared", PLAN_ACTIVATIONS, shared, 1},
        {PLAN_CACHES, "caches", PLAN_CACHE, cache, 1},
        {PLAN_DX, "d_residual", PLAN_WORKSPACE, stream, back ? p->n_dx : 0},
        {PLAN_DSHARED, "d_shared", PLAN_WORKSPACE, d_shared, back},
        {PLAN_WORK, "work", PLAN_WORKSPACE, work, 1},
        {PLAN_PIPE_SEND, "pipe_send", PLAN_RING, stream, p->pp > 1 ? 2 : 0, true},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) placer_put(b, &all[i]);
    if (last && !p->extent.logits_apart) put_logits(p, &s->out.at.logits);
}

static void put_ring(struct placer *b, const struct needs *n)
{
    const struct plan *p = b->p;
    const int64_t kv = p->T * n->op.kv * p->extent.unit, dkv = p->T * n->op.kv * 4;
    const int64_t ml = n->op.heads * p->T * 4, P = p->sp;
    const bool seq = n->op.kv > 0, back = trains(p), more = P > 1;
    const bool decode = seq && p->kind == JOB_GENERATE;
    const int64_t queries = p->paged ? 8 * P * p->T : 0;
    const int64_t piece = p->paged ? max64(n->gathered,
                                           volume_piece_size(P, p->T, n->op.heads, n->op.head_dim,
                                                             p->extent.unit))
                                   : 0;
    struct attention_need need;
    attention_of(p, n, &need);
    const bool ring = seq && more && need.ring;
    const int views[] = {
        p->n_ranks,        p->sp, p->ulysses,        p->shards.W,   p->shards.n_groups,       p->pp,
        p->pp > 1 ? 2 : 1, p->tp, plan_sum_ranks(p), p->sp * p->tp, plan_sum_ranks(p) * p->tp};
    int64_t bounce = 0;
    for (size_t i = 0; i < sizeof views / sizeof *views; i++)
        bounce = max64(bounce, volume_bounce_size(views[i]));
    const int64_t part = decode ? volume_decode_size(p->sp, n->op.heads, n->op.head_dim, p->batch)
                                : 0;
    const struct placer_want list[] = {
        {PLAN_RING_KV0, "ring_kv0", PLAN_RING, kv, ring, true},
        {PLAN_RING_KV1, "ring_kv1", PLAN_RING, kv, ring, true},
        {PLAN_RING_DKV0, "ring_dkv0", PLAN_RING, dkv, ring && back, true},
        {PLAN_RING_DKV1, "ring_dkv1", PLAN_RING, dkv, ring && back, true},
        {PLAN_ATTN_WORK, "attn_work", PLAN_WORKSPACE, need.arena_size, 1},
        {PLAN_ATTN_SEGMENT, "attn_segment", PLAN_RING, need.segment_size, 1, true},
        {PLAN_RING_PART, "decode_part", PLAN_RING, part, decode, seq && more},
        {PLAN_PAGE_PARTS, "page_parts", PLAN_RING, piece, p->paged, more},
        {PLAN_PAGE_TABLES, "page_tables", PLAN_DATA, placer_times(b, p->table, 4),
         p->paged ? p->batch : 0, .host = HOST_TOO},
        {PLAN_PAGE_LO, "page_lo", PLAN_DATA, queries, p->paged, .host = HOST_TOO},
        {PLAN_PAGE_HI, "page_hi", PLAN_DATA, queries, p->paged, .host = HOST_TOO},
        {PLAN_BOUNCE, "bounce", PLAN_RING, bounce, p->n_ranks > 1, true},
        {PLAN_RING_M, "attn_max", PLAN_RING, ml, seq},
        {PLAN_RING_DELTA, "attn_delta", PLAN_RING, ml, seq && back},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) placer_put(b, &list[i]);
}

static void put_exchange(struct placer *b, const struct needs *n)
{
    const struct plan *p = b->p;
    const int64_t state = 4 * n->op.state, parts = p->extent.parts, P = p->sp;
    const int64_t rows = max64(p->T, p->extent.rows[ROWS_ALT]);
    const int64_t switched = rows * n->op.switched * p->extent.unit;
    const bool gather = p->exchange == EXCHANGE_ALL_GATHER, walked = p->n_windows > 1;
    const bool sends = P > 1 && !p->paged;
    const int64_t carry = placer_times(b, mem_round(state, MEM_ALIGN), b->m->n_layers);
    const int64_t carries = placer_times(b, carry, p->n_windows);
    b->p->carry_size = walked ? carry : 0;
    const struct placer_want list[] = {
        {PLAN_STATE_SEND, "state_send", PLAN_RING, state, sends ? 2 : 0, true},
        {PLAN_STATE_RECV, "state_recv", PLAN_RING, state, sends ? 2 : 0, true},
        {PLAN_STATE_ALL, "state_all", PLAN_RING, placer_times(b, P * parts, state), sends && gather,
         true},
        {PLAN_STATE_M, "state_own", PLAN_RING, placer_times(b, parts, state), 1},
        {PLAN_CARRY_SEND, "carry_send", PLAN_RING, 4 * n->op.carry, sends ? 2 : 0, true},
        {PLAN_CARRY_MAP, "carry_map", PLAN_RING, 4 * n->op.map,
         sends && p->exchange == EXCHANGE_SCAN},
        {PLAN_CARRY_ALL, "carry_all", PLAN_RING, placer_times(b, P, 4 * n->op.summary),
         sends && gather, true},
        {PLAN_CARRY, "carry", PLAN_RING, carries, walked},
        {PLAN_CARRY_PASS, "carry_pass", PLAN_RING, placer_times(b, 2, carry), walked, P > 1},
        {PLAN_SWITCH_SEND, "switch_send", PLAN_RING, switched, P > 1, true},
        {PLAN_SWITCH_RECV, "switch_recv", PLAN_RING, switched, P > 1, true},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) placer_put(b, &list[i]);
}

static void put_data(struct placer *b, const struct needs *n, bool reference)
{
    const struct plan *p = b->p;
    const struct model_shape *m = b->m;
    const int64_t T = p->T, alt = p->extent.rows[ROWS_ALT], lm = n->op.patch == 0;
    const int64_t scratch = device_scratch(spec_text(b->spec, b->spec->resources.device),
                                           p->n_threads);
    const int64_t places = m->patch_t * m->patch_h * m->patch_w;
    const int64_t targets = places * shape_targets(m);
    const int64_t text = n->op.text ? 4 * m->text_len * m->caption_channels : 0;
    const int64_t whole = n->op.kv ? 8 * p->extent.ranges * T : 0;
    const bool samples = !lm && p->kind == JOB_GENERATE, learns = !lm && !samples;
    /* If the device has memory of its own, it also has the rank's part of the plane. */
    const int64_t parts = p->sp + (p->own_memory ? 1 : 0);
    const int64_t plane = samples ? 4 * parts * (T / p->grid[1]) * places : 0;
    const struct placer_want all[] = {
        {PLAN_IDS, "batch_ids", PLAN_DATA, 4 * T, lm, .host = HOST_TOO},
        {PLAN_TARGETS, "batch_targets", PLAN_DATA, 4 * T, lm, .host = HOST_TOO},
        {PLAN_POS, "batch_pos", PLAN_DATA, 8 * T, lm, .host = HOST_TOO},
        {PLAN_LO, "batch_lo", PLAN_DATA, 8 * T, lm, .host = HOST_TOO},
        {PLAN_HI, "batch_hi", PLAN_DATA, 8 * T, lm, .host = HOST_TOO},
        {PLAN_LO_ALL, "batch_lo_all", PLAN_DATA, whole, p->slots, .host = HOST_TOO},
        {PLAN_HI_ALL, "batch_hi_all", PLAN_DATA, whole, p->slots, .host = HOST_TOO},
        {PLAN_TYPES, "batch_types", PLAN_DATA, 4 * T, n->op.types, .host = HOST_TOO},
        {PLAN_GROUP, "batch_group", PLAN_DATA, 4 * T, learns, .host = HOST_TOO},
        {PLAN_GROUP_ALT, "batch_group_alt", PLAN_DATA, 4 * alt, learns, .host = HOST_TOO},
        {PLAN_PATCHES, "batch_patches", PLAN_DATA, 4 * T * n->op.patch, !lm, .host = HOST_TOO},
        {PLAN_TARGET, "batch_target", PLAN_DATA, 4 * T * targets, learns, .host = HOST_TOO},
        {PLAN_ROW_WEIGHT, "batch_row_weight", PLAN_DATA, 4 * T * (lm ? 1 : places), !lm || p->pairs,
         .host = HOST_TOO},
        {PLAN_CAPTION, "batch_caption", PLAN_DATA, text, 1, .host = HOST_TOO},
        {PLAN_VELOCITY, "velocity", PLAN_WORKSPACE, 4 * T * n->op.patch, samples},
        {PLAN_SPREAD, "spread", PLAN_DATA, 4 * T * n->op.patch,
         samples && b->spec->sampling.eta == 1, .host = HOST_TOO},
        {PLAN_PLANE, "plane", PLAN_WORKSPACE, plane, samples, .host = HOST_ALONE},
        {PLAN_NLL, "nll", PLAN_DATA, 8 * T * (lm ? 1 : places), !samples, .host = HOST_TOO},
        {PLAN_INV_FREQ, "rope_inv_freq", PLAN_WORKSPACE, 4 * n->op.rotary * rope_tables(m), 1,
         .host = HOST_TOO},
        {PLAN_SLOPES, "slopes", PLAN_WORKSPACE, 8 * n->op.slopes * m->n_layers, 1,
         .host = HOST_TOO},
        {PLAN_SCRATCH, "kernel_scratch", PLAN_WORKSPACE, scratch, !reference},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) placer_put(b, &all[i]);
}

static void place_program(struct placer *b, bool reference, struct sections *s)
{
    struct needs n = {.paged = b->p->paged ? b->p : NULL};
    family_write(b->m, &s->family);
    visit_sections(&s->family, b->p, &(struct visit){need_section, &n});
    /* Makes sure that the sizes inside a section fit in 63 bits. */
    b->overflow |= most_kept(b->p, &n) * PROG_VALUES > 1e18;
    if (b->overflow) return;
    b->p->extent = extent_of(b, &n);
    if ((double)most_rows(b->p) * n.cols * 8 * PROG_VALUES * PROG_VALUES > 1e18 ||
        (double)b->p->cache_rows * n.cols * 8 * (double)b->m->n_layers > 1e18) {
        b->overflow = true;
        return;
    }
    plan_sections(b->m, b->p, s);
    put_sections(b, s);
    put_stage(b, s);
    put_ring(b, &n);
    put_exchange(b, &n);
    put_data(b, &n, reference);
    memory_contexts(b, &s->family);
}

void memory_program(struct placer *b, bool reference)
{
    struct sections *s = mem_scratch(sizeof *s);
    place_program(b, reference, s);
    free(s);
}
