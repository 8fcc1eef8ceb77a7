/* trade.h: words that people bring from other trainers, and the word of seqd for the same.
 * tested: tests/engine/test_job.c */
#ifndef SEQD_CORE_TRADE_H
#define SEQD_CORE_TRADE_H

struct trade_word {
    const char *word;
    const char *field; /* of the job spec, which says it; NULL: this version has none */
    const char *why;   /* a clause, of what has no field: what is so instead; else NULL */
};

/* Of the last part of a path ("train.num_train_epochs"), whatever its case, with - or _. NULL: not
 * one of them. */
const struct trade_word *trade_find(const char *path);
const struct trade_word *trade_row(int i); /* NULL past the last */

#endif
