/* test_latents: checks samples of latents, from the reading of a manifest to the numbers in a
 * batch. Also checks files with false values, and the random numbers that rectified flow draws for
 * a sample. */
#include <math.h>
#include "api/core/job.h"
#include "kernels/philox.h"
#include "tests/lib/datadir.h"
#include "worker/data/flow.h"
#include "worker/data/latents.h"
#include "worker/family/family.h"
#include "worker/hf/safetensors.h"

/* ---- writing --------------------------------------------------------------------------------- */

struct shape {
    int64_t C, T, H, W, L, width;
    enum st_dtype dtype;
};

/* Returns the value of element i, which every dtype can hold exactly. The lengths of pieces are
 * not multiples of the period of the values. */
static float value(int64_t i, int which)
{
    return (float)((i * 7 + which * 3) % 61 - 30) / 8;
}

static void put_tensor(const char *name, const char *key, const struct st_out *like, int which)
{
    const int64_t n = like->n_dims == 4
                          ? like->dims[0] * like->dims[1] * like->dims[2] * like->dims[3]
                          : like->dims[0] * like->dims[1];
    float *x = malloc((size_t)n * 4);
    uint16_t *h = malloc((size_t)n * 2);
    struct st_out out = *like;
    if (!x || !h) abort();
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        x[i] = value(i, which);
        memcpy(&bits, &x[i], 4);
        h[i] = (uint16_t)(bits >> 16); /* bf16 has all bits of these values */
    }
    out.name = key;
    out.data = out.dtype == ST_F32 ? (void *)x : h;
    CHECK_MSG(st_write(in_dir(name), &out, 1, &e) == 0, "%s", e.text);
    free(x), free(h);
}

static void put_files(const struct shape *s)
{
    put_tensor("z.safetensors", "z",
               &(struct st_out){.dtype = s->dtype, .n_dims = 4, .dims = {s->C, s->T, s->H, s->W}},
               0);
    put_tensor("y.safetensors", "y",
               &(struct st_out){.dtype = s->dtype, .n_dims = 2, .dims = {s->L, s->width}}, 1);
}

static void manifest(const char *text)
{
    puts_file("list.jsonl", text);
    sources_begin();
    source_add(in_dir("list.jsonl"), DATA_LATENTS, NULL);
}

#define LINE                                                                                       \
    "{\"latents\":\"z.safetensors\",\"text\":\"y.safetensors\",\"height\":480,\"width\":854"

/* ---- reading --------------------------------------------------------------------------------- */

static void check_values(const struct data *d, const struct latents_sample *x,
                         const struct shape *s, int64_t text_len)
{
    float z[64], y[64];
    const int64_t n = s->C * s->T * s->H * s->W;
    CHECK(x->C == s->C && x->T == s->T && x->H == s->H && x->W == s->W);
    CHECK(x->text_len == text_len && x->text_width == s->width);
    for (int64_t at = 0; at < n; at += 61) { /* pieces that end at any offset */
        const int64_t k = n - at < 61 ? n - at : 61;
        CHECK(latents_read(d, x, at, k, z, &e) == 0);
        for (int64_t i = 0; i < k; i++) CHECK(z[i] == value(at + i, 0));
    }
    float *whole = malloc((size_t)n * sizeof *whole);
    int64_t bad = !whole || latents_read(d, x, 0, n, whole, &e);
    for (int64_t i = 0; !bad && i < n; i++) bad = whole[i] != value(i, 0);
    CHECK_MSG(!bad, "%lld values at once", (long long)n);
    free(whole);
    CHECK(latents_read_text(d, x, 1, text_len * s->width - 1, y, &e) == 0);
    for (int64_t i = 0; i < text_len * s->width - 1; i++) CHECK(y[i] == value(i + 1, 1));
}

static void test_read(void)
{
    /* Two of these shapes have more than 4,096 values, which is the number that is converted at a
     * time. */
    static const struct shape shapes[] = {{4, 3, 5, 7, 9, 6, ST_F32},
                                          {2, 1, 1, 3, 4, 5, ST_BF16},
                                          {4, 2, 30, 37, 9, 6, ST_F32},
                                          {4, 2, 30, 37, 9, 6, ST_BF16}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct latents_sample x;
        put_files(&shapes[i]);
        manifest(LINE ",\"num_frames\":51,\"fps\":23.5,\"text_len\":3}\n\n  \n" LINE "}");
        struct data *d = prepare_open();
        struct order_options oo = latents_order_options(spec, SET_TRAIN);
        oo.in_order = true;
        struct data_order *o = order_open(d, &oo);
        CHECK(data_order_samples(o) == 2);
        CHECK_MSG(latents_sample(o, 0, &x, &e) == 0, "%s", e.text);
        check_values(d, &x, &shapes[i], 3);
        CHECK(x.height == 480 && x.width == 854 && x.num_frames == 51 && x.fps == 23.5f);
        CHECK_MSG(latents_sample(o, 1, &x, &e) == 0, "%s", e.text);
        check_values(d, &x, &shapes[i], shapes[i].L);
        CHECK(x.num_frames == shapes[i].T && x.fps == 24);
        data_order_close(o);
        data_close(d);
    }
}

/* Checks models that have classes instead of captions, and models that have neither. */
static void test_no_text(void)
{
    static const struct shape s = {2, 1, 3, 2, 1, 1, ST_F32};
    struct latents_sample x;
    float z[12];
    put_files(&s);
    manifest("{\"latents\":\"z.safetensors\",\"height\":4,\"width\":4,\"label\":65534}\n"
             "{\"latents\":\"z.safetensors\",\"height\":4,\"width\":4}");
    struct data *d = prepare_open();
    struct order_options oo = latents_order_options(spec, SET_TRAIN);
    oo.in_order = true;
    struct data_order *o = order_open(d, &oo);
    for (int n = 0; n < 2; n++) {
        CHECK_MSG(latents_sample(o, n, &x, &e) == 0, "%s", e.text);
        CHECK(x.label == (n ? -1 : 65534) && x.text_len == 0 && x.text_width == 0);
        CHECK(x.document == n && latents_read(d, &x, 0, 12, z, &e) == 0 && z[11] == value(11, 0));
    }
    data_order_close(o);
    data_close(d);
}

/* Checks that a sample from which the model cannot learn is refused. The error must name the
 * manifest, the line and the fix. */
static void unfit(const struct data *d, const struct data_order *o, const char *field,
                  const char *says)
{
    struct latents_sample x;
    e = (struct err){0};
    CHECK(latents_sample(o, 1, &x, &e) == 0);
    CHECK(latents_check(d, spec, &x, &e) == -1);
    CHECK_STR(e.field, field);
    CHECK_MSG(strstr(e.text, "list.jsonl line 2: ") && strstr(e.text, says), "\"%s\"", e.text);
}

static void fits(const struct data *d, const struct data_order *o)
{
    struct latents_sample x;
    CHECK(latents_sample(o, 1, &x, &e) == 0);
    CHECK_MSG(latents_check(d, spec, &x, &e) == 0, "%s", e.text);
}

/* Checks whether z [2, 3, 4, 6], with patches of 1 x 2 x 2 and captions of 3 x 5, fits a model. */
static void test_fit(void)
{
    struct model_shape *m = &spec->model.shape;
    put_files(&(struct shape){2, 3, 4, 6, 3, 5, ST_F32});
    manifest(LINE "}\n" LINE ",\"label\":4}");
    struct data *d = prepare_open();
    struct order_options oo = latents_order_options(spec, SET_TRAIN);
    oo.in_order = true;
    struct data_order *o = order_open(d, &oo);
    *m = (struct model_shape){.in_channels = 2,
                              .patch_t = 1,
                              .patch_h = 2,
                              .patch_w = 2,
                              .caption_channels = 5,
                              .text_len = 3,
                              .type_vocab = 6};
    spec->data.frames = 3, spec->data.height = 4, spec->data.width = 6;
    fits(d, o);
    spec->data.height = 6, spec->data.width = 4; /* as many patches */
    fits(d, o);
    /* an incomplete patch counts as a patch, so the number of patches does not change */
    spec->data.width = 3;
    fits(d, o);
    spec->data.width = 2;
    unfit(d, o, "data.width", "4 x 6, 6 patches");
    spec->data.height = 2, spec->data.width = 6;
    unfit(d, o, "data.height", "say 3 of the largest");
    spec->data.height = 4;
    spec->data.frames = 2;
    unfit(d, o, "data.frames", "3 frames");
    m->patch_t = 2; /* 3 and 4 frames are both two patches of two frames */
    spec->data.frames = 4;
    fits(d, o);
    m->in_channels = 4;
    unfit(d, o, "model.config.in_channels", "2 channels");
    m->in_channels = 2;
    m->text_len = 2;
    unfit(d, o, "model.config.model_max_length", "3 tokens");
    m->text_len = 3;
    m->caption_channels = 6;
    unfit(d, o, "model.config.caption_channels", "5 numbers");
    m->caption_channels = 0; /* the model reads no caption */
    fits(d, o);
    m->type_vocab = 5; /* classes 0 to 3, and one for no class */
    unfit(d, o, "model.config.type_vocab_size", "label 4");
    struct latents_sample x;
    CHECK(latents_sample(o, 0, &x, &e) == 0 && latents_check(d, spec, &x, &e) == -1);
    CHECK(strstr(e.text, "line 1") && strstr(e.text, "\"label\"") &&
          !strcmp(e.field, "data.train"));
    m->type_vocab = 0;
    fits(d, o);
    data_order_close(o);
    data_close(d);
}

/* Checks a sample without a caption if the model reads captions. */
static void test_fit_no_text(void)
{
    struct latents_sample x;
    put_files(&(struct shape){2, 3, 4, 6, 3, 5, ST_F32});
    manifest("{\"latents\":\"z.safetensors\",\"height\":4,\"width\":4}");
    spec->model.shape = (struct model_shape){.in_channels = 2,
                                             .patch_t = 1,
                                             .patch_h = 2,
                                             .patch_w = 2,
                                             .caption_channels = 5,
                                             .text_len = 3};
    spec->data.frames = 3, spec->data.height = 4, spec->data.width = 6;
    struct data *d = prepare_open();
    struct order_options oo = latents_order_options(spec, SET_TRAIN);
    struct data_order *o = order_open(d, &oo);
    CHECK(latents_sample(o, 0, &x, &e) == 0 && latents_check(d, spec, &x, &e) == -1);
    CHECK(strstr(e.text, "\"text\"") != NULL);
    data_order_close(o);
    data_close(d);
}

/* Checks that the id of prepared data depends on the manifest and on the tensors. */
static void test_digest(void)
{
    struct data_stats a, b, c;
    put_files(&(struct shape){1, 2, 2, 2, 2, 2, ST_F32});
    manifest(LINE "}");
    CHECK(prepare(&a) == 0 && prepare(&b) == 0 && !strcmp(a.id, b.id));
    put_files(&(struct shape){1, 2, 2, 2, 3, 2, ST_F32});
    CHECK(prepare(&c) == 0 && strcmp(a.id, c.id) != 0);
}

static void refused(const char *text, enum err_code code, const char *says)
{
    struct data_stats st;
    manifest(text);
    CHECK_MSG(prepare(&st) == -1, "passes: %s", text);
    CHECK_MSG(e.code == code && strstr(e.text, says), "%d \"%s\", want \"%s\"", e.code, e.text,
              says);
    CHECK_MSG(!strcmp(e.field, "data.train.0.path"), "field %s", e.field);
}

static void test_refused(void)
{
    const float nan4[4] = {1, 2, NAN, 3};
    put_files(&(struct shape){1, 2, 2, 2, 3, 2, ST_F32});
    refused("{\"text\":\"y.safetensors\",\"height\":4,\"width\":4}", ERR_INVALID, "\"latents\"");
    refused("{\"latents\":\"z.safetensors\",\"text_len\":1,\"height\":4,\"width\":4}", ERR_INVALID,
            "\"text_len\" needs a member \"text\"");
    refused(LINE ",\"label\":-1}", ERR_INVALID, "label");
    refused(LINE ",\"label\":65535}", ERR_INVALID, "label");
    refused("{\"latents\":\"z.safetensors\",\"text\":\"y.safetensors\",\"width\":4}", ERR_INVALID,
            "\"height\"");
    refused(LINE ",\"fps\":0}", ERR_INVALID, "fps");
    refused(LINE ",\"text_len\":4}", ERR_INVALID, "has 3 rows");
    refused(LINE ",\"num_frames\":0}", ERR_INVALID, "num_frames");
    refused(LINE, ERR_INVALID, "line 1");
    refused("[1]", ERR_INVALID, "not an object");
    refused(LINE "}\n" LINE ",\"text\":\"z\"}", ERR_INVALID, "line 2: the member \"text\"");
    refused("{\"latents\":\"none\",\"text\":\"y.safetensors\",\"height\":4,\"width\":4}",
            ERR_NOT_FOUND, "none");
    refused("{\"latents\":\"../z\",\"text\":\"y.safetensors\",\"height\":4,\"width\":4}",
            ERR_INVALID, "outside");
    refused("{\"latents\":\"/etc/passwd\",\"text\":\"y.safetensors\",\"height\":4,\"width\":4}",
            ERR_INVALID, "outside");
    refused("{\"latents\":\"y.safetensors\",\"text\":\"y.safetensors\",\"height\":4,\"width\":4}",
            ERR_INVALID, "no tensor \"z\"");
    refused("{\"latents\":\"list.jsonl\",\"text\":\"y.safetensors\",\"height\":4,\"width\":4}",
            ERR_CORRUPT, "list.jsonl");
    manifest("\n\n");
    struct data_stats st;
    CHECK(prepare(&st) == -1 && !strcmp(e.field, "data.train"));
    struct st_out out = {
        .name = "z", .dtype = ST_F32, .n_dims = 4, .dims = {1, 1, 2, 2}, .data = nan4};
    CHECK(st_write(in_dir("z.safetensors"), &out, 1, &e) == 0);
    refused(LINE "}", ERR_INVALID, "element 2 of z");
    out.n_dims = 2;
    out.dims[0] = 4, out.dims[1] = 1;
    CHECK(st_write(in_dir("z.safetensors"), &out, 1, &e) == 0);
    refused(LINE "}", ERR_INVALID, "want [C, T, H, W]");
}

static void test_not_mixed(void)
{
    struct data_stats st;
    put_files(&(struct shape){1, 2, 2, 2, 3, 2, ST_F32});
    manifest(LINE "}");
    puts_file("a.txt", "text");
    source_add(in_dir("a.txt"), DATA_TEXT, NULL);
    CHECK(prepare(&st) == -1 && strstr(e.text, "do not go together"));
}

/* ---- draws ----------------------------------------------------------------------------------- */

enum { N = 200000 };

/* Checks the moments of the noise. For n standard normals, the standard deviation of the mean is
 * 1/sqrt(n), that of the variance is sqrt(2/n), and that of the fourth moment is sqrt(96/n). 5
 * deviations are allowed. */
static void test_noise(void)
{
    float *x = malloc(N * sizeof *x), part[37];
    double m1 = 0, m2 = 0, m4 = 0, lag = 0;
    if (!x) abort();
    flow_noise(7, FLOW_TRAIN, 3, 0, N, x);
    /* a part may begin anywhere, as a rank's part does */
    for (int64_t at = 1; at < 4000; at += 37) {
        flow_noise(7, FLOW_TRAIN, 3, at, 37, part);
        CHECK(!memcmp(part, x + at, sizeof part));
    }
    for (int i = 0; i < N; i++) {
        m1 += x[i], m2 += (double)x[i] * x[i], m4 += pow(x[i], 4);
        if (i) lag += (double)x[i] * x[i - 1];
    }
    CHECK_MSG(fabs(m1 / N) < 5 / sqrt(N), "mean %.4g", m1 / N);
    CHECK_MSG(fabs(m2 / N - 1) < 5 * sqrt(2.0 / N), "variance %.4g", m2 / N);
    CHECK_MSG(fabs(m4 / N - 3) < 5 * sqrt(96.0 / N), "fourth moment %.4g", m4 / N);
    CHECK_MSG(fabs(lag / N) < 5 / sqrt(N), "neighbours %.4g", lag / N);
    flow_noise(7, FLOW_SAMPLE, 3, 0, 37, part);
    CHECK(part[0] != x[0]);
    flow_noise(7, FLOW_TRAIN, 4, 0, 37, part);
    CHECK(part[0] != x[0]);
    flow_noise(8, FLOW_TRAIN, 3, 0, 37, part);
    CHECK(part[0] != x[0]);
    free(x);
}

/* Checks which share of the drawn times is in [0, 1/4), in [1/4, 1/2) and so on. The standard
 * deviation of a share is below 1/(2 sqrt(n)). The logistic function of x is below 1/4 if x is
 * below -ln 3. */
static void test_times(void)
{
    static const double want[2][4] = {{.25, .25, .25, .25},
                                      {.1359641, .3640359, .3640359, .1359641}};
    const struct latents_sample x = {.T = 4, .height = 512, .width = 512, .num_frames = 1};
    enum { M = 40000 };
    for (int kind = 0; kind < 2; kind++) {
        double share[4] = {0}, quiet = 0;
        sources_begin();
        spec->objective.timestep = kind ? TIMESTEP_LOGIT_NORMAL : TIMESTEP_UNIFORM;
        spec->objective.text_dropout = 0.3;
        for (int64_t n = 0; n < M; n++) {
            struct flow_draw d, again;
            flow_draw(spec, &x, n, &d);
            flow_draw(spec, &x, n, &again);
            CHECK(!memcmp(&d, &again, sizeof d) && d.t > 0 && d.t < 1);
            share[(int)(d.t * 4)] += 1.0 / M;
            quiet += d.no_caption / (double)M;
        }
        for (int i = 0; i < 4; i++)
            CHECK_MSG(fabs(share[i] - want[kind][i]) < 2.5 / sqrt(M), "kind %d quarter %d: %.4f",
                      kind, i, share[i]);
        CHECK_MSG(fabs(quiet - 0.3) < 2.5 / sqrt(M), "without text %.4f", quiet);
    }
}

/* Compares the shift of the times with a shift that is computed by hand for 480 x 854 and 51
 * frames. Its factors are sqrt(409920 / 262144) = 1.250488 and, in STDiT3, 51 / 17 * 5 = 15 frames
 * of latents. The autoencoders of the other families are for pictures, and have one frame of
 * latents for each frame. */
static void test_shift(void)
{
    const struct model_shape stdit3 = {.family = FAMILY_STDIT3};
    CHECK(fabs(flow_shift(&stdit3, 480, 854, 51) - 1.2504879 * 3.8729833) < 1e-5);
    CHECK(fabs(flow_shift(&stdit3, 512, 512, 17) - sqrt(5)) < 1e-12);
    CHECK(flow_shift(&stdit3, 512, 512, 16) == 1 && flow_shift(&stdit3, 512, 512, 1) == 1);
    CHECK(flow_frames(&stdit3, 17) == 5 && flow_frames(&stdit3, 1) == 1);
    for (int i = 0; i < 3; i++) {
        const struct model_shape m = {
            .family = (int32_t[]){FAMILY_STDIT, FAMILY_LATTE, FAMILY_T2D}[i]};
        CHECK(flow_shift(&m, 512, 512, 1) == 1 && flow_frames(&m, 17) == 17);
        CHECK_MSG(flow_shift(&m, 512, 512, 16) == 4, "%g", flow_shift(&m, 512, 512, 16));
        CHECK(fabs(flow_shift(&m, 512, 512, 17) - sqrt(17)) < 1e-12);
    }
    CHECK(flow_time(0, 30, 4.8) == 1 && flow_time(30, 30, 4.8) == 0);
    CHECK(fabs(flow_time(15, 30, 3) - 0.75) < 1e-15); /* 3 / 2 / (1 + 1) */
}

static void test_clean_frames(void)
{
    const struct latents_sample x = {.T = 12, .height = 512, .width = 512, .num_frames = 12};
    const struct latents_sample one = {.T = 1, .height = 512, .width = 512, .num_frames = 1};
    enum { M = 4000 };
    sources_begin();
    for (int kind = 0; kind < 4; kind++) {
        int hit = 0;
        memset(spec->objective.frame_mask, 0, sizeof spec->objective.frame_mask);
        spec->objective.frame_mask[kind] = 0.4;
        for (int64_t n = 0; n < M; n++) {
            struct flow_draw d;
            int clean = 0;
            flow_draw(spec, &x, n, &d);
            for (int64_t f = 0; f < x.T; f++) clean += flow_clean(&d, f);
            hit += clean > 0;
            CHECK_MSG(clean <= (kind == 3 ? 6 : 3), "kind %d: %d clean", kind, clean);
            if (clean && kind == 1) CHECK(flow_clean(&d, 0) && !flow_clean(&d, 11));
            if (clean && kind == 2) CHECK(!flow_clean(&d, 0) && flow_clean(&d, 11));
            if (clean && kind == 3) CHECK(flow_clean(&d, 0) && flow_clean(&d, 11));
            flow_draw(spec, &one, n, &d);
            CHECK(!flow_clean(&d, 0));
        }
        CHECK_MSG(fabs(hit / (double)M - 0.4) < 2.5 / sqrt(M), "kind %d: %.3f", kind,
                  hit / (double)M);
    }
}

/* Returns the random word that determines the place of a frame in the random order. */
static uint32_t frame_word(const struct flow_draw *d, int64_t frame)
{
    const uint32_t key[2] = {(uint32_t)d->clean_some,
                             (uint32_t)(d->clean_some >> 32) ^ 0x666c6f77u};
    const uint32_t counter[4] = {(uint32_t)frame, UINT32_MAX, UINT32_MAX, 4};
    uint32_t w[4];
    philox4x32(key, counter, w);
    return w[0];
}

/* Checks the frames that are drawn to be clean. A frame must be clean if and only if fewer than
 * n_some frames precede it in the random order. The test counts the preceding frames one by one.
 * Also checks the number of clean frames in a very long sample. */
static void test_random_frames(void)
{
    struct latents_sample x = {.height = 512, .width = 512, .num_frames = 1};
    struct flow_draw d;
    sources_begin();
    memset(spec->objective.frame_mask, 0, sizeof spec->objective.frame_mask);
    spec->objective.frame_mask[0] = 1;
    for (x.T = 2; x.T <= 400; x.T += 1 + x.T / 7) {
        flow_draw(spec, &x, x.T, &d);
        CHECK(d.clean_some && d.n_some >= 1);
        for (int64_t f = 0; f < d.T; f++) {
            const uint32_t own = frame_word(&d, f);
            int64_t before = 0;
            for (int64_t k = 0; k < d.T; k++) {
                const uint32_t w = frame_word(&d, k);
                before += w < own || (w == own && k < f);
            }
            CHECK_MSG(flow_clean(&d, f) == (before < d.n_some), "frame %lld of %lld", (long long)f,
                      (long long)d.T);
        }
    }
    x.T = 65536;
    flow_draw(spec, &x, 5, &d);
    int64_t clean = 0;
    for (int64_t f = 0; f < d.T; f++) clean += flow_clean(&d, f);
    CHECK(clean == d.n_some);
}

/* ---- rows ------------------------------------------------------------------------------------ */

struct rows {
    float *patches, *target, *weight;
    int32_t *group;
};

static struct rows rows_new(int64_t n_rows, int64_t values)
{
    struct rows r = {malloc((size_t)(n_rows * values) * 4),
                     malloc((size_t)(2 * n_rows * values) * 4),
                     malloc((size_t)(n_rows * values) * 4), malloc((size_t)n_rows * 4)};
    if (!r.patches || !r.target || !r.weight || !r.group) abort();
    for (int64_t i = 0; i < n_rows * values; i++) r.patches[i] = r.weight[i] = NAN;
    for (int64_t i = 0; i < 2 * n_rows * values; i++) r.target[i] = NAN;
    return r;
}

static void rows_free(struct rows *r)
{
    free(r->patches), free(r->target), free(r->weight), free(r->group);
}

/* Compares rows with the definition, one value at a time. Checks the place of each value, the
 * value, and the number of values that the loss includes. */
static void check_rows(const struct latents_sample *x, const struct flow_draw *d,
                       const struct flow_rows *w, const struct rows *r, int64_t n_targets,
                       int64_t *counted)
{
    const int64_t *p = w->patch, n = p[0] * p[1] * p[2], C = x->C;
    for (int64_t i = 0; i < w->share; i++)
        for (int64_t t = 0; t < w->grid[0]; t++) {
            const int64_t s = w->s0 + i, row = i * w->grid[0] + t;
            const bool real = s < w->grid[1] * w->grid[2], clean = flow_clean(d, t);
            CHECK(r->group[row] == (real && clean));
            for (int64_t k = 0; k < n; k++)
                for (int64_t c = 0; c < C; c++) {
                    const int64_t frame = t * p[0] + k / (p[1] * p[2]);
                    const int64_t h = s / w->grid[2] * p[1] + k / p[2] % p[1];
                    const int64_t v = s % w->grid[2] * p[2] + k % p[2];
                    const bool in = real && frame < x->T && h < x->H && v < x->W;
                    const int64_t at = ((c * x->T + frame) * x->H + h) * x->W + v;
                    const float z = in ? value(at, 0) : 0;
                    float e1 = 0;
                    if (in) flow_noise(11, FLOW_TRAIN, 5, at, 1, &e1);
                    CHECK(r->patches[(row * C + c) * n + k] ==
                          (in ? (float)((clean ? 1 : d->keep) * z + (clean ? 0 : d->noise) * e1)
                              : 0));
                    const float *target = r->target + (row * n + k) * n_targets + c;
                    CHECK(n_targets == C ? *target == z - e1 : *target == e1 && target[C] == z);
                    CHECK(r->weight[row * n + k] == (in && !clean));
                    *counted += in && !clean;
                }
        }
}

/* Checks patches of 2 x 2 x 3 on 1 to 12 ranks. */
static void check_ranks(const struct shape *s, const struct flow_draw *draw, int64_t n_targets)
{
    struct latents_sample x;
    put_files(s);
    manifest(LINE "}");
    spec->model.shape.patch_t = 2, spec->model.shape.patch_h = 2, spec->model.shape.patch_w = 3;
    struct data *d = prepare_open();
    struct order_options oo = latents_order_options(spec, SET_TRAIN);
    struct data_order *o = order_open(d, &oo);
    CHECK(latents_sample(o, 0, &x, &e) == 0);
    for (int P = 1; P <= 12; P += P < 4 ? 1 : 4) {
        struct flow_rows w = {.patch = {2, 2, 3}};
        int64_t counted = 0;
        flow_grid(&spec->model.shape, &x, w.grid);
        CHECK(w.grid[0] == 3 && w.grid[1] == (s->H + 1) / 2 && w.grid[2] == (s->W + 2) / 3);
        w.share = (w.grid[1] * w.grid[2] + P - 1) / P;
        for (int rank = 0; rank < P; rank++) {
            w.s0 = rank * w.share;
            struct rows r = rows_new(w.share * 3, s->C * 12);
            const struct flow_out out = {r.patches, r.target, r.weight, r.group, n_targets};
            CHECK_MSG(flow_fill(d, &x, draw, 11, 5, &w, &out, &e) == 0, "%s", e.text);
            check_rows(&x, draw, &w, &r, n_targets, &counted);
            rows_free(&r);
        }
        CHECK_MSG(counted == flow_targets(&x, draw, 2), "P %d: %lld values, %lld counted", P,
                  (long long)flow_targets(&x, draw, 2), (long long)counted);
        CHECK(counted == (draw->clean_head ? 3 : 5) * s->C * s->H * s->W);
    }
    data_order_close(o);
    data_close(d);
}

/* Checks sizes that are not multiples of patches, more ranks than rows of patches, and clean
 * frames. Also checks lines with more than 1,024 values, which is the number read at a time. */
static void test_rows(void)
{
    static const struct shape small = {3, 5, 5, 7, 2, 3, ST_F32},
                              wide = {1, 5, 3, 2053, 2, 3, ST_F32};
    const struct flow_draw flow = {
        .t = 0.375, .told = 375, .keep = 0.625, .noise = 0.375, .T = 3, .clean_head = 1};
    const struct flow_draw noise = {.t = 600, .told = 600, .keep = 0.28, .noise = 0.96, .T = 3};
    check_ranks(&small, &flow, 3);
    check_ranks(&small, &noise, 6);
    check_ranks(&wide, &flow, 1);
}

int main(void)
{
    datadir_begin("latents");
    RUN(test_read);
    RUN(test_no_text);
    RUN(test_fit);
    RUN(test_fit_no_text);
    RUN(test_digest);
    RUN(test_refused);
    RUN(test_not_mixed);
    RUN(test_noise);
    RUN(test_times);
    RUN(test_shift);
    RUN(test_clean_frames);
    RUN(test_random_frames);
    RUN(test_rows);
    return datadir_end("latents");
}
