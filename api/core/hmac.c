/* hmac.c: computes the two passes of HMAC with sha256.h, and compares digests in constant time. */
#include "api/core/hmac.h"

#include <string.h>
#include "api/core/sha256.h"

enum { BLOCK = 64 };

/* Computes sha256((key ^ pad) || data), as both passes of HMAC do. */
static void pass(const uint8_t key[BLOCK], uint8_t pad, const void *data, size_t size,
                 uint8_t out[HMAC_SIZE])
{
    struct sha256 s;
    uint8_t block[BLOCK];
    for (int i = 0; i < BLOCK; i++) block[i] = key[i] ^ pad;
    sha256_init(&s);
    sha256_add(&s, block, BLOCK);
    sha256_add(&s, data, size);
    sha256_bytes(&s, out);
}

void hmac_sha256(const void *key, size_t key_size, const void *data, size_t size,
                 uint8_t out[HMAC_SIZE])
{
    uint8_t block[BLOCK] = {0}, inner[HMAC_SIZE];
    if (key_size > BLOCK) { /* a long key is replaced by its digest */
        struct sha256 s;
        sha256_init(&s);
        sha256_add(&s, key, key_size);
        sha256_bytes(&s, block);
    } else if (key_size) {
        memcpy(block, key, key_size);
    }
    pass(block, 0x36, data, size, inner);
    pass(block, 0x5c, inner, sizeof inner, out);
}

bool hmac_equal(const uint8_t a[HMAC_SIZE], const uint8_t b[HMAC_SIZE])
{
    uint8_t differ = 0;
    for (int i = 0; i < HMAC_SIZE; i++) differ |= a[i] ^ b[i];
    return differ == 0;
}
