/* Checks the ledger of every kind of job, for every way to divide the job among ranks. Heads, rows
 * and places cannot be divided evenly. The reported ledger must be "equal". If one rank does not
 * count the messages of a purpose, the ledger must be "differs". */
/* Not under sanitizers: the tests of each kind of job run the same code. */
#include "api/core/log.h"
#include "tests/lib/engine.h"
#include "tests/lib/reading.h"
#include "tests/lib/verify.h"
#include "worker/comm/endpoint.h"
#include "worker/data/flow_batch.h"
#include "worker/plan/check.h"
#include "worker/plan/volume.h"
#include "worker/infer/embed.h"
#include "worker/train/eval.h"
#include "worker/infer/flow_generate.h"
#include "worker/infer/score.h"

/* No 2 P divides these numbers of rows. */
enum { SEQ = 75, LONGEST = 141, STEPS = 2, WINDOWS = 5 };

enum run_kind { TRAIN, EVAL, VERIFY, SCORE, EMBED, GENERATE, RUN_KINDS };
static const char *const kind_names[RUN_KINDS] = {"train", "eval",  "verify",
                                                  "score", "embed", "generate"};

struct job {
    enum run_kind kind;
    const struct way *way;
    int sp, dp, pp, zero, group; /* pp 0 means 1; zero_group 0 means all */
    struct trial t;              /* a trial; it has the job's spec and the id of its data */
    char dir[128];
    uint32_t hidden; /* the purposes that are hidden on the last rank */
    /* Results. `equal` tells whether rank 0 found the ledgers equal. n_hidden is the number of
     * compared messages that the last rank has not counted. */
    bool equal;
    int64_t n_hidden;
};

static bool diffusion(const struct job *j)
{
    return j->way->strategy == STRATEGY_DSP;
}

/* ---- trainings ------------------------------------------------------------------------------- */

struct feed {
    const struct data *d;
    struct data_order *o;
    struct flow_source flow;
};

static struct train_source source_of(const struct job *j, struct feed *f, bool eval)
{
    if (!diffusion(j)) return train_source_order(f->o);
    f->flow = (struct flow_source){f->d, f->o, &j->t.spec, eval};
    return train_source_latents(&f->flow);
}

static int feed_open(struct feed *f, const struct job *j, const struct data *d, bool eval,
                     struct err *e)
{
    const struct job_spec *s = &j->t.spec;
    struct order_options o = diffusion(j) ? latents_order_options(s, SET_TRAIN)
                                          : data_order_options(s, SET_TRAIN, SEQ);
    if (eval) o.reach = false; /* as for the eval set */
    *f = (struct feed){.d = d, .o = data_order_open(d, &o, e)};
    return f->o ? 0 : -1;
}

/* Evaluates on held-out windows. No two rings have the same number of windows. The result of
 * comparing the last sum is sent with a sum of the next step. */
static int evaluate(struct job *j, struct train *t, struct feed *f, bool *equal, struct err *e)
{
    struct ledger *l = &comm_base(t->model.world)->ledger;
    struct comm_count want[PURPOSE_N];
    struct eval out;
    const struct plan_eval v = {t->plan->S, WINDOWS};
    const struct eval_args a = {
        .source = source_of(j, f, true), .n_windows = WINDOWS, .seq_len = SEQ, .want = want};
    const int rank = comm_rank(t->model.world);
    if (plan_eval_comm(&j->t.spec.model.shape, t->plan, rank, &v, want, e)) return -1;
    if (rank == t->plan->n_ranks - 1) l->hidden = j->hidden;
    if (eval_run(t, &a, &out, e)) return -1;
    l->hidden = 0;
    *equal &= out.ledger_equal;
    return 0;
}

static int steps(struct job *j, struct train *t, struct feed *eval, struct err *e)
{
    struct rank_step out;
    bool equal = true;
    for (int k = 0; k < STEPS; k++) {
        if (train_step(t, &out, e)) return -1;
        equal &= out.ledger_ok != 0;
        if (j->kind == EVAL && k == 0 && evaluate(j, t, eval, &equal, e)) return -1;
    }
    if (comm_rank(t->model.world) == 0) j->equal = equal;
    return 0;
}

static int learn(struct job *j, struct comm *c, const struct data *d, struct err *e)
{
    static _Thread_local struct plan plan;
    struct train *t = calloc(1, sizeof *t);
    struct feed feed, eval;
    if (!t || feed_open(&feed, j, d, false, e) || feed_open(&eval, j, d, true, e) ||
        plan_make(&j->t.spec, 0, &plan, e))
        return -1;
    struct engine_memory mem = engine_open(&j->t.spec, &plan, NULL);
    const struct train_options options = {.spec = &j->t.spec,
                                          .plan = &plan,
                                          .arena = mem.arena,
                                          .segment = comm_segment(c),
                                          .be = mem.be,
                                          .comm = c,
                                          .rank = comm_rank(c),
                                          .n_ranks = plan.n_ranks,
                                          .source = source_of(j, &feed, false)};
    int rc = train_init(t, &options, e);
    if (!rc) sharded_random(&t->state, j->t.spec.seed);
    if (!rc) rc = steps(j, t, &eval, e);
    engine_close(&mem, &plan);
    data_order_close(feed.o);
    data_order_close(eval.o);
    free(t);
    return rc;
}

/* ---- all other kinds of jobs ----------------------------------------------------------------- */

static int prove(struct job *j, struct tiny_rank *r, const struct data *d, bool *equal,
                 struct err *e)
{
    struct verify v = {0};
    const struct verify_args a = {.spec = &j->t.spec, .model = &r->model, .data = d};
    if (verify_run(&a, &v, e)) return -1;
    *equal = v.ledger_equal;
    verify_fini(&v);
    return 0;
}

static int sample(struct job *j, const struct infer *in, bool *equal, struct err *e)
{
    const char *const roots[] = {scratch};
    struct flow_generate *g = calloc(1, sizeof *g);
    const bool first = in->model->rank == 0;
    int rc = first ? flow_generate_open(g, &j->t.spec, roots, 1, e) : 0;
    if (!rc) rc = flow_generate_run(g, in, e);
    CHECK(rc || !first || (g->n_samples == 2 && !g->n_refused));
    *equal = g->ledger_equal;
    flow_generate_close(g);
    free(g);
    return rc;
}

static int write_text(struct job *j, const struct infer *in, bool *equal, struct err *e)
{
    const char *const roots[] = {scratch};
    struct prompts p = {0};
    struct infer_text out = {0};
    if (prompts_read(&p, &j->t.spec, roots, 1, e)) return -1;
    const int rc = infer_generate(in, &p, &out, e);
    *equal = out.ledger_equal;
    infer_text_fini(&out);
    prompts_fini(&p);
    return rc;
}

static int infer(struct job *j, struct tiny_rank *r, const struct data *d, bool *equal,
                 struct err *e)
{
    const struct infer in = {.model = &r->model, .spec = &j->t.spec, .job_dir = j->dir};
    struct score score = {0};
    struct embed embed = {0};
    int rc;
    switch (j->kind) {
    case SCORE: rc = score_run(&in, d, &score, e), *equal = score.ledger_equal; break;
    case EMBED: rc = embed_run(&in, d, &embed, e), *equal = embed.ledger_equal; break;
    default: rc = diffusion(j) ? sample(j, &in, equal, e) : write_text(j, &in, equal, e);
    }
    return rc;
}

static void body(struct ranks *g, int rank, void *arg)
{
    struct job *j = arg;
    struct err e = {0};
    struct tiny_rank *r = calloc(1, sizeof *r);
    struct data *d = j->kind == GENERATE ? NULL : data_open(scratch, j->t.id, DATA_TRUST, &e);
    bool equal = false;
    int rc = d || j->kind == GENERATE ? 0 : -1;
    if (!rc && j->kind <= EVAL) {
        rc = learn(j, g->comm[rank], d, &e);
    } else if (!rc) {
        rc = tiny_open(r, &j->t.spec, g, rank, &e);
        if (!rc) rc = j->kind == VERIFY ? prove(j, r, d, &equal, &e) : infer(j, r, d, &equal, &e);
        if (rank == 0) j->equal = equal;
        tiny_close(r);
    }
    if (rc) ranks_fail(g, rank, &e);
    data_close(d);
    free(r);
}

/* ---- a job ----------------------------------------------------------------------------------- */

static void set_input(struct job *j)
{
    struct job_spec *s = &j->t.spec;
    char path[128];
    s->data.n_train = 0;
    s->data.seq_len = j->kind == EMBED ? LONGEST : SEQ;
    snprintf(path, sizeof path, "%s/%s", scratch, diffusion(j) ? "requests.jsonl" : "docs.jsonl");
    if (j->kind == GENERATE && !diffusion(j)) {
        s->input.prompt = tiny_text(s, "forty-one bytes, which is a prime number.");
        s->sampling.max_tokens = 5;
        s->sampling.ignore_eos = 1;
        s->sampling.temperature = 1;
        s->sampling.n = 2;
        return;
    }
    s->input.source.format = DATA_JSONL;
    s->input.source.path = tiny_text(s, path);
    if (diffusion(j)) {
        s->data.seq_len = 0;
        s->sampling.steps = 2;
        s->sampling.guidance = 3;
    } else {
        s->input.source.text_key = tiny_text(s, "text");
        s->score.stride = 50;
    }
}

static void set_spec(struct job *j)
{
    static const enum job_kind kinds[RUN_KINDS] = {JOB_TRAIN, JOB_TRAIN, JOB_VERIFY,
                                                   JOB_SCORE, JOB_EMBED, JOB_GENERATE};
    struct job_spec *s = &j->t.spec;
    struct err e = {0};
    trial_set(&j->t, j->way, j->sp, SEQ, PRECISION_FP32);
    s->kind = kinds[j->kind];
    s->resources.ranks = j->sp * j->dp * (j->pp ? j->pp : 1);
    s->parallel.sp = j->sp;
    s->parallel.pp = j->pp;
    s->parallel.dp = j->dp;
    if (j->kind <= EVAL) {
        s->train.steps = STEPS;
        s->train.global_batch = 2 * j->dp;
        s->parallel.zero = j->zero;
        s->parallel.zero_group = j->group;
        s->optim.lr = 1e-3;
        if (!diffusion(j)) s->data.seq_len = SEQ;
    }
    if (j->kind >= SCORE) set_input(j);
    snprintf(j->dir, sizeof j->dir, "%s/job", scratch);
    CHECK_MSG(!file_remove(j->dir, &e), "%s", e.text);
    if (j->kind == SCORE || j->kind == EMBED) reading_prepare(s, scratch, j->t.id);
    CHECK_MSG(!family_check(s, &e), "%s of %s: %s: %s", kind_names[j->kind], j->way->name, e.field,
              e.text);
}

static void go(struct job *j)
{
    static struct plan p;
    struct ranks g;
    struct err e = {0};
    CHECK_MSG(!file_remove(j->dir, &e), "%s", e.text);
    CHECK_MSG(!plan_make(&j->t.spec, 0, &p, &e), "%s: %s", j->way->name, e.text);
    ranks_open(&g, p.n_ranks, p.segment_size, NULL);
    struct ledger *last = &comm_base(g.comm[p.n_ranks - 1])->ledger;
    if (j->kind != EVAL) last->hidden = j->hidden;
    ranks_run(&g, body, j);
    ranks_check(&g);
    j->n_hidden = last->n_hidden;
    ranks_close(&g);
}

/* Returns the purposes for which the plan has messages of the last rank. Messages that send a
 * result to rank 0 are in no plan. */
static uint32_t planned(const struct job *j)
{
    static struct plan p;
    struct comm_count c[PURPOSE_N];
    struct err e = {0};
    uint32_t mask = 1u << PURPOSE_CONTROL;
    CHECK(!plan_make(&j->t.spec, 0, &p, &e));
    const struct model_shape *m = &j->t.spec.model.shape;
    const int rank = p.n_ranks - 1;
    const struct plan_eval v = {p.S, WINDOWS};
    if (j->kind == EVAL)
        CHECK(!plan_eval_comm(m, &p, rank, &v, c, &e));
    else
        plan_comm(m, &p, rank, c);
    for (int i = 0; i < PURPOSE_N; i++)
        if (c[i].messages_sent || c[i].messages_received) mask |= 1u << i;
    if (j->kind == GENERATE && !diffusion(j) && plan_decode_comm(m, p.sp, 1).messages_sent)
        mask |= 1u << PURPOSE_DECODE;
    /* The first ring sends the data that are compared. */
    if (j->kind == VERIFY && j->dp == 1) mask |= 1u << PURPOSE_VERIFY;
    return mask;
}

static int n_faults, n_jobs; /* the numbers of faults found in all jobs, and of jobs */

static void check(struct job *j)
{
    set_spec(j);
    const uint32_t moved = planned(j);
    j->hidden = ~moved;
    go(j);
    CHECK_MSG(j->equal, "%s of %s on %d x %d: differs", kind_names[j->kind], j->way->name, j->dp,
              j->sp);
    CHECK_MSG(!j->n_hidden, "%s of %s: %lld messages that are not planned", kind_names[j->kind],
              j->way->name, (long long)j->n_hidden);
    for (int i = 0; i < PURPOSE_N; i++) {
        if (!(moved >> i & 1) || small_leaves(i + n_jobs, 2)) continue;
        j->hidden = 1u << i;
        go(j);
        CHECK_MSG(j->n_hidden > 0 && !j->equal, "%s of %s on %d x %d: %lld messages of %s missed",
                  kind_names[j->kind], j->way->name, j->dp, j->sp, (long long)j->n_hidden,
                  purpose_name(i));
        n_faults++;
    }
    n_jobs++;
}

/* ---- all of them ----------------------------------------------------------------------------- */

#define DECODER (1 << TRAIN | 1 << EVAL | 1 << VERIFY | 1 << SCORE | 1 << EMBED | 1 << GENERATE)
#define MASKED  (1 << TRAIN | 1 << EVAL | 1 << VERIFY | 1 << EMBED)
#define LATENTS (1 << TRAIN | 1 << EVAL | 1 << VERIFY | 1 << GENERATE)

static void run_in(int way, int sp, int dp, int zero, int group, unsigned kinds)
{
    static struct job j;
    for (int k = 0; k < RUN_KINDS; k++) {
        if (!(kinds >> k & 1)) continue;
        j = (struct job){
            .kind = (enum run_kind)k, .way = &ways[way], .sp = sp, .dp = dp, .zero = zero};
        j.group = group;
        check(&j);
    }
}

static void run(int way, int sp, int dp, int zero, unsigned kinds)
{
    run_in(way, sp, dp, zero, 0, kinds);
}

/* Checks attention. 4 ranks have 2, 2, 1 and 1 of 6 heads. */
static void test_attention(void)
{
    run(WAY_ULYSSES, 4, 1, 1, DECODER);
    run(WAY_ZIGZAG, 3, 1, 1, DECODER);
    run(WAY_BERT_RSA, 3, 1, 1, MASKED);
    run(WAY_BOTH_WAYS, 4, 1, 1, MASKED);
    run(WAY_BOTH_WAYS_GATHER, 3, 1, 1, MASKED);
    run(WAY_GATHER, 3, 1, 1, 1 << TRAIN | 1 << EVAL | 1 << SCORE);
    run(WAY_TWO_PASS, 3, 1, 1, 1 << TRAIN | 1 << SCORE);
    run(WAY_SCATTER, 3, 1, 1, 1 << TRAIN | 1 << VERIFY);
}

static void test_states(void)
{
    run(WAY_TNL_RING, 4, 1, 1, DECODER);
    run(WAY_MINIMAX_RING, 4, 1, 1, DECODER);
    run(WAY_TNL_GATHER, 4, 1, 1, 1 << TRAIN | 1 << SCORE | 1 << GENERATE);
    run(WAY_TNL_SCAN, 4, 1, 1, 1 << EVAL | 1 << EMBED | 1 << GENERATE);
}

static void test_switches(void)
{
    run(WAY_LATTE, 4, 1, 1, LATENTS);
    /* generate is left out, because requests to this model need captions */
    run(WAY_STDIT3, 3, 1, 1, LATENTS & ~(1u << GENERATE));
}

/* Checks data-parallel rings, and weights that are gathered when they are needed. */
static void test_rings(void)
{
    run(WAY_ULYSSES, 4, 2, 3, 1 << TRAIN | 1 << EVAL);
    run(WAY_TNL_RING, 3, 2, 2, 1 << TRAIN | 1 << EVAL);
    run(WAY_LATTE, 3, 2, 1, 1 << TRAIN | 1 << EVAL);
    /* A group contains ranks of two rings. */
    run_in(WAY_ULYSSES, 2, 3, 3, 3, 1 << TRAIN | 1 << EVAL);
    run_in(WAY_TNL_RING, 4, 2, 3, 2, 1 << TRAIN | 1 << EVAL);
}

/* Checks samples that are sent between stages, and logits and gradients that are sent to rank
 * 0. */
static void test_stages(void)
{
    static const struct {
        int way, sp, dp;
    } some[] = {{WAY_ULYSSES, 3, 1}, {WAY_BERT_RSA, 3, 2}, {WAY_TNL_RING, 4, 1}};
    static struct job j;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        j = (struct job){.kind = VERIFY, .way = &ways[some[i].way], .pp = 2};
        j.sp = some[i].sp;
        j.dp = some[i].dp;
        check(&j);
    }
}

static void write_requests(void)
{
    static const char text[] = "{\"custom_id\":\"a\",\"label\":1,\"height\":48,\"width\":64,"
                               "\"num_frames\":5}\n{\"custom_id\":\"b\",\"label\":2,\"height\":40,"
                               "\"width\":24,\"num_frames\":3}\n";
    char path[128];
    struct err e = {0};
    snprintf(path, sizeof path, "%s/requests.jsonl", scratch);
    CHECK_MSG(!file_write(path, text, sizeof text - 1, &e), "%s", e.text);
}

int main(void)
{
    struct err e = {0};
    setenv("SEQD_LOG", "error", 0);
    log_init("test_ledger");
    snprintf(scratch, sizeof scratch, "/tmp/test_ledger.XXXXXX");
    if (!mkdtemp(scratch)) return 1;
    write_docs();
    write_requests();
    RUN(test_attention);
    RUN(test_states);
    RUN(test_switches);
    RUN(test_rings);
    RUN(test_stages);
    CHECK(n_faults > (small_tests() && !SANITIZED ? 50 : 100));
    if (file_remove(scratch, &e)) printf("  %s\n", e.text);
    return test_done("ledger");
}
