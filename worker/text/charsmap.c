/* charsmap.c: decodes the map from base64, checks its sizes, and walks the double array to the
 * first match. */
#include "worker/text/charsmap.h"

#include <stdlib.h>
#include <string.h>
#include "api/core/utf8.h"

struct charsmap {
    uint32_t *unit; /* units of the trie */
    int64_t n;
    /* bytes of the map: first the size of the trie, then the trie, then the strings */
    struct text all;
    const char *pool; /* the strings in `all`, each of which ends with a NUL */
    int64_t pool_size;
};

static int digit_of(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* Decodes padded base64 in place. Returns -1 if the text is not base64. */
static int decode(struct text *t)
{
    int64_t n = t->n, out = 0;
    uint32_t bits = 0;
    if (n % 4) return -1;
    for (int pad = 0; pad < 2 && n && t->data[n - 1] == '='; pad++) n--;
    for (int64_t i = 0; i < n; i++) {
        const int digit = digit_of(t->data[i]);
        if (digit < 0) return -1;
        bits = bits << 6 | (uint32_t)digit;
        if (i % 4) t->data[out++] = (char)(bits >> (6 - 2 * (i % 4)));
    }
    t->n = out;
    return 0;
}

static uint32_t number(const char *p)
{
    const unsigned char *b = (const unsigned char *)p;
    return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static int parse(struct charsmap *m, struct err *e)
{
    const int64_t trie = m->all.n >= 4 ? (int64_t)number(m->all.data) : -1;
    if (trie < 4 || trie % 4 || trie > m->all.n - 4)
        return err_set(e, ERR_INVALID,
                       "tokenizer.json: precompiled_charsmap has %lld bytes and says that its trie "
                       "has %lld",
                       (long long)m->all.n, (long long)trie);
    m->n = trie / 4;
    m->unit = malloc((size_t)trie);
    if (!m->unit) return buffer_full(e);
    for (int64_t i = 0; i < m->n; i++) m->unit[i] = number(m->all.data + 4 + 4 * i);
    m->pool = m->all.data + 4 + trie;
    m->pool_size = m->all.n - 4 - trie;
    const char *p = m->pool, *end = p + m->pool_size;
    for (int n = 1; p < end && n; p += n) n = utf8_len(p, end);
    if (p == end) return 0;
    return err_set(e, ERR_INVALID,
                   "tokenizer.json: precompiled_charsmap has strings that are not "
                   "UTF-8");
}

struct charsmap *charsmap_open(struct json v, struct err *e)
{
    struct charsmap *m = calloc(1, sizeof *m);
    if (!m) return buffer_full(e), NULL;
    int rc = json_text(v, "normalizer.precompiled_charsmap", &m->all, e);
    if (rc == 0 && decode(&m->all) < 0)
        rc = err_set(e, ERR_INVALID, "tokenizer.json: precompiled_charsmap is not base64");
    if (rc == 0) rc = parse(m, e);
    if (rc == 0) return m;
    charsmap_destroy(m);
    return NULL;
}

void charsmap_destroy(struct charsmap *m)
{
    if (!m) return;
    text_fini(&m->all);
    free(m->unit);
    free(m);
}

/* Returns the relative index of a unit's children. In a unit of the trie, bits 0 to 7 and 31
 * are the label. Bit 8 is set if the unit has a value. Bits 10 to 30 are the relative index,
 * which is multiplied by 256 if bit 9 is set. A value has 31 bits. */
static int64_t offset_of(uint32_t unit)
{
    return (int64_t)(unit >> 10) << ((unit & 1u << 9) >> 6);
}

const char *charsmap_find(const struct charsmap *m, const char *s, int64_t n, int64_t *size)
{
    int64_t at = offset_of(m->unit[0]);
    for (int64_t i = 0; i < n && s[i]; i++) {
        at ^= (unsigned char)s[i];
        if (at >= m->n || (m->unit[at] & (1u << 31 | 0xff)) != (unsigned char)s[i]) return NULL;
        const bool leaf = m->unit[at] >> 8 & 1;
        at ^= offset_of(m->unit[at]);
        if (!leaf) continue;
        if (at >= m->n) return NULL;
        const int64_t value = m->unit[at] & ~(1u << 31);
        /* Refuse an offset past the strings or inside a character. */
        if (value > m->pool_size || (value < m->pool_size && (m->pool[value] & 0xc0) == 0x80))
            return NULL;
        *size = (int64_t)strnlen(m->pool + value, (size_t)(m->pool_size - value));
        return m->pool + value;
    }
    return NULL;
}
