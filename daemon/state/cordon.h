/* cordon.h: nodes that get no new work. Some of these nodes are also drained, which means that
 * their gangs save and stop, and their jobs continue on other nodes.
 *
 * An operator's order is a row of the store, so it is kept when seqd or the node restarts. A node
 * may also report the time at which it ends (LEAVING). Such a node is drained without a row, from
 * its margin before that time on. */
#ifndef SEQD_DAEMON_STATE_CORDON_H
#define SEQD_DAEMON_STATE_CORDON_H

#include "daemon/state/node.h"
#include "daemon/state/principal.h"
#include "daemon/store/store.h"

#define CORDON_REASON 256

struct cordon {
    char node[NODE_NAME];
    /* UTC time of the operator's order; 0 if there is no order, but the node ends soon */
    int64_t at_ms;
    bool drains;
    char by[USER_NAME];
    char reason[CORDON_REASON]; /* the operator's reason; "" if none was given */
};

struct cordons;
struct cordons *cordons_create(void);
void cordons_destroy(struct cordons *c);
/* Returns the node's row, or NULL if it has none. */
const struct cordon *cordon_find(const struct cordons *c, const char *node);
/* adds a row that was read from the store */
void cordon_load(struct cordons *c, const struct cordon *row);
/* Tells whether the node may get a row. Fails with ERR_TOO_LARGE if the table already has one row
 * for each possible node. */
int cordon_check(const struct cordons *c, const char *node, struct err *e);
/* Cordons the node. The row is on disk. */
void cordon_set(struct cordons *c, const struct cordon *row);
/* Ends the cordon of a node, whose row is removed from the store. */
void cordon_end(struct cordons *c, const char *node);

/* Returns the time until the node ends, or -1 if no end was reported. */
int64_t cordon_left_ms(const struct node *n, int64_t now_ms);
/* Finds the node's present cordon, which comes from its row or from its reported end. Returns
 * false if it has none. now_ms is the loop's clock. */
bool cordon_of(const struct cordons *c, const struct node *n, int64_t now_ms, struct cordon *out);

/* Writes the note for a job that must leave because of the cordon, as a JSON object. */
void cordon_note(const struct cordon *c, char *out, size_t size);

#endif
