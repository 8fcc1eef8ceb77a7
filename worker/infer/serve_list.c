/* serve_list.c: cuts the body of a request around the prompts of its list, and joins their
 * answers. */
#include "worker/infer/serve_list.h"

#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/jread.h"
#include "worker/text/buffer.h"

void serve_list_free(struct serve_list *l)
{
    for (int k = 0; l && l->choices && k < l->n; k++) text_fini(&l->choices[k]);
    if (l) free(l->choices);
    free(l);
}

/* ---- cutting --------------------------------------------------------------------------------- */

/* A list in a body: bytes [begin, end). The reader is before its first prompt. */
struct prompts_of {
    struct jread j;
    const char *begin, *end;
    int n;
    int64_t size; /* bytes of the prompts */
};

/* Reads the next prompt, and returns its size in bytes. Returns 0 at the end of the list, and -1 if
 * it is neither a text nor a list. */
static int64_t next_prompt(struct jread *j, const char **at)
{
    const enum jtok t = jread_next(j);
    if (t == J_ARRAY_END) return 0;
    *at = t == J_STRING ? j->text - 1 : j->p - 1;
    if ((t != J_STRING && t != J_ARRAY) || (t == J_ARRAY && jread_skip(j))) return -1;
    return j->p - *at;
}

/* Finds the list. Returns false if the member is none, or has another kind of value, or values of
 * both kinds. Then the request is read as one prompt, and that names the fault if there is one. */
static bool find_list(const struct serve_request *q, const char *member, struct prompts_of *l)
{
    enum jtok t;
    const char *at;
    char kind = 0; /* first character of each prompt */
    int64_t size;
    *l = (struct prompts_of){0};
    jread_init(&l->j, q->body.data ? q->body.data : "", (size_t)q->body.n);
    if (jread_next(&l->j) != J_OBJECT) return false;
    while ((t = jread_next(&l->j)) == J_KEY && !jread_is(&l->j, member))
        if (jread_skip(&l->j)) return false;
    if (t != J_KEY || jread_next(&l->j) != J_ARRAY) return false;
    struct jread j = l->j;
    l->begin = j.p - 1;
    while ((size = next_prompt(&j, &at)) > 0 && (!l->n || *at == kind))
        kind = *at, l->n++, l->size += size;
    l->end = j.p;
    return !size && l->n > 1;
}

bool serve_list_found(const struct serve_request *q, const char *member)
{
    struct prompts_of l;
    return find_list(q, member, &l);
}

static int check_list(const struct serve_asks *s, const struct serve_request *q,
                      const struct prompts_of *l, const char *member, struct err *e)
{
    const int64_t beside = q->body.n - (l->end - l->begin), all = l->n * beside + l->size;
    if (l->n > SERVE_LIST_N)
        return err_field(e, ERR_TOO_LARGE, member,
                         "%s has %d entries: a request takes at most %d, ask in parts", member,
                         l->n, SERVE_LIST_N);
    if (all > s->body_size)
        return err_field(e, ERR_TOO_LARGE, member,
                         "%s has %d entries, and the members beside it have %lld bytes, which "
                         "each entry needs: ask in parts",
                         member, l->n, (long long)beside);
    if (all > s->bodies_size - s->n_bytes)
        return err_set(e, ERR_IO, "there is no memory for the list now: ask again later");
    return 0;
}

static int make_part(struct serve_asks *s, struct serve_request *q, int i, const char *prompt,
                     int64_t size, const struct prompts_of *l, struct err *e)
{
    const int64_t before = l->begin - q->body.data, after = q->body.data + q->body.n - l->end;
    struct serve_request *part = serve_asks_add_part(s, q, i);
    if (!part || text_add(&part->body, q->body.data, before) < 0 ||
        text_add(&part->body, prompt, size) < 0 || text_add(&part->body, l->end, after) < 0) {
        if (part) s->n_bytes += part->body.n;
        return err_set(e, ERR_IO, "there is no memory for the list now: ask again later");
    }
    s->n_bytes += part->body.n;
    return 0;
}

int serve_list_split(struct serve_asks *s, struct serve_request *q, const char *member,
                     struct err *e)
{
    struct prompts_of l;
    const char *at;
    int64_t size;
    const bool found = find_list(q, member, &l);
    assert(found);
    if (check_list(s, q, &l, member, e)) return -1;
    struct serve_list *list = calloc(1, sizeof *list);
    if (list) *list = (struct serve_list){.asks = s, .n = l.n};
    if (!list || !(list->choices = calloc((size_t)l.n, sizeof *list->choices))) {
        free(list);
        return err_set(e, ERR_IO, "there is no memory for the list now: ask again later");
    }
    q->list = list;
    q->state = SERVE_SPLIT;
    for (int i = 0; (size = next_prompt(&l.j, &at)) > 0; i++)
        if (make_part(s, q, i, at, size, &l, e)) return -1;
    return 0;
}

/* ---- reading --------------------------------------------------------------------------------- */

int serve_list_read(struct serve_request *part, struct err *e)
{
    struct serve_list *l = part->whole->list;
    l->n_choices += part->request.n;
    if (l->n_choices > SERVE_LIST_N)
        return err_field(e, ERR_TOO_LARGE, "n",
                         "n is %lld for each of %d prompts: a request takes at most %d "
                         "continuations, ask in parts",
                         (long long)part->request.n, l->n, SERVE_LIST_N);
    part->whole->cursor.stream = part->request.stream;
    part->state = SERVE_HELD;
    if (++l->n_read == l->n) serve_asks_begin_parts(l->asks, part->whole);
    return 0;
}

/* ---- joining --------------------------------------------------------------------------------- */

int serve_list_take(struct serve_request *part, const struct request *r,
                    const struct infer_answer *a, const char *choices, int64_t size, struct err *e)
{
    struct serve_list *l = part->whole->list;
    l->n_prompt_tokens += r->n_tokens;
    l->n_kept += a->n_kept;
    l->n_tokens += a->n_generated;
    if (size && text_add(&l->choices[part->part], choices, size) < 0) return buffer_full(e);
    part->state = SERVE_ENDED;
    return ++l->n_ended == l->n;
}

char *serve_list_join(const struct serve_list *l)
{
    int64_t size = 2, at = 1;
    for (int k = 0; k < l->n; k++) size += l->choices[k].n + 1;
    char *out = malloc((size_t)size + 1);
    if (!out) return NULL;
    out[0] = '[';
    for (int k = 0; k < l->n; k++) {
        if (l->choices[k].n) memcpy(out + at, l->choices[k].data, (size_t)l->choices[k].n);
        at += l->choices[k].n;
        out[at++] = k + 1 < l->n ? ',' : ']';
    }
    out[at] = 0;
    return out;
}
