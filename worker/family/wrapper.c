/* wrapper.c: the table of wrappers, with the keys of the other part, which is not computed. Also
 * reads the keys outside text_config. */
#include "worker/family/wrapper.h"

#include <stdio.h>
#include <string.h>
#include "worker/family/config_table.h"

const char *const wrapper_half[] = {"vision_tower.",
                                    "multi_modal_projector.",
                                    "model.vision_tower.",
                                    "model.multi_modal_projector.",
                                    "visual.",
                                    "model.visual.",
                                    NULL};

/* Renames the tensors of both layouts of the package, and the tensors of the wrapper's base
 * class. */
void wrapper_rename(const char *stored, char *name, size_t size)
{
    static const struct {
        const char *from, *to;
    } starts[] = {{"language_model.lm_head.", "lm_head."},
                  {"language_model.model.", "model."},
                  {"model.language_model.", "model."},
                  {"language_model.", "model."},
                  {"", ""}};
    size_t i = 0;
    while (strncmp(stored, starts[i].from, strlen(starts[i].from))) i++;
    snprintf(name, size, "%s%s", starts[i].to, stored + strlen(starts[i].from));
}

/* ---- config.json ----------------------------------------------------------------------------- */

static const char *const gemma3_keys[] = {
    "vision_config",   "mm_tokens_per_image", "boi_token_index",
    "eoi_token_index", "image_token_index",   "boi_token_id",
    "eoi_token_id",    "image_token_id",      NULL};
static const char *const mistral3_keys[] = {"vision_config",        "image_token_index",
                                            "image_token_id",       "projector_hidden_act",
                                            "vision_feature_layer", "multimodal_projector_bias",
                                            "spatial_merge_size",   NULL};
static const char *const qwen3_5_keys[] = {"vision_config",
                                           "image_token_id",
                                           "video_token_id",
                                           "vision_start_token_id",
                                           "vision_end_token_id",
                                           "language_model_only",
                                           NULL};

const struct hf_wrapper wrapper_rows[] = {
    {{"gemma3", NULL, {"Gemma3ForConditionalGeneration", "Gemma3Model"}},
     "gemma3_text",
     gemma3_keys},
    {{"mistral3", NULL, {"Mistral3ForConditionalGeneration", "Mistral3Model"}},
     "mistral",
     mistral3_keys},
    {{"qwen3_5", NULL, {"Qwen3_5ForConditionalGeneration", "Qwen3_5Model"}},
     "qwen3_5_text",
     qwen3_5_keys},
    {{"qwen3_5_moe", NULL, {"Qwen3_5MoeForConditionalGeneration", "Qwen3_5MoeModel"}},
     "qwen3_5_moe_text",
     qwen3_5_keys},
    {{NULL, NULL, {NULL}}, NULL, NULL}};

/* Reads tie_word_embeddings of the wrapper. In the package it decides whether the head is tied.
 * The package does not use tie_word_embeddings of text_config. */
static int read_tied(struct config *c, const char *key)
{
    bool tied = false;
    struct jread here = c->j;
    if (jread_next(&here) == J_NULL) return config_ignore(c, key);
    if (config_read_bool(c, key, &tied) < 0) return -1;
    c->tied = 1 + tied;
    return 0;
}

static const struct hf_special specials[] = {{"tie_word_embeddings", read_tied, NULL},
                                             {"quantization_config", config_want_plain, NULL},
                                             {"text_config", config_ignore, NULL},
                                             {"model_type", config_ignore, NULL},
                                             {NULL, NULL, NULL}};

static bool is_other_half(const struct hf_wrapper *w, const char *key)
{
    for (const char *const *k = w->keys; *k; k++)
        if (!strcmp(*k, key)) return true;
    return false;
}

static int read_key(struct config *c)
{
    char key[96];
    const struct hf_special *x = specials;
    if (jread_copy(&c->j, key, sizeof key) < 0) key[0] = 0;
    while (x->key && strcmp(x->key, key)) x++;
    if (x->key) return x->read(c, x->key);
    if (is_other_half(c->wrapper, key) || config_is_nothing(c, key)) return config_ignore(c, key);
    if ((x = config_neutral(key))) return x->read(c, x->key);
    return config_ignore(c, key) < 0
               ? -1
               : config_refuse(c, config_shown(key),
                               "is not a key of this model beside text_config");
}

int wrapper_read(struct config *c, const char *text, size_t size)
{
    jread_init(&c->j, text, size);
    jread_next(&c->j);
    while (jread_next(&c->j) == J_KEY)
        if (read_key(c) < 0) return -1;
    return 0;
}
