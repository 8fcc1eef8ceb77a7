/* pieces.c: divides tensors into stretches, and passes the stretches to the sink. All host
 * threads of the sink's backend read and convert stretches. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/quant.h"
#include "worker/family/family.h"
#include "worker/gguf/model_file.h"
#include "worker/hf/hf.h"
#include "worker/hf/stored.h"

enum {
    STRETCHES = 64, /* stretches that are read before errors are checked */
    /* Number of elements in a stretch for a sink that sets any_order. A stretch of this length
     * has 2 or 4 MiB. With stretches of this size, it is rare that two threads cause page
     * faults on one large page. */
    STRETCH = 16 * ST_CHUNK,
    LINE = 8192, /* number of elements that a thread reads at a time; they fit into the cache
                  * of the thread's core */
    /* largest number of stretches for a sink that receives elements in order; together these
     * stretches have 2 MiB */
    LANES = 8,
    STRIP = 32 /* rows that a thread reorders at a time */
};

/* A sequence of elements that has the same order in the file and in the flat layout. */
struct stretch {
    struct hf_stored x;
    const float *have; /* the elements of the stretch, if they are in memory; if `have` is
                        * NULL, the elements are read from x */
    float *into;       /* buffer into which the elements are read; if `into` is NULL, the
                        * elements are passed to the sink */
    int64_t from, to;  /* indices of the first element: `from` in the file's tensor, `to` in
                        * the flat layout */
    int64_t n;
    enum weights_id blocks; /* format of the blocks that the sink accepts; WEIGHTS_MODEL if it
                             * accepts no blocks */
    int rc;
    struct err e;
};

struct pieces {
    const struct hf_sink *to;
    int n, most;     /* `n` is the number of stretches, and `most` is the number for which
                      * there is room */
    int64_t longest; /* largest number of elements of a stretch that the sink accepts */
    float *lanes;    /* owned: [most, ST_CHUNK]; NULL for a sink that sets any_order */
    float *block;    /* owned: a block in the file's order, then a block in the flat layout's
                      * order */
    struct stretch stretch[STRETCHES];
};

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void run(const struct pieces *r, void (*task)(void *arg, int64_t i, int worker), void *arg,
                int64_t n)
{
    if (r->to->be)
        be_host_run(r->to->be, task, arg, n);
    else
        for (int64_t i = 0; i < n; i++) task(arg, i, 0);
}

/* ---- one stretch ----------------------------------------------------------------------------- */

/* Returns true if the sink accepts a stretch's elements in the file's 16-bit type. */
static bool as_stored(const struct pieces *r, const struct stretch *s)
{
    return r->to->take_half && s->x.t && !s->have && st_is_plain(s->x.t) &&
           s->x.t->dtype == (r->to->half == DT_F16 ? ST_F16 : ST_BF16);
}

/* Returns the format of blocks in which the sink accepts the elements of a stretch. Returns
 * WEIGHTS_MODEL if the sink does not accept blocks. */
static enum weights_id as_blocks(const struct pieces *r, const struct stretch *s)
{
    const struct hf_sink *to = r->to;
    const bool whole = s->from % QUANT_K == 0 && s->n % QUANT_K == 0;
    if (!to->take_blocks || !s->x.t || s->have || s->into || !whole) return WEIGHTS_MODEL;
    const enum weights_id format = to->format(to->arg, s->to);
    return format && st_has_blocks(s->x.t, format) ? format : WEIGHTS_MODEL;
}

/* Reads elements [at, at + n) of a stretch to `room`. */
static int read_some(const struct pieces *r, struct stretch *s, int64_t at, int64_t n, void *room)
{
    if (s->blocks) return st_read_blocks(s->x.f, s->x.t, s->from + at, n, s->blocks, room, &s->e);
    if (as_stored(r, s))
        return st_read_bytes(s->x.f, s->x.t, (s->from + at) * 2, n * 2, room, &s->e);
    return hf_stored_read(&s->x, s->from + at, n, room, &s->e);
}

static int give(const struct pieces *r, struct stretch *s, int64_t at, int64_t n, const void *x)
{
    const struct hf_sink *to = r->to;
    if (s->blocks) return to->take_blocks(to->arg, s->to + at, n, x, &s->e);
    return as_stored(r, s) ? to->take_half(to->arg, s->to + at, n, x, &s->e)
                           : to->take(to->arg, s->to + at, n, x, &s->e);
}

/* Reads a stretch line by line, and passes each line to the sink. */
static int pass(const struct pieces *r, struct stretch *s)
{
    float line[LINE];
    int rc = 0;
    for (int64_t at = 0; at < s->n && rc == 0; at += LINE) {
        const int64_t n = least(LINE, s->n - at);
        if (!s->have) rc = read_some(r, s, at, n, line);
        if (rc == 0) rc = give(r, s, at, n, s->have ? s->have + at : line);
    }
    return rc;
}

static float *lane(const struct pieces *r, int i)
{
    return r->lanes + (int64_t)i * ST_CHUNK;
}

static void read_task(void *arg, int64_t task, int worker)
{
    struct pieces *r = arg;
    struct stretch *s = &r->stretch[task];
    (void)worker;
    if (s->into)
        s->rc = hf_stored_read(&s->x, s->from, s->n, s->into, &s->e);
    else if (r->to->any_order)
        s->rc = pass(r, s);
    else
        s->rc = s->have ? 0 : read_some(r, s, 0, s->n, lane(r, (int)task));
}

/* Reads the stretches that were added, and passes them to the sink. If a stretch fails, all
 * stretches before it have been passed to the sink, and stretches after it may have been
 * passed. */
static int flush(struct pieces *r, struct err *e)
{
    run(r, read_task, r, r->n);
    for (int i = 0; i < r->n; i++) {
        struct stretch *s = &r->stretch[i];
        if (s->rc == 0 && !s->into && !r->to->any_order)
            s->rc = give(r, s, 0, s->n, s->have ? s->have : lane(r, i));
        if (s->rc == 0) continue;
        if (e) *e = s->e;
        return -1;
    }
    r->n = 0;
    return 0;
}

/* Adds s->n elements as stretches. */
static int add(struct pieces *r, const struct stretch *s, struct err *e)
{
    const int64_t longest = s->into ? ST_CHUNK : r->longest;
    for (int64_t at = 0; at < s->n; at += longest) {
        if (r->n == r->most && flush(r, e) < 0) return -1;
        struct stretch *new = &r->stretch[r->n++];
        *new = *s;
        new->from += at;
        new->to += at;
        new->n = least(longest, s->n - at);
        if (s->have) new->have += at;
        if (s->into) new->into += at;
        new->blocks = as_blocks(r, new);
    }
    return 0;
}

/* ---- tensors that files have in another order ------------------------------------------------ */

struct reorder { /* a block that is converted to the order of the flat layout */
    const struct param *p;
    const float *file;
    float *ours;
    bool transposed;
};

static void reorder_task(void *arg, int64_t task, int worker)
{
    const struct reorder *b = arg;
    const int64_t first = task * STRIP;
    (void)worker;
    hf_block_rows_here(b->p, b->file, b->ours, b->transposed, first,
                       least(first + STRIP, hf_block_rows(b->p)));
}

static int add_blocks(struct pieces *r, const struct hf_stored *x, const struct param *p,
                      struct err *e)
{
    const int64_t size = hf_block_size(p);
    const struct reorder o = {p, r->block, r->block + size, x->t && p->transposed};
    for (int64_t b = 0; b * size < p->count; b++) {
        struct stretch in = {.x = *x, .from = b * size, .n = size, .into = r->block};
        struct stretch out = {.x = *x, .to = p->offset + b * size, .n = size, .have = o.ours};
        if (flush(r, e) < 0 || add(r, &in, e) < 0 || flush(r, e) < 0) return -1;
        run(r, reorder_task, (void *)&o, (hf_block_rows(p) + STRIP - 1) / STRIP);
        if (add(r, &out, e) < 0) return -1;
    }
    return flush(r, e);
}

/* Adds the elements of a tensor in the order of the flat layout. */
static int add_tensor(struct pieces *r, const struct hf_stored *x, const struct param *p,
                      struct err *e)
{
    const int64_t size = hf_run_size(p);
    if (hf_by_blocks(p)) return add_blocks(r, x, p, e);
    for (int64_t i = 0; i * size < p->count; i++) {
        const struct stretch s = {
            .x = *x, .from = hf_run_in_file(p, i) * size, .to = p->offset + i * size, .n = size};
        if (add(r, &s, e) < 0) return -1;
    }
    return 0;
}

/* ---- all tensors ----------------------------------------------------------------------------- */

static void pieces_destroy(struct pieces *r)
{
    if (!r) return;
    free(r->lanes);
    free(r->block);
    free(r);
}

/* Returns the number of elements of the largest block of n tensors. Returns 0 if no tensor is read
 * by blocks. */
static int64_t largest_block(const struct param *list, int n)
{
    int64_t most = 0;
    for (int i = 0; i < n; i++)
        if (hf_by_blocks(&list[i]) && hf_block_size(&list[i]) > most)
            most = hf_block_size(&list[i]);
    return most;
}

static struct pieces *pieces_create(const struct hf_sink *to, const struct param *list, int n,
                                    struct err *e)
{
    struct pieces *r = calloc(1, sizeof *r);
    const int64_t block = largest_block(list, n);
    const int threads = to->be ? to->be->n_threads : 1;
    bool room = r;
    if (room) {
        r->to = to;
        r->most = to->any_order ? STRETCHES : (int)least(LANES, threads > 1 ? 4 * threads : 1);
        r->longest = to->any_order ? STRETCH : ST_CHUNK;
        if (!to->any_order) r->lanes = malloc((size_t)r->most * ST_CHUNK * sizeof *r->lanes);
        if (block) r->block = malloc((size_t)block * 2 * sizeof *r->block);
        room = (to->any_order || r->lanes) && (!block || r->block);
    }
    if (room) return r;
    pieces_destroy(r);
    err_set(e, ERR_IO, "out of memory for pieces of a model");
    return NULL;
}

struct tied_check { /* A sink that compares the elements that it receives with a tensor. */
    const struct st_file *f;
    const struct st_tensor *t;
};

static int take_equal(void *arg, int64_t offset, int64_t n, const float *x, struct err *e)
{
    const struct tied_check *c = arg;
    float head[LINE];
    for (int64_t at = 0; at < n; at += LINE) {
        const int64_t k = least(LINE, n - at);
        if (st_read_part(c->f, c->t, offset + at, k, head, e) < 0) return -1;
        if (memcmp(head, x + at, (size_t)k * sizeof *x))
            return hf_tied_differs(c->f, c->t->name, e);
    }
    return 0;
}

int hf_check_tied(const struct hf_weights *w, const struct model_shape *m, struct be *be,
                  struct err *e)
{
    struct st_file *head_file;
    struct param p;
    const struct st_tensor *head = m->tied ? hf_lookup(w, family_head(m), &head_file) : NULL;
    if (!head) return 0;
    param_get(m, 0, &p);
    if (!hf_same_shape(head, &p)) return hf_tied_differs(head_file, head->name, e);
    struct tied_check c = {head_file, head};
    const struct hf_sink to = {.take = take_equal, .arg = &c, .be = be, .any_order = true};
    const struct hf_stored embed = hf_stored_find(w, &p);
    struct pieces *r = pieces_create(&to, &p, 1, e);
    p.offset = 0;
    const int rc = r && add_tensor(r, &embed, &p, e) == 0 ? flush(r, e) : -1;
    pieces_destroy(r);
    return rc;
}

/* Records a tensor in to->again if the tensor is stored in blocks, but the sink accepts this
 * tensor only in blocks of a different format. */
static void count_again(const struct hf_sink *to, const struct hf_stored *x, const struct param *p)
{
    enum { SHOWN = 3 };
    struct hf_requant *a = to->again;
    /* st_dtype_size is 0 only for blocks */
    if (!a || !to->take_blocks || !x->t || st_dtype_size(x->t->dtype)) return;
    const enum weights_id format = to->format(to->arg, p->offset);
    if (!format || st_has_blocks(x->t, format)) return;
    const size_t at = strlen(a->names);
    char room[GGUF_NAME_SIZE];
    if (a->n++ < SHOWN)
        snprintf(a->names + at, sizeof a->names - at, "%s%.48s (%s)", at ? ", " : "",
                 st_named(x->f, p->name, room), st_dtype_name(x->t->dtype));
}

static int load_pieces(const char *dir, const struct model_shape *m, const struct hf_sink *to,
                       struct err *e)
{
    int n;
    struct param *list = hf_list(m, &n, e);
    if (list) n = hf_of_base(list, n);
    struct hf_weights *w = list ? hf_weights_open(dir, m, e) : NULL;
    struct pieces *r = w ? pieces_create(to, list, n, e) : NULL;
    int rc = r ? hf_compare(w, dir, m, e) : -1;
    if (rc == 0) rc = hf_check_tied(w, m, to->be, e);
    for (int i = 0; rc == 0 && i < n; i++) {
        const struct hf_stored x = hf_stored_find(w, &list[i]);
        count_again(to, &x, &list[i]);
        rc = add_tensor(r, &x, &list[i], e);
    }
    if (rc == 0) rc = flush(r, e);
    pieces_destroy(r);
    free(list);
    if (w) hf_weights_close(w);
    return rc;
}

int hf_load_pieces(const char *dir, const struct model_shape *m, const struct hf_sink *to,
                   struct err *e)
{
    struct gguf *const kept = model_file_keep(dir);
    const int rc = load_pieces(dir, m, to, e);
    model_file_leave(kept);
    return rc;
}

int hf_read_found(const struct hf_found *from, const struct param *list, int n,
                  const struct hf_sink *to, struct err *e)
{
    struct pieces *r = pieces_create(to, list, n, e);
    int rc = r ? 0 : -1;
    for (int i = 0; rc == 0 && i < n; i++) {
        const struct hf_stored x = {.f = from->f, .t = from->find(from->arg, &list[i])};
        rc = add_tensor(r, &x, &list[i], e);
    }
    if (rc == 0) rc = flush(r, e);
    pieces_destroy(r);
    return rc;
}

/* The tensors of a file whose names have a prefix. */
struct prefixed {
    const struct st_file *f;
    const char *prefix;
};

static const struct st_tensor *find_prefixed(void *arg, const struct param *p)
{
    const struct prefixed *x = arg;
    char name[ST_NAME_SIZE];
    snprintf(name, sizeof name, "%s%s", x->prefix, p->name);
    return st_find(x->f, name);
}

int hf_read_pieces(const struct st_file *f, const struct model_shape *m, const char *prefix,
                   const struct hf_sink *to, struct err *e)
{
    int n;
    struct prefixed of = {f, prefix};
    struct param *list = hf_list(m, &n, e);
    if (list) n = hf_trained(list, n);
    int rc = list ? hf_compare_flat(f, list, n, prefix, e) : -1;
    if (rc == 0) rc = hf_read_found(&(struct hf_found){f, find_prefixed, &of}, list, n, to, e);
    free(list);
    return rc;
}
