/* memory.c: compares the planner's memory of a rank with real trainings on CPU ranks. evidence.c
 * lists the values that are read from them. */
#include "api/core/job.h"
#include "tests/lib/engine.h"
#include "tests/paper/report.h"
#include "worker/plan/check.h"
#include "worker/family/family.h"
#include "worker/family/shape.h"

static struct job_spec spec;

struct shape {
    const char *name;
    enum model_family family;
    enum strategy_id strategy;
    enum form_id form;
    int P, dp, zero;
    int64_t S;
    enum recompute_id recompute;
    enum precision_id precision;
    int64_t time_chunk; /* for LASP in time, the number of tokens that a rank has in memory at a
                         * time */
    int group;          /* parallel.zero_group */
    /* the number of stages, and the number of ranks that share every layer; 0 means one */
    int pp, tp;
};

enum { MICRO_BATCHES = 4 }; /* micro-batches of a step on several stages */

static int degree(int n)
{
    return n ? n : 1;
}

/* Fills in a job as a user would submit it. If this version cannot run the job, fails as job_check
 * does. */
static int describe(const struct shape *s, struct err *e)
{
    spec_defaults(&spec);
    shape_defaults(&spec.model.shape);
    spec.kind = JOB_TRAIN;
    struct model_shape *m = &spec.model.shape;
    m->family = s->family;
    m->n_layers = 2, m->width = 64, m->n_heads = 4, m->ffn_width = 176, m->vocab = 258;
    if (s->family == FAMILY_BERT) m->vocab = 260; /* an id is needed that hides a token */
    if (s->time_chunk) m->n_layers = 1, m->width = 32, m->n_heads = 2, m->ffn_width = 32;
    spec.memory.time_chunk = s->time_chunk;
    spec.data.n_train = 1;
    spec_source_defaults(&spec.data.train[0]);
    if (spec_intern(&spec, "/synthetic", 10, &spec.data.train[0].path)) abort();
    spec.data.seq_len = s->S;
    spec.train.steps = 3;
    spec.train.global_batch = s->dp * (s->pp ? MICRO_BATCHES : 1);
    spec.parallel.strategy = s->strategy;
    spec.parallel.form = s->form;
    spec.parallel.sp = s->P;
    spec.parallel.dp = s->dp;
    spec.parallel.pp = degree(s->pp);
    spec.parallel.tp = degree(s->tp);
    spec.parallel.zero = s->zero;
    spec.parallel.zero_group = s->group;
    spec.memory.recompute = s->recompute;
    spec.precision.params = s->precision;
    return family_check(&spec, e);
}

static void training(const struct shape *s)
{
    struct synth y = {.S = s->S, .doc_len = 0, .vocab = 258};
    char what[160], axes[48] = "";
    struct engine_run r = {.P = s->P,
                           .dp = s->dp,
                           .pp = s->pp,
                           .tp = s->tp,
                           .steps = s->time_chunk ? 2 : 3,
                           .source = {synth_batch, synth_targets, &y}};
    struct evidence *e = evidence_training(&r, &spec);
    if (s->pp || s->tp)
        snprintf(axes, sizeof axes, " x pp %d x tp %d", degree(s->pp), degree(s->tp));
    snprintf(what, sizeof what, "%s: S %lld, sp %d x dp %d%s, bytes placed", s->name,
             (long long)s->S, s->P, s->dp, axes);
    const struct row row = {
        .what = what, .claimed = (double)evidence_planned(e), .note = evidence_note(e)};
    report_number(&row, &e, 1, NULL);
    evidence_free(e);
}

static const struct shape shapes[] = {
    {"decoder, one rank", FAMILY_LLAMA, STRATEGY_LOCAL, FORM_AUTO, 1, 1, 0, 512, RECOMPUTE_NONE,
     PRECISION_FP32},
    {"decoder, blockwise ring", FAMILY_LLAMA, STRATEGY_RSA, FORM_BLOCKWISE, 2, 1, 1, 512,
     RECOMPUTE_NONE, PRECISION_FP32},
    {"decoder, blockwise ring", FAMILY_LLAMA, STRATEGY_RSA, FORM_BLOCKWISE, 4, 1, 1, 1000,
     RECOMPUTE_SELECTIVE, PRECISION_FP32},
    {"decoder, blockwise ring, all recomputed", FAMILY_LLAMA, STRATEGY_RSA, FORM_BLOCKWISE, 3, 1, 2,
     1000, RECOMPUTE_FULL, PRECISION_FP32},
    {"decoder, blockwise rings, bf16", FAMILY_LLAMA, STRATEGY_RSA, FORM_BLOCKWISE, 2, 2, 3, 512,
     RECOMPUTE_SELECTIVE, PRECISION_BF16},
    {"decoder, RSA as published", FAMILY_LLAMA, STRATEGY_RSA, FORM_TWO_PASS, 4, 1, 1, 512,
     RECOMPUTE_NONE, PRECISION_FP32},
    {"decoder, Ulysses", FAMILY_LLAMA, STRATEGY_ULYSSES, FORM_AUTO, 4, 1, 1, 512, RECOMPUTE_NONE,
     PRECISION_FP32},
    {"decoder, Ulysses x ring", FAMILY_LLAMA, STRATEGY_USP, FORM_AUTO, 4, 1, 1, 512, RECOMPUTE_NONE,
     PRECISION_FP32},
    {"decoder, 3D: data, pipeline and sequence", FAMILY_LLAMA, STRATEGY_RSA, FORM_BLOCKWISE, 2, 2,
     1, 512, RECOMPUTE_SELECTIVE, PRECISION_FP32, .pp = 2},
    {"decoder, 3D: data, tensor and sequence", FAMILY_LLAMA, STRATEGY_RSA, FORM_BLOCKWISE, 2, 2, 1,
     512, RECOMPUTE_SELECTIVE, PRECISION_FP32, .tp = 2},
    {"decoder, 4D: data, pipeline, tensor and sequence", FAMILY_LLAMA, STRATEGY_RSA, FORM_BLOCKWISE,
     2, 2, 1, 512, RECOMPUTE_SELECTIVE, PRECISION_FP32, .pp = 2, .tp = 2},
    {"BERT, 3D, RSA as published", FAMILY_BERT, STRATEGY_RSA, FORM_TWO_PASS, 2, 2, 1, 512,
     RECOMPUTE_NONE, PRECISION_FP32, .pp = 2},
    {"BERT, 4D, RSA as published", FAMILY_BERT, STRATEGY_RSA, FORM_TWO_PASS, 2, 2, 1, 512,
     RECOMPUTE_NONE, PRECISION_FP32, .pp = 2, .tp = 2},
    {"TNL, LASP", FAMILY_TNL, STRATEGY_LASP, FORM_AUTO, 4, 1, 1, 1000, RECOMPUTE_NONE,
     PRECISION_FP32},
    {"TNL, LASP, all recomputed", FAMILY_TNL, STRATEGY_LASP, FORM_AUTO, 2, 1, 2, 1000,
     RECOMPUTE_FULL, PRECISION_FP32},
    {"TNL, LASP, DDP", FAMILY_TNL, STRATEGY_LASP, FORM_AUTO, 2, 2, 0, 512, RECOMPUTE_NONE,
     PRECISION_FP32},
    {"TNL, LASP, ZeRO 1", FAMILY_TNL, STRATEGY_LASP, FORM_AUTO, 2, 2, 1, 512, RECOMPUTE_NONE,
     PRECISION_FP32},
    {"TNL, LASP, ZeRO 2", FAMILY_TNL, STRATEGY_LASP, FORM_AUTO, 2, 2, 2, 512, RECOMPUTE_NONE,
     PRECISION_FP32},
    {"TNL, LASP, ZeRO 3 (FSDP)", FAMILY_TNL, STRATEGY_LASP, FORM_AUTO, 2, 2, 3, 512, RECOMPUTE_NONE,
     PRECISION_FP32},
    {"TNL, LASP, ZeRO 3 in groups of 2", FAMILY_TNL, STRATEGY_LASP, FORM_AUTO, 2, 2, 3, 512,
     RECOMPUTE_NONE, PRECISION_FP32, .group = 2},
    {"TNL, LASP in time, 1024 tokens at once", FAMILY_TNL, STRATEGY_LASP, FORM_AUTO, 2, 1, 0, 32768,
     RECOMPUTE_NONE, PRECISION_FP32, 1024},
    {"TNL, LASP in time, 8192 tokens at once", FAMILY_TNL, STRATEGY_LASP, FORM_AUTO, 2, 1, 0,
     4194304, RECOMPUTE_NONE, PRECISION_FP32, 8192},
};
#define N_SHAPES ((int)(sizeof shapes / sizeof *shapes))

void paper_memory(void)
{
    struct err refused[N_SHAPES] = {{0}};
    report_section("Plan and high-water of real trainings",
                   "Small models, two or three optimizer steps on CPU ranks, by each axis of the "
                   "product and by products of them; a pipeline has four micro-batches a ring. "
                   "Claimed is what the "
                   "planner says; counted is where the model's own code ended placing its buffers. "
                   "A row is broken, too, where the bytes that a step sent differ from the plan, "
                   "where the heap grew after the first step, or where more pages were touched "
                   "than planned. The arena lies between two guard pages. Fewer pages are touched "
                   "where a buffer has room for the largest case of any job, such as the scratch "
                   "of the kernels.");
    report_table();
    const bool quick = getenv("SEQD_PAPER_QUICK") != NULL; /* make check */
    for (int i = 0; i < N_SHAPES; i++)
        if (!(quick && shapes[i].S > 1 << 20) && !describe(&shapes[i], &refused[i]))
            training(&shapes[i]);
    for (int i = 0; i < N_SHAPES; i++)
        if (refused[i].code) report_absent(shapes[i].name, refused[i].text);
}
