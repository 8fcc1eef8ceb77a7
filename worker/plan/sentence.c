/* sentence.c: appends by vsnprintf, and stops at the buffer's end. */
#include "worker/plan/sentence.h"

#include <stdarg.h>
#include <stdio.h>

struct sentence sentence_in(char *at, size_t size)
{
    *at = 0;
    return (struct sentence){.at = at, .size = size};
}

void sentence_add(struct sentence *s, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(s->at + s->n, s->size - s->n, format, args);
    va_end(args);
    if (n > 0) s->n = (size_t)n < s->size - s->n ? s->n + (size_t)n : s->size - 1;
}
