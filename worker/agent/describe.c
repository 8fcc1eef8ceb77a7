#include "worker/agent/describe.h"

#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include "api/core/jread.h"

static int shape_field(struct jread *j, const char *key, struct model_shape *m, struct err *e)
{
    char path[128], word[64];
    static const size_t base = offsetof(struct job_spec, model.shape);
    snprintf(path, sizeof path, "model.config.%s", key);
    const struct field *f = spec_field(path);
    enum jtok t = jread_next(j);
    if (!f) return t == J_ERROR ? -1 : jread_skip(j); /* n_params, and what later versions add */
    assert(f->offset >= base && f->offset < base + sizeof *m);
    char *member = (char *)m + (f->offset - base);
    int64_t v64 = 0;
    int32_t v32 = 0;
    double real = 0;
    bool is_number = t == J_NUMBER;
    if (f->type == FIELD_INT && is_number && jread_int(j, &v64) == 0)
        return memcpy(member, &v64, sizeof v64), 0;
    if (f->type == FIELD_DOUBLE && is_number && jread_double(j, &real) == 0)
        return memcpy(member, &real, sizeof real), 0;
    if (f->type == FIELD_INT32 && is_number && jread_int(j, &v64) == 0 && v64 == (int32_t)v64) {
        v32 = (int32_t)v64;
    } else if (f->type == FIELD_BOOL && (t == J_TRUE || t == J_FALSE)) {
        v32 = t == J_TRUE;
    } else if (f->type == FIELD_ENUM && t == J_STRING && jread_copy(j, word, sizeof word) == 0) {
        while (f->words[v32] && strcmp(f->words[v32], word) != 0) v32++;
        if (!f->words[v32])
            return err_field(e, ERR_UNSUPPORTED, path, "%s '%s' is unknown", path, word);
    } else {
        return err_field(e, ERR_INVALID, path, "%s has a value of the wrong kind", path);
    }
    memcpy(member, &v32, sizeof v32);
    return 0;
}

int describe_parse(const char *json, size_t size, struct model_shape *m, struct err *e)
{
    struct jread j;
    char key[64];
    *m = (struct model_shape){0};
    jread_init(&j, json, size);
    if (jread_next(&j) != J_OBJECT)
        return err_set(e, ERR_PEER, "seqrank --describe printed no object");
    for (enum jtok t = jread_next(&j); t != J_OBJECT_END; t = jread_next(&j)) {
        *e = (struct err){0};
        if (t != J_KEY || jread_copy(&j, key, sizeof key) < 0 || shape_field(&j, key, m, e) < 0)
            return e->code ? -1 : err_set(e, ERR_PEER, "seqrank --describe: %s", j.err.text);
    }
    if (m->n_layers < 1 || m->width < 1 || m->n_heads < 1)
        return err_set(e, ERR_PEER, "seqrank --describe printed no sizes");
    return 0;
}
