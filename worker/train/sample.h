/* sample.h: from logits to the next token, and from tokens to text.
 *
 * Random numbers are counter-based (Philox4x32-10, Salmon et al. 2011) and keyed by (seed, request,
 * position): the same request samples the same text on any number of ranks, alone or after others. */
#ifndef SEQD_TRAIN_SAMPLE_H
#define SEQD_TRAIN_SAMPLE_H

#include <stddef.h>
#include <stdint.h>

struct sample_options {
    double temperature; /* 0: greedy */
    int64_t seed;
    int64_t request;  /* which prompt of the job */
    int64_t position; /* of the token that is being chosen */
};

/* logits [n_vocab]. Greedy takes the largest, the lowest id on a tie. */
int32_t sample_token(const float *logits, int64_t n_vocab, const struct sample_options *o);

/* Copies n bytes as valid UTF-8: every byte that belongs to no character becomes U+FFFD. out has
 * room for 3 * n + 1; returns the length, NUL-terminated. */
size_t sample_utf8(const unsigned char *bytes, size_t n, char *out);

#endif
