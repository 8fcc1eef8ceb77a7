#include "worker/data/jsonl_record.h"

#include <stdlib.h>
#include <string.h>
#include "api/core/jread.h"

/* ---- members --------------------------------------------------------------------------------- */

static int take_text(struct jread *j, char *line, const char *key, struct jsonl_member *t,
                     struct err *e)
{
    if (t->at) return err_set(e, ERR_INVALID, "the member \"%s\" occurs twice", key);
    enum jtok tok = jread_next(j);
    if (tok == J_ERROR) return -1;
    if (tok != J_STRING) return err_set(e, ERR_INVALID, "the member \"%s\" is not a string", key);
    t->at = line + (j->text - line);
    t->len = jread_unescape(j, t->at);
    return 0;
}

/* A list; anything else under that name is not a conversation. */
static int take_messages(struct jread *j, char *line, struct jsonl_member *m, struct err *e)
{
    const enum jtok tok = jread_next(j);
    const char *begin = j->p - 1;
    if (tok == J_ERROR || jread_skip(j) < 0) return -1;
    if (tok != J_ARRAY) return 0;
    if (m->at) return err_set(e, ERR_INVALID, "the member \"messages\" occurs twice");
    m->at = line + (begin - line);
    m->len = (size_t)(j->p - begin);
    return 0;
}

/* Without what it has beside its messages, the model would read another conversation. */
static const char *const beside_messages[] = {"tools",  "functions", "images", "image",
                                              "videos", "audios",    "audio",  NULL};

/* null and [] say that there is nothing. */
static int take_beside(struct jread *j, const char *name, const char **out)
{
    enum jtok tok = jread_next(j);
    if (tok == J_ERROR) return -1;
    struct jread in = *j;
    if (tok != J_NULL && !(tok == J_ARRAY && jread_next(&in) == J_ARRAY_END)) *out = name;
    return jread_skip(j);
}

static int push(struct jsonl_ids *a, int64_t v, struct err *e)
{
    if (a->n == a->room) {
        size_t room = a->room ? 2 * a->room : 1024;
        int64_t *more = realloc(a->at, room * sizeof *more);
        if (!more) return err_set(e, ERR_IO, "out of memory for %zu ids", room);
        a->at = more;
        a->room = room;
    }
    a->at[a->n++] = v;
    return 0;
}

static int take_ids(struct jread *j, const char *key, struct jsonl_ids *a, struct err *e)
{
    enum jtok t;
    if (a->given) return err_set(e, ERR_INVALID, "the member \"%s\" occurs twice", key);
    a->given = true;
    if ((t = jread_next(j)) == J_ERROR) return -1;
    if (t != J_ARRAY) return err_set(e, ERR_INVALID, "the member \"%s\" is not an array", key);
    while ((t = jread_next(j)) == J_NUMBER || t == J_TRUE || t == J_FALSE) {
        int64_t v = t == J_TRUE;
        if (t == J_NUMBER && jread_int(j, &v) < 0)
            return err_set(e, ERR_INVALID, "\"%s\" %zu is not a whole number", key, a->n);
        if (push(a, v, e) < 0) return -1;
    }
    if (t == J_ERROR) return -1;
    return t == J_ARRAY_END ? 0 : err_set(e, ERR_INVALID, "\"%s\" %zu is not a number", key, a->n);
}

static int take_member(struct jsonl_record *r, const char *key, struct jread *j, char *line,
                       struct err *e)
{
    struct jread next = *j;
    if (jread_is(j, "messages") && (strcmp(key, "messages") || jread_next(&next) != J_STRING))
        return take_messages(j, line, &r->messages, e);
    if (jread_is(j, key)) return take_text(j, line, key, &r->text, e);
    if (jread_is(j, "prompt")) return take_text(j, line, "prompt", &r->prompt, e);
    if (jread_is(j, "completion")) return take_text(j, line, "completion", &r->completion, e);
    if (jread_is(j, "input_ids")) return take_ids(j, "input_ids", &r->input_ids, e);
    if (jread_is(j, "labels")) return take_ids(j, "labels", &r->labels, e);
    if (jread_is(j, "loss_mask")) return take_ids(j, "loss_mask", &r->loss_mask, e);
    for (const char *const *name = beside_messages; *name; name++)
        if (jread_is(j, *name)) return take_beside(j, *name, &r->beside);
    return jread_skip(j);
}

/* A prompt or labels alone may be there for another purpose (a text beside its prompt): only what
 * makes a whole record counts. */
static int check_record(const struct jsonl_record *r, const char *key, struct err *e)
{
    const char *kind[4];
    int n = 0;
    if (r->text.at) kind[n++] = key;
    if (r->prompt.at && r->completion.at) kind[n++] = "completion";
    if (r->input_ids.given) kind[n++] = "input_ids";
    if (r->messages.at) kind[n++] = "messages";
    if (n > 1)
        return err_set(e, ERR_INVALID, "both \"%s\" and \"%s\": which is to be learnt?%s", kind[0],
                       kind[1],
                       r->text.at ? " Set text_key to another name to leave the text out" : "");
    if (r->messages.at && r->beside)
        return err_set(e, ERR_UNSUPPORTED,
                       "%s: a conversation is read with its messages alone: take the record out, "
                       "or write what the model is to read as \"%s\"",
                       r->beside, key);
    if (n) return 0;
    if (r->prompt.at || r->completion.at)
        return err_set(e, ERR_INVALID, "\"%s\" without \"%s\"",
                       r->prompt.at ? "prompt" : "completion",
                       r->prompt.at ? "completion" : "prompt");
    return err_set(e, ERR_INVALID,
                   "no member \"%s\"; set text_key (or give \"prompt\" and \"completion\", "
                   "\"messages\", or \"input_ids\")",
                   key);
}

int jsonl_record_parse(struct jsonl_record *r, const char *key, char *line, size_t n, struct err *e)
{
    struct jread j;
    enum jtok t;
    r->text = r->prompt = r->completion = r->messages = (struct jsonl_member){0};
    r->beside = NULL;
    r->input_ids.n = r->labels.n = r->loss_mask.n = 0;
    r->input_ids.given = r->labels.given = r->loss_mask.given = false;
    jread_init(&j, line, n);
    if ((t = jread_next(&j)) != J_OBJECT && t != J_ERROR)
        return err_set(e, ERR_INVALID, "want an object on every line");
    struct err inner = {0};
    while (t != J_ERROR && (t = jread_next(&j)) == J_KEY)
        if (take_member(r, key, &j, line, &inner) < 0) break;
    if (inner.code) return err_set(e, inner.code, "%s", inner.text);
    while (j.err.code == ERR_NONE && t > J_END) t = jread_next(&j);
    if (j.err.code != ERR_NONE) return err_set(e, ERR_INVALID, "%s", j.err.text);
    return check_record(r, key, e);
}

void jsonl_record_fini(struct jsonl_record *r)
{
    free(r->input_ids.at);
    free(r->labels.at);
    free(r->loss_mask.at);
}
