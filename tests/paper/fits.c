/* fits.c: claims about the longest sequence, by what the planner fits into a device. */
#include <stdlib.h>
#include "api/core/job.h"
#include "tests/paper/report.h"
#include "worker/family/family.h"
#include "worker/family/shape.h"
#include "worker/plan/check.h"

#define GIB     1073741824.0
#define DEVICE  (80 * GIB) /* bytes of an A100-80 */
#define LONGEST 4194304    /* tokens */

enum { DEVICES = 64, NODE = 8, HEADS = 16, LENGTHS = 7 };

/* A training in bf16 that recomputes nothing, with state sharded over all ranks. */
static void describe(struct job_spec *s, enum model_family family, int64_t S, int sp, int dp)
{
    struct model_shape *m = &s->model.shape;
    spec_defaults(s);
    shape_defaults(m);
    m->family = family;
    m->n_layers = 16, m->width = 2048, m->n_heads = HEADS, m->ffn_width = 5632, m->vocab = 64000;
    m->max_pos = S;
    s->data.n_train = 1;
    spec_source_defaults(&s->data.train[0]);
    s->data.train[0].format = DATA_NPY; /* ids: no tokenizer */
    if (spec_intern(s, "/synthetic", 10, &s->data.train[0].path)) abort();
    s->data.seq_len = S;
    s->train.steps = 1;
    s->train.global_batch = dp;
    s->parallel.sp = sp;
    s->parallel.dp = dp;
    s->parallel.zero = 3;
    s->precision.params = PRECISION_BF16;
    s->memory.recompute = RECOMPUTE_NONE;
    s->memory.mlp_chunk_tokens = 0;
}

static double gib(const int64_t v[], int n)
{
    return (double)v[0] / GIB;
}

/* The plan of *s in a row of its own, or why there is none. */
static void one_plan(const struct row *row, struct job_spec *s)
{
    struct err e = {0};
    struct evidence *plan = family_check(s, &e) ? NULL : evidence_plan(s, &e);
    if (plan)
        report_number(row, &plan, 1, gib);
    else
        report_absent(row->what, e.text);
    evidence_free(plan);
}

/* v: LENGTHS of LASP, then of the other, each twice as long as the one before. */
static double longest(const int64_t v[], int n)
{
    double ratio = 1;
    for (int i = 0; i < n; i++)
        if ((double)v[i] <= DEVICE) ratio *= i < n / 2 ? 2 : 0.5;
    return ratio;
}

/* What LASP is compared with, on a softmax model of the same sizes: `way` shares a sequence of S
 * tokens between some of the devices; the others take other sequences. */
struct rival {
    struct row row;
    void (*way)(struct job_spec *s, int64_t S);
};

/* No more ranks for a sequence than heads. */
static void by_ulysses(struct job_spec *s, int64_t S)
{
    describe(s, FAMILY_LLAMA, S, HEADS, DEVICES / HEADS);
    s->parallel.strategy = STRATEGY_ULYSSES;
}

static void by_tensor(struct job_spec *s, int64_t S, int tp)
{
    describe(s, FAMILY_LLAMA, S, 1, DEVICES / tp);
    s->parallel.tp = tp;
}

static void by_node(struct job_spec *s, int64_t S)
{
    by_tensor(s, S, NODE);
}

static void by_heads(struct job_spec *s, int64_t S)
{
    by_tensor(s, S, HEADS);
}

static const struct rival rivals[] = {
    {{.what = "1 B on 64 devices of 80 GiB: the longest sequence of LASP to that of Ulysses",
      .source = "2404.02882, figure",
      .claimed = 4,
      .claimed_text = "2048K to 512K",
      .note = "powers of two; Ulysses on a softmax model of the same sizes, 16 heads"},
     by_ulysses},
    {{.what = "the same to that of Megatron with sequence-parallel norms, parallel.tp 8",
      .source = "2404.02882, abstract",
      .claimed = 8,
      .claimed_text = "8 times: 2048K to 256K",
      .note = "the degree is not published: tensor parallelism within a node of 8 devices, as is "
              "usual; softmax as above"},
     by_node},
    {{.what = "the same, parallel.tp 16",
      .source = "2404.02882, abstract",
      .claimed = 4,
      .claimed_text = "8 times: 2048K to 256K",
      .differs = "4 times where tensor parallelism spans two such nodes, as many ranks as heads"},
     by_heads},
};

static void against(const struct rival *r, struct job_spec *s)
{
    struct evidence *plan[2 * LENGTHS];
    struct err e = {0};
    int n = 0;
    for (; n < 2 * LENGTHS; n++) {
        const int64_t S = (int64_t)LONGEST >> (LENGTHS - 2) << n % LENGTHS;
        if (n < LENGTHS)
            describe(s, FAMILY_TNL, S, DEVICES, 1);
        else
            r->way(s, S);
        if (family_check(s, &e) || !(plan[n] = evidence_plan(s, &e))) break;
    }
    if (n == 2 * LENGTHS)
        report_number(&r->row, plan, n, longest);
    else
        report_absent(r->row.what, e.text);
    while (n > 0) evidence_free(plan[--n]);
}

static void bert_large(struct job_spec *s)
{
    struct model_shape *m = &s->model.shape;
    const struct row row = {
        .what = "BERT-Large, 114,688 tokens on 32 devices of 16 GiB: GiB a device",
        .source = "2105.13120, text",
        .claimed = 16,
        .most = true,
        .claimed_text = "114K on 32 P100",
        .differs = "whole attention in blocks, of which no scores are stored, in the place of "
                   "Linformer's; fp32, zero 3"};
    describe(s, FAMILY_BERT, 114688, 32, 1);
    s->precision.params = PRECISION_FP32;
    m->n_layers = 24, m->width = 1024, m->n_heads = 16, m->ffn_width = 4096, m->vocab = 30522;
    one_plan(&row, s);
}

void paper_fits(void)
{
    static struct job_spec s;
    const struct row far = {.what = "TNL-1B, 4096K tokens on 64 devices of 80 GiB: GiB a device",
                            .source = "2404.02882, abstract",
                            .claimed = 80,
                            .most = true,
                            .claimed_text = "4096K on 128 A100-80",
                            .note = "half the devices; bf16, zero 3, nothing recomputed"};
    report_section("The longest sequences, planned",
                   "What the planner says that a rank holds, on the number of devices that is "
                   "named. Nothing ran: the product takes at most 64 ranks.");
    report_table();
    describe(&s, FAMILY_TNL, LONGEST, DEVICES, 1);
    one_plan(&far, &s);
    for (size_t i = 0; i < sizeof rivals / sizeof *rivals; i++) against(&rivals[i], &s);
    bert_large(&s);
}
