/* duration.c: reads digits and one letter for the unit, and refuses a time outside the caller's
 * range. */
#include "api/core/duration.h"

#include <string.h>

static int64_t unit_s(const char *unit)
{
    if (!*unit) return 1;
    if (unit[1]) return 0;
    switch (*unit) {
    case 's': return 1;
    case 'm': return 60;
    case 'h': return 3600;
    case 'd': return 86400;
    default: return 0;
    }
}

int duration_parse(const char *text, int64_t min_s, int64_t max_s, int64_t *out_s, struct err *e)
{
    const size_t n = strspn(text, "0123456789");
    const int64_t unit = n && n <= 12 ? unit_s(text + n) : 0;
    int64_t v = 0;
    for (size_t i = 0; i < n && unit; i++) v = 10 * v + (text[i] - '0');
    if (!unit)
        return err_set(e, ERR_INVALID, "\"%.40s\" is not a time: write 90s, 30m, 24h or 7d", text);
    *out_s = v * unit;
    if (*out_s >= min_s && *out_s <= max_s) return 0;
    return err_set(e, ERR_INVALID, "%.40s lies outside %lld to %lld seconds", text,
                   (long long)min_s, (long long)max_s);
}
