/* cordon.h: nodes that get no new work. Some of them are drained: their gangs save and stop, and
 * the jobs go elsewhere.
 *
 * An operator's order is a row of the store, and outlives seqd and the node. A node whose agent
 * says when it ends (LEAVING) is drained without a row, as soon as its margin before that time
 * begins. */
#ifndef SEQD_DAEMON_STATE_CORDON_H
#define SEQD_DAEMON_STATE_CORDON_H

#include "daemon/state/node.h"
#include "daemon/state/principal.h"
#include "daemon/store/store.h"

#define CORDON_REASON 256

struct cordon {
    char node[NODE_NAME];
    int64_t at_ms; /* UTC; 0: no operator's order: the node itself ends */
    bool drains;
    char by[USER_NAME];
    char reason[CORDON_REASON]; /* "": none was given */
};

struct cordons;
struct cordons *cordons_create(void);
void cordons_destroy(struct cordons *c);
/* Returns the node's row; NULL: it has none. */
const struct cordon *cordon_find(const struct cordons *c, const char *node);
void cordon_load(struct cordons *c, const struct cordon *row); /* takes a row of the store */
/* Cordons the node: its row joins t. fails: ERR_TOO_LARGE, with as many rows as there can be
 * nodes. */
int cordon_set(struct cordons *c, struct store_txn *t, const struct cordon *row, struct err *e);
/* Ends the cordon: the row's end joins t. False: the node has no row. */
bool cordon_end(struct cordons *c, struct store_txn *t, const char *node);

/* Returns the time until the node ends; -1: it is not known to end. */
int64_t cordon_left_ms(const struct node *n, int64_t now_ms);
/* Finds the cordon that holds for the node now, by its row or its end. False: there is none.
 * now_ms: the loop's. */
bool cordon_of(const struct cordons *c, const struct node *n, int64_t now_ms, struct cordon *out);

/* Writes the note for a job that goes because of the cordon: a JSON object. */
void cordon_note(const struct cordon *c, char *out, size_t size);

#endif
