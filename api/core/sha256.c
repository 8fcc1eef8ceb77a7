/* sha256.c: hashes blocks in portable C, or with the SHA extensions if the processor has them, and
 * reads files in large pieces. */
#include "api/core/sha256.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>
#include "api/core/beneath.h"

static const uint32_t K[64] __attribute__((aligned(16))) = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static inline uint32_t ror(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

void sha256_blocks_portable(uint32_t h[8], const uint8_t *p, size_t n_blocks)
{
    for (; n_blocks; n_blocks--, p += 64) {
        uint32_t w[64], s[8];
        for (int i = 0; i < 16; i++)
            w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 |
                   (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
        for (int i = 16; i < 64; i++) {
            uint32_t a = w[i - 15], b = w[i - 2];
            w[i] = w[i - 16] + (ror(a, 7) ^ ror(a, 18) ^ a >> 3) + w[i - 7] +
                   (ror(b, 17) ^ ror(b, 19) ^ b >> 10);
        }
        memcpy(s, h, sizeof s);
        for (int i = 0; i < 64; i++) {
            uint32_t e = s[4], a = s[0];
            uint32_t t1 = s[7] + (ror(e, 6) ^ ror(e, 11) ^ ror(e, 25)) +
                          ((e & s[5]) ^ (~e & s[6])) + K[i] + w[i];
            uint32_t t2 = (ror(a, 2) ^ ror(a, 13) ^ ror(a, 22)) +
                          ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));
            memmove(s + 1, s, 7 * sizeof *s);
            s[4] += t1;
            s[0] = t1 + t2;
        }
        for (int i = 0; i < 8; i++) h[i] += s[i];
    }
}

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

#define SHA_NI __attribute__((target("sha,sse4.1,ssse3"), always_inline))

/* The state of a digest in the form that sha256rnds2 needs, and the last sixteen words of its
 * schedule. Each vector is a separate member, so that the compiler keeps it in a register. If the
 * schedule were in memory, each of its steps would wait for the previous step's store. */
struct sha_lane {
    __m128i abef, cdgh, m0, m1, m2, m3;
};

SHA_NI static inline struct sha_lane lane_open(const uint32_t h[8])
{
    const __m128i cdab = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)h), 0xb1);
    const __m128i efgh = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(h + 4)), 0x1b);
    return (struct sha_lane){.abef = _mm_alignr_epi8(cdab, efgh, 8),
                             .cdgh = _mm_blend_epi16(efgh, cdab, 0xf0)};
}

SHA_NI static inline void lane_close(const struct sha_lane *l, uint32_t h[8])
{
    const __m128i feba = _mm_shuffle_epi32(l->abef, 0x1b);
    const __m128i dchg = _mm_shuffle_epi32(l->cdgh, 0xb1);
    _mm_storeu_si128((__m128i *)h, _mm_blend_epi16(feba, dchg, 0xf0));
    _mm_storeu_si128((__m128i *)(h + 4), _mm_alignr_epi8(dchg, feba, 8));
}

SHA_NI static inline __m128i words_at(const uint8_t *p)
{
    const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
    return _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)p), swap);
}

/* Does rounds [i, i + 4) with the words w. */
SHA_NI static inline void rounds_4(struct sha_lane *l, __m128i w, int i)
{
    const __m128i k = _mm_add_epi32(w, _mm_load_si128((const __m128i *)(K + i)));
    l->cdgh = _mm_sha256rnds2_epu32(l->cdgh, l->abef, k);
    l->abef = _mm_sha256rnds2_epu32(l->abef, l->cdgh, _mm_shuffle_epi32(k, 0x0e));
}

/* Returns the next four words of the schedule after the sixteen words in a, b, c and d. a has the
 * oldest words, d the newest. */
SHA_NI static inline __m128i words_after(__m128i a, __m128i b, __m128i c, __m128i d)
{
    const __m128i sum = _mm_add_epi32(_mm_sha256msg1_epu32(a, b), _mm_alignr_epi8(d, c, 4));
    return _mm_sha256msg2_epu32(sum, d);
}

SHA_NI static inline void rounds_first(struct sha_lane *l, const uint8_t *p)
{
    rounds_4(l, l->m0 = words_at(p), 0);
    rounds_4(l, l->m1 = words_at(p + 16), 4);
    rounds_4(l, l->m2 = words_at(p + 32), 8);
    rounds_4(l, l->m3 = words_at(p + 48), 12);
}

/* Does rounds [i, i + 16). */
SHA_NI static inline void rounds_16(struct sha_lane *l, int i)
{
    rounds_4(l, l->m0 = words_after(l->m0, l->m1, l->m2, l->m3), i);
    rounds_4(l, l->m1 = words_after(l->m1, l->m2, l->m3, l->m0), i + 4);
    rounds_4(l, l->m2 = words_after(l->m2, l->m3, l->m0, l->m1), i + 8);
    rounds_4(l, l->m3 = words_after(l->m3, l->m0, l->m1, l->m2), i + 12);
}

SHA_NI static inline void add_state(struct sha_lane *l, const struct sha_lane *before)
{
    l->abef = _mm_add_epi32(l->abef, before->abef);
    l->cdgh = _mm_add_epi32(l->cdgh, before->cdgh);
}

__attribute__((target("sha,sse4.1,ssse3"))) static void
blocks_sha_ni(uint32_t h[8], const uint8_t *p, size_t n_blocks)
{
    struct sha_lane a = lane_open(h);
    for (; n_blocks; n_blocks--, p += 64) {
        const struct sha_lane before = a;
        rounds_first(&a, p);
        for (int i = 16; i < 64; i += 16) rounds_16(&a, i);
        add_state(&a, &before);
    }
    lane_close(&a, h);
}

/* Compresses blocks of two digests together. Each round of a digest waits for the round before,
 * and in the meantime the processor does a round of the second digest. */
__attribute__((target("sha,sse4.1,ssse3"))) static void
blocks_two_sha_ni(uint32_t h[8], const uint8_t *p, uint32_t g[8], const uint8_t *q, size_t n_blocks)
{
    struct sha_lane a = lane_open(h), b = lane_open(g);
    for (; n_blocks; n_blocks--, p += 64, q += 64) {
        const struct sha_lane a_before = a, b_before = b;
        rounds_first(&a, p);
        rounds_first(&b, q);
        for (int i = 16; i < 64; i += 16) {
            rounds_16(&a, i);
            rounds_16(&b, i);
        }
        add_state(&a, &a_before);
        add_state(&b, &b_before);
    }
    lane_close(&a, h);
    lane_close(&b, g);
}

/* Asks the processor only once, because cpuid traps in a virtual machine. known is 0 before that,
 * 1 if the processor has no SHA extensions, and 2 if it has them. */
static int have_sha_ni(void)
{
    static atomic_int known;
    int v = atomic_load_explicit(&known, memory_order_relaxed);
    if (!v) {
        unsigned a, b, c, d;
        v = 1;
        if (__get_cpuid(1, &a, &b, &c, &d) && (c & bit_SSSE3) && (c & bit_SSE4_1) &&
            __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & (1u << 29)))
            v = 2;
        atomic_store_explicit(&known, v, memory_order_relaxed);
    }
    return v == 2;
}

static void blocks(uint32_t h[8], const uint8_t *p, size_t n)
{
    if (have_sha_ni())
        blocks_sha_ni(h, p, n);
    else
        sha256_blocks_portable(h, p, n);
}

static void blocks_two(uint32_t h[8], const uint8_t *p, uint32_t g[8], const uint8_t *q, size_t n)
{
    if (have_sha_ni()) {
        blocks_two_sha_ni(h, p, g, q, n);
    } else {
        sha256_blocks_portable(h, p, n);
        sha256_blocks_portable(g, q, n);
    }
}
#else
static void blocks(uint32_t h[8], const uint8_t *p, size_t n)
{
    sha256_blocks_portable(h, p, n);
}

static void blocks_two(uint32_t h[8], const uint8_t *p, uint32_t g[8], const uint8_t *q, size_t n)
{
    sha256_blocks_portable(h, p, n);
    sha256_blocks_portable(g, q, n);
}
#endif

void sha256_init(struct sha256 *s)
{
    *s = (struct sha256){.h = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f,
                               0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

/* Adds bytes to the incomplete block until the block is full or the bytes are used up. Returns the
 * number of bytes that it used. */
static size_t fill(struct sha256 *s, const uint8_t *p, size_t size)
{
    const size_t have = s->n_bytes % 64;
    const size_t n = size < 64 - have ? size : 64 - have;
    if (!have || !n) return 0;
    memcpy(s->block + have, p, n);
    s->n_bytes += n;
    if (have + n == 64) blocks(s->h, s->block, 1);
    return n;
}

void sha256_add(struct sha256 *s, const void *data, size_t size)
{
    if (!size) return;
    const size_t begun = fill(s, data, size);
    const uint8_t *p = (const uint8_t *)data + begun;
    size -= begun;
    s->n_bytes += size;
    if (size >= 64) blocks(s->h, p, size / 64);
    if (size % 64) memcpy(s->block, p + size / 64 * 64, size % 64);
}

void sha256_add_two(struct sha256 *a, struct sha256 *b, const void *data, size_t size)
{
    const uint8_t *p = data;
    const size_t in_a = fill(a, p, size), in_b = fill(b, p, size);
    const size_t n_blocks = (size - (in_a > in_b ? in_a : in_b)) / 64, n = n_blocks * 64;
    if (n) blocks_two(a->h, p + in_a, b->h, p + in_b, n_blocks);
    a->n_bytes += n;
    b->n_bytes += n;
    sha256_add(a, p + in_a + n, size - in_a - n);
    sha256_add(b, p + in_b + n, size - in_b - n);
}

void sha256_bytes(struct sha256 *s, uint8_t out[32])
{
    uint64_t n_bits = s->n_bytes * 8;
    uint8_t tail[72] = {0x80};
    size_t n = (s->n_bytes % 64 < 56 ? 56 : 120) - s->n_bytes % 64;
    for (int i = 0; i < 8; i++) tail[n + (size_t)i] = (uint8_t)(n_bits >> (56 - 8 * i));
    sha256_add(s, tail, n + 8);
    for (int i = 0; i < 32; i++) out[i] = (uint8_t)(s->h[i / 4] >> (24 - 8 * (i % 4)));
}

void sha256_hex(struct sha256 *s, char out[SHA256_HEX])
{
    static const char digit[] = "0123456789abcdef";
    uint8_t b[32];
    sha256_bytes(s, b);
    for (int i = 0; i < 64; i++) out[i] = digit[b[i / 2] >> (4 - 4 * (i % 2)) & 15];
    out[64] = 0;
}

int sha256_file(const char *path, char out[SHA256_HEX], int64_t *size, struct err *e)
{
    struct sha256 s;
    uint8_t buf[32768];
    int fd = beneath_read(path, e);
    if (fd < 0) return -1;
    sha256_init(&s);
    for (;;) {
        ssize_t n = read(fd, buf, sizeof buf);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            err_errno(e, "read %s", path);
            close(fd);
            return -1;
        }
        if (n == 0) break;
        sha256_add(&s, buf, (size_t)n);
    }
    close(fd);
    if (size) *size = (int64_t)s.n_bytes;
    sha256_hex(&s, out);
    return 0;
}
