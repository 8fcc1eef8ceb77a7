/* gguf_words.c: a table of words and their replacements. A word is replaced only where it is a
 * whole word of the text. */
#include "worker/gguf/gguf_words.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "worker/gguf/gguf_names.h"
#include "worker/gguf/model_file.h"

/* Pairs of keys: `from` is a key of config.json, and `to` is the key of GGUF from which
 * gguf_config.c reads the value of this key. The name of the architecture is left out. */
static const struct {
    const char *from, *to;
} words[] = {
    {"hidden_size", "embedding_length"},
    {"num_hidden_layers", "block_count"},
    {"intermediate_size", "feed_forward_length"},
    {"num_attention_heads", "attention.head_count"},
    {"num_key_value_heads", "attention.head_count_kv"},
    {"head_dim", "attention.key_length"},
    {"max_position_embeddings", "context_length"},
    {"rms_norm_eps", "attention.layer_norm_rms_epsilon"},
    {"rope_theta", "rope.freq_base"},
    {"rope_local_base_freq", "rope.freq_base_swa"},
    {"sliding_window", "attention.sliding_window"},
    {"sliding_window_pattern", "attention.sliding_window_pattern"},
    {"original_max_position_embeddings", "rope.scaling.original_context_length"},
    {"vocab_size", "vocab_size"},
};
enum { WORDS = sizeof words / sizeof *words };

static bool of_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Returns the replacement of a word, which has n bytes. Returns NULL if the table has no
 * replacement for the word. */
static const char *find(const char *word, size_t n)
{
    for (int i = 0; i < WORDS; i++)
        if (strlen(words[i].from) == n && !memcmp(words[i].from, word, n)) return words[i].to;
    return NULL;
}

static void add(char *out, size_t size, const char *text, size_t n)
{
    const size_t at = strlen(out);
    snprintf(out + at, size - at, "%.*s", (int)n, text);
}

/* Copies the parameter `text`, and replaces the keys of config.json in the copy by the keys of
 * GGUF. */
static void put_words(const char *arch, const char *text, char *out, size_t size)
{
    out[0] = 0;
    for (size_t n; *text; text += n) {
        for (n = 0; of_word(text[n]); n++) continue;
        const char *to = n ? find(text, n) : NULL;
        if (to) {
            add(out, size, arch, strlen(arch));
            add(out, size, ".", 1);
            add(out, size, to, strlen(to));
        } else {
            n += !n;
            add(out, size, text, n);
        }
    }
}

void gguf_words_put(const char *model, struct err *e)
{
    static const char config[] = ": its config.json: ", fix[] = ": fetch the file again",
                      other[] = ": change one of them"; /* this phrase is removed from errors,
                                                         * because users do not change the keys
                                                         * of a GGUF file */
    char path[FILE_PATH_SIZE], was[sizeof e->text];
    struct err none;
    if (model_file_gguf(model, path, &none) <= 0) return;
    memcpy(was, e->text, sizeof was);
    const char *at = strstr(was, config);
    struct gguf *g = at ? gguf_open(path, &none) : NULL;
    /* `arch` is a row of a static table, so it is valid after g was closed */
    const struct gguf_arch *arch = g ? gguf_arch(g, &none) : NULL;
    gguf_close(g);
    if (!arch) return;
    const size_t n = (size_t)(at - was) + 2, len = strlen(was), cut = sizeof other - 1;
    if (len > cut && !strcmp(was + len - cut, other)) was[len - cut] = 0;
    memcpy(e->text, was, n);
    put_words(arch->name, at + sizeof config - 1, e->text + n, sizeof e->text - n);
    if (!strstr(e->text, fix)) add(e->text, sizeof e->text, fix, sizeof fix - 1);
    e->field[0] = 0; /* cleared, because the field is a key of config.json */
}
