/* trade.h: the words of other training programs, with seqd's word for each. tested:
 * tests/engine/test_job.c */
#ifndef SEQD_CORE_TRADE_H
#define SEQD_CORE_TRADE_H

struct trade_word {
    const char *word;
    const char *field; /* the field of the job spec that has this meaning; NULL if this version has
                        * no such field */
    const char *why;   /* if there is no field, the reason for that, as a clause; otherwise NULL */
};

/* Finds the last part of a path ("train.num_train_epochs"), in upper or lower case, with - or _.
 * Returns NULL if the list does not have it. */
const struct trade_word *trade_find(const char *path);
const struct trade_word *trade_row(int i); /* NULL past the last */

#endif
