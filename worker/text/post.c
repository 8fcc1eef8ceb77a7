/* post.c: reads the post-processors, and collects the ids that they put before and after a
 * text. */
#include "worker/text/post.h"

#include <string.h>

static int add_id(int32_t *ids, int *n, int64_t id, struct err *e)
{
    if (*n == POST_IDS)
        return err_set(e, ERR_TOO_LARGE, "tokenizer.json: post_processor adds over %d ids",
                       POST_IDS);
    if (id < 0 || id > INT32_MAX)
        return err_set(e, ERR_INVALID, "tokenizer.json: post_processor: id %lld", (long long)id);
    ids[(*n)++] = (int32_t)id;
    return 0;
}

/* Puts the ids of p around the ids of `inner`. */
static int enclose(struct post *p, const struct post *inner, struct err *e)
{
    for (int i = 0; i < inner->n_before; i++)
        if (add_id(p->before, &p->n_before, inner->before[i], e) < 0) return -1;
    struct post all = *inner;
    for (int i = 0; i < p->n_after; i++)
        if (add_id(all.after, &all.n_after, p->after[i], e) < 0) return -1;
    memcpy(p->after, all.after, sizeof p->after);
    p->n_after = all.n_after;
    return 0;
}

/* ---- TemplateProcessing --------------------------------------------------------------------- */

struct template
{
    struct post *p;
    struct json tokens;
    int texts; /* number of texts ($A) that were read so far */
};

static int each_id(void *who, struct json j, struct err *e)
{
    struct template *t = who;
    int64_t id;
    if (json_int(j, "post_processor.special_tokens.ids", -1, &id, e) < 0) return -1;
    return t->texts ? add_id(t->p->after, &t->p->n_after, id, e)
                    : add_id(t->p->before, &t->p->n_before, id, e);
}

static int each_piece(void *who, struct json j, struct err *e)
{
    static const char *const kinds[] = {"Sequence", "SpecialToken"};
    struct template *t = who;
    struct json kind[2], id, token, ids;
    struct text name = {0};
    if (json_members(j, "post_processor.single", 2, kinds, kind, e) < 0) return -1;
    if (json_member(kind[kind[1].p ? 1 : 0], "post_processor.single", "id", &id, e) < 0) return -1;
    if (kind[0].p) {
        if (json_is(id, "A") && !t->texts++) return 0;
        return err_set(e, ERR_UNSUPPORTED, "tokenizer.json: post_processor.single: want $A once");
    }
    int rc = json_text(id, "post_processor.single", &name, e);
    if (rc == 0 && memchr(name.data, 0, (size_t)name.n))
        rc = err_set(e, ERR_INVALID, "tokenizer.json: post_processor.single has a NUL in an id");
    if (rc == 0) rc = json_member(t->tokens, "post_processor.special_tokens", name.data, &token, e);
    text_fini(&name);
    if (rc < 0 || json_member(token, "post_processor.special_tokens", "ids", &ids, e) < 0)
        return -1;
    return json_each(ids, "post_processor.special_tokens.ids", each_id, t, e);
}

static int add_template(struct post *p, struct json j, struct err *e)
{
    static const char *const names[] = {"single", "special_tokens"};
    struct json v[2];
    struct post own = {{0}};
    if (json_members(j, "post_processor", 2, names, v, e) < 0) return -1;
    struct template t = {&own, v[1], 0};
    if (json_each(v[0], "post_processor.single", each_piece, &t, e) < 0) return -1;
    if (t.texts != 1)
        return err_set(e, ERR_UNSUPPORTED, "tokenizer.json: post_processor.single: want $A once");
    if (enclose(&own, p, e) < 0) return -1;
    *p = own;
    return 0;
}

/* ---- the others ----------------------------------------------------------------------------- */

struct post_pair {
    int64_t id;
    int n;
};

static int each_of_pair(void *who, struct json j, struct err *e)
{
    struct post_pair *p = who;
    return p->n++ == 1 ? json_int(j, "post_processor", -1, &p->id, e) : 0;
}

/* Adds BertProcessing or RobertaProcessing, in which "cls" and "sep" are ["content", id]. */
static int add_bert(struct post *p, struct json j, struct err *e)
{
    static const char *const names[] = {"cls", "sep"};
    struct json v[2];
    struct post_pair cls = {-1, 0}, sep = {-1, 0};
    struct post own = {{0}};
    if (json_members(j, "post_processor", 2, names, v, e) < 0 ||
        json_each(v[0], "post_processor.cls", each_of_pair, &cls, e) < 0 ||
        json_each(v[1], "post_processor.sep", each_of_pair, &sep, e) < 0 ||
        add_id(own.before, &own.n_before, cls.id, e) < 0 ||
        add_id(own.after, &own.n_after, sep.id, e) < 0 || enclose(&own, p, e) < 0)
        return -1;
    *p = own;
    return 0;
}

static int add_one(void *who, struct json j, struct err *e)
{
    struct json type, all;
    if (json_member(j, "post_processor", "type", &type, e) < 0) return -1;
    if (json_is(type, "Sequence")) {
        if (json_member(j, "post_processor", "processors", &all, e) < 0) return -1;
        return json_each(all, "post_processor.processors", add_one, who, e);
    }
    if (json_is(type, "ByteLevel")) return 0; /* ByteLevel changes only offsets */
    if (json_is(type, "TemplateProcessing")) return add_template(who, j, e);
    if (json_is(type, "BertProcessing") || json_is(type, "RobertaProcessing"))
        return add_bert(who, j, e);
    return err_set(e, ERR_UNSUPPORTED, "tokenizer.json: post_processor %.*s is not known",
                   type.n > 60 ? 60 : (int)type.n, type.p ? type.p : "without a type");
}

int post_open(struct post *p, struct json j, struct err *e)
{
    return j.p ? add_one(p, j, e) : 0;
}
