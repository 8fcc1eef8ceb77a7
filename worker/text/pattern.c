/* pattern.c: searches with PCRE2, using the pattern of pattern_parse.c, in a text with one byte
 * for each rune. A build without PCRE2 refuses patterns. */
#include "worker/text/pattern.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "worker/text/pattern_parse.h"

#ifdef HAVE_PCRE2
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#define MATCH_LIMIT 100000000 /* Largest number of steps of a match at one position of the text. */
#define HEAP_KIB    65536     /* Largest amount of memory of one search, in KiB. */
#define STACK_SIZE  (8u << 20)

struct pattern {
    struct pattern_classes classes;
    pcre2_code *code;
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
    /* The text, with one byte for each rune, and the state of the search. */
    const char *s;
    uint8_t *unit;
    int64_t room, n_units;
    bool one_each; /* set if every rune has one byte, so that rune i is byte i of the text */
    int64_t rune_pos, byte_pos;
    int64_t next, last_end; /* indices of runes: `next` is the rune at which the next search
                             * begins; `last_end` is the end of the last match, or -1 before
                             * the first match */
};

void pattern_destroy(struct pattern *p)
{
    if (!p) return;
    pcre2_code_free(p->code);
    pcre2_match_data_free(p->data);
    pcre2_match_context_free(p->context);
    pcre2_jit_stack_free(p->stack);
    free(p->unit);
    free(p);
}

static int compile(struct pattern *p, const struct text *bytes, struct err *e)
{
    int code;
    size_t at;
    p->code = pcre2_compile((PCRE2_SPTR)bytes->data, (size_t)bytes->n, PCRE2_NEVER_UTF, &code, &at,
                            NULL);
    if (!p->code) {
        char why[128] = "";
        pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof why);
        return err_set(e, ERR_UNSUPPORTED, "tokenizer.json: a pattern: %s", why);
    }
    p->data = pcre2_match_data_create(1, NULL);
    p->context = pcre2_match_context_create(NULL);
    if (!p->data || !p->context) return buffer_full(e);
    pcre2_set_match_limit(p->context, MATCH_LIMIT);
    pcre2_set_heap_limit(p->context, HEAP_KIB);
    if (pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE) == 0) {
        p->stack = pcre2_jit_stack_create(64 << 10, STACK_SIZE, NULL);
        if (!p->stack) return buffer_full(e);
        pcre2_jit_stack_assign(p->context, NULL, p->stack);
    }
    return 0;
}

struct pattern *pattern_create(const char *text, size_t n, struct err *e)
{
    struct text bytes = {0};
    struct pattern *p = calloc(1, sizeof *p);
    if (!p) return buffer_full(e), NULL;
    int rc = pattern_parse(text, n, &p->classes, &bytes, e);
    if (rc == 0 && text_add(&bytes, "", 0) < 0) rc = buffer_full(e);
    if (rc == 0) rc = compile(p, &bytes, e);
    text_fini(&bytes);
    if (rc == 0) return p;
    pattern_destroy(p);
    return NULL;
}

int pattern_begin(struct pattern *p, const char *s, int64_t n, struct err *e)
{
    if (buffer_grow((void **)&p->unit, &p->room, 0, n + 1, 1) < 0) return buffer_full(e);
    p->s = s;
    p->n_units = 0;
    for (int64_t i = 0; i < n;) {
        int size = 1;
        const uint32_t c = (unsigned char)s[i] < 0x80 ? (unsigned char)s[i]
                                                      : rune_get(s + i, &size);
        p->unit[p->n_units++] = p->classes.of[c];
        i += size;
    }
    p->one_each = p->n_units == n;
    p->rune_pos = p->byte_pos = p->next = 0;
    p->last_end = -1;
    return 0;
}

/* Returns the offset of the first byte of rune `at`. The parameter `at` must not be smaller
 * than it was in the call before. */
static int64_t byte_of(struct pattern *p, int64_t at)
{
    if (p->one_each) return at;
    for (; p->rune_pos < at; p->rune_pos++)
        p->byte_pos += rune_size((unsigned char)p->s[p->byte_pos]);
    return p->byte_pos;
}

/* Finds the next match at or after p->next. Returns 1 if it has found a match, 0 if there is
 * no further match, and -1 after a failure. */
static int find(struct pattern *p, int64_t *begin, int64_t *end, struct err *e)
{
    const int rc = pcre2_match(p->code, p->unit, (size_t)p->n_units, (size_t)p->next,
                               PCRE2_NO_UTF_CHECK, p->data, p->context);
    if (rc == PCRE2_ERROR_NOMATCH) return 0;
    if (rc < 0) {
        char why[128] = "";
        pcre2_get_error_message(rc, (PCRE2_UCHAR *)why, sizeof why);
        return err_set(e, ERR_TOO_LARGE,
                       "tokenizer.json: a pattern at character %lld of a text: %s",
                       (long long)p->next, why);
    }
    const size_t *at = pcre2_get_ovector_pointer(p->data);
    *begin = (int64_t)at[0];
    *end = (int64_t)at[1];
    return 1;
}

int pattern_next(struct pattern *p, int64_t *begin, int64_t *end, struct err *e)
{
    while (p->next <= p->n_units) {
        int64_t from = 0, to = 0;
        const int rc = find(p, &from, &to, e);
        if (rc <= 0) {
            p->next = p->n_units + 1;
            return rc;
        }
        /* this is an empty match directly after the last match */
        if (from == to && to == p->last_end) {
            p->next++;
            continue;
        }
        p->next = p->last_end = to;
        *begin = byte_of(p, from);
        *end = byte_of(p, to);
        return 1;
    }
    return 0;
}

bool pattern_joins(const struct pattern *p, uint32_t a, uint32_t b)
{
    const struct pattern_classes *c = &p->classes;
    return !c->pairs.known || class_in(&c->pairs.after[c->of[a]], c->of[b]);
}

bool pattern_begins(const struct pattern *p, uint32_t b)
{
    return class_in(&p->classes.pairs.alone, p->classes.of[b]);
}

#else

struct pattern *pattern_create(const char *text, size_t n, struct err *e)
{
    err_set(e, ERR_UNSUPPORTED,
            "tokenizer.json has patterns, and this build has no PCRE2: install libpcre2-dev and "
            "build again");
    return NULL;
}

void pattern_destroy(struct pattern *p)
{
}

int pattern_begin(struct pattern *p, const char *s, int64_t n, struct err *e)
{
    assert(!"there is no pattern");
    return -1;
}

int pattern_next(struct pattern *p, int64_t *begin, int64_t *end, struct err *e)
{
    assert(!"there is no pattern");
    return -1;
}

bool pattern_joins(const struct pattern *p, uint32_t a, uint32_t b)
{
    return true;
}

bool pattern_begins(const struct pattern *p, uint32_t b)
{
    return false;
}

#endif
