/* trade.h: the words of other training programs, with seqd's word for each. tested:
 * tests/engine/test_job.c */
#ifndef SEQD_CORE_TRADE_H
#define SEQD_CORE_TRADE_H

struct trade_word {
    const char *word;
    const char *field; /* the field of the job spec that means the same as the word; NULL if this
                        * version has no such field */
    const char *why;   /* if field is NULL, the reason why there is no field, as a clause;
                        * otherwise NULL */
    const char *more;  /* text that follows the field's name in a sentence: the value of the field,
                        * as JSON, and a field that belongs beside it, or a clause that says how
                        * the field differs from the word; NULL if there is no such text */
};

/* Finds the word that is the last part of a path ("train.num_train_epochs"). A word with a dot must
 * be the whole path, where "*" stands for an index. Upper and lower case are equal, and so are -
 * and _. Returns NULL if the table does not have the word. */
const struct trade_word *trade_find(const char *path);
const struct trade_word *trade_row(int i); /* NULL past the last */

/* A value that other programs have for a field. */
struct trade_value {
    const char *field; /* of the job spec */
    const char *word;  /* no word of the field */
    const char *write; /* the words to write in its place: the value, as JSON, and a field that
                        * belongs beside it */
};

/* Finds the value `word` of a field. Case, and - and _, are as in trade_find. Returns NULL if the
 * table does not have it. */
const struct trade_value *trade_value_find(const char *field, const char *word);
const struct trade_value *trade_value_row(int i); /* NULL past the last */

#endif
