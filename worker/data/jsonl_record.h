/* jsonl_record.h: parses one record of a JSONL file. The members of a record decide its kind.
 * A record that has all members of one kind and also all members of another kind is refused,
 * because its kind is ambiguous. Strings are unescaped in place. */
#ifndef SEQD_DATA_JSONL_RECORD_H
#define SEQD_DATA_JSONL_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"

struct jsonl_member {
    char *at; /* pointer into the line; NULL if the record has no such member */
    size_t len;
};

struct jsonl_ids {
    int64_t *at; /* owned */
    size_t n, room;
    bool given;
};

struct jsonl_list {        /* a list in the record whose name is not one of the known members */
    const char *name, *at; /* both pointers point into the line; `name` is the escaped key, and
                            * `at` is the JSON text of the list */
    size_t name_len, len, n;
};

struct jsonl_record {
    struct jsonl_member text, prompt, completion;
    struct jsonl_member messages; /* the JSON text of the list */
    const char *no_list;          /* if the value of "messages" is not a list, the kind of that
                                   * value; otherwise NULL */
    bool no_string;               /* whether the value of "prompt" is not a string */
    unsigned answers;             /* 1 if there is a member "chosen", and 2 if there is "rejected";
                                   * a record with both is a preference (preference.h) */
    const char *beside;           /* a member that a conversation may not have; NULL if none was
                                   * found */
    struct jsonl_ids input_ids, labels, loss_mask;
    struct jsonl_list *list; /* owned [n_lists] */
    size_t n_lists, list_room;
    size_t first, n; /* the range of input_ids that attention_mask keeps */
};

/* Parses a line of a file. The parameter `key` is the name of the member that has the text.
 * Set the record to zero before the first line, because later lines use its arrays again. Free
 * it with jsonl_record_fini after the last line. Fails with ERR_INVALID, ERR_UNSUPPORTED or
 * ERR_IO. */
int jsonl_record_parse(struct jsonl_record *r, const char *key, char *line, size_t n,
                       struct err *e);
void jsonl_record_fini(struct jsonl_record *r);

#endif
