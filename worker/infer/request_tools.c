/* request_tools.c: reads tools and tool_choice. A call that the request asks for is a grammar. */
#include <string.h>
#include "api/core/job.h"
#include "worker/infer/calls.h"
#include "worker/infer/request_body.h"
#include "worker/infer/request_text.h"
#include "worker/infer/vocabulary.h"

#define TOOLS 128 /* most tools of a request */

struct tools {
    struct grammar_tool v[TOOLS];
    int n;
};

static int refuse(struct request_body *b, enum err_code code, const char *field, const char *why)
{
    return err_field(b->e, code, field, "%s: %s", field, why);
}

/* Reads a member of a tool's function. */
static int take_member(struct request_body *b, struct jread *j, struct grammar_tool *t)
{
    const bool name = jread_is(j, "name"), parameters = jread_is(j, "parameters");
    const bool strict = jread_is(j, "strict");
    if (!name && !parameters && !strict && !jread_is(j, "description"))
        return refuse(b, ERR_UNSUPPORTED, "tools",
                      "a function has name, description, parameters and strict alone");
    const enum jtok got = jread_next(j);
    if (got == J_NULL && !name) return 0;
    if (parameters ? got != J_OBJECT : strict ? got != J_TRUE && got != J_FALSE : got != J_STRING)
        return refuse(b, ERR_INVALID, "tools",
                      "name and description are strings, parameters is an object, and strict is "
                      "true or false");
    if (name) {
        t->name = j->text;
        t->name_size = (int64_t)j->len;
    }
    if (!parameters) return 0;
    t->schema = j->p - 1;
    if (jread_skip(j)) return -1;
    t->schema_size = j->p - t->schema;
    return 0;
}

static bool good_name(const struct grammar_tool *t)
{
    static const char other[] = "_-.";
    for (int64_t i = 0; i < t->name_size; i++) {
        const char c = t->name[i];
        const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!letter && !(c >= '0' && c <= '9') && !(c && strchr(other, c))) return false;
    }
    return t->name_size >= 1 && t->name_size <= 64;
}

/* Reads a tool, whose first token is t. */
static int take_tool(struct request_body *b, struct jread *j, enum jtok t, struct tools *all)
{
    struct grammar_tool tool = {0};
    bool function = false;
    if (t != J_OBJECT) return refuse(b, ERR_INVALID, "tools", "a tool is an object");
    while (jread_next(j) == J_KEY) {
        if (jread_is(j, "type")) {
            if (jread_next(j) == J_STRING && jread_is(j, "function")) continue;
            return refuse(b, ERR_UNSUPPORTED, "tools", "the type of a tool must be \"function\"");
        }
        if (!jread_is(j, "function") || function || jread_next(j) != J_OBJECT)
            return refuse(b, ERR_UNSUPPORTED, "tools",
                          "a tool is {\"type\": \"function\", \"function\": {...}} alone");
        function = true;
        while (jread_next(j) == J_KEY)
            if (take_member(b, j, &tool)) return -1;
    }
    if (!good_name(&tool))
        return refuse(b, ERR_INVALID, "tools",
                      "the name of a function has 1 to 64 letters, digits, _ - and .");
    for (int i = 0; i < all->n; i++)
        if (all->v[i].name_size == tool.name_size &&
            !memcmp(all->v[i].name, tool.name, (size_t)tool.name_size))
            return refuse(b, ERR_INVALID, "tools", "two functions have one name");
    if (all->n == TOOLS) return refuse(b, ERR_TOO_LARGE, "tools", "at most 128 tools are read");
    all->v[all->n++] = tool;
    return 0;
}

static int take_list(struct request_body *b, struct tools *all)
{
    struct jread j;
    enum jtok t;
    if (!b->tools.json) return 0;
    jread_init(&j, b->tools.json, (size_t)b->tools.size);
    jread_next(&j);
    while ((t = jread_next(&j)) != J_ARRAY_END)
        if (take_tool(b, &j, t, all)) return -1;
    return 0;
}

/* Checks that the model writes calls in the form that is parsed. */
static int check_form(struct request_body *b)
{
    const struct request *r = b->r;
    if (request_text_chats(r, b->spec, b->e)) return -1;
    if (!jinja_names(r->chat.model->t, "tools") || !jinja_mentions(r->chat.model->t, CALLS_BEGIN))
        return refuse(b, ERR_UNSUPPORTED, "tools",
                      "tools of this template's form are not parsed, only those of a template that "
                      "writes <tool_call>: leave tools out");
    const int32_t id = tokenizer_id(r->tokenizer, CALLS_BEGIN, sizeof CALLS_BEGIN - 1);
    if (id < 0 || !tokenizer_is_special(r->tokenizer, id)) return 0;
    return refuse(b, ERR_UNSUPPORTED, "tools",
                  "<tool_call> is a special token of this model, which its text does not have");
}

/* Keeps the tool that an object tool_choice names. */
static int choose_named(struct request_body *b, struct tools *all)
{
    struct jread j;
    struct grammar_tool named = {0};
    jread_init(&j, b->choice.json, (size_t)b->choice.size);
    jread_next(&j);
    while (jread_next(&j) == J_KEY) {
        if (jread_is(&j, "type") && jread_next(&j) == J_STRING && jread_is(&j, "function"))
            continue;
        if (!jread_is(&j, "function") || jread_next(&j) != J_OBJECT || named.name ||
            jread_next(&j) != J_KEY || !jread_is(&j, "name") || jread_next(&j) != J_STRING)
            return refuse(b, ERR_UNSUPPORTED, "tool_choice",
                          "it must be none, auto, required or {\"type\": \"function\", "
                          "\"function\": {\"name\": ...}}");
        named.name = j.text;
        named.name_size = (int64_t)j.len;
        if (jread_next(&j) != J_OBJECT_END)
            return refuse(b, ERR_INVALID, "tool_choice", "function has a name alone");
    }
    for (int i = 0; named.name && i < all->n; i++) {
        if (all->v[i].name_size != named.name_size ||
            memcmp(all->v[i].name, named.name, (size_t)named.name_size))
            continue;
        all->v[0] = all->v[i];
        all->n = 1;
        return 0;
    }
    return refuse(b, ERR_INVALID, "tool_choice", "it names none of tools");
}

/* Compiles the grammar of a call that the request asks for. */
static int require_call(struct request_body *b, struct tools *all)
{
    struct err why = {0};
    if (b->choice.json && choose_named(b, all)) return -1;
    if (request_prepare_grammar(b, "tool_choice")) return -1;
    b->r->grammar = grammar_of_calls(all->v, all->n, &why);
    if (b->r->grammar && !vocabulary_covers(b->r->vocabulary, b->r->grammar, &why)) return 0;
    return refuse(b, why.code, "tools", why.text);
}

int request_take_tools(struct request_body *b)
{
    static const char *const words[] = {"", "auto", "none", "required"};
    struct tools all = {.n = 0};
    int k = 0;
    while (k < 4 && strcmp(b->choice_word, words[k]) != 0) k++;
    if (k == 4)
        return refuse(b, ERR_INVALID, "tool_choice",
                      "it must be none, auto, required or an object");
    if (take_list(b, &all)) return -1;
    const bool must = k == 3 || b->choice.json;
    if (!all.n && must)
        return refuse(b, ERR_INVALID, "tool_choice", "there are no tools: give tools");
    if (!all.n || k == 2) {
        b->tools.json = NULL; /* the template is not told of them */
        return 0;
    }
    if (check_form(b)) return -1;
    b->r->calls = true;
    return must ? require_call(b, &all) : 0;
}
