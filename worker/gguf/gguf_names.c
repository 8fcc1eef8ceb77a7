/* gguf_names.c: a table of architectures and a table of names of tensors. In a file, a tensor of
 * layer N has "blk.N." before the name in its row. */
#include "worker/gguf/gguf_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct gguf_arch arches[] = {
    {"llama", "llama", "LlamaForCausalLM", .permuted = true},
    {"qwen2", "qwen2", "Qwen2ForCausalLM", .permuted = false},
    {"qwen3", "qwen3", "Qwen3ForCausalLM", .permuted = false},
    {"gemma3", "gemma3_text", "Gemma3ForCausalLM", .one_more = true, .windowed = true},
};
enum { ARCHES = sizeof arches / sizeof *arches };

const struct gguf_arch *gguf_arch(const struct gguf *g, struct err *e)
{
    char name[48];
    if (!gguf_word(g, "general.architecture", name, sizeof name)) {
        err_set(e, ERR_CORRUPT,
                "%s: general.architecture is missing, or not a short word: fetch "
                "the file again",
                gguf_path(g));
        return NULL;
    }
    for (int i = 0; i < ARCHES; i++)
        if (!strcmp(name, arches[i].name)) return &arches[i];
    err_set(e, ERR_UNSUPPORTED,
            "%s: general.architecture is \"%s\", and llama, qwen2, qwen3 and gemma3 are read from "
            "GGUF files: give the published directory with its safetensors",
            gguf_path(g), name);
    return NULL;
}

/* Names without .weight or .bias. */
static const struct {
    const char *from, *to;
    /* Used instead of `to` if the model also has norms after attention and after the MLP. If
     * it is NULL, `to` is used for such a model, too. */
    const char *four;
} layer[] =
    {
        {"attn_norm", "input_layernorm", NULL},
        {"attn_q", "self_attn.q_proj", NULL},
        {"attn_k", "self_attn.k_proj", NULL},
        {"attn_v", "self_attn.v_proj", NULL},
        {"attn_output", "self_attn.o_proj", NULL},
        {"attn_q_norm", "self_attn.q_norm", NULL},
        {"attn_k_norm", "self_attn.k_norm", NULL},
        {"post_attention_norm", NULL, "post_attention_layernorm"},
        {"ffn_norm", "post_attention_layernorm", "pre_feedforward_layernorm"},
        {"post_ffw_norm", NULL, "post_feedforward_layernorm"},
        {"ffn_gate", "mlp.gate_proj", NULL},
        {"ffn_up", "mlp.up_proj", NULL},
        {"ffn_down", "mlp.down_proj", NULL},
},
  whole[] = {
      {"token_embd", "model.embed_tokens", NULL},
      {"output_norm", "model.norm", NULL},
      {"output", "lm_head", NULL},
};
enum { LAYER = sizeof layer / sizeof *layer, WHOLE = sizeof whole / sizeof *whole };

static bool ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), k = strlen(end);
    return n >= k && !strcmp(s + n - k, end);
}

/* Returns the name in transformers for row i. Returns NULL if this architecture does not have
 * the tensor of the row. */
static const char *layer_name(const struct gguf_arch *a, int i)
{
    return a->one_more && layer[i].four ? layer[i].four : layer[i].to;
}

static void place_layer(const struct gguf_arch *a, const char *number, const char *stem,
                        const char *end, struct gguf_place *out)
{
    for (int i = 0; i < LAYER; i++) {
        const char *to = layer_name(a, i);
        if (!to || strcmp(stem, layer[i].from)) continue;
        snprintf(out->name, sizeof out->name, "model.layers.%s.%s.%s", number, to, end);
        out->q = a->permuted && !strcmp(stem, "attn_q");
        out->k = a->permuted && !strcmp(stem, "attn_k");
    }
}

void gguf_place(const struct gguf_arch *a, const char *name, struct gguf_place *out)
{
    char part[GGUF_NAME_SIZE];
    *out = (struct gguf_place){.passed = !strcmp(name, "rope_freqs.weight")};
    snprintf(out->name, sizeof out->name, "%s", name);
    snprintf(part, sizeof part, "%s", name);
    char *end = strrchr(part, '.'), *stem = part;
    if (!end || (strcmp(end, ".weight") && strcmp(end, ".bias"))) return;
    *end++ = 0;
    out->one_more = a->one_more && ends_with(part, "norm");
    if (!strncmp(part, "blk.", 4)) {
        const size_t digits = strspn(part + 4, "0123456789");
        stem = part + 4 + digits;
        if (digits && digits < 6 && *stem == '.') {
            *stem++ = 0;
            place_layer(a, part + 4, stem, end, out);
        }
        return;
    }
    for (int i = 0; i < WHOLE; i++)
        if (!strcmp(stem, whole[i].from))
            snprintf(out->name, sizeof out->name, "%s.%s", whole[i].to, end);
}

void gguf_name_of(const struct gguf_arch *a, const char *name, char out[GGUF_NAME_SIZE])
{
    static const char layers[] = "model.layers.";
    char stem[GGUF_NAME_SIZE];
    snprintf(out, GGUF_NAME_SIZE, "%s", name);
    snprintf(stem, sizeof stem, "%s", name);
    char *end = strrchr(stem, '.'), *number = stem + sizeof layers - 1;
    if (!end) return;
    *end++ = 0;
    for (int i = 0; i < WHOLE; i++)
        if (!strcmp(stem, whole[i].to)) snprintf(out, GGUF_NAME_SIZE, "%s.%s", whole[i].from, end);
    if (strncmp(stem, layers, sizeof layers - 1)) return;
    const size_t digits = strspn(number, "0123456789");
    if (!digits || number[digits] != '.') return;
    for (int i = 0; i < LAYER; i++) {
        const char *to = layer_name(a, i);
        if (to && !strcmp(number + digits + 1, to))
            snprintf(out, GGUF_NAME_SIZE, "blk.%.*s.%s.%s", (int)digits, number, layer[i].from,
                     end);
    }
}
