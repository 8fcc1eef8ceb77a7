/* sources: worker/jinja/[a-z]*.c worker/text/[a-z]*.c api/core/err.c api/core/file.c api/core/beneath.c api/core/jread.c api/core/sha256.c api/core/mem.c api/core/jwrite.c worker/gguf/[a-z]*.c -DHAVE_PCRE2 -lpcre2-8
 *
 * Reads any bytes as a tokenizer.json. It must either be refused with a sentence, or encode and
 * decode every text. Decoding id by id must give the same text as decoding all ids together.
 * Encoding a text in pieces must give the same ids as encoding it at once. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "worker/text/tokenizer.h"

static void decode(struct tokenizer *t, const struct tokens *ids, bool skip)
{
    struct text whole = {0}, parts = {0};
    struct err e = {0};
    struct detokenizer *d = detokenizer_create(t, skip);
    assert(d && tokenizer_decode(t, ids->id, ids->n, skip, &whole, &e) == 0);
    for (int64_t i = 0; i < ids->n; i++) assert(!detokenizer_put(d, ids->id[i], &parts, &e));
    assert(!detokenizer_finish(d, &parts, &e));
    assert(whole.n == parts.n && (!parts.n || !memcmp(whole.data, parts.data, (size_t)parts.n)));
    detokenizer_destroy(d);
    text_fini(&whole);
    text_fini(&parts);
}

static bool encode_part(struct tokenizer *t, const char *text, size_t n, size_t at, size_t end,
                        struct tokens *out)
{
    const struct text_part part = {
        .text = text + at, .n = end - at, .begins = at == 0, .ends = end == n};
    const int64_t first = out->n;
    struct err e = {0};
    if (tokenizer_encode_part(t, &part, true, out, &e) < 0) return false;
    for (int64_t i = first; i < out->n; i++) {
        out->begin[i] += (int64_t)at;
        out->end[i] += (int64_t)at;
    }
    return true;
}

/* Divides the text into two pieces at each of the first 20 places that tokenizer_cut returns, and
 * encodes both pieces. Their tokens together must be the tokens of the undivided text. A place is
 * not checked if a piece exceeds a limit of a pattern. */
static void cut(struct tokenizer *t, const char *text, size_t n, const struct tokens *whole)
{
    int64_t at = 0;
    for (int i = 0; i < 20 && (at = tokenizer_cut(t, text, n, (size_t)at + 1)) > 0; i++) {
        struct tokens ids = {.spans = true};
        if (encode_part(t, text, n, 0, (size_t)at, &ids) &&
            encode_part(t, text, n, (size_t)at, n, &ids)) {
            assert(ids.n == whole->n);
            for (int64_t k = 0; k < ids.n; k++)
                assert(ids.id[k] == whole->id[k] && ids.begin[k] == whole->begin[k] &&
                       ids.end[k] == whole->end[k]);
        }
        text_tokens_fini(&ids);
    }
}

static void encode(struct tokenizer *t, const char *text, size_t n)
{
    struct tokens ids = {.spans = true};
    struct err e = {0};
    if (tokenizer_encode(t, text, n, true, &ids, &e) < 0) {
        assert(e.code && e.text[0] && !ids.n);
    } else {
        for (int64_t i = 0; i < ids.n; i++)
            assert(ids.begin[i] >= 0 && ids.begin[i] <= ids.end[i] && ids.end[i] <= (int64_t)n);
        decode(t, &ids, false);
        decode(t, &ids, true);
        cut(t, text, n, &ids);
    }
    text_tokens_fini(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char sample[] =
        "The  fox's \xc3\xa9 e\xcc\x81 12 <s>ab</s>\r\n\xe2\x96\x81x\xf0\x9f"
        "\x98\x80 [MASK] a";
    struct err e = {0};
    struct tokenizer *t = tokenizer_open_text((const char *)data, size, &e);
    if (!t) {
        assert(e.code && e.text[0]);
        return 0;
    }
    encode(t, sample, sizeof sample - 1);
    encode(t, sample, 0);
    encode(t, (const char *)data, size);
    for (int32_t id = -1; id < tokenizer_size(t) && id < 1000; id++) {
        size_t n;
        const char *s = tokenizer_content(t, id, &n);
        assert(!s || tokenizer_id(t, s, n) >= 0);
    }
    tokenizer_destroy(t);
    return 0;
}
