/* steer.c: makes the mask of each token from the state of the grammar. */
#include "worker/infer/steer.h"

#include <stdlib.h>

void steer_fini(struct steer *s)
{
    free(s->state);
    free(s->allowed);
    *s = (struct steer){0};
}

int steer_begin(struct steer *s, const struct request *r, int64_t n_vocab, struct err *e)
{
    if (!r->grammar || s->state) return 0;
    s->state = malloc(sizeof *s->state);
    s->allowed = malloc((size_t)vocabulary_words(n_vocab) * sizeof *s->allowed);
    if (s->state && s->allowed) return 0;
    steer_fini(s);
    return err_set(e, ERR_IO, "out of memory for the mask of a grammar");
}

void steer_rewind(struct steer *s, const struct request *r)
{
    if (r->grammar) grammar_begin(r->grammar, s->state);
}

static bool has_end(const struct request *r, const struct token_ends *ends)
{
    for (int i = 0; i < ends->n; i++)
        if (ends->id[i] < r->vocabulary->n_vocab) return true;
    return false;
}

static void mark_end(const struct request *r, uint64_t *mask, int32_t id, bool may)
{
    if (id >= r->vocabulary->n_vocab) return;
    if (may)
        mask[id / 64] |= (uint64_t)1 << id % 64;
    else
        mask[id / 64] &= ~((uint64_t)1 << id % 64);
}

const uint64_t *steer_mask(struct steer *s, const struct request *r, const struct token_ends *ends)
{
    if (!r->grammar) return NULL;
    const bool may = grammar_complete(r->grammar, s->state);
    vocabulary_mask(r->vocabulary, r->grammar, s->state, s->allowed);
    for (int i = 0; i < ends->n; i++) mark_end(r, s->allowed, ends->id[i], may);
    return s->allowed;
}

bool steer_stuck(const struct request *r, const uint64_t *mask)
{
    const int64_t words = mask ? vocabulary_words(r->vocabulary->n_vocab) : 0;
    int64_t i = 0;
    while (i < words && !mask[i]) i++;
    return mask && i == words;
}

int steer_take(struct steer *s, const struct request *r, int32_t token,
               const struct token_ends *ends, bool *ended, struct err *e)
{
    *ended = false;
    if (!r->grammar) return 0;
    if (vocabulary_take(r->vocabulary, r->tokenizer, r->grammar, s->state, token, e)) return -1;
    *ended = grammar_ended(s->state) ||
             (!has_end(r, ends) && grammar_complete(r->grammar, s->state));
    return 0;
}
