/* filter.c: turns the options of a filter into a query string or into a body of JSON. */
#include "client/filter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "client/http.h"

#define PART 1024 /* room for a key or value with every byte escaped */

bool filter_given(const struct cli *c)
{
    return c->opt.state || c->opt.name || c->opt.label.n;
}

/* Splits "key=value". `key` must have PART bytes. Returns the value; on failure prints a message
 * and returns NULL. */
static const char *split(const char *label, char *key)
{
    const char *eq = strchr(label, '=');
    const size_t n = eq ? (size_t)(eq - label) : 0;
    if (!n || n >= PART) {
        cli_fail(CLI_USAGE, "--label \"%s\": want KEY=VALUE, as in team=x", label);
        return NULL;
    }
    memcpy(key, label, n);
    key[n] = 0;
    return eq + 1;
}

char *filter_query(const struct cli *c)
{
    char *out = NULL, text[PART], key[PART], name[PART];
    size_t size = 0;
    FILE *f = open_memstream(&out, &size);
    bool bad = !f;
    if (f && c->opt.state) fprintf(f, "&state=%s", http_escape(text, sizeof text, c->opt.state));
    if (f && c->opt.name) fprintf(f, "&name=%s", http_escape(text, sizeof text, c->opt.name));
    if (f && c->opt.owner) fprintf(f, "&owner=%s", http_escape(text, sizeof text, c->opt.owner));
    for (int i = 0; !bad && i < c->opt.label.n; i++) {
        const char *value = split(c->opt.label.at[i], key);
        bad = !value;
        if (value)
            fprintf(f, "&label.%s=%s", http_escape(name, sizeof name, key),
                    http_escape(text, sizeof text, value));
    }
    if (f) fclose(f);
    if (!bad) return out;
    free(out);
    return NULL;
}

static struct jv *states_of(const char *states)
{
    struct jv *list = jv_array();
    while (*states) {
        const size_t n = strcspn(states, ",");
        if (jv_add(list, jv_string(states, n))) {
            jv_free(list);
            return NULL;
        }
        states += n + (states[n] == ',');
    }
    return list;
}

struct jv *filter_labels(const struct cli *c)
{
    struct jv *labels = jv_object();
    char key[PART];
    for (int i = 0; i < c->opt.label.n; i++) {
        const char *value = split(c->opt.label.at[i], key);
        if (value && !jv_put(labels, key, jv_string(value, strlen(value)))) continue;
        if (value) cli_fail(CLI_USAGE, "--label %s is given twice, or is not UTF-8", key);
        jv_free(labels);
        return NULL;
    }
    return labels;
}

int filter_body(const struct cli *c, struct jv **out)
{
    const char *state = c->opt.state, *name = c->opt.name;
    struct jv *labels = filter_labels(c), *body = jv_object();
    *out = NULL;
    if (!labels) {
        jv_free(body);
        return CLI_USAGE;
    }
    int bad = (state && jv_put(body, "state", states_of(state))) ||
              (name && jv_put(body, "name", jv_string(name, strlen(name))));
    if (jv_len(labels) && !bad)
        bad = jv_put(body, "labels", labels);
    else
        jv_free(labels);
    if (bad) {
        jv_free(body);
        return cli_fail(CLI_USAGE, "--state or --name is not UTF-8");
    }
    *out = body;
    return CLI_OK;
}
