/* blas.cu: finds cuBLASLt's functions with dlsym, and keeps an algorithm for each shape of product
 * that has been computed. */
#include "kernels/cuda/blas.h"

#include <stdio.h>
#include <stdlib.h>
#include "kernels/cuda/device.h"

#if !defined(SEQD_EMU) && __has_include(<cublasLt.h>)
#include <cublasLt.h>
static_assert(sizeof(struct blas_choice) == sizeof(cublasLtMatmulHeuristicResult_t) &&
                  sizeof(struct blas_algo) == sizeof(cublasLtMatmulAlgo_t),
              "what cuBLASLt says of a way");
#define SAME(ours, theirs) static_assert((int)(ours) == (int)(theirs), #theirs)
SAME(BLAS_OP_N, CUBLAS_OP_N);
SAME(BLAS_OP_T, CUBLAS_OP_T);
SAME(BLAS_R_32F, CUDA_R_32F);
SAME(BLAS_R_16F, CUDA_R_16F);
SAME(BLAS_R_16BF, CUDA_R_16BF);
SAME(BLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F);
SAME(BLAS_DESC_TRANSA, CUBLASLT_MATMUL_DESC_TRANSA);
SAME(BLAS_DESC_TRANSB, CUBLASLT_MATMUL_DESC_TRANSB);
SAME(BLAS_DESC_EPILOGUE, CUBLASLT_MATMUL_DESC_EPILOGUE);
SAME(BLAS_DESC_BIAS, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
SAME(BLAS_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_BIAS);
SAME(BLAS_PREF_WORKSPACE, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
SAME(BLAS_PREF_REDUCTION, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
SAME(BLAS_PREF_ALIGN_A, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
SAME(BLAS_PREF_ALIGN_A + 3, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
SAME(BLAS_REDUCTION_IN_F32, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
#undef SAME
#endif

/* A model's step has some twenty shapes of products, and generation has some more for each number
 * of rows. */
#define SLOTS  512
#define PROBES 8
#define ALIGNS 256 /* bytes: the largest alignment that an algorithm may need */

/* The product for which an algorithm is chosen. It is column-major, d [m, n] = op(a) [m, k] op(b)
 * [k, n], with bias [m] added to each column. */
struct key {
    int64_t m, n, k, lda, ldb, ldd;
    int32_t trans_a, trans_b, in, out, add, bias;
    int32_t align[3]; /* alignment of a, b and d in bytes */
};

/* An algorithm of cuBLASLt for a product. If ours is set, cuBLASLt has no algorithm, and our
 * kernel computes the product. */
struct way {
    bool taken, ours;
    struct key key;
    void *desc, *a, *b, *d;
    struct blas_algo algo;
    size_t workspace_size;
};

struct blas {
#define FIELD(name, args) int(*name) args;
    BLAS_CALLS(FIELD)
#undef FIELD
    void *handle;
    struct way ways[SLOTS];
};

/* ---- opening --------------------------------------------------------------------------------- */

static bool wanted(struct be_library *l)
{
    const char *blas = getenv("SEQD_CUDA_BLAS");
    if (!blas || strcmp(blas, "0")) return true;
    snprintf(l->text, sizeof l->text, "SEQD_CUDA_BLAS=0 turns it off");
    return false;
}

/* Returns false if the library or one of its calls is missing. */
#ifdef SEQD_EMU
static bool find_all(struct blas *b, struct be_library *l)
{
#define FIND(name, args) b->name = (int(*) args)emu_blas_find("cublasLt" #name);
    BLAS_CALLS(FIND)
#undef FIND
    snprintf(l->text, sizeof l->text, "cuBLASLt, emulated");
    return true;
}
#else
#include <dlfcn.h>
#include "api/core/library.h"
static bool find_all(struct blas *b, struct be_library *l)
{
    struct library found;
    struct err e;
    if (library_open(&found, LIBRARY_CUBLASLT, &e)) {
        snprintf(l->text, sizeof l->text, "%s", e.text);
        return false;
    }
    snprintf(l->text, sizeof l->text, "%s", found.text);
#define FIND(name, args)                                                                           \
    b->name = (int(*) args)dlsym(found.handle, "cublasLt" #name);                                  \
    if (!b->name) {                                                                                \
        snprintf(l->text, sizeof l->text, "%.500s has no cublasLt" #name, found.text);             \
        return false;                                                                              \
    }
    BLAS_CALLS(FIND)
#undef FIND
    return true;
}
#endif

struct blas *blas_open(struct be_library *l)
{
    if (!wanted(l)) return NULL;
    struct blas *b = (struct blas *)calloc(1, sizeof *b);
    if (!b) {
        snprintf(l->text, sizeof l->text, "out of memory");
    } else if (find_all(b, l)) {
        const int rc = b->Create(&b->handle);
        if (!rc) {
            l->open = true;
            return b;
        }
        const size_t used = strlen(l->text);
        snprintf(l->text + used, sizeof l->text - used, ": cublasLtCreate: status %d", rc);
    }
    free(b);
    return NULL;
}

static void way_clear(struct blas *b, struct way *w)
{
    if (w->desc) b->MatmulDescDestroy(w->desc);
    void *const layouts[] = {w->a, w->b, w->d};
    for (void *l : layouts)
        if (l) b->MatrixLayoutDestroy(l);
    memset(w, 0, sizeof *w);
}

void blas_close(struct blas *b)
{
    if (!b) return;
    for (int i = 0; i < SLOTS; i++) way_clear(b, &b->ways[i]);
    b->Destroy(b->handle);
    free(b);
}

/* ---- ways ------------------------------------------------------------------------------------ */

static uint64_t key_hash(const struct key *k)
{
    const unsigned char *p = (const unsigned char *)k;
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */
    for (size_t i = 0; i < sizeof *k; i++) h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}

/* Returns the entry that is kept for the key. If the key has no entry, returns a free entry. If
 * all entries where this key may be kept are in use, clears one of them and returns it. */
static struct way *way_find(struct blas *b, const struct key *k)
{
    const uint64_t at = key_hash(k);
    for (int i = 0; i < PROBES; i++) {
        struct way *w = &b->ways[(at + (uint64_t)i) % SLOTS];
        if (!w->taken || !memcmp(&w->key, k, sizeof *k)) return w;
    }
    struct way *w = &b->ways[at % SLOTS];
    way_clear(b, w);
    return w;
}

static bool way_describe(struct blas *b, struct way *w)
{
    const struct key *k = &w->key;
    const int32_t op_a = k->trans_a ? BLAS_OP_T : BLAS_OP_N;
    const int32_t op_b = k->trans_b ? BLAS_OP_T : BLAS_OP_N;
    int bad = b->MatmulDescCreate(&w->desc, BLAS_COMPUTE_32F, BLAS_R_32F);
    if (bad) return false;
    bad |= b->MatmulDescSetAttribute(w->desc, BLAS_DESC_TRANSA, &op_a, sizeof op_a);
    bad |= b->MatmulDescSetAttribute(w->desc, BLAS_DESC_TRANSB, &op_b, sizeof op_b);
    if (k->bias) {
        const uint32_t epilogue = BLAS_EPILOGUE_BIAS;
        bad |= b->MatmulDescSetAttribute(w->desc, BLAS_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    }
    bad |= b->MatrixLayoutCreate(&w->a, k->in, (uint64_t)(k->trans_a ? k->k : k->m),
                                 (uint64_t)(k->trans_a ? k->m : k->k), k->lda);
    bad |= b->MatrixLayoutCreate(&w->b, k->in, (uint64_t)(k->trans_b ? k->n : k->k),
                                 (uint64_t)(k->trans_b ? k->k : k->n), k->ldb);
    bad |= b->MatrixLayoutCreate(&w->d, k->out, (uint64_t)k->m, (uint64_t)k->n, k->ldd);
    return !bad;
}

/* Sets the address of the bias of this call. */
static bool way_point(struct blas *b, const struct way *w, const struct gemm_args *g)
{
    return !g->bias.data ||
           !b->MatmulDescSetAttribute(w->desc, BLAS_DESC_BIAS, &g->bias.data, sizeof g->bias.data);
}

static bool way_choose(struct blas *b, struct way *w, uint64_t room)
{
    struct blas_choice choice = {};
    void *pref = NULL;
    int n = 0;
    const uint32_t reduction = BLAS_REDUCTION_IN_F32;
    int bad = b->MatmulPreferenceCreate(&pref);
    if (bad) return false;
    bad |= b->MatmulPreferenceSetAttribute(pref, BLAS_PREF_WORKSPACE, &room, sizeof room);
    bad |= b->MatmulPreferenceSetAttribute(pref, BLAS_PREF_REDUCTION, &reduction, sizeof reduction);
    for (int i = 0; i < 4; i++) {
        const uint32_t align = (uint32_t)w->key.align[i < 2 ? i : 2];
        bad |= b->MatmulPreferenceSetAttribute(pref, BLAS_PREF_ALIGN_A + i, &align, sizeof align);
    }
    if (!bad)
        bad = b->MatmulAlgoGetHeuristic(b->handle, w->desc, w->a, w->b, w->d, w->d, pref, 1,
                                        &choice, &n);
    b->MatmulPreferenceDestroy(pref);
    w->algo = choice.algo;
    w->workspace_size = choice.workspace_size;
    return !bad && n == 1 && choice.state == 0 && choice.workspace_size <= room;
}

static int32_t align_of(const void *p)
{
    const uintptr_t low = (uintptr_t)p & -(uintptr_t)p;
    return low && low < ALIGNS ? (int32_t)low : ALIGNS;
}

/* ---- the product ----------------------------------------------------------------------------- */

static int blas_type(enum dtype t)
{
    return t == DT_F32 ? BLAS_R_32F : t == DT_BF16 ? BLAS_R_16BF : BLAS_R_16F;
}

/* Row-major c = op(a) op(b) is column-major c' = op(b)' op(a)', because a row-major matrix that is
 * read as column-major is its transpose. */
static struct key key_of(const struct gemm_args *g)
{
    struct key k;
    memset(&k, 0, sizeof k); /* clears the padding too, because whole keys are compared */
    k.m = g->c.cols;
    k.n = g->c.rows;
    k.k = g->trans_a ? g->a.rows : g->a.cols;
    k.lda = g->b.ld;
    k.ldb = g->a.ld;
    k.ldd = g->c.ld;
    k.trans_a = g->trans_b;
    k.trans_b = g->trans_a;
    k.in = blas_type(g->a.dtype);
    k.out = blas_type(g->c.dtype);
    k.add = g->accumulate;
    k.bias = g->bias.data != NULL;
    k.align[0] = align_of(g->b.data);
    k.align[1] = align_of(g->a.data);
    k.align[2] = align_of(g->c.data);
    return k;
}

bool blas_gemm(struct cuda *c, const struct gemm_args *g)
{
    struct blas *b = c->blas;
    const struct key k = key_of(g);
    if (k.k < 1 || (k.in == BLAS_R_32F && k.out != BLAS_R_32F)) return false;
    char *const room = (char *)(((uintptr_t)c->be.scratch + ALIGNS - 1) & -(uintptr_t)ALIGNS);
    const uint64_t room_size = (uint64_t)(c->be.scratch + c->be.scratch_size - room);
    struct way *w = way_find(b, &k);
    if (!w->taken) {
        w->taken = true;
        w->key = k;
        w->ours = !way_describe(b, w) || !way_point(b, w, g) || !way_choose(b, w, room_size);
    }
    if (w->ours || !way_point(b, w, g)) return false;
    const float alpha = 1, beta = k.add ? 1 : 0;
    const int rc = b->Matmul(b->handle, w->desc, &alpha, g->b.data, w->a, g->a.data, w->b, &beta,
                             g->c.data, w->d, g->c.data, w->d, &w->algo, room, w->workspace_size,
                             c->compute);
    cuda_launched(c, "a product of cuBLASLt");
    if (rc && c->failed.code == ERR_NONE)
        err_set(&c->failed, ERR_INTERNAL,
                "device \"%s\" (%s): cublasLtMatmul of [%lld, %lld] by [%lld, %lld]: status %d",
                c->be.ops->name, c->name, (long long)k.n, (long long)k.k, (long long)k.k,
                (long long)k.m, (int)rc);
    return true;
}
