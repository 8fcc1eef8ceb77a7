/* preference.c: reads the members of a line in their order, checks that they have one form, and
 * divides two lists without a prompt. Then makes two documents of them. */
#include "worker/data/preference.h"

#include <string.h>
#include "api/core/jread.h"
#include "worker/data/jsonl_record.h"

const char *const preference_words[ANSWER_N] = {"chosen", "rejected"};

/* Members that are a part of the model's input. A record in which one of them has a value
 * is refused, because the model would read something else than the record says. */
static const char *const beside[] = {"system",    "history", "tools",  "functions",
                                     "documents", "images",  "image",  "videos",
                                     "audios",    "audio",   "suffix", "chat_template_kwargs",
                                     NULL};

static bool blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* ---- members --------------------------------------------------------------------------------- */

static int take_part(struct jread *j, char *line, const char *key, struct preference_part *out,
                     struct err *e)
{
    if (out->at) return err_set(e, ERR_INVALID, "the member \"%s\" occurs twice", key);
    const enum jtok t = jread_next(j);
    if (t == J_ERROR) return -1;
    if (t == J_STRING) {
        out->at = line + (j->text - line);
        out->len = jread_unescape(j, out->at);
        return 0;
    }
    if (t != J_ARRAY)
        return err_set(e, ERR_INVALID,
                       "the member \"%s\" is neither a string nor a list of messages", key);
    const char *begin = j->p;
    if (jsonl_record_turns(j, key, e)) return -1;
    out->at = line + (begin - line);
    out->len = (size_t)(j->p - 1 - begin);
    out->list = true;
    while (out->len && blank(*out->at)) out->at++, out->len--;
    while (out->len && blank(out->at[out->len - 1])) out->len--;
    return 0;
}

/* Refuses the member unless its value is null, "", [] or {}. */
static int check_beside(struct jread *j, const char *name, struct err *e)
{
    const enum jtok t = jread_next(j);
    struct jread in = *j;
    const bool none = t == J_NULL || (t == J_STRING && !j->len) ||
                      (t == J_ARRAY && jread_next(&in) == J_ARRAY_END) ||
                      (t == J_OBJECT && jread_next(&in) == J_OBJECT_END);
    if (t == J_ERROR || jread_skip(j) < 0) return -1;
    if (none) return 0;
    return err_set(e, ERR_UNSUPPORTED,
                   "\"%s\" is not read: take the record out, or write its text into \"prompt\"",
                   name);
}

static int take_member(struct preference *p, struct jread *j, char *line, struct err *e)
{
    if (jread_is(j, "prompt")) return take_part(j, line, "prompt", &p->prompt, e);
    for (int i = 0; i < ANSWER_N; i++)
        if (jread_is(j, preference_words[i]))
            return take_part(j, line, preference_words[i], &p->answer[i], e);
    for (const char *const *name = beside; *name; name++)
        if (jread_is(j, *name)) return check_beside(j, *name, e);
    return jread_skip(j);
}

/* ---- the record ------------------------------------------------------------------------------ */

static int check_form(const struct preference *p, struct err *e)
{
    const struct preference_part *a = p->answer;
    for (int i = 0; i < ANSWER_N; i++)
        if (!a[i].at)
            return err_set(
                e, ERR_INVALID,
                "the member \"%s\" is missing: a preference has \"prompt\", \"chosen\" and "
                "\"rejected\"",
                preference_words[i]);
    /* divide_beside checks a prompt that is a string beside lists */
    if (a[ANSWER_CHOSEN].list && a[ANSWER_REJECTED].list) return 0;
    const bool texts = !a[ANSWER_CHOSEN].list && !a[ANSWER_REJECTED].list;
    if (texts && p->prompt.at && !p->prompt.list) return 0;
    if (texts && !p->prompt.at)
        return err_set(e, ERR_INVALID,
                       "the member \"prompt\" is missing, and only lists of messages are divided "
                       "into prompt and answer: write the text with which both answers begin as "
                       "\"prompt\", and leave it out of \"chosen\" and \"rejected\"");
    return err_set(
        e, ERR_INVALID,
        "\"prompt\", \"chosen\" and \"rejected\" are strings and lists: write all of them "
        "as strings, or all as lists of messages");
}

/* Returns the length of the elements with which both lists begin, without the comma after them. */
static size_t common_length(const struct preference_part *a, const struct preference_part *b)
{
    const char *const a_end = a->at + a->len, *const b_end = b->at + b->len;
    const char *x = a->at, *y = b->at;
    size_t length = 0;
    int depth = 0;
    bool quoted = false;
    while (x < a_end && y < b_end) {
        while (!quoted && x < a_end && blank(*x)) x++;
        while (!quoted && y < b_end && blank(*y)) y++;
        if (x == a_end || y == b_end || *x != *y) break;
        if (quoted && *x == '\\') { /* the next character is not the end of the string */
            if (x[1] != y[1]) break;
            x++, y++;
        } else if (*x == '"') {
            quoted = !quoted;
        } else if (!quoted) {
            depth += (*x == '{' || *x == '[') - (*x == '}' || *x == ']');
        }
        x++, y++;
        if (!depth && !quoted && x[-1] == '}') length = (size_t)(x - a->at);
    }
    return length;
}

/* Removes the first messages from a list. */
static void skip_messages(struct preference_part *a, size_t n)
{
    a->at += n;
    a->len -= n;
    while (a->len && (blank(*a->at) || *a->at == ',')) a->at++, a->len--;
}

/* Returns the length in b of the first messages, which have the length n in a. */
static size_t length_in(const struct preference_part *a, size_t n, const struct preference_part *b)
{
    const struct preference_part first = {a->at, n, true};
    return common_length(b, &first);
}

static void divide(struct preference *p)
{
    struct preference_part *a = p->answer;
    const size_t n = common_length(&a[0], &a[1]), m = length_in(&a[0], n, &a[1]);
    p->prompt = (struct preference_part){a[0].at, n, true};
    skip_messages(&a[0], n);
    skip_messages(&a[1], m);
}

/* Reads the message that begins at j->p. If it is a user's, sets *said to whether its content is
 * `text`. Overwrites the content. */
static void read_message(struct jread *j, char *line, const struct preference_part *text,
                         bool *said)
{
    bool user = false, same = false;
    jread_next(j);
    while (jread_next(j) == J_KEY) {
        const bool role = jread_is(j, "role"), content = jread_is(j, "content");
        const enum jtok t = jread_next(j);
        if (t == J_STRING && role) user = jread_is(j, "user");
        if (t == J_STRING && content)
            same = jread_unescape(j, line + (j->text - line)) == text->len &&
                   !memcmp(j->text, text->at, text->len);
        if (jread_skip(j) < 0) return;
    }
    if (user) *said = same;
}

/* Tells whether the last message of a user has the content `text`. Overwrites the messages. */
static bool ends_with(const struct preference_part *messages, const struct preference_part *text)
{
    char *at = messages->at, *const end = at + messages->len;
    bool said = false;
    while (at < end) {
        struct jread j;
        jread_init(&j, at, (size_t)(end - at));
        read_message(&j, at, text, &said);
        at += j.p - at;
        if (j.err.code != ERR_NONE) return false;
        while (at < end && (blank(*at) || *at == ',')) at++;
    }
    return said;
}

/* Divides lists that stand beside a prompt that is a string. The string must be in the lists, too,
 * as it is in data sets whose answers are whole conversations. */
static int divide_beside(struct preference *p, struct err *e)
{
    const struct preference_part text = p->prompt;
    char *const rejected = p->answer[ANSWER_REJECTED].at;
    divide(p);
    /* the prompt points into the other list, so this list's first messages may be overwritten */
    const struct preference_part copy = {rejected,
                                         (size_t)(p->answer[ANSWER_REJECTED].at - rejected), true};
    if (ends_with(&copy, &text)) return 0;
    return err_set(e, ERR_INVALID,
                   "\"prompt\" is a string beside lists of messages, and not the last message of a "
                   "user with which both lists begin: leave it out (jq -c 'del(.prompt)') if both "
                   "begin with it, else write it as a list of messages");
}

int preference_parse(struct preference *p, char *line, size_t n, struct err *e)
{
    struct jread j;
    struct err inner = {0};
    enum jtok t;
    *p = (struct preference){0};
    jread_init(&j, line, n);
    if ((t = jread_next(&j)) != J_OBJECT && t != J_ERROR)
        return err_set(e, ERR_INVALID, "want an object on every line");
    while (t != J_ERROR && (t = jread_next(&j)) == J_KEY)
        if (take_member(p, &j, line, &inner) < 0) break;
    if (inner.code) return err_set(e, inner.code, "%s", inner.text);
    while (j.err.code == ERR_NONE && t > J_END) t = jread_next(&j);
    if (j.err.code != ERR_NONE) return err_set(e, ERR_INVALID, "%s", j.err.text);
    if (check_form(p, e)) return -1;
    const bool lists = p->answer[ANSWER_CHOSEN].list;
    if (lists && p->prompt.at && !p->prompt.list) return divide_beside(p, e);
    if (!p->prompt.at) divide(p);
    return 0;
}

/* ---- documents ------------------------------------------------------------------------------- */

int preference_cut(const struct preference *p, struct encode_text *t,
                   struct encode_cut out[ANSWER_N], struct err *e)
{
    const struct encode_part prompt = {p->prompt.at ? p->prompt.at : "", p->prompt.len};
    for (int i = 0; i < ANSWER_N; i++) {
        const struct encode_part answer = {p->answer[i].at, p->answer[i].len};
        if (p->answer[i].list && !answer.n) /* if the lists are equal, all of it is the prompt */
            return err_set(e, ERR_INVALID,
                           "\"%s\" has no message after those of the prompt: give an answer, which "
                           "is a turn of the assistant",
                           preference_words[i]);
        const int rc = p->answer[i].list ? encode_answer(t, &prompt, &answer, false, &out[i], e)
                                         : encode_pair(t, &prompt, &answer, true, &out[i], e);
        if (rc < 0) return err_prefix(e, "\"%s\"", preference_words[i]);
    }
    return 0;
}

/* Returns how many targets a document of a tokenizer's tokens has. */
static int64_t targets_of(const struct encode_cut *cut, bool text)
{
    int64_t n = text && cut->n && cut->by->end >= 0;
    for (int64_t i = 1; i < cut->n; i++) n += cut->by->learn[cut->at + i];
    return n;
}

int preference_put(const struct preference *p, enum preference_id answer, struct encode *c,
                   const struct encode_cut *cut, struct err *e)
{
    const struct preference_part *a = &p->answer[answer];
    const int64_t n = c->text ? targets_of(cut, !a->list) : (int64_t)(p->prompt.len + a->len);
    if (!n)
        return err_set(
            e, ERR_INVALID, "\"%s\" has no token to learn after the prompt: give an answer%s",
            preference_words[answer], a->list ? ", which is a turn of the assistant" : "");
    if (c->text) return encode_put(c, cut, e);
    if (encode_bytes(c, p->prompt.at, p->prompt.len, false, e) < 0) return -1;
    return encode_bytes(c, a->at, a->len, true, e);
}
