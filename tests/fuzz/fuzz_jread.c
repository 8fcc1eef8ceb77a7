/* sources: api/core/jread.c api/core/jwrite.c api/core/err.c
 *
 * Reads any bytes token by token, and also skips them as one value. Both must accept or both must
 * refuse the bytes. An accepted text is written again, and the written text must have the same
 * tokens. */
#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/jread.h"
#include "api/core/jwrite.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void write_token(struct jwrite *w, struct jread *j, enum jtok t, char *key, bool *has_key)
{
    const char *k = *has_key ? key : NULL;
    double v;
    char *text = malloc(j->len + 1);
    size_t n = t == J_STRING || t == J_KEY ? jread_unescape(j, text) : 0;
    *has_key = false;
    switch (t) {
    case J_OBJECT: jwrite_object(w, k); break;
    case J_ARRAY: jwrite_array(w, k); break;
    case J_OBJECT_END:
    case J_ARRAY_END: jwrite_end(w); break;
    case J_KEY: *has_key = jread_copy(j, key, 64) == 0; break;
    case J_STRING: jwrite_strn(w, k, text, n); break;
    case J_NUMBER:
        if (jread_double(j, &v) == 0)
            jwrite_double(w, k, v);
        else
            jwrite_null(w, k);
        break;
    case J_TRUE:
    case J_FALSE: jwrite_bool(w, k, t == J_TRUE); break;
    default: jwrite_null(w, k); break;
    }
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct jread j, s;
    struct jwrite w;
    enum jtok t;
    char key[64];
    bool has_key = false, keys_fit = true;
    size_t out_size = size * 24 + 64;
    char *out = malloc(out_size);
    jwrite_init(&w, out, out_size);
    jread_init(&j, (const char *)data, size);
    while ((t = jread_next(&j)) > J_END) {
        write_token(&w, &j, t, key, &has_key);
        if (t == J_KEY && !has_key) keys_fit = false;
    }
    jread_init(&s, (const char *)data, size);
    bool skipped = jread_skip(&s) == 0 && jread_next(&s) == J_END;
    assert(skipped == (t == J_END));
    if (t == J_END && keys_fit) {
        int64_t n = jwrite_finish(&w);
        assert(n > 0);
        jread_init(&s, out, (size_t)n);
        assert(jread_skip(&s) == 0 && jread_next(&s) == J_END);
    }
    free(out);
    return 0;
}
