/* trade.h: words of other training programs, and seqd's word for each. tested:
 * tests/engine/test_job.c */
#ifndef SEQD_CORE_TRADE_H
#define SEQD_CORE_TRADE_H

struct trade_word {
    const char *word;
    const char *field; /* the field of the job spec for word; NULL: this version has none */
    const char *why;   /* reason that there is no field, as a clause; else NULL */
};

/* Finds the last part of a path ("train.num_train_epochs"), in upper or lower case, with - or _.
 * NULL: the list does not have it. */
const struct trade_word *trade_find(const char *path);
const struct trade_word *trade_row(int i); /* NULL past the last */

#endif
