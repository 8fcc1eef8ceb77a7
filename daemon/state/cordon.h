/* cordon.h: nodes that get no new work. Some of these nodes are also drained, which means that
 * their gangs save and stop, and that the jobs continue elsewhere.
 *
 * An operator's order is a row of the store, so it is kept when seqd or the node restarts. A node
 * whose agent has reported when it ends (LEAVING) is drained without a row, as soon as its margin
 * before that time begins. */
#ifndef SEQD_DAEMON_STATE_CORDON_H
#define SEQD_DAEMON_STATE_CORDON_H

#include "daemon/state/node.h"
#include "daemon/state/principal.h"
#include "daemon/store/store.h"

#define CORDON_REASON 256

struct cordon {
    char node[NODE_NAME];
    /* UTC; 0 if it is no order of an operator, but the node itself is going to end */
    int64_t at_ms;
    bool drains;
    char by[USER_NAME];
    char reason[CORDON_REASON]; /* "" if none was given */
};

struct cordons;
struct cordons *cordons_create(void);
void cordons_destroy(struct cordons *c);
/* Returns the node's row, or NULL if it has none. */
const struct cordon *cordon_find(const struct cordons *c, const char *node);
/* takes a row that was read from the store */
void cordon_load(struct cordons *c, const struct cordon *row);
/* Cordons the node. The new row is added to t. Fails with ERR_TOO_LARGE if there are already as
 * many rows as there can be nodes. */
int cordon_set(struct cordons *c, struct store_txn *t, const struct cordon *row, struct err *e);
/* Ends the cordon. The removal of the row is added to t. Returns false if the node has no row. */
bool cordon_end(struct cordons *c, struct store_txn *t, const char *node);

/* Returns the time until the node ends, or -1 if it is not known to end. */
int64_t cordon_left_ms(const struct node *n, int64_t now_ms);
/* Finds the cordon that holds for the node now, either by its row or because the node ends.
 * Returns false if there is none. now_ms is of the loop's clock. */
bool cordon_of(const struct cordons *c, const struct node *n, int64_t now_ms, struct cordon *out);

/* Writes the note for a job that must leave because of the cordon, as a JSON object. */
void cordon_note(const struct cordon *c, char *out, size_t size);

#endif
