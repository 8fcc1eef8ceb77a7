/* encode_text.h: text cut by the tokenizer of a model directory.
 *
 * A document is a whole text: its ids are those of tokenizer_encode with the ids that the file's
 * post-processor puts around a text (that is where a BOS comes from, if there is one), and then the
 * end id, unless the last one is it already. The end id is eos_token of tokenizer_config.json, else
 * of special_tokens_map.json, else the first eos_token_id of generation_config.json or config.json;
 * without any, nothing is added. Nor is it where a job embeds: what the post-processor makes is
 * the whole of it. */
#ifndef SEQD_DATA_ENCODE_TEXT_H
#define SEQD_DATA_ENCODE_TEXT_H

#include "api/core/sha256.h"
#include "worker/data/encode.h"
#include "worker/text/tokenizer.h"

struct encode_text {
    const char *dir;             /* borrowed: the model directory */
    bool ends;                   /* documents get an end id */
    struct tokenizer *tokenizer; /* owned; opened when the first text is there */
    int32_t end;                 /* -1: none */
    struct tokens ids;           /* owned scratch, and those below */
    struct text pair;
    uint32_t *bytes;
    uint8_t *learn;
    int64_t room;
};

/* What a prepared directory is a function of: the digests of tokenizer.json, tokenizer_config.json
 * and special_tokens_map.json, and what the directory says of ends; *of: the first of them, or
 * "none": text is refused when it is read. fails: ERR_IO, ERR_INVALID. */
int encode_text_digest(const struct encode_text *t, struct sha256 *into, char of[SHA256_HEX],
                       struct err *e);
void encode_text_fini(struct encode_text *t);

/* A document's text. A token may be a target when it ends after the first `given` bytes. c->text is
 * there. fails: as tokenizer_open, with field "model.path", and tokenizer_encode. */
int encode_text(struct encode *c, const char *text, size_t n, size_t given, struct err *e);
/* The same of a text in two parts, the first one given or not. */
struct encode_part {
    const char *at;
    size_t n;
};
int encode_pair(struct encode *c, const struct encode_part *prompt,
                const struct encode_part *completion, bool given, struct err *e);

#endif
