/* test_flow_train.c: trains diffusion models on samples of every size. Any number of ranks must
 * give the same bits, under every stage of ZeRO. The counted bytes must equal the bytes that the
 * plan has for the grids of the samples. It also checks data-parallel rings, bf16 and evaluation,
 * and compares a batch with its definition. */
#include "api/core/file.h"
#include "api/core/job.h"
#include "tests/lib/engine.h"
#include "tests/lib/latents.h"
#include "tests/lib/shapes.h"
#include "worker/data/flow_batch.h"
#include "worker/family/family.h"
#include "worker/family/shape.h"
#include "worker/train/eval.h"

/* a flag that is added to the family: the model predicts noise and its variance */
enum { NOISE = 1 << 16 };
static const int families[] = {FAMILY_STDIT3, FAMILY_STDIT,         FAMILY_LATTE,
                               FAMILY_T2D,    FAMILY_LATTE | NOISE, FAMILY_STDIT | NOISE};
enum { FAMILIES = sizeof families / sizeof *families, STEPS = 3, BATCH = 4 };

static char scratch[64];
static struct data *data;

static void spec_of(struct job_spec *s, int which)
{
    struct err x = {0};
    const bool noise = which & NOISE;
    const int family = which & ~NOISE;
    engine_spec(s, 1);
    s->model.shape = shape_of(family);
    if (family == FAMILY_LATTE) s->model.shape.type_vocab = LATENTS_USUAL + 1;
    s->model.shape.trained_on = noise ? OBJECTIVE_IDDPM : OBJECTIVE_RECTIFIED_FLOW;
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
    for (int i = 0; i < 4; i++) s->objective.frame_mask[i] = noise ? 0 : 0.15;
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

/* ---- other ways ------------------------------------------------------------------------------ */

/* Checks three ranks, data-parallel rings, and every recompute mode. The sums of these runs are
 * rounded differently. Weights cannot be compared, because in the first step AdamW changes a
 * weight only by the sign of its gradient. The loss and the norm of the first step are compared
 * instead. */
static void test_rings(void)
{
    static const int P[] = {3, 2, 1, 4}, dp[] = {1, 2, 2, 1}, zero[] = {1, 3, 2, 2};
    for (int i = 0; i < FAMILIES; i++) {
        struct job_spec s;
        struct engine_run one = {0};
        spec_of(&s, families[i]);
        go(&one, &s, 1, 1, 0);
        for (size_t k = 0; k < sizeof P / sizeof *P; k++) {
            struct engine_run more = {0};
            s.memory.recompute = RECOMPUTE_NONE + (int)k % 3;
            go(&more, &s, P[k], dp[k], zero[k]);
            CHECK_MSG(fabs(more.loss[0] - one.loss[0]) <= 2e-6 * one.loss[0] &&
                          fabs(more.norm[0] - one.norm[0]) <= 5e-5 * one.norm[0],
                      "family %d, %d rings of %d: loss %.9g, %.9g, norm %.9g, %.9g", families[i],
                      dp[k], P[k], more.loss[0], one.loss[0], more.norm[0], one.norm[0]);
            engine_free(&more);
        }
        engine_free(&one);
    }
}

/* ---- evaluation ------------------------------------------------------------------------------ */

enum { HELD = 3 };

struct judged {
    struct train_source source;
    struct eval eval[STEPS];
    int n;
};

static void judge(struct train *t, int rank, void *arg)
{
    struct judged *j = arg;
    struct comm_count want[PURPOSE_N];
    struct err e = {0};
    struct eval out;
    const struct plan_eval v = {t->plan->S, HELD};
    const struct eval_args a = {.source = j->source, .n_windows = HELD, .want = want};
    CHECK(!plan_eval_comm(&t->spec->model.shape, t->plan, rank, &v, want, &e));
    CHECK_MSG(!eval_run(t, &a, &out, &e), "%s", e.text);
    CHECK_MSG(out.ledger_equal, "rank %d: an evaluation moved other bytes", rank);
    if (!rank) j->eval[j->n++] = out;
}

static void judged_run(const struct job_spec *s, int P, int dp, struct judged *j,
                       struct engine_run *r)
{
    struct orders o;
    orders_open(&o, s);
    *j = (struct judged){.source = train_source_latents(&o.source[SET_EVAL])};
    *r = (struct engine_run){.before_step = judge, .arg = j};
    go(r, s, P, dp, 1);
    orders_close(&o);
}

/* Checks the evaluation of two rings. Before the first step, the weights are the same as on one
 * ring. The results may differ only because two rings add the losses in a different order, in
 * double. */
static void check_rings_eval(const struct job_spec *s, const struct judged *one)
{
    struct judged more;
    struct engine_run r;
    judged_run(s, 2, 2, &more, &r);
    CHECK_MSG(fabs(more.eval[0].loss - one->eval[0].loss) < 1e-12, "2 rings: %.17g, %.17g",
              more.eval[0].loss, one->eval[0].loss);
    engine_free(&r);
}

/* Checks that an evaluation has the same losses on any number of ranks and changes no state of the
 * training. It computes every value of every sample: no condition is left out, and no frame is
 * clean. */
static void test_eval(void)
{
    int64_t values = 0;
    for (int i = 1; i <= HELD; i++)
        values += 2 * latents_usual[i].T * latents_usual[i].H * latents_usual[i].W;
    for (int i = 0; i < FAMILIES; i++) {
        struct job_spec s;
        struct judged one, more;
        struct engine_run r, plain = {0};
        spec_of(&s, families[i]);
        s.determinism = DET_RANKS;
        s.objective.text_dropout = 1;
        judged_run(&s, 1, 1, &one, &r);
        go(&plain, &s, 1, 1, 1);
        same(families[i], &r, &plain);
        engine_free(&r);
        engine_free(&plain);
        for (int k = 0; k < STEPS; k++) CHECK(one.eval[k].targets == values);
        CHECK(one.eval[1].loss != one.eval[0].loss);
        for (int P = 2; P <= 8; P *= 2) {
            judged_run(&s, P, 1, &more, &r);
            for (int k = 0; k < STEPS; k++)
                CHECK_MSG(more.eval[k].loss == one.eval[k].loss,
                          "family %d on %d ranks: %.17g, %.17g", families[i], P, more.eval[k].loss,
                          one.eval[k].loss);
            engine_free(&r);
        }
        check_rings_eval(&s, &one);
    }
}

/* ---- a batch, from its definition ------------------------------------------------------------ */

static void *room(int64_t n)
{
    void *p = calloc((size_t)(n > 0 ? n : 1), 4);
    if (!p) abort();
    return p;
}

struct counted {
    int clean, mute;
};

/* Checks the conditions in the batch of a sample. They must be the sample's caption or no caption,
 * and the sample's class or the class that means no class. */
static void check_told(const struct flow_source *s, const struct flow_item *x,
                       const struct batch_latents *l, struct counted *c)
{
    const struct model_shape *m = &s->spec->model.shape;
    const int which = (int)x->sample.label;
    const struct latents_made *made = &latents_usual[which];
    CHECK(l->height == (double)made->height && l->width == (double)made->width && l->fps == 24);
    if (shape_of_noise(m))
        CHECK(l->t == x->draw.t && l->t >= 0 && l->t < 1000 && l->t == floor(l->t));
    else
        CHECK(l->t == 1000 * x->draw.t && l->t > 0 && l->t < 1000);
    CHECK(l->dropped == x->draw.no_caption);
    CHECK(l->n_text == (m->caption_channels ? made->L : 0));
    if (m->type_vocab) CHECK(l->label == (l->dropped ? LATENTS_USUAL : which));
    for (int64_t i = 0; i < l->n_text && !l->dropped; i++)
        for (int64_t k = 0; k < 6; k++)
            CHECK(l->text[i * 6 + k] == latents_value(which + 100, 0, 0, i, k));
    c->mute += l->dropped;
}

/* Checks the frame of each of a rank's rows, for both kinds of rows. A patch is 2 x 2 in a single
 * frame. */
static void check_batch(const struct flow_source *s, int64_t n, int P, int r, struct counted *c)
{
    struct flow_item x;
    struct batch b = {0};
    struct batch_latents *l = &b.latents;
    struct shard sh;
    struct err e = {0};
    int64_t grid[2];
    CHECK(!flow_item(s, n, &x, &e) && !flow_item_grid(s, n, grid, &e));
    CHECK(grid[1] == x.sample.T);
    CHECK(grid[0] == (x.sample.H + 1) / 2 * ((x.sample.W + 1) / 2));
    CHECK(!shard_init_units(&sh, grid[0], grid[1], P, r, false, &e));
    const int64_t share = (grid[1] + P - 1) / P, alt = share * grid[0], T = sh.T;
    b.group[0] = room(T), b.group[1] = room(alt);
    l->patches = room(T * 8), l->target = room(T * 16), l->weight = room(T * 4);
    l->text = room(3 * 6);
    CHECK_MSG(!flow_batch(s, &sh, n, &b, &e), "%s", e.text);
    for (int64_t i = 0; i < T; i++)
        CHECK(b.group[0][i] == (sh.pos[0] + i < sh.S && flow_clean(&x.draw, i % grid[1])));
    for (int64_t i = 0; i < alt; i++) {
        const int64_t frame = r * share + i / grid[0];
        const bool want = frame < grid[1] && flow_clean(&x.draw, frame);
        CHECK(b.group[1][i] == want);
        c->clean += want;
    }
    CHECK(b.n_tokens == grid[0] * grid[1] && b.sample == n);
    CHECK(b.n_targets == flow_item_targets(s, n, &e));
    check_told(s, &x, l, c);
    free(b.group[0]), free(b.group[1]);
    free(l->patches), free(l->target), free(l->weight), free(l->text);
}

static void test_batch(void)
{
    for (int i = 0; i < FAMILIES; i += 2)
        for (int P = 1; P <= 4; P++) {
            struct job_spec s;
            struct orders o;
            struct counted c = {0};
            spec_of(&s, families[i]);
            orders_open(&o, &s);
            for (int64_t n = 0; n < 20; n++)
                for (int r = 0; r < P; r++) check_batch(&o.source[SET_TRAIN], n, P, r, &c);
            CHECK((c.clean > 0) == !(families[i] & NOISE) && c.mute > 0 && c.mute < 20 * P);
            orders_close(&o);
        }
}

/* Checks that held-out samples have all conditions, have no clean frame, and have diffusion times
 * that differ from those of training samples. */
static void test_held_out(void)
{
    struct job_spec s;
    struct orders o;
    struct err e = {0};
    spec_of(&s, FAMILY_STDIT3);
    s.objective.text_dropout = 1;
    s.objective.frame_mask[2] = 0.55; /* with the other masks, every video has clean frames */
    orders_open(&o, &s);
    for (int64_t n = 0; n < HELD; n++) {
        struct flow_item learnt, held;
        CHECK(!flow_item(&o.source[SET_TRAIN], n, &learnt, &e) && learnt.draw.no_caption);
        CHECK(!flow_item(&o.source[SET_EVAL], n, &held, &e) && !held.draw.no_caption);
        CHECK(held.sample.T == latents_usual[1 + n].T && held.draw.t != learnt.draw.t);
        for (int64_t t = 0; t < held.sample.T; t++) CHECK(!flow_clean(&held.draw, t));
    }
    orders_close(&o);
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
    shape_defaults(&s->model.shape);
    s->kind = JOB_TRAIN;
    s->data.n_train = s->eval.n_data = 1;
    add_source(s, &s->data.train[0], "train");
    add_source(s, &s->eval.data[0], "held");
    struct data *d = data_prepare(s, NULL, roots, 1, parent, NULL, &st, &e)
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
    RUN(test_batch);
    RUN(test_held_out);
    RUN(test_rank_bits);
    RUN(test_rings);
    RUN(test_eval);
    data_close(data);
    file_remove(scratch, NULL);
    return test_done("flow_train");
}
