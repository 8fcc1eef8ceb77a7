/* buffer.c: grows arrays by doubling, and appends text, runs with their source offsets, and ids. */
#include "worker/text/buffer.h"

#include <stdlib.h>
#include <string.h>
#include "worker/text/rune.h"

int buffer_grow(void **array, int64_t *room, int64_t have, int64_t n, size_t size)
{
    if (n <= *room - have) return 0;
    int64_t want = *room * 2 > have + n ? *room * 2 : have + n;
    if (want < 64) want = 64;
    void *p = realloc(*array, (size_t)want * size);
    if (!p) return -1;
    *array = p;
    *room = want;
    return 0;
}

int buffer_full(struct err *e)
{
    return err_set(e, ERR_IO, "tokenizer: out of memory");
}

int text_add(struct text *t, const char *s, int64_t n)
{
    if (buffer_grow((void **)&t->data, &t->room, t->n, n + 1, 1) < 0) return -1;
    if (n) memcpy(t->data + t->n, s, (size_t)n);
    t->n += n;
    t->data[t->n] = 0;
    return 0;
}

void text_fini(struct text *t)
{
    free(t->data);
    *t = (struct text){0};
}

void text_tokens_fini(struct tokens *t)
{
    free(t->id);
    free(t->begin);
    free(t->end);
    *t = (struct tokens){0};
}

void text_run_buffer_fini(struct run_buffer *b)
{
    text_fini(&b->text);
    free(b->from);
    free(b->to);
    *b = (struct run_buffer){0};
}

static int span_room(struct run_buffer *b, int64_t n)
{
    return buffer_grow((void **)&b->from, &b->span_room[0], b->text.n, n, sizeof *b->from) < 0 ||
                   buffer_grow((void **)&b->to, &b->span_room[1], b->text.n, n, sizeof *b->to) < 0
               ? -1
               : 0;
}

int text_run_put(struct run_buffer *b, const char *s, int64_t n, int64_t from, int64_t to)
{
    if (b->spans) {
        if (span_room(b, n) < 0) return -1;
        for (int64_t i = b->text.n; i < b->text.n + n; i++) {
            b->from[i] = (int32_t)from;
            b->to[i] = (int32_t)to;
        }
    }
    return text_add(&b->text, s, n);
}

int text_run_copy(struct run_buffer *b, const struct text_run *r, int64_t begin, int64_t end)
{
    if (b->spans) {
        if (span_room(b, end - begin) < 0) return -1;
        for (int64_t i = begin, o = b->text.n; i < end; i++, o++) {
            b->from[o] = (int32_t)run_from(r, i);
            b->to[o] = (int32_t)run_to(r, i);
        }
    }
    return text_add(&b->text, r->text + begin, end - begin);
}

int text_run_put_rune(struct run_buffer *b, uint32_t rune, int64_t from, int64_t to)
{
    char s[4];
    return text_run_put(b, s, rune_put(s, rune), from, to);
}

struct text_run text_run_of(const struct run_buffer *b)
{
    return (struct text_run){b->text.data ? b->text.data : "", b->text.n, 0,
                             b->spans ? b->from : NULL, b->spans ? b->to : NULL};
}

int text_hits_add(struct hits *h, int32_t id, int64_t begin, int64_t end)
{
    if (h->n == h->room && buffer_grow((void **)&h->v, &h->room, h->n, 1, sizeof *h->v) < 0)
        return -1;
    h->v[h->n++] = (struct hit){id, (int32_t)begin, (int32_t)end};
    return 0;
}
