/* txn.h: a request to the store, which is a list of operations. Only the files of the store use
 * it. */
#ifndef SEQD_DAEMON_STORE_TXN_H
#define SEQD_DAEMON_STORE_TXN_H

#include "daemon/store/answers.h"
#include "daemon/store/store.h"

struct store_writer;

enum txn_op_type {
    OP_JOB_NEW,
    OP_JOB_SET,
    OP_TAG,
    OP_TAG_STATE,
    OP_LABELS_END,
    OP_SPEC,
    OP_RESULT,
    OP_EVENT,
    OP_METRICS,
    OP_MARK,
    OP_PART_MARK,
    OP_KEY,
    OP_BLAME,
    OP_BLAME_END,
    OP_QUARANTINE,
    OP_QUARANTINE_END,
    OP_CORDON,
    OP_CORDON_END,
    OP_UNREADABLE,
    OP_TOKEN,
    OP_TOKEN_REVOKE,
    OP_TOKEN_USED,
    OP_TOKENS_FORGET,
    OP_AUDIT,
    OP_AUDIT_ANSWER,
    OP_JOIN_TOKEN,
    OP_JOIN_TOKEN_USE,
    OP_JOIN_TOKEN_END,
    OP_CERTIFICATE,
    OP_CERTIFICATE_REVOKE,
    OP_CERTIFICATE_END,
    OP_REVOCATION,
    OP_REVOCATION_END,
    OP_REMOVAL,
    OP_REMOVAL_NODES,
    OP_REMOVAL_HIDE,
    OP_REMOVAL_KEYS,
    OP_REMOVAL_FILES,
    OP_REMOVAL_SIZE,
    OP_REMOVAL_NODE,
    OP_REMOVAL_END,
    OP_REMOVAL_ERROR,
    OP_REMOVAL_WAITS,
    OP_NEWER,
    OP_AS_BEFORE,
    OP_REMOVAL_CUT,
    OP_REMOVALS_FORGET,
    OP_AUDIT_FORGET,
    OP_ENDED,
    OP_ORDER,
    OP_ORDER_COUNT,
    OP_ORDER_SET,
    OP_ORDERS_FORGET,
    OP_IMAGE,
    OP_IMAGE_END,
    OP_ENDED_FILL,   /* carried out by remove.c, without a statement */
    OP_REMOVAL_ROWS, /* carried out by remove.c, without a statement */
    OP_N
};

/* The statement of each operation. ?1..?4 stand for n[0..3], ?5..?7 for text[0..2], ?8 for n[4]
 * and ?9 for text[3]. */
extern const char *const txn_sql[OP_N];
struct txn_op {
    struct txn_op *next;
    enum txn_op_type type;
    int64_t n[5];
    char *text[4];
    size_t blob_size; /* if it is not 0, text[0] has that many bytes and is no text */
    int64_t *out;     /* result of an operation of remove.c; borrowed until the answer is given */
};

struct store_txn {
    struct answer answer;
    struct store_txn *next;
    struct txn_op *first, **last;
    store_done *done;
    void *arg;
    struct store_writer *writer; /* set when the request is queued */
    bool is_new;                 /* the request adds a job, so it is refused while the disk is
                                  * full */
    bool client;                 /* the request may be withdrawn (store_client) */
    store_may *may;              /* NULL if nothing depends on the request */
    /* A COMMIT with the request failed after its last page was written, so that SQLite may still
     * find it in the log. It cannot be withdrawn or refused. */
    bool written;
    struct err err;
};

void txn_free(struct store_txn *t);
/* returns p; if p is NULL, memory is out, and the process ends */
void *txn_must(void *p);
char *txn_copy(const char *text); /* returns a copy, or NULL if text is NULL */

#endif
