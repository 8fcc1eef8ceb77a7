/* Renders a conversation. It checks and adapts the messages as transformers does, sets the
 * variables, and finds the assistant's turns in the output. */
#include "worker/text/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/jinja/run.h"

struct chat { /* one rendering of a conversation */
    const struct chat_tokens *tokens;
    bool prompt;
    int64_t most;           /* largest number of messages that are passed to the template; if it is
                             * negative, all messages are passed */
    int64_t *n;             /* result: number of all messages; n may be NULL */
    uint8_t **answer;       /* *answer becomes an array [*n] that the caller owns; it has a 1
                             * for each message with the role assistant, and 0 for all other
                             * messages. `answer` may be NULL */
    int64_t first;          /* with `answer`: messages before this one are not learnt */
    int64_t longer;         /* the number of messages at whose end the last one's content has one
                             * more letter; 0 if no content has */
    bool join;              /* whether to join the text parts of a content */
    struct chat_seen *seen; /* result; may be NULL */
};

/* Facts about a rendering: how the template used the messages and their lists of parts, and
 * whether the template failed. */
struct chat_seen {
    struct pylist *messages;
    int64_t parts;      /* index of the first message with a list of parts; -1 if there is no such
                         * message */
    bool unread;        /* set if there is a list of parts that the template did not read */
    int64_t lost;       /* index of the first message whose parts the template did not read; -1 if
                         * there is no such message */
    int printed;        /* value of the member `printed` of struct heap */
    int64_t odd;        /* index of the first message whose content is not a string even after its
                         * parts were joined; -1 if there is no such message */
    const char *odd_is; /* text that describes that content in error messages */
    bool failed;        /* set if the template has failed for a reason other than
                         * raise_exception */
};

/* ---- the conversation ----------------------------------------------------------------------- */

static _Noreturn void refuse(struct template_run *r, const char *field, const char *why)
{
    err_field(r->h.e, ERR_INVALID, field, "%s: %s", field, why);
    longjmp(r->h.fail, 1);
}

static void check_part(struct template_run *r, int64_t i, int64_t k, struct pyvalue part)
{
    char field[96];
    const struct pyvalue *type = part.type == V_DICT ? jinja_dict_get_text(&r->h, part.dict, "type")
                                                     : NULL;
    snprintf(field, sizeof field, "messages[%lld].content[%lld].type", (long long)i, (long long)k);
    if (!type || !jinja_value_is_text(*type, "text"))
        refuse(r, field, "only parts of the type \"text\" are read, no images, audio or files");
}

static void check_message(struct template_run *r, int64_t i, struct pyvalue m)
{
    static const char *const media[] = {"images", "image", "audio", "videos", "video"};
    char field[64];
    snprintf(field, sizeof field, "messages[%lld]", (long long)i);
    if (m.type != V_DICT) refuse(r, field, "a message is an object with a role and a content");
    for (size_t k = 0; k < sizeof media / sizeof *media; k++) {
        const struct pyvalue *v = jinja_dict_get_text(&r->h, m.dict, media[k]);
        if (!v || v->type == V_NONE) continue;
        snprintf(field, sizeof field, "messages[%lld].%s", (long long)i, media[k]);
        refuse(r, field, "only text is read");
    }
    const struct pyvalue *calls = jinja_dict_get_text(&r->h, m.dict, "tool_calls");
    if (calls && jinja_value_truth(&r->h, *calls) && !jinja_mentions(r->t, "tool_calls")) {
        snprintf(field, sizeof field, "messages[%lld].tool_calls", (long long)i);
        refuse(r, field, "the model's chat template does not take calls of tools");
    }
    const struct pyvalue *content = jinja_dict_get_text(&r->h, m.dict, "content");
    for (int64_t k = 0; content && content->type == V_LIST && k < content->list->n; k++)
        check_part(r, i, k, content->list->v[k]);
}

/* Refuses a turn of the assistant that says that it is not to be learnt. Such a turn is learnt,
 * also if the template reads these members. */
static void check_learnt(struct template_run *r, int64_t i, struct pyvalue m)
{
    static const char *const says[] = {"train", "weight", "loss"};
    const struct pyvalue *role = jinja_dict_get_text(&r->h, m.dict, "role");
    char field[64];
    if (!role || !jinja_value_is_text(*role, "assistant")) return;
    for (size_t k = 0; k < sizeof says / sizeof *says; k++) {
        const struct pyvalue *v = jinja_dict_get_text(&r->h, m.dict, says[k]);
        if (!v || jinja_value_truth(&r->h, *v)) continue;
        snprintf(field, sizeof field, "messages[%lld].%s", (long long)i, says[k]);
        refuse(
            r, field,
            "each turn of the assistant is learnt, and this member is not read: write the turns "
            "to learn as a list \"completion\" beside a list \"prompt\" of those before them, or "
            "take the member out");
    }
}

/* Leaves out members that are null, as transformers does. */
static struct pyvalue without_null(struct template_run *r, struct pyvalue m)
{
    struct heap *h = &r->h;
    int64_t n = 0;
    for (int64_t i = 0; m.type == V_DICT && i < m.dict->n; i++)
        n += m.dict->e[i].value.type == V_NONE;
    if (!n) return m;
    struct dict *d = jinja_dict_new(h);
    for (int64_t i = 0; i < m.dict->n; i++)
        if (m.dict->e[i].value.type != V_NONE)
            jinja_dict_set(h, d, m.dict->e[i].key, m.dict->e[i].value);
    m.dict = d;
    return m;
}

static const struct pyvalue *parts_of(struct template_run *r, struct pyvalue m)
{
    const struct pyvalue *v = jinja_dict_get_text(&r->h, m.dict, "content");
    return v && v->type == V_LIST ? v : NULL;
}

/* Returns the message with another content. */
static struct pyvalue with_content(struct template_run *r, struct pyvalue m, struct pyvalue content)
{
    struct dict *d = jinja_dict_new(&r->h);
    for (int64_t k = 0; k < m.dict->n; k++)
        jinja_dict_set(&r->h, d, m.dict->e[k].key, m.dict->e[k].value);
    jinja_dict_set(&r->h, d, jinja_value_text(&r->h, "content"), content);
    m.dict = d;
    return m;
}

/* Joins the parts of a content with line feeds. Servers also join parts in this way if a
 * template does not read parts. */
static struct pyvalue joined(struct template_run *r, int64_t i, struct pyvalue m)
{
    const struct pyvalue *parts = parts_of(r, m);
    struct text_sink text = {0};
    char field[96];
    if (!parts) return m;
    for (int64_t k = 0; k < parts->list->n; k++) {
        const struct pyvalue *v = jinja_dict_get_text(&r->h, parts->list->v[k].dict, "text");
        snprintf(field, sizeof field, "messages[%lld].content[%lld].text", (long long)i,
                 (long long)k);
        if (!v || v->type != V_STR) refuse(r, field, "a part of the type \"text\" has a text");
        if (k) jinja_sink_text(&r->h, &text, "\n");
        jinja_sink_str(&r->h, &text, *v);
    }
    return with_content(r, m, jinja_sink_value(&r->h, &text));
}

/* Adds a letter to the end of a content, or a part of one letter to a list of parts. */
static struct pyvalue lengthened(struct template_run *r, struct pyvalue m)
{
    static const char letter[] = "x";
    const struct pyvalue *v = jinja_dict_get_text(&r->h, m.dict, "content");
    const struct pyvalue one = jinja_value_text(&r->h, letter);
    struct text_sink text = {0};
    if (!v || v->type != V_LIST) {
        if (v && v->type == V_STR) jinja_sink_str(&r->h, &text, *v);
        jinja_sink_text(&r->h, &text, letter);
        return with_content(r, m, jinja_sink_value(&r->h, &text));
    }
    struct dict *part = jinja_dict_new(&r->h);
    struct pylist *parts = jinja_list_new(&r->h, v->list->n + 1);
    jinja_dict_set(&r->h, part, jinja_value_text(&r->h, "type"), jinja_value_text(&r->h, "text"));
    jinja_dict_set(&r->h, part, jinja_value_text(&r->h, "text"), one);
    for (int64_t k = 0; k < v->list->n; k++) jinja_list_add(&r->h, parts, v->list->v[k]);
    jinja_list_add(&r->h, parts, (struct pyvalue){.type = V_DICT, .dict = part});
    return with_content(r, m, jinja_value_of_list(parts));
}

/* Adds the reasoning as transformers does: {"thinking": reasoning, **message, "reasoning_content":
 * reasoning}. */
static struct pyvalue with_reasoning(struct template_run *r, struct pyvalue m)
{
    static const char *const name[] = {"reasoning_content", "thinking", "reasoning"};
    struct heap *h = &r->h;
    const struct pyvalue *v = NULL;
    for (int i = 0; i < 3 && (!v || v->type == V_NONE); i++)
        v = jinja_dict_get_text(h, m.dict, name[i]);
    if (!v || v->type == V_NONE) return m;
    struct dict *d = jinja_dict_new(h);
    const struct pyvalue reasoning = *v;
    jinja_dict_set(h, d, jinja_value_text(h, "thinking"), reasoning);
    for (int64_t i = 0; i < m.dict->n; i++)
        jinja_dict_set(h, d, m.dict->e[i].key, m.dict->e[i].value);
    jinja_dict_set(h, d, jinja_value_text(h, "reasoning_content"), reasoning);
    m.dict = d;
    return m;
}

static void note_answers(struct template_run *r, const struct chat *c,
                         const struct pylist *messages)
{
    uint8_t *answer = calloc((size_t)messages->n + 1, 1);
    if (!answer)
        jinja_heap_fail(&r->h, ERR_TOO_LARGE, "no memory for %lld messages",
                        (long long)messages->n);
    for (int64_t i = 0; i < messages->n; i++) {
        const struct pyvalue *role = jinja_dict_get_text(&r->h, messages->v[i].dict, "role");
        answer[i] = role && jinja_value_is_text(*role, "assistant");
    }
    free(*c->answer);
    *c->answer = answer;
    *c->n = messages->n;
}

/* Describes a content that is not a string. Returns NULL if the content is a string. The
 * parameter `null` is true if the content was null and was removed from the message. */
static const char *odd_content(struct template_run *r, struct pyvalue m, bool null)
{
    const struct pyvalue *v = jinja_dict_get_text(&r->h, m.dict, "content");
    if (!v) return null ? "null" : "missing";
    switch (v->type) {
    case V_STR: return NULL;
    case V_LIST: return "a list of parts";
    case V_DICT: return "an object";
    case V_BOOL: return "true or false";
    default: return "a number";
    }
}

/* Records the first message whose content is not a string. The parameter `given` is the
 * message as it is in the input. */
static void note_odd(struct template_run *r, struct chat_seen *seen, int64_t i,
                     struct pyvalue given, struct pyvalue m)
{
    if (!seen || seen->odd >= 0) return;
    const char *is = odd_content(r, m, jinja_dict_get_text(&r->h, given.dict, "content") != NULL);
    if (!is) return;
    seen->odd = i;
    seen->odd_is = is;
}

static const struct chat_seen none_seen = {.parts = -1, .lost = -1, .odd = -1};

static void set_messages(struct template_run *r, struct dict *vars, const struct chat *c)
{
    struct heap *h = &r->h;
    struct pyvalue *v = jinja_dict_get_text(h, vars, "messages");
    if (!v || v->type != V_LIST) refuse(r, "messages", "must be a list of messages");
    const int64_t n = c->most >= 0 && c->most < v->list->n ? c->most : v->list->n;
    struct pylist *all = jinja_list_new(h, v->list->n), *l = jinja_list_new(h, n);
    if (c->seen) {
        *c->seen = none_seen;
        c->seen->messages = l;
    }
    for (int64_t i = 0; i < v->list->n; i++) {
        jinja_list_add(h, all, without_null(r, v->list->v[i]));
        check_message(r, i, all->v[i]);
        if (c->answer && i >= c->first) check_learnt(r, i, all->v[i]);
        if (c->seen && c->seen->parts < 0 && parts_of(r, all->v[i])) c->seen->parts = i;
        if (c->join) all->v[i] = joined(r, i, all->v[i]);
        if (c->longer == i + 1) all->v[i] = lengthened(r, all->v[i]);
        note_odd(r, c->seen, i, v->list->v[i], all->v[i]);
    }
    if (c->answer) note_answers(r, c, all);
    for (int64_t i = 0; i < n; i++) jinja_list_add(h, l, with_reasoning(r, all->v[i]));
    v->list = l;
}

static void see(struct template_run *r, const void *context)
{
    const struct chat *c = context;
    const struct pylist *l = c->seen->messages;
    c->seen->printed = r->h.printed;
    for (int64_t i = 0; i < l->n; i++) {
        const struct pyvalue *parts = parts_of(r, l->v[i]);
        const bool unread = parts && !parts->list->read;
        c->seen->unread = c->seen->unread || unread;
        if (c->seen->lost < 0 && unread && parts->list->n) c->seen->lost = i;
    }
}

static void see_failure(const struct template_run *r, const void *context)
{
    const struct chat *c = context;
    c->seen->failed = !r->h.raised;
}

/* If a template has failed, adds to the error the name of the content that may be the cause,
 * which is a content that is not a string. Templates expect that contents are strings. */
static void name_content(const struct chat_seen *seen, struct err *e)
{
    char old[sizeof e->text], field[64];
    if (!e || e->code != ERR_INVALID || *e->field || !seen->failed || seen->odd < 0) return;
    memcpy(old, e->text, sizeof old);
    snprintf(field, sizeof field, "messages[%lld].content", (long long)seen->odd);
    err_field(
        e, ERR_INVALID, field,
        "%s is %s, and the model's chat template fails: give the content as a string (%.300s)",
        field, seen->odd_is, old);
}

/* Refuses output in which the template has printed a list or a mapping as Python does, because
 * this is not the text of a conversation. */
static int check_printed(const struct chat_seen *seen, struct err *e)
{
    char field[64] = "messages";
    if (!seen->printed) return 0;
    if (seen->parts >= 0)
        snprintf(field, sizeof field, "messages[%lld].content", (long long)seen->parts);
    return err_field(e, ERR_INVALID, field,
                     "%s: line %d of the chat template prints a list or a mapping as Python writes "
                     "it: give %s",
                     field, seen->printed,
                     seen->parts >= 0 ? "the content as a string"
                                      : "its members as strings (\"arguments\" of a call as the "
                                        "JSON text)");
}

/* Refuses parts that the template did not read, because a training would then use a turn without
 * its text. */
static int check_read(const struct chat_seen *seen, struct err *e)
{
    char field[64];
    if (seen->lost < 0) return 0;
    snprintf(field, sizeof field, "messages[%lld].content", (long long)seen->lost);
    return err_field(e, ERR_INVALID, field,
                     "%s: the chat template does not read a list of parts: give the content as a "
                     "string",
                     field);
}

static void set_missing(struct template_run *r, struct dict *vars, const char *name,
                        struct pyvalue v)
{
    if (!jinja_dict_get_text(&r->h, vars, name))
        jinja_dict_set(&r->h, vars, jinja_value_text(&r->h, name), v);
}

/* Makes the members of chat_template_kwargs variables, as apply_chat_template does. */
static void set_kwargs(struct template_run *r, struct dict *vars)
{
    static const char *const own[] = {"messages", "tools", "documents", "add_generation_prompt"};
    struct heap *h = &r->h;
    const struct pyvalue *v = jinja_dict_get_text(h, vars, "chat_template_kwargs");
    if (!v || v->type == V_NONE) return;
    if (v->type != V_DICT) refuse(r, "chat_template_kwargs", "must be an object");
    const struct dict *d = v->dict;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (jinja_dict_get_text(h, d, own[i]))
            refuse(r, "chat_template_kwargs",
                   "messages, tools, documents and add_generation_prompt are no members of it");
    for (int64_t i = 0; i < d->n; i++) jinja_dict_set(h, vars, d->e[i].key, d->e[i].value);
    jinja_dict_set(h, vars, jinja_value_text(h, "chat_template_kwargs"), jinja_value_none());
}

static void prepare(struct template_run *r, struct dict *vars, const void *context)
{
    const struct chat *c = context;
    struct heap *h = &r->h;
    set_kwargs(r, vars);
    const struct pyvalue *tools = jinja_dict_get_text(h, vars, "tools");
    if (tools && jinja_value_truth(h, *tools) && !jinja_names(r->t, "tools"))
        refuse(r, "tools", "the model's chat template does not take tools");
    set_messages(r, vars, c);
    set_missing(r, vars, "tools", jinja_value_none());
    set_missing(r, vars, "documents", jinja_value_none());
    for (int i = 0; c->tokens && i < c->tokens->n; i++)
        set_missing(r, vars, c->tokens->name[i], jinja_value_text(h, c->tokens->value[i]));
    jinja_dict_set(h, vars, jinja_value_text(h, "add_generation_prompt"),
                   jinja_value_bool(c->prompt));
}

int chat_render(const struct template *t, const char *json, int64_t size,
                const struct chat_tokens *tokens, bool prompt, int64_t now_s,
                struct template_output *o, struct err *e)
{
    struct chat_seen seen = none_seen;
    struct chat c = {.tokens = tokens, .prompt = prompt, .most = -1, .seen = &seen};
    const struct run_prepare p = {prepare, &c, see, see_failure};
    int rc = jinja_run_template(t, json, size, now_s, &p, o, e);
    if (seen.parts >= 0 && (rc || seen.unread || seen.printed)) {
        c.join = true;
        rc = jinja_run_template(t, json, size, now_s, &p, o, e);
    }
    if (rc) name_content(&seen, e);
    if (!rc) rc = check_printed(&seen, e);
    if (rc) o->size = o->n_spans = 0;
    return rc;
}

/* ---- turns of the assistant ----------------------------------------------------------------- */

struct turns {
    const struct template *t;
    const char *json;
    int64_t size, now_s;
    struct chat chat;
    const struct template_output *whole; /* all messages */
    struct template_output part;         /* owned: the first messages */
    struct template_output longer[2];    /* owned: both, with a longer content */
    struct template_span *span;          /* owned */
    int64_t n_spans;
    int64_t from;    /* the place in the output of all messages that was found last */
    bool by_content; /* whether find_after_content has found a place of the turn */
};

/* Renders the first `most` messages, or all of them if it is negative. */
static int render_part(struct turns *u, int64_t most, bool prompt, int64_t longer,
                       struct template_output *to, struct err *e)
{
    struct chat c = {.tokens = u->chat.tokens, .prompt = prompt, .most = most, .longer = longer};
    const struct run_prepare p = {.fn = prepare, .context = &c};
    return jinja_run_template(u->t, u->json, u->size, u->now_s, &p, to, e);
}

static bool has_at(const struct template_output *o, int64_t at, const char *text, int64_t size)
{
    return at + size <= o->size && (!size || !memcmp(o->text + at, text, (size_t)size));
}

/* A text that is in one output, and not in another. */
struct insertion {
    int64_t at, size;
};

/* Finds the text that `longer` has more than o, which must be the only difference. If the text may
 * be at several places, as one more "x" in "xxx", *a becomes the first of them. Returns false if
 * there is no such text. */
static bool find_added(const struct template_output *o, const struct template_output *longer,
                       struct insertion *a)
{
    const int64_t size = longer->size - o->size;
    int64_t i = 0;
    if (size <= 0) return false;
    while (i < o->size && o->text[i] == longer->text[i]) i++;
    if (i < o->size && !has_at(longer, i + size, o->text + i, o->size - i)) return false;
    while (i > 0 && longer->text[i - 1] == longer->text[i - 1 + size]) i--;
    *a = (struct insertion){i, size};
    return true;
}

/* Finds the end of u->part, the first n messages, in the output of all messages, which writes some
 * of them otherwise. Both outputs must have the same text after the content of message n - 1. A
 * letter more in this content tells where it ends in each output. Returns 1 if the place is found,
 * 0 if it cannot be told, and -1 on failure. */
static int find_after_content(struct turns *u, int64_t n, bool prompt, int64_t *size, struct err *e)
{
    struct template_output *part = &u->longer[0], *whole = &u->longer[1];
    struct insertion one, all;
    struct err failed = {0};
    if (!n) return 0;
    if (render_part(u, n, prompt, n, part, &failed) ||
        render_part(u, -1, false, n, whole, &failed)) {
        if (failed.code == ERR_INVALID) return 0;
        if (e) *e = failed;
        return -1;
    }
    if (!find_added(&u->part, part, &one) || !find_added(u->whole, whole, &all)) return 0;
    /* Both outputs must write this content in the same way. */
    if (one.size != all.size || !has_at(whole, all.at, part->text + one.at, one.size)) return 0;
    const int64_t tail = u->part.size - one.at;
    if (all.at + tail < u->from || !has_at(u->whole, all.at, u->part.text + one.at, tail)) return 0;
    *size = all.at + tail;
    u->by_content = true;
    return 1;
}

/* Fails because the place of a message's turn cannot be told. */
static int refuse_place(int64_t message, struct err *e)
{
    char field[64];
    snprintf(field, sizeof field, "messages[%lld]", (long long)message);
    return err_field(e, ERR_INVALID, field,
                     "%s: the chat template writes what is before the end of this turn otherwise "
                     "when more follows, so the turn's place cannot be told: use a template with "
                     "{%% generation %%}, or a conversation that ends there",
                     field);
}

/* Renders the first n messages, and sets *size to the place in the output of all messages at which
 * this output ends. */
static int find_place(struct turns *u, int64_t n, bool prompt, int64_t *size, struct err *e)
{
    if (render_part(u, n, prompt, 0, &u->part, e)) return -1;
    *size = u->part.size;
    if (!has_at(u->whole, 0, u->part.text, *size)) {
        const int found = find_after_content(u, n, prompt, size, e);
        if (found <= 0) return found ? -1 : refuse_place(prompt ? n : n - 1, e);
    }
    u->from = *size;
    return 0;
}

/* Finds the turns of the messages [first, n). */
static int find_turns(struct turns *u, int64_t first, int64_t n, const uint8_t *answer,
                      struct err *e)
{
    u->span = calloc((size_t)n + 1, sizeof *u->span);
    if (!u->span) return err_set(e, ERR_TOO_LARGE, "no memory for %lld turns", (long long)n);
    for (int64_t i = first; i < n; i++) {
        struct template_span s;
        if (!answer[i]) continue;
        u->by_content = false;
        if (find_place(u, i, true, &s.begin, e) || find_place(u, i + 1, false, &s.end, e))
            return -1;
        if (s.begin > s.end && u->by_content) return refuse_place(i, e);
        if (s.begin > s.end) s.begin = s.end; /* the template writes no text for the message */
        u->span[u->n_spans++] = s;
    }
    return 0;
}

static int check_marked(const struct template_output *o, struct err *e)
{
    for (int64_t i = 0; i < o->n_spans; i++)
        if (o->span[i].end < 0)
            return err_set(
                e, ERR_UNSUPPORTED,
                "chat template: {%% generation %%} inside a macro, a filter or a set: the "
                "place of its text cannot be told");
    return 0;
}

int chat_render_spans(const struct template *t, const char *json, int64_t size,
                      const struct chat_tokens *tokens, int64_t first, int64_t now_s,
                      struct template_output *o, struct err *e)
{
    uint8_t *answer = NULL;
    int64_t n = 0;
    struct turns u = {.t = t, .json = json, .size = size, .now_s = now_s, .whole = o};
    struct chat_seen seen = none_seen;
    u.chat = (struct chat){
        .tokens = tokens, .most = -1, .n = &n, .first = first, .answer = &answer, .seen = &seen};
    const struct run_prepare p = {prepare, &u.chat, see, see_failure};
    int rc = jinja_run_template(t, json, size, now_s, &p, o, e);
    if (rc) name_content(&seen, e);
    if (!rc) rc = check_printed(&seen, e);
    if (!rc) rc = check_read(&seen, e);
    if (!rc && jinja_has_generation(t)) {
        rc = check_marked(o, e);
    } else if (!rc && !(rc = find_turns(&u, first, n, answer, e))) {
        free(o->span);
        o->span = u.span;
        o->n_spans = o->span_room = u.n_spans;
        u.span = NULL;
    }
    if (rc) o->size = o->n_spans = 0;
    jinja_output_fini(&u.part);
    for (int i = 0; i < 2; i++) jinja_output_fini(&u.longer[i]);
    free(u.span);
    free(answer);
    return rc;
}
