/* test_device_quant: checks weights in blocks (model.weights) on a device with memory of its own.
 * The device is "emulated" unless SEQD_TEST_DEVICE names another one. The models together have
 * every kind of product. Prefill and decode are compared with a model in plain numbers that has
 * the same values. If the device always adds in the same order, both models' logits must have the
 * same bits. If not, the logits must be nearly equal.
 *
 * The host must be able to write blocks of a weight on the device in pieces, to read any range of
 * its values, and to find a NaN in it. A model that is loaded to the device must have the same
 * bytes as the model that is loaded to the CPU. The short form runs every third model, in a third
 * of the settings, and loads every fourth model.
 * tests: needs libkernels_emulated.so */
#include "tests/lib/hf_save.h"
#include "tests/lib/quant_model.h"
#include "tests/lib/store.h"
#include "worker/hf/hf.h"
#include "worker/model/finite.h"
#include "worker/model/host_blocks.h"

static const char *device;
static char scratch[64];

/* ---- models ---------------------------------------------------------------------------------- */

static void test_values(void)
{
    jobs_have.device = device;
    for (int bits = 0; bits < 2; bits++)
        for (size_t i = 0; i < N_MODELS; i++)
            for (int w = WEIGHTS_INT8; w < WEIGHTS_N; w++)
                for (int p = PRECISION_FP32; p <= PRECISION_FP16; p++) {
                    const size_t n = i + (size_t)(w + p + bits);
                    if (small_tests() && (n % 3 || i % 3)) continue;
                    jobs_have.bits = bits;
                    check_values(i, (enum weights_id)w, (enum precision_id)p);
                }
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* Writes a weight to the device in pieces, and the same weight on the host in a single call.
 * Checks that the bytes are the same. Most of the pieces begin and end in the middle of a row and
 * of a panel. */
static void check_blocks(struct be *be, enum dtype t, int64_t rows, int64_t cols)
{
    const enum weights_id f = dtype_format(t);
    const int64_t n = rows * cols, size = quant_size(f, rows, cols);
    struct err e = {0};
    char *there = be->ops->alloc(be, size, &e), *want = calloc(1, (size_t)size);
    char *got = calloc(1, (size_t)size);
    float *x = malloc((size_t)n * sizeof *x), *y = malloc((size_t)n * sizeof *y);
    CHECK_MSG(there && want && got && x && y, "%s", e.text);
    if (!there || !want || !got || !x || !y) abort();
    const struct tensor w = tensor_of(t, there, rows, cols, cols);
    const struct tensor host = tensor_of(t, want, rows, cols, cols);
    for (int64_t i = 0; i < n; i++) x[i] = (float)(i * i % 997 - 498) / 512;
    quant_put(host, 0, n, x);
    for (int64_t at = 0, k = 1; at < n; at += k, k = k * 5 % 4096 / QUANT_K * QUANT_K) {
        k = k < QUANT_K ? QUANT_K : k;
        if (k > n - at) k = n - at;
        host_blocks_in(be, w, at, k, x + at);
    }
    be->ops->download(be, got, there, size);
    CHECK_MSG(!memcmp(got, want, (size_t)size), "dtype %d, %lld x %lld", t, (long long)rows,
              (long long)cols);
    quant_get(host, 0, n, x);
    host_blocks_out(be, w, 0, n, y);
    CHECK(!memcmp(x, y, (size_t)n * sizeof *x));
    memset(y, 0, (size_t)n * sizeof *y);
    for (int64_t at = 0, k = 7; at < n; at += k, k = k * 3 % 1000) {
        if (k > n - at) k = n - at;
        host_blocks_out(be, w, at, k, y + at);
    }
    bool past = true;
    CHECK(!memcmp(x, y, (size_t)n * sizeof *x) && host_blocks_not_finite(be, w, &past) == -1);
    y[QUANT_K - 1] = NAN;
    host_blocks_in(be, w, n - QUANT_K, QUANT_K, y);
    CHECK(host_blocks_not_finite(be, w, &past) == n - QUANT_K && !past);
    CHECK_MSG(!be->ops->sync(be, &e), "%s", e.text);
    be->ops->free(be, there, size);
    free(want), free(got), free(x), free(y);
}

static void test_blocks(void)
{
    struct err e = {0};
    struct be *be = be_open(&(struct be_options){.device = device, .n_threads = 2}, &e);
    CHECK_MSG(be, "%s", e.text);
    if (!be) return;
    for (int t = DT_INT8; t <= DT_INT4; t++) {
        check_blocks(be, (enum dtype)t, 1, 32);
        check_blocks(be, (enum dtype)t, 37, 96);
        check_blocks(be, (enum dtype)t, 64, 416);
        /* each panel of this weight consists of several parts */
        check_blocks(be, (enum dtype)t, 19, 32 * 1027);
    }
    be_close(be);
}

/* ---- a directory ----------------------------------------------------------------------------- */

/* Loads a directory into a model on the device `where`. Returns the bytes of the model's weights,
 * which the caller frees. */
static char *loaded(const char *dir, const char *where, size_t model, enum weights_id weights,
                    int64_t *size)
{
    static struct tiny_rank q;
    static struct job_spec s;
    struct err e = {0};
    jobs_have.device = where;
    CHECK_MSG(!set(&s, model, weights, PRECISION_BF16, 1, &e), "%s: %s", e.field, e.text);
    s.resources.threads = 2;
    CHECK_MSG(!tiny_open(&q, &s, NULL, 0, &e), "%s", e.text);
    const struct hf_sink to = {
        .take = stored_take, .arg = &q.model, .be = q.be, .any_order = !q.be->own_memory};
    CHECK_MSG(!hf_load_pieces(dir, &s.model.shape, &to, &e), "%s", e.text);
    *size = q.plan.item[PLAN_PARAMS].size;
    char *bytes = malloc((size_t)*size);
    if (!bytes) abort();
    q.be->ops->download(q.be, bytes, q.model.params, *size);
    tiny_close(&q);
    return bytes;
}

static void test_loaded(void)
{
    for (size_t i = 0; i < N_MODELS; i += 1 + 3 * (size_t)small_tests())
        for (int w = WEIGHTS_INT8; w < WEIGHTS_N; w++) {
            static struct job_spec s;
            struct err e = {0};
            char dir[128];
            int64_t a_size, b_size;
            snprintf(dir, sizeof dir, "%s/model", scratch);
            jobs_have.device = "cpu";
            CHECK(!set(&s, i, WEIGHTS_MODEL, PRECISION_BF16, 1, &e));
            const int64_t n = param_count(&s.model.shape);
            float *x = malloc((size_t)n * sizeof *x);
            if (!x) abort();
            for (int64_t k = 0; k < n; k++) x[k] = (float)(k % 9973 - 4986) / 65536 + 1.f / 4099;
            CHECK_MSG(!hf_save(dir, &s.model.shape, DT_F32, x, &e), "%s", e.text);
            char *a = loaded(dir, "cpu", i, (enum weights_id)w, &a_size);
            char *b = loaded(dir, device, i, (enum weights_id)w, &b_size);
            CHECK_MSG(a_size == b_size && !memcmp(a, b, (size_t)a_size), "%s in %s", models[i].name,
                      spec_weights_words[w]);
            free(a), free(b), free(x);
        }
}

/* ---- not finite ------------------------------------------------------------------------------ */

static void test_not_finite(void)
{
    jobs_have.device = device;
    for (int w = WEIGHTS_INT8; w < WEIGHTS_N; w++) check_not_finite((enum weights_id)w);
}

int main(void)
{
    char path[] = "/tmp/seqd-device-quant-XXXXXX";
    struct err e = {0};
    device = getenv("SEQD_TEST_DEVICE");
    if (!device) device = "emulated";
    if (!mkdtemp(path)) abort();
    snprintf(scratch, sizeof scratch, "%s", path);
    RUN(test_blocks);
    RUN(test_values);
    RUN(test_loaded);
    RUN(test_not_finite);
    CHECK(!file_remove(scratch, &e));
    return test_done("device_quant");
}
