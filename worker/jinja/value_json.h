/* value_json.h: reads JSON into values and writes it, as Python's json module does. */
#ifndef SEQD_JINJA_VALUE_JSON_H
#define SEQD_JINJA_VALUE_JSON_H

#include "worker/jinja/sink.h"

/* Returns the value of a whole document, at most JREAD_DEPTH levels deep. If keys are equal, the
 * last one counts. Fails with ERR_INVALID for anything but one JSON value, for an integer past 64
 * bits, and for a number with a point or exponent past the range of double. */
struct pyvalue jinja_json_read(struct heap *h, const char *text, int64_t size);

struct json_style {
    bool ascii, sort;          /* ensure_ascii, sort_keys */
    struct pyvalue indent;     /* the string that indents one level; V_NONE writes everything on
                                * one line */
    const char *comma, *colon; /* the separators */
    int64_t n_comma, n_colon;
};
/* Writes json.dumps(v). Fails with ERR_INVALID, which names the type of a value that JSON cannot
 * represent. */
void jinja_json_write(struct heap *h, struct text_sink *s, struct pyvalue v,
                      const struct json_style *style);

#endif
