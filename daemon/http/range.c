/* range.c: parses ranges of bytes, and compares entity tags. */
#include "daemon/http/range.h"

#include <stdlib.h>
#include <string.h>

static bool digits(const char **p, int64_t *out)
{
    size_t n = strspn(*p, "0123456789");
    if (!n || n > 18) return false;
    *out = strtoll(*p, NULL, 10);
    *p += n;
    return true;
}

static struct range parse(const char *text)
{
    struct range g = {true, -1, INT64_MAX};
    if (!text || strncmp(text, "bytes=", 6)) return (struct range){0};
    text += 6;
    const bool has_first = digits(&text, &g.first);
    if (*text++ != '-') return (struct range){0};
    const bool has_last = digits(&text, &g.last);
    if (*text || (!has_first && !has_last) || (has_first && has_last && g.last < g.first))
        return (struct range){0};
    return g;
}

struct range range_of(const char *range, const char *if_range, const char *etag)
{
    if (if_range && (!etag || strcmp(if_range, etag))) return (struct range){0};
    return parse(range);
}

bool range_resolve(const struct range *g, int64_t total, int64_t *from, int64_t *to)
{
    *from = 0;
    *to = total;
    if (!g->given) return true;
    if (g->first >= 0) {
        *from = g->first;
        if (g->last < total - 1) *to = g->last + 1;
    } else {
        *from = g->last < total ? total - g->last : 0;
        if (!g->last) return false;
    }
    return *from < total;
}

/* Finds etag in a list of tags. A tag in the list may be weak. `etag` has its quotes, so it cannot
 * match a part of a longer tag. */
bool range_none_match(const char *if_none_match, const char *etag)
{
    if (!if_none_match || !etag) return false;
    return !strcmp(if_none_match, "*") || strstr(if_none_match, etag);
}
