/* value_json.h: reads JSON into values, and writes values as JSON, as Python's json module
 * does. */
#ifndef SEQD_JINJA_VALUE_JSON_H
#define SEQD_JINJA_VALUE_JSON_H

#include "worker/jinja/sink.h"

/* Returns the value of a whole document. The document has at most JREAD_DEPTH levels. If an
 * object has a key several times, the last value of the key is used. Fails with ERR_INVALID if
 * the text is not one JSON value, if an integer does not fit 64 bits, or if a number with a
 * point or an exponent is beyond the range of double. */
struct pyvalue jinja_json_read(struct heap *h, const char *text, int64_t size);

struct json_style {
    bool ascii, sort;          /* ensure_ascii, sort_keys */
    struct pyvalue indent;     /* the string by which each level is indented; if it is V_NONE,
                                * the whole text is on one line */
    const char *comma, *colon; /* the separators */
    int64_t n_comma, n_colon;
};
/* Writes json.dumps(v). Fails with ERR_INVALID if JSON cannot represent a value; the error
 * names the type of the value. */
void jinja_json_write(struct heap *h, struct text_sink *s, struct pyvalue v,
                      const struct json_style *style);

#endif
