/* test_load_pieces: checks directories that are loaded piece by piece, by one thread and by
 * several threads. Some sinks, which receive the pieces, need them in order; others accept any
 * order. Every element must be at its place. If a sink refuses an element, the error must not
 * depend on the number of threads or on their timing. Tensors are longer than the pieces of a
 * thread, and no size is a multiple of a piece. The files have rows in our order, transposed
 * tensors, and stacked experts. */
#include "tests/lib/hf_save.h"
#include "tests/lib/shapes.h"
#include "tests/lib/datadir.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include "kernels/half.h"
#include "worker/hf/safetensors.h"

static const int families[] = {FAMILY_LLAMA, FAMILY_GPT2, FAMILY_GPT_OSS};
static struct be *devices[4]; /* by the number of threads */

static struct model_shape shape_large(int family)
{
    struct model_shape m = shape_of(family);
    m.n_layers = 2;
    m.width = 160;
    m.n_heads = m.n_kv_heads = 4;
    m.head_dim = 40;
    m.ffn_width = m.expert_width = 448;
    /* 160 x 7001 elements, which are more than a thread loads at a time */
    m.vocab = family == FAMILY_LLAMA ? 7001 : 701;
    m.n_experts = m.n_experts ? 2 : 0;
    CHECK_MSG(!family_complete(&m, &e), "%d: %s: %s", family, e.field, e.text);
    return m;
}

/* Writes a directory with values that bf16 cannot hold. */
static void write_model(const struct model_shape *m, enum dtype dtype)
{
    const int64_t n = param_count(m);
    float *x = calloc((size_t)n, sizeof *x);
    uint16_t *half = calloc((size_t)n, sizeof *half);
    if (!x || !half) abort();
    for (int64_t i = 0; i < n; i++) x[i] = (float)(i % 9973 - 4986) / 64 + 1.f / 4099;
    half_narrow(DT_BF16, x, half, n);
    CHECK_MSG(!hf_save(in_dir("model"), m, dtype, dtype == DT_F32 ? (void *)x : half, &e), "%s",
              e.text);
    free(x), free(half);
}

/* ---- every element at its place -------------------------------------------------------------- */

struct sink {
    enum dtype dtype;
    void *out;
    bool ordered;
    pthread_t caller;
    int64_t next; /* if ordered, no piece may begin before this element */
    _Atomic int64_t n_bad, n_half;
};

static void look(struct sink *s, int64_t offset, int64_t n)
{
    if (n < 1 || n > ST_CHUNK) s->n_bad++;
    if (!s->ordered) return;
    if (offset < s->next || !pthread_equal(pthread_self(), s->caller)) s->n_bad++;
    s->next = offset + n;
}

static int take(void *arg, int64_t offset, int64_t n, const float *x, struct err *err)
{
    struct sink *s = arg;
    (void)err;
    look(s, offset, n);
    if (s->dtype == DT_F32)
        memcpy((float *)s->out + offset, x, (size_t)n * sizeof *x);
    else
        half_narrow(s->dtype, x, (uint16_t *)s->out + offset, n);
    return 0;
}

static int take_half(void *arg, int64_t offset, int64_t n, const uint16_t *x, struct err *err)
{
    struct sink *s = arg;
    (void)err;
    look(s, offset, n);
    s->n_half += n;
    memcpy((uint16_t *)s->out + offset, x, (size_t)n * sizeof *x);
    return 0;
}

/* Loads the model in one of the ways. `want` has the weights that hf_load reads. */
static void check_way(const struct model_shape *m, enum dtype dtype, const void *want, int threads,
                      bool any_order, bool half)
{
    const size_t n = (size_t)param_count(m), unit = (size_t)dtype_size(dtype);
    struct sink s = {
        .dtype = dtype, .out = calloc(n, unit), .ordered = !any_order, .caller = pthread_self()};
    const struct hf_sink to = {.take = take,
                               .arg = &s,
                               .take_half = half ? take_half : NULL,
                               .half = dtype,
                               .be = devices[threads],
                               .any_order = any_order};
    if (!s.out) abort();
    CHECK_MSG(!hf_load_pieces(in_dir("model"), m, &to, &e), "%s", e.text);
    CHECK_MSG(!memcmp(want, s.out, n * unit), "%d threads, any order %d", threads, any_order);
    CHECK_MSG(s.n_bad == 0, "%lld pieces", (long long)s.n_bad);
    CHECK(half == (s.n_half > 0));
    free(s.out);
}

static void check_ways(const struct model_shape *m, enum dtype stored, enum dtype held)
{
    void *want = calloc((size_t)param_count(m), (size_t)dtype_size(held));
    if (!want) abort();
    CHECK_MSG(!hf_load(in_dir("model"), m, held, want, &e), "%s", e.text);
    for (int threads = 0; threads < 4; threads++) /* 0 means without a device */
        for (int order = 0; order < 2; order++)
            check_way(m, held, want, threads, order, held == DT_BF16 && stored == DT_BF16);
    free(want);
}

static void test_ways(void)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        const struct model_shape m = shape_large(families[i]);
        for (enum dtype stored = DT_F32; stored <= DT_BF16; stored++) {
            write_model(&m, stored);
            check_ways(&m, stored, DT_F32);
            check_ways(&m, stored, DT_BF16);
        }
        CHECK(!file_remove(in_dir("model"), &e));
    }
}

/* Checks moments, which are read from a file of arrays in the layout of the model's parameters. */
static void test_flats(void)
{
    const struct model_shape m = shape_large(FAMILY_GPT2);
    const int64_t n = param_count(&m);
    float *x = calloc((size_t)n, sizeof *x), *back = calloc((size_t)n, sizeof *back);
    if (!x || !back) abort();
    write_model(&m, DT_F32);
    CHECK_MSG(!hf_load(in_dir("model"), &m, DT_F32, x, &e), "%s", e.text);
    const struct hf_flat flat = {.prefix = "m:", .data = x, .dtype = DT_F32};
    CHECK(!hf_write_flats(in_dir("flat.safetensors"), &m, &flat, 1, NULL, &e));
    struct st_file *f = st_open(in_dir("flat.safetensors"), &e);
    struct sink s = {.dtype = DT_F32, .out = back};
    const struct hf_sink to = {.take = take, .arg = &s, .be = devices[3], .any_order = true};
    CHECK_MSG(f && !hf_read_pieces(f, &m, "m:", &to, &e), "%s", e.text);
    CHECK(!memcmp(x, back, (size_t)n * sizeof *x));
    st_close(f);
    free(x), free(back);
}

/* ---- always the same error ------------------------------------------------------------------- */

enum { BAD = 3, PATIENCE = 2000 };

struct bad_sink { /* a sink that refuses every piece that contains one of the elements in `bad` */
    int64_t bad[BAD];
    /* how often it has refused an element of `bad` other than the first */
    _Atomic int n_later;
    _Atomic int64_t n_past; /* the number of accepted pieces after the first element of `bad` */
};

static int take_bad(void *arg, int64_t offset, int64_t n, const float *x, struct err *err)
{
    struct bad_sink *s = arg;
    (void)x;
    for (int i = 0; i < BAD; i++) {
        if (s->bad[i] < offset || s->bad[i] >= offset + n) continue;
        if (i) s->n_later++;
        /* If a second thread is running, gives it time to reach a later element. */
        for (int k = 0; i == 0 && k < PATIENCE && !s->n_later; k++) sched_yield();
        return err_field(err, ERR_DEVICE, "model.path", "element %lld", (long long)s->bad[i]);
    }
    if (offset > s->bad[0]) s->n_past++;
    return 0;
}

/* Checks elements that a sink refuses. They are in the range of one thread, in the ranges of two
 * threads, or in two tensors. */
static void check_refused(const struct model_shape *m, int64_t second, int64_t third)
{
    char want[64];
    struct param p;
    param_get(m, 0, &p);
    const int64_t first = p.offset + 700001;
    snprintf(want, sizeof want, "element %lld", (long long)first);
    for (int threads = 0; threads < 4; threads++)
        for (int order = 0; order < 2; order++) {
            struct bad_sink s = {.bad = {first, first + second, first + third}};
            const struct hf_sink to = {
                .take = take_bad, .arg = &s, .be = devices[threads], .any_order = order};
            e = (struct err){0};
            CHECK(hf_load_pieces(in_dir("model"), m, &to, &e) == -1);
            CHECK_MSG(e.code == ERR_DEVICE, "%s", err_name(e.code));
            CHECK_STR(e.text, want);
            CHECK_STR(e.field, "model.path");
            CHECK(order || s.n_past == 0);
        }
}

static void test_refused(void)
{
    const struct model_shape m = shape_large(FAMILY_LLAMA);
    write_model(&m, DT_F32);
    check_refused(&m, 1, 20000);
    check_refused(&m, 400000, 420000);
    check_refused(&m, 1200000, 2000000);
}

/* A sink that truncates the file while it is read. */
struct cut_sink {
    const char *path;
    _Atomic bool done;
};

static int take_cut(void *arg, int64_t offset, int64_t n, const float *x, struct err *err)
{
    struct cut_sink *s = arg;
    (void)offset, (void)n, (void)x, (void)err;
    if (!atomic_exchange(&s->done, true)) CHECK(!truncate(s->path, 8 << 20));
    return 0;
}

static void test_cut(void)
{
    const struct model_shape m = shape_large(FAMILY_LLAMA);
    char want[FILE_PATH_SIZE + 32], path[FILE_PATH_SIZE];
    snprintf(path, sizeof path, "%s", in_dir("model/model.safetensors"));
    snprintf(want, sizeof want, "%s: it is truncated", path);
    for (int threads = 0; threads < 4; threads++)
        for (int order = 0; order < 2; order++) {
            struct cut_sink s = {.path = path};
            const struct hf_sink to = {
                .take = take_cut, .arg = &s, .be = devices[threads], .any_order = order};
            write_model(&m, DT_F32);
            e = (struct err){0};
            CHECK(hf_load_pieces(in_dir("model"), &m, &to, &e) == -1);
            CHECK_MSG(e.code == ERR_CORRUPT, "%s", err_name(e.code));
            CHECK_STR(e.text, want);
        }
}

int main(void)
{
    datadir_begin("load_pieces");
    for (int i = 1; i < 4; i++)
        devices[i] = be_open(&(struct be_options){.device = "cpu", .n_threads = i}, &e);
    CHECK_MSG(devices[1] && devices[2] && devices[3], "%s", e.text);
    RUN(test_ways);
    RUN(test_flats);
    RUN(test_refused);
    RUN(test_cut);
    for (int i = 1; i < 4; i++) be_close(devices[i]);
    return datadir_end("load_pieces");
}
