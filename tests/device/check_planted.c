/* check_planted: runs the kernels that synchronise by hand, on the emulated device, with a few
 * small shapes: products, attention and linear attention. tests/planted.sh runs it on kernels into
 * which it has planted faults.
 *     check_planted [NAME...]   runs these cases, or all of them
 * tests: needs libkernels_emulated.so */
#pragma GCC diagnostic ignored "-Wunused-function"
#include "tests/lib/kern.h"
#include "tests/lib/kern_attn.h"
#include "tests/lib/kern_linear.h"

static void planted_gemm(int64_t M, int64_t N, int64_t K)
{
    struct box a = box_act(M, K, 8), b = box_act(N, K, 8), c = box_new(M, N, 2);
    box_random(a, 1, 1), box_random(b, 2, 1), box_fill(c, NAN);
    struct mat ma = mat_of(a.t), mb = mat_of(b.t), want = mat_new(M, N);
    ref_gemm(ma, false, mb, true, want, false);
    CALL(be, gemm, &(struct gemm_args){a.t, b.t, c.t, false, true, false});
    /* a sum of K products, cut off after each CUT_K of them */
    CHECK(ref_rel_l2(c.t, want) <= ULP * cut_most(act, (double)K) && box_intact(c));
    mat_free(&ma), mat_free(&mb), mat_free(&want);
    box_free(&a), box_free(&b), box_free(&c);
}

static void planted_attn(const struct attn_shape *s)
{
    struct attn_case c = {0};
    attn_prepare(&c, s);
    struct attn_out x = attn_run(be, &c, 0, c.Tq);
    check_attn_half(&c, &x);
    CHECK(lse_close(x.m, c.lse, 1));
    attn_out_free(&x), attn_case_free(&c);
}

static void planted_linear(const struct lin_shape *s)
{
    struct lin_case c = lin_new(s, 8);
    struct lin_ref r = lin_ref(&c);
    struct lin_out x = lin_run(be, &c, s->n, false);
    lin_compare(&c, &x, &r);
    lin_out_free(&x), lin_ref_free(&r), lin_free(&c);
}

/* Rows, columns and terms have parts of tiles, and there are blocks with even and with odd
 * indices. */
static void gemm80(void)
{
    planted_gemm(200, 300, 264);
}

/* With heads of 128, each call has four tiles of keys, and forward with sm90 has two buffers. */
static void attn_both(void)
{
    planted_attn(&(struct attn_shape){140, 600, 2, 1, 64, DOCS, 2, 1, 0});
    planted_attn(&(struct attn_shape){130, 900, 1, 1, 128, CAUSAL, 2, 1, 0});
}

static void linear_both(void)
{
    planted_linear(&(struct lin_shape){270, 1, 128, 128, MANY_DOCS, 0.02, 9});
    planted_linear(&(struct lin_shape){150, 2, 64, 64, FROM_BEFORE, 0.3, 7});
}

static const struct {
    const char *name, *isa;
    void (*check)(void);
} cases[] = {{"gemm80", "sm80", gemm80},
             {"attn80", "sm80", attn_both},
             {"attn90", "sm90", attn_both},
             {"linear80", "sm80", linear_both},
             {"linear90", "sm90", linear_both}};

static bool is_wanted(const char *name, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], name)) return true;
    return argc < 2;
}

int main(int argc, char **argv)
{
    struct err e;
    act = DT_BF16;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (!is_wanted(cases[i].name, argc, argv)) continue;
        be = be_open(
            &(struct be_options){
                .device = "emulated", .isa = cases[i].isa, .n_threads = 1, .scratch_later = true},
            &e);
        if (!be) test_die("%s", e.text);
        twin_open(be);
        twin_give_scratch(be);
        test_run(cases[i].name, cases[i].check);
        twin_take_scratch(be);
        twin_close();
        be_close(be);
    }
    return test_done("check_planted");
}
