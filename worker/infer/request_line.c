/* request_line.c: reads the line of a batch: its custom_id, method and url, and then its body. */
#include <string.h>
#include "api/core/assert.h"
#include "api/core/job.h"
#include "worker/infer/request_body.h"

static int take_method(struct request_body *b)
{
    if (jread_next(&b->j) == J_STRING && jread_is(&b->j, "POST")) return 0;
    return err_field(b->e, ERR_UNSUPPORTED, "method", "method must be \"POST\"");
}

static int take_url(struct request_body *b)
{
    const bool text = jread_next(&b->j) == J_STRING;
    b->r->is_chat = text && jread_is(&b->j, "/v1/chat/completions");
    if (b->r->is_chat || (text && jread_is(&b->j, "/v1/completions"))) return 0;
    return err_field(b->e, ERR_UNSUPPORTED, "url",
                     "url must be \"/v1/completions\" or \"/v1/chat/completions\"");
}

/* Skips the body, and sets a reader to its beginning. The body is read after the rest of the line,
 * because its allowed members depend on the url. */
static int skip_body(struct request_body *b, struct jread *at)
{
    *at = b->j;
    return jread_skip(&b->j);
}

static int take_line(struct request_body *b)
{
    static const char *const known[] = {"custom_id", "method", "url", "body"};
    struct jread body = b->j;
    int seen = 0, i;
    if (jread_next(&b->j) != J_OBJECT)
        return err_set(b->e, ERR_INVALID, "the line must be a JSON object");
    for (enum jtok t = jread_next(&b->j); t == J_KEY; t = jread_next(&b->j)) {
        for (i = 0; i < 4 && !jread_is(&b->j, known[i]);) i++;
        if (i == 4)
            return err_set(b->e, ERR_INVALID,
                           "unknown member beside custom_id, method, url and body: leave it out");
        if (seen >> i & 1) return err_set(b->e, ERR_INVALID, "%s occurs twice", known[i]);
        seen |= 1 << i;
        if (i == 0 && jread_next(&b->j) != J_STRING)
            return err_set(b->e, ERR_INVALID, "custom_id must be a string");
        if ((i == 1 && take_method(b)) || (i == 2 && take_url(b)) ||
            (i == 3 && skip_body(b, &body)))
            return -1;
    }
    if (b->j.err.code == ERR_NONE) jread_next(&b->j);
    if (b->j.err.code != ERR_NONE) return -1;
    for (i = 1; i < 4; i++)
        if (!(seen >> i & 1))
            return err_field(b->e, ERR_INVALID, known[i], "%s is missing", known[i]);
    b->j = body;
    return request_body_take(b);
}

static int read_line(struct request_body *b)
{
    if (take_line(b)) {
        /* If the JSON is invalid, report this error, because it can make members look wrong. */
        if (b->j.err.code != ERR_NONE) *b->e = b->j.err;
        return -1;
    }
    if (b->j.err.code != ERR_NONE) return err_set(b->e, ERR_INVALID, "%s", b->j.err.text);
    return request_body_check(b);
}

void request_of_line(struct request *r, const struct job_spec *spec, const char *line, int64_t size)
{
    struct request_body b = request_body_begin(r, spec);
    struct err none = {0};
    assert(size <= r->room);
    request_defaults(r, spec);
    if (request_id(line, size, r->id, &none)) r->id[0] = 0;
    r->key.seed = -1;
    jread_init(&b.j, line, (size_t)size);
    if (!read_line(&b)) r->refused = none; /* clears errors that a valid line has left */
    request_body_end(&b);
}

int request_id(const char *line, int64_t size, char out[REQUEST_ID_SIZE], struct err *e)
{
    struct jread j;
    enum jtok t;
    bool found = false;
    jread_init(&j, line, (size_t)size);
    if (jread_next(&j) != J_OBJECT) return err_set(e, ERR_INVALID, "want a JSON object");
    while ((t = jread_next(&j)) == J_KEY) {
        if (!jread_is(&j, "custom_id")) {
            if (jread_skip(&j)) break;
            continue;
        }
        if (found || jread_next(&j) != J_STRING || jread_copy(&j, out, REQUEST_ID_SIZE) || !*out)
            return err_set(e, ERR_INVALID, "want one custom_id, a string of 1 to %d bytes",
                           REQUEST_ID_SIZE - 1);
        found = true;
    }
    if (j.err.code == ERR_NONE) jread_next(&j);
    if (j.err.code != ERR_NONE) return err_set(e, ERR_INVALID, "%s", j.err.text);
    return found ? 0 : err_set(e, ERR_INVALID, "there is no custom_id");
}
