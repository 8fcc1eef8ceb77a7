/* gguf_tokenizer.c: reads tokens, types, scores and special ids, and writes them in the form of
 * the package `tokenizers`. A table lists the pre-tokenizers. */
#include "worker/gguf/gguf_tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "worker/gguf/gguf_merges.h"
#include "worker/gguf/model_file.h"

#define KEY "tokenizer.ggml."
enum {
    TOKENS = 1 << 22,
    TYPE_NORMAL = 1,
    TYPE_UNKNOWN,
    TYPE_CONTROL,
    TYPE_USER,
    TYPE_UNUSED,
    TYPE_BYTE
};

struct gguf_tokens {
    const struct gguf *g;
    bool spm;                 /* set if tokenizer.ggml.model is "llama" */
    struct gguf_piece *piece; /* owned */
    char *pool;               /* owned: the texts of the pieces, each with a NUL */
    int32_t n;
    int64_t bos, eos, unk; /* ids of the special tokens; -1 if the tokenizer has no such token */
    bool add_bos, add_eos, add_space;
    const struct pre_row *pre;
};

/* ---- pre-tokenizers -------------------------------------------------------------------------- */

#define GPT2 ""
#define WORDS(digits)                                                                              \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" digits                     \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define TEKKEN                                                                                     \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER            \
    "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* The pre-tokenizers whose names tokenizer.ggml.pre may have. from: llama.cpp,
 * src/llama-vocab.cpp; the published tokenizer.json of each model */
struct pre_row {
    const char *name, *pattern; /* pattern of the pre-tokenizer; if it is GPT2, ByteLevel's
                                 * built-in pattern is used */
    /* `nfc` is set if the text is normalised by NFC; `digits` is set if each digit becomes a
     * separate piece */
    bool nfc, digits;
    bool ignore_merges, add_bos;
};
static const struct pre_row pres[] = {
    {"gpt-2", GPT2, .nfc = false},
    {"phi-2", GPT2, .nfc = false},
    {"smollm", GPT2, .digits = true},
    {"llama-bpe", WORDS("{1,3}"), .ignore_merges = true, .add_bos = true},
    {"llama3", WORDS("{1,3}"), .ignore_merges = true, .add_bos = true},
    {"llama-v3", WORDS("{1,3}"), .ignore_merges = true, .add_bos = true},
    {"qwen2", WORDS(""), .nfc = true},
    {"deepseek-r1-qwen", WORDS(""), .nfc = true},
    {"tekken", TEKKEN, .ignore_merges = true, .add_bos = true},
};
enum { PRES = sizeof pres / sizeof *pres };

static int find_pre(struct gguf_tokens *t, struct err *e)
{
    char name[48] = "", list[160] = "";
    gguf_word(t->g, KEY "pre", name, sizeof name);
    for (int i = 0; i < PRES; i++) {
        const size_t n = strlen(list);
        if (!strcmp(name, pres[i].name)) return t->pre = &pres[i], 0;
        snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", pres[i].name);
    }
    return err_set(
        e, ERR_UNSUPPORTED,
        "%s: tokenizer.ggml.pre is \"%s\", and %s are read: give the published directory "
        "with its tokenizer.json",
        gguf_path(t->g), name, list);
}

/* ---- reading --------------------------------------------------------------------------------- */

static int wrong(const struct gguf_tokens *t, const char *key, const char *want, struct err *e)
{
    return err_set(e, ERR_CORRUPT, "%s: tokenizer.ggml.%s is %s: fetch the file again",
                   gguf_path(t->g), key, want);
}

static int read_flag(const struct gguf_tokens *t, const char *key, bool missing, bool *out,
                     struct err *e)
{
    char name[64];
    snprintf(name, sizeof name, KEY "%s", key);
    const struct gguf_key *k = gguf_find(t->g, name);
    *out = missing;
    if (!k) return 0;
    if (k->array || k->type != GGUF_BOOL) return wrong(t, key, "not a bool", e);
    *out = *k->at;
    return 0;
}

/* Reads the id of a special token. *out is -1 if the file has no such id. An id that is not in
 * the vocabulary is treated as if it were missing, as in llama.cpp, because some published
 * files have such ids. */
static int read_id(const struct gguf_tokens *t, const char *key, int64_t *out, struct err *e)
{
    char name[64];
    snprintf(name, sizeof name, KEY "%s", key);
    const struct gguf_key *k = gguf_find(t->g, name);
    *out = -1;
    if (!k) return 0;
    if (k->array || !gguf_int(k, 0, out)) return wrong(t, key, "not an id", e);
    if (*out < 0 || *out >= t->n) *out = -1;
    return 0;
}

/* Finds an array that has an element for each token. *out is NULL if the file has no such
 * array. */
static int beside(const struct gguf_tokens *t, const char *key, const struct gguf_key **out,
                  struct err *e)
{
    char name[64];
    snprintf(name, sizeof name, KEY "%s", key);
    *out = gguf_find(t->g, name);
    if (!*out || ((*out)->array && (*out)->n == t->n)) return 0;
    return wrong(t, key, "not an array with an element for each token", e);
}

/* Copies the texts of the tokens. Each text is followed by a NUL. */
static int copy_texts(struct gguf_tokens *t, const struct gguf_key *tokens)
{
    const uint8_t *at = NULL;
    const char *s;
    size_t n, size = 0;
    for (int32_t i = 0; i < t->n; i++) {
        gguf_string(tokens, &at, &s, &n);
        size += n + 1;
    }
    t->piece = calloc((size_t)t->n, sizeof *t->piece);
    t->pool = malloc(size);
    if (!t->piece || !t->pool) return -1;
    char *to = t->pool;
    at = NULL;
    for (int32_t i = 0; i < t->n; i++) {
        gguf_string(tokens, &at, &s, &n);
        t->piece[i].text = memcpy(to, s, n);
        t->piece[i].n = (int64_t)n;
        to[n] = 0;
        to += n + 1;
    }
    return 0;
}

static int read_pieces(struct gguf_tokens *t, struct err *e)
{
    const struct gguf_key *tokens = gguf_find(t->g, KEY "tokens"), *types, *scores;
    if (!tokens || !tokens->array || tokens->type != GGUF_STRING || tokens->n < 1 ||
        tokens->n > TOKENS)
        return wrong(t, "tokens", "not an array of 1 to 4194304 strings", e);
    t->n = (int32_t)tokens->n;
    if (beside(t, "token_type", &types, e) < 0 || beside(t, "scores", &scores, e) < 0) return -1;
    if (copy_texts(t, tokens) < 0)
        return err_set(e, ERR_IO, "out of memory for %d tokens", (int)t->n);
    for (int32_t i = 0; i < t->n; i++) {
        struct gguf_piece *p = &t->piece[i];
        int64_t type = TYPE_NORMAL;
        if (types && (!gguf_int(types, i, &type) || type < 0 || type > TYPE_BYTE))
            return wrong(t, "token_type", "not an array of types 0 to 6", e);
        if (scores && !gguf_real(scores, i, &p->score))
            return wrong(t, "scores", "not an array of finite numbers", e);
        p->type = (int)type;
        p->cuts = type == TYPE_NORMAL || type == TYPE_USER;
    }
    return 0;
}

static int read_model(struct gguf_tokens *t, struct err *e)
{
    char model[32] = "";
    gguf_word(t->g, KEY "model", model, sizeof model);
    t->spm = !strcmp(model, "llama");
    if (t->spm) return 0;
    if (!strcmp(model, "gpt2")) return find_pre(t, e);
    return err_set(
        e, ERR_UNSUPPORTED,
        "%s: tokenizer.ggml.model is \"%s\", and gpt2 and llama are read from GGUF files: "
        "give the published directory with its tokenizer.json",
        gguf_path(t->g), model);
}

static void tokens_fini(struct gguf_tokens *t)
{
    free(t->piece);
    free(t->pool);
}

/* Reads the pieces and the ids of special tokens. For a job without text, no other parts of a
 * tokenizer are needed. */
static int tokens_read(struct gguf_tokens *t, const struct gguf *g, struct err *e)
{
    *t = (struct gguf_tokens){.g = g};
    if (read_pieces(t, e) == 0 && read_id(t, "bos_token_id", &t->bos, e) == 0 &&
        read_id(t, "eos_token_id", &t->eos, e) == 0 &&
        read_id(t, "unknown_token_id", &t->unk, e) == 0)
        return 0;
    tokens_fini(t);
    return -1;
}

/* Does the same as tokens_read, and also reads the rules by which text is split into pieces. */
static int tokens_read_rules(struct gguf_tokens *t, const struct gguf *g, struct err *e)
{
    if (tokens_read(t, g, e) < 0) return -1;
    if (read_model(t, e) == 0 &&
        read_flag(t, "add_bos_token", t->spm || t->pre->add_bos, &t->add_bos, e) == 0 &&
        read_flag(t, "add_eos_token", false, &t->add_eos, e) == 0 &&
        read_flag(t, "add_space_prefix", t->spm, &t->add_space, e) == 0)
        return 0;
    tokens_fini(t);
    return -1;
}

bool gguf_tokenizer_has(const struct gguf *g)
{
    const char *s;
    size_t n;
    return gguf_text(gguf_find(g, KEY "model"), &s, &n) && gguf_find(g, KEY "tokens") &&
           !(n == 4 && !memcmp(s, "none", 4)) && !(n == 8 && !memcmp(s, "no_vocab", 8));
}

/* ---- tokenizer.json -------------------------------------------------------------------------- */

static bool is_added(const struct gguf_piece *p)
{
    return p->n && (p->type == TYPE_UNKNOWN || p->type == TYPE_CONTROL || p->type == TYPE_USER);
}

static void write_added(const struct gguf_tokens *t, struct jwrite *w)
{
    jwrite_array(w, "added_tokens");
    for (int32_t i = 0; i < t->n; i++) {
        const struct gguf_piece *p = &t->piece[i];
        if (!is_added(p)) continue;
        jwrite_object(w, NULL);
        jwrite_int(w, "id", i);
        jwrite_str(w, "content", p->text);
        jwrite_bool(w, "single_word", false);
        jwrite_bool(w, "lstrip", false);
        jwrite_bool(w, "rstrip", false);
        jwrite_bool(w, "normalized", false);
        jwrite_bool(w, "special", p->type != TYPE_USER);
        jwrite_end(w);
    }
    jwrite_end(w);
}

static void write_type(struct jwrite *w, const char *key, const char *type)
{
    jwrite_object(w, key);
    jwrite_str(w, "type", type);
}

static void write_replace(struct jwrite *w, const char *from, const char *to)
{
    write_type(w, NULL, "Replace");
    jwrite_object(w, "pattern");
    jwrite_str(w, "String", from);
    jwrite_end(w);
    jwrite_str(w, "content", to);
    jwrite_end(w);
}

#define BLANK "\xe2\x96\x81" /* SentencePiece's character for a space */

static void write_normalizer(const struct gguf_tokens *t, struct jwrite *w)
{
    if (!t->spm) {
        if (t->pre->nfc) {
            write_type(w, "normalizer", "NFC");
            jwrite_end(w);
        } else {
            jwrite_null(w, "normalizer");
        }
        return;
    }
    write_type(w, "normalizer", "Sequence");
    jwrite_array(w, "normalizers");
    if (t->add_space) {
        write_type(w, NULL, "Prepend");
        jwrite_str(w, "prepend", BLANK);
        jwrite_end(w);
    }
    write_replace(w, " ", BLANK);
    jwrite_end(w);
    jwrite_end(w);
}

static void write_byte_level(struct jwrite *w, const char *key, bool space, bool regex)
{
    write_type(w, key, "ByteLevel");
    jwrite_bool(w, "add_prefix_space", space);
    jwrite_bool(w, "trim_offsets", false);
    jwrite_bool(w, "use_regex", regex);
    jwrite_end(w);
}

static void write_pre(const struct gguf_tokens *t, struct jwrite *w)
{
    if (t->spm) {
        jwrite_null(w, "pre_tokenizer");
        return;
    }
    write_type(w, "pre_tokenizer", "Sequence");
    jwrite_array(w, "pretokenizers");
    if (t->pre->digits) {
        write_type(w, NULL, "Digits");
        jwrite_bool(w, "individual_digits", true);
        jwrite_end(w);
    }
    if (*t->pre->pattern) {
        write_type(w, NULL, "Split");
        jwrite_object(w, "pattern");
        jwrite_str(w, "Regex", t->pre->pattern);
        jwrite_end(w);
        jwrite_str(w, "behavior", "Isolated");
        jwrite_bool(w, "invert", false);
        jwrite_end(w);
    }
    write_byte_level(w, NULL, t->add_space, !*t->pre->pattern);
    jwrite_end(w);
    jwrite_end(w);
}

static void write_decoder(const struct gguf_tokens *t, struct jwrite *w)
{
    if (!t->spm) {
        write_byte_level(w, "decoder", false, false);
        return;
    }
    write_type(w, "decoder", "Sequence");
    jwrite_array(w, "decoders");
    write_replace(w, BLANK, " ");
    write_type(w, NULL, "ByteFallback");
    jwrite_end(w);
    write_type(w, NULL, "Fuse");
    jwrite_end(w);
    if (t->add_space) {
        write_type(w, NULL, "Strip");
        jwrite_str(w, "content", " ");
        jwrite_int(w, "start", 1);
        jwrite_int(w, "stop", 0);
        jwrite_end(w);
    }
    jwrite_end(w);
    jwrite_end(w);
}

static void write_special(const struct gguf_tokens *t, struct jwrite *w, int64_t id)
{
    jwrite_object(w, NULL);
    jwrite_object(w, "SpecialToken");
    jwrite_str(w, "id", t->piece[id].text);
    jwrite_int(w, "type_id", 0);
    jwrite_end(w);
    jwrite_end(w);
}

static void write_ids(const struct gguf_tokens *t, struct jwrite *w, int64_t id)
{
    const char *text = t->piece[id].text;
    jwrite_object(w, text);
    jwrite_str(w, "id", text);
    jwrite_array(w, "ids");
    jwrite_int(w, NULL, id);
    jwrite_end(w);
    jwrite_array(w, "tokens");
    jwrite_str(w, NULL, text);
    jwrite_end(w);
    jwrite_end(w);
}

static void write_text(struct jwrite *w, const char *name, int type)
{
    jwrite_object(w, NULL);
    jwrite_object(w, "Sequence");
    jwrite_str(w, "id", name);
    jwrite_int(w, "type_id", type);
    jwrite_end(w);
    jwrite_end(w);
}

/* Writes the post-processor, which adds ids before and after a text. */
static void write_post(const struct gguf_tokens *t, struct jwrite *w)
{
    const bool before = t->add_bos && t->bos >= 0, after = t->add_eos && t->eos >= 0;
    if (!before && !after) {
        jwrite_null(w, "post_processor");
        return;
    }
    write_type(w, "post_processor", "TemplateProcessing");
    for (int pair = 0; pair < 2; pair++) {
        jwrite_array(w, pair ? "pair" : "single");
        for (int k = 0; k <= pair; k++) {
            if (before) write_special(t, w, t->bos);
            write_text(w, k ? "B" : "A", k);
            if (after) write_special(t, w, t->eos);
        }
        jwrite_end(w);
    }
    jwrite_object(w, "special_tokens");
    if (before) write_ids(t, w, t->bos);
    if (after && !(before && t->eos == t->bos)) write_ids(t, w, t->eos);
    jwrite_end(w);
    jwrite_end(w);
}

/* Writes the merges that the file has. */
static int write_own_merges(const struct gguf_tokens *t, struct jwrite *w, struct err *e)
{
    const struct gguf_key *k = gguf_find(t->g, KEY "merges");
    const uint8_t *at = NULL;
    if (!k || !k->array || k->type != GGUF_STRING)
        return wrong(t, "merges", "not an array of strings", e);
    for (int64_t i = 0; i < k->n; i++) {
        const char *s;
        size_t n;
        gguf_string(k, &at, &s, &n);
        jwrite_strn(w, NULL, s, n);
    }
    return 0;
}

static int write_model(const struct gguf_tokens *t, struct jwrite *w, struct err *e)
{
    write_type(w, "model", "BPE");
    jwrite_null(w, "dropout");
    if (t->spm && t->unk >= 0)
        jwrite_str(w, "unk_token", t->piece[t->unk].text);
    else
        jwrite_null(w, "unk_token");
    jwrite_null(w, "continuing_subword_prefix");
    jwrite_null(w, "end_of_word_suffix");
    jwrite_bool(w, "fuse_unk", t->spm);
    jwrite_bool(w, "byte_fallback", t->spm);
    jwrite_bool(w, "ignore_merges", !t->spm && t->pre->ignore_merges);
    jwrite_object(w, "vocab");
    for (int32_t i = 0; i < t->n; i++) jwrite_int(w, t->piece[i].text, i);
    jwrite_end(w);
    jwrite_array(w, "merges");
    const int rc = t->spm ? gguf_merges_write(t->piece, t->n, w, e) : write_own_merges(t, w, e);
    jwrite_end(w);
    jwrite_end(w);
    return rc;
}

int gguf_tokenizer_write(const struct gguf *g, struct jwrite *w, struct err *e)
{
    struct gguf_tokens t;
    if (tokens_read_rules(&t, g, e) < 0) return -1;
    jwrite_object(w, NULL);
    jwrite_str(w, "version", "1.0");
    jwrite_null(w, "truncation");
    jwrite_null(w, "padding");
    write_added(&t, w);
    write_normalizer(&t, w);
    write_pre(&t, w);
    write_post(&t, w);
    write_decoder(&t, w);
    const int rc = write_model(&t, w, e);
    jwrite_end(w);
    tokens_fini(&t);
    return rc;
}

/* ---- the other files ------------------------------------------------------------------------- */

static int write_token(const struct gguf_tokens *t, struct jwrite *w, const char *key,
                       const char *name, struct err *e)
{
    int64_t id;
    if (read_id(t, key, &id, e) < 0) return -1;
    if (id >= 0) jwrite_str(w, name, t->piece[id].text);
    return 0;
}

int gguf_tokenizer_config(const struct gguf *g, struct jwrite *w, struct err *e)
{
    struct gguf_tokens t;
    if (tokens_read(&t, g, e) < 0) return -1;
    jwrite_object(w, NULL);
    jwrite_str(w, "tokenizer_class", "PreTrainedTokenizerFast");
    const bool bad = write_token(&t, w, "bos_token_id", "bos_token", e) < 0 ||
                     write_token(&t, w, "eos_token_id", "eos_token", e) < 0 ||
                     write_token(&t, w, "unknown_token_id", "unk_token", e) < 0 ||
                     write_token(&t, w, "padding_token_id", "pad_token", e) < 0;
    jwrite_bool(w, "clean_up_tokenization_spaces", false);
    jwrite_end(w);
    tokens_fini(&t);
    return bad ? -1 : 0;
}

#define DEEPSEEK_SENTENCE                                                                          \
    "<\xef\xbd\x9c"                                                                                \
    "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>"

/* Returns true if the piece has this text, and if the piece cannot be made from ordinary text. */
static bool is_marker(const struct gguf_piece *p, const char *text)
{
    return (p->type == TYPE_CONTROL || p->type == TYPE_USER) && (size_t)p->n == strlen(text) &&
           !memcmp(p->text, text, (size_t)p->n);
}

/* Returns true if the text of a piece is known to end a turn or a text. A file may have pieces
 * with such a text although no key names them, or may list them as tokens of the user. If a
 * piece can be made from ordinary text, it does not end a turn. from: llama.cpp,
 * src/llama-vocab.cpp, which also treats tokens that pad code for infilling as ends */
static bool ends_a_turn(const struct gguf_piece *p)
{
    static const char *const texts[] = {
        "<|eot_id|>",    "<|eom_id|>",      "<|im_end|>", "<|end|>",  "<end_of_turn>",      "</s>",
        "<|endoftext|>", "<|end_of_text|>", "<|return|>", "<|call|>", "<end_of_utterance>", "<eos>",
        "<EOT>",         "_<EOT>",          "[EOT]",      "[EOS]",    DEEPSEEK_SENTENCE};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (is_marker(p, texts[i])) return true;
    return false;
}

static bool has_marker(const struct gguf_tokens *t, const char *text)
{
    for (int32_t i = 0; i < t->n; i++)
        if (is_marker(&t->piece[i], text)) return true;
    return false;
}

/* Finds the markers that end a text only if the file does not have certain other markers. With
 * these other markers, <|end|> only ends a part of an answer (harmony), and </s> ends no turn
 * (Gemma 4). from: llama.cpp, src/llama-vocab.cpp, which removes these markers from its set of
 * ends as the last step */
static void find_exempt(const struct gguf_tokens *t, const char *out[2])
{
    out[0] = has_marker(t, "<|return|>") && has_marker(t, "<|call|>") ? "<|end|>" : NULL;
    out[1] = has_marker(t, "<|tool_response>") ? "</s>" : NULL;
}

static bool is_exempt(const struct gguf_piece *p, const char *const exempt[2])
{
    return (exempt[0] && is_marker(p, exempt[0])) || (exempt[1] && is_marker(p, exempt[1]));
}

static int write_ends(const struct gguf_tokens *t, struct jwrite *w, struct err *e)
{
    static const char *const keys[] = {"eos_token_id", "eot_token_id", "eom_token_id"};
    enum { KEYS = sizeof keys / sizeof *keys, MOST = MODEL_FILE_ENDS };
    const char *exempt[2];
    int64_t id[MOST];
    int n = 0;
    find_exempt(t, exempt);
    for (int i = 0; i < KEYS; i++) {
        int64_t v;
        bool had = false;
        if (read_id(t, keys[i], &v, e) < 0) return -1;
        for (int k = 0; k < n; k++) had |= id[k] == v;
        if (v >= 0 && !had && !is_exempt(&t->piece[v], exempt)) id[n++] = v;
    }
    for (int32_t i = 0; i < t->n && n < MOST; i++) {
        bool had = false;
        for (int k = 0; k < n; k++) had |= id[k] == i;
        if (!had && ends_a_turn(&t->piece[i]) && !is_exempt(&t->piece[i], exempt)) id[n++] = i;
    }
    if (!n) return 0;
    jwrite_array(w, "eos_token_id");
    for (int i = 0; i < n; i++) jwrite_int(w, NULL, id[i]);
    jwrite_end(w);
    return 0;
}

int gguf_tokenizer_generation(const struct gguf *g, struct jwrite *w, struct err *e)
{
    struct gguf_tokens t;
    int64_t pad;
    if (tokens_read(&t, g, e) < 0) return -1;
    jwrite_object(w, NULL);
    if (t.bos >= 0) jwrite_int(w, "bos_token_id", t.bos);
    int rc = write_ends(&t, w, e);
    if (rc == 0) rc = read_id(&t, "padding_token_id", &pad, e);
    if (rc == 0 && pad >= 0) jwrite_int(w, "pad_token_id", pad);
    jwrite_end(w);
    tokens_fini(&t);
    return rc;
}
