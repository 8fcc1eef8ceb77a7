/* test_random.c: checks random weights. Weights that are drawn from one seed must always be the
 * same, so their bits are compared with fixed digests. This is checked for several numbers of
 * threads and for parts of the weights, for every init and every dtype. The digests were computed
 * from the output of one thread that draws element after element.
 * tests: needs golden */
#include "api/core/job.h"
#include "api/core/sha256.h"
#include "tests/lib/adapter.h"
#include "tests/lib/engine.h"
#include "worker/family/config.h"
#include "worker/model/model.h"
#include "worker/plan/plan.h"

static struct err e;

struct drawn { /* one rank's slice of a model's weights */
    struct model_shape shape;
    int t; /* rank of shape.tp */
    int64_t n;
};

static const enum dtype types[] = {DT_F32, DT_F16, DT_BF16};
enum { N_TYPES = sizeof types / sizeof *types };
enum { SEED = 77 };

static struct be *open_threads(int n)
{
    struct be *be = be_open(&(struct be_options){.device = "cpu", .n_threads = n}, &e);
    CHECK_MSG(be, "%s", e.text);
    if (!be) abort();
    return be;
}

/* Draws weights into memory that is filled with other values than 0, because gaps between tensors
 * must be set to 0, too. */
static void *draw(struct be *be, const struct drawn *d, enum dtype dtype)
{
    char *out = malloc((size_t)(d->n * dtype_size(dtype)));
    if (!out) abort();
    memset(out, 0x5a, (size_t)(d->n * dtype_size(dtype)));
    model_random_part(be, &d->shape, d->t, SEED, 0, tensor_of(dtype, out, 1, d->n, d->n));
    return out;
}

/* Makes a model whose tensors begin and end within lines of the generator and within tasks of a
 * thread. Several tasks fill some of its tensors. A slice of a tensor may begin at any row. The
 * number of ids is odd, so the last of two ranks has one id less. */
static struct drawn wide(int tp, int t)
{
    static struct job_spec s;
    engine_spec(&s, 8);
    struct drawn d = {.shape = s.model.shape, .t = t};
    d.shape.vocab = 1501;
    d.shape.width = 68;
    d.shape.tp = tp;
    d.n = param_count(&d.shape);
    return d;
}

static void adapt(struct drawn *d)
{
    static struct job_spec s;
    spec_defaults(&s);
    s.model.shape = d->shape;
    adapter_shape(&s);
    d->shape = s.model.shape;
}

static struct drawn golden(const char *name)
{
    char path[64];
    struct drawn d = {.t = 0};
    snprintf(path, sizeof path, "tests/golden/%s", name + (*name == '+'));
    CHECK_MSG(config_read_dir(path, &d.shape, &e) == 0, "%s: %s (run from the repository's root)",
              name, e.text);
    if (*name == '+') adapt(&d);
    d.n = param_count(&d.shape);
    return d;
}

static const struct {
    const char *name; /* a name in tests/golden, with adapters after a "+"; NULL for wide() */
    int tp, t;
    const char *sha256[N_TYPES];
} known[] = {
    {NULL,
     0,
     0,
     {"b60a3e4793db263613fef8d85931b4c77790ce910b02efd955fbdf24319997e2",
      "b9ac3038b76ae837ab3c27ffeb359ac747f4dd97f26761b6698276982962805f",
      "4db9128d59b0a774bd035e2dddb555335c906621b4a40a1cb256b9b9b98efb79"}},
    {NULL,
     2,
     0,
     {"94e0374b0538116dc1ffad40dda501cc3c51e4c10fcb5e6df1ecd39b4348cb0e",
      "2402c7bd61500c9517b4fda9aacb462028fabcb717152aa2ab35d77b427a5a75",
      "56b5920e6592e33855b3b0f83d6d3f6cb5dda5e7605b6480ff9c9fcfccc992da"}},
    {NULL,
     2,
     1,
     {"d775e0bdd0f2ab6c0df28806f2eed96cf1913eb9405d2f8a383840fa59954fca",
      "e9a65bd5dfefcda3b24c8ad5499833d6f543f736c42e66351219727d5b34a7ec",
      "a305069a0b57f353cdb7b5fd330a3135ea9ef8c2d3cd1105c4f57032c322b33a"}},
    {"tnl",
     0,
     0,
     {"c5f4ac14a15d3740c16e1f2634826028176ef7fb462b25f0fb872e826e3db9d6",
      "c0f4cad908e29336101f7e2ff6bfc91da8d9e299a5c77a057fab2e167229f9da",
      "213b21d828c7f3ad1612eb3afcb86e275da438243ab507ddbb6629f4e1253e5e"}},
    {"qwen3_5",
     0,
     0,
     {"e1e58101dc3eeb27d8fb31d147c7248bef7b997d109e85939564611062e604b3",
      "0331303a6dacdca6bc706d80c15c785df309fade23cd334cf9923c7758edd3af",
      "0f7482a5dab1a3d35505ff22c4fe29edb376efbd3a13aab0d5d2b79816b55d42"}},
    {"stdit",
     0,
     0,
     {"f2b80bcc3b262b2f3ccbbde29f1a4855b23f78bfe62c1cfd8c1081d140687214",
      "22cdafb1740354bb67309e57ffbd444043a1d255b37dcd22a216f76d60b8f0f3",
      "cdd09ad48321b5dca715da0ef5ae2bbafad90debad398e82030af97ca7073db5"}},
    {"+qwen3",
     0,
     0,
     {"8e5bbe8e403f3158d77159ebb689985a5963ad4490ee2d4e837f8925dbbd98e8",
      "ce0112f09bcab6a47d6094f61bbcd4629c0db95871c4651e764ae58cde45d3b7",
      "9b608ac3b775525a6715f3d4aed6c759115b742928d1a87607240a42c7837055"}},
};
enum { N_KNOWN = sizeof known / sizeof *known };

static struct drawn known_model(int i)
{
    return known[i].name ? golden(known[i].name) : wide(known[i].tp, known[i].t);
}

static void test_known_bits(void)
{
    for (int threads = 1; threads <= 3; threads++) {
        struct be *be = open_threads(threads);
        for (int i = 0; i < N_KNOWN; i++) {
            const struct drawn d = known_model(i);
            for (int k = 0; k < N_TYPES; k++) {
                char hex[SHA256_HEX];
                struct sha256 sha;
                void *out = draw(be, &d, types[k]);
                sha256_init(&sha);
                sha256_add(&sha, out, (size_t)(d.n * dtype_size(types[k])));
                sha256_hex(&sha, hex);
                CHECK_MSG(!strcmp(hex, known[i].sha256[k]), "model %d, dtype %d, %d threads: %s", i,
                          types[k], threads, hex);
                free(out);
            }
        }
        be_close(be);
    }
}

/* Checks that the weights that are compared with digests include every kind of init. */
static void test_every_init(void)
{
    unsigned met = 0;
    for (int i = 0; i < N_KNOWN; i++) {
        const struct drawn d = known_model(i);
        for (int k = 0; k < param_tensors(&d.shape); k++) {
            struct param p;
            param_get(&d.shape, k, &p);
            met |= 1u << p.init;
        }
    }
    CHECK_MSG(met == (2u << INIT_DECAY) - 1, "inits met: %#x", met);
}

struct written {
    float *to;
    int64_t n;
};

static int take(void *arg, int64_t offset, int64_t n, const float *x, struct err *why)
{
    struct written *w = arg;
    (void)why;
    memcpy(w->to + offset, x, (size_t)n * sizeof *x);
    w->n += n;
    return 0;
}

/* Checks that a model has the same weights with and without adapters, and that adapters alone are
 * drawn as with the model. */
static void test_adapters(void)
{
    struct be *be = open_threads(1);
    const struct drawn bare = golden("qwen3"), d = golden("+qwen3");
    float *x = draw(be, &bare, DT_F32), *y = draw(be, &d, DT_F32);
    float *z = calloc((size_t)d.n, sizeof *z);
    struct written w = {z, 0};
    CHECK(!model_random_adapters(&d.shape, SEED, &(struct random_sink){take, &w}, &e));
    int n = 0;
    int64_t drawn = 0;
    for (int i = 0; i < param_tensors(&d.shape); i++) {
        struct param p, q;
        param_get(&d.shape, i, &p);
        const size_t size = (size_t)p.count * sizeof *x;
        if (p.adapter) {
            CHECK_MSG(!memcmp(y + p.offset, z + p.offset, size), "%s differs", p.name);
            drawn += p.count;
        } else {
            for (int k = 0; k < param_tensors(&bare.shape); k++) {
                param_get(&bare.shape, k, &q);
                if (strcmp(p.name, q.name)) continue;
                CHECK_MSG(!memcmp(y + p.offset, x + q.offset, size), "%s differs", p.name);
                n++;
            }
        }
    }
    CHECK(n == param_tensors(&bare.shape) && drawn > 0 && w.n == drawn);
    free(x), free(y), free(z);
    be_close(be);
}

/* Checks that drawing any part of the weights gives the same numbers as drawing all weights. Parts
 * begin and end in tensors, in gaps, in lines of the generator and in tasks of threads. */
static void test_parts(void)
{
    struct be *be = open_threads(2);
    for (int i = 0; i < N_KNOWN; i++) {
        const struct drawn d = known_model(i);
        float *whole = draw(be, &d, DT_F32), *part = malloc((size_t)d.n * 4);
        if (!part) abort();
        const int64_t step = d.n / 7 | 1;
        for (int64_t from = 1; from < d.n; from += step) {
            const int64_t n = d.n - from < 2 * step ? d.n - from : 2 * step;
            memset(part, 0x5a, (size_t)d.n * 4);
            model_random_part(be, &d.shape, d.t, SEED, from, tensor_f32(part, 1, n, n));
            CHECK_MSG(!memcmp(part, whole + from, (size_t)n * 4), "model %d from %lld", i,
                      (long long)from);
        }
        free(whole);
        free(part);
    }
    be_close(be);
}

int main(void)
{
    RUN(test_known_bits);
    RUN(test_every_init);
    RUN(test_adapters);
    RUN(test_parts);
    return test_done("random");
}
