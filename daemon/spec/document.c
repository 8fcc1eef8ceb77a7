/* document.c: loads JSON within bounds, and writes it in sorted and compact form. */
#include "daemon/spec/document.h"

#include <stdbool.h>
#include <stdlib.h>
#include "daemon/spec/json.h"

/* Ends the process if there is no memory. Otherwise Jansson would silently leave out a member, and
 * a job would be stored and acknowledged without a part of its spec. */
static void *take_memory(size_t size)
{
    void *p = malloc(size);
    if (!p) abort();
    return p;
}

void json_init(void)
{
    json_set_alloc_funcs(take_memory, free);
    json_object_seed(0);
}

/* Refuses more levels than JSON_DEPTH, because Jansson would recurse up to 2048 levels deep. */
static int check_depth(const char *text, size_t size, struct err *e)
{
    int depth = 0;
    bool string = false;
    for (size_t i = 0; i < size; i++) {
        char c = text[i];
        if (string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                string = false;
            continue;
        }
        if (c == '"')
            string = true;
        else if (c == '{' || c == '[')
            depth++;
        else if (c == '}' || c == ']')
            depth--;
        if (depth > JSON_DEPTH)
            return err_set(e, ERR_INVALID, "the body nests deeper than %d levels", JSON_DEPTH);
    }
    return 0;
}

json_t *document_load(const char *text, size_t size, struct err *e)
{
    if (check_depth(text, size, e)) return NULL;
    json_error_t je;
    json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &je);
    if (!root) {
        err_set(e, ERR_INVALID, "the body is not valid JSON: line %d column %d: %.160s", je.line,
                je.column, je.text);
        return NULL;
    }
    if (json_is_object(root)) return root;
    err_set(e, ERR_INVALID, "the body must be a JSON object");
    json_decref(root);
    return NULL;
}

char *json_canonical(const char *text, size_t size, struct err *e)
{
    json_t *root = document_load(text, size, e);
    if (!root) return NULL;
    char *out = json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(root);
    if (!out) err_set(e, ERR_TOO_LARGE, "the body is too large");
    return out;
}
