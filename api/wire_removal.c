/* Removals, and the errors that answers carry. */
#include "api/core/removal.h"
#include "api/wire_pack.h"

Seqd__Error *wire_error_pack(const struct err *in, struct arena *a)
{
    Seqd__Error *w = message_new(a, &seqd__error__descriptor);
    if (!w) return NULL;
    w->code = in->code;
    w->field = (char *)in->field;
    w->text = (char *)in->text;
    return w;
}

int wire_error_unpack(const Seqd__Error *w, struct err *out, struct err *e)
{
    *out = (struct err){0};
    if (!w) return 0;
    if (range_check(w->code, 0, ERR_N - 1, "error.code", e) < 0) return -1;
    out->code = (enum err_code)w->code;
    if (text_copy(out->field, sizeof out->field, w->field, "error.field", e) < 0) return -1;
    return text_copy(out->text, sizeof out->text, w->text, "error.text", e);
}

int wire_remove_pack(const struct msg *m, struct arena *a, void *body)
{
    Seqd__Remove *w = body;
    w->job = m->job;
    w->what = m->what;
    return 0;
}

static int removal_unpack(int64_t job, int32_t what, struct msg *m, struct err *e)
{
    m->job = job;
    m->what = what;
    if (range_check(job, 1, INT64_MAX, "job", e) < 0) return -1;
    return range_check(what, 0, REMOVAL_N - 1, "what", e);
}

int wire_remove_unpack(const void *body, struct arena *a, struct msg *m, struct err *e)
{
    const Seqd__Remove *w = body;
    return removal_unpack(w->job, w->what, m, e);
}

int wire_removed_pack(const struct msg *m, struct arena *a, void *body)
{
    Seqd__Removed *w = body;
    w->job = m->job;
    w->what = m->what;
    w->size = m->total;
    w->error = wire_error_pack(&m->err, a);
    return w->error ? 0 : -1;
}

int wire_removed_unpack(const void *body, struct arena *a, struct msg *m, struct err *e)
{
    const Seqd__Removed *w = body;
    m->total = w->size;
    if (range_check(w->size, 0, INT64_MAX, "size", e) < 0) return -1;
    if (wire_error_unpack(w->error, &m->err, e) < 0) return -1;
    return removal_unpack(w->job, w->what, m, e);
}
