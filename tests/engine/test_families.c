/* test_families.c: checks model directories of the language-model families. Checks the meaning of
 * config.json and the tensors that must be present. A model must be saved in the form in which it
 * was loaded. The directories are in tests/golden. The Python package transformers saved the
 * directories of BERT, Mistral and MiniMax.
 * tests: needs fuzz/seeds/fuzz_config golden */
#include "tests/lib/datadir.h"
#include "tests/lib/goldens.h"
#include "tests/lib/hf_save.h"

#include "api/core/sha256.h"
#include "worker/agent/describe.h"
#include "worker/family/config.h"
#include "worker/family/family.h"
#include "worker/hf/hf.h"
#include "worker/hf/safetensors.h"
#include "worker/plan/plan.h"

static const char *const names[] = {GOLDENS_LM, GOLDENS_DIT};
enum { N_NAMES = sizeof names / sizeof *names };

static const char *golden(const char *name, const char *file)
{
    static char path[4][FILE_PATH_SIZE];
    static int k;
    k = (k + 1) % 4;
    snprintf(path[k], sizeof path[k], "tests/golden/%s%s%s", name, *file ? "/" : "", file);
    return path[k];
}

static bool load_shape(const char *name, struct model_shape *m)
{
    e = (struct err){0};
    const int rc = config_read_dir(golden(name, ""), m, &e);
    CHECK_MSG(rc == 0, "%s: %s (run from the repository's root)", name, e.text);
    return rc == 0;
}

static void test_shapes(void)
{
    static struct model_shape m;
    if (!load_shape("tnl", &m)) return;
    CHECK(m.family == FAMILY_TNL && m.width == 20 && m.n_heads == 9 && m.head_dim == 24);
    CHECK(m.ffn_width == 28 && m.n_layers == 2 && m.n_kv_heads == 9 && !m.unscaled && !m.tied);
    CHECK(shape_special(&m, 0) && !shape_special(&m, 1));
    if (!load_shape("tnl_wide", &m)) return;
    CHECK(m.unscaled && m.head_dim == 72 && !m.layer_mask[0]);
    if (!load_shape("linear", &m)) return;
    CHECK(m.family == FAMILY_LINEAR && m.head_dim == 12 && m.value_dim == 24 && m.normalise);
    CHECK(m.feature_map == ACT_ELU1 && m.norm_eps == 0.05);
    if (!load_shape("retnet_wide", &m)) return;
    CHECK(m.family == FAMILY_RETNET && m.head_dim == 36 && m.value_dim == 72 && m.tied);
    if (!load_shape("bert", &m)) return;
    CHECK(m.family == FAMILY_BERT && m.act == ACT_GELU && m.norm_eps == 1e-12 && m.tied);
    CHECK(m.max_pos == 48 && m.type_vocab == 2 && m.head_dim == 6);
    if (!load_shape("roberta", &m)) return;
    CHECK(m.family == FAMILY_ROBERTA && m.act == ACT_RELU && m.type_vocab == 1 && m.tied);
    CHECK(m.max_pos == 41 && m.first_pos == 4 && family_positions(&m) == 37);
    if (!load_shape("modernbert", &m)) return;
    CHECK(m.family == FAMILY_MODERNBERT && m.window == 5 && m.layer_mask[0] == 5 && m.tied);
    CHECK(m.rope_theta == 160000 && m.rope_local == 10000 && m.act == ACT_GELU &&
          !m.no_decoder_bias);
    CHECK(!m.qkv_bias && !m.o_bias && !m.mlp_bias && !m.norm_bias && !m.classifier_bias);
    if (!load_shape("modernbert_wide", &m)) return;
    CHECK(m.window == 13 && !m.layer_mask[0] && m.rope_theta == 3e4 && m.rope_local == 500);
    CHECK(m.qkv_bias && m.o_bias && m.mlp_bias && m.norm_bias && m.classifier_bias);
    CHECK(m.act == ACT_SILU && m.no_decoder_bias);
    if (!load_shape("mistral", &m)) return;
    CHECK(m.family == FAMILY_LLAMA && m.window == 6 && m.n_kv_heads == 3 && m.head_dim == 24);
    if (!load_shape("ministral", &m)) return;
    CHECK(m.family == FAMILY_LLAMA && m.window == 5 && m.layer_mask[0] == 2 && !m.qk_norm);
    if (!load_shape("qwen3_mixed", &m)) return;
    CHECK(m.family == FAMILY_LLAMA && m.window == 11 && m.layer_mask[0] == 3 && m.qk_norm);
    if (!load_shape("gemma2", &m)) return;
    CHECK(m.family == FAMILY_GEMMA && m.window == 6 && m.layer_mask[0] == 2 && m.tied);
    CHECK(m.attn_cap == 2 && m.final_cap == 3 && m.attn_scalar == 10 && !m.qk_norm);
    if (!load_shape("gemma3", &m)) return;
    CHECK(m.window == 5 && m.layer_mask[0] == 2 && m.qk_norm && !m.attn_cap && !m.final_cap);
    CHECK(m.rope_theta == 1e6 && m.rope_local == 10000 && m.attn_scalar == 24);
    CHECK(m.rope.kind == ROPE_LINEAR && m.rope.factor == 4);
    if (!load_shape("gpt_oss", &m)) return;
    CHECK(m.family == FAMILY_GPT_OSS && m.window == 6 && m.layer_mask[0] == 2 && m.n_experts == 5);
    CHECK(m.rope.kind == ROPE_YARN && m.rope.no_truncate && m.rope.original == 32);
    if (!load_shape("minimax", &m)) return;
    CHECK(m.family == FAMILY_MINIMAX && m.layer_mask[0] == 5 && m.n_experts == 4);
    CHECK(m.residual[0] == 1.5 && m.residual[5] == 0.5 && m.rope_theta == 1e6 && !m.rotary_dim);
    if (!load_shape("minimax_wide", &m)) return;
    CHECK(m.rotary_dim == 36 && m.layer_mask[0] == 6 && m.tied && m.residual[3] == 1);
}

/* Checks that the output of describe can be read again on the node on which the job runs. */
static void test_describe(void)
{
    static struct model_shape m, back;
    static char text[8192];
    static struct job_spec job;
    spec_defaults(&job);
    CHECK(!spec_intern(&job, "/m", 2, &job.model.path));
    for (int i = 0; i < N_NAMES; i++) {
        if (!load_shape(names[i], &m)) continue;
        const int64_t n = hf_describe(golden(names[i], ""), text, sizeof text, &e);
        CHECK_MSG(n > 0, "%s: %s", names[i], e.text);
        if (n <= 0) continue;
        CHECK_MSG(describe_take(text, (size_t)n, job.model.config, &e) == 0, "%s", e.text);
        CHECK_MSG(config_open(&job, &e) == 0, "%s", e.text);
        back = job.model.shape;
        CHECK_MSG(!hf_shape_diff(&m, &back), "%s: %s", names[i], hf_shape_diff(&m, &back));
        CHECK(back.max_pos == m.max_pos && back.norm_eps == m.norm_eps);
        CHECK(back.rope_theta == m.rope_theta);
        CHECK(hf_shape_json(&m, text, 30) == -1);
    }
}

/* ---- loading and saving ---------------------------------------------------------------------- */

/* Returns the index of the row of our tensor that is row r in the file's tensor. In head-major
 * files, row (head, part, d) of the file is row (part, head, d) of our tensor. */
static int64_t row_here(const struct param *p, int64_t rows, int64_t r)
{
    int64_t of[HEAD_PARTS], head_rows = 0, part = 0, before = 0;
    if (!p->head_major_parts) return r;
    for (int i = 0; i < p->head_major_parts; i++) {
        of[i] = p->head_major_dim * (p->head_major_runs[i] ? p->head_major_runs[i] : 1);
        head_rows += of[i];
    }
    const int64_t head = r / head_rows;
    for (r %= head_rows; r >= of[part]; part++) r -= of[part], before += of[part];
    return before * (rows / head_rows) + head * of[part] + r;
}

/* Compares all tensors of the model with the tensors of the file, whose names and order of
 * elements may be different. */
static void check_tensors(const char *name, const struct model_shape *m, const float *params)
{
    struct st_file *f = st_open(golden(name, "model.safetensors"), &e);
    CHECK_MSG(f, "%s", e.text);
    for (int i = 0; f && i < param_tensors(m); i++) {
        struct param p;
        param_get(m, i, &p);
        const struct st_tensor *t = st_find(f, p.name);
        float *want = malloc((size_t)p.count * sizeof *want);
        CHECK_MSG(t && t->count == p.count && st_read_f32(f, t, want, &e) == 0, "%s", p.name);
        int64_t bad = 0;
        const int64_t blocks = p.stack ? p.stack : 1, rows = p.rows / blocks, C = p.count / p.rows;
        for (int64_t row = 0; t && row < p.rows; row++) {
            const int64_t b = row / rows, r = row % rows;
            const float *ours = params + p.offset + (b * rows + row_here(&p, rows, r)) * C;
            for (int64_t k = 0; k < C; k++)
                bad += want[b * rows * C + (p.transposed ? k * rows + r : r * C + k)] != ours[k];
        }
        CHECK_MSG(!bad, "%s %s: %lld rows differ", name, p.name, (long long)bad);
        free(want);
    }
    st_close(f);
}

struct sink {
    float *out;
    int64_t next;
    int bad;
};
static int take(void *arg, int64_t offset, int64_t n, const float *x, struct err *err)
{
    struct sink *s = arg;
    s->bad += offset < s->next;
    s->next = offset + n;
    memcpy(s->out + offset, x, (size_t)n * sizeof *x);
    return 0;
}

/* Reads the weights of a saved directory, piece by piece, from the memory that holds them. */
static int give(void *arg, int64_t offset, int64_t n, float *out, struct err *err)
{
    memcpy(out, (const float *)arg + offset, (size_t)n * sizeof *out);
    return 0;
}

static bool same_tensor(const struct st_file *a, const struct st_tensor *t, const struct st_file *b)
{
    const struct st_tensor *u = st_find(b, t->name);
    return u && u->dtype == t->dtype && u->n_dims == t->n_dims &&
           !memcmp(u->dims, t->dims, (size_t)t->n_dims * sizeof *t->dims) &&
           !memcmp(st_data(a, t), st_data(b, u), (size_t)t->size);
}

/* Checks a directory that is saved in its original precision. It must have the same tensors, with
 * the same names, dimensions and bytes, and no other tensor. */
static void check_saved(const char *name, const struct model_shape *m, const void *params)
{
    char a[SHA256_HEX], b[SHA256_HEX];
    struct sha256 sha;
    static struct model_shape back;
    CHECK_MSG(hf_save(in_dir("saved"), m, DT_BF16, params, &e) == 0, "%s", e.text);
    struct st_file *old = st_open(golden(name, "model.safetensors"), &e);
    struct st_file *new = st_open(in_dir("saved/model.safetensors"), &e);
    CHECK(old && new &&st_count(new) == param_tensors(m));
    sha256_init(&sha);
    for (int i = 0; old && new &&i < st_count(new); i++) {
        CHECK_MSG(same_tensor(new, st_at(new, i), old), "%s: %s", name, st_at(new, i)->name);
        sha256_add(&sha, st_data(new, st_at(new, i)), (size_t)st_at(new, i)->size);
    }
    sha256_hex(&sha, b);
    st_close(old);
    st_close(new);
    CHECK(hf_weights_digest(m, DT_BF16, params, a, &e) == 0);
    CHECK_STR(a, b);
    CHECK_MSG(config_read_dir(in_dir("saved"), &back, &e) == 0, "%s: %s", name, e.text);
    CHECK_MSG(!hf_shape_diff(m, &back), "%s: %s", name, hf_shape_diff(m, &back));
    file_remove(in_dir("saved"), NULL);
}

static struct be *threads; /* a device with two threads */

static int take_any(void *arg, int64_t offset, int64_t n, const float *x, struct err *err)
{
    memcpy((float *)arg + offset, x, (size_t)n * sizeof *x);
    return 0;
}

static void check_threads(const char *name, const struct model_shape *m, const float *whole)
{
    float *x = calloc((size_t)param_count(m), sizeof *x);
    const struct hf_sink to = {.take = take_any, .arg = x, .be = threads, .any_order = true};
    CHECK_MSG(x && hf_load_pieces(golden(name, ""), m, &to, &e) == 0, "%s", e.text);
    CHECK_MSG(!memcmp(whole, x, (size_t)param_count(m) * sizeof *x), "%s", name);
    free(x);
}

static void check_directory(const char *name)
{
    static struct model_shape m;
    if (!load_shape(name, &m)) return;
    const int64_t n = param_count(&m);
    float *whole = malloc((size_t)n * 4), *pieces = calloc((size_t)n, 4), *flat = malloc(n * 4);
    uint16_t *half = malloc((size_t)n * 2);
    struct sink s = {.out = pieces};
    CHECK_MSG(hf_load(golden(name, ""), &m, DT_F32, whole, &e) == 0, "%s", e.text);
    check_tensors(name, &m, whole);
    CHECK_MSG(hf_load_pieces(golden(name, ""), &m, &(struct hf_sink){take, &s}, &e) == 0, "%s",
              e.text);
    CHECK_MSG(!s.bad && !memcmp(whole, pieces, (size_t)n * 4), "%s", name);
    check_threads(name, &m, whole);
    CHECK(hf_load(golden(name, ""), &m, DT_BF16, half, &e) == 0);
    check_saved(name, &m, half);
    /* moments and gradients, which are arrays in the same layout */
    const struct hf_flat flats[] = {{.prefix = "m:", .dtype = DT_F32, .read = give, .arg = whole},
                                    {.prefix = "v:", .dtype = DT_F32, .data = whole}};
    CHECK(hf_write_flats(in_dir("flat.safetensors"), &m, flats, 2, NULL, &e) == 0);
    struct st_file *f = st_open(in_dir("flat.safetensors"), &e);
    for (int i = 0; f && i < 2; i++) {
        CHECK(hf_read_flat(f, &m, flats[i].prefix, flat, &e) == 0);
        CHECK_MSG(!memcmp(whole, flat, (size_t)n * 4), "%s %s", name, flats[i].prefix);
        memset(pieces, 0, (size_t)n * 4);
        s = (struct sink){.out = pieces};
        CHECK(hf_read_pieces(f, &m, flats[i].prefix, &(struct hf_sink){take, &s}, &e) == 0);
        CHECK(!s.bad && !memcmp(whole, pieces, (size_t)n * 4));
    }
    st_close(f);
    free(whole), free(pieces), free(flat), free(half);
}

static void test_directories(void)
{
    threads = be_open(&(struct be_options){.device = "cpu", .n_threads = 2}, &e);
    CHECK_MSG(threads, "%s", e.text);
    for (int i = 0; i < N_NAMES; i++) check_directory(names[i]);
    be_close(threads);
}

/* Checks BERT files in their first format. The names of tensors do not begin with "bert.", the
 * weights of norms are called gamma and beta, and there is a pooler. */
static void test_old_bert(void)
{
    static struct model_shape m;
    static struct st_out items[128];
    static char text[128][ST_NAME_SIZE];
    static float pooler[4];
    int n = 0;
    if (!load_shape("bert", &m)) return;
    struct st_file *f = st_open(golden("bert", "model.safetensors"), &e);
    for (int i = 0; i < st_count(f); i++, n++) {
        const struct st_tensor *t = st_at(f, i);
        const char *end = strstr(t->name, "LayerNorm.");
        snprintf(text[n], ST_NAME_SIZE, "%s", t->name + (strncmp(t->name, "bert.", 5) ? 0 : 5));
        if (end) {
            char *at = strstr(text[n], "LayerNorm.") + 10;
            snprintf(at, 8, "%s", strcmp(end + 10, "weight") ? "beta" : "gamma");
        }
        items[n] = (struct st_out){
            .name = text[n], .dtype = t->dtype, .n_dims = t->n_dims, .data = st_data(f, t)};
        memcpy(items[n].dims, t->dims, sizeof t->dims);
    }
    items[n++] = (struct st_out){"pooler.dense.bias", ST_F32, 1, {4}, pooler, NULL, NULL};
    CHECK(file_make_dir(in_dir("old"), &e) == 0);
    CHECK(st_write(in_dir("old/model.safetensors"), items, n, &e) == 0);
    const int64_t size = param_count(&m) * 4;
    float *a = malloc((size_t)size), *b = malloc((size_t)size);
    CHECK_MSG(hf_load(in_dir("old"), &m, DT_F32, a, &e) == 0, "%s", e.text);
    CHECK(hf_load(golden("bert", ""), &m, DT_F32, b, &e) == 0 && !memcmp(a, b, (size_t)size));
    st_close(f);
    free(a), free(b);
}

/* ---- refusals -------------------------------------------------------------------------------- */

#define CORE                                                                                       \
    "\"vocab_size\":300,\"hidden_size\":48,\"intermediate_size\":80,\"num_hidden_layers\":2,"      \
    "\"num_attention_heads\":4"
#define FLA "\"vocab_size\":300,\"hidden_size\":48,\"num_hidden_layers\":2,\"num_heads\":4"
#define TNL                                                                                        \
    "\"model_type\":\"transnormer\",\"vocab_size\":300,\"decoder_embed_dim\":48,"                  \
    "\"decoder_layers\":2,\"decoder_attention_heads\":4,\"glu_dim\":64"
#define BERT    "\"model_type\":\"bert\"," CORE
#define ROBERTA "\"model_type\":\"roberta\"," CORE
#define MODERN  "\"model_type\":\"modernbert\"," CORE
#define RETNET  "\"model_type\":\"retnet\"," FLA
#define LINEAR  "\"model_type\":\"linear_attn\"," FLA
#define MINIMAX "\"model_type\":\"minimax\",\"num_key_value_heads\":2," CORE
#define MISTRAL "\"model_type\":\"mistral\",\"num_key_value_heads\":2," CORE
#define GPT_OSS "\"model_type\":\"gpt_oss\",\"num_key_value_heads\":2," CORE
#define QWEN3   "\"model_type\":\"qwen3\",\"num_key_value_heads\":2," CORE

#define QWEN2_MOE "\"model_type\":\"qwen2_moe\",\"num_key_value_heads\":2," CORE
#define NEXT      "\"model_type\":\"qwen3_next\"," CORE

static void test_refusals(void)
{
    static const struct {
        const char *text;
        enum err_code code; /* ERR_NONE means that the text is accepted */
        const char *names;
    } v[] = {
        {TNL ",\"hidden_dim\":64", ERR_NONE, ""},
        {TNL, ERR_NONE, ""},
        {TNL ",\"hidden_dim\":50", ERR_INVALID, "hidden_dim"},
        {TNL ",\"bias\":true", ERR_UNSUPPORTED, "bias"},
        {TNL ",\"norm_type\":\"layernorm\"", ERR_UNSUPPORTED, "norm_type"},
        {TNL ",\"linear_act_fun\":\"elu\"", ERR_UNSUPPORTED, "linear_act_fun"},
        {TNL ",\"linear_use_lrpe_list\":[1]", ERR_INVALID, "linear_use_lrpe_list"},
        {TNL ",\"linear_use_lrpe_list\":[1,2]", ERR_INVALID, "linear_use_lrpe_list"},
        {TNL ",\"linear_use_lrpe_list\":[1,\"a\"]", ERR_INVALID, "linear_use_lrpe_list"},
        {TNL ",\"linear_use_lrpe_list\":7", ERR_INVALID, "linear_use_lrpe_list"},
        {TNL ",\"hidden_dim\":1024,\"linear_use_lrpe_list\":[1,0]", ERR_NONE, ""},
        {TNL ",\"hidden_dim\":1032,\"linear_use_lrpe_list\":[1,0]", ERR_UNSUPPORTED, "head_dim"},
        {TNL ",\"hidden_dim\":2048", ERR_NONE, ""},
        {TNL ",\"hidden_dim\":2056", ERR_INVALID, "head_dim"},
        /* a different key has already set this size */
        {TNL ",\"hidden_size\":48", ERR_INVALID, "hidden_size"},
        {BERT, ERR_NONE, ""},
        {BERT ",\"hidden_act\":\"gelu_new\",\"position_embedding_type\":\"absolute\"", ERR_NONE,
         ""},
        {BERT ",\"hidden_act\":\"mish\"", ERR_UNSUPPORTED, "hidden_act"},
        {BERT ",\"position_embedding_type\":\"relative_key\"", ERR_UNSUPPORTED,
         "position_embedding_type"},
        {BERT ",\"is_decoder\":true", ERR_UNSUPPORTED, "is_decoder"},
        {BERT ",\"quantization_config\":{}", ERR_UNSUPPORTED, "quantization_config"},
        {ROBERTA, ERR_NONE, ""},
        {ROBERTA ",\"pad_token_id\":0", ERR_NONE, ""},
        {ROBERTA ",\"pad_token_id\":null", ERR_INVALID, "pad_token_id"},
        {ROBERTA ",\"pad_token_id\":-1", ERR_INVALID, "pad_token_id"},
        {ROBERTA ",\"pad_token_id\":30,\"max_position_embeddings\":31", ERR_INVALID,
         "max_position_embeddings"},
        {"\"model_type\":\"xlm-roberta\"," CORE, ERR_NONE, ""},
        {MODERN, ERR_NONE, ""},
        {MODERN ",\"local_attention\":0,\"global_attn_every_n_layers\":1", ERR_NONE, ""},
        {MODERN ",\"local_attention\":-1", ERR_INVALID, "local_attention"},
        {MODERN ",\"global_attn_every_n_layers\":0", ERR_INVALID, "global_attn_every_n_layers"},
        {MODERN ",\"layer_types\":[\"sliding_attention\"]", ERR_INVALID, "layer_types"},
        {MODERN ",\"classifier_activation\":\"relu\"", ERR_UNSUPPORTED, "classifier_activation"},
        {MODERN ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":2}", ERR_UNSUPPORTED,
         "rope_scaling"},
        {MODERN ",\"num_key_value_heads\":2", ERR_UNSUPPORTED, "num_key_value_heads"},
        {MODERN ",\"head_dim\":10", ERR_UNSUPPORTED, "head_dim"},
        {RETNET, ERR_NONE, ""},
        {RETNET ",\"expand_v\":0.3", ERR_INVALID, "expand_v"},
        {RETNET ",\"expand_v\":1e9", ERR_INVALID, "expand_v"},
        {RETNET ",\"expand_k\":40,\"expand_v\":40", ERR_NONE, ""}, /* heads of 480 */
        {RETNET ",\"expand_v\":43", ERR_INVALID, "head_dim"},
        {RETNET ",\"num_kv_heads\":2", ERR_UNSUPPORTED, "num_key_value_heads"},
        {RETNET ",\"feature_map\":\"relu\"", ERR_UNSUPPORTED, "feature_map"},
        {RETNET ",\"use_short_conv\":true", ERR_UNSUPPORTED, "use_short_conv"},
        {RETNET ",\"use_output_gate\":false", ERR_UNSUPPORTED, "use_output_gate"},
        {RETNET ",\"attn\":{\"layers\":[1]}", ERR_UNSUPPORTED, "attn"},
        {LINEAR ",\"feature_map\":\"relu\"", ERR_NONE, ""},
        {LINEAR, ERR_UNSUPPORTED, "feature_map"},
        {LINEAR ",\"feature_map\":\"hedgehog\"", ERR_UNSUPPORTED, "feature_map"},
        {LINEAR ",\"feature_map\":\"elu\",\"norm_q\":true", ERR_UNSUPPORTED, "norm_q"},
        {MINIMAX, ERR_NONE, ""},
        {MINIMAX ",\"head_dim\":256", ERR_NONE, ""},
        /* head_dim of softmax attention is limited, too */
        {MINIMAX ",\"head_dim\":258", ERR_INVALID, "head_dim"},
        {MINIMAX ",\"attn_type_list\":[0,1]", ERR_NONE, ""},
        {MINIMAX ",\"layer_types\":[\"linear_attention\",\"full_attention\"]", ERR_NONE, ""},
        {MINIMAX ",\"layer_types\":[\"full_attention\",\"full_attention\"]", ERR_UNSUPPORTED,
         "layer_types"},
        {MINIMAX ",\"layer_types\":[\"linear_attention\"]", ERR_INVALID, "layer_types"},
        {MINIMAX ",\"layer_types\":[\"linear_attention\",5]", ERR_INVALID, "layer_types"},
        {MINIMAX ",\"layer_types\":[\"linear_attention\",\"x\"]", ERR_UNSUPPORTED, "layer_types"},
        {MINIMAX ",\"attn_type_list\":[0,2]", ERR_INVALID, "attn_type_list"},
        {MINIMAX ",\"layernorm_mlp_alpha\":-1", ERR_INVALID, "layernorm_mlp_alpha"},
        {MINIMAX ",\"postnorm\":false", ERR_UNSUPPORTED, "postnorm"},
        {MINIMAX ",\"shared_intermediate_size\":64", ERR_UNSUPPORTED, "shared_intermediate_size"},
        {MINIMAX ",\"num_local_experts\":600", ERR_UNSUPPORTED, "num_local_experts"},
        {MINIMAX ",\"num_local_experts\":0", ERR_UNSUPPORTED, "num_local_experts"},
        {MINIMAX ",\"num_experts_per_tok\":9", ERR_INVALID, "num_experts_per_tok"},
        {MINIMAX ",\"rotary_dim\":14", ERR_INVALID, "rotary_dim"},
        {MINIMAX ",\"sliding_window\":9", ERR_UNSUPPORTED, "sliding_window"},
        {MISTRAL ",\"sliding_window\":null", ERR_NONE, ""},
        {QWEN3 ",\"use_sliding_window\":false", ERR_NONE, ""},
        {QWEN3 ",\"use_sliding_window\":true,\"sliding_window\":8,\"max_window_layers\":1",
         ERR_NONE, ""},
        {QWEN3 ",\"layer_types\":[\"full_attention\",\"sliding_attention\"]", ERR_UNSUPPORTED,
         "layer_types"}, /* the model has no window, either */
        {QWEN3 ",\"layer_types\":[\"full_attention\"]", ERR_INVALID, "layer_types"},
        {MISTRAL ",\"sliding_window\":8,\"layer_types\":[\"full_attention\",\"sliding_attention\"]",
         ERR_UNSUPPORTED, "layer_types"},
        {GPT_OSS, ERR_NONE, ""},
        {GPT_OSS ",\"quantization_config\":{\"modules_to_not_convert\":[\"lm_head\"],"
                 "\"quant_method\":\"mxfp4\"}",
         ERR_NONE, ""},
        {GPT_OSS ",\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4}", ERR_UNSUPPORTED,
         "quantization_config: quant_method \"gptq\""},
        {QWEN3 ",\"quantization_config\":{\"quant_method\":\"mxfp4\"}", ERR_UNSUPPORTED,
         "quantization_config: quant_method \"mxfp4\""},
        {GPT_OSS ",\"quantization_config\":[{}]", ERR_UNSUPPORTED, "quantization_config"},
        {GPT_OSS ",\"quantization_config\":{\"quant_method\":4}", ERR_INVALID,
         "quantization_config"},
        {GPT_OSS ",\"swiglu_limit\":8.0", ERR_UNSUPPORTED, "swiglu_limit"},
        {GPT_OSS ",\"attention_bias\":false", ERR_UNSUPPORTED, "attention_bias"},
        {GPT_OSS ",\"num_experts_per_tok\":500", ERR_INVALID, "num_experts_per_tok"},
        {"\"model_type\":\"gemma3_text\"," CORE ",\"rope_parameters\":{\"sliding_attention\":"
         "{\"factor\":2.0,\"rope_type\":\"linear\"}}",
         ERR_UNSUPPORTED, "rope_parameters: of sliding_attention only"},
        {"\"model_type\":\"gemma3_text\"," CORE ",\"rope_parameters\":{\"full_attention\":{},"
         "\"chunked_attention\":{}}",
         ERR_INVALID, "rope_parameters"},
        {"\"model_type\":\"glm4_moe\"," CORE, ERR_UNSUPPORTED, "model_type"},
        {"\"model_type\":\"qwen3_5_moe\"," CORE, ERR_INVALID, "text_config is missing"},
        {QWEN2_MOE, ERR_NONE, ""},
        {QWEN2_MOE ",\"shared_expert_intermediate_size\":0", ERR_INVALID,
         "shared_expert_intermediate_size"},
        {QWEN2_MOE ",\"use_sliding_window\":true", ERR_UNSUPPORTED, "use_sliding_window"},
        {NEXT, ERR_NONE, ""},
        {NEXT ",\"attn_output_gate\":false", ERR_UNSUPPORTED, "attn_output_gate"},
        {NEXT ",\"decoder_sparse_step\":0", ERR_INVALID, "decoder_sparse_step"},
        {NEXT ",\"mlp_only_layers\":[256]", ERR_INVALID, "mlp_only_layers"},
        {NEXT ",\"mlp_only_layers\":{}", ERR_INVALID, "mlp_only_layers"},
        {NEXT ",\"linear_num_key_heads\":3", ERR_INVALID, "linear_num_value_heads"},
        {NEXT ",\"num_experts\":0", ERR_UNSUPPORTED, "num_local_experts"},
    };
    static struct model_shape m;
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        char text[1024];
        const int n = snprintf(text, sizeof text, "{%s}", v[i].text);
        e = (struct err){0};
        const int rc = config_parse(text, (size_t)n, "config.json", &m, &e);
        CHECK_MSG((rc == 0) == (v[i].code == ERR_NONE) && e.code == v[i].code &&
                      strstr(e.text, v[i].names),
                  "%s: %s %s", v[i].text, err_name(e.code), e.text);
        if (rc == 0) CHECK(family_row(&m) && m.n_kv_heads > 0 && m.head_dim > 0);
        /* damage anywhere must cause an error and not a crash */
        for (int cut = 0; cut < n; cut += 3)
            CHECK(config_parse(text, (size_t)cut, "config.json", &m, &e) == -1);
    }
}

/* Checks keys that a file leaves out. They must have the default values of transformers. */
static void test_defaults(void)
{
    static struct model_shape m;
    static const char moe[] =
        "{\"model_type\":\"qwen3_5_moe_text\",\"attn_output_gate\":true,\"full_attention_"
        "interval\":4,"
        "\"mlp_only_layers\":[],\"mtp_num_hidden_layers\":1,\"output_gate_type\":\"swish\","
        "\"router_aux_loss_coef\":0.001,\"mamba_ssm_dtype\":\"float32\","
        "\"rope_parameters\":{\"mrope_interleaved\":true,\"mrope_section\":[11,11,10],"
        "\"partial_rotary_factor\":0.25,\"rope_type\":\"default\",\"rope_theta\":1e7}}";
    static const char next[] =
        "{\"model_type\":\"qwen3_next\",\"num_hidden_layers\":8,\"mlp_only_layers\":[3],"
        "\"decoder_sparse_step\":2}";
    static const char retnet[] = "{" RETNET "}", minimax[] = "{" MINIMAX "}", bert[] = "{" BERT "}",
                      mistral[] = "{" MISTRAL "}", gpt_oss[] = "{" GPT_OSS "}",
                      roberta[] = "{" ROBERTA "}",
                      modern[] = "{" MODERN ",\"sliding_window\":8,\"hidden_act\":\"relu\"}",
                      gemma2[] = "{\"model_type\":\"gemma2\",\"cache_implementation\":\"hybrid\","
                                 "\"hidden_act\":\"gelu_pytorch_tanh\"," CORE "}",
                      gemma3[] = "{\"model_type\":\"gemma3_text\",\"vocab_size\":300,"
                                 "\"hidden_size\":48,\"intermediate_size\":80,"
                                 "\"num_hidden_layers\":14,\"num_attention_heads\":4,"
                                 "\"max_position_embeddings\":32768,"
                                 "\"rope_scaling\":{\"factor\":8.0,\"rope_type\":\"linear\"},"
                                 "\"rope_local_base_freq\":20000,\"sliding_window\":512,"
                                 "\"attn_logit_softcapping\":null,\"sliding_window_pattern\":6}",
                      qwen3_5[] = "{\"model_type\":\"qwen3_5_text\",\"vocab_size\":300,"
                                  "\"hidden_size\":64,\"intermediate_size\":80,"
                                  "\"num_hidden_layers\":8,\"num_attention_heads\":4,"
                                  "\"full_attention_interval\":4,\"mtp_num_hidden_layers\":1,"
                                  "\"rope_parameters\":{\"mrope_interleaved\":true,"
                                  "\"mrope_section\":[11,11,10],\"rope_type\":\"default\","
                                  "\"rope_theta\":1e7}}";
    CHECK(config_parse(retnet, sizeof retnet - 1, "c", &m, &e) == 0);
    CHECK(m.head_dim == 12 && m.value_dim == 24 && m.ffn_width == 256);
    CHECK(config_parse(minimax, sizeof minimax - 1, "c", &m, &e) == 0);
    CHECK(m.layer_mask[0] == 2 && m.n_experts == 8 && m.experts_per_token == 2);
    CHECK(config_parse(bert, sizeof bert - 1, "c", &m, &e) == 0);
    CHECK(m.max_pos == 512 && m.type_vocab == 2 && m.tied && m.norm_eps == 1e-12);
    /* the format of 2024 and 2025, in which the index of a layer determines its kind, and the two
     * bases of RoPE are separate keys */
    CHECK(config_parse(gemma2, sizeof gemma2 - 1, "c", &m, &e) == 0);
    CHECK(m.window == 4096 && m.layer_mask[0] == 2 && m.attn_cap == 50 && m.final_cap == 30);
    CHECK(m.tied && m.head_dim == 256 && m.n_kv_heads == 4 && m.rope_theta == 10000);
    CHECK_MSG(config_parse(gemma3, sizeof gemma3 - 1, "c", &m, &e) == 0, "%s", e.text);
    CHECK(m.window == 512 && m.layer_mask[0] == 0x820 && m.rope_theta == 1e6);
    CHECK(m.rope.kind == ROPE_LINEAR && m.rope.factor == 8);
    CHECK(m.rope_local == 20000 && m.qk_norm && !m.attn_cap && m.max_pos == 32768);
    /* the format of 2026, in which every fourth layer has softmax attention, and a quarter of a
     * head's columns is rotated */
    CHECK_MSG(config_parse(qwen3_5, sizeof qwen3_5 - 1, "c", &m, &e) == 0, "%s", e.text);
    CHECK(m.layer_mask[0] == 0x77 && m.rotary_dim == 64 && m.head_dim == 256 && !m.tied);
    CHECK(m.delta_heads == 32 && m.delta_key_heads == 16 && m.delta_value_dim == 128);
    CHECK(m.rope_theta == 1e7 && m.norm_eps == 1e-6 && m.conv_width == 4);
    CHECK(config_parse(roberta, sizeof roberta - 1, "c", &m, &e) == 0);
    CHECK(m.max_pos == 512 && m.first_pos == 2 && m.type_vocab == 2 && m.tied && m.act == ACT_GELU);
    CHECK(config_parse(modern, sizeof modern - 1, "c", &m, &e) == 0 && m.max_pos == 8192);
    CHECK(m.window == 8 + 1 && m.layer_mask[0] == 1 && m.rope_local == 10000 && m.act == ACT_GELU);
    CHECK(config_parse(mistral, sizeof mistral - 1, "c", &m, &e) == 0 && m.window == 4096);
    CHECK_MSG(config_parse(moe, sizeof moe - 1, "c", &m, &e) == 0, "%s", e.text);
    CHECK(m.n_layers == 40 && m.n_experts == 256 && m.layer_mask[0] == 0x77777777 && m.norm_topk);
    CHECK(m.ffn_width == 512 && m.shared_width == 512 && !m.dense_mask[0] && m.vocab == 248320);
    CHECK_MSG(config_parse(next, sizeof next - 1, "c", &m, &e) == 0, "%s", e.text);
    CHECK(m.layer_mask[0] == 0x77 && m.dense_mask[0] == 0x5d && m.rotary_dim == 64);
    CHECK(m.n_experts == 512 && m.experts_per_token == 10 && m.norm_topk && m.ffn_width == 5632);
    CHECK(m.expert_width == 512 && m.shared_width == 512 && m.delta_heads == 32);
    CHECK_MSG(config_parse(gpt_oss, sizeof gpt_oss - 1, "c", &m, &e) == 0, "%s", e.text);
    CHECK(m.window == 128 && m.layer_mask[0] == 2 && m.rope_theta == 150000 && m.head_dim == 64);
    CHECK(m.rope.kind == ROPE_YARN && m.rope.factor == 32 && m.rope.original == 4096);
    CHECK(m.rope.no_truncate && m.n_experts == 128 && m.experts_per_token == 4);
}

static int64_t count_of(const struct model_shape *m)
{
    int64_t n = 0;
    for (int i = 0; i < param_tensors(m); i++) {
        struct param p;
        param_get(m, i, &p);
        n += p.count;
    }
    return n;
}

/* Checks the RetNet of 1.3B that fla-hub has published, with 8 heads of 256 columns of keys and
 * 512 columns of values. Its file must be accepted unchanged as a job's model.config, and be
 * planned. */
static void test_published_retnet(void)
{
    static struct job_spec job;
    static struct plan p;
    char *text = file_read("tests/fuzz/seeds/fuzz_config/retnet_large.json", 1 << 16, NULL, &e);
    CHECK_MSG(text, "%s", e.text);
    spec_defaults(&job);
    job.kind = JOB_TRAIN;
    job.train.global_batch = 1;
    job.parallel.sp = 2;
    job.parallel.exchange = EXCHANGE_RING;
    job.data.seq_len = 2048;
    job.determinism = DET_RUN;
    if (!text) return;
    CHECK_MSG(config_take(&job, text, strlen(text), CONFIG_JOB, &e) == 0, "%s", e.text);
    const struct model_shape *m = &job.model.shape;
    CHECK(m->family == FAMILY_RETNET && m->head_dim == 256 && m->value_dim == 512 && !m->tied);
    /* a layer has q and k, v, the gate and the output, the MLP, and the norms */
    const int64_t layer = 2048 * (2 * 2048 + 3 * 4096) + 3 * 2048 * 4096 + 2 * 2048 + 512;
    CHECK(count_of(m) == 24 * layer + 2 * 32000 * 2048 + 2048);
    CHECK_MSG(plan_make(&job, 0, &p, &e) == 0, "%s: %s", e.field, e.text);
    CHECK(p.n_params == count_of(m));
    const int64_t state = 4 * 8 * 256 * 512; /* a layer's state, which is sent to the next rank */
    struct comm_count c[PURPOSE_N];
    plan_comm(m, &p, 0, c);
    CHECK(c[PURPOSE_STATE].bytes_sent == 24 * state && c[PURPOSE_DSTATE].bytes_sent == 0);
    CHECK(p.item[PLAN_STATE_M].size == state);
    free(text);
}

/* Checks the published Qwen3-Next of 80B, with 74,391 tensors. Also checks that a model with more
 * tensors than a directory may have is refused before any training. */
static void test_published_next(void)
{
    static struct job_spec job;
    static char out[8192];
    char *text = file_read("tests/fuzz/seeds/fuzz_config/qwen3_next.json", 1 << 16, NULL, &e);
    CHECK_MSG(text, "%s", e.text);
    spec_defaults(&job);
    if (!text) return;
    struct model_shape *m = &job.model.shape;
    CHECK_MSG(config_take(&job, text, strlen(text), CONFIG_JOB, &e) == 0, "%s", e.text);
    CHECK_MSG(hf_shape_json(m, out, sizeof out) > 0, "%d tensors", param_tensors(m));
    CHECK_MSG(strstr(out, "\"n_params\":79674391296}"), "%s", out); /* as transformers counts */
    char *part = strstr(text, "factor\": 0.25");
    /* the tensor is truncated to no column, or to a part of one */
    for (int i = 0; part && i < 2; i++) {
        memcpy(part + 9, i ? "1e-3" : "0.00", 4);
        CHECK(config_take(&job, text, strlen(text), CONFIG_JOB, &e) == -1);
        CHECK(!strcmp(e.field, "model.config.partial_rotary_factor"));
        CHECK_MSG(strstr(e.text, "turns no column"), "%s", e.text);
    }
    CHECK(part);
    memcpy(part ? part + 9 : text, "0.25", 4);
    CHECK_MSG(config_take(&job, text, strlen(text), CONFIG_JOB, &e) == 0, "%s", e.text);
    m->n_layers = 200;
    CHECK(family_complete(m, &e) == -1 && !strcmp(e.field, "model.config.num_local_experts"));
    CHECK_MSG(strstr(e.text, "at most 131072 tensors"), "%s", e.text);
    free(text);
}

/* Checks the config that was published in August 2025, with four of its layers. */
static void test_published(void)
{
    static struct model_shape m;
    size_t size;
    char *text = file_read("tests/fuzz/seeds/fuzz_config/gpt_oss.json", 1 << 16, &size, &e);
    CHECK_MSG(text && config_parse(text, size, "c", &m, &e) == 0, "%s", e.text);
    CHECK(m.family == FAMILY_GPT_OSS && m.n_experts == 32 && m.experts_per_token == 4);
    CHECK(m.window == 128 && m.layer_mask[0] == 10 && m.rope_theta == 150000 && !m.tied);
    CHECK(m.rope.kind == ROPE_YARN && m.rope.factor == 32 && m.rope.no_truncate);
    CHECK(m.rope.original == 4096 && m.rope.beta_fast == 32 && m.rope.beta_slow == 1);
    /* a layer has attention, two norms, the router and the experts */
    const int64_t layer = 2880 * (64 * 64 * 2 + 8 * 64 * 2) + 64 * 64 + 8 * 64 * 2 + 2880 + 64 +
                          2 * 2880 + 32 * 2881 + 32 * (2880 * 2880 * 3 + 2880 * 3);
    CHECK(count_of(&m) == 4 * layer + 2 * 201088 * 2880 + 2880);
    free(text);
}

int main(void)
{
    datadir_begin("families");
    RUN(test_shapes);
    RUN(test_describe);
    RUN(test_directories);
    RUN(test_old_bert);
    RUN(test_refusals);
    RUN(test_defaults);
    RUN(test_published);
    RUN(test_published_retnet);
    RUN(test_published_next);
    return datadir_end("families");
}
