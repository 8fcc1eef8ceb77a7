/* pack.h: packs documents into samples of seq_len by concat, none or best_fit, and splits,
 * truncates or drops documents that are longer than seq_len (worker/data/data.h explains these
 * words). With pairs, the two documents of a pair are packed together, and dropped together. A pack
 * covers a range of documents. The range is a whole set, or one source of a weighted mixture.
 * Packing is deterministic, and takes O(n log n) time for n documents. */
#ifndef SEQD_DATA_PACK_H
#define SEQD_DATA_PACK_H

#include "worker/data/data.h"

struct pack_options {
    const struct data *data; /* borrowed */
    int64_t first_document, n_documents;
    int64_t seq_len, longest; /* as in struct order_options */
    int packing, overlong;    /* enum packing_id, overlong_id */
    bool pairs;               /* as in struct order_options */
};

struct piece { /* a fragment of a listed pack or, with pairs, two fragments */
    int64_t token;
    uint32_t length, pos; /* at most JOB_MAX_SEQ */
};

struct pack {
    struct pack_options o;
    int64_t first_token, n_tokens; /* tokens of its documents */
    struct order_stats stats;
    /* The two lists `piece` and `sample_end` are NULL for a concat that leaves out no token,
     * because the samples of such a pack are found without a list. */
    struct piece *piece; /* owned [stats.n_fragments, or half of it with pairs], sample by sample */
    int64_t *sample_end; /* owned [stats.n_samples]: index at which the pieces of each sample
                          * end */
};

/* Opens a pack. If all documents were dropped, the pack has no samples and n_samples is 0. In
 * that case this function does not fail. Fails as data_order_open does. */
int pack_open(struct pack *p, const struct pack_options *o, struct err *e);
void pack_close(struct pack *p);
/* Returns the tokens of the shortest document, or of the shortest pair, before data.overlong cuts
 * any. The pack must be open and have a document. */
int64_t pack_shortest(const struct pack *p);
/* Sets the members index, n_tokens, n_fragments and first of *s for sample `index`, which is in
 * [0, n_samples). */
void pack_sample(const struct pack *p, int64_t index, struct sample *s);
void pack_fragment(const struct pack *p, const struct sample *s, int64_t k, struct fragment *f);

#endif
