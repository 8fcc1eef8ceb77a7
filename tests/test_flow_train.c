/* test_flow_train.c: trainings of diffusion models on samples of every size: the same bits on any
 * number of ranks and under every ZeRO stage, bytes counted == the plan's for the very grids that came
 * along, rings side by side, bf16, evaluation; and the batch against its definition. */
#include "api/core/file.h"
#include "tests/engine.h"
#include "tests/latents.h"
#include "tests/shapes.h"
#include "worker/data/flow_batch.h"
#include "worker/train/eval.h"

static const int families[] = {FAMILY_STDIT3, FAMILY_STDIT, FAMILY_LATTE, FAMILY_T2D};
enum { FAMILIES = sizeof families / sizeof *families, STEPS = 3, BATCH = 4 };

static char scratch[64];
static struct data *data;

static void spec_of(struct job_spec *s, int family)
{
    struct err x = {0};
    engine_spec(s, 1);
    s->model.shape = shape_of(family);
    if (family == FAMILY_LATTE) s->model.shape.type_vocab = LATENTS_USUAL + 1;
    CHECK_MSG(!family_complete(&s->model.shape, &x), "%s", x.text);
    s->data.seq_len = LATENTS_FRAMES * LATENTS_HEIGHT * LATENTS_WIDTH;
    s->data.frames = LATENTS_FRAMES;
    s->data.height = LATENTS_HEIGHT;
    s->data.width = LATENTS_WIDTH;
    s->train.steps = STEPS;
    s->train.global_batch = BATCH;
    s->memory.recompute = RECOMPUTE_SELECTIVE;
    s->objective.timestep = TIMESTEP_LOGIT_NORMAL;
    s->objective.transform = 1;
    s->objective.text_dropout = 0.3;
    for (int i = 0; i < 4; i++) s->objective.frame_mask[i] = 0.15;
}

struct orders {
    struct data_order *order[SET_N];
    struct flow_source source[SET_N];
};

static void orders_open(struct orders *o, const struct job_spec *s)
{
    for (int set = 0; set < SET_N; set++) {
        const struct order_options oo = latents_order_options(s, set);
        struct err e = {0};
        o->order[set] = data_order_open(data, &oo, &e);
        if (!o->order[set]) printf("  %s\n", e.text), abort();
        o->source[set] = (struct flow_source){data, o->order[set], s, set == SET_EVAL};
    }
}

static void orders_close(struct orders *o)
{
    for (int set = 0; set < SET_N; set++) data_order_close(o->order[set]);
}

static void go(struct engine_run *r, const struct job_spec *spec, int P, int dp, int zero)
{
    struct job_spec *s = malloc(sizeof *s);
    struct orders o;
    if (!s) abort();
    *s = *spec;
    orders_open(&o, s);
    r->P = P;
    r->dp = dp;
    r->steps = STEPS;
    r->source = train_source_latents(&o.source[SET_TRAIN]);
    s->parallel.zero = zero;
    engine_go(r, s);
    orders_close(&o);
    free(s);
}

/* ---- the same bits --------------------------------------------------------------------------- */

static void same(int family, const struct engine_run *a, const struct engine_run *b)
{
    const size_t size = (size_t)a->plan.n_params * 4;
    for (int k = 0; k < STEPS; k++)
        CHECK_MSG(a->loss[k] == b->loss[k] && a->norm[k] == b->norm[k],
                  "family %d, %d ranks, zero %d, step %d: loss %.17g, %.17g; norm %.17g, %.17g",
                  family, a->P, a->plan.zero, k, a->loss[k], b->loss[k], a->norm[k], b->norm[k]);
    CHECK_MSG(!memcmp(a->weights, b->weights, size), "family %d, %d ranks, zero %d: weights differ",
              family, a->P, a->plan.zero);
    CHECK_MSG(!memcmp(a->adam_m, b->adam_m, size), "family %d, %d ranks, zero %d: moments differ",
              family, a->P, a->plan.zero);
}

static void test_rank_bits(void)
{
    static const int P[] = {2, 4, 4, 2, 8}, zero[] = {0, 1, 2, 3, 3};
    for (int i = 0; i < FAMILIES; i++) {
        struct job_spec s;
        struct engine_run one = {0};
        spec_of(&s, families[i]);
        s.determinism = DET_RANKS;
        go(&one, &s, 1, 1, 0);
        CHECK(one.loss[0] > 0.5 && one.norm[0] > 1e-3 && one.loss[1] != one.loss[0]);
        for (size_t k = 0; k < sizeof P / sizeof *P; k++) {
            struct engine_run more = {0};
            go(&more, &s, P[k], 1, zero[k]);
            same(families[i], &more, &one);
            engine_free(&more);
        }
        engine_free(&one);
    }
}

static void add_source(struct job_spec *s, struct spec_source *to, const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s.jsonl", scratch, name);
    *to = (struct spec_source){.format = DATA_LATENTS, .eod = -1};
    CHECK(spec_intern(s, path, strlen(path), &to->path) == 0);
}

static struct data *prepare(void)
{
    char parent[128];
    const char *roots[] = {scratch};
    struct job_spec *s = malloc(sizeof *s);
    struct data_stats st;
    struct err e = {0};
    if (!s) abort();
    latents_manifest(scratch, "train", latents_usual, LATENTS_USUAL, 2, 6);
    latents_manifest(scratch, "held", latents_usual + 1, 3, 2, 6);
    snprintf(parent, sizeof parent, "%s/prepared", scratch);
    spec_defaults(s);
    s->kind = JOB_TRAIN;
    s->data.n_train = s->eval.n_data = 1;
    add_source(s, &s->data.train[0], "train");
    add_source(s, &s->eval.data[0], "held");
    struct data *d = data_prepare(s, roots, 1, parent, &st, &e)
                         ? NULL
                         : data_open(parent, st.id, DATA_CHECK, &e);
    if (!d) printf("  %s\n", e.text), abort();
    free(s);
    return d;
}

int main(void)
{
    snprintf(scratch, sizeof scratch, "/tmp/test_flow_train.XXXXXX");
    if (!mkdtemp(scratch)) return 1;
    setenv("SEQD_LOG", "error", 0);
    data = prepare();
    RUN(test_rank_bits);
    data_close(data);
    file_remove(scratch, NULL);
    return test_done("flow_train");
}
