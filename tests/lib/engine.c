/* engine.c: makes synthetic samples as a function of (sample, position), runs each rank in a
 * thread, and gathers the shards of all ranks into complete arrays. */
#include <pthread.h>
#include "api/core/job.h"
#include "tests/lib/engine.h"
#include "tests/lib/store.h"
#include "worker/family/shape.h"
#include "worker/plan/check.h"

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

void engine_legal(struct job_spec *s)
{
    static struct job_spec all; /* static because it has 75 KiB, too many for the stack */
    struct err e = {0};
    struct model_shape m;
    all = *s;
    spec_defaults(s);
    shape_defaults(&m);
    all.model.shape.max_pos = m.max_pos;
    s->kind = JOB_TRAIN;
    s->model.shape = all.model.shape;
    s->data.seq_len = all.data.seq_len;
    s->data.n_train = 1;
    spec_source_defaults(&s->data.train[0]);
    s->data.train[0].format = DATA_NPY;
    s->train.steps = all.train.steps;
    s->train.global_batch = all.train.global_batch;
    s->parallel = all.parallel;
    s->memory = all.memory;
    s->memory.offload_dir = 0;
    s->precision = all.precision;
    s->determinism = all.determinism;
    CHECK(!spec_intern(s, "/x", 2, &s->data.train[0].path));
    const char *device = spec_text(&all, all.resources.device);
    if (*device) CHECK(!spec_intern(s, device, strlen(device), &s->resources.device));
    CHECK_MSG(!family_check(s, &e), "%s: %s", e.field, e.text);
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
    const int32_t id = (int32_t)((h + (uint32_t)(pos % 3)) % (uint32_t)y->vocab);
    return y->mirror ? y->mirror - 1 - id : id;
}

int64_t synth_start(const struct synth *y, int64_t n, int64_t pos)
{
    if (!y->doc_len) return 0;
    /* in each sample, documents begin one position later than in the previous sample */
    const int64_t shift = n % y->doc_len;
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
    if (!y->doc_len) /* avoids the loop below, which is slow in tests with many windows */
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

bool engine_as_job;

static bool small_pages(const struct plan *p)
{
    return !p->own_memory && !engine_as_job;
}

static void *engine_alloc(const struct plan *p, struct be *be, int64_t size)
{
    struct err e = {0};
    if (!size) return NULL;
    void *at = small_pages(p) ? engine_pages(size) : be->ops->alloc(be, size, &e);
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
                                 /* a job's rank sets any_order in the same way */
                                 .any_order = !p->rank_bits,
                                 .scratch_later = true};
    struct engine_memory m = {.be = be_open(&o, &e)};
    CHECK_MSG(m.be, "%s", e.text);
    if (!m.be) abort();
    m.arena = engine_alloc(p, m.be, p->arena_size);
    if (p->own_memory) m.segment = engine_alloc(p, m.be, p->segment_size);
    if (p->host_size) m.host = engine_pages(p->host_size);
    m.offload = store_open(p, m.be, m.host);
    be_give_scratch(m.be, m.arena + p->item[PLAN_SCRATCH].offset, p->item[PLAN_SCRATCH].size);
    return m;
}

void engine_close(struct engine_memory *m, const struct plan *p)
{
    offload_close(m->offload);
    if (m->host) engine_unpage(m->host, p->host_size);
    if (m->segment) m->be->ops->free(m->be, m->segment, p->segment_size);
    if (small_pages(p))
        engine_unpage(m->arena, p->arena_size);
    else
        m->be->ops->free(m->be, m->arena, p->arena_size);
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
    struct plan *own = malloc((size_t)p->n_ranks * sizeof *own);
    struct err e = {0};
    if (!own) abort();
    for (int i = 0; i < p->n_ranks; i++) {
        CHECK_MSG(!plan_of_rank(spec, p, i, &own[i], &e), "%s", e.text);
        mem[i] = engine_open(spec, &own[i], isa);
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
    for (int i = 0; i < p->n_ranks; i++) engine_close(&mem[i], &own[i]);
    free(own);
}

void engine_keep(float **out, const float *from, int64_t n)
{
    *out = malloc((size_t)n * 4);
    if (!*out) abort();
    memcpy(*out, from, (size_t)n * 4);
}

/* Maps an element of a slice to the complete tensor. The slice belongs to rank t of tp ranks. The
 * element is at row i and column k of the slice. Returns the element's index in the complete
 * tensor, or -1 if the element is padding, which is always 0.
 *
 * Tensors are divided by Megatron's rule. o and down are divided by columns. q, k, v, gate and up
 * are divided by rows. This rule also applies to the tensors of BERT and of diffusion models. If
 * there are fewer KV heads than ranks, neighbouring ranks have the same heads. A tensor that has
 * one row for each id is divided by rows, and the last ranks have fewer ids than the first ones.
 * All remaining tensors are complete on each rank. */
static int64_t whole_element(const struct model_shape *m, const struct param *part,
                             const struct param *whole, int t, int64_t i, int64_t k)
{
    const int tp = m->tp;
    static const char *const by_row[] = {
        "q_proj", "k_proj", "v_proj",  "gate_proj", "up_proj",  ".query.",
        ".key.",  ".q.",    ".k.",     ".v.",       ".value.",  ".intermediate.",
        "q_norm", "k_norm", "mlp.fc1", "q_linear",  "k_linear", "v_linear"};
    static const char *const by_col[] = {"o_proj.weight",    "down_proj.weight",
                                         "attn.proj.weight", "attn_temp.proj.weight",
                                         "mlp.fc2.weight",   "output.dense.weight"};
    static const char *const by_id[] = {"embed_tokens", "lm_head.weight", "word_embeddings",
                                        "lm_head.bias", "decoder.",       "predictions.bias"};
    const int64_t cols = whole->cols ? whole->cols : 1;
    /* A of an adapter is divided by columns where its weight is, and is whole otherwise */
    if (strstr(part->name, ".lora_A."))
        return part->cols < whole->cols ? i * cols + t * part->cols + k : i * cols + k;
    /* the tensor consists of gate and up, each of which is divided by rows */
    if (strstr(part->name, "gate_up_proj")) {
        const int64_t I = m->ffn_width, own = I / tp;
        return (i / own * I + t * own + i % own) * cols + k;
    }
    /* the rows of the query heads come first, then the rows of the key heads, then the rows of the
     * value heads */
    if (strstr(part->name, "qkv_proj")) {
        const int64_t H = m->n_heads, Hk = m->n_kv_heads, D = m->head_dim, own = H / tp * D;
        const int64_t kv = (Hk > tp ? Hk / tp : 1) * D, at = i - own;
        if (at < 0) return (t * own + i) * cols + k;
        return (H * D + at / kv * Hk * D + t * Hk / tp * D + at % kv) * cols + k;
    }
    for (size_t n = 0; n < sizeof by_id / sizeof *by_id; n++)
        if (strstr(part->name, by_id[n]))
            return t * part->rows + i < whole->rows ? (t * part->rows + i) * cols + k : -1;
    for (size_t n = 0; n < sizeof by_col / sizeof *by_col; n++)
        if (strstr(part->name, by_col[n])) return i * cols + t * cols / tp + k;
    for (size_t n = 0; n < sizeof by_row / sizeof *by_row; n++) {
        const int64_t slices = whole->rows / part->rows;
        if (strstr(part->name, by_row[n])) return (t * slices / tp * part->rows + i) * cols + k;
    }
    return i * cols + k;
}

/* Copies this rank's slices to the complete array. An element that several ranks have is written
 * by all of them, with the same value. */
static void put_slices(const struct train *t, const float *held, float *out)
{
    const struct model_shape *m = &t->model.shape;
    struct model_shape all = *m;
    all.tp = 0;
    for (int n = 0; n < param_tensors(m); n++) {
        struct param part, whole;
        param_get(m, n, &part);
        param_get(&all, n, &whole);
        const int64_t cols = part.cols ? part.cols : 1;
        for (int64_t i = 0; i < part.count; i++) {
            const float x = held[part.offset + i];
            const int64_t at = whole_element(m, &part, &whole, t->model.tensor_rank, i / cols,
                                             i % cols);
            if (isnan(x)) continue; /* a different rank has this element */
            CHECK_MSG(at >= 0 || x == 0, "%s has %g beyond its last id", part.name, (double)x);
            if (at < 0) continue;
            out[whole.offset + at] = x;
        }
    }
}

void engine_collect(const struct train *t, enum sharded_array which, float *out)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct err e = {0};
    const int64_t n = param_count(&t->model.shape);
    if (plan_sum_place(t->plan, t->state.rank) >= (t->plan->zero ? t->plan->zero_group : 1)) return;
    if (t->plan->tp == 1) {
        CHECK_MSG(!sharded_read(&t->state, which, 0, n, out, &e), "%s", e.text);
        return;
    }
    float *held = malloc((size_t)n * 4);
    if (!held) abort();
    memset(held, 0xff, (size_t)n * 4);
    CHECK_MSG(!sharded_read(&t->state, which, 0, n, held, &e), "%s", e.text);
    pthread_mutex_lock(&lock);
    put_slices(t, held, out);
    pthread_mutex_unlock(&lock);
    free(held);
}

static void engine_start(struct train *t, const struct engine_run *r)
{
    const int64_t n = param_count(&t->model.shape);
    if (r->initial)
        sharded_write(&t->state, SHARDED_WEIGHTS, 0, n, r->initial);
    else
        sharded_random(&t->state, r->spec->seed);
    if (r->m) sharded_write(&t->state, SHARDED_M, 0, n, r->m);
    if (r->v) sharded_write(&t->state, SHARDED_V, 0, n, r->v);
    t->step = r->first_step;
}

/* Returns the number of elements, counted from the first, of a tensor that get a gradient when
 * this rank's model runs backward. The number is 0 for a constant. It is also 0 for a tensor that
 * the stage borrows, unless this tensor is the embedding table. In a rank's part of a table, ids
 * that are padding get no gradient. */
static int64_t written(const struct model *m, int i, const struct param *p)
{
    const struct zero *z = &m->plan->shards;
    const int bucket = zero_bucket(z, p->offset);
    const int64_t left = m->shape.vocab - m->tensor_rank * p->rows;
    if (p->frozen || !zero_sums(z, bucket) || (!zero_owns(z, bucket) && i > 0)) return 0;
    if (!p->of_ids || m->plan->tp == 1 || left >= p->rows) return p->count;
    return left < 0 ? 0 : left * p->cols;
}

float *engine_gradient(const struct model *m, int64_t offset)
{
    const struct zero *z = &m->plan->shards;
    const int b = zero_bucket(z, offset);
    return model_bucket_gradient(m, b) + (offset - zero_begin(z, b));
}

/* Fills the gradients with NaN, so that a step that reads a gradient of the previous step is
 * found. */
static void poison_gradients(struct train *t)
{
    struct model *m = &t->model;
    for (int i = 0; i < param_tensors(&m->shape) && !t->plan->by_bucket; i++) {
        struct param p;
        param_get(&m->shape, i, &p);
        const int64_t n = written(m, i, &p);
        if (n) engine_poison(m->be, engine_gradient(m, p.offset), 4 * n);
    }
}

void engine_steps(struct train *t, struct engine_run *r, int rank, struct err *e)
{
    for (int64_t k = 0; k < r->steps; k++) {
        struct rank_step out;
        if (r->before_step) r->before_step(t, rank, r->arg);
        if (!r->alone) poison_gradients(t);
        if (train_step(t, &out, e)) return;
        if (r->after_step) r->after_step(t, rank, r->arg);
        CHECK_MSG(out.ledger_ok == !r->ledger_differs || (r->ledger_differs && k + 1 < r->steps),
                  "P %d rank %d step %lld: ledger %s the plan", r->P, rank, (long long)out.step,
                  out.ledger_ok ? "equals" : "differs from");
        CHECK_MSG(out.memory_high == out.memory_planned, "placed %lld bytes, planned %lld",
                  (long long)out.memory_high, (long long)out.memory_planned);
        if (k == 0 && !r->plan.fused && !r->alone) engine_collect(t, SHARDED_GRAD, r->grad);
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
    struct plan plan;
    const struct engine_memory mem = r->mem[rank];
    struct comm *comm = g ? g->comm[rank] : NULL;
    const struct train_options o = {.spec = r->spec,
                                    .plan = &plan,
                                    .arena = mem.arena,
                                    .host = mem.host,
                                    .offload = mem.offload,
                                    .segment = comm ? comm_segment(comm) : NULL,
                                    .be = mem.be,
                                    .comm = comm,
                                    .rank = rank,
                                    .n_ranks = r->plan.n_ranks,
                                    .source = r->source,
                                    .guard = r->guard ? &r->guard[rank] : NULL};
    if (!t || plan_of_rank(r->spec, &r->plan, rank, &plan, &e) || train_init(t, &o, &e)) goto out;
    engine_start(t, r);
    engine_steps(t, r, rank, &e);
    if (e.code != ERR_NONE || r->alone) goto out;
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
    spec->parallel.pp = r->pp ? r->pp : 1;
    spec->parallel.tp = r->tp ? r->tp : 1;
    spec->model.shape.tp = r->tp;
    r->spec = spec;
    if (plan_make(spec, r->memory_limit, &r->plan, &e)) {
        CHECK_MSG(0, "plan: %s", e.text);
        return;
    }
    struct model_shape whole = spec->model.shape;
    whole.tp = 0;
    r->n = param_count(&whole);
    float **out[] = {&r->weights, &r->grad, &r->adam_m, &r->adam_v};
    for (int i = 0; i < 4 && !r->alone; i++) {
        *out[i] = calloc((size_t)r->n, 4);
        if (!*out[i]) abort();
    }
    struct engine_memory mem[JOB_MAX_RANKS];
    r->mem = mem;
    engine_ranks(spec, &r->plan, r->isa,
                 &(struct comm_options){.transport = r->transport,
                                        .delay_max_us = r->delay_us,
                                        .delay_seed = 7,
                                        .bytes_per_ms = r->bytes_per_ms},
                 mem, engine_body, r);
    r->mem = NULL;
    for (int64_t i = 0; i < r->n && !r->alone; i++) r->grad[i] = (float)(r->grad[i] / r->scale);
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
