/* rsa.c: the tables and claims of Ring Self-Attention. They are compared with an account of the
 * memory of the authors' system and of the systems with which the authors compare it
 * (tests/paper/published.h). They are also compared with the product's plan for this model on this
 * number of stages. */
#include <stdlib.h>
#include <string.h>
#include "api/core/job.h"
#include "tests/paper/report.h"
#include "worker/plan/check.h"
#include "worker/family/family.h"
#include "tests/paper/published.h"
#include "worker/family/shape.h"

#define MIB    1048576.0
#define GIB    (1024 * MIB)
#define SOURCE "2105.13120, table 4"
#define TEXT   "2105.13120, text"
#define EDGE   "15.4 bytes a token and column"
#define FITTED "896 MiB a stage, " EDGE

static const struct {
    int64_t P, B, S;
    double tp, tp_rate, rsa, rsa_rate; /* MB and tokens/s as printed; 0 means out of memory */
} table4[] = {
    {1, 64, 512, 8477.28, 9946.15, 8477.53, 9261.04},
    {2, 128, 512, 9520.47, 15510.19, 8478.76, 13938.22},
    {4, 256, 512, 12232.52, 20701.96, 8481.26, 21269.91},
    {8, 512, 512, 0, 0, 8490.75, 26401.64},
    {1, 64, 256, 3707.39, 9752.61, 3707.01, 9340.13},
    {2, 64, 512, 4993.43, 14195.17, 4670.64, 13144.16},
    {4, 64, 1024, 8175.93, 19879.27, 6601.88, 18243.82},
    {8, 64, 2048, 14862.09, 22330.5, 10536.38, 21625.51},
};
#define N_ROWS ((int)(sizeof table4 / sizeof *table4))

static double cell(enum published_system s, int i)
{
    const struct published_case c = {.system = s,
                                     .P = table4[i].P,
                                     .B = table4[i].B,
                                     .S = table4[i].S,
                                     .n_layers = 3,
                                     .width = 1024,
                                     .n_heads = 16,
                                     .weights = PUBLISHED_STAGE,
                                     .edge = PUBLISHED_EDGE};
    return published_peak(&c) / MIB;
}

/* Writes the name of a cell. `how` describes the meaning of the cell, or is "". */
static void name_cell(bool tp, int i, const char *how, char what[96])
{
    snprintf(what, 96, "%s, P %lld, B %lld, S %lld: %sMiB per device",
             tp ? "tensor parallel" : "RSA", (long long)table4[i].P, (long long)table4[i].B,
             (long long)table4[i].S, how);
}

static void memory_cell(enum published_system s, int i)
{
    const double printed = s == PUBLISHED_TP ? table4[i].tp : table4[i].rsa;
    char what[96], claimed[32];
    struct row row = {.what = what,
                      .source = SOURCE,
                      .claimed = printed,
                      .claimed_text = claimed,
                      .tolerance = 0.005};
    snprintf(claimed, sizeof claimed, "%.2f", printed);
    name_cell(s == PUBLISHED_TP, i, "", what);
    if (printed == 0) {
        row.claimed = 16 * 1024, row.tolerance = 0, row.above = true;
        row.claimed_text = "16384 (out of memory)";
    }
    report_account(&row, cell(s, i), FITTED);
}

/* ---- the planner ----------------------------------------------------------------------------- */

enum { STAGES = 8 };

/* Fills in a job for a cell of the table. The job trains BERT-Large on the cell's stages, with one
 * of the cell's B sequences in each micro-batch. If this version cannot run the job, fails as
 * job_check does. */
static int cell_job(struct job_spec *s, bool tp, int i, struct err *e)
{
    spec_defaults(s);
    shape_defaults(&s->model.shape);
    s->kind = JOB_TRAIN;
    struct model_shape *m = &s->model.shape;
    m->family = FAMILY_BERT;
    m->n_layers = 24, m->width = 1024, m->n_heads = 16, m->ffn_width = 4096, m->vocab = 30592;
    m->max_pos = 2048;
    s->data.n_train = 1;
    spec_source_defaults(&s->data.train[0]);
    s->data.train[0].format = DATA_NPY; /* the source has token ids, so no tokenizer is needed */
    if (spec_intern(s, "/synthetic", 10, &s->data.train[0].path)) abort();
    s->data.seq_len = table4[i].S;
    s->train.steps = 1;
    s->train.global_batch = table4[i].B;
    s->parallel.pp = STAGES;
    s->parallel.sp = tp ? 1 : (int32_t)table4[i].P;
    s->parallel.tp = tp ? (int32_t)table4[i].P : 1;
    s->parallel.dp = 1;
    if (!tp) s->parallel.strategy = STRATEGY_RSA, s->parallel.form = FORM_TWO_PASS;
    s->parallel.zero = 0;
    s->memory.recompute = RECOMPUTE_NONE;
    s->memory.mlp_chunk_tokens = 0;
    return family_check(s, e);
}

static struct evidence *cell_plan(bool tp, int i, struct err *e)
{
    static struct job_spec s;
    return cell_job(&s, tp, i, e) ? NULL : evidence_plan(&s, e);
}

static double mib(const int64_t v[], int n)
{
    return (double)v[0] / MIB;
}

/* Reports the memory of a plan, which must be smaller than the table's number, because a stage
 * keeps the activations of only a few of the B sequences. */
static void planned_cell(bool tp, int i, struct evidence *plan)
{
    const double printed = tp ? table4[i].tp : table4[i].rsa;
    char what[96], claimed[48];
    const struct row row = {
        .what = what,
        .source = SOURCE,
        .claimed = printed > 0 ? printed : 16 * 1024,
        .most = true,
        .claimed_text = claimed,
        .differs = "less: one sequence a micro-batch, of which a stage keeps as "
                   "many as there are stages from it on; fp32"};
    snprintf(claimed, sizeof claimed, printed > 0 ? "%.2f" : "more than 16384 (out of memory)",
             printed);
    name_cell(tp, i, "a job on 8 stages, ", what);
    report_number(&row, &plan, 1, mib);
}

/* Returns the growth from 4 to 8 ranks, divided by the growth from 2 to 4 ranks. */
static double growth(const int64_t v[], int n)
{
    return (double)(v[n - 1] - v[n - 2]) / (double)(v[n - 2] - v[n - 3]);
}

static void planned_growth(struct evidence *const last[3])
{
    const struct row row = {
        .what = "RSA, S 256 P, jobs on 8 stages: growth of memory from P 4 to 8, to that from 2 to "
                "4",
        .source = SOURCE,
        .claimed = 2,
        .tolerance = 0.001, /* sizes are multiples of a page */
        .claimed_text = "2.037, from (10536.38 - 6601.88) / (6601.88 - 4670.64)",
        .differs = "twice, as S * S / P says; the printed cells grow 1.9 % more"};
    report_number(&row, last, 3, growth);
}

/* ---- the table ------------------------------------------------------------------------------- */

/* Returns the account for cell i of a system and, if this version can run such a job, its plan. */
static struct evidence *both_of_cell(bool tp, int i, struct err *refused)
{
    struct err e = {0};
    struct evidence *plan = cell_plan(tp, i, &e);
    memory_cell(tp ? PUBLISHED_TP : PUBLISHED_RSA, i);
    if (plan)
        planned_cell(tp, i, plan);
    else if (!refused->code)
        *refused = e;
    return plan;
}

static void cells(void)
{
    FILE *f = report_data("rsa_table4");
    struct err refused[2] = {{0}};
    struct evidence *rsa[N_ROWS];
    report_table();
    for (int i = 0; i < N_ROWS; i++) {
        evidence_free(both_of_cell(true, i, &refused[1]));
        rsa[i] = both_of_cell(false, i, &refused[0]);
        fprintf(f, "\"%lld x %lld x %lld\" %g %g %g %g\n", (long long)table4[i].P,
                (long long)table4[i].B, (long long)table4[i].S, table4[i].tp, cell(PUBLISHED_TP, i),
                table4[i].rsa, cell(PUBLISHED_RSA, i));
    }
    fclose(f);
    /* the sequences have 512 tokens on 2 ranks, 1024 on 4, and 2048 on 8 */
    struct evidence *const *last = rsa + N_ROWS - 3;
    if (last[0] && last[1] && last[2]) planned_growth(last);
    for (int tp = 1; tp >= 0; tp--)
        if (refused[tp].code)
            report_absent(tp ? "plans of some of these cells, tensor parallel"
                             : "plans of some of these cells, RSA",
                          refused[tp].text);
    for (int i = 0; i < N_ROWS; i++) evidence_free(rsa[i]);
    report_picture("rsa_table4", "Memory per device: printed and by the account");
}

static void tables(void)
{
    report_section(
        "RSA: memory of the weak scaling table",
        "BERT-Large over 8 pipeline stages, 3 layers each, 16 bits, one micro-batch. First, an "
        "account of the authors' program, which is not run here: every tensor that a block keeps "
        "for its backward, with its bytes and lifetime: 34 bytes for each token and column and 5 "
        "for each score; tensor parallelism of 2021 keeps 10 of the 34 on every rank. Two "
        "constants are not published and are fitted to this table: 896 MiB of weights, gradients "
        "and optimizer state of a stage, and 15.4 bytes for each token and column beside the "
        "layers. The table prints two decimals, so the tolerance is 0.005 MiB.\n\n"
        "Then what the planner says of the same model as a job of the product: eight stages cut by "
        "work, the head's among it, nothing recomputed, RSA as published, in fp32 as it runs, and "
        "tensor parallelism with sequence-parallel norms. One micro-batch is one sequence: the "
        "table's B are B of them in turn (1F1B), of which a stage keeps at most as many as there "
        "are stages from it on, where the authors' program keeps all B. So these sizes are below "
        "the table's and do not reproduce them; how they grow with the sequence is what S * S / P "
        "scores a head say.");
    cells();
}

/* ---- claims ---------------------------------------------------------------------------------- */

#define LOGITS 4.0 /* bytes for each logit; every claim states this number */

static struct published_case model(enum published_system s, int64_t P, bool large)
{
    struct published_case c = {.system = s,
                               .P = P,
                               .n_layers = large ? 24 : 12,
                               .width = large ? 1024 : 768,
                               .n_heads = large ? 16 : 12,
                               .edge = PUBLISHED_EDGE,
                               .vocab = 30592,
                               .logits = LOGITS};
    c.weights = PUBLISHED_PER_PARAM * published_bert_params(c.n_layers, c.width, 30592);
    return c;
}

static double batch(enum published_system s, int64_t P, bool large)
{
    struct published_case c = model(s, P, large);
    c.S = 512;
    return (double)published_max_batch(c, 15.9 * GIB);
}

static double length(enum published_system s, int64_t P, bool large, int64_t B)
{
    struct published_case c = model(s, P, large);
    c.B = B;
    return (double)published_max_length(c, 15.9 * GIB);
}

/* Reports a ratio. claimed is 0 if no number was published. */
static void ratio(const char *what, double claimed, double tolerance, double ours, const char *note)
{
    const struct row row = {.what = what,
                            .source = claimed > 0 ? TEXT : "-",
                            .claimed = claimed,
                            .tolerance = tolerance,
                            .note = note};
    report_account(&row, ours, EDGE);
}

static void claims(void)
{
    const double rsa64 = batch(PUBLISHED_RSA, 64, false), tp12 = batch(PUBLISHED_TP, 12, false);
    report_section("RSA: the largest batch and the longest sequence",
                   "The same account for 16 GiB devices. Assumed, as nothing was published: 15.9 "
                   "GiB usable, 14 bytes a parameter, and 4 bytes kept for each logit of the head; "
                   "with 0, 6 and 10 bytes the first ratio is 13.0, 11.3 and 10.5.");
    report_table();
    const double tp16 = batch(PUBLISHED_TP, 16, true),
                 tp_long = length(PUBLISHED_TP, 12, false, 64);
    ratio("batch, Base, S 512: RSA on 64 devices to TP on 12", 13.7, 0.05, rsa64 / tp12,
          "5.3 times the devices");
    ratio("the same at 12 devices each", 0, 0, batch(PUBLISHED_RSA, 12, false) / tp12, NULL);
    ratio("RSA on 64 to TP with sequence parallelism (2022) on 12", 0, 0,
          rsa64 / batch(PUBLISHED_TP_SP, 12, false),
          "less than the 5.3 times the devices: no memory advantage a device is left; degrees "
          "beyond the number of heads remain");
    ratio("batch, Large: 16 devices each", 2.7, 0.05, batch(PUBLISHED_RSA, 16, true) / tp16, NULL);
    ratio("batch, Large: RSA on 64 to TP on 16", 10.2, 0.05, batch(PUBLISHED_RSA, 64, true) / tp16,
          NULL);
    ratio("length, Base, B 64: RSA on 64 to TP on 12", 3.0, 0.05,
          length(PUBLISHED_RSA, 64, false, 64) / tp_long, NULL);
    ratio("length, Base, B 64: 16 devices", 1.4, 0.05,
          length(PUBLISHED_RSA, 16, false, 64) / tp_long, "TP cannot use more than its 12 heads");
    ratio("length, Large, B 16: RSA on 64 to TP on 16", 2, 0.5,
          length(PUBLISHED_RSA, 64, true, 16) / length(PUBLISHED_TP, 16, true, 16),
          "the text says \"about 2\"");
    ratio("length, Base, B 64, 64 devices: blockwise ring to RSA", 0, 0,
          length(PUBLISHED_RING, 64, false, 64) / length(PUBLISHED_RSA, 64, false, 64),
          "without stored scores the length no longer enters squared");
    FILE *f = report_data("rsa_length");
    for (int64_t P = 4; P <= 64; P *= 2)
        fprintf(f, "%lld %g %g %g\n", (long long)P, length(PUBLISHED_RSA, P, false, 64),
                length(PUBLISHED_TP_SP, P > 12 ? 12 : P, false, 64),
                length(PUBLISHED_RING, P, false, 64));
    fclose(f);
    report_picture("rsa_length", "Longest sequence, BERT-Base, B 64, 16 GiB devices");
}

void paper_rsa(void)
{
    tables();
    claims();
}
