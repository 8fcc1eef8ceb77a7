/* request_chat.c: reads the conversation of a request. The arguments of earlier calls, which the
 * API has as JSON text in a string, become the object that templates read. */
#include <stdio.h>
#include <stdlib.h>
#include "api/core/job.h"
#include "worker/infer/request_body.h"
#include "worker/infer/request_text.h"
#include "worker/text/buffer.h"

static bool is_empty(const struct request_part *p)
{
    struct jread j;
    jread_init(&j, p->json, (size_t)p->size);
    jread_next(&j);
    return jread_next(&j) == J_ARRAY_END;
}

/* The messages, and the copy of them in which arguments are objects. */
struct rewrite {
    struct request_body *b;
    struct jread j;
    const char *from; /* the first byte that is not copied */
    struct text out;
    int message, call;
};

static bool is_object(const char *text, size_t size)
{
    struct jread j;
    jread_init(&j, text, size);
    if (jread_next(&j) != J_OBJECT || jread_skip(&j)) return false;
    return jread_next(&j) == J_END;
}

/* Writes the arguments of a call, which are the last string. */
static int put_arguments(struct rewrite *w)
{
    const struct jread *j = &w->j;
    struct text *out = &w->out;
    char field[96];
    if (text_add(out, w->from, j->text - 1 - w->from) < 0 ||
        buffer_grow((void **)&out->data, &out->room, out->n, (int64_t)j->len + 1, 1) < 0)
        return buffer_full(w->b->e);
    const size_t n = jread_unescape(j, out->data + out->n);
    snprintf(field, sizeof field, "messages[%d].tool_calls[%d].function.arguments", w->message,
             w->call);
    if (!is_object(out->data + out->n, n))
        return err_field(w->b->e, ERR_INVALID, field, "%s must be the JSON text of an object",
                         field);
    out->n += (int64_t)n;
    w->from = j->text + j->len + 1;
    return 0;
}

/* Reads an object, and calls `take` for the value of its member `name`, whose first token is t. */
static int each_member(struct rewrite *w, enum jtok t, const char *name,
                       int (*take)(struct rewrite *, enum jtok))
{
    struct jread *j = &w->j;
    if (t != J_OBJECT) return jread_skip(j);
    while (jread_next(j) == J_KEY) {
        const bool is = jread_is(j, name);
        if (is ? take(w, jread_next(j)) : jread_skip(j)) return -1;
    }
    return 0;
}

static int take_arguments(struct rewrite *w, enum jtok t)
{
    return t == J_STRING ? put_arguments(w) : jread_skip(&w->j);
}

static int take_function(struct rewrite *w, enum jtok t)
{
    return each_member(w, t, "arguments", take_arguments);
}

static int take_calls(struct rewrite *w, enum jtok t)
{
    if (t != J_ARRAY) return jread_skip(&w->j);
    for (w->call = 0; (t = jread_next(&w->j)) != J_ARRAY_END && t != J_ERROR; w->call++)
        if (each_member(w, t, "function", take_function)) return -1;
    return 0;
}

static int rewrite(struct rewrite *w)
{
    const struct request_part *p = &w->b->messages;
    enum jtok t;
    jread_init(&w->j, p->json, (size_t)p->size);
    jread_next(&w->j);
    w->from = p->json;
    for (; (t = jread_next(&w->j)) != J_ARRAY_END && t != J_ERROR; w->message++)
        if (each_member(w, t, "tool_calls", take_calls)) return -1;
    if (text_add(&w->out, w->from, p->json + p->size - w->from) < 0) return buffer_full(w->b->e);
    return 0;
}

int request_take_conversation(struct request_body *b)
{
    struct rewrite w = {.b = b};
    /* An empty list is refused later, in the way of a missing list. */
    if (!b->messages.json || is_empty(&b->messages)) return 0;
    int rc = rewrite(&w);
    if (!rc) {
        const struct request_talk talk = {{w.out.data, w.out.n}, b->tools, b->kwargs};
        rc = request_text_of_messages(b->r, b->spec, &talk, b->e);
    }
    text_fini(&w.out);
    return rc;
}
