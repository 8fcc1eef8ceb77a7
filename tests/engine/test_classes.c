/* test_classes.c: checks the classes that a config.json names. The base class of the package
 * transformers and the classes of the family's task must be accepted. All other classes must be
 * refused. tests/golden/classes.txt, which make_classes.py writes, lists every class of
 * transformers. The test also checks published files, and published files without a model_type.
 * tests: needs golden/classes.txt */
#include <stdlib.h>
#include <string.h>
#include "api/core/file.h"
#include "api/core/job.h"
#include "tests/lib/test.h"
#include "worker/family/config.h"
#include "worker/family/config_table.h"

static struct err e;
static struct model_shape shape;

/* All sizes that any family needs. */
#define SIZES                                                                                      \
    "\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":32,"                       \
    "\"intermediate_size\":64,\"vocab_size\":300"
#define DELTA                                                                                      \
    "\"hidden_size\":64,\"num_hidden_layers\":4,\"num_attention_heads\":4,"                        \
    "\"num_key_value_heads\":2,\"head_dim\":16,\"vocab_size\":300,\"linear_key_head_dim\":16,"     \
    "\"linear_value_head_dim\":16,\"linear_num_key_heads\":2,\"linear_num_value_heads\":4"
static const struct {
    const char *type, *sizes;
} sizes[] = {
    {"transnormer", "\"decoder_embed_dim\":32,\"decoder_layers\":2,\"decoder_attention_heads\":4,"
                    "\"glu_dim\":64,\"vocab_size\":300,\"hidden_dim\":32"},
    {"linear_attn", SIZES ",\"feature_map\":\"elu\""},
    {"minimax_text_01", SIZES ",\"postnorm\":true,\"attn_type_list\":[0,1]"},
    {"minimax_m1", SIZES ",\"postnorm\":true,\"attn_type_list\":[0,1]"},
    {"gpt2", "\"n_embd\":32,\"n_layer\":2,\"n_head\":4,\"vocab_size\":300"},
    {"qwen3_5_text", DELTA ",\"intermediate_size\":64"},
    {"qwen3_next", DELTA ",\"intermediate_size\":64,\"num_experts\":4,\"num_experts_per_tok\":2"},
    {"qwen3_5_moe_text", DELTA ",\"num_experts\":4,\"num_experts_per_tok\":2"},
    {"stdit", "\"hidden_size\":48,\"depth\":2,\"num_heads\":4"},
    {"STDiT", "\"hidden_size\":48,\"depth\":2,\"num_heads\":4"},
    {"stdit3", "\"hidden_size\":48,\"depth\":2,\"num_heads\":4"},
    {"STDiT3", "\"hidden_size\":48,\"depth\":2,\"num_heads\":4"},
    {"latte", "\"hidden_size\":48,\"depth\":2,\"num_heads\":4"},
    {"Latte", "\"hidden_size\":48,\"depth\":2,\"num_heads\":4"},
    {"transformer_2d", "\"hidden_size\":48,\"depth\":2,\"num_heads\":4"},
};

static const char *sizes_of(const char *type)
{
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (!strcmp(sizes[i].type, type)) return sizes[i].sizes;
    return SIZES;
}

static int parse(const char *text)
{
    e = (struct err){0};
    return config_parse(text, strlen(text), "config.json", &shape, &e);
}

/* Parses a config of this model_type. Its keys include those in `more`. */
static int parse_type(const char *type, const char *more)
{
    char text[4096];
    snprintf(text, sizeof text, "{\"model_type\":\"%s\",%s%s%s}", type, sizes_of(type),
             *more ? "," : "", more);
    return parse(text);
}

static bool is_task(const struct family_row *row, const char *kind)
{
    if (!strcmp(kind, "base")) return true;
    if (row->task == MODEL_CAUSAL_LM) return !strcmp(kind, "causal");
    return row->task == MODEL_MASKED_LM &&
           (!strcmp(kind, "masked") || !strcmp(kind, "pretraining"));
}

/* Checks one class of the package. */
static int n_taken, n_refused;
static void check_class(const struct family_row *row, const char *type, bool want, const char *name)
{
    char more[256];
    snprintf(more, sizeof more, "\"architectures\":[\"%s\"]", name);
    const int rc = parse_type(type, more);
    if (want) {
        CHECK_MSG(rc == 0, "%s as %s: %s", name, type, e.text);
        n_taken++;
        return;
    }
    CHECK_MSG(rc && e.code == ERR_UNSUPPORTED && strstr(e.text, "architectures names ") &&
                  strstr(e.text, name),
              "%s as %s passes: %s", name, row->name, e.text);
    n_refused++;
}

static char *golden(void)
{
    char *all = file_read("tests/golden/classes.txt", 1 << 20, NULL, &e);
    CHECK_MSG(all, "%s (run from the repository's root)", e.text);
    return all;
}

static int check_type(const struct family_row *row, const struct hf_model *m)
{
    char *all = golden(), *next = NULL, *word;
    int n = 0;
    for (char *l = all ? strtok_r(all, "\n", &next) : NULL; l; l = strtok_r(NULL, "\n", &next)) {
        if (*l == '#') continue;
        char *type = strtok_r(l, " ", &word), *kind = strtok_r(NULL, " ", &word), *name;
        const bool want = !strcmp(type, m->type) && is_task(row, kind);
        while ((name = strtok_r(NULL, " ", &word))) {
            check_class(row, m->type, want, name);
            n += want;
        }
    }
    free(all);
    return n;
}

/* Classes of other packages: TransNormerLLM, flash-linear-attention, MiniMax's own code,
 * Open-Sora, Latte and DSP. */
static const struct {
    const char *type, *classes[2];
} others[] = {{"transnormer", {"TransnormerForCausalLM", "TransnormerModel"}},
              {"linear_attn", {"LinearAttentionForCausalLM", "LinearAttentionModel"}},
              {"retnet", {"RetNetForCausalLM", "RetNetModel"}},
              {"minimax_text_01", {"MiniMaxText01ForCausalLM", "MiniMaxText01Model"}},
              {"minimax_m1", {"MiniMaxM1ForCausalLM", "MiniMaxM1Model"}},
              {"stdit", {"STDiT"}},
              {"STDiT", {"STDiT"}},
              {"stdit3", {"STDiT3"}},
              {"STDiT3", {"STDiT3"}},
              {"latte", {"Latte"}},
              {"Latte", {"Latte"}},
              {"transformer_2d", {"transformer_2d"}}};

static int check_other(const struct family_row *row, const struct hf_model *m)
{
    int n = 0;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        for (int k = 0; k < 2 && !strcmp(others[i].type, m->type) && others[i].classes[k]; k++, n++)
            check_class(row, m->type, true, others[i].classes[k]);
    return n;
}

/* Checks the classes of a wrapper around a text model. */
static void check_wrapper(const struct hf_wrapper *w)
{
    char *all = golden(), *next = NULL, *word, text[4096], want[160];
    int n = 0;
    for (char *l = all ? strtok_r(all, "\n", &next) : NULL; l; l = strtok_r(NULL, "\n", &next)) {
        if (*l == '#') continue;
        char *type = strtok_r(l, " ", &word), *kind = strtok_r(NULL, " ", &word), *name;
        const bool own = !strcmp(type, w->model.type);
        while ((name = strtok_r(NULL, " ", &word))) {
            const char *end = strstr(name, "ForConditionalGeneration");
            const bool taken = own && (!strcmp(kind, "base") || (end && strlen(end) == 24));
            snprintf(text, sizeof text,
                     "{\"model_type\":\"%s\",\"architectures\":[\"%s\"],\"text_config\":{%s}}",
                     w->model.type, name, sizes_of(w->text));
            const int rc = parse(text);
            snprintf(want, sizeof want, "names %.100s, another model", name);
            CHECK_MSG(taken ? !rc : rc && strstr(e.text, want), "%s as %s: %s", name, w->model.type,
                      e.text);
            n += taken;
        }
    }
    CHECK_MSG(n == 2, "%s: %d classes", w->model.type, n);
    free(all);
}

static void test_every_class(void)
{
    for (const struct hf_wrapper *w = wrapper_rows; w->model.type; w++) check_wrapper(w);
    for (int f = 0; f < FAMILY_N; f++) {
        const struct model_shape of = {.family = f};
        const struct family_row *row = family_row(&of);
        for (const struct hf_model *m = row->config->models; m->type; m++) {
            int n = 0, have = check_type(row, m) + check_other(row, m);
            while (m->classes[n]) n++;
            CHECK_MSG(n == have, "%s lists %d classes, the packages have %d", m->type, n, have);
        }
    }
    CHECK_MSG(n_taken > 60 && n_refused > 60000, "%d, %d", n_taken, n_refused);
}

/* Checks every text model of transformers. Each model must be supported, or must be refused with
 * an error that names the missing feature. */
static void test_lacks(void)
{
    char *all = golden(), *next = NULL, *word, text[128];
    int n = 0;
    for (char *l = all ? strtok_r(all, "\n", &next) : NULL; l; l = strtok_r(NULL, "\n", &next)) {
        if (*l == '#') continue;
        char *type = strtok_r(l, " ", &word), *kind = strtok_r(NULL, " ", &word);
        if (strcmp(kind, "causal") && strcmp(kind, "masked")) continue;
        snprintf(text, sizeof text, "{\"model_type\":\"%s\"}", type);
        parse(text);
        const bool known = !strstr(e.text, "is not supported");
        CHECK_MSG(known || strstr(e.text, "is not supported: it needs "), "%s", type);
        CHECK_MSG(!known || !config_lacks(type), "%s", type);
        n += !known;
    }
    CHECK_MSG(n > 170, "%d", n);
    free(all);
}

/* Checks configs as they are published on the Hub, but with other sizes. */
static void test_published(void)
{
    static const struct {
        const char *type, *more, *says; /* NULL means that the config is accepted */
    } v[] = {
        {"llama", "", NULL},
        {"llama", "\"architectures\":null", NULL},
        {"llama", "\"architectures\":[]", NULL},
        {"llama", "\"architectures\":[\"LlamaForCausalLM\"],\"auto_map\":null", NULL},
        {"bert", "\"architectures\":[\"BertModel\"]", NULL},
        {"phi3",
         "\"architectures\":[\"Phi3ForCausalLM\"],\"auto_map\":{\"AutoConfig\":"
         "\"configuration_phi3.Phi3Config\",\"AutoTokenizer\":\"Xenova/gpt-4o\","
         "\"AutoModelForCausalLM\":\"modeling_phi3.Phi3ForCausalLM\"}",
         NULL},
        {"minimax_text_01",
         "\"architectures\":[\"MiniMaxText01ForCausalLM\"],\"auto_map\":{\"AutoConfig\":"
         "\"configuration_minimax_text_01.MiniMaxText01Config\",\"AutoModelForCausalLM\":"
         "\"modeling_minimax_text_01.MiniMaxText01ForCausalLM\"}",
         NULL},
        {"STDiT3",
         "\"architectures\":[\"STDiT3\"],\"auto_map\":{\"AutoConfig\":"
         "\"hpcai-tech/OpenSora-STDiT-v3--configuration_stdit3.STDiT3Config\",\"AutoModel\":"
         "\"hpcai-tech/OpenSora-STDiT-v3--modeling_stdit3.STDiT3\"}",
         NULL},
        {"Latte", "\"_class_name\":\"Latte\"", NULL},
        /* an encoder that attends in both directions, with the keys of a Llama */
        {"llama", "\"architectures\":[\"LlamaBiModel\"]",
         "architectures names LlamaBiModel, another model: of model_type \"llama\" only "
         "LlamaForCausalLM or LlamaModel is computed"},
        {"llama", "\"architectures\":[\"LlamaForSequenceClassification\"],\"num_labels\":1",
         "architectures names LlamaForSequenceClassification, another model"},
        {"llama", "\"architectures\":[\"LlamaForCausalLM\",\"LlamaForSequenceClassification\"]",
         "architectures names LlamaForSequenceClassification, another model"},
        {"llama", "\"architectures\":[\"x.LlamaEncoder\"]", "architectures names LlamaEncoder,"},
        {"qwen2",
         "\"architectures\":[\"Qwen2ForCausalLM\"],\"auto_map\":{\"AutoModel\":"
         "\"modeling_qwen.Qwen2Model\",\"AutoModelForSequenceClassification\":"
         "\"modeling_qwen.Qwen2ForSequenceClassification\"}",
         "auto_map names Qwen2ForSequenceClassification, another model"},
        {"mistral", "\"auto_map\":{\"AutoModel\":\"a/b--modeling_x.BidirectionalMistral\"}",
         "auto_map names BidirectionalMistral, another model"},
        {"Latte", "\"_class_name\":\"LatteTransformer3DModel\"",
         "_class_name names LatteTransformer3DModel, another model"},
        {"bert", "\"architectures\":[\"BertLMHeadModel\"]", "names BertLMHeadModel, another model"},
        {"llama", "\"architectures\":\"Gemma2Model\"", "names Gemma2Model, another model"},
        {"llama", "\"architectures\":[7]", "architectures must be an array of the names"},
        {"llama", "\"architectures\":{}", "architectures must be an array of the names"},
        {"llama", "\"auto_map\":[\"LlamaModel\"]", "auto_map must be an object"},
        {"llama", "\"auto_map\":{\"AutoModel\":3}", "auto_map must be an array of the names"},
        {"llama", "\"architectures\":[],\"architectures\":[\"BertModel\"]", "occurs twice"},
    };
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        const int rc = parse_type(v[i].type, v[i].more);
        CHECK_MSG(v[i].says ? rc && strstr(e.text, v[i].says) : !rc, "%s: %s", v[i].more, e.text);
    }
}

/* Checks a published config without its model_type, in a file and in a job's model.config. */
static void test_no_type(void)
{
    static const struct {
        const char *text, *key, *says;
    } v[] = {
        {"\"_class_name\":\"LatteTransformer3DModel\",\"_diffusers_version\":\"0.30.0\"",
         "_class_name", "names LatteTransformer3DModel without a model_type, a model of another "},
        {"\"architectures\":[\"GPTNeoXForCausalLM\"]", "architectures",
         "names GPTNeoXForCausalLM without a model_type"},
        {"\"architectures\":[\"LlamaForCausalLM\"]", "architectures",
         "names LlamaForCausalLM without a model_type: add \"model_type\": \"llama\""},
        {"\"architectures\":[]", "architectures", "architectures without model_type: add"},
        {"\"auto_map\":{\"AutoModel\":\"x.Y\"}", "auto_map", "auto_map without model_type: add"},
        {"\"transformers_version\":\"4.40.0\"", "transformers_version",
         "transformers_version without model_type: add"},
    };
    static struct job_spec job;
    char text[512], field[64];
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        snprintf(text, sizeof text, "{%s,%s}", v[i].text, SIZES);
        CHECK(parse(text) == -1);
        CHECK_MSG(strstr(e.text, v[i].says), "%s: %s", v[i].text, e.text);
        spec_defaults(&job);
        CHECK(config_take(&job, text, strlen(text), CONFIG_JOB, &e) == -1);
        CHECK_MSG(strstr(e.text, v[i].says), "%s: %s", v[i].text, e.text);
        snprintf(field, sizeof field, "model.config.%s", v[i].key);
        CHECK_STR(e.field, field);
    }
    /* a config that a user wrote for a job is not a published config, so its default model_type is
     * llama */
    snprintf(text, sizeof text, "{%s}", SIZES);
    spec_defaults(&job);
    CHECK_MSG(config_take(&job, text, strlen(text), CONFIG_JOB, &e) == 0, "%s", e.text);
    CHECK(job.model.shape.family == FAMILY_LLAMA);
}

int main(void)
{
    RUN(test_every_class);
    RUN(test_lacks);
    RUN(test_published);
    RUN(test_no_type);
    return test_done("classes");
}
