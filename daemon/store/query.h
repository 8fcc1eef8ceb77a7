/* query.h: a query to the store, and how it is answered. Used by reader.c. */
#ifndef SEQD_DAEMON_STORE_QUERY_H
#define SEQD_DAEMON_STORE_QUERY_H

#include "daemon/store/txn.h"

struct sqlite3;

struct query {
    struct answer answer;
    struct query *next;
    enum store_ask what;
    int64_t n[4];
    char *text;
    struct store_rows rows;
    struct err err;
    store_answer *call;
    void *arg;
};

/* Fills rows, or err. */
void query_run(struct sqlite3 *db, struct query *a);
void query_free(struct query *a);

#endif
