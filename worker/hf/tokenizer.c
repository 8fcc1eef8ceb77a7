/* tokenizer.c: writes the three files of the byte tokenizer for transformers. Compares a
 * tokenizer.json with that of the byte tokenizer. */
#include "worker/hf/tokenizer.h"

#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/file.h"
#include "api/core/jwrite.h"

#define EOD_TEXT "<|eod|>"
#define PAD_TEXT "<|pad|>"

/* Writes GPT-2's visible character for a byte, as UTF-8. The character of a printable byte is
 * the byte itself. The other 68 bytes have the characters U+0100 to U+0143, in order. */
static void byte_char(int byte, char out[4])
{
    int next = 0x100, c = byte;
    for (int b = 0; b <= byte; b++) {
        bool visible = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        if (b == byte && !visible) c = next;
        next += !visible;
    }
    int n = 0;
    if (c < 0x80) {
        out[n++] = (char)c;
    } else {
        out[n++] = (char)(0xc0 | c >> 6);
        out[n++] = (char)(0x80 | (c & 0x3f));
    }
    out[n] = 0;
}

static void added_token(struct jwrite *w, int id, const char *text)
{
    jwrite_object(w, NULL);
    jwrite_int(w, "id", id);
    jwrite_str(w, "content", text);
    jwrite_bool(w, "single_word", false);
    jwrite_bool(w, "lstrip", false);
    jwrite_bool(w, "rstrip", false);
    jwrite_bool(w, "normalized", false);
    jwrite_bool(w, "special", true);
    jwrite_end(w);
}

static void byte_level(struct jwrite *w, const char *key)
{
    jwrite_object(w, key);
    jwrite_str(w, "type", "ByteLevel");
    jwrite_bool(w, "add_prefix_space", false);
    jwrite_bool(w, "trim_offsets", false);
    jwrite_bool(w, "use_regex", false);
    jwrite_end(w);
}

static void bpe(struct jwrite *w)
{
    char text[4];
    jwrite_object(w, "model");
    jwrite_str(w, "type", "BPE");
    jwrite_null(w, "dropout");
    jwrite_null(w, "unk_token");
    jwrite_null(w, "continuing_subword_prefix");
    jwrite_null(w, "end_of_word_suffix");
    jwrite_bool(w, "fuse_unk", false);
    jwrite_bool(w, "byte_fallback", false);
    jwrite_object(w, "vocab");
    for (int b = 0; b < 256; b++) {
        byte_char(b, text);
        jwrite_int(w, text, b);
    }
    jwrite_end(w);
    jwrite_array(w, "merges");
    jwrite_end(w);
    jwrite_end(w);
}

static void tokenizer_json(struct jwrite *w)
{
    jwrite_object(w, NULL);
    jwrite_str(w, "version", "1.0");
    jwrite_null(w, "truncation");
    jwrite_null(w, "padding");
    jwrite_array(w, "added_tokens");
    added_token(w, TOKEN_EOD, EOD_TEXT);
    added_token(w, TOKEN_PAD, PAD_TEXT);
    jwrite_end(w);
    jwrite_null(w, "normalizer");
    byte_level(w, "pre_tokenizer");
    jwrite_null(w, "post_processor");
    byte_level(w, "decoder");
    bpe(w);
    jwrite_end(w);
}

static void tokenizer_config_json(struct jwrite *w)
{
    jwrite_object(w, NULL);
    jwrite_str(w, "tokenizer_class", "PreTrainedTokenizerFast");
    jwrite_str(w, "bos_token", EOD_TEXT);
    jwrite_str(w, "eos_token", EOD_TEXT);
    jwrite_str(w, "pad_token", PAD_TEXT);
    jwrite_bool(w, "clean_up_tokenization_spaces", false);
    jwrite_end(w);
}

static void generation_config_json(struct jwrite *w)
{
    jwrite_object(w, NULL);
    jwrite_int(w, "bos_token_id", TOKEN_EOD);
    jwrite_int(w, "eos_token_id", TOKEN_EOD);
    jwrite_int(w, "pad_token_id", TOKEN_PAD);
    jwrite_end(w);
}

int tokenizer_write(const char *dir, struct err *e)
{
    static const struct {
        const char *name;
        void (*fill)(struct jwrite *);
    } files[] = {{"tokenizer.json", tokenizer_json},
                 {"tokenizer_config.json", tokenizer_config_json},
                 {"generation_config.json", generation_config_json}};
    char path[FILE_PATH_SIZE], text[TOKENIZER_SIZE];
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct jwrite w;
        jwrite_init(&w, text, sizeof text);
        files[i].fill(&w);
        int64_t n = jwrite_finish(&w);
        assert(n > 0); /* this always holds, because the text is always the same, and `room`
                        * was chosen for it */
        if (file_join(path, e, "%s/%s", dir, files[i].name) < 0) return -1;
        if (file_write(path, text, (size_t)n, e) < 0) return -1;
    }
    return 0;
}

bool tokenizer_is_byte(const char *text, size_t size)
{
    char own[TOKENIZER_SIZE];
    struct jwrite w;
    jwrite_init(&w, own, sizeof own);
    tokenizer_json(&w);
    const int64_t n = jwrite_finish(&w);
    assert(n > 0);
    return size == (size_t)n && !memcmp(text, own, size);
}
