/* hmac.h: HMAC-SHA256 (RFC 2104, FIPS 198-1), with which a program proves that it knows a key.
 * libc only. tested: the vectors of RFC 4231 in tests/core/test_core.c. */
#ifndef SEQD_CORE_HMAC_H
#define SEQD_CORE_HMAC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HMAC_SIZE 32

void hmac_sha256(const void *key, size_t key_size, const void *data, size_t size,
                 uint8_t out[HMAC_SIZE]);
/* Compares two codes in constant time, so that the duration does not tell at which byte they
 * differ. */
bool hmac_equal(const uint8_t a[HMAC_SIZE], const uint8_t b[HMAC_SIZE]);

#endif
