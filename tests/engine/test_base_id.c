/* test_base_id.c: digests of the bases of adapters. A digest tells a model that was trained further
 * from its original, and is the same for every job and for every form of the same files. The file
 * that has the digest is read back, and a file that is not as it should be is refused. */
#include "tests/lib/shapes.h"
#include "tests/lib/adapter.h"
#include "tests/lib/gguf_model.h"
#include "tests/lib/hf_save.h"
#include "tests/lib/datadir.h"

#include "kernels/half.h"
#include "worker/hf/base_id.h"

static const int families[] = {FAMILY_LLAMA, FAMILY_GPT2, FAMILY_GPT_OSS};

/* Returns a shape with some tensors that are larger than those of which all elements are read. */
static struct model_shape shape_small(int family)
{
    struct model_shape m = shape_of(family);
    m.n_layers = 2;
    m.width = 96;
    m.n_heads = m.n_kv_heads = 4;
    m.head_dim = 24;
    m.ffn_width = m.expert_width = 160;
    m.vocab = 301;
    m.n_experts = m.n_experts ? 2 : 0;
    CHECK_MSG(!family_complete(&m, &e), "%d: %s: %s", family, e.field, e.text);
    return m;
}

/* Returns weights that bf16 can hold. The caller frees them. */
static float *make_weights(const struct model_shape *m)
{
    const int64_t n = param_count(m);
    float *x = calloc((size_t)n, sizeof *x);
    if (!x) abort();
    for (int64_t i = 0; i < n; i++) x[i] = (float)(i % 251 - 125) / 64;
    return x;
}

static struct base_id id_of(const char *name, const struct model_shape *m)
{
    struct base_id id = {.name = "", .field = "model.path"};
    CHECK_MSG(!base_id_model(in_dir(name), m, &id, &e), "%s", e.text);
    return id;
}

static struct base_id id_after(const struct model_shape *m, const float *x)
{
    CHECK_MSG(!hf_save(in_dir("changed"), m, DT_F32, x, &e), "%s", e.text);
    return id_of("changed", m);
}

/* ---- the same ------------------------------------------------------------------------------- */

/* Checks that the digest does not depend on the type of the files, if the values are the same, or
 * on the members of the shape that a job sets. */
static void test_same(void)
{
    for (size_t k = 0; k < sizeof families / sizeof *families; k++) {
        const struct model_shape m = shape_small(families[k]);
        float *x = make_weights(&m);
        uint16_t *half = calloc((size_t)param_count(&m), sizeof *half);
        if (!half) abort();
        CHECK_MSG(!hf_save(in_dir("wide"), &m, DT_F32, x, &e), "%s", e.text);
        half_narrow(DT_BF16, x, half, param_count(&m));
        CHECK_MSG(!hf_save(in_dir("narrow"), &m, DT_BF16, half, &e), "%s", e.text);
        const struct base_id a = id_of("wide", &m), b = id_of("narrow", &m);
        CHECK_STR(a.sha256, b.sha256);
        spec_defaults(spec);
        spec->model.shape = m;
        adapter_shape(spec);
        CHECK(!rules_freeze(spec, &e) && spec->model.shape.freeze.n_kinds);
        CHECK_STR(id_of("wide", &spec->model.shape).sha256, a.sha256);
        struct model_shape less = m;
        less.no_head = true; /* as a job of embeddings sees the model */
        CHECK_STR(id_of("wide", &less).sha256, a.sha256);
        free(x), free(half);
    }
}

/* Checks that a GGUF file has the digest of a directory that has its values. */
static void test_gguf(void)
{
    static const int types[] = {0, 1, 8}; /* F32, F16, Q8_0 */
    static struct model_shape m;
    for (int i = 0; i < GGUF_MODELS * 3; i++) {
        gguf_shape(&gguf_models[i / 3], &m);
        float *x = gguf_make_model(&gguf_models[i / 3], &m, types[i % 3], in_dir("model.gguf"));
        CHECK_STR(id_of("model.gguf", &m).sha256, id_after(&m, x).sha256);
        free(x);
    }
}

/* ---- another -------------------------------------------------------------------------------- */

/* Checks that a model is another one if a training has changed a tensor of it. A training in 16
 * bits leaves most elements as they are. */
static void test_trained(void)
{
    struct param p;
    for (size_t k = 0; k < sizeof families / sizeof *families; k++) {
        const struct model_shape m = shape_small(families[k]);
        float *x = make_weights(&m), *y = make_weights(&m);
        const struct base_id of = id_after(&m, x);
        bool large = false, small = false;
        for (int i = 0; i < param_tensors(&m); i++) {
            param_get(&m, i, &p);
            large |= p.count > 4096, small |= p.count <= 4096;
            const int64_t every = p.count > 4096 ? 50 : p.count;
            for (int64_t j = 0; j < p.count; j += every) y[p.offset + j] += 1.f / 128;
            CHECK_MSG(strcmp(id_after(&m, y).sha256, of.sha256), "%s", p.name);
            memcpy(y + p.offset, x + p.offset, (size_t)p.count * sizeof *y);
        }
        CHECK(large && small);
        CHECK_STR(id_after(&m, y).sha256, of.sha256);
        free(x), free(y);
    }
}

/* Checks that all elements of a small tensor are read, and both ends of a large tensor. */
static void test_elements(void)
{
    const struct model_shape m = shape_small(FAMILY_LLAMA);
    float *x = make_weights(&m);
    const struct base_id of = id_after(&m, x);
    struct param p;
    for (int i = 0; i < param_tensors(&m); i++) {
        param_get(&m, i, &p);
        const bool large = p.count > 4096;
        const int64_t end = large ? p.count / 64 * 64 : p.count, step = large ? end - 1 : 19;
        for (int64_t at = 0; at < end; at += step) {
            x[p.offset + at] += 1;
            CHECK_MSG(strcmp(id_after(&m, x).sha256, of.sha256), "%s [%lld]", p.name,
                      (long long)at);
            x[p.offset + at] -= 1;
        }
    }
    free(x);
}

static void test_random(void)
{
    struct model_shape m = shape_small(FAMILY_LLAMA);
    struct base_id a, b, c;
    CHECK(!base_id_random(&m, 1, &a, &e) && !base_id_random(&m, 2, &b, &e));
    CHECK(strcmp(a.sha256, b.sha256));
    spec_defaults(spec);
    spec->model.shape = m;
    adapter_shape(spec);
    CHECK(!base_id_random(&spec->model.shape, 1, &c, &e));
    CHECK_STR(a.sha256, c.sha256);
    m.vocab++;
    CHECK(!base_id_random(&m, 1, &c, &e) && strcmp(a.sha256, c.sha256));
}

/* ---- the file ------------------------------------------------------------------------------- */

#define HEX "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void test_file(void)
{
    static const char *const bad[] = {
        "",
        "[]",
        "{}",
        "{\"version\":2,\"base\":\"a\",\"base_sha256\":\"" HEX "\"}",
        "{\"version\":1,\"base\":\"a\"}",
        "{\"version\":1,\"base_sha256\":\"" HEX "\"}",
        "{\"version\":1,\"base\":7,\"base_sha256\":\"" HEX "\"}",
        "{\"version\":1,\"base\":\"a\",\"base_sha256\":\"" HEX "0\"}",
        "{\"version\":1,\"base\":\"a\",\"base_sha256\":\"abc\"}",
        "{\"version\":1,\"base\":\"a\\u001b[2J\",\"base_sha256\":\"" HEX "\"}",
        "{\"version\":1,\"base\":\"a\",\"base_sha256\":\"" HEX "\"} more"};
    const struct base_id id = {"a \"model\"", "", HEX};
    struct base_id got;
    CHECK(!file_make_dir(in_dir("adapter"), &e));
    CHECK(base_id_read(in_dir("adapter"), &got, &e) == 0);
    CHECK(base_id_check(in_dir("adapter"), &id, "", &e) == 0); /* a directory of peft */
    CHECK_MSG(!base_id_write(in_dir("adapter"), &id, &e), "%s", e.text);
    CHECK_MSG(base_id_read(in_dir("adapter"), &got, &e) == 1, "%s", e.text);
    CHECK_STR(got.name, id.name);
    CHECK_STR(got.sha256, id.sha256);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        puts_file("adapter/" BASE_ID_FILE, bad[i]);
        e = (struct err){0};
        CHECK_MSG(base_id_read(in_dir("adapter"), &got, &e) == -1 && e.code == ERR_CORRUPT,
                  "%s: %s", bad[i], e.text);
        CHECK_MSG(strstr(e.text, BASE_ID_FILE) && !*e.field, "%s", e.text);
    }
}

/* Checks that the error names both bases and the field, even if names are long. */
static void test_check(void)
{
    struct base_id made = {"the-first", "", HEX}, own = {"the-second", "model.path", HEX};
    CHECK(!base_id_write(in_dir("adapter"), &made, &e));
    CHECK(!base_id_check(in_dir("adapter"), &own, "", &e));
    own.sha256[0] = 'f';
    e = (struct err){0};
    CHECK(base_id_check(in_dir("adapter"), &own, "", &e) == -1 && e.code == ERR_CONFLICT);
    CHECK_STR(e.field, "model.path");
    CHECK_MSG(strstr(e.text, "the-first") && strstr(e.text, "the-second"), "%s", e.text);
    snprintf(made.name, sizeof made.name, "the-second");
    CHECK(!base_id_write(in_dir("adapter"), &made, &e));
    CHECK(base_id_check(in_dir("adapter"), &own, "; more", &e) == -1 && e.code == ERR_CONFLICT);
    CHECK_MSG(strstr(e.text, "the base the-second (digest f") &&
                  strstr(e.text, "has changed since") &&
                  strstr(e.text, "give its files of then; more"),
              "%s", e.text);
    memset(made.name, 'x', sizeof made.name - 1);
    memset(own.name, 'y', sizeof own.name - 1);
    CHECK(!base_id_write(in_dir("adapter"), &made, &e));
    CHECK(base_id_check(in_dir("adapter"), &own, "", &e) == -1);
    CHECK_MSG(strstr(e.text, "xx") && strstr(e.text, "yy"), "%s", e.text);
    CHECK_MSG(strstr(e.text, "if its weights are random"), "%s", e.text);
}

int main(void)
{
    datadir_begin("base_id");
    RUN(test_same);
    RUN(test_gguf);
    RUN(test_trained);
    RUN(test_elements);
    RUN(test_random);
    RUN(test_file);
    RUN(test_check);
    return datadir_end("base_id");
}
