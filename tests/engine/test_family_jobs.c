/* test_family_jobs.c: runs jobs of every language-model family by real seqrank processes. A
 * training verifies its first step, trains, and saves the model. Generate and embed jobs then use
 * the saved model.
 * tests: needs seqrank */
/* Not under sanitizers: test_rank and test_job start the same programs. */
#include <math.h>
#include <sys/stat.h>

#include "api/core/file.h"
#include "tests/lib/gang.h"
#include "worker/plan/check.h"
#include "worker/family/family.h"
#include "worker/hf/hf.h"

#define STEPS 10

static char scratch[64], prepared_id[80], model_dir[16][1300];
static struct gang g; /* static because it has 100 KiB, too many for the stack */

static const struct job_family {
    const char *name;
    struct model_shape shape;
} families[] = {
    {"bert", {.family = FAMILY_BERT, .vocab = 259, .type_vocab = 2, .max_pos = 64, .tied = 1}},
    {"tnl", {.family = FAMILY_TNL, .layer_mask = {1}}},
    {"linear", {.family = FAMILY_LINEAR, .feature_map = ACT_ELU1, .normalise = 1}},
    {"retnet", {.family = FAMILY_RETNET, .tied = 1}},
    {"minimax",
     {.family = FAMILY_MINIMAX,
      .n_kv_heads = 2,
      .n_experts = 3,
      .experts_per_token = 2,
      .residual = {1, 1, 1, 1, 1, 1}}},
    {"qwen2",
     {.family = FAMILY_LLAMA,
      .n_kv_heads = 2,
      .qkv_bias = 1,
      .rope = {.kind = ROPE_YARN, .factor = 4, .original = 16}}},
    {"smollm3", {.family = FAMILY_SMOLLM3, .layer_mask = {2}, .o_bias = 1, .qkv_bias = 1}},
    {"olmo2", {.family = FAMILY_OLMO2, .n_kv_heads = 2}},
    {"phi3",
     {.family = FAMILY_PHI3,
      .rotary_dim = 6,
      .rope = {.kind = ROPE_LONGROPE,
               .original = 40,
               .factor = 2,
               .short_factor = {1, 1.5, 2},
               .long_factor = {1, 2, 4}}}},
    {"granite", {.family = FAMILY_GRANITE, .residual_scale = 0.5, .logit_scale = 2, .tied = 1}},
    {"gpt2", {.family = FAMILY_GPT2, .max_pos = 64, .tied = 1}},
    {"gpt_oss",
     {.family = FAMILY_GPT_OSS,
      .n_kv_heads = 2,
      .window = 9,
      .layer_mask = {2},
      .n_experts = 3,
      .experts_per_token = 2}},
    {"roberta", {.family = FAMILY_ROBERTA, .vocab = 259, .max_pos = 69, .first_pos = 5, .tied = 1}},
    {"qwen3_next",
     {.family = FAMILY_QWEN3_NEXT,
      .n_kv_heads = 2,
      .layer_mask = {1},
      .dense_mask = {1},
      .delta_heads = 4,
      .delta_key_heads = 2,
      .delta_key_dim = 6,
      .delta_value_dim = 5,
      .conv_width = 3,
      .n_experts = 3,
      .experts_per_token = 2,
      .expert_width = 12,
      .shared_width = 10}},
    {"modernbert",
     {.family = FAMILY_MODERNBERT,
      .vocab = 259,
      .window = 9,
      .layer_mask = {1},
      .rope_local = 500,
      .tied = 1}},
};
enum { N_FAMILIES = sizeof families / sizeof *families };

static const struct job_family *named(const char *name)
{
    for (int i = 0; i < N_FAMILIES; i++)
        if (!strcmp(families[i].name, name)) return &families[i];
    abort();
}

static struct order *make_order(int kind, int sp, const struct job_family *f, const char *suffix)
{
    char name[64];
    snprintf(name, sizeof name, "%s%s", f->name, suffix);
    struct order *o = order_new((enum job_kind)kind, scratch, prepared_id, name);
    struct job_spec *s = &o->spec;
    struct model_shape *m = &s->model.shape;
    *m = f->shape;
    m->n_layers = 2;
    m->width = 32;
    m->n_heads = 4;
    m->head_dim = 8;
    m->ffn_width = 48;
    m->norm_eps = 1e-5;
    m->rope_theta = 10000;
    if (!m->vocab) m->vocab = 258;
    if (!m->max_pos) m->max_pos = 4096;
    s->parallel.sp = sp;
    s->data.seq_len = 64;
    return o;
}

static void add_data(struct job_spec *s)
{
    char path[128];
    snprintf(path, sizeof path, "%s/text.jsonl", scratch);
    s->data.packing = PACKING_CONCAT;
    s->data.n_train = 1;
    s->data.train[0] = (struct spec_source){tiny_text(s, path), tiny_text(s, "text"), DATA_JSONL, 0,
                                            -1};
}

static void test_prepare(void)
{
    char path[128];
    snprintf(path, sizeof path, "%s/text.jsonl", scratch);
    FILE *f = fopen(path, "we");
    for (int i = 0; f && i < 90; i++)
        fprintf(f, "{\"text\":\"int f%d(int x) { return x * %d; }\"}\n", i, i * 7 % 13);
    CHECK(f && !fclose(f));
    struct order *o = make_order(JOB_TRAIN, 1, named("tnl"), "-prepare");
    add_data(&o->spec);
    o->spec.train.steps = STEPS;
    o->args.task = TASK_PREPARE;
    if (gang_runs(&g, o)) text(g.result, "prepared_id", prepared_id, sizeof prepared_id);
    free(o);
}

/* Settings that change the order in which the same numbers are summed. */
struct sums {
    int determinism;
    /* tokens in a window of linear attention, or, without windows, in a chunk of the loss; 0
     * leaves the setting unchanged */
    int64_t chunk;
};

static bool walks_in_time(const struct model_shape *m)
{
    return family_row(m)->linear && !family_row(m)->softmax;
}

/* Trains a family. "auto" chooses the strategy that splits it. */
static void train(const struct job_family *f, int seq_len, int sp, const struct sums *sums,
                  double losses[STEPS])
{
    char suffix[64], buf[64];
    snprintf(suffix, sizeof suffix, "-%d-%d-%d-%d", seq_len, sp, sums->determinism,
             (int)sums->chunk);
    struct order *o = make_order(JOB_TRAIN, sp, f, suffix);
    struct job_spec *s = &o->spec;
    s->data.seq_len = seq_len;
    add_data(s);
    s->train.steps = STEPS;
    s->train.global_batch = 2;
    s->optim.lr = 1e-2;
    s->verify.first_step = sp > 1;
    s->objective.mask_prob = 0.3;
    s->determinism = sums->determinism;
    *(walks_in_time(&s->model.shape) ? &s->memory.time_chunk
                                     : &s->memory.loss_chunk_tokens) = sums->chunk;
    const bool ok = gang_runs(&g, o);
    const bool linear = family_row(&f->shape)->linear, ring = sp > 1 && !linear;
    const int want = sp == 1 ? STRATEGY_LOCAL : linear ? STRATEGY_LASP : STRATEGY_RSA;
    const bool zigzag = ring && !family_masked(&f->shape);
    CHECK(s->parallel.strategy == want &&
          s->parallel.layout == (zigzag ? LAYOUT_ZIGZAG : LAYOUT_CONTIGUOUS));
    CHECK_MSG(g.n_steps == STEPS, "%s on %d ranks: %d steps", f->name, sp, g.n_steps);
    for (int i = 0; i < g.n_steps && i < STEPS; i++) {
        losses[i] = g.step[i].loss;
        CHECK_MSG(g.step[i].ledger_ok, "%s on %d ranks: ledger of step %d", f->name, sp, i);
        CHECK(g.step[i].memory_high == g.step[i].memory_planned);
    }
    if (ok && sp > 1) CHECK_MSG(gang_event(&g, EV_VERIFIED, 0), "%s: no proof", f->name);
    if (ok) CHECK_STR(text(g.result, "ledger", buf, sizeof buf), "equal");
    if (ok && sp == 2) text(g.result, "hf", model_dir[f - families], sizeof model_dir[0]);
    free(o);
}

static const struct sums as_run = {DET_RUN, 0};
/* Settings with which one rank sums the same numbers in other orders. Every family uses the first
 * two settings. A family whose linear attention has windows uses all of them, because windows are
 * summed in the same order as chunks of ranks. The effect of an order is random: these orders
 * change the last loss of a RetNet by 7e-6 to 3.5e-5. */
static const struct sums reordered[] = {{DET_RANKS, 0}, {DET_RUN, 16}, {DET_RUN, 7}, {DET_RUN, 9},
                                        {DET_RUN, 22},  {DET_RUN, 32}, {DET_RUN, 48}};
enum { N_REORDERED = sizeof reordered / sizeof *reordered };

/* Runs the training on one rank with each of these orders, and measures the largest change of a
 * loss. noise[k] is the largest change in the steps up to k, because later steps amplify a
 * difference in rounding. */
static void measure_noise(const struct job_family *f, int seq_len, const double one[STEPS],
                          double noise[STEPS])
{
    const int n = walks_in_time(&f->shape) ? N_REORDERED : 2;
    for (int i = 0; i < n; i++) {
        double other[STEPS] = {0}, most = 0;
        train(f, seq_len, 1, &reordered[i], other);
        for (int k = 0; k < STEPS; k++) {
            most = fmax(most, fabs(other[k] / one[k] - 1));
            noise[k] = fmax(noise[k], most);
        }
    }
}

/* Compares the losses of P ranks with those of one rank. The losses differ only by rounding
 * errors, which ten steps of Adam amplify from 1e-7 to at most 3e-5. Some families amplify
 * rounding errors more than that. In these families, the losses of one rank also change that much
 * if tokens are summed in a different order. This change is the noise. The losses of P ranks and
 * of one rank are each within the noise of the exact losses. They may therefore differ by twice
 * the noise, but never by more than 1e-4. */
static void train_on(const struct job_family *f, int seq_len, int ranks)
{
    double one[STEPS] = {0}, noise[STEPS] = {0}, some[STEPS] = {0};
    train(f, seq_len, 1, &as_run, one);
    measure_noise(f, seq_len, one, noise);
    for (int sp = 2; sp <= ranks; sp++) {
        train(f, seq_len, sp, &as_run, some);
        for (int k = 0; k < STEPS; k++) {
            const double bound = fmin(fmax(3e-5, 2 * noise[k]), 1e-4);
            CHECK_MSG(fabs(some[k] - one[k]) <= bound * one[k],
                      "%s P %d step %d: %.9g, %.9g, at most %.1e apart", f->name, sp, k, some[k],
                      one[k], bound);
        }
    }
    CHECK_MSG(one[STEPS - 1] < one[0] - 0.3, "%s learns nothing: %g to %g", f->name, one[0],
              one[STEPS - 1]);
}

static void test_train(void)
{
    for (int i = 0; i < N_FAMILIES; i++) train_on(&families[i], 64, 3);
}

/* Prepares a document of n_tokens tokens, including its end. A document that has as many tokens as
 * the table has positions must be accepted. A document with one token more must be refused. */
static void prepare_document(const struct job_family *f, int n_tokens)
{
    char path[128], name[16];
    snprintf(name, sizeof name, "-d%d", n_tokens);
    struct order *o = make_order(JOB_TRAIN, 1, f, name);
    add_data(&o->spec);
    snprintf(path, sizeof path, "%s/%d.jsonl", scratch, n_tokens);
    FILE *file = fopen(path, "we");
    if (file) fprintf(file, "{\"text\":\"a\"}\n{\"text\":\"%0*d\"}\n", n_tokens - 1, 0);
    CHECK(file && !fclose(file));
    o->spec.data.train[0].path = tiny_text(&o->spec, path);
    o->spec.train.steps = STEPS;
    o->spec.data.seq_len = 200;
    o->args.task = TASK_PREPARE;
    struct err e = {0};
    CHECK_MSG(!family_check(&o->spec, &e), "%s", e.text);
    gang_start(&g, 1, o);
    gang_run(&g);
    if (n_tokens == 64) CHECK_MSG(g.status[0] == 0, "%s: %s", f->name, g.fail.text);
    if (n_tokens > 64)
        CHECK_MSG(g.status[0] && strstr(g.fail.text, "65.jsonl record 2 has 65 tokens, and the "
                                                     "model a table of 64 positions"),
                  "%s: %s", f->name, g.fail.text);
    free(o);
}

/* Checks families whose positions are rows of a table of 64 rows. The sequences may have 200
 * tokens, because the positions of each document begin at 0. */
static void test_beyond_table(void)
{
    static const char *const names[] = {"bert", "roberta", "gpt2"};
    for (int i = 0; i < 3; i++) {
        train_on(named(names[i]), 200, 2);
        for (int n = 64; n <= 65; n++) prepare_document(named(names[i]), n);
    }
}

/* Sets the model of the job to the model that the training on two ranks has saved, and reads the
 * sizes from that model's config.json. */
static void set_model(struct order *o, const struct job_family *f)
{
    const char *path = model_dir[f - families];
    o->spec.model.path = tiny_text(&o->spec, path);
    struct err e = {0};
    CHECK_MSG(!config_read_dir(path, &o->spec.model.shape, &e), "%s", e.text);
}

/* Checks that the trained model gives the same text on any number of ranks. States are passed from
 * rank to rank during prefill and for every token after the prompt. */
static void test_generate(void)
{
    for (int i = 0; i < N_FAMILIES; i++) {
        if (family_masked(&families[i].shape)) continue;
        char first[4096] = "", again[4096] = "";
        for (int sp = 1; sp <= 3; sp++) {
            struct order *o = make_order(JOB_GENERATE, sp, &families[i], "-says");
            o->spec.data.seq_len = 0;
            o->spec.sampling.max_tokens = 24;
            o->spec.input.prompt = tiny_text(&o->spec, "int f(int x) {");
            set_model(o, &families[i]);
            if (gang_runs(&g, o)) {
                text(g.result, "text", sp == 1 ? first : again, sizeof first);
                if (sp > 1) CHECK_STR(again, first);
            }
            free(o);
        }
    }
}

/* Compares BERT's vectors on two ranks with those on one. */
static void test_embed(void)
{
    for (int pooling = 0; pooling < POOLING_N; pooling++) {
        static char raw[2][1 << 16];
        size_t size[2] = {0};
        for (int sp = 1; sp <= 2; sp++) {
            struct order *o = make_order(JOB_EMBED, sp, named("bert"), sp == 1 ? "-e1" : "-e2");
            char path[1400];
            snprintf(path, sizeof path, "%s/text.jsonl", scratch);
            o->spec.input.source = (struct spec_source){
                tiny_text(&o->spec, path), tiny_text(&o->spec, "text"), DATA_JSONL, 0, -1};
            o->spec.embed.pooling = pooling;
            set_model(o, named("bert"));
            if (gang_runs(&g, o)) {
                snprintf(path, sizeof path, "%s/artifacts/embeddings.npy", o->args.job_dir);
                FILE *f = fopen(path, "re");
                if (f) size[sp - 1] = fread(raw[sp - 1], 1, sizeof raw[0], f), fclose(f);
            }
            free(o);
        }
        CHECK(size[0] > 1000 && size[0] == size[1]);
        double worst = 0;
        for (size_t at = 128; at + 4 <= size[0]; at += 4) { /* the vectors have length 1 */
            float a, b;
            memcpy(&a, raw[0] + at, 4), memcpy(&b, raw[1] + at, 4);
            worst = fmax(worst, fabs((double)a - b));
        }
        CHECK_MSG(worst < 1e-5, "pooling %d: %g", pooling, worst);
    }
}

static void refused(struct order *o, const char *field)
{
    struct err e = {0};
    CHECK(family_check(&o->spec, &e) == -1);
    CHECK_STR(e.field, field);
    free(o);
}

static void test_rules(void)
{
    struct order *o = make_order(JOB_TRAIN, 2, named("tnl"), "");
    add_data(&o->spec);
    o->spec.train.steps = STEPS;
    o->spec.parallel.strategy = STRATEGY_RSA; /* states are not passed around a ring of keys */
    refused(o, "parallel.strategy");
    o = make_order(JOB_TRAIN, 2, named("bert"), "");
    add_data(&o->spec);
    o->spec.train.steps = STEPS;
    o->spec.parallel.strategy = STRATEGY_LASP;
    refused(o, "parallel.strategy");
    o = make_order(JOB_TRAIN, 2, named("minimax"), "");
    add_data(&o->spec);
    o->spec.train.steps = STEPS;
    o->spec.parallel.layout = LAYOUT_ZIGZAG;
    refused(o, "parallel.layout");
    o = make_order(JOB_TRAIN, 2, named("bert"), "");
    add_data(&o->spec);
    o->spec.train.steps = STEPS;
    o->spec.model.shape.vocab = 258; /* the vocabulary has no id for the mask */
    refused(o, "model.config.vocab_size");
    o = make_order(JOB_TRAIN, 2, named("bert"), "");
    add_data(&o->spec);
    o->spec.train.steps = STEPS;
    o->spec.data.seq_len = 65; /* the positions are a table of 64 */
    o->spec.data.reset_positions = 0;
    refused(o, "data.seq_len");
    o = make_order(JOB_TRAIN, 2, named("roberta"), "");
    add_data(&o->spec);
    o->spec.train.steps = STEPS;
    o->spec.data.seq_len = 65; /* the first 5 rows of the table are not positions */
    o->spec.data.reset_positions = 0;
    refused(o, "data.seq_len");
    o = make_order(JOB_TRAIN, 2, named("bert"), "");
    add_data(&o->spec);
    o->spec.train.steps = STEPS;
    o->spec.objective.type = OBJECTIVE_CAUSAL_LM;
    refused(o, "objective.type");
    o = make_order(JOB_GENERATE, 1, named("bert"), "");
    o->spec.data.seq_len = 0;
    o->spec.sampling.max_tokens = 8;
    o->spec.input.prompt = tiny_text(&o->spec, "x");
    refused(o, "kind");
    o = make_order(JOB_EMBED, 1, named("retnet"), "");
    o->spec.input.source.path = tiny_text(&o->spec, "x");
    o->spec.embed.pooling = POOLING_CLS;
    refused(o, "embed.pooling");
}

int main(int argc, char **argv)
{
    gang_program(argv[0]);
    snprintf(scratch, sizeof scratch, "/tmp/test_family_jobs.XXXXXX");
    if (!mkdtemp(scratch)) return 1;
    setenv("SEQD_LOG", getenv("V") ? "info" : "error", 0);
    RUN(test_rules);
    RUN(test_prepare);
    RUN(test_train);
    RUN(test_generate);
    RUN(test_embed);
    RUN(test_beyond_table);
    struct err e = {0};
    if (getenv("KEEP"))
        printf("  kept %s\n", scratch);
    else if (file_remove(scratch, &e))
        printf("  %s\n", e.text);
    return test_done("family_jobs");
}
