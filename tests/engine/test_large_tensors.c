/* test_large_tensors: checks files of models with long tensors. Tensors are read, written and
 * hashed in pieces of 65,536 elements, and the tensors of this test are longer. The files have
 * rows in our order, transposed tensors, and stacked experts. */
#include "tests/lib/hf_save.h"
#include "tests/lib/shapes.h"
#include "tests/lib/datadir.h"

#include "api/core/sha256.h"
#include "kernels/half.h"
#include "worker/hf/hf.h"
#include "worker/hf/safetensors.h"

static const int families[] = {FAMILY_LLAMA, FAMILY_GPT2, FAMILY_GPT_OSS};

static struct model_shape shape_large(int family)
{
    struct model_shape m = shape_of(family);
    m.n_layers = 1;
    m.width = 160; /* 160 x 450 and 160 x 448 elements; both exceed a piece */
    m.n_heads = m.n_kv_heads = 4;
    m.head_dim = 40;
    m.ffn_width = m.expert_width = 448;
    m.vocab = 450;
    m.n_experts = m.n_experts ? 2 : 0;
    CHECK_MSG(!family_complete(&m, &e), "%d: %s: %s", family, e.field, e.text);
    return m;
}

/* Returns the value of element i. bf16 holds all values exactly, and no two pieces have the same
 * values. */
static float value_at(int64_t i)
{
    return (float)(i % 251 - 125) / 64;
}

static float *weights_make(const struct model_shape *m)
{
    float *x = calloc((size_t)param_count(m), sizeof *x);
    if (!x) abort();
    for (int i = 0; i < param_tensors(m); i++) {
        struct param p;
        param_get(m, i, &p);
        for (int64_t k = 0; k < p.count; k++) x[p.offset + k] = value_at(p.offset + k);
    }
    return x;
}

/* ---- a directory ----------------------------------------------------------------------------- */

/* Compares our tensor with the tensor of the file, whose rows and columns may have a different
 * order. Returns the number of elements at a wrong place. */
static int64_t misplaced(const struct param *p, const float *file, const float *ours)
{
    const int64_t blocks = p->stack ? p->stack : 1, rows = p->rows / blocks;
    const int64_t C = p->count / p->rows;
    int64_t bad = 0;
    for (int64_t row = 0; row < p->rows; row++) {
        const int64_t b = row / rows, r = row % rows;
        for (int64_t c = 0; c < C; c++) {
            const int64_t at = b * rows * C + (p->transposed ? c * rows + r : r * C + c);
            bad += file[at] != ours[row * C + c];
        }
    }
    return bad;
}

static void check_tensors(const struct model_shape *m, const float *ours)
{
    struct st_file *f = st_open(in_dir("model/model.safetensors"), &e);
    int large = 0;
    CHECK_MSG(f, "%s", e.text);
    for (int i = 0; f && i < param_tensors(m); i++) {
        struct param p;
        param_get(m, i, &p);
        const struct st_tensor *t = st_find(f, p.name);
        float *file = malloc((size_t)p.count * sizeof *file);
        const bool read = file && t && t->count == p.count && !st_read_f32(f, t, file, &e);
        CHECK_MSG(read, "%s", p.name);
        /* test_families checks tensors whose rows a file groups by head. */
        if (read && !p.head_major_parts)
            CHECK_MSG(!misplaced(&p, file, ours + p.offset), "%s", p.name);
        large += p.count > ST_CHUNK;
        free(file);
    }
    CHECK_MSG(large >= 2, "%d large tensors", large);
    st_close(f);
}

/* Checks that the digest of the weights equals the digest of the file's tensors in the order of
 * their names. */
static void check_digest(const struct model_shape *m, enum dtype dtype, const void *params)
{
    char want[SHA256_HEX], got[SHA256_HEX];
    struct sha256 sha;
    struct st_file *f = st_open(in_dir("model/model.safetensors"), &e);
    CHECK_MSG(f, "%s", e.text);
    sha256_init(&sha);
    for (int i = 0; f && i < st_count(f); i++)
        sha256_add(&sha, st_data(f, st_at(f, i)), (size_t)st_at(f, i)->size);
    sha256_hex(&sha, want);
    CHECK_MSG(!hf_weights_digest(m, dtype, params, got, &e), "%s", e.text);
    CHECK_STR(got, want);
    st_close(f);
}

struct sink {
    float *out;
    int64_t most;
};

static int take(void *arg, int64_t offset, int64_t n, const float *x, struct err *err)
{
    struct sink *s = arg;
    if (n > s->most) s->most = n;
    memcpy(s->out + offset, x, (size_t)n * sizeof *x);
    return 0;
}

static int give(void *arg, int64_t offset, int64_t n, float *out, struct err *err)
{
    memcpy(out, (const float *)arg + offset, (size_t)n * sizeof *out);
    return 0;
}

static void check_loaded(const struct model_shape *m, const float *x)
{
    const size_t size = (size_t)param_count(m) * sizeof *x;
    float *whole = calloc(1, size), *pieces = calloc(1, size);
    struct sink s = {.out = pieces};
    if (!whole || !pieces) abort();
    CHECK_MSG(!hf_load(in_dir("model"), m, DT_F32, whole, &e), "%s", e.text);
    CHECK(!memcmp(whole, x, size));
    CHECK_MSG(!hf_load_pieces(in_dir("model"), m, &(struct hf_sink){take, &s}, &e), "%s", e.text);
    CHECK(!memcmp(pieces, x, size) && s.most == ST_CHUNK);
    free(whole), free(pieces);
}

static void check_half(const struct model_shape *m, const float *x)
{
    const int64_t n = param_count(m);
    uint16_t *half = calloc((size_t)n, 2), *back = calloc((size_t)n, 2);
    if (!half || !back) abort();
    for (int64_t i = 0; i < n; i++) half[i] = bf16_round(x[i]);
    CHECK_MSG(!hf_load(in_dir("model"), m, DT_BF16, back, &e), "%s", e.text);
    CHECK(!memcmp(half, back, (size_t)n * 2));
    const struct hf_flat flat = {.prefix = "", .dtype = DT_BF16, .read = give, .arg = (void *)x};
    CHECK_MSG(!hf_save_flat(in_dir("model"), m, &flat, NULL, NULL, &e), "%s", e.text);
    check_tensors(m, x);
    check_digest(m, DT_BF16, half);
    CHECK(!hf_load(in_dir("model"), m, DT_BF16, back, &e));
    CHECK(!memcmp(half, back, (size_t)n * 2));
    free(half), free(back);
}

/* ---- arrays in the same layout --------------------------------------------------------------- */

static void check_flats(const struct model_shape *m, const float *x)
{
    const size_t size = (size_t)param_count(m) * sizeof *x;
    const struct hf_flat flats[] = {
        {.prefix = "m:", .dtype = DT_F32, .read = give, .arg = (void *)x},
        {.prefix = "v:", .dtype = DT_F32, .data = x}};
    float *flat = calloc(1, size), *pieces = calloc(1, size);
    if (!flat || !pieces) abort();
    CHECK(!hf_write_flats(in_dir("flat.safetensors"), m, flats, 2, NULL, &e));
    struct st_file *f = st_open(in_dir("flat.safetensors"), &e);
    for (int i = 0; f && i < 2; i++) {
        struct sink s = {.out = pieces};
        memset(pieces, 0, size);
        CHECK(!hf_read_flat(f, m, flats[i].prefix, flat, &e) && !memcmp(flat, x, size));
        CHECK(!hf_read_pieces(f, m, flats[i].prefix, &(struct hf_sink){take, &s}, &e));
        CHECK(!memcmp(pieces, x, size) && s.most == ST_CHUNK);
    }
    st_close(f);
    free(flat), free(pieces);
}

static void test_models(void)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        const struct model_shape m = shape_large(families[i]);
        float *x = weights_make(&m);
        CHECK_MSG(!hf_save(in_dir("model"), &m, DT_F32, x, &e), "%s", e.text);
        check_tensors(&m, x);
        check_digest(&m, DT_F32, x);
        check_loaded(&m, x);
        check_half(&m, x);
        check_flats(&m, x);
        CHECK(!file_remove(in_dir("model"), &e));
        free(x);
    }
}

int main(void)
{
    datadir_begin("large_tensors");
    RUN(test_models);
    return datadir_end("large_tensors");
}
