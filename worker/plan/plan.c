#include "worker/plan/plan.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include "api/core/mem.h"
#include "worker/plan/memory.h"
#include "worker/plan/volume.h"

static const char *const recompute_words[RECOMPUTE_N] = {"auto", "none", "selective", "full"};

static bool has_backward(enum job_kind kind)
{
    return kind == JOB_TRAIN || kind == JOB_VERIFY;
}

static int64_t sequence_length(const struct job_spec *s)
{
    int64_t n = s->data.seq_len;
    if (s->kind == JOB_GENERATE && n <= 0)
        n = (int64_t)strnlen(s->text + s->input.prompt, SPEC_TEXT_SIZE - s->input.prompt);
    if (s->kind == JOB_VERIFY && s->verify.max_tokens > 0 && (n <= 0 || n > s->verify.max_tokens))
        n = s->verify.max_tokens;
    return n;
}

/* What the spec says, with every auto but recompute resolved. */
static int plan_choose(const struct job_spec *s, int n_ranks, struct plan *p, struct err *e)
{
    *p = (struct plan){.kind = (enum job_kind)s->kind, .n_ranks = n_ranks, .S = sequence_length(s)};
    p->n_threads = s->resources.threads > 0 ? s->resources.threads : 1;
    p->rank_bits = s->determinism == DET_RANKS;
    p->precision = (enum precision_id)s->precision.params;
    p->micro_batches = s->kind == JOB_TRAIN && s->train.global_batch > 0 ? s->train.global_batch
                                                                         : 1;
    p->strategy = (enum strategy_id)s->parallel.strategy;
    p->layout = (enum layout_id)s->parallel.layout;
    p->recompute = has_backward(p->kind) ? (enum recompute_id)s->memory.recompute : RECOMPUTE_NONE;
    if (p->strategy == STRATEGY_AUTO) p->strategy = n_ranks > 1 ? STRATEGY_RSA : STRATEGY_LOCAL;
    if (p->strategy == STRATEGY_LOCAL && n_ranks > 1)
        return err_field(e, ERR_INVALID, "parallel.strategy",
                         "strategy \"local\" runs on 1 rank, not %d: choose \"rsa\"", n_ranks);
    if (p->layout == LAYOUT_AUTO)
        p->layout = n_ranks > 1 && !p->rank_bits ? LAYOUT_ZIGZAG : LAYOUT_CONTIGUOUS;
    return 0;
}

static int place(const struct job_spec *s, struct plan *p, struct err *e)
{
    const struct memory_choice c = {.shape = &s->model.shape,
                                    .wanted_chunk = s->memory.loss_chunk_tokens,
                                    .n_decode = s->sampling.max_tokens};
    if (memory_place(p, &c, e)) return -1;
    if (p->kind != JOB_VERIFY) return 0;
    struct plan ref;
    if (plan_reference(s, p, &ref, e)) return -1;
    p->reference_offset = p->arena_size;
    p->reference_size = ref.arena_size;
    p->arena_size += ref.arena_size;
    for (int i = 0; i < PLAN_CLASS_N; i++) p->class_size[i] += ref.class_size[i];
    p->rounding += ref.rounding;
    return 0;
}

int plan_reference(const struct job_spec *spec, const struct plan *p, struct plan *ref,
                   struct err *e)
{
    const struct memory_choice c = {.shape = &spec->model.shape,
                                    .wanted_chunk = spec->memory.loss_chunk_tokens,
                                    .reference = true};
    *ref = *p;
    ref->n_ranks = 1;
    ref->strategy = STRATEGY_LOCAL;
    ref->layout = LAYOUT_CONTIGUOUS;
    ref->reference_offset = ref->reference_size = 0;
    memset(ref->comm, 0, sizeof ref->comm);
    if (memory_place(ref, &c, e)) return -1; /* up to P times a rank's part */
    assert(ref->segment_size == 0);
    return 0;
}

/* In doubles, so that count_comm can count in int64_t: an upper bound of each of its sums. */
static bool comm_overflows(const struct model_shape *m, const struct plan *p)
{
    const double hop = 8.0 * (double)p->T * (double)(m->n_kv_heads * m->head_dim);
    const double samples = (double)p->micro_batches, P = p->n_ranks;
    return P * hop * 3 * m->n_layers * samples > 4e18 || 8 * (double)p->n_grad * samples > 4e18;
}

/* Per rank and step, from the algorithm: see plan.h for what a step of each kind is. */
static void count_comm(const struct model_shape *m, struct plan *p)
{
    const int P = p->n_ranks;
    const bool back = has_backward(p->kind);
    const int64_t n_layers = m->n_layers * p->micro_batches;
    const int64_t n_reduce = p->rank_bits ? p->micro_batches : 1;
    const int n_kv = !back ? 1 : p->recompute == RECOMPUTE_FULL ? 3 : 2;
    memset(p->comm, 0, sizeof p->comm);
    volume_add(&p->comm[PURPOSE_RING_KV],
               volume_ring_kv(P, p->T, m->n_kv_heads, m->head_dim, p->precision), n_layers * n_kv);
    if (back) {
        volume_add(&p->comm[PURPOSE_RING_DKV],
                   volume_ring_dkv(P, p->T, m->n_kv_heads, m->head_dim, p->rank_bits), n_layers);
        volume_add(&p->comm[PURPOSE_GRAD], volume_sum_f32(P, p->n_grad), n_reduce);
    }
    if (p->kind != JOB_GENERATE && p->kind != JOB_EMBED)
        volume_add(&p->comm[PURPOSE_LOSS], volume_sum_small(P, 1), n_reduce);
    if (p->kind == JOB_TRAIN) volume_add(&p->comm[PURPOSE_CONTROL], volume_sum_small(P, 1), 1);
}

struct comm_count plan_decode_comm(const struct model_shape *m, int n_ranks)
{
    struct comm_count c = {0};
    volume_add(&c, volume_decode(n_ranks, m->n_heads, m->head_dim), m->n_layers);
    return c;
}

/* 2 per multiply-add; causal attention counted once (half of S x S); no recompute. */
static double count_flops(const struct model_shape *m, const struct plan *p)
{
    const double C = (double)m->width, HD = (double)(m->n_heads * m->head_dim);
    const double KD = (double)(m->n_kv_heads * m->head_dim), S = (double)p->S;
    const double layer = C * (2 * HD + 2 * KD + 3 * (double)m->ffn_width);
    const bool headless = p->kind == JOB_GENERATE || p->kind == JOB_EMBED;
    const double head = headless ? 0 : (double)m->vocab * C;
    const double linear = 2 * S * (m->n_layers * layer + head);
    const double attention = 2 * S * S * m->n_layers * HD;
    return (linear + attention) * (has_backward(p->kind) ? 3 : 1) * (double)p->micro_batches;
}

static void explain(const struct job_spec *s, struct plan *p)
{
    const char *layout = p->rank_bits ? "contiguous: determinism \"ranks\" needs it"
                         : p->layout == LAYOUT_ZIGZAG
                             ? "zigzag: every rank has the same causal work"
                             : "contiguous: asked for";
    char recompute[96] = "";
    if (has_backward(p->kind))
        snprintf(recompute, sizeof recompute, "; recompute %s: %s", recompute_words[p->recompute],
                 s->memory.recompute == RECOMPUTE_AUTO ? "the fastest that fits" : "asked for");
    if (p->n_ranks == 1)
        snprintf(p->reason, sizeof p->reason, "local: one rank holds the sequence%s", recompute);
    else
        snprintf(p->reason, sizeof p->reason,
                 "rsa: %d ranks hold %lld rows each and pass keys and values round; %s%s",
                 p->n_ranks, (long long)p->T, layout, recompute);
}

static int64_t total(const struct plan *p)
{
    return p->arena_size + p->segment_size;
}

/* Bytes with n_ranks ranks and this recompute mode, or -1 where that is no legal choice. */
static int64_t size_if(const struct job_spec *s, int n_ranks, enum recompute_id recompute)
{
    struct plan p;
    if (n_ranks > JOB_MAX_RANKS || plan_choose(s, n_ranks, &p, NULL)) return -1;
    p.recompute = recompute;
    return place(s, &p, NULL) ? -1 : total(&p);
}

static void advise(const struct job_spec *s, const struct plan *p, int64_t limit, char *out,
                   size_t size)
{
    char a[24];
    size_t n = 0;
    out[0] = 0;
    if (has_backward(p->kind) && p->recompute != RECOMPUTE_FULL) {
        const int64_t full = size_if(s, p->n_ranks, RECOMPUTE_FULL);
        if (full > 0)
            n += (size_t)snprintf(out, size, "; memory.recompute \"full\" needs %s",
                                  plan_bytes(a, full));
    }
    for (int ranks = p->n_ranks * 2; ranks <= JOB_MAX_RANKS && n < size; ranks *= 2) {
        const int64_t need = size_if(s, ranks, p->recompute);
        if (need < 0) break;
        if (need > limit && ranks * 2 <= JOB_MAX_RANKS) continue;
        n += (size_t)snprintf(out + n, size - n, "; parallel.sp %d needs %s%s", ranks,
                              plan_bytes(a, need), need > limit ? " still" : "");
        break;
    }
    if (p->loss_chunk > 64 && p->item[PLAN_LOGITS].size > limit / 8 && n < size)
        snprintf(out + n, size - n, "; memory.loss_chunk_tokens %lld makes the logits %s",
                 (long long)(p->loss_chunk / 8), plan_bytes(a, p->item[PLAN_LOGITS].size / 8));
}

static int does_not_fit(const struct job_spec *s, const struct plan *p, int64_t limit,
                        struct err *e)
{
    char need[24], have[24], part[24], advice[240];
    enum plan_class largest = 0;
    for (int i = 1; i < PLAN_CLASS_N; i++)
        if (p->class_size[i] > p->class_size[largest]) largest = (enum plan_class)i;
    advise(s, p, limit, advice, sizeof advice);
    return err_field(e, ERR_DOES_NOT_FIT, "resources.memory_mib",
                     "needs %s per rank, limit %s; the largest part is %s, %s%s",
                     plan_bytes(need, total(p)), plan_bytes(have, limit), plan_class_name(largest),
                     plan_bytes(part, p->class_size[largest]), advice);
}

static int check_shape(const struct job_spec *s, struct err *e)
{
    const struct model_shape *m = &s->model.shape;
    if (m->n_layers < 1 || m->width < 1 || m->n_heads < 1 || m->n_kv_heads < 1 || m->head_dim < 2 ||
        m->ffn_width < 1 || m->vocab < 1)
        return err_field(e, ERR_INVALID, "model.config", "the model's sizes are not known");
    if (m->head_dim % 2)
        return err_field(e, ERR_INVALID, "model.config.head_dim", "%lld is odd: RoPE turns pairs",
                         (long long)m->head_dim);
    if (m->head_dim > JOB_MAX_HEAD)
        return err_field(e, ERR_INVALID, "model.config.head_dim", "%lld: at most %d",
                         (long long)m->head_dim, JOB_MAX_HEAD);
    if (m->n_heads % m->n_kv_heads)
        return err_field(e, ERR_INVALID, "model.config.num_key_value_heads",
                         "%lld does not divide the %lld attention heads", (long long)m->n_kv_heads,
                         (long long)m->n_heads);
    /* In doubles first, so that everything after it can count in int64_t. */
    const double width = (double)m->width, heads = (double)m->n_heads * (double)m->head_dim;
    const double layer = width * (4 * heads + 3 * (double)m->ffn_width + 2);
    if (2 * (double)m->vocab * width + m->n_layers * layer > 1e15)
        return err_field(e, ERR_DOES_NOT_FIT, "model.config",
                         "the model has over 10^15 parameters");
    return 0;
}

int plan_make(const struct job_spec *spec, int64_t memory_limit, struct plan *p, struct err *e)
{
    const int n_ranks = spec->parallel.sp > 0       ? spec->parallel.sp
                        : spec->resources.ranks > 0 ? spec->resources.ranks
                                                    : 1;
    if (check_shape(spec, e) || plan_choose(spec, n_ranks, p, e)) return -1;
    const bool any = p->recompute == RECOMPUTE_AUTO;
    const enum recompute_id last = any ? RECOMPUTE_FULL : p->recompute;
    for (enum recompute_id r = any ? RECOMPUTE_NONE : p->recompute; r <= last; r++) {
        p->recompute = r;
        if (place(spec, p, e)) return -1;
        if (memory_limit <= 0 || total(p) <= memory_limit) break;
    }
    if (comm_overflows(&spec->model.shape, p))
        return err_field(e, ERR_DOES_NOT_FIT, "train.global_batch",
                         "a step would send more than 10^18 bytes");
    count_comm(&spec->model.shape, p);
    p->flops = count_flops(&spec->model.shape, p);
    explain(spec, p);
    if (memory_limit > 0 && total(p) > memory_limit) return does_not_fit(spec, p, memory_limit, e);
    return 0;
}
