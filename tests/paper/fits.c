/* fits.c: compares claims about the longest possible sequence with the sizes for which the planner
 * makes a plan that fits into a device. */
#include <stdlib.h>
#include "api/core/job.h"
#include "tests/paper/report.h"
#include "worker/family/family.h"
#include "worker/family/shape.h"
#include "worker/plan/check.h"

#define GIB     1073741824.0
#define DEVICE  ((int64_t)80 << 30) /* bytes of an A100-80 */
#define LONGEST 4194304             /* tokens */
#define MILLION 1e6

enum { DEVICES = 64, NODE = 8, HEADS = 16 };

/* Describes a training in bf16 that recomputes nothing, with its state sharded over all ranks. */
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
    s->data.train[0].format = DATA_NPY; /* the source has token ids, so no tokenizer is needed */
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

/* Reports the plan of *s in a row of its own, or the reason why there is no plan. */
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

/* Returns LASP's length divided by the rival's length. */
static double longer(const int64_t v[], int n)
{
    return (double)v[0] / (double)v[1];
}

static void by_lasp(struct job_spec *s, int64_t S)
{
    describe(s, FAMILY_TNL, S, DEVICES, 1);
}

/* LASP is compared with a softmax model of the same sizes. `way` divides a sequence of S tokens
 * among some of the devices, while the remaining devices compute other sequences. `claimed` is the
 * paper's number. If `differs` is set, `claimed` is the planner's number instead, with a tolerance
 * of one hundredth, because the sizes of buffers change from version to version. */
struct rival {
    struct row row;
    void (*way)(struct job_spec *s, int64_t S);
};
#define FOUND(ratio) .claimed = (ratio), .tolerance = (ratio) / 100

static void by_ring(struct job_spec *s, int64_t S)
{
    describe(s, FAMILY_LLAMA, S, DEVICES, 1);
    s->parallel.strategy = STRATEGY_RSA;
    s->parallel.form = FORM_BLOCKWISE;
}

/* Limits the ranks of a sequence to the number of heads. */
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
    {{.what = "the longest sequence, 1 B on 64 devices of 80 GiB: LASP to the blockwise ring",
      .source = "2404.02882, abstract",
      FOUND(0.955),
      .claimed_text = "8 times longer than existing methods",
      .differs =
          "not longer: LASP gains time and bytes. It sends states, where the ring sends keys "
          "and values, and its work does not grow with the square of the length"},
     by_ring},
    {{.what = "the same, LASP to Ulysses",
      .source = "2404.02882, figure",
      FOUND(5.06),
      .claimed_text = "4 times: 2048K to 512K",
      .differs = "more: the figure has powers of two alone; 16 heads, so 16 ranks a sequence"},
     by_ulysses},
    {{.what = "the same, LASP to Megatron with sequence-parallel norms, parallel.tp 8",
      .source = "2404.02882, abstract",
      .claimed = 8,
      .tolerance = 0.5,
      .claimed_text = "8 times: 2048K to 256K",
      .note = "the degree is not published: tensor parallelism within a node of 8 devices, as is "
              "usual"},
     by_node},
    {{.what = "the same, parallel.tp 16",
      .source = "2404.02882, abstract",
      FOUND(4.41),
      .claimed_text = "8 times: 2048K to 256K",
      .differs = "less where tensor parallelism spans two such nodes, as many ranks as heads"},
     by_heads},
};

static void against(const struct rival *r, struct evidence *lasp)
{
    struct evidence *const both[] = {lasp, evidence_longest(r->way, DEVICE)};
    struct row row = r->row;
    char note[320];
    snprintf(note, sizeof note, "%.2fM to %.2fM tokens; %s",
             (double)evidence_value(both[0]) / MILLION, (double)evidence_value(both[1]) / MILLION,
             row.differs ? row.differs : row.note);
    *(row.differs ? &row.differs : &row.note) = note;
    report_number(&row, both, 2, longer);
    evidence_free(both[1]);
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
                   "named. Nothing ran: the product takes at most 64 ranks. A longest sequence is "
                   "found by search, to the token. LASP runs a TransNormerLLM, what it is compared "
                   "with a softmax model of the same sizes.");
    report_table();
    by_lasp(&s, LONGEST);
    one_plan(&far, &s);
    struct evidence *lasp = evidence_longest(by_lasp, DEVICE);
    for (size_t i = 0; i < sizeof rivals / sizeof *rivals; i++) against(&rivals[i], lasp);
    evidence_free(lasp);
    bert_large(&s);
}
