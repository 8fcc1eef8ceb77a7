/* sample.h: chooses the next token from logits, and converts tokens of bytes to text.
 * Order of operations on the model's logits z:
 *   0 mask, bias    keeps only the allowed ids, if there is a mask, and adds logit_bias
 *   1 penalties     first repetition, as in transformers: z becomes z / r if z > 0 and z * r
 *                   otherwise, for every token of the prompt and of the text so far. Then, as in
 *                   OpenAI's API, z -= frequency * times + presence, only for generated tokens
 *   2 temperature   z / temperature. If temperature is 0, the largest z is chosen, and the steps
 *                   below are left out
 *   3 top_k         keeps the k largest
 *   4 top_p         of the ids that top_k keeps, keeps the most probable ids. It keeps the
 *                   smallest number of ids whose probabilities have at least the share top_p of
 *                   the sum
 *   5 min_p         keeps only ids whose probability is at least min_p times that of the most
 *                   probable id
 *   6 the draw      chooses among the ids that are left
 * Among equal logits the lower id is kept first. All operations are in double, in an order that
 * depends only on z, so that the bits are the same on every rank.
 *
 * Random numbers are counter-based (Philox4x32-10, Salmon et al. 2011) and keyed by (seed,
 * request, sequence, position). For this reason a request gets the same text on any number of
 * ranks. The text does not depend on other requests, and a continuation does not depend on the
 * number of continuations. */
#ifndef SEQD_INFER_SAMPLE_H
#define SEQD_INFER_SAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"

struct sample_options {
    double temperature;                     /* if it is 0, the largest logit is chosen */
    int64_t top_k;                          /* 0 keeps all ids */
    double top_p, min_p;                    /* top_p 1 and min_p 0 keep all ids */
    double repetition, frequency, presence; /* 1, 0 and 0 mean that there is no penalty */
};

struct sample_key {
    int64_t seed;
    /* index of the prompt, or request_key(), or 0; only the low 32 bits are used */
    int64_t request;
    int64_t sequence; /* index of the continuation among the continuations of the prompt */
    int64_t position; /* position of the token that is chosen */
};

/* A number that is added to the logit of an id. */
struct sample_bias {
    int32_t id;
    double add;
};

/* Working memory for choosing tokens. It is set up once. */
struct sampler {
    int64_t n_vocab;
    double *z, *weight; /* `z` has the logits after the penalties; `weight` is exp((z - max) /
                         * temperature), where max is the largest z */
    int32_t *heap;
    int32_t *times;  /* number of occurrences of each token in the generated text */
    uint8_t *prompt; /* 1 if the token occurs in the prompt */
    /* Borrowed, and set by the caller before a choice. `allowed` has a bit for each id that may be
     * chosen; NULL allows all ids. `bias` [n_bias] is in ascending order of ids. */
    const uint64_t *allowed;
    const struct sample_bias *bias;
    int32_t n_bias;
};

/* sampler_size returns how many bytes of memory a sampler needs, which are 25 bytes for each
 * token of the vocabulary. sampler_init borrows `mem` of this size, which must be aligned to 8
 * and need not be initialized. */
int64_t sampler_size(int64_t n_vocab);
void sampler_init(struct sampler *s, int64_t n_vocab, void *mem);
/* Begins a new request: forgets the previous request, and records the tokens of the prompt. */
void sampler_begin(struct sampler *s, const int32_t *tokens, int64_t n);
/* Begins the next continuation of the prompt: removes the generated tokens from the counts. */
void sampler_rewind(struct sampler *s);
/* Records that the token has become part of the text. */
void sampler_take(struct sampler *s, int32_t token);
/* Chooses a token. At least one of the allowed logits must be above -inf, and none may be NaN or
 * +inf. If banned is not -1, this id is not chosen, and some other id must have a logit above
 * -inf. */
int32_t sampler_choose(struct sampler *s, const float *logits, const struct sample_options *o,
                       int32_t banned, const struct sample_key *key);
/* Tells whether no logit is NaN or infinite. */
bool sample_finite(const float *logits, int64_t n);
/* Returns a uniform number in [0, 1) with 53 bits. Tests call it, too. */
double sample_uniform(const struct sample_key *key);

/* Computes log-probabilities under softmax(logits), before penalties, temperature, top_k,
 * top_p and min_p are applied. *chosen gets the log-probability of token `id`. top gets the n
 * most likely tokens, in descending order; tokens that are equally likely are in ascending
 * order of ids. If `id` is also in top, its log-probability there is equal to *chosen. Returns
 * the number of entries in top, which is the smaller of n and n_vocab. */
struct sample_top {
    int32_t id;
    double logprob;
};
#define SAMPLE_TOP 20 /* largest n of sample_logprobs */
int sample_logprobs(const float *logits, int64_t n_vocab, int32_t id, double *chosen, int n,
                    struct sample_top *top);

/* Copies n bytes as valid UTF-8. If a byte belongs to no character, U+FFFD is written in its
 * place. out has room for 3 * n + 1 bytes and gets a NUL. Returns the length. */
size_t sample_utf8(const unsigned char *bytes, size_t n, char *out);
/* Writes the bytes of tokens, as input for sample_utf8. For the token that ends a document, no
 * byte is written. For any other id that is not a byte, 0xFF is written, which belongs to no
 * character. out has room for n bytes. Returns the number of bytes. */
size_t sample_bytes(const int32_t *tokens, int64_t n, unsigned char *out);

#endif
