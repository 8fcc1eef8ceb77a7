/* exposition.c: appends lines to a text that grows. */
#include "daemon/http/exposition.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void exposition_add(struct exposition *x, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    const int n = vsnprintf(x->text ? x->text + x->n : NULL, x->room - x->n, fmt, ap);
    if (n < 0) abort();
    if (x->n + (size_t)n >= x->room) {
        x->room = 2 * (x->n + (size_t)n) + 16384;
        if (!(x->text = realloc(x->text, x->room))) abort();
        vsnprintf(x->text + x->n, x->room - x->n, fmt, again);
    }
    va_end(again);
    va_end(ap);
    x->n += (size_t)n;
}

void exposition_family(struct exposition *x, const char *name, const char *type, const char *help)
{
    exposition_add(x, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

void exposition_one(struct exposition *x, const char *name, const char *type, double value,
                    const char *help)
{
    exposition_family(x, name, type, help);
    exposition_add(x, "%s %.17g\n", name, value);
}
