/* spell.c: feeds ids to the tokenizer's decoder, records the length of the text after each token,
 * and searches new text for stop strings. */
#include "worker/infer/spell.h"

#include <stdlib.h>
#include <string.h>
#include "api/core/mutant.h"

void spell_fini(struct spell *s)
{
    detokenizer_destroy(s->decoder);
    text_fini(&s->all);
    text_fini(&s->prompt);
    free(s->end);
    *s = (struct spell){0};
}

static int add_end(struct spell *s, struct err *e)
{
    if (s->n == s->room) {
        const int64_t room = s->room ? 2 * s->room : 256;
        int64_t *more = realloc(s->end, (size_t)room * sizeof *more);
        if (!more) return err_set(e, ERR_IO, "out of memory for %lld tokens", (long long)room);
        s->end = more;
        s->room = room;
    }
    s->end[s->n++] = s->all.n;
    return 0;
}

int spell_begin(struct spell *s, struct tokenizer *t, const int32_t *ids, int64_t n, struct err *e)
{
    detokenizer_destroy(s->decoder);
    s->all.n = s->prompt.n = s->n = 0;
    s->decoder = detokenizer_create(t, true);
    if (!s->decoder) return err_set(e, ERR_IO, "out of memory for a decoder");
    if (tokenizer_decode(t, ids, n, true, &s->prompt, e) < 0) return -1;
    for (int64_t i = 0; i < n; i++)
        if (detokenizer_put(s->decoder, ids[i], &s->all, e) < 0 || add_end(s, e) < 0) return -1;
    s->n_prompt = n;
    s->begin = s->fed = s->all.n;
    s->late = s->prompt.n > s->all.n;
    return 0;
}

/* Finds the first byte of the continuation in the text. If the prompt ends in the middle of a
 * character, the continuation begins with that character. */
static void find_begin(struct spell *s, bool last)
{
    const int64_t rest = s->prompt.n - s->begin;
    if (!s->late || (s->all.n < s->prompt.n && !last)) return;
    s->late = false;
    if (s->all.n >= s->prompt.n &&
        !memcmp(s->all.data + s->begin, s->prompt.data + s->begin, (size_t)rest))
        s->begin = s->fed = s->prompt.n;
}

static int64_t feed(struct spell *s, struct stop *stop)
{
    while (!s->late && s->fed < s->all.n) {
        const int found = stop_feed(stop, (unsigned char)s->all.data[s->fed++]);
        if (found) return s->fed - found;
    }
    return -1;
}

int spell_put(struct spell *s, struct stop *stop, int32_t id, int64_t *cut, struct err *e)
{
    if (mutant_on(MUTANT_STOP_FORGOTTEN)) stop_begin(stop);
    if (detokenizer_put(s->decoder, id, &s->all, e) < 0) return -1;
    find_begin(s, false);
    *cut = feed(s, stop);
    return add_end(s, e);
}

int spell_finish(struct spell *s, struct stop *stop, int64_t *cut, struct err *e)
{
    if (detokenizer_finish(s->decoder, &s->all, e) < 0) return -1;
    find_begin(s, true);
    *cut = feed(s, stop);
    return 0;
}

int64_t spell_tokens(const struct spell *s, int64_t cut)
{
    int64_t n = 0;
    while (s->n_prompt + n < s->n && s->end[s->n_prompt + n] <= cut) n++;
    return n;
}
