/* sample.h: chooses the next token from logits, and converts tokens of bytes to text.
 * Order of operations on the model's logits z:
 *   1 penalties     repetition, as in transformers: z / r if z > 0, else z * r, for every token of
 *                   the prompt or of the text so far; then, only for generated tokens, as in
 *                   OpenAI's API, z -= frequency * times + presence
 *   2 temperature   z / temperature; if it is 0, the largest z is chosen and the steps below are
 *                   left out
 *   3 top_k         keeps the k largest
 *   4 top_p         of the ids that top_k keeps, keeps the most probable ones: the smallest number
 *                   of ids whose probabilities add up to at least top_p of the sum of all
 *   5 min_p         keeps only ids with at least min_p times the probability of the largest
 *   6 the draw      chooses among the ids that are left
 * Among equal logits the lower id is kept first. All operations are in double, in an order that
 * depends only on z, so that the bits are the same on every rank.
 *
 * Random numbers are counter-based (Philox4x32-10, Salmon et al. 2011) and keyed by (seed,
 * request, sequence, position). So the same request samples the same text on any number of ranks,
 * alone or together with other requests, as one of n continuations or as the only one. */
#ifndef SEQD_INFER_SAMPLE_H
#define SEQD_INFER_SAMPLE_H

#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"

struct sample_options {
    double temperature;                     /* 0 chooses the largest logit */
    int64_t top_k;                          /* 0 keeps all */
    double top_p, min_p;                    /* 1 and 0 keep all */
    double repetition, frequency, presence; /* 1, 0 and 0 mean no penalty */
};

struct sample_key {
    int64_t seed;
    int64_t request;  /* the index of the prompt, or request_key(), or 0; only the low 32 bits are
                       * used */
    int64_t sequence; /* number of the prompt's continuation */
    int64_t position; /* position of the token that is being chosen */
};

/* Working memory for choosing tokens, which is set up once. */
struct sampler {
    int64_t n_vocab;
    double *z, *weight; /* z after the penalties; weight is exp((z - max) / temperature) */
    int32_t *heap;
    int32_t *times;  /* number of occurrences of each token in the generated text */
    uint8_t *prompt; /* 1 if the token occurs in the prompt */
};

/* mem is borrowed: sampler_size bytes (25 per token of the vocabulary), aligned to 8,
 * uninitialized. */
int64_t sampler_size(int64_t n_vocab);
void sampler_init(struct sampler *s, int64_t n_vocab, void *mem);
/* Begins a new request: forgets the last one and records the tokens of the prompt. */
void sampler_begin(struct sampler *s, const int32_t *tokens, int64_t n);
/* Begins another continuation of the same prompt: forgets the generated tokens. */
void sampler_rewind(struct sampler *s);
/* Records that the token has become part of the text. */
void sampler_take(struct sampler *s, int32_t token);
/* Chooses a token. At least one of the logits [n_vocab] must be above -inf, and none may be NaN or
 * +inf. banned is an id that must not be chosen, or -1; some id other than banned must have a
 * logit above -inf. */
int32_t sampler_choose(struct sampler *s, const float *logits, const struct sample_options *o,
                       int32_t banned, const struct sample_key *key);
/* Returns a uniform number in [0, 1) with 53 bits. Tests call it, too. */
double sample_uniform(const struct sample_key *key);

/* Computes log-probabilities under softmax(logits), before penalties, temperature and cuts.
 * *chosen gets that of token `id`. top gets those of the n most likely tokens, in descending
 * order; equal ones are in ascending order of ids. If a token is in both results, its two numbers
 * are equal. Returns the number of entries in top, which is the smaller of n and n_vocab. */
struct sample_top {
    int32_t id;
    double logprob;
};
#define SAMPLE_TOP 20 /* largest n of sample_logprobs */
int sample_logprobs(const float *logits, int64_t n_vocab, int32_t id, double *chosen, int n,
                    struct sample_top *top);

/* Copies n bytes as valid UTF-8. Every byte that belongs to no character becomes U+FFFD. out has
 * room for 3 * n + 1 bytes and gets a NUL. Returns the length. */
size_t sample_utf8(const unsigned char *bytes, size_t n, char *out);
/* Writes the bytes of tokens, as input for sample_utf8. The token that ends a document has no
 * byte. Any other id that is not a byte gives 0xFF, which belongs to no character. out has room
 * for n bytes. Returns the number of bytes. */
size_t sample_bytes(const int32_t *tokens, int64_t n, unsigned char *out);

#endif
