/* neutral.c: a table of neutral members with their accepted values. Compares members of a request
 * with the table. */
#include "worker/infer/neutral.h"

#include <string.h>

/* A member and its accepted values. A value is accepted if it is one of the words of the row,
 * or a list with one of these words. The word "*" accepts every string, true, false and every
 * object. For each member of the table, null, {} and [] are accepted as well. */
static const struct neutral {
    const char *name;
    const char *words[3];
} rows[] = {
    {"tool_choice", {"none", "auto"}},
    {"function_call", {"none", "auto"}},
    {"parallel_tool_calls", {"*"}}, /* any value, because no tool can be called */
    {"response_format", {"text"}},
    {"modalities", {"text"}},
    {"service_tier", {"auto", "default"}},
    {"store", {"false"}},
    {"metadata", {"*"}}, /* any value, because metadata are notes of the client and are not used */
    {"safety_identifier", {"*"}},
    {"prompt_cache_key", {"*"}},
    {"suffix", {""}},
};

static bool is_word(const struct neutral *n, const struct jread *j, enum jtok t)
{
    const char *literal = t == J_TRUE ? "true" : t == J_FALSE ? "false" : NULL;
    for (int i = 0; i < 3 && n->words[i]; i++) {
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
    if (t == J_OBJECT && !strcmp(n->words[0], "*")) return jread_skip(j) == 0;
    return t == J_OBJECT ? is_type(n, j) : is_word(n, j, t);
}

bool neutral_member(struct jread *j)
{
    const struct neutral *n = NULL;
    struct jread in = *j;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (jread_is(j, rows[i].name)) n = &rows[i];
    if (!is_neutral(n, &in)) return false;
    *j = in;
    return true;
}
