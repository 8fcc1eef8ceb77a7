/* kern_merge.h: checks the merging of attention's partial results, as a part of check_kernels. */
#ifndef SEQD_TESTS_KERN_MERGE_H
#define SEQD_TESTS_KERN_MERGE_H

#include "tests/lib/kern.h"

/* Parts of attention: a row of `all` for each part, with o and then lse. */
struct merge {
    int64_t P, rows, H, D;
    struct box all;
};

static struct merge merge_new(int64_t P, int64_t rows, int64_t H, int64_t D)
{
    return (struct merge){P, rows, H, D, box_new(P, rows * H * (D + 1), 3)};
}

static float *merge_o(const struct merge *x, int64_t p, int64_t i, int64_t h)
{
    return box_at(x->all, p, (i * x->H + h) * x->D);
}

static float *merge_lse(const struct merge *x, int64_t p, int64_t i, int64_t h)
{
    return box_at(x->all, p, x->rows * x->H * x->D + h * x->rows + i);
}

/* Runs on device b. */
static struct box merge_run(struct be *b, const struct merge *x)
{
    struct box out = box_act(x->rows, x->H * x->D, x->D % 8 ? 1 : 8);
    CALL(b, attn_merge,
         &(struct attn_merge_args){x->all.t.data, x->P, x->all.t.ld, out.t, x->H, x->D});
    return out;
}

static void merge_reference(const struct merge *x, struct mat want)
{
    for (int64_t i = 0; i < x->rows; i++)
        for (int64_t h = 0; h < x->H; h++) {
            double max = -INFINITY, sum = 0;
            for (int64_t p = 0; p < x->P; p++) max = fmax(max, *merge_lse(x, p, i, h));
            for (int64_t d = 0; d < x->D; d++) MAT(want, i, h * x->D + d) = 0;
            if (max == -INFINITY) continue;
            for (int64_t p = 0; p < x->P; p++) sum += exp(*merge_lse(x, p, i, h) - max);
            for (int64_t p = 0; p < x->P; p++) {
                const double w = exp(*merge_lse(x, p, i, h) - max) / sum;
                for (int64_t d = 0; w > 0 && d < x->D; d++)
                    MAT(want, i, h * x->D + d) += w * merge_o(x, p, i, h)[d];
            }
        }
}

/* Checks a shape. In some heads of some rows, parts have seen no key. Their o is NaN here, because
 * it is not read. Some rows have no part with a key. */
static void check_merge_shape(int64_t P, int64_t rows, int64_t H, int64_t D)
{
    struct merge x = merge_new(P, rows, H, D), one = merge_new(P, 1, H, D);
    struct mat want = mat_new(rows, H * D);
    uint64_t seed = 3;
    box_random(x.all, 1, 2);
    for (int64_t p = 0; p < P; p++)
        for (int64_t i = 0; i < rows; i++)
            for (int64_t h = 0; h < H; h++) {
                if (box_rand(&seed) % 4 && (i + h) % 5 != 4) continue;
                *merge_lse(&x, p, i, h) = -INFINITY;
                for (int64_t d = 0; d < D; d++) merge_o(&x, p, i, h)[d] = NAN;
            }
    merge_reference(&x, want);
    struct box out = merge_run(be, &x), other = merge_run(be_other, &x);
    /* lse differ by up to 14, so the argument of exp has an error of 7 ULP. Weights have three
     * more roundings, and a sum has one for each part. */
    CHECK_MSG(ref_rel_l2(out.t, want) <= (double)(11 + P) * ULP, "out %g", ref_rel_l2(out.t, want));
    CHECK(box_intact(out) && box_intact(x.all) && box_same_bits(other, out, 0));
    for (int64_t i = 0; i < rows; i += 1 + rows / 3) {
        for (int64_t p = 0; p < P; p++) {
            memcpy(merge_o(&one, p, 0, 0), merge_o(&x, p, i, 0), (size_t)(H * D) * sizeof(float));
            for (int64_t h = 0; h < H; h++) *merge_lse(&one, p, 0, h) = *merge_lse(&x, p, i, h);
        }
        struct box row = merge_run(be, &one);
        CHECK_MSG(box_same_bits(row, out, i), "bits depend on other rows");
        box_free(&row);
    }
    if (test_failures_now)
        printf("  ^ %lld parts, %lld rows, %lld heads of %lld\n", (long long)P, (long long)rows,
               (long long)H, (long long)D);
    mat_free(&want);
    box_free(&out), box_free(&other), box_free(&x.all), box_free(&one.all);
}

static void check_merge(void)
{
    check_merge_shape(1, 1, 1, 2), check_merge_shape(2, 9, 3, 64), check_merge_shape(3, 40, 2, 34);
    check_merge_shape(5, 64, 6, 16), check_merge_shape(64, 3, 2, 10);
    check_merge_shape(17, 7, 1, 256);
}

#endif
