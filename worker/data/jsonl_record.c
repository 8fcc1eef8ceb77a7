/* jsonl_record.c: reads the members of a line in their order. Then checks that they form one kind
 * of record, and checks the lists beside input_ids. */
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

static const char *kind_of(enum jtok tok)
{
    switch (tok) {
    case J_NULL: return "null";
    case J_STRING: return "a string";
    case J_NUMBER: return "a number";
    case J_OBJECT: return "an object";
    default: return "true or false";
    }
}

/* Reads a list of messages. If the value is not a list, only records the kind of the value. In
 * that case the record is not a conversation, and is refused later unless its members make it
 * a record of a different kind. */
static int take_messages(struct jread *j, char *line, struct jsonl_record *r, struct err *e)
{
    struct jsonl_member *m = &r->messages;
    const enum jtok tok = jread_next(j);
    const char *begin = j->p - 1;
    if (tok == J_ERROR || jread_skip(j) < 0) return -1;
    if (tok != J_ARRAY) {
        r->no_list = kind_of(tok);
        return 0;
    }
    if (m->at) return err_set(e, ERR_INVALID, "the member \"messages\" occurs twice");
    m->at = line + (begin - line);
    m->len = (size_t)(j->p - begin);
    return 0;
}

int jsonl_record_turns(struct jread *j, const char *key, struct err *e)
{
    enum jtok t;
    for (size_t i = 0; (t = jread_next(j)) != J_ARRAY_END; i++) {
        if (t == J_ERROR) return -1;
        if (t != J_OBJECT)
            return err_set(e, ERR_INVALID,
                           "\"%s\" %zu is no message: want an object with \"role\" and \"content\"",
                           key, i);
        if (jread_skip(j) < 0) return -1;
    }
    return 0;
}

/* Stores the JSON text of the elements of a list of messages, without the brackets. `j` is past the
 * list's first token. */
static int take_turns(struct jread *j, char *line, const char *key, struct jsonl_member *out,
                      struct err *e)
{
    const char *begin = j->p;
    if (jsonl_record_turns(j, key, e)) return -1;
    out->at = line + (begin - line);
    out->len = (size_t)(j->p - 1 - begin);
    while (out->len && strchr(" \t\r\n", out->at[out->len - 1])) out->len--;
    return 0;
}

/* Reads a prompt or a completion, which are strings or lists of messages. A value of another type
 * is only recorded, because it may be metadata of a record of another kind. */
static int take_part(struct jread *j, char *line, const char *key, struct jsonl_part *p,
                     struct err *e)
{
    if (p->text.at || p->turns.at)
        return err_set(e, ERR_INVALID, "the member \"%s\" occurs twice", key);
    const enum jtok tok = jread_next(j);
    if (tok == J_ERROR) return -1;
    if (tok == J_ARRAY) return take_turns(j, line, key, &p->turns, e);
    if (tok == J_STRING) {
        p->text.at = line + (j->text - line);
        p->text.len = jread_unescape(j, p->text.at);
        return 0;
    }
    p->other = tok != J_NULL ? kind_of(tok) : NULL;
    return jread_skip(j);
}

/* Members beside "messages" that are part of a conversation. A record with one of these
 * members is refused, because without that member the model would read a conversation that
 * differs from the record. */
static const char *const beside_messages[] = {
    "tools", "functions", "images", "image", "videos", "audios", "audio", "chat_template_kwargs",
    NULL};

/* Records a member, unless its value is null, [] or {}. These values mean that the record does not
 * have the member. */
static int take_beside(struct jread *j, const char *name, const char **out)
{
    enum jtok tok = jread_next(j);
    if (tok == J_ERROR) return -1;
    struct jread in = *j;
    const bool empty = (tok == J_ARRAY && jread_next(&in) == J_ARRAY_END) ||
                       (tok == J_OBJECT && jread_next(&in) == J_OBJECT_END);
    if (tok != J_NULL && !empty) *out = name;
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

/* Reads the next element of a list of integers. If there is no further element, *t becomes
 * J_ARRAY_END. */
static int take_int(struct jread *j, const char *key, size_t i, enum jtok *t, int64_t *v,
                    struct err *e)
{
    *t = jread_next(j);
    *v = *t == J_TRUE;
    if (*t == J_ERROR) return -1;
    if (*t == J_TRUE || *t == J_FALSE || *t == J_ARRAY_END) return 0;
    if (*t != J_NUMBER) return err_set(e, ERR_INVALID, "\"%s\" %zu is not a number", key, i);
    if (jread_int(j, v) == 0) return 0;
    return err_set(e, ERR_INVALID, "\"%s\" %zu is not a whole number", key, i);
}

static int take_ids(struct jread *j, const char *key, struct jsonl_ids *a, struct err *e)
{
    enum jtok t;
    int64_t v;
    if (a->given) return err_set(e, ERR_INVALID, "the member \"%s\" occurs twice", key);
    a->given = true;
    if ((t = jread_next(j)) == J_ERROR) return -1;
    if (t != J_ARRAY) return err_set(e, ERR_INVALID, "the member \"%s\" is not an array", key);
    for (;;) {
        if (take_int(j, key, a->n, &t, &v, e) < 0) return -1;
        if (t == J_ARRAY_END) return 0;
        if (push(a, v, e) < 0) return -1;
    }
}

/* ---- lists beside input_ids ------------------------------------------------------------------ */

static struct jsonl_list *add_list(struct jsonl_record *r, struct err *e)
{
    if (r->n_lists == r->list_room) {
        const size_t room = r->list_room ? 2 * r->list_room : 8;
        struct jsonl_list *more = realloc(r->list, room * sizeof *more);
        if (!more) {
            err_set(e, ERR_IO, "out of memory for %zu members", room);
            return NULL;
        }
        r->list = more;
        r->list_room = room;
    }
    return &r->list[r->n_lists++];
}

/* Stores a list, which check_lists checks later. A value that is not a list is metadata and is
 * ignored. */
static int take_list(struct jsonl_record *r, struct jread *j, struct err *e)
{
    struct jsonl_list l = {.name = j->text, .name_len = j->len};
    enum jtok t = jread_next(j);
    l.at = j->p - 1;
    if (t != J_ARRAY) return jread_skip(j);
    while ((t = jread_next(j)) != J_ARRAY_END) {
        if (t == J_ERROR) return -1;
        if ((t == J_ARRAY || t == J_OBJECT) && jread_skip(j) < 0) return -1;
        l.n++;
    }
    l.len = (size_t)(j->p - l.at);
    struct jsonl_list *to = add_list(r, e);
    if (to) *to = l;
    return to ? 0 : -1;
}

/* Records the range of tokens that are kept, from the values of attention_mask. Zeros at the
 * beginning and at the end are padding, which is not part of the text. A zero between ones is
 * refused, because it would hide a token in the middle of the text. */
static int take_attention(struct jsonl_record *r, const char *key, size_t i, int64_t v,
                          struct err *e)
{
    if (v != 0 && v != 1)
        return err_set(e, ERR_INVALID, "%s %zu is %lld: want 0 or 1", key, i, (long long)v);
    if (!v) return 0;
    if (!r->n) r->first = i;
    if (r->n && i != r->first + r->n)
        return err_set(
            e, ERR_UNSUPPORTED,
            "%s %zu is 0 and lies between ones: zeros are read at both ends alone, where "
            "they are cut off",
            key, i - 1);
    r->n++;
    return 0;
}

/* Checks the positions of the tokens that are kept. The positions of padding are dropped with the
 * padding. */
static int take_position(struct jsonl_record *r, const char *key, size_t i, int64_t v,
                         struct err *e)
{
    if (i < r->first || i >= r->first + r->n || v == (int64_t)(i - r->first)) return 0;
    return err_set(e, ERR_UNSUPPORTED,
                   "%s %zu is %lld: positions are read as 0, 1, 2 ... alone, from the first token "
                   "of the record; give a record for each text",
                   key, i, (long long)v);
}

static int take_type(struct jsonl_record *r, const char *key, size_t i, int64_t v, struct err *e)
{
    if (i < r->first || i >= r->first + r->n || !v) return 0;
    return err_set(e, ERR_UNSUPPORTED,
                   "%s %zu is %lld: every token is read as of type 0; give a record for each text",
                   key, i, (long long)v);
}

/* Known lists that a record may have in addition to input_ids. If `take` is NULL, the list
 * changes no token. An unknown list that is as long as input_ids is refused. */
static const struct beside_ids {
    const char *name;
    int (*take)(struct jsonl_record *r, const char *key, size_t i, int64_t v, struct err *e);
} besides[] = {{"attention_mask", take_attention}, /* attention_mask must be the first row,
                                                    * because it decides which tokens are kept */
               {"position_ids", take_position},
               {"token_type_ids", take_type},
               {"special_tokens_mask", NULL},
               {"offset_mapping", NULL}};
enum { N_BESIDES = sizeof besides / sizeof *besides };

static bool is_beside(const struct jsonl_list *l, const struct beside_ids *b)
{
    return l->name_len == strlen(b->name) && !memcmp(l->name, b->name, l->name_len);
}

static int read_beside(struct jsonl_record *r, const struct beside_ids *b,
                       const struct jsonl_list *l, struct err *e)
{
    struct jread j;
    enum jtok t;
    int64_t v;
    const bool mask = b->take == take_attention;
    if (!b->take) return 0;
    if (l->n != r->input_ids.n)
        return err_set(e, ERR_INVALID, "%s has %zu elements, input_ids %zu", b->name, l->n,
                       r->input_ids.n);
    if (mask) r->n = 0;
    jread_init(&j, l->at, l->len);
    jread_next(&j);
    for (size_t i = 0;; i++) {
        if (take_int(&j, b->name, i, &t, &v, e) < 0) return -1;
        if (t == J_ARRAY_END) return 0;
        if (b->take(r, b->name, i, v, e) < 0) return -1;
    }
}

static int check_unknown(const struct jsonl_record *r, const struct jsonl_list *l, struct err *e)
{
    for (int k = 0; k < N_BESIDES; k++)
        if (is_beside(l, &besides[k])) return 0;
    if (!l->n || l->n != r->input_ids.n) return 0;
    return err_set(e, ERR_UNSUPPORTED,
                   "\"%.*s\" is a list of %zu elements, as input_ids is, and is not read: take it "
                   "out, or write the tokens to learn as \"labels\" or \"loss_mask\"",
                   (int)(l->name_len < 64 ? l->name_len : 64), l->name, l->n);
}

static int check_lists(struct jsonl_record *r, struct err *e)
{
    r->first = 0;
    r->n = r->input_ids.n;
    for (int k = 0; k < N_BESIDES; k++) {
        const struct jsonl_list *found = NULL;
        for (size_t i = 0; i < r->n_lists; i++) {
            if (!is_beside(&r->list[i], &besides[k])) continue;
            if (found)
                return err_set(e, ERR_INVALID, "the member \"%s\" occurs twice", besides[k].name);
            found = &r->list[i];
            if (read_beside(r, &besides[k], found, e) < 0) return -1;
        }
    }
    for (size_t i = 0; i < r->n_lists; i++)
        if (check_unknown(r, &r->list[i], e) < 0) return -1;
    return 0;
}

/* ---- the record ------------------------------------------------------------------------------ */

/* Finds out how "conversations" names the members of its messages, for the line that converts
 * them. The member itself is not read. */
static int take_conversations(struct jsonl_record *r, struct jread *j)
{
    struct jread in;
    enum jtok t = jread_next(j);
    if (t == J_ERROR) return -1;
    in = *j;
    if (jread_skip(j) < 0) return -1;
    if (t != J_ARRAY || jread_next(&in) != J_OBJECT) return 0;
    while (jread_next(&in) == J_KEY) {
        if (jread_is(&in, "from")) r->talk = TALK_FROM;
        if (jread_is(&in, "role")) r->talk = TALK_ROLE;
        if (r->talk || jread_skip(&in)) break;
    }
    return 0;
}

static int take_member(struct jsonl_record *r, const char *key, struct jread *j, char *line,
                       struct err *e)
{
    struct jread next = *j;
    if (jread_is(j, "messages") && (strcmp(key, "messages") || jread_next(&next) != J_STRING))
        return take_messages(j, line, r, e);
    if (jread_is(j, key)) return take_text(j, line, key, &r->text, e);
    if (jread_is(j, "prompt")) return take_part(j, line, "prompt", &r->prompt, e);
    if (jread_is(j, "completion")) return take_part(j, line, "completion", &r->completion, e);
    if (jread_is(j, "input_ids")) return take_ids(j, "input_ids", &r->input_ids, e);
    if (jread_is(j, "labels")) return take_ids(j, "labels", &r->labels, e);
    if (jread_is(j, "loss_mask")) return take_ids(j, "loss_mask", &r->loss_mask, e);
    for (const char *const *name = beside_messages; *name; name++)
        if (jread_is(j, *name)) return take_beside(j, *name, &r->beside);
    if (jread_is(j, "conversations")) return take_conversations(r, j);
    r->answers |= jread_is(j, "chosen") ? 1u : jread_is(j, "rejected") ? 2u : 0;
    return take_list(r, j, e);
}

static bool has_part(const struct jsonl_part *p)
{
    return p->text.at || p->turns.at;
}

/* Checks that prompt and completion are both strings, or both lists. */
static int check_parts(const struct jsonl_record *r, struct err *e)
{
    const struct jsonl_part *part[] = {&r->prompt, &r->completion};
    static const char *const name[] = {"prompt", "completion"};
    for (int i = 0; i < 2; i++)
        if (part[i]->other)
            return err_set(e, ERR_INVALID,
                           "the member \"%s\" is %s: write it as a string, or \"prompt\" and "
                           "\"completion\" as lists of messages",
                           name[i], part[i]->other);
    for (int i = 0; i < 2; i++)
        if (!has_part(part[i]) && has_part(part[1 - i]))
            return err_set(e, ERR_INVALID, "\"%s\" needs \"%s\" beside it", name[1 - i], name[i]);
    if (jsonl_record_talk(r) && !r->prompt.turns.len)
        return err_set(e, ERR_INVALID,
                       "\"prompt\" has no message: give the turns before the answer, or write the "
                       "whole conversation as \"messages\"");
    if (jsonl_record_talk(r) && !r->completion.turns.len)
        return err_set(e, ERR_INVALID,
                       "\"completion\" has no message: give the answer, which is a turn of the "
                       "assistant");
    if (!r->prompt.text.at == !r->completion.text.at) return 0;
    return err_set(
        e, ERR_INVALID,
        "\"prompt\" and \"completion\" are a string and a list: write both as strings, or "
        "both as lists of messages");
}

/* Refuses a record of no kind. */
static int no_kind(const struct jsonl_record *r, const char *key, struct err *e)
{
    if (r->no_list)
        return err_set(e, ERR_INVALID,
                       "\"messages\" is %s: it must be a list of messages, each an object with "
                       "\"role\" and \"content\"",
                       r->no_list);
    if (r->talk == TALK_ROLE)
        return err_set(e, ERR_INVALID,
                       "\"conversations\" is not read: name it messages, with jq -c "
                       "'.messages = .conversations'");
    if (r->talk == TALK_FROM)
        return err_set(
            e, ERR_INVALID,
            "\"conversations\" is not read: convert it with jq -c '{messages: "
            "[.conversations[] | {role: ({human: \"user\", gpt: \"assistant\"}[.from] // "
            ".from), content: .value}]}'");
    return err_set(e, ERR_INVALID,
                   "the member \"%s\" is missing: set text_key, or give \"prompt\" and "
                   "\"completion\", \"messages\" or \"input_ids\" (jq renames members, as in jq -c "
                   "'{prompt: .question, completion: .answer}')",
                   key);
}

/* Checks that the record is of one kind. A record is of a kind only if it has all members of
 * this kind. A prompt without a completion, or labels without input_ids, may be metadata of a
 * record whose kind is determined by other members. For example, a record with a text may also
 * have a prompt. */
static int check_kinds(const struct jsonl_record *r, const char *key, struct err *e)
{
    const char *kind[4];
    int n = 0;
    if (r->text.at) kind[n++] = key;
    const bool pair = has_part(&r->prompt) && has_part(&r->completion);
    if (pair) kind[n++] = "completion";
    if (r->input_ids.given) kind[n++] = "input_ids";
    if (r->messages.at) kind[n++] = "messages";
    if (!n && r->answers == 3)
        return err_set(e, ERR_INVALID,
                       "the record is a preference, of \"chosen\" and \"rejected\", which only a "
                       "training with objective.type \"dpo\" reads: set that, or give \"%s\", "
                       "\"prompt\" and \"completion\", or \"messages\"",
                       key);
    if (n > 1)
        return err_set(e, ERR_INVALID, "both \"%s\" and \"%s\": which is to be learnt?%s", kind[0],
                       kind[1],
                       r->text.at ? " Set text_key to another name to leave the text out" : "");
    if ((r->messages.at || jsonl_record_talk(r)) && r->beside)
        return err_set(e, ERR_UNSUPPORTED,
                       "%s: a conversation is read with its messages alone: take the record out, "
                       "or write what the model is to read as \"%s\"",
                       r->beside, key);
    if (n && !pair) return 0;
    if (check_parts(r, e)) return -1;
    return n ? 0 : no_kind(r, key, e);
}

int jsonl_record_parse(struct jsonl_record *r, const char *key, char *line, size_t n, struct err *e)
{
    struct jread j;
    enum jtok t;
    r->text = r->messages = (struct jsonl_member){0};
    r->prompt = r->completion = (struct jsonl_part){0};
    r->beside = r->no_list = NULL;
    r->talk = TALK_NONE;
    r->answers = 0;
    r->input_ids.n = r->labels.n = r->loss_mask.n = r->n_lists = 0;
    r->input_ids.given = r->labels.given = r->loss_mask.given = false;
    jread_init(&j, line, n);
    if ((t = jread_next(&j)) != J_OBJECT && t != J_ERROR)
        return err_set(e, ERR_INVALID, "want an object on every line%s",
                       t == J_ARRAY ? ": a file that is one JSON array is converted by jq -c '.[]'"
                                    : "");
    struct err inner = {0};
    while (t != J_ERROR && (t = jread_next(&j)) == J_KEY)
        if (take_member(r, key, &j, line, &inner) < 0) break;
    if (inner.code) return err_set(e, inner.code, "%s", inner.text);
    while (j.err.code == ERR_NONE && t > J_END) t = jread_next(&j);
    if (j.err.code != ERR_NONE) return err_set(e, ERR_INVALID, "%s", j.err.text);
    if (check_kinds(r, key, e) < 0) return -1;
    return r->input_ids.given ? check_lists(r, e) : 0;
}

bool jsonl_record_talk(const struct jsonl_record *r)
{
    return r->prompt.turns.at && r->completion.turns.at;
}

void jsonl_record_fini(struct jsonl_record *r)
{
    free(r->input_ids.at);
    free(r->labels.at);
    free(r->loss_mask.at);
    free(r->list);
}
