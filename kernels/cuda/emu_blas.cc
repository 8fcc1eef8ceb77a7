/* emu_blas.cc: the functions of cuBLASLt that blas.cu calls, in plain loops and column-major as in
 * cuBLASLt. With them, tests check that blas.cu asks for the right product. */
#include <stdlib.h>
#include "api/core/assert.h"
#include "kernels/cuda/blas.h"
#include "kernels/half.h"

/* bytes that the caller must provide, and that are overwritten */
#define WORKSPACE ((size_t)1 << 20)

struct desc {
    int32_t trans[2];
    const void *bias; /* read only if has_bias */
    bool has_bias;
};
struct layout {
    int type;
    int64_t rows, cols, ld;
};
struct preference {
    uint64_t room;
    uint32_t reduction, align[4];
};

static int Create(void **h)
{
    *h = malloc(1);
    return 0;
}
static int Destroy(void *h)
{
    free(h);
    return 0;
}
static int MatmulDescCreate(void **d, int compute, int scale)
{
    assert(compute == BLAS_COMPUTE_32F && scale == BLAS_R_32F);
    *d = calloc(1, sizeof(struct desc));
    return 0;
}
static int any_destroy(void *p)
{
    free(p);
    return 0;
}
static int MatmulDescSetAttribute(void *d, int which, const void *value, size_t size)
{
    struct desc *to = (struct desc *)d;
    assert(size == (which == BLAS_DESC_BIAS ? sizeof(void *) : 4));
    if (which == BLAS_DESC_TRANSA || which == BLAS_DESC_TRANSB)
        memcpy(&to->trans[which == BLAS_DESC_TRANSB], value, 4);
    else if (which == BLAS_DESC_EPILOGUE)
        to->has_bias = *(const uint32_t *)value == BLAS_EPILOGUE_BIAS;
    else if (which == BLAS_DESC_BIAS)
        memcpy(&to->bias, value, sizeof to->bias);
    else
        return 7; /* invalid */
    return 0;
}
static int MatrixLayoutCreate(void **l, int type, uint64_t rows, uint64_t cols, int64_t ld)
{
    assert(ld >= (int64_t)rows);
    *l = new layout{type, (int64_t)rows, (int64_t)cols, ld};
    return 0;
}
static int MatrixLayoutDestroy(void *l)
{
    delete (struct layout *)l;
    return 0;
}
static int MatmulPreferenceCreate(void **p)
{
    *p = calloc(1, sizeof(struct preference));
    return 0;
}
static int MatmulPreferenceSetAttribute(void *p, int which, const void *value, size_t size)
{
    struct preference *to = (struct preference *)p;
    const int align = which - BLAS_PREF_ALIGN_A;
    assert(size == (which == BLAS_PREF_WORKSPACE ? 8 : 4));
    if (which == BLAS_PREF_WORKSPACE)
        memcpy(&to->room, value, 8);
    else if (which == BLAS_PREF_REDUCTION)
        memcpy(&to->reduction, value, 4);
    else if (align >= 0 && align < 4)
        memcpy(&to->align[align], value, 4);
    else
        return 7; /* invalid */
    return 0;
}

/* Chooses an algorithm. There is no algorithm for bf16 together with fp16. There is also no
 * algorithm if a column of 16-bit elements begins inside a pair, because 16-bit elements are read
 * in pairs. data keeps the alignments that the caller promised. */
static int MatmulAlgoGetHeuristic(void *, void *, void *a, void *b, void *, void *d,
                                  void *preference, int most, struct blas_choice *choice, int *n)
{
    const struct preference *p = (const struct preference *)preference;
    const struct layout *all[3] = {(struct layout *)a, (struct layout *)b, (struct layout *)d};
    assert(most == 1 && p->reduction == BLAS_REDUCTION_IN_F32 && p->room >= WORKSPACE);
    *n = 0;
    for (int i = 0; i < 3; i++)
        if (all[i]->type != BLAS_R_32F && (all[i]->ld % 2 || p->align[i] < 4)) return 15;
    if (all[0]->type != all[1]->type) return 15;
    if (all[2]->type != BLAS_R_32F && all[2]->type != all[0]->type) return 15;
    *n = 1;
    memset(choice, 0, sizeof *choice);
    choice->workspace_size = WORKSPACE;
    for (int i = 0; i < 4; i++) choice->algo.data[i] = p->align[i];
    return 0;
}

static enum dtype dtype_of(const struct layout *l)
{
    return l->type == BLAS_R_16F ? DT_F16 : DT_BF16;
}

static float at(const void *p, const struct layout *l, int64_t row, int64_t col)
{
    assert(row < l->rows && col < l->cols);
    const int64_t i = col * l->ld + row;
    if (l->type == BLAS_R_32F) return ((const float *)p)[i];
    return half_value(dtype_of(l), ((const uint16_t *)p)[i]);
}

static void set(void *p, const struct layout *l, int64_t row, int64_t col, float x)
{
    const int64_t i = col * l->ld + row;
    if (l->type == BLAS_R_32F)
        ((float *)p)[i] = x;
    else
        ((uint16_t *)p)[i] = half_round(dtype_of(l), x);
}

static int Matmul(void *, void *desc, const void *alpha, const void *a, void *a_layout,
                  const void *b, void *b_layout, const void *beta, const void *c, void *, void *d,
                  void *d_layout, const struct blas_algo *algo, void *workspace, size_t size,
                  cudaStream_t)
{
    /* the caller's description, which is read now */
    const struct desc op = *(const struct desc *)desc;
    const struct layout la = *(const struct layout *)a_layout;
    const struct layout lb = *(const struct layout *)b_layout;
    const struct layout ld = *(const struct layout *)d_layout;
    const void *const all[4] = {a, b, c, d};
    const float to = *(const float *)alpha, old = *(const float *)beta;
    for (int i = 0; i < 4; i++) assert((uintptr_t)all[i] % algo->data[i] == 0);
    assert(size == WORKSPACE && (uintptr_t)workspace % 256 == 0);
    const int64_t K = op.trans[0] ? la.rows : la.cols;
    const struct layout one = {ld.type, ld.rows, 1, ld.rows};
    assert(K == (op.trans[1] ? lb.cols : lb.rows));
    emu_run(NULL, dim3(1), dim3(1), 0, [=]() {
        memset(workspace, 0xff, size);
        for (int64_t j = 0; j < ld.cols; j++)
            for (int64_t i = 0; i < ld.rows; i++) {
                float sum = 0;
                for (int64_t k = 0; k < K; k += EMU_MMA_K) {
                    float x[EMU_MMA_K] = {0}, y[EMU_MMA_K][8] = {{0}}, of[8] = {sum};
                    for (int64_t e = k; e < K && e < k + EMU_MMA_K; e++) {
                        x[e - k] = op.trans[0] ? at(a, &la, e, i) : at(a, &la, i, e);
                        y[e - k][0] = op.trans[1] ? at(b, &lb, j, e) : at(b, &lb, e, j);
                        if (la.type == BLAS_R_32F) sum += x[e - k] * y[e - k][0];
                    }
                    /* floats are not multiplied on tensor cores */
                    if (la.type == BLAS_R_32F) continue;
                    emu_dot(of, 8, x, y[0], 8, EMU_MMA_K, EMU_MMA_BITS);
                    sum = of[0];
                }
                sum = to * sum + (old != 0 ? old * at(c, &ld, i, j) : 0);
                set(d, &ld, i, j, op.has_bias ? sum + at(op.bias, &one, i, 0) : sum);
            }
    });
    return 0;
}

#define MatmulDescDestroy       any_destroy
#define MatmulPreferenceDestroy any_destroy

void *emu_blas_find(const char *name)
{
#define FOUND(call, args)                                                                          \
    if (!strcmp(name, "cublasLt" #call)) return (void *)call;
    BLAS_CALLS(FOUND)
#undef FOUND
    return NULL;
}
