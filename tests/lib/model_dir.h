/* model_dir.h: writes the directory of a tiny model that has a tokenizer of its own, and checks
 * the model's files in other directories. */
#ifndef SEQD_TESTS_MODEL_DIR_H
#define SEQD_TESTS_MODEL_DIR_H

#include <stdlib.h>
#include <unistd.h>
#include "api/core/file.h"
#include "tests/lib/hf_save.h"
#include "tests/lib/small.h"
#include "worker/hf/hf.h"
#include "worker/hf/files.h"

static char scratch[64]; /* the directory that has all files of the test */
static struct err e;
static float *weights; /* weights of tiny_shape */

static inline const char *in_dir(const char *dir, const char *name)
{
    static char path[8][1536];
    static int k;
    k = (k + 1) % 8;
    const bool there = !strncmp(dir, scratch, strlen(scratch));
    snprintf(path[k], sizeof path[k], "%s%s%s%s%s", there ? "" : scratch, there ? "" : "/", dir,
             *name ? "/" : "", name);
    return path[k];
}

static inline void put(const char *dir, const char *name, const char *text)
{
    CHECK_MSG(!file_make_dir(in_dir(dir, ""), &e) &&
                  !file_write(in_dir(dir, name), text, strlen(text), &e),
              "%s", e.text);
}

/* Returns the bytes of the file. If the file does not exist, the result is "". The caller frees
 * the result. */
static inline char *get(const char *dir, const char *name)
{
    struct err none = {0};
    char *text = file_read(in_dir(dir, name), 1 << 20, NULL, &none);
    return text ? text : strdup("");
}

static inline bool same_file(const char *a, const char *b, const char *name)
{
    char *x = get(a, name), *y = get(b, name);
    const bool same = *x && !strcmp(x, y);
    free(x), free(y);
    return same;
}

static inline bool there(const char *dir, const char *name)
{
    return file_exists(in_dir(dir, name));
}

/* Files of the tiny model: its tokenizer, and other files that model directories usually have. */
#define OWN_TOKENIZER "{\"version\":\"1.0\",\"model\":{\"type\":\"BPE\"}}"
static const char *const own_files[][2] = {
    {"tokenizer.json", OWN_TOKENIZER},
    {"tokenizer_config.json", "{\"chat_template\":\"{{ x }}\"}"},
    {"special_tokens_map.json", "{}"},
    {"tokenizer.model", "\x0a\x02<s>"},
    {"chat_template.jinja", "{% for m in messages %}"},
    {"generation_config.json", "{\"eos_token_id\":[7,9],\"top_p\":0.9}"},
    {"preprocessor_config.json", "{\"a\": 1}"},
    {"modeling_x.py", "print(1)\n"},
    {"README.md", "# a model\n"},
    {".gitattributes", "*.bin lfs\n"},
};
enum { N_OWN = sizeof own_files / sizeof *own_files };

static const char own_config[] =
    "{\"architectures\":[\"LlamaForCausalLM\"], \"model_type\":\"llama\", \"hidden_size\":48,\n"
    " \"num_hidden_layers\":2, \"num_attention_heads\":6, \"num_key_value_heads\":2, "
    "\"head_dim\":8,\n"
    " \"intermediate_size\":40, \"vocab_size\":260, \"max_position_embeddings\":4096,\n"
    " \"rms_norm_eps\":1e-05, \"rope_theta\":10000.0, \"dtype\":\"bfloat16\", \"bos_token_id\":1,\n"
    " \"eos_token_id\":[7, 9], \"cls_token_id\":3, \"initializer_range\": 2.00e-2,\n"
    " \"_x\":{\"b\": [1, {\"c\":\"\\u00e9\\n\"}], \"eos_token_id\":5}, \"attention_dropout\":0.1,\n"
    " \"sliding_window\":4096, \"transformers_version\":\"4.40.1\"}";

static inline void make_own(const char *dir)
{
    CHECK_MSG(!hf_save(in_dir(dir, ""), &tiny_shape, DT_F32, weights, &e), "%s", e.text);
    for (int i = 0; i < N_OWN; i++) put(dir, own_files[i][0], own_files[i][1]);
    put(dir, "config.json", own_config);
}

static inline int tokenizer_of(const char *dir)
{
    int32_t t = -1;
    CHECK_MSG(!hf_tokenizer_of(in_dir(dir, ""), &t, &e), "%s", e.text);
    return t;
}

/* Checks that config.json contains each of the texts in `has`, and none of the texts in
 * `hasnt`. */
static inline void check_config(const char *dir, const char *const *has, const char *const *hasnt)
{
    char *text = get(dir, "config.json");
    for (; *has; has++) CHECK_MSG(strstr(text, *has), "%s: no %s in %s", dir, *has, text);
    for (; *hasnt; hasnt++) CHECK_MSG(!strstr(text, *hasnt), "%s: %s in %s", dir, *hasnt, text);
    free(text);
}

#define KEPT                                                                                       \
    "\"initializer_range\":2.00e-2", "{\"b\": [1, {\"c\":\"\\u00e9\\n\"}], \"eos_token_id\":5}",   \
        "\"attention_dropout\":0.1", "\"transformers_version\":\"4.40.1\"",                        \
        "\"architectures\":[\"LlamaForCausalLM\"]"

static inline void model_dir_begin(const char *name)
{
    snprintf(scratch, sizeof scratch, "/tmp/%s.XXXXXX", name);
    if (!mkdtemp(scratch)) abort();
    setenv("SEQD_LOG", getenv("V") ? "info" : "error", 0);
    weights = calloc((size_t)param_count(&tiny_shape), sizeof *weights);
    for (int64_t i = 0; i < param_count(&tiny_shape); i++)
        weights[i] = (float)(i * 2654435761u % 1000) / 4000 - 0.125f;
}

static inline void model_dir_end(void)
{
    free(weights);
    if (file_remove(scratch, &e)) printf("  %s\n", e.text);
}

#endif
