/* test_wrapper.c: checks directories of models that read pictures and contain a text model. The
 * directories are made from the golden files of text models. The weights must be the same in every
 * layout that transformers writes. In the saved directory, all keys and tensors outside of the
 * text model must be unchanged.
 * tests: needs golden */
#include <stdlib.h>
#include <string.h>
#include "api/core/file.h"
#include "api/core/job.h"
#include "tests/lib/hf_save.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test.h"
#include "worker/hf/files.h"
#include "worker/hf/halves.h"
#include "worker/hf/hf.h"
#include "worker/hf/safetensors.h"
#include "worker/hf/tokenizer.h"

#define VISION                                                                                     \
    "\"vision_config\": {\"hidden_size\": 1152,  \"model_type\": \"x\", \"tie\": [1, 2.50]}"

static struct err e;
static char dir[300];

/* Prefixes of the text model's tensors, for names that begin with "model." and for all other
 * names. */
static const struct layout {
    const char *model, *other, *vision[2];
} layouts[] = {
    {"language_model.model.", "language_model.", {"vision_tower.a", "multi_modal_projector.b"}},
    {"model.language_model.", "", {"model.vision_tower.a", "model.multi_modal_projector.b"}},
    {"model.language_model.", "", {"model.visual.a", "model.visual.b"}},
};
static const struct {
    const char *type, *text, *class, *keys;
    int layouts[2];
} wrappers[] = {
    {"gemma3", "gemma3", "Gemma3ForConditionalGeneration", "\"mm_tokens_per_image\": 4", {0, 1}},
    {"mistral3",
     "mistral",
     "Mistral3ForConditionalGeneration",
     "\"vision_feature_layer\": -1, \"spatial_merge_size\": 2",
     {0, 1}},
    {"qwen3_5", "qwen3_5", "Qwen3_5ForConditionalGeneration", "\"image_token_id\": 7", {2, 2}},
    {"qwen3_5_moe",
     "qwen3_5_moe",
     "Qwen3_5MoeForConditionalGeneration",
     "\"video_token_id\": 7",
     {2, 2}},
};
enum { N_WRAPPERS = sizeof wrappers / sizeof *wrappers };

static char *path_of(const char *name, const char *file)
{
    static char path[4][600];
    static int at;
    at = (at + 1) % 4;
    snprintf(path[at], sizeof path[at], "%s/%s/%s", dir, name, file);
    return path[at];
}

static char *golden_of(int i, const char *file)
{
    static char path[200];
    snprintf(path, sizeof path, "tests/golden/%s/%s", wrappers[i].text, file);
    return path;
}

static void put(const char *name, const char *file, const char *text)
{
    CHECK(!file_make_dir(path_of(name, ""), &e) &&
          !file_write(path_of(name, file), text, strlen(text), &e));
}

/* Writes a wrapper's config.json around `text`. */
static void put_config(int i, const char *name, const char *text, const char *more)
{
    static char out[8192];
    snprintf(
        out, sizeof out,
        "{\"architectures\": [\"%s\"], \"model_type\": \"%s\", %s, \"text_config\": %s, " VISION
        "%s}",
        wrappers[i].class, wrappers[i].type, wrappers[i].keys, text, more);
    put(name, "config.json", out);
}

static const uint8_t half_a[6] = {1, 2, 3, 4, 5, 6}; /* bf16 [3] */
static const uint8_t half_b[4] = {250, 128, 0, 255}; /* u8 [2, 2] */

/* Writes the tensors of the golden file with the names of the layout *l, and the tensors of the
 * vision model. */
static void put_weights(int i, const char *name, const struct layout *l)
{
    struct st_file *f = st_open(golden_of(i, "model.safetensors"), &e);
    CHECK_MSG(f, "%s (run from the repository's root)", e.text);
    const int n = st_count(f);
    struct st_out *items = calloc((size_t)n + 2, sizeof *items);
    char(*names)[ST_NAME_SIZE] = calloc((size_t)n, sizeof *names);
    for (int k = 0; k < n; k++) {
        const struct st_tensor *t = st_at(f, k);
        const bool of_model = !strncmp(t->name, "model.", 6);
        snprintf(names[k], sizeof names[k], "%s%s", of_model ? l->model : l->other,
                 t->name + 6 * of_model);
        items[k] = (struct st_out){names[k], t->dtype, t->n_dims, {0}, st_data(f, t)};
        memcpy(items[k].dims, t->dims, sizeof items[k].dims);
    }
    items[n] = (struct st_out){l->vision[0], ST_BF16, 1, {3}, half_a};
    items[n + 1] = (struct st_out){l->vision[1], ST_U8, 2, {2, 2}, half_b};
    CHECK_MSG(!st_write(path_of(name, "model.safetensors"), items, n + 2, &e), "%s", e.text);
    free(names);
    free(items);
    st_close(f);
}

static void same_bytes(const struct st_file *f, const char *name, const void *want, int64_t size)
{
    const struct st_tensor *t = st_find(f, name);
    CHECK_MSG(t && t->size == size && !memcmp(st_data(f, t), want, (size_t)size), "%s", name);
}

/* Checks that files a and b have the same tensors, and that the tensors outside of the language
 * model have the same bits. */
static void same_files(const char *a, const char *b, const struct layout *l)
{
    struct st_file *x = st_open(a, &e), *y = st_open(b, &e);
    CHECK_MSG(x && y, "%s", e.text);
    CHECK(st_count(x) == st_count(y));
    for (int i = 0; i < st_count(x); i++)
        CHECK_MSG(st_find(y, st_at(x, i)->name), "%s", st_at(x, i)->name);
    same_bytes(y, l->vision[0], half_a, sizeof half_a);
    same_bytes(y, l->vision[1], half_b, sizeof half_b);
    st_close(x);
    st_close(y);
}

/* Checks the directory that a training saves. */
static void check_saved(const char *name, const struct layout *l, const struct model_shape *m,
                        const float *params)
{
    const struct hf_beside beside = {.from = path_of(name, "")};
    const size_t size = (size_t)param_count(m) * sizeof(float);
    float *again = malloc(size);
    const struct hf_flat weights = {"", params, DT_F32};
    struct model_shape other = *m;
    struct st_digest written = {.of_tensors = true};
    char digest[65];
    other.rope_theta = 4321;
    CHECK_MSG(!hf_save_flat(path_of("saved", ""), &other, &weights, &beside, &written, &e), "%s",
              e.text);
    CHECK(!hf_weights_digest(m, DT_F32, params, digest, &e));
    CHECK_STR(written.tensors, digest); /* only the tensors of the text model */
    same_files(path_of("in", "model.safetensors"), path_of("saved", "model.safetensors"), l);
    CHECK_MSG(!hf_load(path_of("saved", ""), m, DT_F32, again, &e), "%s", e.text);
    CHECK(!memcmp(again, params, size));
    free(again);
    char *text = file_read(path_of("saved", "config.json"), 1 << 20, NULL, &e);
    CHECK_MSG(strstr(text, "{\"hidden_size\": 1152,  \"model_type\": \"x\", \"tie\": [1, 2.50]}"),
              "%s", text);
    const char *inside = strstr(text, "\"text_config\""), *at = strstr(text, "4321");
    CHECK_MSG(at && at > inside && at < strstr(text, "\"vision_config\"") &&
                  !strstr(at + 1, "4321"),
              "%s", text);
    free(text);
    CHECK_MSG(!config_read_dir(path_of("saved", ""), &other, &e), "%s", e.text);
    CHECK(other.rope_theta == 4321);
    other.rope_theta = m->rope_theta;
    CHECK(!hf_shape_diff(&other, m));
    CHECK(!file_remove(path_of("saved", ""), &e));
}

/* Checks the files that a job copies from a model directory, because the directory may be removed
 * while the job runs. */
static void check_taken(const struct layout *l, const struct model_shape *m, const float *params)
{
    char from[300], to[300];
    snprintf(from, sizeof from, "%s", path_of("in", ""));
    snprintf(to, sizeof to, "%s", path_of("beside", ""));
    const struct hf_take take = {.from = from, .to = to};
    CHECK(!file_make_dir(to, &e) && !config_copy(from, to, &e));
    CHECK_MSG(!hf_halves_take(&take, m, &e), "%s", e.text);
    check_saved("beside", l, m, params);
    CHECK(!file_remove(to, &e));
}

static void test_layouts(void)
{
    for (int i = 0; i < N_WRAPPERS; i++) {
        struct model_shape text, m;
        char *config = file_read(golden_of(i, "config.json"), 1 << 20, NULL, &e), json[8192];
        CHECK_MSG(!config_parse(config, strlen(config), "text", &text, &e), "%s", e.text);
        const size_t size = (size_t)param_count(&text) * sizeof(float);
        float *want = malloc(size), *have = malloc(size);
        snprintf(json, sizeof json, "tests/golden/%s", wrappers[i].text);
        CHECK_MSG(!hf_load(json, &text, DT_F32, want, &e), "%s", e.text);
        for (int k = 0; k < 2; k++) {
            put_config(i, "in", config, "");
            put_weights(i, "in", &layouts[wrappers[i].layouts[k]]);
            CHECK_MSG(!config_read_dir(path_of("in", ""), &m, &e), "%s", e.text);
            CHECK_MSG(!hf_shape_diff(&m, &text), "%s: %s", wrappers[i].type,
                      hf_shape_diff(&m, &text));
            CHECK_MSG(hf_describe(path_of("in", ""), json, sizeof json, &e) > 0, "%s", e.text);
            CHECK_MSG(!hf_load(path_of("in", ""), &m, DT_F32, have, &e), "%s", e.text);
            CHECK_MSG(!memcmp(want, have, size), "%s: other weights", wrappers[i].type);
            const struct layout *l = &layouts[wrappers[i].layouts[k]];
            check_saved("in", l, &m, have);
            check_taken(l, &m, have);
            CHECK(!file_remove(path_of("in", ""), &e));
        }
        free(want);
        free(have);
        free(config);
    }
}

static void parse(int i, const char *text, const char *more, const char *says)
{
    struct model_shape m;
    e = (struct err){0};
    put_config(i, "bad", text, more);
    const int rc = config_read_dir(path_of("bad", ""), &m, &e);
    CHECK_MSG(says ? rc && strstr(e.text, says) : !rc, "%s %s: %s", text, more, e.text);
}

static void test_config(void)
{
    struct model_shape m;
    static struct job_spec job;
    parse(0, "{}", "", NULL);
    parse(0, "{}", ",\"is_encoder_decoder\":false,\"_name_or_path\":\"x\"", NULL);
    parse(0, "{}", ",\"wings\":2", "wings: is not a key of this model beside text_config");
    parse(0, "{}", ",\"a\\u001b[2J\":2", "config.json: (not a word): is not a key of this model");
    parse(0, "{}", ",\"a: b\":2", "config.json: (not a word): is not a key of this model");
    parse(0, "{\"wings\":2}", "", "wings: is not a key of this family");
    parse(0, "{\"model_type\":\"gemma3n_text\"}", "",
          "text_config has model_type \"gemma3n_text\": of model_type \"gemma3\" only "
          "\"gemma3_text\" is computed");
    parse(1, "{\"model_type\":\"ministral3\"}", "", "of model_type \"mistral3\" only \"mistral\"");
    parse(0, "{\"architectures\":[\"Gemma3TextModel\"]}", "", NULL);
    parse(0, "{\"architectures\":[\"Gemma2Model\"]}", "",
          "architectures names Gemma2Model, another");
    parse(0, "{}", ",\"auto_map\":{\"AutoModel\":\"x.Gemma3Encoder\"}", "names Gemma3Encoder,");
    parse(0, "{}", ",\"quantization_config\":{\"quant_method\":\"awq\"}", "quantization_config");
    parse(0, "null", "", "text_config is missing, an object: the model of text in a \"gemma3\"");
    parse(0, "[]", "", "text_config is missing, an object");
    parse(0, "{}", ",\"text_config\":{}", "text_config occurs twice");
    parse(0, "{}", ",\"model_type\":\"llama\"", "model_type occurs twice");
    parse(2, "{\"model_type\":\"qwen3_5\"}", "", "only \"qwen3_5_text\" is computed");
    /* if the wrapper itself has a key that ties the head, that key decides */
    static const struct {
        int i, tied;
        const char *text, *more;
    } ties[] = {{0, 1, "{}", ""},
                {0, 0, "{}", ",\"tie_word_embeddings\":false"},
                {0, 1, "{}", ",\"tie_word_embeddings\":null"},
                {1, 0, "{}", ""},
                {1, 1, "{\"tie_word_embeddings\":false}", ",\"tie_word_embeddings\":true"},
                {1, 1, "{\"tie_word_embeddings\":true}", ""},
                {2, 1, "{}", ",\"tie_word_embeddings\":true"}};
    for (size_t k = 0; k < sizeof ties / sizeof *ties; k++) {
        put_config(ties[k].i, "tie", ties[k].text, ties[k].more);
        CHECK_MSG(!config_read_dir(path_of("tie", ""), &m, &e), "%s", e.text);
        CHECK_MSG(m.tied == ties[k].tied, "%s%s", ties[k].text, ties[k].more);
    }
    /* in a job, config.json is that of the text model */
    char *text = file_read(path_of("tie", "config.json"), 1 << 20, NULL, &e);
    spec_defaults(&job);
    CHECK_MSG(!config_take(&job, text, strlen(text), CONFIG_JOB, &e), "%s", e.text);
    CHECK_MSG(strstr(job.model.config, "\"model_type\":\"qwen3_5_text\""), "%s", job.model.config);
    free(text);
}

/* Checks which ids end a text. They must be the ids that the wrapper lists. If the wrapper lists
 * none, they must be the ids in its text_config. */
static void test_ends(void)
{
    struct token_ends ends;
    put_config(0, "ends", "{\"eos_token_id\":[5,6]}", "");
    CHECK(!hf_read_ends(path_of("ends", ""), &ends, &e) && ends.n == 2 && ends.id[1] == 6);
    CHECK(ends.from == ENDS_CONFIG);
    put_config(0, "ends", "{\"eos_token_id\":[5,6]}", ",\"eos_token_id\":7");
    CHECK(!hf_read_ends(path_of("ends", ""), &ends, &e) && ends.n == 1 && ends.id[0] == 7);
    put_config(0, "ends", "{\"eos_token_id\":true}", "");
    CHECK(hf_read_ends(path_of("ends", ""), &ends, &e) && e.code == ERR_INVALID);
}

int main(void)
{
    scratch_dir(dir, sizeof dir, "wrapper");
    RUN(test_layouts);
    RUN(test_config);
    RUN(test_ends);
    CHECK(!file_remove(dir, &e));
    return test_done("wrapper");
}
