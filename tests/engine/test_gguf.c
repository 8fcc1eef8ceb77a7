/* Checks GGUF files as models. Checks the sizes and the texts that are read from them. Compares
 * weights of every type and architecture with the values that were written. Checks files that are
 * refused. test_gguf_golden.c compares files with llama.cpp.
 * tests: needs api/JOBS.md */
#include "worker/gguf/gguf.h"

#include <math.h>
#include <sys/inotify.h>
#include <unistd.h>
#include "api/core/utf8.h"
#include "kernels/half.h"
#include "tests/lib/gguf_model.h"
#include "worker/family/config.h"
#include "worker/gguf/gguf_names.h"
#include "worker/gguf/model_file.h"
#include "worker/hf/files.h"
#include "worker/hf/hf.h"
#include "worker/hf/inspect.h"
#include "worker/rank/report.h"
#include "worker/text/chat_model.h"
#include "worker/text/tokenizer.h"

static char scratch[64];
static struct err e;

static const char *in_dir(const char *name)
{
    static char path[4][256];
    static int k;
    k = (k + 1) % 4;
    snprintf(path[k], sizeof path[k], "%s/%s", scratch, name);
    return path[k];
}

/* ---- values ---------------------------------------------------------------------------------- */

static void test_values(void)
{
    struct gguf_make g = {0};
    int64_t i;
    double x;
    const char *s;
    size_t n;
    const uint8_t *at = NULL;
    bytes_put(make_key(&g, "a.i8", GGUF_I8), "\xff", 1);
    bytes_put(make_key(&g, "a.u16", GGUF_U16), "\xfe\xff", 2);
    bytes_u64(make_key(&g, "a.u64", GGUF_U64), 1ull << 63);
    bytes_u64(make_key(&g, "a.i64", GGUF_I64), (uint64_t)-5);
    make_f32(&g, "a.f32", 1e-6f);
    x = 0.25;
    bytes_put(make_key(&g, "a.f64", GGUF_F64), &x, 8);
    make_bool(&g, "a.bool", 1);
    make_strs(&g, "a.list", (const char *const[]){"x", "", "\xc3\xa9"}, 3);
    make_file(&g, in_dir("values.gguf"));
    struct gguf *f = gguf_open(in_dir("values.gguf"), &e);
    CHECK_MSG(f && gguf_keys(f) == 8 && gguf_tensors(f) == 0, "%s", e.text);
    if (!f) return;
    CHECK(gguf_int(gguf_find(f, "a.i8"), 0, &i) && i == -1);
    CHECK(gguf_int(gguf_find(f, "a.u16"), 0, &i) && i == 65534);
    CHECK(!gguf_int(gguf_find(f, "a.u64"), 0, &i));
    CHECK(gguf_int(gguf_find(f, "a.i64"), 0, &i) && i == -5);
    CHECK(gguf_real(gguf_find(f, "a.f32"), 0, &x) && x == 1e-6);
    CHECK(gguf_real(gguf_find(f, "a.f64"), 0, &x) && x == 0.25);
    CHECK(!gguf_int(gguf_find(f, "a.bool"), 0, &i) && !gguf_find(f, "a.none"));
    const struct gguf_key *list = gguf_find(f, "a.list");
    for (int k = 0; k < 3; k++) gguf_string(list, &at, &s, &n);
    CHECK(list->array && list->n == 3 && n == 2 && !memcmp(s, "\xc3\xa9", 2));
    gguf_close(f);
}

/* ---- refused headers ------------------------------------------------------------------------- */

static const int64_t four_rows[] = {4, 32};

static void plain(struct gguf_make *g)
{
    static const float x[128];
    make_str(g, "general.architecture", "llama");
    make_tensor(g, "blk.0.attn_q.weight", 0, 2, four_rows, x, sizeof x);
}

static void bad_magic(struct gguf_bytes *b)
{
    b->at[0] = 'X';
}

static void bad_version(struct gguf_bytes *b)
{
    b->at[4] = 1;
}

static void bad_endian(struct gguf_bytes *b)
{
    b->at[4] = 0;
    b->at[7] = 3;
}

static void cut_data(struct gguf_bytes *b)
{
    b->n -= 64;
}

static void cut_header(struct gguf_bytes *b)
{
    b->n = 40;
}

static void count_63(struct gguf_bytes *b)
{
    memset(b->at + 16, 0, 8);
    b->at[23] = 0x80;
}

static void tensors_63(struct gguf_bytes *b)
{
    memset(b->at + 8, 0, 8);
    b->at[15] = 0x80;
}

static void no_change(struct gguf_bytes *b)
{
    (void)b;
}

static void key_twice(struct gguf_make *g)
{
    plain(g);
    make_u32(g, "llama.block_count", 1);
    make_u32(g, "llama.block_count", 1);
}

static void tensor_twice(struct gguf_make *g)
{
    static const float x[128];
    plain(g);
    make_tensor(g, "blk.0.attn_q.weight", 0, 2, four_rows, x, sizeof x);
}

static void nul(struct gguf_make *g)
{
    plain(g);
    bytes_str(make_key(g, "general.name", GGUF_STRING), "a\0b", 3);
}

static void no_utf8(struct gguf_make *g)
{
    plain(g);
    make_strs(g, "tokenizer.ggml.tokens", (const char *const[]){"\xff"}, 1);
}

static void long_string(struct gguf_make *g)
{
    bytes_u64(make_key(g, "general.name", GGUF_STRING), 1ull << 63);
}

static void long_array(struct gguf_make *g)
{
    make_array(g, "tokenizer.ggml.scores", GGUF_F32, 1ull << 62);
}

static void long_list(struct gguf_make *g)
{
    make_array(g, "tokenizer.ggml.tokens", GGUF_STRING, 1ull << 61);
}

static void nested(struct gguf_make *g)
{
    make_array(g, "general.x", GGUF_ARRAY, 1);
}

static void no_type(struct gguf_make *g)
{
    make_key(g, "general.x", 13);
}

static void odd_bool(struct gguf_make *g)
{
    make_bool(g, "tokenizer.ggml.add_bos_token", 2);
    plain(g);
}

static void odd_name(struct gguf_make *g)
{
    make_u32(g, "general\n", 1);
}

static void alignment(struct gguf_make *g)
{
    plain(g);
    make_u32(g, "general.alignment", 24);
}

static void overlap(struct gguf_make *g)
{
    plain(g);
    make_info(g, "blk.0.attn_k.weight", 0, 2, four_rows, 0);
}

static void hole(struct gguf_make *g)
{
    plain(g);
    make_info(g, "blk.0.attn_k.weight", 0, 2, four_rows, 1024);
}

static void beyond(struct gguf_make *g)
{
    plain(g);
    make_info(g, "blk.0.attn_k.weight", 0, 2, four_rows, 512);
}

static void huge(struct gguf_make *g)
{
    plain(g);
    make_info(g, "blk.0.attn_k.weight", 0, 2, (const int64_t[]){1ll << 31, 1ll << 32}, 512);
}

static void zero(struct gguf_make *g)
{
    plain(g);
    make_info(g, "blk.0.attn_k.weight", 0, 2, (const int64_t[]){0, 32}, 512);
}

static void no_blocks(struct gguf_make *g)
{
    plain(g);
    make_info(g, "blk.0.attn_k.weight", 8, 2, (const int64_t[]){32, 31}, 512);
}

static void k_quant(struct gguf_make *g)
{
    plain(g);
    make_info(g, "output.weight", 14, 2, (const int64_t[]){4, 256}, 512);
}

static void newer_type(struct gguf_make *g)
{
    plain(g);
    make_info(g, "output.weight", 99, 2, (const int64_t[]){4, 256}, 512);
}

static void split(struct gguf_make *g)
{
    plain(g);
    bytes_put(make_key(g, "split.count", GGUF_U16), "\x03\0", 2);
}

static void more_keys(struct gguf_make *g)
{
    plain(g);
    g->more_keys = 5000;
}

static void more_tensors(struct gguf_make *g)
{
    plain(g);
    g->more_tensors = 1;
}

static void test_refused(void)
{
    static const struct {
        void (*make)(struct gguf_make *g);
        void (*change)(struct gguf_bytes *b);
        enum err_code code;
        const char *text;
    } cases[] = {
        {plain, bad_magic, ERR_CORRUPT, "does not begin with \"GGUF\""},
        {plain, bad_version, ERR_UNSUPPORTED, "version 1"},
        {plain, bad_endian, ERR_UNSUPPORTED, "big-endian"},
        {plain, cut_data, ERR_CORRUPT, "blk.0.attn_q.weight: its bytes lie beyond"},
        {plain, cut_header, ERR_CORRUPT, "key 1 of 1: the file is truncated"},
        {plain, count_63, ERR_TOO_LARGE, "9223372036854775808 keys"},
        {plain, tensors_63, ERR_TOO_LARGE, "9223372036854775808 tensors"},
        {key_twice, no_change, ERR_CORRUPT, "key llama.block_count occurs twice"},
        {tensor_twice, no_change, ERR_CORRUPT, "tensor blk.0.attn_q.weight occurs twice"},
        {nul, no_change, ERR_CORRUPT, "key general.name: a string holds a NUL"},
        {no_utf8, no_change, ERR_CORRUPT, "key tokenizer.ggml.tokens: a string is not UTF-8"},
        {long_string, no_change, ERR_CORRUPT, "key general.name: the file is truncated"},
        {long_array, no_change, ERR_CORRUPT, "key tokenizer.ggml.scores: its array is longer"},
        {long_list, no_change, ERR_CORRUPT, "key tokenizer.ggml.tokens: its array is longer"},
        {nested, no_change, ERR_CORRUPT, "key general.x: its value is an array of arrays"},
        {no_type, no_change, ERR_CORRUPT, "key general.x: its value has a type"},
        {odd_bool, no_change, ERR_CORRUPT, "add_bos_token: a bool is neither 0 nor 1"},
        {odd_name, no_change, ERR_CORRUPT, "key 1 of 1: its name is not a word"},
        {alignment, no_change, ERR_CORRUPT, "general.alignment is 24"},
        {overlap, no_change, ERR_CORRUPT, "tensor blk.0.attn_k.weight: its offset"},
        {hole, no_change, ERR_CORRUPT, "tensor blk.0.attn_k.weight: its offset"},
        {beyond, no_change, ERR_CORRUPT, "tensor blk.0.attn_k.weight: its bytes lie beyond"},
        {huge, no_change, ERR_CORRUPT, "tensor blk.0.attn_k.weight: its dimensions"},
        {zero, no_change, ERR_CORRUPT, "tensor blk.0.attn_k.weight: its dimensions"},
        {no_blocks, no_change, ERR_CORRUPT, "tensor blk.0.attn_k.weight: its rows"},
        {k_quant, no_change, ERR_UNSUPPORTED, "tensor output.weight has type Q6_K"},
        {newer_type, no_change, ERR_UNSUPPORTED, "tensor output.weight has type unknown (99)"},
        {split, no_change, ERR_UNSUPPORTED, "llama-gguf-split --merge"},
        {more_keys, no_change, ERR_TOO_LARGE, "5001 keys"},
        {more_tensors, no_change, ERR_CORRUPT, "tensor 2 of 2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gguf_make g = {0};
        cases[i].make(&g);
        struct gguf_bytes b = make_finish(&g);
        cases[i].change(&b);
        CHECK(!file_write(in_dir("bad.gguf"), b.at, b.n, &e));
        e = (struct err){0};
        struct gguf *f = gguf_open(in_dir("bad.gguf"), &e);
        CHECK_MSG(!f && e.code == cases[i].code && strstr(e.text, cases[i].text),
                  "%zu: want \"%s\", got %d \"%s\"", i, cases[i].text, (int)e.code, e.text);
        gguf_close(f);
        free(b.at);
    }
    CHECK(!gguf_open(in_dir("nowhere.gguf"), &e) && e.code == ERR_NOT_FOUND);
}

/* Checks that every prefix of a valid file is refused, unless it contains all data that the header
 * describes. */
static void test_prefixes(void)
{
    struct gguf_make g = {0};
    plain(&g);
    make_strs(&g, "tokenizer.ggml.tokens", (const char *const[]){"a", "b"}, 2);
    struct gguf_bytes b = make_finish(&g);
    for (size_t n = 0; n < b.n; n++) {
        CHECK(!file_write(in_dir("cut.gguf"), b.at, n, &e));
        struct gguf *f = gguf_open(in_dir("cut.gguf"), &e);
        CHECK_MSG(!f, "%zu of %zu bytes", n, b.n);
        gguf_close(f);
    }
    free(b.at);
}

/* ---- models ---------------------------------------------------------------------------------- */

static int take_any(void *arg, int64_t offset, int64_t n, const float *x, struct err *err)
{
    (void)err;
    memcpy((float *)arg + offset, x, (size_t)n * sizeof *x);
    return 0;
}

static int take_any_half(void *arg, int64_t offset, int64_t n, const uint16_t *x, struct err *err)
{
    (void)err;
    half_widen(DT_BF16, x, (float *)arg + offset, n);
    return 0;
}

static void check_loads(const char *path, const struct model_shape *m, const float *want)
{
    const size_t n = (size_t)param_count(m);
    float *got = malloc(n * 4);
    uint16_t *half = malloc(n * 2), *want_half = malloc(n * 2);
    struct be *be = be_open(&(struct be_options){.device = "cpu", .n_threads = 2}, &e);
    struct hf_sink to = {.take = take_any, .arg = got};
    CHECK_MSG(!hf_load(path, m, DT_F32, got, &e), "%s", e.text);
    CHECK(!memcmp(want, got, n * 4));
    memset(got, 0, n * 4);
    CHECK_MSG(!hf_load_pieces(path, m, &to, &e), "%s", e.text);
    CHECK(!memcmp(want, got, n * 4));
    memset(got, 0, n * 4);
    to.be = be;
    to.any_order = true;
    CHECK_MSG(!hf_load_pieces(path, m, &to, &e), "%s", e.text);
    CHECK(!memcmp(want, got, n * 4));
    half_narrow(DT_BF16, want, want_half, (int64_t)n);
    CHECK_MSG(!hf_load(path, m, DT_BF16, half, &e), "%s", e.text);
    CHECK(!memcmp(want_half, half, n * 2));
    to.take_half = take_any_half; /* the sink accepts only plain bf16 */
    to.half = DT_BF16;
    memset(got, 0, n * 4);
    CHECK_MSG(!hf_load_pieces(path, m, &to, &e), "%s", e.text);
    CHECK(!memcmp(want, got, n * 4));
    be_close(be);
    free(got), free(half), free(want_half);
}

static void check_inspected(const char *path, const struct model_shape *m, const char *dtypes)
{
    static struct faults f;
    struct hf_summary s;
    f.n = 0;
    hf_inspect(path, &s, &f);
    CHECK_MSG(s.loads && s.known && !f.n, "%s", f.n ? f.fault[0].text : "");
    CHECK_MSG(strstr(s.dtypes, dtypes), "%s in %s", dtypes, s.dtypes);
    CHECK(s.weights_size > 0 && !hf_shape_diff(m, &s.shape) && s.tokenizer == TOKENIZER_NONE);
}

static void check_model(const struct gguf_case *c, int type, const char *dtype)
{
    static struct model_shape m, own;
    char text[4096];
    const char *path = in_dir("model.gguf");
    gguf_shape(c, &m);
    float *want = gguf_make_model(c, &m, type, path);
    CHECK_MSG(!hf_read_dir(path, &own, &e), "%s: %s", c->arch, e.text);
    CHECK_MSG(!hf_shape_diff(&m, &own), "%s: %s", c->arch, hf_shape_diff(&m, &own));
    CHECK_MSG(!memcmp(&m.rope, &own.rope, sizeof m.rope) && m.rope_theta == own.rope_theta &&
                  m.rope_local == own.rope_local && m.norm_eps == own.norm_eps &&
                  m.window == own.window && m.attn_scalar == own.attn_scalar &&
                  m.max_pos == own.max_pos,
              "%s", c->arch);
    CHECK_MSG(hf_describe(path, text, sizeof text, &e) > 0, "%s: %s", c->arch, e.text);
    check_loads(path, &own, want);
    check_inspected(path, &own, dtype);
    free(want);
}

static void test_models(void)
{
    static const struct {
        int type;
        const char *name;
    } types[] = {{0, "F32"}, {1, "F16"}, {30, "BF16"}, {8, "Q8_0"}, {2, "Q4_0"}, {3, "Q4_1"}};
    for (int i = 0; i < GGUF_MODELS; i++)
        for (size_t t = 0; t < sizeof types / sizeof *types; t++)
            if (!small_leaves(i + (int64_t)t, 2))
                check_model(&gguf_models[i], types[t].type, types[t].name);
}

/* ---- refused models -------------------------------------------------------------------------- */

static void other_arch(struct gguf_make *g)
{
    make_str(g, "general.architecture", "mamba");
}

static void no_arch(struct gguf_make *g)
{
    make_str(g, "general.name", "x");
}

static void unknown_key(struct gguf_make *g)
{
    add_sizes(g, &gguf_models[0]);
    make_f32(g, "llama.logit_scale", 2);
}

static void experts(struct gguf_make *g)
{
    add_sizes(g, &gguf_models[0]);
    make_u32(g, "llama.expert_count", 8);
}

static void partial_rope(struct gguf_make *g)
{
    add_sizes(g, &gguf_models[0]);
    make_u32(g, "llama.rope.dimension_count", 16);
}

static void long_rope(struct gguf_make *g)
{
    add_sizes(g, &gguf_models[0]);
    make_str(g, "llama.rope.scaling.type", "longrope");
    make_tensor(g, "token_embd.weight", 0, 2, four_rows, (const float[128]){0}, 512);
}

static void other_factors(struct gguf_make *g)
{
    static const float x[16] = {1, 1, 3, 1, 7};
    add_sizes(g, &gguf_models[0]);
    make_tensor(g, "token_embd.weight", 0, 2, four_rows, (const float[128]){0}, 512);
    make_tensor(g, "rope_freqs.weight", 0, 1, (const int64_t[]){16}, x, sizeof x);
}

static void no_embedding(struct gguf_make *g)
{
    add_sizes(g, &gguf_models[0]);
}

static void no_heads(struct gguf_make *g)
{
    make_str(g, "general.architecture", "llama");
    make_u32(g, "llama.embedding_length", 64);
    make_u32(g, "llama.block_count", 2);
    make_u32(g, "llama.feed_forward_length", 2);
    make_u32(g, "llama.context_length", 2);
    make_u32(g, "llama.attention.head_count", 0);
}

static void no_eps(struct gguf_make *g)
{
    gguf_without = "attention.layer_norm_rms_epsilon";
    add_sizes(g, &gguf_models[0]);
    gguf_without = NULL;
    make_f32(g, "llama.attention.layer_norm_rms_epsilon", 0);
}

static void no_base(struct gguf_make *g)
{
    gguf_without = "rope.freq_base";
    add_sizes(g, &gguf_models[0]);
    gguf_without = NULL;
    make_f32(g, "llama.rope.freq_base", -1);
    make_tensor(g, "token_embd.weight", 0, 2, four_rows, (const float[128]){0}, 512);
}

static void uneven(struct gguf_make *g)
{
    make_str(g, "general.architecture", "llama");
    make_u32(g, "llama.embedding_length", 64);
    make_u32(g, "llama.block_count", 2);
    struct gguf_bytes *b = make_array(g, "llama.feed_forward_length", GGUF_U32, 2);
    bytes_u32(b, 96);
    bytes_u32(b, 64);
}

static void test_refused_models(void)
{
    static const struct {
        void (*make)(struct gguf_make *g);
        enum err_code code;
        const char *text;
    } cases[] = {
        {other_arch, ERR_UNSUPPORTED, "general.architecture is \"mamba\""},
        {no_arch, ERR_CORRUPT, "general.architecture is missing"},
        {unknown_key, ERR_UNSUPPORTED, "llama.logit_scale is a key that is not known"},
        {experts, ERR_UNSUPPORTED, "llama.expert_count is not 0"},
        {partial_rope, ERR_UNSUPPORTED, "16 of them turned by RoPE"},
        {long_rope, ERR_UNSUPPORTED, "llama.rope.scaling.type is \"longrope\""},
        {other_factors, ERR_UNSUPPORTED, "rope_freqs.weight is not the table"},
        {no_embedding, ERR_CORRUPT, "token_embd.weight is missing"},
        {no_heads, ERR_CORRUPT, "attention.head_count 0"},
        {no_eps, ERR_CORRUPT, "rms_epsilon is not a number above 0"},
        {no_base, ERR_CORRUPT, "llama.rope.freq_base is not a number above 0"},
        {uneven, ERR_UNSUPPORTED, "llama.feed_forward_length differs between layers"},
    };
    static struct model_shape m;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gguf_make g = {0};
        cases[i].make(&g);
        make_file(&g, in_dir("bad.gguf"));
        e = (struct err){0};
        CHECK_MSG(hf_read_dir(in_dir("bad.gguf"), &m, &e) == -1 && e.code == cases[i].code &&
                      strstr(e.text, cases[i].text),
                  "want \"%s\", got %d \"%s\"", cases[i].text, (int)e.code, e.text);
    }
}

/* Checks missing keys. The error must name a missing key if llama.cpp requires the key, or if the
 * defaults of the key in llama.cpp and in transformers differ. Every other missing key must get
 * its default value. */
static void test_missing_keys(void)
{
    static const struct {
        int model; /* an index in gguf_models */
        const char *key;
        bool needed;
    } cases[] = {
        {0, "context_length", true},
        {0, "embedding_length", true},
        {0, "block_count", true},
        {0, "feed_forward_length", true},
        {0, "attention.head_count", true},
        {0, "attention.layer_norm_rms_epsilon", true},
        {2, "attention.layer_norm_rms_epsilon", true},
        {3, "attention.layer_norm_rms_epsilon", true},
        {5, "attention.layer_norm_rms_epsilon", true},
        {5, "attention.sliding_window", true},
        {5, "rope.freq_base", true},
        {0, "rope.freq_base", false},
        {2, "rope.freq_base", false},
        {3, "rope.freq_base", false},
        {0, "vocab_size", false},
    };
    static struct model_shape m, own;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct gguf_case *c = &gguf_models[cases[i].model];
        char want[160];
        gguf_shape(c, &m);
        gguf_without = cases[i].key;
        free(gguf_make_model(c, &m, 8, in_dir("less.gguf")));
        gguf_without = NULL;
        e = (struct err){0};
        snprintf(want, sizeof want, "less.gguf: %s.%s is missing", c->arch, cases[i].key);
        if (cases[i].needed)
            CHECK_MSG(hf_read_dir(in_dir("less.gguf"), &own, &e) == -1 && strstr(e.text, want),
                      "want \"%s\", got \"%s\"", want, e.text);
        else
            CHECK_MSG(!hf_read_dir(in_dir("less.gguf"), &own, &e), "%s", e.text);
    }
}

static struct faults faults;

/* Finds all faults of a model and counts them in `faults`. */
static void look(const char *name)
{
    static struct hf_summary s;
    faults = (struct faults){0};
    hf_inspect(in_dir(name), &s, &faults);
}

static bool fault(const char *text)
{
    for (int i = 0; i < faults_kept(&faults); i++)
        if (strstr(faults.fault[i].text, text)) return true;
    return false;
}

/* Checks that the error names a tensor that is missing, that is not in the model, or that has a
 * wrong shape. */
static void test_other_tensors(void)
{
    static struct model_shape m;
    char text[4096];
    struct gguf_make g = {0};
    int n;
    gguf_shape(&gguf_models[0], &m);
    float *flat = calloc((size_t)param_count(&m), sizeof *flat);
    struct param *list = hf_list(&m, &n, &e);
    add_sizes(&g, &gguf_models[0]);
    for (int i = 0; i < n; i++)
        if (!strstr(list[i].name, "1.mlp.down_proj"))
            add_param(&g, &gguf_models[0], &list[i], 8, flat);
    make_tensor(&g, "blk.0.attn_sinks.weight", 0, 1, (const int64_t[]){4}, (const float[4]){0}, 16);
    make_file(&g, in_dir("bad.gguf"));
    CHECK(hf_describe(in_dir("bad.gguf"), text, sizeof text, &e) == -1);
    CHECK_MSG(strstr(e.text, "bad.gguf: its tensors do not fit its keys: blk.1.ffn_down.weight is "
                             "missing, blk.0.attn_sinks.weight is unexpected") &&
                  !strstr(e.text, "config.json"),
              "%s", e.text);
    look("bad.gguf");
    CHECK(faults.n == 2 && fault("blk.1.ffn_down.weight is missing: its keys and its tensors"));
    free(list);
    free(flat);
}

/* Checks that errors use the file's name of a tensor. */
static void test_names(void)
{
    static struct model_shape m;
    char want[128], got[GGUF_NAME_SIZE];
    for (int i = 0; i < GGUF_MODELS; i++) {
        int n;
        struct gguf_make g = {0};
        gguf_shape(&gguf_models[i], &m);
        add_sizes(&g, &gguf_models[i]);
        make_file(&g, in_dir("names.gguf"));
        struct gguf *f = gguf_open(in_dir("names.gguf"), &e);
        const struct gguf_arch *a = f ? gguf_arch(f, &e) : NULL;
        struct param *list = hf_list(&m, &n, &e);
        for (int k = 0; a && k < n; k++) {
            gguf_name(&gguf_models[i], list[k].name, want);
            gguf_name_of(a, list[k].name, got);
            CHECK_STR(got, want);
        }
        CHECK_MSG(a, "%s", e.text);
        if (a) gguf_name_of(a, "model.layers.x.mlp.up_proj.weight", got);
        CHECK_STR(got, "model.layers.x.mlp.up_proj.weight");
        free(list);
        gguf_close(f);
    }
}

/* Checks that the error for a damaged key has the name of the key in the GGUF file, and not the
 * name in config.json. */
static void test_keys_in_errors(void)
{
    static struct model_shape m;
    struct gguf_case c = gguf_models[0];
    gguf_shape(&c, &m);
    float *flat = gguf_make_model(&c, &m, 8, in_dir("keys.gguf"));
    size_t size;
    char *bytes = file_read(in_dir("keys.gguf"), 1 << 24, &size, &e);
    static const char key[] = "llama.attention.head_count_kv";
    char *at = bytes ? memmem(bytes, size, key, sizeof key - 1) : NULL;
    CHECK(at);
    if (at) at[sizeof key - 1 + 4] = 3; /* 3 of 4 heads */
    CHECK(!file_write(in_dir("keys.gguf"), bytes, size, &e));
    e = (struct err){0};
    CHECK(hf_read_dir(in_dir("keys.gguf"), &m, &e) == -1);
    CHECK_MSG(strstr(e.text, "keys.gguf: llama.attention.head_count_kv 3 does not divide "
                             "llama.attention.head_count 4: fetch the file again") &&
                  !*e.field,
              "%s: %s", e.field, e.text);
    look("keys.gguf");
    CHECK(faults.n == 1 && fault("llama.attention.head_count_kv 3"));
    free(bytes);
    free(flat);
}

/* ---- directories ----------------------------------------------------------------------------- */

static void test_directories(void)
{
    static struct model_shape m, own;
    char path[FILE_PATH_SIZE];
    gguf_shape(&gguf_models[3], &m);
    CHECK(!file_make_dir(in_dir("one"), &e) && !file_make_dir(in_dir("two"), &e));
    free(gguf_make_model(&gguf_models[3], &m, 8, in_dir("one/a.gguf")));
    free(gguf_make_model(&gguf_models[3], &m, 8, in_dir("two/a.gguf")));
    free(gguf_make_model(&gguf_models[3], &m, 8, in_dir("two/b.GGUF")));
    CHECK_MSG(!hf_read_dir(in_dir("one"), &own, &e) && !hf_shape_diff(&m, &own), "%s", e.text);
    CHECK(hf_read_dir(in_dir("two"), &own, &e) == -1 && e.code == ERR_INVALID &&
          strstr(e.text, "2 .gguf files"));
    CHECK(!hf_read_dir(in_dir("two/b.GGUF"), &own, &e));
    /* A directory with a config.json counts as a directory of transformers. */
    CHECK(!file_write(in_dir("one/config.json"), "{}", 2, &e));
    CHECK(model_file_gguf(in_dir("one"), path, &e) == 0);
    CHECK(!file_write(in_dir("one/config.json"), gguf_models[3].config,
                      strlen(gguf_models[3].config), &e));
    look("one"); /* its weights still come from the GGUF file */
    CHECK_MSG(faults.n == 1 &&
                  fault("no index of shards, but 1 .gguf file beside its config.json "
                        "(a.gguf): name one in model.path") &&
                  !fault("fetch"),
              "%s", faults.fault[0].text);
    /* A file whose name has characters that an error cannot show does not count as a file of the
     * model. */
    CHECK(!file_make_dir(in_dir("shown"), &e));
    free(gguf_make_model(&gguf_models[3], &m, 8, in_dir("shown/a\x1b[2J.gguf")));
    CHECK(hf_read_dir(in_dir("shown"), &own, &e) == -1 && e.code == ERR_NOT_FOUND);
    CHECK_MSG(utf8_plain(e.text) && strstr(e.text, "shown has no config.json"), "%s", e.text);
    CHECK(!truncate(in_dir("shown/a\x1b[2J.gguf"), 30));
    look("shown");
    CHECK_MSG(faults.n && utf8_plain(faults.fault[0].text), "%s", faults.fault[0].text);
    free(gguf_make_model(&gguf_models[3], &m, 8, in_dir("shown/b.gguf")));
    CHECK_MSG(!hf_read_dir(in_dir("shown"), &own, &e), "%s", e.text);
    CHECK(!symlink("b.GGUF", in_dir("two/blob")) && !hf_read_dir(in_dir("two/blob"), &own, &e));
}

/* Checks errors for a GGUF file with an unexpected name, for parts of a GGUF file, and for a file
 * of a different format. Each error must name the fix. */
static void test_other_names(void)
{
    static struct model_shape m, own;
    static const struct {
        const char *name, *bytes, *text;
    } files[] = {
        {"other/model.safetensors", "\10\0\0\0", "give the directory that it lies in"},
        {"other/ggml-model.bin", "tjgg", "a format of llama.cpp before GGUF: make it again"},
        {"other/weights", "abcd", "the directory that has the model's config.json"},
    };
    gguf_shape(&gguf_models[3], &m);
    CHECK(!file_make_dir(in_dir("other"), &e) && !file_make_dir(in_dir("parts"), &e));
    free(gguf_make_model(&gguf_models[3], &m, 8, in_dir("other/q8.bin")));
    CHECK(hf_read_dir(in_dir("other"), &own, &e) == -1);
    CHECK_MSG(strstr(e.text, "no config.json") && strstr(e.text, "give q8.bin in model.path"), "%s",
              e.text);
    look("other");
    CHECK_MSG(fault("give q8.bin in model.path"), "%s", faults.fault[0].text);
    CHECK_MSG(!hf_read_dir(in_dir("other/q8.bin"), &own, &e), "%s", e.text);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        CHECK(!file_write(in_dir(files[i].name), files[i].bytes, 4, &e));
        look(files[i].name);
        CHECK_MSG(faults.n == 1 && fault(files[i].text), "%d: %s", faults.n, faults.fault[0].text);
    }
    free(gguf_make_model(&gguf_models[3], &m, 8, in_dir("parts/a-00001-of-00002.gguf")));
    free(gguf_make_model(&gguf_models[3], &m, 8, in_dir("parts/a-00002-of-00002.gguf")));
    look("parts");
    CHECK_MSG(faults.n == 1 && fault("join them by llama-gguf-split --merge"), "%s",
              faults.fault[0].text);
}

/* ---- tokenizers ------------------------------------------------------------------------------ */

static void test_own_files(void)
{
    struct gguf_make g = {0};
    struct hf_files taken;
    struct token_ends ends;
    struct chat_model chat;
    int32_t kind;
    const char *path = in_dir("own.gguf");
    add_sizes(&g, &gguf_models[0]);
    add_tokens(&g, "gpt2", "gpt-2", true);
    make_str(&g, "tokenizer.chat_template", "{{ bos_token }}x");
    make_file(&g, path);
    CHECK_MSG(!hf_tokenizer_of(path, &kind, &e) && kind == TOKENIZER_OWN, "%s", e.text);
    CHECK_MSG(!hf_read_ends(path, &ends, &e) && ends.n == 2 && ends.id[0] == 0 && ends.id[1] == 4,
              "%s", e.text);
    const struct hf_take take = {path, in_dir("taken"), true, NULL, NULL};
    CHECK_MSG(!hf_take_files(&take, &taken, &e) && taken.n == 4, "%s", e.text);
    /* The copies have the same texts as the file. */
    const char *const from[] = {path, in_dir("taken")};
    for (int i = 0; i < 2; i++) {
        struct tokens ids = {0};
        struct tokenizer *t = tokenizer_open(from[i], &e);
        CHECK_MSG(t && !tokenizer_encode(t, "ab!a", 4, true, &ids, &e), "%s", e.text);
        CHECK(ids.n == 4 && ids.id[0] == 0 && ids.id[1] == 3 && ids.id[2] == 5 && ids.id[3] == 1);
        CHECK(t && tokenizer_special(t)->bos == 0);
        CHECK_MSG(!chat_model_open(&chat, from[i], &e) && chat.t, "%s", e.text);
        chat_model_close(&chat);
        text_tokens_fini(&ids);
        tokenizer_destroy(t);
    }
}

/* Checks at which ids texts end. A text ends at the ids that the file's keys name, and at ids
 * whose text is a known end marker. The ids must be in the order of the model's
 * generation_config.json. */
static void test_ends(void)
{
    static const char *const tokens[] = {"<eos>", "x", "<end_of_turn>", "</s>", "<|eot_id|>",
                                         "y",     "z", "<|im_end|>"};
    static const int32_t types[] = {3, 1, 4, 1, 3, 3, 3, 3}, want[] = {4, 5, 6, 0, 2, 7};
    struct gguf_make g = {0};
    struct token_ends ends;
    add_sizes(&g, &gguf_models[0]);
    make_str(&g, "tokenizer.ggml.model", "gpt2");
    make_strs(&g, "tokenizer.ggml.tokens", tokens, 8);
    bytes_put(make_array(&g, "tokenizer.ggml.token_type", GGUF_I32, 8), types, sizeof types);
    make_u32(&g, "tokenizer.ggml.eos_token_id", 4);
    make_u32(&g, "tokenizer.ggml.eot_token_id", 5);
    make_u32(&g, "tokenizer.ggml.eom_token_id", 6);
    make_file(&g, in_dir("ends.gguf"));
    CHECK_MSG(!hf_read_ends(in_dir("ends.gguf"), &ends, &e), "%s", e.text);
    CHECK_MSG(ends.n == 6 && !memcmp(ends.id, want, sizeof want), "%d: %d %d %d %d", ends.n,
              ends.id[0], ends.id[1], ends.id[2], ends.id[3]);
}

/* Checks markers that do not end texts if the file also has certain markers. (In this case
 * llama.cpp removes the former from its set of end markers.) */
static void test_no_ends(void)
{
    static const struct {
        const char *tokens[4];
        int n, ids[4];
    } cases[] = {
        {{"<|end|>", "<|return|>", "<|call|>", "x"}, 2, {1, 2}},
        {{"<|end|>", "<|return|>", "y", "x"}, 2, {0, 1}},
        {{"</s>", "<|tool_response>", "<eos>", "x"}, 1, {2}},
        {{"</s>", "y", "<eos>", "x"}, 2, {0, 2}},
    };
    static const int32_t types[] = {3, 3, 4, 1};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int named = 0; named < 2; named++) {
            struct gguf_make g = {0};
            struct token_ends ends;
            int found = 0;
            add_sizes(&g, &gguf_models[0]);
            make_str(&g, "tokenizer.ggml.model", "gpt2");
            make_strs(&g, "tokenizer.ggml.tokens", cases[i].tokens, 4);
            bytes_put(make_array(&g, "tokenizer.ggml.token_type", GGUF_I32, 4), types,
                      sizeof types);
            if (named) make_u32(&g, "tokenizer.ggml.eos_token_id", 0);
            make_file(&g, in_dir("none.gguf"));
            CHECK_MSG(!hf_read_ends(in_dir("none.gguf"), &ends, &e), "%s", e.text);
            for (int k = 0; k < cases[i].n; k++)
                for (int j = 0; j < ends.n; j++) found += ends.id[j] == cases[i].ids[k];
            CHECK_MSG(ends.n == cases[i].n && found == ends.n, "case %zu: %d ids", i, ends.n);
        }
}

/* Checks a file whose tokenizer cannot be built. Jobs on ids can use the model, but no id ends a
 * text, and the report on the model has the reason. */
static void test_unmade_ends(void)
{
    struct gguf_make g = {0};
    struct token_ends ends = {.n = 7};
    struct err other = {.code = ERR_CORRUPT};
    add_sizes(&g, &gguf_models[0]);
    make_str(&g, "tokenizer.ggml.model", "gpt2");
    make_strs(&g, "tokenizer.ggml.tokens", (const char *const[]){"a", "b"}, 2);
    bytes_put(make_array(&g, "tokenizer.ggml.token_type", GGUF_I32, 1), &(int32_t){3}, 4);
    make_file(&g, in_dir("unmade.gguf"));
    CHECK_MSG(!hf_read_ends(in_dir("unmade.gguf"), &ends, &e) && !ends.n, "%s", e.text);
    CHECK(hf_check_ends(in_dir("unmade.gguf"), &ends, &e) && strstr(e.text, "token_type"));
    CHECK(model_file_unmade(in_dir("unmade.gguf"), &other));
    CHECK(!model_file_unmade(scratch, &other));
}

/* Checks that the pad id is read from a key of the file. */
static void test_pad(void)
{
    struct gguf_make g = {0}, none = {0};
    add_sizes(&g, &gguf_models[0]);
    add_tokens(&g, "gpt2", "gpt-2", true);
    make_u32(&g, "tokenizer.ggml.padding_token_id", 5);
    make_file(&g, in_dir("pad.gguf"));
    CHECK(hf_read_pad(in_dir("pad.gguf")) == 5);
    add_sizes(&none, &gguf_models[0]);
    add_tokens(&none, "gpt2", "gpt-2", true);
    make_file(&none, in_dir("pad.gguf"));
    CHECK(hf_read_pad(in_dir("pad.gguf")) == -1);
}

static char report[REPORT_SIZE];

/* Returns how often the text occurs in the report on a model. */
static int said(const char *name, const char *text)
{
    int n = 0, n_faults;
    CHECK(report_write(in_dir(name), name, FAULTS, report, sizeof report, &n_faults) > 0);
    for (const char *at = report; (at = strstr(at, text)); at++) n++;
    return n;
}

/* Counts how often a file is opened while the function `take` runs. */
static int openings(const char *path, void (*take)(const char *path))
{
    char room[4096] __attribute__((aligned(8)));
    int n = 0;
    const int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    CHECK(fd >= 0 && inotify_add_watch(fd, path, IN_OPEN | IN_CLOSE) >= 0);
    take(path);
    for (ssize_t got; (got = read(fd, room, sizeof room)) > 0;)
        for (ssize_t at = 0; at < got;) {
            const struct inotify_event *const ev = (void *)(room + at);
            n += (ev->mask & IN_OPEN) != 0;
            at += (ssize_t)(sizeof *ev + ev->len);
        }
    close(fd);
    return n;
}

static void take_report(const char *path)
{
    int n_faults;
    CHECK(report_write(path, path, FAULTS, report, sizeof report, &n_faults) > 0);
    CHECK_MSG(n_faults > 5, "%s", report);
}

static void take_tokenizer(const char *path)
{
    struct tokenizer *t = tokenizer_open(path, &e);
    CHECK_MSG(t, "%s", e.text);
    tokenizer_destroy(t);
}

static void take_texts(const char *path)
{
    const struct hf_take take = {path, in_dir("taken"), true, NULL, NULL};
    struct hf_files taken;
    CHECK_MSG(!hf_take_files(&take, &taken, &e) && taken.n == 4, "%s", e.text);
}

static void take_description(const char *path)
{
    char text[4096];
    CHECK_MSG(hf_describe(path, text, sizeof text, &e) > 0, "%s", e.text);
}

/* Checks that a command reads the header of a file only once, whatever parts of the file it uses,
 * and however many texts and faults the file has. */
static void test_read_once(void)
{
    static struct model_shape m;
    struct gguf_make g = {0};
    gguf_shape(&gguf_models[0], &m);
    add_tokens(&g, "gpt2", "gpt-2", true);
    make_str(&g, "tokenizer.chat_template", "{{ bos_token }}x");
    free(gguf_make_beside(&g, &gguf_models[0], &m, 8, in_dir("once.gguf")));
    CHECK(openings(in_dir("once.gguf"), take_tokenizer) == 1);
    CHECK(openings(in_dir("once.gguf"), take_texts) == 1);
    CHECK(openings(in_dir("once.gguf"), take_description) == 1);
    add_tokens(&g, "gpt2", "xyz", true);
    add_sizes(&g, &gguf_models[0]); /* and the file has only one tensor */
    make_tensor(&g, "token_embd.weight", 0, 2, four_rows, (const float[128]){0}, 512);
    make_file(&g, in_dir("once.gguf"));
    CHECK(openings(in_dir("once.gguf"), take_report) == 1);
}

/* Checks that a report has each fault once. If the file could not be read, the report's list of
 * ids that end a text must be empty. */
static void test_report(void)
{
    static struct model_shape m;
    struct gguf_make g = {0};
    gguf_shape(&gguf_models[0], &m);
    free(gguf_make_model(&gguf_models[0], &m, 8, in_dir("report.gguf")));
    CHECK_MSG(said("report.gguf", "\"generation_ends\":[]") == 1, "%s", report);
    add_sizes(&g, &gguf_models[0]);
    add_tokens(&g, "gpt2", "xyz", true);
    make_str(&g, "tokenizer.chat_template", "{{ bos_token }}x");
    make_file(&g, in_dir("report.gguf"));
    CHECK_MSG(said("report.gguf", "tokenizer.ggml.pre is \\\"xyz\\\"") == 1, "%s", report);
    CHECK_MSG(said("report.gguf", "its text is not read, token ids alone are: ") == 1, "%s",
              report);
    CHECK_MSG(said("report.gguf", "\"generation_ends\":[0,4]") == 1, "%s", report);
    CHECK(!file_write(in_dir("report.gguf"), "GGUF", 4, &e));
    CHECK_MSG(said("report.gguf", "\"generation_ends\":null") == 1, "%s", report);
    CHECK(said("report.gguf", "fault\":\"") == 2); /* weights and tokenizer have one */
    CHECK(said("report.gguf", "truncated here") == 3);
    /* The template is the value of a key. */
    struct gguf_make t = {0};
    add_tokens(&t, "gpt2", "gpt-2", true);
    make_str(&t, "tokenizer.chat_template", "{% for x in %}");
    free(gguf_make_beside(&t, &gguf_models[0], &m, 8, in_dir("report.gguf")));
    CHECK_MSG(
        said("report.gguf", "report.gguf: tokenizer.chat_template: chat template, line 1: ") == 1 &&
            said("report.gguf", ": mend that line, or fetch the file again") == 1,
        "%s", report);
    struct gguf_make u = {0};
    add_tokens(&u, "gpt2", "gpt-2", true);
    make_str(&u, "tokenizer.chat_template", "{{ x | zork }}");
    free(gguf_make_beside(&u, &gguf_models[0], &m, 8, in_dir("report.gguf")));
    CHECK_MSG(said("report.gguf", "No filter named 'zork': mend that line") == 1, "%s", report);
}

static void test_refused_tokenizers(void)
{
    static const struct {
        const char *model, *pre, *text;
        bool merges;
    } cases[] = {
        {"bert", NULL, "tokenizer.ggml.model is \"bert\"", true},
        {"gpt2", "mpt", "tokenizer.ggml.pre is \"mpt\"", true},
        {"gpt2", NULL, "tokenizer.ggml.pre is \"\"", true},
        {"gpt2", "gpt-2", "tokenizer.ggml.merges is not an array of strings", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gguf_make g = {0};
        struct model_text t;
        add_sizes(&g, &gguf_models[0]);
        add_tokens(&g, cases[i].model, cases[i].pre, cases[i].merges);
        make_u32(&g, "tokenizer.ggml.padding_token_id", 6); /* the id is past its 6 tokens */
        make_file(&g, in_dir("bad.gguf"));
        e = (struct err){0};
        CHECK_MSG(model_file_read(in_dir("bad.gguf"), "tokenizer.json", 1 << 20, &t, &e) &&
                      strstr(e.text, cases[i].text),
                  "want \"%s\", got \"%s\"", cases[i].text, e.text);
        /* Jobs that use ids need none of the tokenizer's rules. */
        CHECK_MSG(!model_file_read(in_dir("bad.gguf"), "generation_config.json", 1 << 20, &t, &e),
                  "%s", e.text);
        CHECK(t.text && !strstr(t.text, "pad_token_id"));
        model_file_free(&t);
        const struct hf_take take = {in_dir("bad.gguf"), in_dir("taken"), true, NULL, NULL};
        struct hf_files taken;
        CHECK_MSG(!hf_take_files(&take, &taken, &e) && taken.n_left == 1, "%s", e.text);
    }
}

/* Checks that the manual lists the same pre-tokenizers as the error for an unsupported
 * pre-tokenizer, which lists all supported ones. */
static void test_manual(void)
{
    struct gguf_make g = {0};
    struct model_text t = {0};
    char want[256];
    size_t size;
    add_sizes(&g, &gguf_models[0]);
    add_tokens(&g, "gpt2", "xyz", true);
    make_file(&g, in_dir("bad.gguf"));
    CHECK(model_file_read(in_dir("bad.gguf"), "tokenizer.json", 1 << 20, &t, &e) == -1);
    model_file_free(&t);
    char *list = strstr(e.text, "and "), *end = list ? strstr(list, " are read") : NULL;
    char *manual = file_read("api/JOBS.md", 1 << 24, &size, &e);
    CHECK_MSG(end && manual, "%s", e.text);
    if (!end || !manual) return;
    *end = 0;
    char *last = strrchr(list, ',');
    CHECK(last != NULL);
    if (!last) return;
    *last = 0;
    snprintf(want, sizeof want, "with the pre-tokenizers %s and%s;", list + 4, last + 1);
    for (char *at = manual; *at; at++)
        if (*at == '\n') *at = ' ';
    CHECK_MSG(strstr(manual, want), "api/JOBS.md has no \"%s\"", want);
    free(manual);
}

/* Checks a vocabulary in which each piece begins with the piece before it. For each way to divide
 * a piece into two pieces, looking up both parts takes as many steps as the piece has bytes. This
 * vocabulary must be refused before the look-ups take long. */
static void test_merges_of_hostile_pieces(void)
{
    enum { LONG = 6000, MANY = 1500 };
    struct gguf_make g = {0};
    struct model_text t;
    char *pool = malloc((LONG + MANY) * (size_t)(LONG + 2));
    const char **token = calloc(LONG + MANY, sizeof *token);
    int32_t *type = calloc(LONG + MANY, sizeof *type);
    char *at = pool;
    if (!pool || !token || !type) abort();
    for (int i = 0; i < LONG + MANY; i++, at += strlen(at) + 1) {
        const int n = i < LONG ? i + 1 : LONG;
        memset(at, 'a', (size_t)n);
        snprintf(at + n, 3, "%s", i < LONG ? "" : (char[]){(char)('b' + i % 20), 0});
        token[i] = at;
        type[i] = i < LONG ? 3 : 1; /* control, normal */
    }
    add_sizes(&g, &gguf_models[0]);
    make_str(&g, "tokenizer.ggml.model", "llama");
    make_strs(&g, "tokenizer.ggml.tokens", token, LONG + MANY);
    bytes_put(make_array(&g, "tokenizer.ggml.token_type", GGUF_I32, LONG + MANY), type,
              (LONG + MANY) * sizeof *type);
    make_file(&g, in_dir("hostile.gguf"));
    e = (struct err){0};
    CHECK_MSG(model_file_read(in_dir("hostile.gguf"), "tokenizer.json", 64 << 20, &t, &e) &&
                  strstr(e.text, "too much alike"),
              "%s", e.text);
    free(pool), free(token), free(type);
}

int main(void)
{
    snprintf(scratch, sizeof scratch, "/tmp/seqd-gguf-%d", (int)getpid());
    CHECK(!file_make_dir(scratch, &e));
    RUN(test_values);
    RUN(test_refused);
    RUN(test_prefixes);
    RUN(test_models);
    RUN(test_refused_models);
    RUN(test_missing_keys);
    RUN(test_other_tensors);
    RUN(test_names);
    RUN(test_keys_in_errors);
    RUN(test_directories);
    RUN(test_other_names);
    RUN(test_own_files);
    RUN(test_ends);
    RUN(test_no_ends);
    RUN(test_unmade_ends);
    RUN(test_pad);
    RUN(test_report);
    RUN(test_read_once);
    RUN(test_refused_tokenizers);
    RUN(test_manual);
    RUN(test_merges_of_hostile_pieces);
    file_remove(scratch, NULL);
    return test_done("gguf");
}
