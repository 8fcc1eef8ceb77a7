/* full_match.c: searches with PCRE2, which knows the expressions of Python that names of modules
 * are matched with. A build without PCRE2 has no expressions. */
#include "worker/text/full_match.h"

#include <stdlib.h>

#ifdef HAVE_PCRE2
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

enum {
    STEPS = 100000,  /* largest number of steps of a match */
    HEAP_KIB = 1024, /* largest amount of memory of a match, in KiB */
    LONGEST = 65536  /* largest size of an expression in bytes */
};

struct full_match {
    pcre2_code *code;
    pcre2_match_data *data;
    pcre2_match_context *context;
};

void full_match_destroy(struct full_match *m)
{
    if (!m) return;
    pcre2_code_free(m->code);
    pcre2_match_data_free(m->data);
    pcre2_match_context_free(m->context);
    free(m);
}

struct full_match *full_match_create(const char *expression, size_t size)
{
    struct full_match *m = size > LONGEST ? NULL : calloc(1, sizeof *m);
    int code;
    size_t at;
    if (!m) return NULL;
    m->code = pcre2_compile((PCRE2_SPTR)expression, size, PCRE2_NEVER_UTF | PCRE2_DOLLAR_ENDONLY,
                            &code, &at, NULL);
    m->data = m->code ? pcre2_match_data_create_from_pattern(m->code, NULL) : NULL;
    m->context = pcre2_match_context_create(NULL);
    if (m->data && m->context) {
        pcre2_set_match_limit(m->context, STEPS);
        pcre2_set_heap_limit(m->context, HEAP_KIB);
        return m;
    }
    full_match_destroy(m);
    return NULL;
}

int full_match_test(struct full_match *m, const char *text, size_t size)
{
    const int rc = pcre2_match(m->code, (PCRE2_SPTR)text, size, 0,
                               PCRE2_ANCHORED | PCRE2_ENDANCHORED, m->data, m->context);
    return rc >= 0 ? 1 : rc == PCRE2_ERROR_NOMATCH ? 0 : -1;
}

#else

struct full_match *full_match_create(const char *expression, size_t size)
{
    (void)expression, (void)size;
    return NULL;
}

void full_match_destroy(struct full_match *m)
{
    (void)m;
}

int full_match_test(struct full_match *m, const char *text, size_t size)
{
    (void)m, (void)text, (void)size;
    return -1;
}

#endif
