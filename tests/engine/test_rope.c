/* test_rope.c: compares the frequencies of RoPE with those that transformers 5.23 computes in
 * fp32, for parameters of published models. */
#include <math.h>
#include <string.h>
#include "tests/lib/test.h"
#include "worker/program/rope.h"

#define ULP 1.2e-7

enum { N_AT = 8 };

static const struct {
    struct shape_rope rope;
    double theta;
    int64_t dim, max_pos, S;
    double inv[N_AT]; /* the frequencies with the indices 0, 1, n/4, n/3, n/2, 2n/3, 3n/4, n-1,
                       * where n = dim / 2 */
    double scale;
    bool factors;
} cases[] = {
    {{.kind = ROPE_LINEAR, .factor = 4}, /* DeepSeek-Coder */
     1e5,
     128,
     16384,
     1,
     {0.25, 0.20884063839912415, 0.014058532193303108, 0.005718932952731848, 0.0007905694656074047,
      0.00013082477380521595, 4.4456985051510856e-05, 2.992712552440935e-06},
     1,
     false},
    {{.kind = ROPE_DYNAMIC, .factor = 2},
     1e4,
     64,
     4096,
     100000,
     {1, 0.6619369983673096, 0.03685813397169113, 0.01614978350698948, 0.001358521985821426,
      0.0001726433984003961, 5.007258732803166e-05, 2.7881535515916767e-06},
     1,
     false},
    {{.kind = ROPE_LLAMA3, .factor = 8, .low_freq = 1, .high_freq = 4, .original = 8192},
     5e5, /* Llama 3.1 */
     128,
     131072,
     1,
     {1, 0.8146172165870667, 0.03760603070259094, 0.013490419834852219, 0.0005248460220173001,
      2.2748929040972143e-05, 6.647869668086059e-06, 3.068925877869333e-07},
     1,
     false},
    {{.kind = ROPE_YARN, .factor = 4, .original = 32768}, /* Qwen3, to 131,072 */
     1e6,
     128,
     40960,
     1,
     {1, 0.8058422207832336, 0.03162277862429619, 0.010746078565716743, 0.0006029411451891065,
      2.8869548259535804e-05, 7.905693564680405e-06, 3.102344408034696e-07},
     1.138629436111989,
     false},
    {{.kind = ROPE_YARN,
      .factor = 32,
      .original = 4096,
      .beta_fast = 32,
      .beta_slow = 1,
      .no_truncate = 1},
     150000, /* gpt-oss */
     64,
     131072,
     1,
     {1, 0.6890442967414856, 0.05081327259540558, 0.019334999844431877, 0.0004564839182421565,
      1.253256959898863e-05, 4.099978468730114e-06, 3.023511396804679e-07},
     1.3465735902799727,
     false},
    {{.kind = ROPE_YARN, .factor = 40, .original = 4096, .mscale = 1, .mscale_all_dim = 0.5},
     1e4,
     64,
     163840,
     1,
     {1, 0.7498942017555237, 0.10000000149011612, 0.05623412877321243, 0.005500000435858965,
      0.0004149904125370085, 2.499999936844688e-05, 3.3338035336782923e-06},
     1.1557219901962608,
     false},
    /* the sizes of Phi-3-mini-128k, first short and then long */
    {{.kind = ROPE_LONGROPE, .original = 4096},
     1e4,
     96,
     131072,
     4096,
     {1, 0.8172318339347839, 0.0892857164144516, 0.040013693273067474, 0.008064515888690948,
      0.0016321471193805337, 0.000735294132027775, 8.24168382678181e-05},
     1.1902380714238083,
     true},
    {{.kind = ROPE_LONGROPE, .original = 4096},
     1e4,
     96,
     131072,
     4097,
     {1, 0.5502694249153137, 0.014285714365541935, 0.0051573202945292, 0.0007692307699471712,
      0.00012673142191488296, 5.263157800072804e-05, 4.945010459778132e-06},
     1.1902380714238083,
     true}};

static void set_shape(struct model_shape *m, size_t i)
{
    struct err e = {0};
    memset(m, 0, sizeof *m);
    m->rope = cases[i].rope;
    m->rope_theta = cases[i].theta;
    m->head_dim = cases[i].dim;
    m->max_pos = cases[i].max_pos;
    for (int j = 0; cases[i].factors && j < cases[i].dim / 2; j++) {
        m->rope.short_factor[j] = 1 + 0.01 * j;
        m->rope.long_factor[j] = 1 + 0.5 * j;
    }
    CHECK_MSG(rope_complete(m, &e) == 0, "%s", e.text);
}

/* Compares both modes with transformers. "hf" may differ only in the last bit of powf, which
 * differs between machines. "exact" may differ by the fp32 roundings of the steps of
 * transformers. */
static void test_against_transformers(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int hf = 0; hf < 2; hf++) {
            static struct model_shape m;
            double inv[64];
            set_shape(&m, i);
            m.rope.compute = hf ? ROPE_HF : ROPE_EXACT;
            const int64_t n = cases[i].dim / 2;
            const int64_t at[N_AT] = {0, 1, n / 4, n / 3, n / 2, 2 * n / 3, 3 * n / 4, n - 1};
            const double scale = rope_frequencies(&m, m.rope_theta, cases[i].S, 2 * n, inv);
            CHECK_MSG(fabs(scale - cases[i].scale) < 1e-12, "case %zu: scale %.17g", i, scale);
            for (int k = 0; k < N_AT; k++) {
                const double off = fabs(inv[at[k]] / cases[i].inv[k] - 1);
                CHECK_MSG(off <= (hf ? 1.01 : 8) * ULP, "case %zu %s pair %lld: %.9g, not %.9g", i,
                          hf ? "hf" : "exact", (long long)at[k], inv[at[k]], cases[i].inv[k]);
                if (hf) CHECK((double)(float)inv[at[k]] == inv[at[k]]);
            }
        }
}

static void test_length(void)
{
    static struct model_shape m;
    double a[32], b[32];
    set_shape(&m, 1);
    CHECK(rope_by_length(&m));
    rope_frequencies(&m, m.rope_theta, 7, 64, a);
    m.rope.kind = ROPE_DEFAULT;
    CHECK(!rope_by_length(&m));
    /* up to max_position_embeddings, the frequencies are the same as without scaling */
    rope_frequencies(&m, m.rope_theta, 7, 64, b);
    CHECK(memcmp(a, b, sizeof a) == 0);
}

/* Checks the frequencies of layers with a window. They follow the default rule, even if layers
 * without a window have a different rule. */
static void test_local(void)
{
    static struct model_shape m, plain;
    double a[32], b[32];
    set_shape(&m, 1);
    m.rope_local = 300;
    for (int hf = 0; hf < 2; hf++) {
        m.rope.compute = plain.rope.compute = hf ? ROPE_HF : ROPE_EXACT;
        rope_local_frequencies(&m, 64, a);
        rope_frequencies(&plain, 300, 7, 64, b);
        CHECK(memcmp(a, b, sizeof a) == 0);
    }
    CHECK(a[5] == (double)(float)a[5]);
}

static void test_refused(void)
{
    static const struct {
        struct shape_rope rope;
        const char *field;
    } v[] = {{{.kind = ROPE_LINEAR}, "model.config.rope_factor"},
             {{.kind = ROPE_DYNAMIC, .factor = 0.5}, "model.config.rope_factor"},
             {{.kind = ROPE_LLAMA3, .factor = 8}, "model.config.rope_low_freq_factor"},
             {{.kind = ROPE_LLAMA3, .factor = 8, .low_freq = 4, .high_freq = 1},
              "model.config.rope_high_freq_factor"},
             {{.kind = ROPE_YARN}, "model.config.rope_factor"},
             {{.kind = ROPE_LONGROPE, .factor = 4}, "model.config.rope_short_factor"}};
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        struct model_shape m = {
            .rope = v[i].rope, .rope_theta = 1e4, .head_dim = 64, .max_pos = 4096};
        struct err e = {0};
        CHECK(rope_complete(&m, &e) == -1);
        CHECK_STR(e.field, v[i].field);
    }
}

int main(void)
{
    RUN(test_against_transformers);
    RUN(test_length);
    RUN(test_local);
    RUN(test_refused);
    return test_done("rope");
}
