/* jsonl_record.h: parses one record of a JSONL file. The members of a record decide its kind.
 * A record that has all members of one kind and also all members of another kind is refused,
 * because its kind is ambiguous. Strings are unescaped in place. */
#ifndef SEQD_DATA_JSONL_RECORD_H
#define SEQD_DATA_JSONL_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/jread.h"

struct jsonl_member {
    char *at; /* pointer into the line; NULL if the record has no such member */
    size_t len;
};

struct jsonl_part {            /* a prompt or a completion: a string or a list of messages */
    struct jsonl_member text;  /* the string */
    struct jsonl_member turns; /* the JSON text of the elements of the list, without brackets */
    const char *other;         /* the kind of another value; NULL if it is one of these or null */
};

/* How a list "conversations", which is not read, names the members of its messages. */
enum jsonl_talk { TALK_NONE, TALK_ROLE, TALK_FROM };

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
    struct jsonl_member text;
    struct jsonl_part prompt, completion;
    struct jsonl_member messages; /* the JSON text of the list */
    const char *no_list;          /* if the value of "messages" is not a list, the kind of that
                                   * value; otherwise NULL */
    enum jsonl_talk talk;
    unsigned answers;   /* 1 if there is a member "chosen", and 2 if there is "rejected";
                                   * a record with both is a preference (preference.h) */
    const char *beside; /* a member that a conversation may not have; NULL if none was
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
/* Checks that the elements of the list `key` of messages are objects. `j` is past the list's first
 * token, and after the call past its last. */
int jsonl_record_turns(struct jread *j, const char *key, struct err *e);
/* Tells whether prompt and completion are lists of messages, which form a conversation. */
bool jsonl_record_talk(const struct jsonl_record *r);
void jsonl_record_fini(struct jsonl_record *r);

#endif
