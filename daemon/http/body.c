/* body.c: reads the members of a small JSON object into variables. */
#include "daemon/http/body.h"

#include <stdio.h>
#include <string.h>
#include "api/core/jread.h"
#include "api/core/utf8.h"

static struct body_member *find(const struct jread *j, struct body_member *m, int n)
{
    for (int i = 0; i < n; i++)
        if (jread_is(j, m[i].name)) return &m[i];
    return NULL;
}

static int no_such_member(struct jread *j, const struct body_member *m, int n, struct err *e)
{
    char name[64] = "", known[256] = "";
    jread_copy(j, name, sizeof name);
    for (int i = 0; i < n; i++) {
        const size_t at = strlen(known);
        snprintf(known + at, sizeof known - at, "%s%s", i ? ", " : "", m[i].name);
    }
    return err_field(e, ERR_INVALID, name, "unknown field \"%s\": the body may have %s", name,
                     n ? known : "none");
}

static int read_text(struct jread *j, struct body_member *m, struct err *e)
{
    if (jread_next(j) == J_STRING && !jread_copy(j, m->out, m->size)) {
        if (utf8_plain(m->out)) return 0;
        return err_field(e, ERR_INVALID, m->name, "%s has a control character: leave it out",
                         m->name);
    }
    return err_field(e, ERR_INVALID, m->name, "%s must be a string of at most %zu bytes", m->name,
                     m->size - 1);
}

static int read_int(struct jread *j, struct body_member *m, struct err *e)
{
    int64_t v;
    if (jread_next(j) == J_NUMBER && !jread_int(j, &v) && v >= m->lo && v <= m->hi) {
        *(int64_t *)m->out = v;
        return 0;
    }
    return err_field(e, ERR_INVALID, m->name, "%s must be an integer from %lld to %lld", m->name,
                     (long long)m->lo, (long long)m->hi);
}

static int read_bool(struct jread *j, struct body_member *m, struct err *e)
{
    const enum jtok t = jread_next(j);
    if (t != J_TRUE && t != J_FALSE)
        return err_field(e, ERR_INVALID, m->name, "%s must be true or false", m->name);
    *(bool *)m->out = t == J_TRUE;
    return 0;
}

static int read_member(struct jread *j, struct body_member *m, struct err *e)
{
    if (m->given)
        return err_field(e, ERR_INVALID, m->name, "the body has %s more than once", m->name);
    m->given = true;
    switch (m->type) {
    case BODY_TEXT: return read_text(j, m, e);
    case BODY_INT: return read_int(j, m, e);
    case BODY_BOOL: return read_bool(j, m, e);
    }
    return -1;
}

int body_read(const struct http_req *r, struct body_member *m, int n, struct err *e)
{
    size_t size;
    const char *text = http_body(r, &size);
    struct jread j;
    enum jtok t;
    if (!size) return 0;
    jread_init(&j, text, size);
    if (jread_next(&j) != J_OBJECT)
        return err_set(e, ERR_INVALID, "the body must be a JSON object");
    while ((t = jread_next(&j)) == J_KEY) {
        struct body_member *one = find(&j, m, n);
        if (!one) return no_such_member(&j, m, n, e);
        if (read_member(&j, one, e)) return -1;
    }
    if (t == J_OBJECT_END && jread_next(&j) == J_END) return 0;
    return err_set(e, ERR_INVALID, "the body is not JSON: %s",
                   j.err.code ? j.err.text : "something follows the object");
}
