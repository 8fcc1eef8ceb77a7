/* corpus.h: writes documents of random ids, some of which are masked at random, and keeps their
 * tokens for comparison. */
#ifndef SEQD_TESTS_CORPUS_H
#define SEQD_TESTS_CORPUS_H

#include "api/core/job.h"
#include "tests/lib/datadir.h"

enum { MAX_DOCS = 400, MAX_TOKENS = 40000, V = 70000 };

/* the documents and tokens that were written, in the order in which corpus_write drew them */
struct corpus {
    struct data *d;
    int64_t n_docs, n_tokens;
    int64_t start[MAX_DOCS + 1];
    int32_t ids[MAX_TOKENS];
    uint8_t learn[MAX_TOKENS];
};

static uint64_t seed = 1;

static inline int64_t draw(int64_t n) /* returns an integer in [0, n), drawn by xorshift */
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (int64_t)(seed % (uint64_t)n);
}

/* Draws n_docs documents, each of 1 to `most` tokens, and appends them to the file `name` as
 * records of ids. If masked is set, some of the tokens are masked. */
static inline void corpus_write(struct corpus *c, const char *name, int64_t n_docs, int64_t most,
                                bool masked)
{
    char *text = malloc((size_t)(n_docs * most) * 12 + (size_t)n_docs * 64), *at = text;
    for (int64_t k = 0; k < n_docs; k++, c->n_docs++) {
        const int64_t n = 1 + draw(most), first = c->n_tokens;
        c->start[c->n_docs] = first;
        for (int64_t i = 0; i < n; i++, c->n_tokens++) {
            c->ids[c->n_tokens] = (int32_t)draw(V);
            c->learn[c->n_tokens] = !masked || draw(3) > 0;
        }
        at += sprintf(at, "{\"input_ids\":[");
        for (int64_t i = first; i < c->n_tokens; i++)
            at += sprintf(at, "%s%d", i > first ? "," : "", c->ids[i]);
        at += sprintf(at, "],\"loss_mask\":[");
        for (int64_t i = first; i < c->n_tokens; i++)
            at += sprintf(at, "%s%d", i > first ? "," : "", c->learn[i]);
        at += sprintf(at, "]}\n");
    }
    c->start[c->n_docs] = c->n_tokens;
    put(name, text, (size_t)(at - text));
    free(text);
}

static inline void corpus_begin(struct corpus *c)
{
    c->n_docs = c->n_tokens = 0;
    sources_begin();
    spec->model.shape.vocab = V;
}

static inline void corpus_make(struct corpus *c, int64_t n_docs, int64_t most, bool masked)
{
    corpus_begin(c);
    corpus_write(c, "corpus.jsonl", n_docs, most, masked);
    source_add("corpus.jsonl", DATA_JSONL, NULL);
    c->d = prepare_open();
    CHECK(data_stats(c->d)->n_tokens == c->n_tokens && data_stats(c->d)->n_documents == n_docs);
}

static struct corpus corp; /* static because it has 200 KiB, too many for the stack */

#endif
