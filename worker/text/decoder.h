/* decoder.h: runs the decoders of a tokenizer.json. Each token passes through all decoders
 * before the next token. A decoder is defined on the list of all tokens, but this code outputs
 * a part of the text as soon as no later token can change this part. */
#ifndef SEQD_TEXT_DECODER_H
#define SEQD_TEXT_DECODER_H

#include "worker/text/json.h"

struct token_decoder;

int decoder_open(struct json j, struct token_decoder **out,
                 struct err *e); /* if j is absent, the decoder joins tokens with spaces */
void decoder_destroy(struct token_decoder *d);

/* Appends the bytes that a token with this content adds in the middle of a text. They may be an
 * incomplete character. Returns -1 if memory is out. */
int decoder_piece(const struct token_decoder *d, const char *token, int64_t n, struct text *out);

/* State of decoding one text. */
struct decoding;
struct decoding *
decoding_create(const struct token_decoder *d); /* borrows d; returns NULL if memory is out */
void decoding_destroy(struct decoding *s);
/* Processes the content of the next token, and appends to out that part of the text which
 * later tokens cannot change. Returns -1 if memory is out. */
int decoding_put(struct decoding *s, const char *token, int64_t n, struct text *out);
/* Appends the rest of the text. After the call a new text may begin. */
int decoding_finish(struct decoding *s, struct text *out);

#endif
