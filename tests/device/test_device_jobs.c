/* Runs jobs of every kind by real seqrank processes on a device with memory of its own, and
 * compares them with the same jobs on the CPU. SEQD_TEST_DEVICE names the device; if it is not
 * set, the device is "emulated".
 *
 * Losses, weights, scores, texts and samples must equal the results of the CPU up to rounding
 * errors. The amounts of memory that are allocated on the device and on the host must be as
 * planned. A model whose weights are in blocks must generate and pass verification. A training
 * that is killed and resumed must end with the bits of a training that was not killed. The short
 * form (SEQD_TEST_SMALL) leaves out some stages of ZeRO and some verify jobs, and runs jobs with
 * trained models on two ranks only.
 * tests: needs libkernels_emulated.so seqrank */
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/core/file.h"
#include "api/core/gang_start.h"
#include "tests/lib/gang.h"
#include "tests/lib/hf_save.h"
#include "tests/lib/latents.h"
#include "tests/lib/param.h"
#include "worker/plan/check.h"
#include "worker/family/family.h"
#include "worker/hf/hf.h"
#include "worker/hf/safetensors.h"

#define STEPS 3
/* the tolerance of losses; a few steps of Adam amplify a rounding error of 1e-7 to about this
 * size */
#define TOL 3e-5

static char scratch[64];
static const char *device;
static struct gang g; /* static because it has 100 KiB, too many for the stack */

/* ---- orders ---------------------------------------------------------------------------------- */

/* the ids of the prepared texts and of the prepared latents */
static char text_id[80], latents_id[80];

static const struct model_shape llama = {.n_layers = 2,
                                         .width = 32,
                                         .n_heads = 4,
                                         .n_kv_heads = 2,
                                         .head_dim = 8,
                                         .ffn_width = 40,
                                         .vocab = 260,
                                         .max_pos = 4096,
                                         .norm_eps = 1e-5,
                                         .rope_theta = 10000};
/* A Mixtral with 6 experts, of which each row chooses 2. */
static const struct model_shape mixtral = {.family = FAMILY_MIXTRAL,
                                           .n_layers = 2,
                                           .width = 32,
                                           .n_heads = 4,
                                           .n_kv_heads = 2,
                                           .head_dim = 8,
                                           .ffn_width = 16,
                                           .n_experts = 6,
                                           .experts_per_token = 2,
                                           .vocab = 260,
                                           .max_pos = 4096,
                                           .norm_eps = 1e-5,
                                           .rope_theta = 10000};
static const struct model_shape linear = {.family = FAMILY_LINEAR,
                                          .feature_map = ACT_ELU1,
                                          .normalise = 1,
                                          .n_layers = 2,
                                          .width = 32,
                                          .n_heads = 4,
                                          .head_dim = 8,
                                          .ffn_width = 48,
                                          .vocab = 258,
                                          .max_pos = 4096,
                                          .norm_eps = 1e-5,
                                          .rope_theta = 10000};
static const struct model_shape stdit3 = {.family = FAMILY_STDIT3,
                                          .n_layers = 2,
                                          .width = 16,
                                          .n_heads = 2,
                                          .n_kv_heads = 2,
                                          .head_dim = 8,
                                          .ffn_width = 32,
                                          .max_pos = 2048,
                                          .rope_theta = 10000,
                                          .norm_eps = 1e-5,
                                          .in_channels = 4,
                                          .out_channels = 8,
                                          .patch_t = 1,
                                          .patch_h = 2,
                                          .patch_w = 2,
                                          .caption_channels = 6,
                                          .text_len = 3,
                                          .qk_norm = 1};

/* Makes a job with `sp` ranks on the device `where`. Its directory is scratch/NAME-cpu if the
 * device is the CPU, and scratch/NAME-there otherwise. */
static struct order *make_order(enum job_kind kind, const struct model_shape *m, int sp,
                                const char *name, const char *where)
{
    char dir[64];
    snprintf(dir, sizeof dir, "%s-%s", name, where == device ? "there" : "cpu");
    const bool flow = m->patch_t > 0;
    struct order *o = order_new(kind, scratch, flow ? latents_id : text_id, dir);
    struct job_spec *s = &o->spec;
    s->model.shape = *m;
    s->resources.device = tiny_text(s, where);
    s->parallel.sp = sp;
    s->resources.threads = 1;
    s->train.steps = STEPS;
    s->train.global_batch = 2;
    s->schedule.warmup_steps = 1;
    s->checkpoint.every_steps = 2;
    if (flow) {
        s->data.frames = LATENTS_FRAMES;
        s->data.height = LATENTS_HEIGHT;
        s->data.width = LATENTS_WIDTH;
    } else {
        s->data.seq_len = 24;
    }
    return o;
}

static struct spec_source source(struct job_spec *s, const char *name, int format)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s.jsonl", scratch, name);
    return (struct spec_source){tiny_text(s, path), format == DATA_JSONL ? tiny_text(s, "text") : 0,
                                format, 0, -1};
}

static struct order *with_data(struct order *o)
{
    struct job_spec *s = &o->spec;
    const bool flow = s->model.shape.patch_t > 0;
    s->data.n_train = 1;
    s->data.train[0] = source(s, flow ? "latents" : "text", flow ? DATA_LATENTS : DATA_JSONL);
    return o;
}

static void evaluate(struct order *o)
{
    o->spec.eval.n_data = 1;
    o->spec.eval.data[0] = source(&o->spec, "held", DATA_JSONL);
    o->spec.eval.every_steps = 2;
}

static void set_model(struct order *o, const char *dir)
{
    struct err e = {0};
    o->spec.model.path = tiny_text(&o->spec, dir);
    CHECK_MSG(!config_read_dir(dir, &o->spec.model.shape, &e), "%s", e.text);
}

/* ---- results that every job must report ------------------------------------------------------ */

/* Returns member `key` of the result's "memory", or -1 if "memory" has no such member. */
static double memory(const char *key)
{
    struct jread j;
    enum jtok t;
    double v = -1;
    if (!member(g.result, "memory", &j, &t) || t != J_OBJECT) return -1;
    while (jread_next(&j) == J_KEY) {
        const bool found = jread_is(&j, key);
        if (jread_next(&j) == J_NUMBER && found) jread_double(&j, &v);
    }
    return v;
}

static bool runs(struct order *o, const char *what, const char *where)
{
    char buf[64];
    const bool own = strcmp(where, "cpu");
    const bool ok = gang_runs(&g, o);
    CHECK_MSG(ok, "%s on \"%s\"", what, where);
    if (!ok) return false;
    CHECK_STR(text(g.result, "ledger", buf, sizeof buf), "equal");
    CHECK_MSG(memory("high") > 0 && memory("high") == memory("planned"),
              "%s on \"%s\": placed %.0f bytes, planned %.0f", what, where, memory("high"),
              memory("planned"));
    CHECK_MSG(memory("host_high") == memory("host_planned") && own == (memory("host_high") > 0),
              "%s on \"%s\": placed %.0f bytes of the host, planned %.0f", what, where,
              memory("host_high"), memory("host_planned"));
    for (int i = 0; i < g.n_steps; i++) {
        const struct rank_step *s = &g.step[i];
        CHECK_MSG(s->ledger_ok, "%s on \"%s\": ledger of step %d", what, where, i);
        CHECK(s->memory_high == s->memory_planned && s->host_high == s->host_planned);
    }
    return true;
}

static void near(const char *what, double got, double want, double tol)
{
    CHECK_MSG(fabs(got - want) <= tol * fabs(want), "%s: %.9g on \"%s\", %.9g on the CPU", what,
              got, device, want);
}

/* Compares all tensors of the file `got` with the tensors of the file `want`. The norm of the
 * difference over all tensors together may be at most tol times the norm of the tensors of `want`.
 * With this bound, a tensor that was left out is found, and a tensor that consists only of
 * rounding errors (such as a bias that begins as 0) is not reported. apart2 is added to the
 * allowed mean square error of an element; it does not depend on tol. */
static void near_files(const char *what, const char *got, const char *want, double tol,
                       double apart2)
{
    struct err e = {0};
    struct st_file *a = st_open(want, &e), *b = st_open(got, &e);
    double diff = 0, norm = 0, n = 0;
    CHECK_MSG(a && b && st_count(a) == st_count(b), "%s: %s", what, e.text);
    for (int i = 0; a && b && i < st_count(a); i++) {
        const struct st_tensor *t = st_at(a, i), *u = st_find(b, t->name);
        float *x = malloc((size_t)t->count * 8), *y = x + t->count;
        const bool ok = x && u && u->count == t->count && !st_read_f32(a, t, x, &e) &&
                        !st_read_f32(b, u, y, &e);
        CHECK_MSG(ok, "%s: %s of %s", what, t->name, got);
        for (int64_t k = 0; ok && k < t->count; k++) {
            diff += ((double)y[k] - x[k]) * ((double)y[k] - x[k]);
            norm += (double)x[k] * x[k];
        }
        n += (double)t->count;
        free(x);
    }
    const double most = sqrt(tol * tol * norm + apart2 * n);
    CHECK_MSG(norm > 0 && sqrt(diff) <= most, "%s: %s: rel-L2 %.3g of %.3g", what, got,
              sqrt(diff / norm), most / sqrt(norm));
    st_close(a);
    st_close(b);
}

/* ---- trainings ------------------------------------------------------------------------------- */

static void write_docs(const char *name, int n)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s.jsonl", scratch, name);
    FILE *f = fopen(path, "we");
    for (int i = 0; f && i < n; i++)
        fprintf(f, "{\"text\":\"int f%d(int x) { return %s * %d; }\"}\n", i, i == 5 ? "Z" : "x",
                i * 7 % 13);
    CHECK(f && !fclose(f));
}

static char bad_dir[128]; /* a llama whose embedding of the letter 'Z' is NaN */

static void write_bad_model(void)
{
    struct err e = {0};
    const int64_t n = param_count(&llama);
    float *w = calloc((size_t)n, 4);
    snprintf(bad_dir, sizeof bad_dir, "%s/bad", scratch);
    const int64_t embed = param_named(&llama, "model.embed_tokens.weight").offset;
    for (int64_t i = 0; i < n; i++) w[i] = 0.05f * sinf((float)(i * i % 1009));
    for (int64_t i = 0; i < llama.width; i++) w[embed + 'Z' * llama.width + i] = NAN;
    CHECK_MSG(!hf_save(bad_dir, &llama, DT_F32, w, &e), "%s", e.text);
    free(w);
}

static void test_prepare(void)
{
    write_docs("text", 12);
    write_docs("held", 3);
    write_bad_model();
    latents_manifest(scratch, "latents", latents_usual, LATENTS_USUAL, 4, 6);
    const struct model_shape *const shapes[] = {&llama, &stdit3};
    for (int i = 0; i < 2; i++) {
        struct order *o = with_data(make_order(JOB_TRAIN, shapes[i], 1, "prepare", device));
        o->args.task = TASK_PREPARE;
        if (i == 0) evaluate(o);
        if (gang_runs(&g, o)) text(g.result, "prepared_id", i ? latents_id : text_id, 80);
        free(o);
    }
}

/* The options of a training, in addition to its model and its numbers of ranks. */
struct way {
    const char *name;
    const struct model_shape *shape;
    int sp, dp, zero, pp;
    enum precision_id precision;
    bool fused, ema, first_step, bits, nccl, evals;
    int64_t time_chunk;
    int group;    /* parallel.zero_group; 0 means that a group consists of all ranks */
    bool offload; /* activations are offloaded, but only in the run on the device */
};

static struct order *way_order(const struct way *w, const char *where)
{
    struct order *o = with_data(make_order(JOB_TRAIN, w->shape, w->sp, w->name, where));
    struct job_spec *s = &o->spec;
    s->parallel.dp = w->dp ? w->dp : 1;
    s->parallel.pp = w->pp;
    s->parallel.zero = w->zero;
    s->parallel.zero_group = w->group;
    s->precision.params = (int32_t)w->precision;
    s->verify.first_step = w->first_step;
    s->determinism = w->bits ? DET_RANKS : DET_RUN;
    if (w->nccl && where == device) s->parallel.transport = TRANSPORT_NCCL;
    if (w->ema) s->ema.decay = 0.5;
    s->memory.time_chunk = w->time_chunk;
    if (w->offload && where == device) s->memory.offload = OFFLOAD_ACTIVATIONS;
    if (w->evals) evaluate(o);
    if (w->fused) s->optim.max_grad_norm = 0, s->train.global_batch = s->parallel.dp;
    return o;
}

/* Returns the mean square of the difference between the weights of two trainings on two devices.
 * The relative difference of the two devices' gradients is about u.
 *
 * The first step of AdamW changes a weight by lr in the direction of its gradient's sign, however
 * small the gradient is. Later steps divide by a second moment that includes the first gradient.
 * These later changes only have the relative error of the gradient. If the elements of two
 * gradients have a normal distribution and differ by e times their size, a share e / pi of the
 * elements has opposite signs in the two gradients. The weights of this share differ by 2 lr. In
 * test_verify, the gradients of two devices differ by 0.46 u. Here, e is 2 u, because the share
 * consists of only a few weights (3 of 34,000), so that it varies much. */
static double moved_apart(double u, double lr)
{
    return 2 * u / M_PI * 4 * lr * lr;
}

/* Runs the training w on the CPU and on the device, and compares the results. `sha` becomes the
 * digest of the weights that the device has trained. */
static void train(const struct way *w, char sha[80], char hf[1300])
{
    double loss[STEPS] = {0}, norm[STEPS] = {0}, held = 0, lr = 0;
    char dir[2][1300], path[2][2700];
    const double half = w->precision == PRECISION_FP16 ? 1.0 / 2048 : 1.0 / 256;
    const double tol = w->precision ? half : TOL;
    for (int i = 0; i < 2; i++) {
        const char *where = i ? device : "cpu";
        struct order *o = way_order(w, where);
        if (!runs(o, w->name, where)) {
            free(o);
            return;
        }
        CHECK(g.n_steps == STEPS && g.n_checkpoints == 2);
        CHECK(!w->first_step || gang_event(&g, EV_VERIFIED, 0));
        for (int k = 0; k < STEPS; k++) {
            if (i) near(w->name, g.step[k].loss, loss[k], tol);
            if (i) near(w->name, g.step[k].grad_norm, norm[k], 10 * tol);
            loss[k] = g.step[k].loss;
            norm[k] = g.step[k].grad_norm;
        }
        const struct gang_event *eval = gang_event(&g, EV_EVAL, 0);
        CHECK(w->evals == (eval != NULL) && (!eval || eval->step == 2));
        if (eval && i) near(w->name, number(eval->json, "loss"), held, tol);
        if (eval) held = number(eval->json, "loss");
        text(g.result, w->ema ? "hf_ema" : "hf", dir[i], sizeof dir[i]);
        text(g.result, "weights_sha256", sha, 80);
        snprintf(path[i], sizeof path[i], "%s/model.safetensors", dir[i]);
        lr = o->spec.optim.lr;
        free(o);
    }
    if (hf) memcpy(hf, dir[0], sizeof dir[0]);
    /* in bf16 the rounding of a weight is larger than the tolerance of losses, and in fp32 it is
     * negligible */
    near_files(w->name, path[1], path[0], w->precision ? half : 1e-4,
               w->precision == PRECISION_FP16 ? moved_apart(half, lr) : 0);
}

/* directories of models that were trained on the CPU */
static char llama_dir[1300], linear_dir[1300], stdit3_dir[1300];

static void test_train(void)
{
    char sha[80];
    const struct way plain = {
        .name = "llama", .shape = &llama, .sp = 1, .first_step = true, .evals = true};
    const struct way lasp = {.name = "linear", .shape = &linear, .sp = 1};
    const struct way half = {.name = "bf16",
                             .shape = &llama,
                             .sp = 1,
                             .precision = PRECISION_BF16,
                             .fused = true,
                             .ema = true};
    const struct way fp16 = {
        .name = "fp16", .shape = &linear, .sp = 1, .precision = PRECISION_FP16, .first_step = true};
    train(&plain, sha, llama_dir);
    train(&lasp, sha, linear_dir);
    train(&half, sha, NULL);
    train(&fp16, sha, NULL);
}

static void test_ranks(void)
{
    char sha[80];
    const struct way rsa = {.name = "rsa", .shape = &llama, .sp = 2, .first_step = true};
    const struct way lasp = {.name = "lasp", .shape = &linear, .sp = 2, .zero = 3};
    const struct way half = {
        .name = "bf16-2", .shape = &llama, .sp = 2, .zero = 3, .precision = PRECISION_BF16};
    const struct way fp16 = {
        .name = "fp16-2", .shape = &llama, .sp = 2, .zero = 1, .precision = PRECISION_FP16};
    const struct way in_time = {.name = "in-time", .shape = &linear, .sp = 2, .time_chunk = 4};
    train(&rsa, sha, NULL);
    train(&lasp, sha, NULL);
    train(&half, sha, NULL);
    train(&fp16, sha, NULL);
    train(&in_time, sha, NULL);
    static struct model_shape deep;
    deep = llama;
    deep.n_layers = 5;
    const struct way away = {.name = "offload",
                             .shape = &deep,
                             .sp = 2,
                             .zero = 2,
                             .first_step = true,
                             .evals = true,
                             .offload = true};
    train(&away, sha, NULL);
    static struct model_shape tied;
    tied = llama;
    tied.tied = 1;
    const struct way stages = {
        .name = "stages", .shape = &tied, .sp = 2, .pp = 2, .zero = 3, .first_step = true};
    train(&stages, sha, NULL);
}

/* Checks a training that starts with a NaN in the embedding of one letter. The step that reads
 * this embedding must be rolled back. */
static void test_rollback(void)
{
    double bad_step = 0, last = 0;
    for (int i = 0; i < 2; i++) {
        const char *where = i ? device : "cpu";
        struct order *o = make_order(JOB_TRAIN, &llama, 2, "rollback", where);
        with_data(o)->spec.train.steps = 8;
        o->spec.model.path = tiny_text(&o->spec, bad_dir);
        if (runs(o, "rollback", where)) {
            const struct gang_event *note = gang_event(&g, EV_NOTE, 0);
            const double loss = g.step[g.n_steps - 1].loss;
            CHECK(number(g.result, "rollbacks") >= 1 && note && strstr(note->json, "rolled_back"));
            if (i) CHECK(note && (double)note->step == bad_step);
            if (i) near("rollback", loss, last, TOL);
            bad_step = note ? (double)note->step : -1;
            last = loss;
        }
        free(o);
    }
}

/* Makes a kernel of the last rank fail in the middle of a step. The test checks that this rank
 * reports the failure, and that the first rank exits. */
static void fault_env(int rank, int n)
{
    if (rank == n - 1) setenv("EMU_FAULT_AT", "300", 1);
}

static void test_a_kernel_faults(void)
{
    if (strcmp(device, "emulated")) {
        printf("  not run: nothing makes a kernel fault on \"%s\"\n", device);
        return;
    }
    const struct way w = {.name = "faults", .shape = &llama, .sp = 2};
    struct order *o = way_order(&w, device);
    struct err e = {0};
    CHECK_MSG(!family_check(&o->spec, &e), "%s: %s", e.field, e.text);
    gang_env = fault_env;
    gang_start(&g, 2, o);
    gang_run(&g);
    gang_env = NULL;
    CHECK_MSG(g.said[1].code == ERR_DEVICE && strstr(g.said[1].text, "job 7, epoch 1: step ") &&
                  strstr(g.said[1].text, ": device \"emulated\"") &&
                  strstr(g.said[1].text, "unspecified launch failure"),
              "%s", g.said[1].text);
    CHECK_MSG(g.said[0].code == ERR_ABORTED && strstr(g.said[0].text, "rank 1 is gone"), "%s",
              g.said[0].text);
    free(o);
}

/* Trains with the real NCCL, if it is installed and there is a GPU. The trainings use NCCL's
 * collectives on all ranks and on views. The last training uses only messages between pairs of
 * ranks. */
static void test_nccl(void)
{
    char sha[80];
    const struct way rsa = {.name = "rsa-nccl", .shape = &llama, .sp = 2, .zero = 1, .nccl = true};
    const struct way lasp = {.name = "lasp-nccl", .shape = &linear, .sp = 2, .nccl = true};
    const struct way dsp = {
        .name = "dsp-nccl", .shape = &stdit3, .sp = 2, .dp = 2, .zero = 1, .nccl = true};
    const struct way groups = {.name = "groups-nccl",
                               .shape = &llama,
                               .sp = 1,
                               .dp = 4,
                               .zero = 2,
                               .group = 2,
                               .nccl = true};
    struct way messages = dsp;
    messages.name = "messages-nccl";
    if (!gang_has_nccl(device)) return;
    gang_env = gang_nccl_env;
    train(&rsa, sha, NULL);
    train(&lasp, sha, NULL);
    train(&dsp, sha, NULL);
    train(&groups, sha, NULL);
    setenv("SEQD_COLLECTIVES", "messages", 1);
    train(&messages, sha, NULL);
    unsetenv("SEQD_COLLECTIVES");
    gang_env = NULL;
}

/* Checks determinism "ranks" on the device: all stages of ZeRO must give the same bits, both with
 * all ranks in one group and with groups of one rank. The first training is compared with the CPU,
 * too. */
static void test_zero(void)
{
    char first[80] = "", sha[80];
    const struct way whole = {.name = "zero0", .shape = &llama, .sp = 1, .dp = 2, .bits = true};
    train(&whole, first, NULL);
    for (int i = 1; i <= 6; i++) {
        char name[8];
        if (small_tests() && i % 3) continue;
        struct way w = whole;
        snprintf(name, sizeof name, "zero%d", i);
        w.name = name;
        w.zero = i > 3 ? i - 3 : i;
        w.group = i > 3 ? 1 : 0;
        struct order *o = way_order(&w, device);
        if (runs(o, name, device))
            CHECK_STR(text(g.result, "weights_sha256", sha, sizeof sha), first);
        free(o);
    }
}

/* Checks a training that is killed at its first checkpoint and then started again. It must end
 * with the bits of a training that was not killed. */
static void test_resume(void)
{
    char want[80], sha[80];
    const struct way w = {.name = "whole", .shape = &llama, .sp = 1};
    struct order *o = way_order(&w, device);
    if (runs(o, "an undisturbed training", device))
        text(g.result, "weights_sha256", want, sizeof want);
    free(o);
    const struct way again = {.name = "killed", .shape = &llama, .sp = 1};
    o = way_order(&again, device);
    struct err e = {0};
    CHECK_MSG(!family_check(&o->spec, &e), "%s: %s", e.field, e.text);
    gang_start(&g, 1, o);
    g.kill_rank = 0;
    gang_run(&g);
    CHECK(WIFSIGNALED(g.status[0]) && g.n_steps == 2);
    o->args.epoch = 2;
    if (runs(o, "a resumed training", device)) {
        CHECK(g.n_steps == 1 && g.step[0].step == 3);
        CHECK_STR(text(g.result, "weights_sha256", sha, sizeof sha), want);
    }
    free(o);
}

/* ---- jobs that use trained models ------------------------------------------------------------ */

static void test_score(void)
{
    double nll = 0;
    for (int i = 0; i < 3; i += 1 + small_tests()) {
        const char *where = i ? device : "cpu";
        struct order *o = make_order(JOB_SCORE, &llama, i == 2 ? 2 : 1, "score", where);
        o->spec.input.source = source(&o->spec, "text", DATA_JSONL);
        o->spec.score.by_position_bucket = 8;
        set_model(o, llama_dir);
        if (runs(o, "score", where)) {
            if (i) near("score", number(g.result, "nll"), nll, 1e-6);
            nll = number(g.result, "nll");
        }
        free(o);
    }
}

static void test_embed(void)
{
    double want[64], sum;
    const int C = (int)llama.width;
    for (int i = 0; i < 3; i += 1 + small_tests()) {
        const char *where = i ? device : "cpu";
        char path[RANK_PATH_SIZE + 64];
        struct err e = {0};
        size_t size;
        struct order *o = make_order(JOB_EMBED, &llama, i == 2 ? 2 : 1, "embed", where);
        o->spec.input.source = source(&o->spec, "text", DATA_JSONL);
        o->spec.data.seq_len = 64;
        o->spec.embed.pooling = POOLING_MEAN;
        set_model(o, llama_dir);
        const bool ok = runs(o, "embed", where);
        snprintf(path, sizeof path, "%s/artifacts/embeddings.npy", o->args.job_dir);
        char *file = ok ? file_read(path, 1 << 20, &size, &e) : NULL;
        CHECK_MSG(file, "%s", e.text);
        /* the embedding of the last document */
        const float *row = file ? (const float *)(file + size) - C : NULL;
        sum = 0;
        for (int c = 0; file && c < C; c++) {
            if (i) sum += (row[c] - want[c]) * (row[c] - want[c]);
            if (!i) want[c] = row[c];
        }
        CHECK_MSG(sqrt(sum) < 1e-4, "embed: %g from the CPU's", sqrt(sum));
        free(file);
        free(o);
    }
}

static void generate(const char *name, const struct model_shape *m, const char *dir, int sp,
                     void (*change)(struct job_spec *, const char *where), char text_of[1024])
{
    char first[1024];
    for (int i = 0; i < 2; i++) {
        const char *where = i ? device : "cpu";
        struct order *o = make_order(JOB_GENERATE, m, sp, name, where);
        o->spec.data.seq_len = 0;
        o->spec.sampling.max_tokens = 5;
        o->spec.sampling.temperature = 0;
        o->spec.sampling.ignore_eos = 1;
        o->spec.input.prompt = tiny_text(&o->spec, "int f(int");
        set_model(o, dir);
        if (change) change(&o->spec, where);
        if (runs(o, name, where)) {
            text(g.result, "text", i ? text_of : first, sizeof first);
            if (i) CHECK_STR(text_of, first);
        }
        free(o);
    }
}

static void save_context(struct job_spec *s, const char *where)
{
    (void)where;
    s->context.save = 1;
}

static void load_context(struct job_spec *s, const char *where)
{
    char path[256];
    snprintf(path, sizeof path, "%s/saves-%s/artifacts/context.safetensors", scratch,
             where == device ? "there" : "cpu");
    s->context.load = tiny_text(s, path);
}

/* Requests two continuations of a prompt. To make the second one, the job goes back to the end of
 * the prompt. */
static void two_continuations(struct job_spec *s, const char *where)
{
    (void)where;
    s->sampling.n = 2;
    s->sampling.temperature = 0.7;
}

static void test_generate(void)
{
    char one[1024], two[1024], after[1024];
    generate("generate", &llama, llama_dir, 1, NULL, one);
    generate("generate2", &llama, llama_dir, 2, NULL, two);
    CHECK_STR(two, one);
    generate("several", &linear, linear_dir, 1, two_continuations, after);
    generate("saves", &linear, linear_dir, 1, save_context, one);
    generate("loads", &linear, linear_dir, 1, load_context, after);
}

/* ---- weights in blocks ----------------------------------------------------------------------- */

/* a Mixtral whose matrices have sizes that are multiples of a panel and of a block */
static char blocks_dir[128];
static enum weights_id blocks_in;

static const struct model_shape panels = {.family = FAMILY_MIXTRAL,
                                          .n_layers = 2,
                                          .width = 64,
                                          .n_heads = 4,
                                          .n_kv_heads = 2,
                                          .head_dim = 16,
                                          .ffn_width = 96,
                                          .n_experts = 3,
                                          .experts_per_token = 2,
                                          .vocab = 260,
                                          .max_pos = 4096,
                                          .norm_eps = 1e-5,
                                          .rope_theta = 10000};

static void write_panels(void)
{
    struct err e = {0};
    const int64_t n = param_count(&panels);
    float *w = malloc((size_t)n * 4);
    if (!w) abort();
    for (int64_t i = 0; i < n; i++) w[i] = 0.2f * sinf((float)(i * i % 10007));
    snprintf(blocks_dir, sizeof blocks_dir, "%s/panels", scratch);
    CHECK_MSG(!hf_save(blocks_dir, &panels, DT_F32, w, &e), "%s", e.text);
    free(w);
}

static void in_blocks(struct job_spec *s, const char *where)
{
    (void)where;
    s->model.weights = blocks_in;
}

static void score_blocks(int sp)
{
    double nll = 0;
    for (int i = 0; i < 2; i++) {
        const char *where = i ? device : "cpu";
        struct order *o = make_order(JOB_SCORE, &panels, sp, "score-blocks", where);
        o->spec.input.source = source(&o->spec, "text", DATA_JSONL);
        set_model(o, blocks_dir);
        in_blocks(&o->spec, where);
        if (runs(o, "score of blocks", where)) {
            if (i) near("score of blocks", number(g.result, "nll"), nll, 1e-6);
            nll = number(g.result, "nll");
        }
        free(o);
    }
}

static void verify_blocks(void)
{
    struct order *o = with_data(make_order(JOB_VERIFY, &panels, 2, "verify-blocks", device));
    set_model(o, blocks_dir);
    in_blocks(&o->spec, device);
    if (runs(o, "verify of blocks", device)) CHECK(flag(g.result, "equal"));
    free(o);
}

static void test_blocks(void)
{
    char one[1024], two[1024];
    write_panels();
    for (int w = WEIGHTS_INT8; w < WEIGHTS_N; w++) {
        blocks_in = (enum weights_id)w;
        generate("blocks", &panels, blocks_dir, 1, in_blocks, one);
        generate("blocks2", &panels, blocks_dir, 2, in_blocks, two);
        CHECK_STR(two, one);
        score_blocks(w);
        verify_blocks();
    }
}

static void test_verify(void)
{
    /* the last way has two pipeline stages */
    for (int way = small_tests() ? 2 : 0; way < 4; way++) {
        const int sp = way == 1 || way == 2 ? 2 : 1;
        const bool bf16 = way == 2;
        struct order *o = with_data(make_order(JOB_VERIFY, &llama, sp, "verify", device));
        o->spec.verify.keep_grads = 1;
        if (way == 3) o->spec.parallel.pp = 2;
        if (bf16) o->spec.precision.params = PRECISION_BF16;
        char path[2][RANK_PATH_SIZE + 64];
        if (runs(o, "verify", device)) {
            CHECK(flag(g.result, "equal") && g.n_artifacts == 3);
            CHECK(number(g.result, "logits_rel_l2") < (bf16 ? 1.0 / 128 : 1e-4));
            snprintf(path[0], sizeof path[0], "%s/artifacts/grads-sp1.safetensors",
                     o->args.job_dir);
            snprintf(path[1], sizeof path[1], "%s/artifacts/grads-sp%s.safetensors",
                     o->args.job_dir, way ? "2" : "1-packed");
            near_files("verify", path[1], path[0], bf16 ? 1.0 / 64 : 1e-4, 0);
        }
        free(o);
    }
}

/* Checks a verify job of a model with experts. The choices of experts are kept in the host's
 * memory, and the job reads them again from there. */
static void test_verify_experts(void)
{
    for (int stages = small_tests() ? 2 : 1; stages <= 2; stages++) {
        struct order *o = with_data(
            make_order(JOB_VERIFY, &mixtral, stages == 1 ? 2 : 1, "experts", device));
        o->spec.parallel.pp = stages;
        o->spec.precision.params = PRECISION_BF16;
        if (runs(o, "experts", device)) CHECK(flag(g.result, "equal"));
        free(o);
    }
}

/* Checks that verification fails if the bound for the gradient's error is zero, because the
 * rounding errors are larger. Before it fails, the job has to flip a bit of the first weights on
 * the device, and to flip it back. */
static void test_verify_refuses(void)
{
    struct order *o = with_data(make_order(JOB_VERIFY, &llama, 2, "refuses", device));
    o->spec.verify.grad_rel_l2 = 0;
    struct err e = {0};
    CHECK_MSG(!family_check(&o->spec, &e), "%s: %s", e.field, e.text);
    gang_start(&g, 2, o);
    gang_run(&g);
    CHECK_MSG(g.fail.code == ERR_CORRUPT && strstr(g.fail.text, "2 ranks do not equal 1 rank"),
              "%s", g.fail.text);
    free(o);
}

/* ---- diffusion ------------------------------------------------------------------------------- */

static void test_flow_train(void)
{
    char sha[80];
    for (int sp = 1; sp <= 2; sp++) {
        const struct way w = {.name = sp == 1 ? "stdit3" : "dsp",
                              .shape = &stdit3,
                              .sp = sp,
                              .ema = sp == 1,
                              .first_step = true};
        train(&w, sha, sp == 1 ? stdit3_dir : NULL);
    }
}

/* Checks samples. If eta is 1, the model is a new model that predicts noise, and the steps of
 * sampling draw random numbers. */
static void check_sample(int eta)
{
    char path[2][RANK_PATH_SIZE + 64];
    struct err e = {0};
    const char *request = "{\"custom_id\":\"a\",\"height\":48,\"width\":64,"
                          "\"latents\":{\"T\":5,\"H\":6,\"W\":8},\"seed\":3,"
                          "\"text\":\"latents-y0.safetensors\"}\n";
    snprintf(path[0], sizeof path[0], "%s/requests.jsonl", scratch);
    CHECK_MSG(!file_write(path[0], request, strlen(request), &e), "%s", e.text);
    for (int i = 0; i < 3; i += 1 + small_tests()) {
        const char *where = i ? device : "cpu";
        static const char *const names[2][2] = {{"sample", "sample2"}, {"drawn", "drawn2"}};
        struct order *o = make_order(JOB_GENERATE, &stdit3, i == 2 ? 2 : 1, names[eta][i == 2],
                                     where);
        o->spec.input.source = source(&o->spec, "requests", DATA_JSONL);
        o->spec.sampling.steps = 2;
        o->spec.sampling.eta = eta;
        if (eta) o->spec.objective.type = OBJECTIVE_IDDPM;
        if (!eta) set_model(o, stdit3_dir);
        if (runs(o, "a sample", where)) {
            CHECK(number(g.result, "samples") == 1);
            snprintf(path[i > 0], sizeof path[0], "%s/artifacts/sample-00000.safetensors",
                     o->args.job_dir);
            if (i) near_files("a sample", path[1], path[0], 1e-4, 0);
        }
        free(o);
    }
}

static void test_flow_sample(void)
{
    for (int eta = 0; eta < 2; eta++) check_sample(eta);
}

int main(int argc, char **argv)
{
    (void)argc;
    device = getenv("SEQD_TEST_DEVICE");
    if (!device) device = "emulated";
    gang_program(argv[0]);
    snprintf(scratch, sizeof scratch, "/tmp/test_device_jobs.XXXXXX");
    if (!mkdtemp(scratch)) return 1;
    setenv("SEQD_LOG", getenv("V") ? "info" : "error", 0);
    RUN(test_prepare);
    RUN(test_train);
    RUN(test_resume);
    RUN(test_score);
    RUN(test_embed);
    RUN(test_generate);
    RUN(test_blocks);
    RUN(test_verify);
    RUN(test_verify_experts);
    RUN(test_flow_train);
    RUN(test_flow_sample);
    RUN(test_ranks);
    RUN(test_rollback);
    RUN(test_a_kernel_faults);
    RUN(test_zero);
    RUN(test_nccl);
    RUN(test_verify_refuses);
    struct err e = {0};
    if (getenv("KEEP"))
        printf("  kept %s\n", scratch);
    else if (file_remove(scratch, &e))
        printf("  %s\n", e.text);
    return test_done("device_jobs");
}
