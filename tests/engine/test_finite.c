/* Checks results with a NaN or an infinity, on any number of ranks. If a weight contains the NaN
 * or infinity, the error must name the tensor of this weight. If all weights are finite, the error
 * must name the first operation whose result is not finite. A training in fp16 that has never
 * changed a weight must fail. tests/lib/kern_finite.h checks the kernels. */
#include "api/core/job.h"
#include "tests/lib/adapter.h"
#include "tests/lib/engine.h"
#include "tests/lib/param.h"
#include "worker/model/finite.h"
#include "worker/train/eval.h"

static struct job_spec spec; /* static because it has 75 KiB, too many for the stack */

enum { S = 40 };
static struct synth text = {.S = S, .doc_len = 17, .vocab = 61};

struct own {
    struct plan plan;
    struct engine_memory mem[JOB_MAX_RANKS];
    struct err err[JOB_MAX_RANKS]; /* [ranks] */
    float *w;                      /* the weights, [n_params] */
    int (*body)(struct train *t, struct err *e);
    struct guard *guards; /* [ranks]; NULL means that there are no guards */
    int64_t n_steps;      /* steps that rank 0 has completed */
};

static void rank_body(struct ranks *g, int rank, void *arg)
{
    struct own *x = arg;
    struct err e = {0};
    struct train *t = calloc(1, sizeof *t);
    struct comm *comm = g ? g->comm[rank] : NULL;
    const struct train_options o = {.spec = &spec,
                                    .plan = &x->plan,
                                    .arena = x->mem[rank].arena,
                                    .segment = comm ? comm_segment(comm) : NULL,
                                    .be = x->mem[rank].be,
                                    .comm = comm,
                                    .rank = rank,
                                    .n_ranks = x->plan.n_ranks,
                                    .source = {synth_batch, synth_targets, &text},
                                    .guard = x->guards ? &x->guards[rank] : NULL};
    if (!t) abort();
    CHECK_MSG(!train_init(t, &o, &e), "%s", e.text);
    sharded_write(&t->state, SHARDED_WEIGHTS, 0, x->plan.n_params, x->w);
    x->body(t, &x->err[rank]);
    if (rank == 0) x->n_steps = t->step;
    free(t);
}

struct way {
    int P, dp, zero;
    enum precision_id precision;
    bool sinks;        /* the model is a gpt-oss instead of a Llama */
    bool adapts;       /* all products have adapters */
    int64_t mlp_chunk; /* memory.mlp_chunk_tokens */
    /* the size of the vocabulary; 0 means the size in the spec. With 200, lm_head has more than
     * 4,096 values, which is the number that is searched at a time */
    int64_t vocab;
};

/* Makes normal weights, into which the caller then puts faults. */
static void own_init(struct own *x, const struct way *w, int (*body)(struct train *, struct err *))
{
    struct err e = {0};
    *x = (struct own){.body = body};
    engine_spec(&spec, S);
    if (w->sinks) {
        spec.model.shape.family = FAMILY_GPT_OSS;
        spec.model.shape.n_experts = 3, spec.model.shape.experts_per_token = 2;
    }
    spec.parallel.sp = w->P, spec.parallel.dp = w->dp, spec.parallel.zero = w->zero;
    spec.train.global_batch = w->dp;
    spec.precision.params = (int32_t)w->precision;
    spec.memory.mlp_chunk_tokens = w->mlp_chunk;
    if (w->vocab) spec.model.shape.vocab = w->vocab;
    if (w->adapts) adapter_targets(&spec, NULL, 0);
    CHECK_MSG(!plan_make(&spec, 0, &x->plan, &e), "%s", e.text);
    x->w = calloc((size_t)x->plan.n_params, 4);
    if (!x->w) abort();
    for (int i = 0; i < param_tensors(&spec.model.shape); i++) {
        struct param p;
        param_get(&spec.model.shape, i, &p);
        for (int64_t k = 0; k < p.count; k++)
            x->w[p.offset + k] = p.cols ? 0.1f * sinf((float)(k * k % 1009)) : 1;
    }
}

static void scale_tensor(struct own *x, const char *name, float by)
{
    const struct param p = param_named(&spec.model.shape, name);
    for (int64_t k = 0; k < p.count; k++) x->w[p.offset + k] *= by;
}

/* Runs the ranks, and checks that every rank reports the same error. */
static void own_run(struct own *x, const char *field, const char *text_has)
{
    engine_ranks(&spec, &x->plan, NULL, NULL, x->mem, rank_body, x);
    for (int r = 0; r < x->plan.n_ranks; r++) {
        const struct err *e = &x->err[r];
        CHECK_MSG(strstr(e->text, text_has), "rank %d: \"%s\" has no \"%s\"", r, e->text, text_has);
        CHECK_STR(e->field, field);
        /* these codes mean that the job is at fault, so seqd does not retry it */
        CHECK(e->code == ERR_CORRUPT || e->code == ERR_INVALID);
        if (r % x->plan.sp) CHECK_STR(e->text, x->err[r - r % x->plan.sp].text);
    }
    free(x->w);
}

/* ---- the place of a NaN or an infinity ------------------------------------------------------- */

static int forward(struct train *t, struct err *e)
{
    struct model *m = &t->model;
    if (synth_batch(&text, &m->sp.shard, 0, &m->batch, e) || model_forward(m, &m->batch, e))
        return -1;
    return finite_blame_forward(m, e, "the loss");
}

static const struct way ways[] = {
    {1, 1, 0, PRECISION_FP32},
    {3, 1, 1, PRECISION_FP32},
    {2, 2, 3, PRECISION_FP32},
    {2, 1, 0, PRECISION_BF16, .vocab = 200},
    {2, 1, 1, PRECISION_FP16},
    {3, 1, 0, PRECISION_FP32, .mlp_chunk = 3},
    {2, 1, 2, PRECISION_BF16, .mlp_chunk = 7},
};
#define EACH_WAY(i) for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)

static void test_weight(void)
{
    static const char *const names[] = {"model.embed_tokens.weight",
                                        "model.layers.0.self_attn.q_proj.weight",
                                        "model.layers.1.mlp.down_proj.weight", "lm_head.weight"};
    EACH_WAY(i)
    {
        struct own x;
        const char *name = names[i % 4];
        own_init(&x, &ways[i], forward);
        const struct param p = param_named(&spec.model.shape, name);
        char says[128];
        x.w[p.offset + p.count - 1] = i % 2 ? INFINITY : NAN;
        /* a NaN in a later tensor */
        x.w[x.plan.n_params - 1] = i == 1 ? NAN : x.w[x.plan.n_params - 1];
        snprintf(says, sizeof says, "tensor %s of the weights holds one (row %lld, column %lld)",
                 name, (long long)p.rows - 1, (long long)p.cols - 1);
        own_run(&x, "model.path", says);
    }
}

/* Checks weights that are finite but have results that are not. */
static void test_operation(void)
{
    static const struct {
        const char *spoiled[2];
        float by, by_fp16;
        const char *begins;
    } cases[] = {
        {{"model.layers.1.mlp.up_proj.weight", "model.layers.1.mlp.down_proj.weight"},
         1e25f,
         2000,
         "the output of model.layers.1.mlp.down_proj.weight"},
        {{"model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.k_proj.weight"},
         1e25f,
         0,
         "the attention of model.layers.0"},
        {{"lm_head.weight"}, 3e38f, 0, "a logit"},
    };
    EACH_WAY(i)
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const bool half = ways[i].precision == PRECISION_FP16;
        struct own x;
        if (half && !cases[c].by_fp16) continue;
        own_init(&x, &ways[i], forward);
        for (int k = 0; k < 2 && cases[c].spoiled[k]; k++)
            scale_tensor(&x, cases[c].spoiled[k], half ? cases[c].by_fp16 : cases[c].by);
        own_run(&x, half ? "precision.params" : "model.path", cases[c].begins);
    }
}

/* Checks that the error names the operation of attention if its sinks are finite. If a sink is
 * NaN, the error must name it as a weight. */
static void test_sinks(void)
{
    struct own x;
    const struct way w = {2, 1, 0, PRECISION_FP32, true};
    own_init(&x, &w, forward);
    scale_tensor(&x, "model.layers.1.self_attn.q_proj.weight", 1e25f);
    scale_tensor(&x, "model.layers.1.self_attn.k_proj.weight", 1e25f);
    own_run(&x, "model.path", "the attention of model.layers.1");
    own_init(&x, &w, forward);
    x.w[param_named(&spec.model.shape, "model.layers.0.self_attn.sinks").offset + 3] = NAN;
    own_run(&x, "model.path", "model.layers.0.self_attn.sinks");
}

/* Checks that the error names the product if its weights and its adapter's are finite, and its
 * output with the adapter is not. */
static void test_adapted(void)
{
    struct own x;
    const struct way w = {2, 1, 0, PRECISION_FP32, .adapts = true};
    own_init(&x, &w, forward);
    scale_tensor(&x, "model.layers.1.mlp.down_proj.lora_A.weight", 1e25f);
    scale_tensor(&x, "model.layers.1.mlp.down_proj.lora_B.weight", 1e25f);
    own_run(&x, "model.path", "the output of model.layers.1.mlp.down_proj.weight with its adapter");
}

/* Checks that the error about a tensor of an adapter names the adapter's directory. */
static void test_adapter(void)
{
    static const char name[] = "model.layers.1.mlp.up_proj.lora_B.weight";
    for (int P = 1; P <= 2; P++) {
        struct own x;
        const struct way w = {P, 1, P - 1, PRECISION_FP32, .adapts = true};
        own_init(&x, &w, forward);
        x.w[param_named(&spec.model.shape, name).offset + 2] = NAN;
        own_run(&x, "model.adapter", name);
        own_init(&x, &w, forward);
        x.w[param_named(&spec.model.shape, "lm_head.weight").offset] = NAN;
        own_run(&x, "model.path", "tensor lm_head.weight of the weights");
    }
}

/* ---- held-out sequences ---------------------------------------------------------------------- */

static int evaluate(struct train *t, struct err *e)
{
    struct comm_count want[PURPOSE_N] = {0};
    struct eval out;
    const struct eval_args a = {
        .source = {synth_batch, synth_targets, &text}, .n_windows = 3, .seq_len = S, .want = want};
    CHECK(eval_run(t, &a, &out, e) == -1);
    return 0;
}

static void test_eval(void)
{
    EACH_WAY(i)
    {
        struct own x;
        own_init(&x, &ways[i], evaluate);
        const char *name = "model.layers.0.self_attn.q_proj.weight";
        x.w[param_named(&spec.model.shape, name).offset + 3] = NAN;
        own_run(&x, "model.path", name);
    }
}

/* ---- trainings that never change a weight ---------------------------------------------------- */

static int all_steps(struct train *t, struct err *e)
{
    struct rank_step out;
    while (t->step < spec.train.steps) {
        if (train_step(t, &out, e)) return -1;
        CHECK(t->overflowed && isfinite(out.loss) && !isfinite(out.grad_norm));
    }
    return train_updated(t, e);
}

/* Makes a training whose loss is finite, and whose gradients overflow at every loss scale. Its
 * last norm has the weight 100, and its head the weights +-60,000. */
static void loud(struct own *x, const struct way *w, int64_t steps)
{
    own_init(x, w, all_steps);
    spec.train.steps = steps;
    const struct param head = param_named(&spec.model.shape, "lm_head.weight");
    for (int64_t k = 0; k < head.count; k++)
        x->w[head.offset + k] = k * k % 1009 % 2 ? 6e4f : -6e4f;
    scale_tensor(x, "model.norm.weight", 100);
}

static void test_no_update(void)
{
    static const struct way one = {1, 1, 1, PRECISION_FP16}, two = {2, 1, 1, PRECISION_FP16};
    struct own x;
    text.bare_from = 2;
    loud(&x, &one, 5); /* the training ends before the scale reaches its minimum */
    own_run(&x, "precision.params", "none of 5 steps updated the weights");
    CHECK(x.n_steps == 5 && strstr(x.err[0].text, "scale at 2048: ") &&
          strstr(x.err[0].text, "train.steps higher"));
    loud(&x, &two, 100); /* the scale 2^16 can be halved 16 times */
    own_run(&x, "precision.params", "none of 17 steps updated the weights");
    CHECK(x.n_steps == 16 && strstr(x.err[0].text, "scale at 1: "));
    CHECK(!strstr(x.err[0].text, "train.steps"));
    text.bare_from = 0;
}

static int skipped_steps(struct train *t, struct err *e)
{
    struct rank_step out;
    while (t->step < spec.train.steps) {
        if (train_step(t, &out, e)) return -1;
        CHECK(t->verdict == GUARD_SKIP && !t->overflowed && !isfinite(out.loss));
    }
    return train_updated(t, e);
}

/* Checks a training in which every loss is NaN and every step is skipped. The error must blame
 * neither the loss scale nor the learning rate. */
static void test_no_loss(void)
{
    static const struct way half = {2, 1, 1, PRECISION_FP16}, whole = {2, 1, 1, PRECISION_FP32};
    static struct guard guards[2];
    for (int i = 0; i < 2; i++) {
        struct own x;
        own_init(&x, i ? &whole : &half, skipped_steps);
        spec.train.steps = 3;
        spec.guard.nonfinite = NONFINITE_SKIP;
        for (int r = 0; r < 2; r++) guards[r] = (struct guard){.spec = &spec};
        x.guards = guards;
        scale_tensor(&x, "model.layers.1.mlp.up_proj.weight", i ? 1e25f : 2000);
        scale_tensor(&x, "model.layers.1.mlp.down_proj.weight", i ? 1e25f : 2000);
        own_run(&x, i ? "guard.nonfinite" : "precision.params",
                "none of 3 steps updated the weights, since every loss");
        CHECK(x.n_steps == 3 && !strstr(x.err[0].text, "scale") && !strstr(x.err[0].text, "lr"));
    }
}

int main(void)
{
    RUN(test_weight);
    RUN(test_operation);
    RUN(test_sinks);
    RUN(test_adapter);
    RUN(test_adapted);
    RUN(test_eval);
    RUN(test_no_update);
    RUN(test_no_loss);
    return test_done("finite");
}
