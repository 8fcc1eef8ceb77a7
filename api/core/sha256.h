/* sha256.h: SHA-256 (FIPS 180-4), for manifests, prepared data and weights. libc only. tested: the
 * FIPS vectors and one million 'a' in tests/core/test_core.c. */
#ifndef SEQD_CORE_SHA256_H
#define SEQD_CORE_SHA256_H

#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"

#define SHA256_HEX 65 /* 64 digits and a NUL */

struct sha256 {
    uint32_t h[8];
    uint64_t n_bytes;
    uint8_t block[64];
};

void sha256_init(struct sha256 *s);
void sha256_add(struct sha256 *s, const void *data, size_t size);
/* Adds the same bytes to two digests. This takes less time than two calls of sha256_add. The two
 * digests may have been given different bytes before. */
void sha256_add_two(struct sha256 *a, struct sha256 *b, const void *data, size_t size);
void sha256_bytes(struct sha256 *s, uint8_t out[32]);    /* finishes, and writes the digest as
                                                          * bytes. s cannot be used afterwards */
void sha256_hex(struct sha256 *s, char out[SHA256_HEX]); /* finishes, and writes the digest as hex
                                                          * digits */
/* Computes the digest and size of a whole file. `size` may be NULL. */
int sha256_file(const char *path, char out[SHA256_HEX], int64_t *size, struct err *e);

/* Compresses blocks in plain C. Tests compare the SHA-NI version with this one. */
void sha256_blocks_portable(uint32_t h[8], const uint8_t *p, size_t n_blocks);

#endif
