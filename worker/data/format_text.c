/* Text: a file is a document. A tokenizer takes it in parts, cut where the ids of the parts are
 * those of the whole (tokenizer_cut), by all workers; then they are put in their order. Where the
 * cuts lie depends on the text alone, so what is written does not depend on the number of workers.
 * Text without such a place is one part, held whole. */
#include <stdlib.h>
#include "kernels/cpu/pool.h"
#include "worker/data/encode_text.h"
#include "worker/data/format.h"

#define PART_SIZE ((size_t)1 << 16) /* of a part at least, but for the last one */
enum { PARTS = 4 };                 /* that are held, for each worker */

struct held_part {
    struct text_part part; /* of the bytes that the reader holds */
    struct encode_cut cut;
    struct err e; /* code ERR_NONE: none */
};

struct texts {
    struct format_in *in;
    struct held_part *held; /* owned [room] */
    int n, room;
    bool ended;           /* the last part has been held */
    size_t cut, searched; /* bytes of the reader's that are cut; without a place for a cut */
    /* The token that was made last: bytes after it may be its own. */
    struct encode_text last; /* of one token, in the three below */
    int32_t id;
    uint32_t bytes;
    uint8_t learn;
    bool any;
    int64_t rest; /* bytes that no token has yet */
};

/* ---- tokens ---------------------------------------------------------------------------------- */

static int put_last(struct texts *s, struct err *e)
{
    const struct encode_cut one = {.by = &s->last, .n = 1};
    return s->any ? encode_put(s->in->c, &one, e) : 0;
}

/* All but its last token. */
static int put_part(struct texts *s, struct encode_cut cut, struct err *e)
{
    const struct encode_text *by = cut.by;
    if (!cut.n) {
        s->rest += cut.rest;
        return 0;
    }
    by->bytes[cut.at] += (uint32_t)s->rest;
    s->rest = cut.rest;
    if (put_last(s, e) < 0) return -1;
    cut.n--;
    s->id = by->ids.id[cut.at + cut.n];
    s->bytes = by->bytes[cut.at + cut.n];
    s->learn = by->learn[cut.at + cut.n];
    s->last.end = by->end;
    s->any = true;
    return encode_put(s->in->c, &cut, e);
}

static int put_end(struct texts *s, struct err *e)
{
    s->bytes += (uint32_t)s->rest;
    return put_last(s, e);
}

/* ---- parts ----------------------------------------------------------------------------------- */

static void cut_part(void *arg, int64_t task, int worker)
{
    struct texts *s = arg;
    struct held_part *h = &s->held[task];
    h->e.code = ERR_NONE;
    h->e.field[0] = 0;
    encode_text_part(&s->in->c->text[worker], &h->part, &h->cut, &h->e);
}

/* Those that are held. */
static int put_parts(struct texts *s, struct err *e)
{
    struct encode *c = s->in->c;
    const int n = s->n;
    for (int i = 0; i < c->n_workers; i++) encode_text_forget(&c->text[i]);
    pool_run(c->pool, cut_part, s, n);
    s->n = 0;
    for (int i = 0; i < n; i++) {
        const struct held_part *h = &s->held[i];
        if (h->e.code != ERR_NONE && e) *e = h->e;
        if (h->e.code != ERR_NONE || put_part(s, h->cut, e) < 0) return -1;
    }
    return 0;
}

static void hold(struct texts *s, size_t end, bool last)
{
    const struct reader *r = s->in->r;
    const int64_t offset = r->at + (int64_t)s->cut;
    s->held[s->n++].part = (struct text_part){.text = r->buf + s->cut,
                                              .n = end - s->cut,
                                              .offset = offset,
                                              .begins = offset == 0,
                                              .ends = last};
    s->cut = s->searched = end;
    s->ended = last;
}

/* The next part of the bytes held: 1, or 0 where more of them are needed. */
static int next_part(struct texts *s, struct err *e)
{
    const struct reader *r = s->in->r;
    const size_t first = s->cut + PART_SIZE;
    int64_t at = -1;
    if (first < r->n && encode_text_cut(s->in->c->text, r->buf, r->n,
                                        s->searched > first ? s->searched : first, &at, e) < 0)
        return -1;
    if (at < 0) s->searched = r->n;
    if (at < 0 && !r->end) return 0;
    hold(s, at < 0 ? r->n : (size_t)at, at < 0);
    return 1;
}

static int read_more(struct texts *s, struct err *e)
{
    struct reader *r = s->in->r;
    if (r->n == r->room && reader_grow(r, TOKENIZER_TEXT_SIZE, e) < 0)
        return err_prefix(e,
                          "%s is one text, and the tokenizer of model.path takes at most 1 GiB "
                          "that its rules do not allow to cut: give jsonl, a document a line",
                          r->path);
    return reader_fill(r, e);
}

/* All parts of the bytes held, then what is left moves to the front. Returns whether there were
 * any. */
static int cut_held(struct texts *s, struct err *e)
{
    int rc = 1;
    while (rc > 0 && !s->ended) {
        while (s->n < s->room && !s->ended && (rc = next_part(s, e)) > 0) continue;
        if (rc < 0 || put_parts(s, e) < 0) return err_prefix(e, "%s", s->in->r->path);
    }
    const bool any = s->cut > 0;
    reader_drop(s->in->r, s->cut);
    s->searched -= s->cut;
    s->cut = 0;
    return any;
}

static int read_parts(struct texts *s, struct err *e)
{
    const struct reader *r = s->in->r;
    const size_t want = (size_t)s->room * PART_SIZE;
    while (!s->ended) {
        while (!r->end && r->n < want)
            if (read_more(s, e) < 0) return -1;
        const int rc = cut_held(s, e);
        if (rc < 0 || (!rc && !s->ended && read_more(s, e) < 0)) return -1;
    }
    return put_end(s, e) < 0 ? err_prefix(e, "%s", r->path) : 0;
}

static int read_text(struct format_in *in, struct err *e)
{
    struct texts s = {.in = in, .room = PARTS * in->c->n_workers};
    s.last.ids.id = &s.id;
    s.last.bytes = &s.bytes;
    s.last.learn = &s.learn;
    s.held = calloc((size_t)s.room, sizeof *s.held);
    const int rc = s.held ? read_parts(&s, e) : err_set(e, ERR_IO, "out of memory");
    free(s.held);
    return rc < 0 ? -1 : encode_end(in->c, true, 0, 0, e);
}

int format_read_text(struct format_in *in, struct err *e)
{
    struct reader *r = in->r;
    if (in->c->text) return read_text(in, e);
    while (!r->end) {
        if (reader_fill(r, e) < 0) return -1;
        if (encode_bytes(in->c, r->buf, r->n, true, e) < 0) return err_prefix(e, "%s", r->path);
        reader_drop(r, r->n);
    }
    return encode_end(in->c, true, 0, 0, e);
}
