#include "api/core/job.h"
#include "tests/lib/engine.h"

void engine_spec(struct job_spec *s, int64_t S)
{
    memset(s, 0, sizeof *s);
    s->kind = JOB_TRAIN;
    s->model.shape = (struct model_shape){.n_layers = 2,
                                          .width = 32,
                                          .n_heads = 4,
                                          .n_kv_heads = 2,
                                          .head_dim = 8,
                                          .ffn_width = 40,
                                          .vocab = 61,
                                          .norm_eps = 1e-5,
                                          .rope_theta = 10000};
    s->data.seq_len = S;
    s->data.document_mask = s->data.reset_positions = 1;
    s->train.steps = 20;
    s->train.global_batch = s->train.micro_batch = 1;
    s->optim.lr = 1e-3;
    s->optim.beta1 = 0.9;
    s->optim.beta2 = 0.95;
    s->optim.eps = 1e-8;
    s->optim.weight_decay = 0.1;
    s->optim.max_grad_norm = 1.0;
    s->schedule.warmup_steps = 3;
    s->schedule.min_lr_ratio = 0.1;
    s->resources.threads = 1;
    s->seed = 5;
    s->determinism = DET_RUN;
    s->text_used = 1;
}

/* ---- synthetic samples: a pure function of (sample, position) -------------------------------- */

uint32_t synth_hash(uint64_t x)
{
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdull;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53ull;
    return (uint32_t)(x >> 32);
}

int32_t synth_token(const struct synth *y, int64_t n, int64_t pos)
{
    const uint32_t h = synth_hash((uint64_t)n * 1000003 + (uint64_t)pos / 3);
    return (int32_t)((h + (uint32_t)(pos % 3)) % (uint32_t)y->vocab);
}

int64_t synth_start(const struct synth *y, int64_t n, int64_t pos)
{
    if (!y->doc_len) return 0;
    const int64_t shift = n % y->doc_len; /* borders differ from sample to sample */
    const int64_t start = (pos + shift) / y->doc_len * y->doc_len - shift;
    return start < 0 ? 0 : start;
}

static int32_t synth_target(const struct synth *y, int64_t n, int64_t pos)
{
    if (pos + 1 >= y->S || (y->bare_from && pos >= y->bare_from)) return -1;
    if (synth_start(y, n, pos + 1) != synth_start(y, n, pos)) return -1;
    return synth_token(y, n, pos + 1);
}

int64_t synth_targets(void *arg, int64_t n, struct err *e)
{
    const struct synth *y = arg;
    (void)e;
    int64_t count = 0;
    if (!y->doc_len) /* at once: a walk in time asks for each of many windows */
        return y->bare_from && y->bare_from < y->S ? y->bare_from : y->S - 1;
    for (int64_t i = 0; i < y->S; i++) count += synth_target(y, n, i) >= 0;
    return count;
}

int synth_batch(void *arg, const struct shard *sh, int64_t n, struct batch *b, struct err *e)
{
    const struct synth *y = arg;
    b->n_tokens = y->S;
    b->n_targets = synth_targets(arg, n, e);
    for (int64_t i = 0; i < sh->T; i++) {
        const int64_t pos = shard_pos(sh, i);
        const bool pad = pos >= y->S;
        b->ids[i] = pad ? 0 : synth_token(y, n, pos);
        b->targets[i] = pad ? -1 : synth_target(y, n, pos);
        b->lo[i] = pad ? 0 : synth_start(y, n, pos);
        b->hi[i] = pad ? 0 : pos + 1;
        b->pos[i] = pad ? 0 : pos - b->lo[i];
    }
    return 0;
}

/* ---- a rank ---------------------------------------------------------------------------------- */

const char *engine_device(void)
{
    const char *name = getenv("SEQD_TEST_DEVICE");
    return name ? name : "cpu";
}

static void *engine_alloc(const struct plan *p, struct be *be, int64_t size)
{
    struct err e = {0};
    if (!size) return NULL;
    void *at = p->own_memory ? be->ops->alloc(be, size, &e) : engine_pages(size);
    CHECK_MSG(at, "%s", e.text);
    if (!at) abort();
    return at;
}

struct engine_memory engine_open(const struct job_spec *spec, const struct plan *p, const char *isa)
{
    struct err e = {0};
    const struct be_options o = {.device = *spec_text(spec, spec->resources.device)
                                               ? spec_text(spec, spec->resources.device)
                                               : "cpu",
                                 .isa = isa,
                                 .n_threads = p->n_threads,
                                 .any_order = !p->rank_bits, /* as a job's rank has it */
                                 .scratch_later = true};
    struct engine_memory m = {.be = be_open(&o, &e)};
    CHECK_MSG(m.be, "%s", e.text);
    if (!m.be) abort();
    m.arena = engine_alloc(p, m.be, p->arena_size);
    if (p->own_memory) m.segment = engine_alloc(p, m.be, p->segment_size);
    if (p->host_size) m.host = engine_pages(p->host_size);
    be_give_scratch(m.be, m.arena + p->item[PLAN_SCRATCH].offset, p->item[PLAN_SCRATCH].size);
    return m;
}

void engine_close(struct engine_memory *m, const struct plan *p)
{
    if (m->host) engine_unpage(m->host, p->host_size);
    if (m->segment) m->be->ops->free(m->be, m->segment, p->segment_size);
    if (p->own_memory)
        m->be->ops->free(m->be, m->arena, p->arena_size);
    else
        engine_unpage(m->arena, p->arena_size);
    be_close(m->be);
}

void engine_read(struct be *be, void *to, const void *from, int64_t size)
{
    be->ops->download(be, to, from, size);
}

void engine_write(struct be *be, void *to, const void *from, int64_t size)
{
    be->ops->upload(be, to, from, size);
}

void engine_poison(struct be *be, void *at, int64_t size)
{
    static _Thread_local char nan[1 << 16];
    memset(nan, 0xff, sizeof nan);
    for (int64_t k = 0; k < size; k += (int64_t)sizeof nan)
        engine_write(be, (char *)at + k, nan,
                     size - k < (int64_t)sizeof nan ? size - k : (int64_t)sizeof nan);
}

void engine_ranks(const struct job_spec *spec, const struct plan *p, const char *isa,
                  const struct comm_options *extra, struct engine_memory *mem,
                  void (*body)(struct ranks *, int, void *), void *arg)
{
    struct ranks_device device[JOB_MAX_RANKS];
    struct ranks g;
    for (int i = 0; i < p->n_ranks; i++) {
        mem[i] = engine_open(spec, p, isa);
        device[i] = (struct ranks_device){mem[i].be, mem[i].segment};
    }
    if (p->n_ranks == 1) {
        body(NULL, 0, arg);
    } else {
        ranks_open_on(&g, p->n_ranks, p->segment_size, extra, device);
        ranks_run(&g, body, arg);
        ranks_check(&g);
        ranks_close(&g);
    }
    for (int i = 0; i < p->n_ranks; i++) engine_close(&mem[i], p);
}

void engine_keep(float **out, const float *from, int64_t n)
{
    *out = malloc((size_t)n * 4);
    if (!*out) abort();
    memcpy(*out, from, (size_t)n * 4);
}

void engine_collect(const struct train *t, enum sharded_array which, float *out)
{
    struct err e = {0};
    if (t->plan->zero ? t->state.rank < t->plan->zero_group : t->state.rank == 0)
        CHECK_MSG(!sharded_read(&t->state, which, 0, t->plan->n_params, out, &e), "%s", e.text);
}

static void engine_start(struct train *t, const struct engine_run *r)
{
    const int64_t n = r->plan.n_params;
    if (r->initial)
        sharded_write(&t->state, SHARDED_WEIGHTS, 0, n, r->initial);
    else
        sharded_random(&t->state, r->spec->seed);
    if (r->m) sharded_write(&t->state, SHARDED_M, 0, n, r->m);
    if (r->v) sharded_write(&t->state, SHARDED_V, 0, n, r->v);
    t->step = r->first_step;
}

void engine_steps(struct train *t, struct engine_run *r, int rank, struct err *e)
{
    for (int64_t k = 0; k < r->steps; k++) {
        struct rank_step out;
        if (r->before_step) r->before_step(t, rank, r->arg);
        if (train_step(t, &out, e)) return;
        if (r->after_step) r->after_step(t, rank, r->arg);
        CHECK_MSG(out.ledger_ok == !r->ledger_differs || (r->ledger_differs && k + 1 < r->steps),
                  "P %d rank %d step %lld: ledger %s the plan", r->P, rank, (long long)out.step,
                  out.ledger_ok ? "equals" : "differs from");
        CHECK_MSG(out.memory_high == out.memory_planned, "placed %lld bytes, planned %lld",
                  (long long)out.memory_high, (long long)out.memory_planned);
        if (k == 0 && !r->plan.fused) engine_collect(t, SHARDED_GRAD, r->grad);
        if (rank) continue;
        if (k == 0) r->scale = t->scale_was;
        r->loss[k] = out.loss;
        r->norm[k] = out.grad_norm;
    }
}

static void engine_body(struct ranks *g, int rank, void *arg)
{
    struct engine_run *r = arg;
    struct err e = {0};
    struct train *t = calloc(1, sizeof *t);
    const struct engine_memory mem = r->mem[rank];
    struct comm *comm = g ? g->comm[rank] : NULL;
    const struct train_options o = {.spec = r->spec,
                                    .plan = &r->plan,
                                    .arena = mem.arena,
                                    .host = mem.host,
                                    .segment = comm ? comm_segment(comm) : NULL,
                                    .be = mem.be,
                                    .comm = comm,
                                    .rank = rank,
                                    .n_ranks = r->plan.n_ranks,
                                    .source = r->source,
                                    .guard = r->guard ? &r->guard[rank] : NULL};
    if (!t || train_init(t, &o, &e)) goto out;
    engine_start(t, r);
    engine_steps(t, r, rank, &e);
    if (e.code != ERR_NONE) goto out;
    engine_collect(t, SHARDED_WEIGHTS, r->weights);
    engine_collect(t, SHARDED_M, r->adam_m);
    engine_collect(t, SHARDED_V, r->adam_v);
out:
    CHECK_MSG(e.code == ERR_NONE, "P %d rank %d: %s", r->P, rank, e.text);
    if (e.code != ERR_NONE && g) ranks_fail(g, rank, &e);
    free(t);
}

void engine_on_device(struct job_spec *s)
{
    const char *name = engine_device();
    CHECK(!spec_intern(s, name, strlen(name), &s->resources.device));
}

void engine_go(struct engine_run *r, struct job_spec *spec)
{
    struct err e = {0};
    spec->parallel.sp = r->P;
    spec->parallel.dp = r->dp ? r->dp : 1;
    r->spec = spec;
    if (plan_make(spec, r->memory_limit, &r->plan, &e)) {
        CHECK_MSG(0, "plan: %s", e.text);
        return;
    }
    float **out[] = {&r->weights, &r->grad, &r->adam_m, &r->adam_v};
    for (int i = 0; i < 4; i++) {
        *out[i] = calloc((size_t)r->plan.n_params, 4);
        if (!*out[i]) abort();
    }
    struct engine_memory mem[JOB_MAX_RANKS];
    r->mem = mem;
    engine_ranks(spec, &r->plan, r->isa,
                 &(struct comm_options){.delay_max_us = r->delay_us, .delay_seed = 7}, mem,
                 engine_body, r);
    r->mem = NULL;
    for (int64_t i = 0; i < r->plan.n_params; i++) r->grad[i] = (float)(r->grad[i] / r->scale);
}

void engine_free(struct engine_run *r)
{
    free(r->weights);
    free(r->grad);
    free(r->adam_m);
    free(r->adam_v);
    r->weights = r->grad = r->adam_m = r->adam_v = NULL;
}

double rel_l2(const float *a, const float *b, int64_t n)
{
    double d = 0, s = 0;
    for (int64_t i = 0; i < n; i++) {
        d += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        s += (double)b[i] * b[i];
    }
    return s > 0 ? sqrt(d / s) : sqrt(d);
}
