/* Compiles a template. It checks the UTF-8, normalizes newlines, and then lexes and parses the
 * text. */
#include "worker/jinja/template.h"

#include <stdlib.h>
#include <string.h>
#include "api/core/utf8.h"
#include "worker/jinja/parse.h"

/* Replaces \r\n and \r by \n, and removes one newline at the end, as jinja2 does. */
static char *normalize(struct heap *h, const char *text, int64_t size, int64_t *out_size)
{
    char *copy = jinja_heap_alloc(h, size + 1);
    int64_t n = 0;
    for (int64_t i = 0; i < size; i++) {
        if (text[i] == '\r' && i + 1 < size && text[i + 1] == '\n') continue;
        copy[n++] = text[i] == '\r' ? '\n' : text[i];
    }
    *out_size = n && copy[n - 1] == '\n' ? n - 1 : n;
    return copy;
}

static void check_utf8(struct heap *h, const char *text, int64_t size)
{
    for (int64_t i = 0, n; i < size; i += n) {
        if (!(n = utf8_len(text + i, text + size)))
            jinja_heap_fail(h, ERR_INVALID, "the byte 0x%02x is not UTF-8", (unsigned char)text[i]);
        h->line += text[i] == '\n';
    }
}

static void compile(struct heap *h, struct template *t, const char *text, int64_t size)
{
    struct template_tokens tokens = {0};
    h->line = 1;
    if (size > TEMPLATE_SOURCE)
        jinja_heap_fail(h, ERR_TOO_LARGE, "the source has %lld bytes, the most is %d",
                        (long long)size, TEMPLATE_SOURCE);
    check_utf8(h, text, size);
    const char *source = normalize(h, text, size, &size);
    t->source = source;
    t->size = size;
    jinja_lex(h, &tokens, source, size);
    jinja_parse(h, t, &tokens);
}

/* Compiles. This is a separate function so that no variable of the caller is undefined after a
 * longjmp. */
static int try_compile(struct heap *h, struct template *t, const char *text, int64_t size)
{
    if (setjmp(h->fail)) return -1;
    compile(h, t, text, size);
    return 0;
}

struct template *jinja_create(const char *text, int64_t size, struct err *e)
{
    struct err ignored;
    struct heap h = {.e = e ? e : &ignored, .n_steps = INT64_MAX};
    struct template *t = calloc(1, sizeof *t);
    if (!t) {
        err_set(e, ERR_TOO_LARGE, "chat template: no memory");
        return NULL;
    }
    arena_init(&h.arena, (size_t)TEMPLATE_COMPILE);
    const int failed = try_compile(&h, t, text, size);
    t->arena = h.arena;
    if (!failed) return t;
    jinja_destroy(t);
    return NULL;
}

void jinja_destroy(struct template *t)
{
    if (!t) return;
    arena_fini(&t->arena);
    free(t);
}

bool jinja_has_generation(const struct template *t)
{
    return t->has_generation;
}

bool jinja_names(const struct template *t, const char *name)
{
    for (int i = 0; i < t->n_symbols; i++)
        if (jinja_value_is_text(t->symbol[i], name)) return true;
    return false;
}

bool jinja_mentions(const struct template *t, const char *word)
{
    return memmem(t->source, (size_t)t->size, word, strlen(word)) != NULL;
}
