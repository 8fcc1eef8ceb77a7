/* jsonl_record.h: one record of a JSONL file. Its members decide its kind. A record with the
 * members of two kinds is refused, because it is not clear which kind is meant. Strings are
 * unescaped in place. */
#ifndef SEQD_DATA_JSONL_RECORD_H
#define SEQD_DATA_JSONL_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"

struct jsonl_member {
    char *at; /* into the line; NULL: no such member */
    size_t len;
};

struct jsonl_ids {
    int64_t *at; /* owned */
    size_t n, room;
    bool given;
};

struct jsonl_list {        /* a list that is not one of the known members */
    const char *name, *at; /* into the line: the escaped key; the list's JSON text */
    size_t name_len, len, n;
};

struct jsonl_record {
    struct jsonl_member text, prompt, completion;
    struct jsonl_member messages; /* the JSON text of the list */
    const char *no_list;          /* the kind of value that "messages" has if it is not a list;
                                   * NULL: it is a list or absent */
    const char *beside;           /* a member that a conversation may not have; NULL: none was
                                   * found */
    struct jsonl_ids input_ids, labels, loss_mask;
    struct jsonl_list *list; /* owned [n_lists] */
    size_t n_lists, list_room;
    size_t first, n; /* the range of input_ids that attention_mask keeps */
};

/* Parses a line of a file; key: the member that holds the text. Later lines use the arrays of the
 * record again: set the record to zero before the first line, and free it with jsonl_record_fini
 * after the last.
 * fails: ERR_INVALID, ERR_UNSUPPORTED, ERR_IO. */
int jsonl_record_parse(struct jsonl_record *r, const char *key, char *line, size_t n,
                       struct err *e);
void jsonl_record_fini(struct jsonl_record *r);

#endif
