/* Text: a file is a document. If there is a tokenizer, the workers convert parts of the file to
 * ids at the same time, and the parts are added in the order in which the file has them. Parts
 * begin only where this does not change the ids of the whole text (tokenizer_cut). These
 * positions depend only on the text, so the output does not depend on the number of workers. Text
 * without such a position is a single part, which is held in memory as a whole.
 *
 * Several small files are held at the same time. All workers read and hash these files, and
 * then convert their parts to ids. The parts are added in the order of the files. For each
 * worker at most PARTS parts, of one file or of several, are held in memory at any time. A
 * text that cannot be divided is one part, however large it is. */
#include <stdlib.h>
#include "kernels/cpu/pool.h"
#include "worker/data/encode_text.h"
#include "worker/data/format.h"

/* smallest size of a part, except for the last part of a text */
#define PART_SIZE ((size_t)1 << 16)
enum {
    PARTS = 4,  /* number of parts in memory for each worker */
    FILES = 256 /* largest number of files that are in memory at the same time */
};

struct held_part {
    struct text_part part; /* one part of the text; the bytes of the part are in memory */
    struct encode_cut cut;
    struct err e; /* e.code is ERR_NONE if no error has occurred */
};

struct held_parts { /* the parts of one text or of several texts that are in memory */
    struct encode *c;
    struct held_part *held; /* owned [room] */
    int n, room;
};

/* A document whose first parts have been added. */
struct document {
    struct encode *c;
    /* The last token so far. Later bytes may belong to this token, so it is not added yet. */
    struct encode_text last; /* has one token, which is in the members below */
    int32_t id;
    uint32_t bytes;
    uint8_t learn;
    bool any;
    int64_t rest; /* bytes that belong to no token yet */
};

/* ---- tokens ---------------------------------------------------------------------------------- */

static void document_begin(struct document *d, struct encode *c)
{
    *d = (struct document){.c = c};
    d->last.ids.id = &d->id;
    d->last.bytes = &d->bytes;
    d->last.learn = &d->learn;
}

static int put_last(struct document *d, struct err *e)
{
    const struct encode_cut one = {.by = &d->last, .n = 1};
    return d->any ? encode_put(d->c, &one, e) : 0;
}

/* Adds the tokens of a part except the last token. The last token is kept, because bytes of
 * the next part may belong to this token. */
static int put_cut(struct document *d, struct encode_cut cut, struct err *e)
{
    const struct encode_text *by = cut.by;
    if (!cut.n) {
        d->rest += cut.rest;
        return 0;
    }
    by->bytes[cut.at] += (uint32_t)d->rest;
    d->rest = cut.rest;
    if (put_last(d, e) < 0) return -1;
    cut.n--;
    d->id = by->ids.id[cut.at + cut.n];
    d->bytes = by->bytes[cut.at + cut.n];
    d->learn = by->learn[cut.at + cut.n];
    d->last.end = by->end;
    d->any = true;
    return encode_put(d->c, &cut, e);
}

static int put_part(struct document *d, const struct held_part *h, struct err *e)
{
    if (h->e.code != ERR_NONE && e) *e = h->e;
    return h->e.code != ERR_NONE ? -1 : put_cut(d, h->cut, e);
}

static int put_end(struct document *d, struct err *e)
{
    d->bytes += (uint32_t)d->rest;
    return put_last(d, e);
}

/* ---- parts ----------------------------------------------------------------------------------- */

static void cut_part(void *arg, int64_t task, int worker)
{
    struct held_parts *p = arg;
    struct held_part *h = &p->held[task];
    h->e.code = ERR_NONE;
    h->e.field[0] = 0;
    encode_text_part(&p->c->text[worker], &h->part, &h->cut, &h->e);
}

/* Converts the parts in memory to tokens. */
static void cut_parts(struct held_parts *p)
{
    for (int i = 0; i < p->c->n_workers; i++) encode_text_forget(&p->c->text[i]);
    pool_run(p->c->pool, cut_part, p, p->n);
}

static void hold_part(struct held_parts *p, const char *text, size_t n, int64_t offset, bool last)
{
    p->held[p->n++].part = (struct text_part){
        .text = text, .n = n, .offset = offset, .begins = offset == 0, .ends = last};
}

/* ---- one text -------------------------------------------------------------------------------- */

struct text_in_parts {
    struct format_in *in;
    struct held_parts parts;
    struct document doc;
    bool ended;           /* set when the last part has been found */
    size_t cut, searched; /* number of the reader's bytes that were divided into parts, and
                           * number of bytes that were searched for the end of the next part */
};

/* Converts the parts in memory to tokens, and adds the tokens. */
static int put_parts(struct text_in_parts *s, struct err *e)
{
    cut_parts(&s->parts);
    for (int i = 0; i < s->parts.n; i++)
        if (put_part(&s->doc, &s->parts.held[i], e) < 0) return -1;
    s->parts.n = 0;
    return 0;
}

static void hold(struct text_in_parts *s, size_t end, bool last)
{
    const struct reader *r = s->in->r;
    hold_part(&s->parts, r->buf + s->cut, end - s->cut, r->at + (int64_t)s->cut, last);
    s->cut = s->searched = end;
    s->ended = last;
}

/* Finds the next part in the reader's bytes. Returns 1 if it has found a part, and 0 if it needs
 * more bytes. */
static int next_part(struct text_in_parts *s, struct err *e)
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

static int read_more(struct text_in_parts *s, struct err *e)
{
    struct reader *r = s->in->r;
    if (r->n == r->room && reader_grow(r, TOKENIZER_TEXT_SIZE, e) < 0)
        return err_prefix(e,
                          "%s is one text, and the tokenizer of model.path takes at most 1 GiB "
                          "that its rules do not allow to cut: give jsonl, a document a line",
                          r->path);
    return reader_fill(r, e);
}

/* Adds all parts of the reader's bytes, and then moves the rest of the bytes to the front of the
 * buffer. Returns 1 if it has added a part, 0 if it has not, and -1 after a failure. */
static int cut_held(struct text_in_parts *s, struct err *e)
{
    int rc = 1;
    while (rc > 0 && !s->ended) {
        while (s->parts.n < s->parts.room && !s->ended && (rc = next_part(s, e)) > 0) continue;
        if (rc < 0 || put_parts(s, e) < 0) return err_prefix(e, "%s", s->in->r->path);
    }
    const bool any = s->cut > 0;
    reader_drop(s->in->r, s->cut);
    s->searched -= s->cut;
    s->cut = 0;
    return any;
}

static int read_parts(struct text_in_parts *s, struct err *e)
{
    const struct reader *r = s->in->r;
    const size_t want = (size_t)s->parts.room * PART_SIZE;
    while (!s->ended) {
        while (!r->end && r->n < want)
            if (read_more(s, e) < 0) return -1;
        const int rc = cut_held(s, e);
        if (rc < 0 || (!rc && !s->ended && read_more(s, e) < 0)) return -1;
    }
    return put_end(&s->doc, e) < 0 ? err_prefix(e, "%s", r->path) : 0;
}

static int read_text(struct format_in *in, struct err *e)
{
    struct text_in_parts s = {.in = in, .parts = {in->c, NULL, 0, PARTS * in->c->n_workers}};
    document_begin(&s.doc, in->c);
    s.parts.held = calloc((size_t)s.parts.room, sizeof *s.parts.held);
    const int rc = s.parts.held ? read_parts(&s, e) : err_set(e, ERR_IO, "out of memory");
    free(s.parts.held);
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

/* ---- small files ----------------------------------------------------------------------------- */

struct held_file {
    const struct meta_file *of; /* borrowed */
    /* bytes of the file; they are in `buf`, which has room for one more byte */
    char *text;
    size_t n;
    bool grew;          /* set if the file has more bytes than it had when it was hashed */
    struct intake into; /* hash of the bytes read */
    int first, end;     /* the file's parts: held[first, end) */
    struct err e;       /* e.code is ERR_NONE if no error has occurred */
};

struct small_files {
    struct format_in *in;
    char *buf; /* owned [room]: bytes of all files in memory */
    size_t room;
    struct held_file *file; /* owned [FILES] */
    int n;
    struct held_parts parts; /* parts of the files, used if a tokenizer converts text to tokens */
};

static void read_held(void *arg, int64_t task, int worker)
{
    struct small_files *s = arg;
    struct held_file *f = &s->file[task];
    const size_t room = (size_t)f->of->size + 1;
    sha256_init(&f->into.sha);
    reader_whole(s->in->root, f->of->path, &f->into, f->text, room, &f->n, &f->e);
    f->grew = f->n == room;
}

/* Reads files of the array file [n] into memory, beginning with file[0], as long as there is
 * room. */
static void hold_files(struct small_files *s, const struct meta_file *file, int n)
{
    size_t used = 0;
    for (s->n = 0; s->n < n && s->n < FILES; s->n++) {
        const size_t want = (size_t)file[s->n].size + 1;
        if (want > s->room - used) return;
        s->file[s->n] = (struct held_file){.of = &file[s->n], .text = s->buf + used};
        used += want;
    }
}

static int hold_parts_of(struct small_files *s, struct held_file *f)
{
    int64_t at = 0;
    for (size_t cut = 0; at >= 0; cut = (size_t)at) {
        const size_t first = cut + PART_SIZE;
        at = -1;
        if (first < f->n && encode_text_cut(s->in->c->text, f->text, f->n, first, &at, &f->e) < 0)
            return err_prefix(&f->e, "%s", f->of->path);
        hold_part(&s->parts, f->text + cut, (at < 0 ? f->n : (size_t)at) - cut, (int64_t)cut,
                  at < 0);
    }
    return 0;
}

/* Divides the files that are in memory into parts, and adds these parts to the list of parts.
 * Stops at the first file that cannot be added. */
static void hold_parts(struct small_files *s)
{
    int rc = 0;
    s->parts.n = 0;
    for (int i = 0; i < s->n && rc == 0; i++) {
        struct held_file *f = &s->file[i];
        f->first = s->parts.n;
        if (f->grew || f->e.code != ERR_NONE) return;
        rc = hold_parts_of(s, f);
        f->end = s->parts.n;
    }
}

static int put_text(struct small_files *s, const struct held_file *f, struct err *e)
{
    struct document d;
    if (!s->in->c->text) return encode_bytes(s->in->c, f->text, f->n, true, e);
    document_begin(&d, s->in->c);
    for (int i = f->first; i < f->end; i++)
        if (put_part(&d, &s->parts.held[i], e) < 0) return -1;
    return put_end(&d, e);
}

static int put_file(struct small_files *s, struct held_file *f, uint32_t index, struct err *e)
{
    struct encode *c = s->in->c;
    if (f->e.code != ERR_NONE && e) *e = f->e;
    if (f->e.code != ERR_NONE) return -1;
    progress_add(s->in->progress, (double)f->n);
    encode_file(c, c->set, c->source, index);
    if (put_text(s, f, e) < 0) return err_prefix(e, "%s", f->of->path);
    if (encode_end(c, true, 0, 0, e) < 0) return -1;
    return reader_unchanged(&f->into, f->of->path, f->of->sha256, e);
}

/* Reads and adds as many files as can be in memory at the same time. Returns the number of
 * files that were added. */
static int read_some(struct small_files *s, const struct meta_file *file, uint32_t index, int n,
                     struct err *e)
{
    hold_files(s, file, n);
    pool_run(s->in->c->pool, read_held, s, s->n);
    if (s->in->c->text) {
        hold_parts(s);
        cut_parts(&s->parts);
    }
    for (int i = 0; i < s->n; i++) {
        if (s->file[i].grew) return i;
        if (put_file(s, &s->file[i], index + (uint32_t)i, e) < 0) return -1;
    }
    return s->n;
}

int format_read_texts(struct format_in *in, const struct meta_file *file, uint32_t index, int n,
                      struct err *e)
{
    const int room = PARTS * in->c->n_workers;
    struct small_files s = {.in = in, .room = (size_t)room * PART_SIZE};
    int done = 0, some = 0;
    if (!n || (size_t)file->size >= s.room) return 0;
    s.parts = (struct held_parts){in->c, calloc((size_t)room + FILES, sizeof *s.parts.held), 0, 0};
    s.buf = malloc(s.room);
    s.file = calloc(FILES, sizeof *s.file);
    if (!s.buf || !s.file || !s.parts.held)
        some = err_set(e, ERR_IO, "out of memory");
    else
        while ((some = read_some(&s, file + done, index + (uint32_t)done, n - done, e)) > 0)
            done += some;
    free(s.parts.held);
    free(s.buf);
    free(s.file);
    return some < 0 ? -1 : done;
}
