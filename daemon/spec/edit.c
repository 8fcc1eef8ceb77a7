/* edit.c: changes a stored spec by the body of a PATCH, and merges specs so that fields that only
 * other versions know are kept. */
#include <stdlib.h>
#include <string.h>
#include "daemon/spec/document.h"
#include "daemon/spec/json.h"
#include "daemon/spec/rule.h"

static bool merge(json_t *into, json_t *old);

/* Adds to `now` the members that only `old` has. Arrays are merged element by element. Returns
 * true if a member was added. */
static bool merge_value(json_t *now, json_t *old)
{
    bool more = false;
    if (json_is_object(now) && json_is_object(old)) return merge(now, old);
    if (!json_is_array(now) || !json_is_array(old)) return false;
    for (size_t i = 0; i < json_array_size(now) && i < json_array_size(old); i++)
        more |= merge_value(json_array_get(now, i), json_array_get(old, i));
    return more;
}

static bool merge(json_t *into, json_t *old)
{
    const char *key;
    json_t *v;
    bool more = false;
    json_object_foreach(old, key, v)
    {
        json_t *now = json_object_get(into, key);
        if (now)
            more |= merge_value(now, v);
        else
            more |= !json_object_set(into, key, v);
    }
    return more;
}

char *json_spec_merge(const char *old, const char *now)
{
    struct err e;
    json_t *a = document_load(old, strlen(old), &e), *b = document_load(now, strlen(now), &e);
    char *out = a && b && merge(b, a) ? json_dumps(b, JSON_COMPACT) : NULL;
    json_decref(a);
    json_decref(b);
    return out;
}

static int edit_labels(json_t *root, json_t *change, struct err *e)
{
    const char *key;
    json_t *v, *labels = json_object_get(root, "labels");
    if (!json_is_object(change))
        return err_field(e, ERR_INVALID, "labels",
                         "labels must be an object: a string sets a label, null removes it");
    if (!labels) json_object_set_new(root, "labels", labels = json_object());
    json_object_foreach(change, key, v)
    {
        if (!json_is_null(v) && rule_label_check(key, v, e)) return -1;
        if (json_is_null(v))
            json_object_del(labels, key);
        else
            json_object_set(labels, key, v);
    }
    return 0;
}

static int edit(json_t *root, json_t *change, struct err *e)
{
    const char *key;
    json_t *v;
    if (!json_object_size(change))
        return err_set(e, ERR_INVALID, "nothing changes: give priority or labels");
    json_object_foreach(change, key, v)
    {
        if (!strcmp(key, "labels")) {
            if (edit_labels(root, v, e)) return -1;
        } else if (!strcmp(key, "priority")) {
            if (!json_is_integer(v))
                return err_field(e, ERR_INVALID, key, "priority must be an integer");
            json_object_set(root, "priority", v);
        } else {
            return err_field(e, ERR_INVALID, key,
                             "%.80s cannot be changed: of a job only priority and labels can", key);
        }
    }
    return 0;
}

char *json_spec_edit(const char *old, const char *change, size_t size, struct job_spec *s,
                     struct err *e)
{
    struct err why;
    json_t *root = document_load(old, strlen(old), e),
           *by = root ? document_load(change, size, e) : NULL;
    char *out = by && !edit(root, by, e) ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    json_decref(by);
    if (!out || !json_spec_read(out, strlen(out), JSON_STORED, s, &why)) return out;
    free(out);
    *e = why;
    return NULL;
}
