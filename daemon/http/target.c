/* target.c: decodes a request target into its path and parameters. */
#include "daemon/http/target.h"

#include <stdbool.h>
#include <string.h>

static int hex(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* Decodes s in place, once. Returns -1 on a bad escape, a NUL or a control byte. */
static int decode(char *s)
{
    char *out = s;
    for (; *s; s++) {
        int c = (unsigned char)*s;
        if (c == '%') {
            int a = hex(s[1]), b = a < 0 ? -1 : hex(s[2]);
            if (b < 0) return -1;
            c = a * 16 + b;
            s += 2;
        }
        if (c < 0x20 || c == 0x7f) return -1;
        *out++ = (char)c;
    }
    *out = 0;
    return 0;
}

static bool has_dotdot(const char *path)
{
    for (const char *p = path; (p = strstr(p, "..")); p += 2)
        if ((p == path || p[-1] == '/') && (!p[2] || p[2] == '/')) return true;
    return false;
}

static int parse_query(struct target *t, char *q)
{
    while (q && *q) {
        char *end = strchr(q, '&');
        if (end) *end++ = 0;
        if (*q) {
            char *eq = strchr(q, '=');
            if (t->n_params == TARGET_PARAMS) return -1;
            if (eq) *eq++ = 0;
            if (decode(q) || (eq && decode(eq))) return -1;
            t->name[t->n_params] = q;
            t->value[t->n_params++] = eq ? eq : "";
        }
        q = end;
    }
    return 0;
}

int target_parse(struct target *t, const char *raw)
{
    size_t n = strlen(raw);
    t->n_params = 0;
    if (n >= sizeof t->text) return -1;
    memcpy(t->text, raw, n + 1);
    char *q = strchr(t->text, '?');
    if (q) *q++ = 0;
    if (t->text[0] != '/' || decode(t->text) || has_dotdot(t->text)) return -1;
    return parse_query(t, q);
}

const char *target_query(const struct target *t, const char *name)
{
    for (int i = 0; i < t->n_params; i++)
        if (!strcmp(t->name[i], name)) return t->value[i];
    return NULL;
}
