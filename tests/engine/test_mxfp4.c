/* test_mxfp4.c: checks a directory of gpt-oss whose experts are in MXFP4. Its values must equal,
 * bit for bit, those that transformers reads from the same bytes (tests/golden/make_mxfp4.py). The
 * directory is loaded in one call and in pieces, and saved as plain bf16. Damaged files must be
 * refused.
 * tests: needs golden/gpt_oss_mxfp4 */
#include "tests/lib/datadir.h"

#include <math.h>
#include "worker/hf/hf.h"
#include "worker/hf/mxfp4.h"
#include "worker/hf/safetensors.h"

#define PACKED "tests/golden/gpt_oss_mxfp4"

static struct model_shape shape;
static int64_t n_params;

static void copy(const char *from, const char *to)
{
    size_t size;
    char *text = file_read(from, 1 << 20, &size, &e);
    CHECK_MSG(text && !file_write(in_dir(to), text, size, &e), "%s", e.text);
    free(text);
}

static struct st_file *open_plain(void)
{
    struct st_file *f = st_open(PACKED "/plain.safetensors", &e);
    CHECK_MSG(f, "%s", e.text);
    return f;
}

static int take(void *arg, int64_t offset, int64_t n, const float *x, struct err *err)
{
    (void)err;
    memcpy((float *)arg + offset, x, (size_t)n * sizeof *x);
    return 0;
}

/* Checks all ways to load the packed file. The oracle is the plain file with the same
 * config.json. */
static void test_loaded(void)
{
    float *want = malloc((size_t)n_params * 4), *got = malloc((size_t)n_params * 4);
    uint16_t *want_half = malloc((size_t)n_params * 2), *got_half = malloc((size_t)n_params * 2);
    CHECK(!file_make_dir(in_dir("plain"), &e));
    copy(PACKED "/config.json", "plain/config.json");
    copy(PACKED "/plain.safetensors", "plain/model.safetensors");
    CHECK_MSG(!hf_load(in_dir("plain"), &shape, DT_F32, want, &e), "%s", e.text);
    CHECK_MSG(!hf_load(PACKED, &shape, DT_F32, got, &e), "%s", e.text);
    CHECK(!memcmp(want, got, (size_t)n_params * 4));
    memset(got, 0, (size_t)n_params * 4);
    CHECK_MSG(!hf_load_pieces(PACKED, &shape, &(struct hf_sink){take, got}, &e), "%s", e.text);
    CHECK(!memcmp(want, got, (size_t)n_params * 4));
    struct be *be = be_open(&(struct be_options){.device = "cpu", .n_threads = 2}, &e);
    const struct hf_sink threads = {.take = take, .arg = got, .be = be, .any_order = true};
    memset(got, 0, (size_t)n_params * 4);
    CHECK_MSG(be && !hf_load_pieces(PACKED, &shape, &threads, &e), "%s", e.text);
    CHECK(!memcmp(want, got, (size_t)n_params * 4));
    be_close(be);
    CHECK(!hf_load(in_dir("plain"), &shape, DT_BF16, want_half, &e));
    CHECK(!hf_load(PACKED, &shape, DT_BF16, got_half, &e));
    CHECK(!memcmp(want_half, got_half, (size_t)n_params * 2));
    free(want), free(got), free(want_half), free(got_half);
}

/* Checks a saved directory. It must have every tensor of the plain file, with the same name, shape
 * and bytes, and no further tensors. Its config.json must not name a quantization. */
static void test_saved(void)
{
    uint16_t *half = malloc((size_t)n_params * 2);
    size_t size;
    CHECK(!hf_load(PACKED, &shape, DT_BF16, half, &e));
    const struct hf_flat flat = {"", half, DT_BF16, NULL, NULL};
    const struct hf_beside beside = {.from = PACKED};
    CHECK_MSG(!hf_save_flat(in_dir("saved"), &shape, &flat, &beside, NULL, &e), "%s", e.text);
    struct st_file *want = open_plain(), *got = st_open(in_dir("saved/model.safetensors"), &e);
    CHECK(want && got && st_count(want) == st_count(got));
    for (int i = 0; want && got && i < st_count(want); i++) {
        const struct st_tensor *a = st_at(want, i), *b = st_find(got, a->name);
        CHECK_MSG(b && b->dtype == ST_BF16 && b->n_dims == a->n_dims && b->size == a->size &&
                      !memcmp(a->dims, b->dims, (size_t)a->n_dims * sizeof *a->dims) &&
                      !memcmp(st_data(want, a), st_data(got, b), (size_t)a->size),
                  "%s", a->name);
    }
    char *text = file_read(in_dir("saved/config.json"), 1 << 16, &size, &e);
    CHECK(text && !strstr(text, "quant") && strstr(text, "\"GptOssForCausalLM\""));
    st_close(want), st_close(got);
    free(text), free(half);
}

/* ---- long tensors ---------------------------------------------------------------------------- */

/* The size is chosen because 512 groups of 32 values are read at a time. */
enum { GROUP = 32, GROUPS = 2 * 512 + 3, VALUES = GROUPS * GROUP };

/* Returns the value of four bits: a sign, two bits of exponent and one bit of mantissa. */
static float four_bits(int bits)
{
    const int exponent = bits >> 1 & 3, mantissa = bits & 1;
    const double x = exponent ? ldexp(1 + mantissa / 2.0, exponent - 1) : mantissa / 2.0;
    return (float)(bits & 8 ? -x : x);
}

static void check_long(const struct mxfp4 *x, const uint8_t *block, const uint8_t *scale,
                       int64_t at, int64_t n)
{
    float *out = malloc((size_t)n * sizeof *out);
    int64_t bad = 0;
    if (!out) abort();
    CHECK_MSG(!mxfp4_read(x, at, n, out, &e), "%s", e.text);
    for (int64_t i = 0; i < n; i++) {
        const int64_t k = at + i;
        const int bits = block[k / 2] >> (k % 2 ? 4 : 0) & 15;
        bad += out[i] != ldexpf(four_bits(bits), scale[k / GROUP] - 127);
    }
    CHECK_MSG(!bad, "%lld of %lld values from %lld on differ", (long long)bad, (long long)n,
              (long long)at);
    free(out);
}

static void test_long(void)
{
    static uint8_t block[VALUES / 2], scale[GROUPS];
    for (int i = 0; i < VALUES / 2; i++) block[i] = (uint8_t)(i * 7 % 253);
    for (int i = 0; i < GROUPS; i++) scale[i] = (uint8_t)(120 + i % 13);
    const struct st_out items[] = {
        {.name = "blocks", .dtype = ST_U8, .n_dims = 1, .dims = {VALUES / 2}, .data = block},
        {.name = "scales", .dtype = ST_U8, .n_dims = 1, .dims = {GROUPS}, .data = scale}};
    CHECK_MSG(!st_write(in_dir("long.safetensors"), items, 2, &e), "%s", e.text);
    struct st_file *f = st_open(in_dir("long.safetensors"), &e);
    CHECK_MSG(f, "%s", e.text);
    if (!f) return;
    const struct mxfp4 x = {f, f, st_find(f, "blocks"), st_find(f, "scales")};
    check_long(&x, block, scale, 0, VALUES);
    check_long(&x, block, scale, GROUP, VALUES - 2 * GROUP);
    st_close(f);
}

/* ---- refusals -------------------------------------------------------------------------------- */

enum { MAX_ITEMS = 64 };

/* The tensors of the packed file, which a test changes and writes. */
struct damaged {
    struct st_file *f;
    struct st_out item[MAX_ITEMS];
    int n;
};

static struct st_out *item(struct damaged *d, const char *name)
{
    for (int i = 0; i < d->n; i++)
        if (strstr(d->item[i].name, name)) return &d->item[i];
    CHECK_MSG(false, "%s", name);
    return &d->item[0];
}

static void damaged_open(struct damaged *d)
{
    d->f = st_open(PACKED "/model.safetensors", &e);
    d->n = st_count(d->f);
    for (int i = 0; i < d->n; i++) {
        const struct st_tensor *t = st_at(d->f, i);
        d->item[i] = (struct st_out){
            .name = t->name, .dtype = t->dtype, .n_dims = t->n_dims, .data = st_data(d->f, t)};
        memcpy(d->item[i].dims, t->dims, sizeof t->dims);
    }
}

/* Writes the tensors. Checks that loading them fails with the given code, and with an error that
 * names the fault. */
static void expect(struct damaged *d, enum err_code code, const char *names)
{
    float *x = malloc((size_t)n_params * 4);
    CHECK(!file_make_dir(in_dir("bad"), &e));
    copy(PACKED "/config.json", "bad/config.json");
    CHECK_MSG(!st_write(in_dir("bad/model.safetensors"), d->item, d->n, &e), "%s", e.text);
    e = (struct err){0};
    CHECK(hf_load(in_dir("bad"), &shape, DT_F32, x, &e) == -1);
    CHECK_MSG(e.code == code && strstr(e.text, names), "%s %s", err_name(e.code), e.text);
    CHECK(hf_load_pieces(in_dir("bad"), &shape, &(struct hf_sink){take, x}, &e) == -1);
    CHECK_MSG(e.code == code && strstr(e.text, names), "%s %s", err_name(e.code), e.text);
    st_close(d->f);
    free(x);
}

static void test_refused(void)
{
    static struct damaged d;
    static uint8_t scales[3 * 128];
    damaged_open(&d);
    /* one tensor of scales is missing */
    *item(&d, "gate_up_proj_scales") = d.item[d.n - 1], d.n--;
    expect(&d, ERR_INVALID, "gate_up_proj is missing");
    damaged_open(&d);
    struct st_out *x = item(&d, "gate_up_proj_blocks");
    x->dims[1] /= 2, x->dims[2] *= 2;
    expect(&d, ERR_INVALID, "gate_up_proj_blocks has another shape or type");
    damaged_open(&d);
    item(&d, "down_proj_scales")->dtype = ST_I8;
    expect(&d, ERR_INVALID, "down_proj_blocks has another shape or type");
    damaged_open(&d);
    x = item(&d, "gate_up_proj_scales");
    memcpy(scales, x->data, sizeof scales);
    scales[100] = 255;
    x->data = scales;
    expect(&d, ERR_CORRUPT, "gate_up_proj_scales has a scale that is NaN");
    damaged_open(&d); /* a tensor that is present in both forms */
    struct st_file *plain = open_plain();
    for (int i = 0; i < st_count(plain); i++) {
        const struct st_tensor *t = st_at(plain, i);
        if (!strstr(t->name, "down_proj") || strstr(t->name, "bias")) continue;
        x = &d.item[d.n++];
        *x = (struct st_out){
            .name = t->name, .dtype = t->dtype, .n_dims = t->n_dims, .data = st_data(plain, t)};
        memcpy(x->dims, t->dims, sizeof t->dims);
    }
    expect(&d, ERR_INVALID, "down_proj_blocks is unexpected");
    st_close(plain);
    damaged_open(&d); /* a tensor that no file has in this form */
    item(&d, "o_proj.weight")->name = "model.layers.0.self_attn.o_proj.weight_blocks";
    expect(&d, ERR_INVALID, "o_proj.weight_blocks is unexpected");
}

int main(void)
{
    datadir_begin("mxfp4");
    CHECK_MSG(!config_read_dir(PACKED, &shape, &e), "%s (run from the repository's root)", e.text);
    n_params = param_count(&shape);
    RUN(test_loaded);
    RUN(test_saved);
    RUN(test_long);
    RUN(test_refused);
    return datadir_end("mxfp4");
}
