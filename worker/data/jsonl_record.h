/* jsonl_record.h: parses one record of a JSONL file. The members of a record decide its kind. A
 * record with the members of two kinds is refused, because its kind is ambiguous. Strings are
 * unescaped in place. */
#ifndef SEQD_DATA_JSONL_RECORD_H
#define SEQD_DATA_JSONL_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"

struct jsonl_member {
    char *at; /* points into the line; NULL if there is no such member */
    size_t len;
};

struct jsonl_ids {
    int64_t *at; /* owned */
    size_t n, room;
    bool given;
};

struct jsonl_list {        /* a list whose name is not one of the known members */
    const char *name, *at; /* both point into the line: the escaped key, and the JSON text of the
                            * list */
    size_t name_len, len, n;
};

struct jsonl_record {
    struct jsonl_member text, prompt, completion;
    struct jsonl_member messages; /* the JSON text of the list */
    const char *no_list;          /* kind of the value of "messages" if this value is not a list;
                                   * NULL if it is a list or absent */
    const char *beside;           /* a member that a conversation may not have; NULL if none was
                                   * found */
    struct jsonl_ids input_ids, labels, loss_mask;
    struct jsonl_list *list; /* owned [n_lists] */
    size_t n_lists, list_room;
    size_t first, n; /* the range of input_ids that attention_mask keeps */
};

/* Parses a line of a file. key is the member that has the text. Later lines use the arrays of the
 * record again, so set the record to zero before the first line, and free it with
 * jsonl_record_fini after the last.
 * Fails with ERR_INVALID, ERR_UNSUPPORTED or ERR_IO. */
int jsonl_record_parse(struct jsonl_record *r, const char *key, char *line, size_t n,
                       struct err *e);
void jsonl_record_fini(struct jsonl_record *r);

#endif
