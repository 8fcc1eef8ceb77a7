/* neutral.c: a table of neutral members with their accepted values. Compares members of a request
 * with the table. */
#include "worker/infer/neutral.h"

#include <string.h>

/* A member and its accepted values. A value is accepted if it is one of the words of the row,
 * or a list with one of these words. The word "*" accepts every string, true, false and every
 * object. For each member of the table, null, {} and [] are accepted as well. Other values are
 * refused with the reason `why`. */
static const struct neutral {
    const char *name;
    const char *words[4];
    const char *why;
} rows[] = {
    {"tool_choice", {"none", "auto"}, "it belongs to tools in a chat: leave it out"},
    {"tools", {NULL}, "tools belong to /v1/chat/completions: leave them out"},
    {"functions", {NULL}, "it is the old form of tools: give tools"},
    {"function_call", {"none", "auto"}, "it is the old form of tool_choice: give tool_choice"},
    {"parallel_tool_calls", {"*"}, "must be true or false"},
    {"modalities", {"text"}, "an answer is text: leave it out"},
    {"audio", {NULL}, "an answer is text: leave it out"},
    {"service_tier", {"auto", "default"}, "every request has the same service: leave it out"},
    {"store", {"false"}, "no answer is stored: leave it out, or keep the answer yourself"},
    {"metadata", {"*"}, "must be an object"},
    {"prediction", {NULL}, "no text is predicted: leave it out"},
    {"reasoning_effort",
     {NULL},
     "templates know no effort by this name: give chat_template_kwargs what this model's has"},
    {"verbosity", {"medium"}, "no model is told of it: write it into a message"},
    {"web_search_options", {NULL}, "nothing is searched: leave it out"},
    {"safety_identifier", {"*"}, "must be a string"},
    {"prompt_cache_key", {"*"}, "must be a string"},
    {"prompt_cache_retention", {"*"}, "must be a string"},
    {"suffix", {""}, "no text is filled in before a suffix: leave it out"},
    {"enable_thinking", {NULL}, "give it in chat_template_kwargs"},
    {"chat_template", {NULL}, "the model's own template is used: leave it out"},
    {"documents", {NULL}, "write the documents into a message"},
    {"top_logprobs", {NULL}, "it belongs to chats: give logprobs a number"},
    {"messages", {NULL}, "messages belong to /v1/chat/completions: give prompt"},
    {"prompt", {NULL}, "a prompt belongs to /v1/completions: give messages"},
    {"echo", {"false"}, "a chat has no echo: leave it out"},
    {"best_of", {NULL}, "a chat has no best_of: give n"},
    {"chat_template_kwargs", {NULL}, "it belongs to /v1/chat/completions: leave it out"},
    {"max_completion_tokens", {NULL}, "it belongs to /v1/chat/completions: give max_tokens"},
};

static bool is_word(const struct neutral *n, const struct jread *j, enum jtok t)
{
    const char *literal = t == J_TRUE ? "true" : t == J_FALSE ? "false" : NULL;
    for (int i = 0; i < 4 && n->words[i]; i++) {
        if (!strcmp(n->words[i], "*") && (literal || t == J_STRING)) return true;
        if (literal ? !strcmp(n->words[i], literal) : t == J_STRING && jread_is(j, n->words[i]))
            return true;
    }
    return false;
}

/* Returns true if the object is {"type": word} and has no other member. */
static bool is_type(const struct neutral *n, struct jread *j)
{
    return jread_next(j) == J_KEY && jread_is(j, "type") && is_word(n, j, jread_next(j)) &&
           jread_next(j) == J_OBJECT_END;
}

static bool is_neutral(const struct neutral *n, struct jread *j)
{
    enum jtok t = jread_next(j);
    struct jread in = *j;
    if (t == J_NULL) return true;
    if (t == J_OBJECT && jread_next(&in) == J_OBJECT_END) return jread_skip(j) == 0;
    if (t == J_ARRAY && jread_next(&in) == J_ARRAY_END) return jread_skip(j) == 0;
    if (!n) return false;
    if (t == J_ARRAY) return is_word(n, j, jread_next(j)) && jread_next(j) == J_ARRAY_END;
    if (t == J_OBJECT && n->words[0] && !strcmp(n->words[0], "*")) return jread_skip(j) == 0;
    return t == J_OBJECT ? is_type(n, j) : is_word(n, j, t);
}

bool neutral_member(struct jread *j, const char **name, const char **why)
{
    const struct neutral *n = NULL;
    struct jread in = *j;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (jread_is(j, rows[i].name)) n = &rows[i];
    if (is_neutral(n, &in)) {
        *j = in;
        return true;
    }
    *name = n ? n->name : NULL;
    *why = n ? n->why : NULL;
    return false;
}
