/* tokenizer.h: converts text to ids and back, with the tokenizer.json of a model directory. The
 * ids are exactly those of the Python package `tokenizers`. When a file is opened, a component,
 * option or pattern that this folder does not implement is refused with an error that names it.
 * No rule is approximated. Truncation and padding in the file are not applied, because
 * transformers applies them only on request.
 *
 *     struct tokenizer *t = tokenizer_open(dir, &e);
 *     struct tokens ids = {0};
 *     tokenizer_encode(t, text, n, true, &ids, &e);
 *     ...
 *     text_tokens_fini(&ids);
 *     tokenizer_destroy(t);
 *
 * tested: tests/engine/test_tokenizer.c, test_text_cuts.c, tests/fuzz
 *
 * A tokenizer has scratch memory and a cache of words, so only one thread may encode with it at a
 * time. tokenizer_decode, tokenizer_piece and detokenizers only read it, and may run beside an
 * encode. */
#ifndef SEQD_TEXT_TOKENIZER_H
#define SEQD_TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"

/* Largest size of a tokenizer.json in bytes. There are files of 35 MB. */
#define TOKENIZER_FILE_SIZE (256LL << 20)
/* Largest size of a text in bytes. The limit is needed because positions have 31 bits. */
#define TOKENIZER_TEXT_SIZE (1LL << 30)

/* Ids of texts, and their places in the texts. Calls append to the arrays. The caller sets the
 * struct to zero before the first call, and frees it with text_tokens_fini. To use it again,
 * the caller sets n to 0. */
struct tokens {
    int32_t *id;
    int64_t n, room;
    /* If `spans` is set before the call, id[i] was made from bytes [begin[i], end[i]) of the
     * encoded text. Ids that a post-processor adds have an empty span. If a normalizer changed
     * characters, the span covers the original characters. */
    bool spans;
    int64_t *begin, *end, span_room;
};

void text_tokens_fini(struct tokens *t);

/* A buffer of bytes that grows. n counts the bytes. A NUL follows them unless data is NULL. */
struct text {
    char *data;
    int64_t n, room;
};

void text_fini(struct text *t);

struct tokenizer;

/* Opens the tokenizer.json of a model directory. If tokenizer_config.json and
 * special_tokens_map.json exist, reads the special tokens from them. If there is no
 * tokenizer.json, returns NULL with ERR_NOT_FOUND, and the error says how to convert
 * tokenizer.model or vocab.txt. Returns NULL with ERR_UNSUPPORTED for a part that this folder
 * does not implement, or with ERR_INVALID, ERR_TOO_LARGE or ERR_IO. */
struct tokenizer *tokenizer_open(const char *dir, struct err *e);
/* Opens a tokenizer from the text of a tokenizer.json. The text is not needed after the call.
 * In a tokenizer that was opened in this way, no special ids are known. */
struct tokenizer *tokenizer_open_text(const char *text, size_t size, struct err *e);
void tokenizer_destroy(struct tokenizer *t);

/* Appends the ids of text [n] to out. The text may contain NUL bytes, and n is at most
 * TOKENIZER_TEXT_SIZE. If add_special is true, also adds the ids that the file's
 * post-processor puts around a text. Fails with ERR_INVALID if the text is not UTF-8; the
 * error names the wrong byte. After a failure out is unchanged. */
int tokenizer_encode(struct tokenizer *t, const char *text, size_t n, bool add_special,
                     struct tokens *out, struct err *e);
/* A part of a text. It begins and ends at offsets that tokenizer_cut returned, or at the
 * beginning or end of the text. The ids of all parts of a text, joined, are the ids of the
 * text. */
struct text_part {
    const char *text;
    size_t n;
    int64_t offset; /* offset of the part in the whole text, for use in error messages */
    /* whether the part is the beginning of the text, and whether it is the end; add_special
     * adds ids only at the beginning and at the end of the text */
    bool begins, ends;
};
/* Encodes a part as tokenizer_encode does. Spans are relative to the part. */
int tokenizer_encode_part(struct tokenizer *t, const struct text_part *part, bool add_special,
                          struct tokens *out, struct err *e);
/* Returns the first offset, at or after `from`, at which a text may be divided into parts. A
 * blank or a newline follows the offset. Returns -1 if text [n] has no such offset. The result
 * does not depend on the bytes after text [n]. A text may be divided only if the tokenizer's
 * rules prove that the ids of the two parts, joined, are the ids of the whole text. */
int64_t tokenizer_cut(struct tokenizer *t, const char *text, size_t n, size_t from);

/* Appends the text of id [n] to out. If skip_special is true, special tokens are left out. Ids
 * outside the vocabulary have no text. */
int tokenizer_decode(struct tokenizer *t, const int32_t *id, int64_t n, bool skip_special,
                     struct text *out, struct err *e);

/* Appends the bytes that one id adds in the middle of a text. These bytes may be an incomplete
 * character. A special token adds its bytes, too. An unknown id adds no bytes. */
int tokenizer_piece(const struct tokenizer *t, int32_t id, struct text *out, struct err *e);

/* A detokenizer decodes id by id. The functions put and finish append text to out. All appended
 * text together is the result of tokenizer_decode for all ids. Each appended text is final and
 * ends with a whole character. Some decoders know the text of an id only when the next id is put.
 * In that case put appends no text for the id at first. */
struct detokenizer;
struct detokenizer *detokenizer_create(struct tokenizer *t, bool skip_special); /* borrows t */
void detokenizer_destroy(struct detokenizer *d);
int detokenizer_put(struct detokenizer *d, int32_t id, struct text *out, struct err *e);
/* Appends the rest of the text. The next id that is put begins a new text. */
int detokenizer_finish(struct detokenizer *d, struct text *out, struct err *e);

/* Returns the number of ids that the file's post-processor puts after a text. */
int tokenizer_n_after(const struct tokenizer *t);
/* Returns 1 + the largest id. The embedding of the model may have more rows. */
int64_t tokenizer_size(const struct tokenizer *t);
/* Returns the id of a token by its content in the file, or -1. The content of a byte-level token
 * has visible characters. Added tokens are searched first. */
int32_t tokenizer_id(const struct tokenizer *t, const char *content, size_t n);
/* Returns the content of an id, or NULL if the id has no content. The content is borrowed from t
 * and is not NUL-terminated. */
const char *tokenizer_content(const struct tokenizer *t, int32_t id, size_t *n);
bool tokenizer_is_special(const struct tokenizer *t, int32_t id);

/* The ids of the special tokens that tokenizer_config.json names. special_tokens_map.json is
 * used for tokens that tokenizer_config.json does not name. An id is -1 if neither file names
 * the token. Ids that are not in this struct may also end a text: hf_read_ends
 * (worker/hf/files.h) returns the end ids of generation_config.json. */
struct special_ids {
    int32_t bos, eos, pad, unk, mask;
};
const struct special_ids *tokenizer_special(const struct tokenizer *t);

#endif
