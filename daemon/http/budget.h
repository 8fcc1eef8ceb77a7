/* budget.h: the number of connections that a pool may have, and the connection that is closed when
 * a client finds the pool full. The functions are pure: they know no socket and no clock.
 *
 * A connection is idle while seqd owes it no answer. If the pool is full, the connection that has
 * been idle longest gives its place to the new one. Connections that have never shown a valid
 * token give theirs first. One client may have `share` connections. Beyond them, the new
 * connection takes the place of an idle connection of the same client. */
#ifndef SEQD_DAEMON_HTTP_BUDGET_H
#define SEQD_DAEMON_HTTP_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

struct budget_conn;
struct budget_client;

/* The client whose connections are counted together: a kind and its address, user or token. */
struct budget_key {
    unsigned char bytes[24];
};

struct budget_link {
    struct budget_link *next, *prev;
    struct budget_conn *conn; /* NULL in the head of a list */
};

/* Idle connections, in the order in which they became idle. [0] has the connections without a
 * valid token, [1] the others. */
struct budget_lists {
    struct budget_link head[2];
};

/* The part of a connection that its pool reads. The connection embeds it, zeroed. */
struct budget_conn {
    struct budget *pool;          /* NULL if the connection is in no pool */
    struct budget_client *client; /* NULL if the client is not known */
    struct budget_link link[2];   /* in the lists of the pool, and in the lists of the client */
    bool idle, known;             /* known: it has shown a valid token */
};

struct budget {
    int most, share, n;
    struct budget_lists idle;
    struct budget_client **table; /* hash table of clients, owned */
};

/* Divides the descriptors that a process may have. 512 are for files, for nodes and for requests
 * that are always possible. A connection takes one, and a request that is under way two more.
 * *connections counts all but those that are kept for the Unix socket and for metrics_listen. */
void budget_divide(int64_t descriptors, int *connections, int *requests);

enum budget_room { BUDGET_FREE, BUDGET_CLIENT_FULL, BUDGET_FULL };

void budget_init(struct budget *b, int most, int share);
void budget_fini(struct budget *b); /* all connections must have been removed */
/* Tells whether the pool has room for one more connection of the client. `key` is NULL if the
 * client is not known. */
enum budget_room budget_room(const struct budget *b, const struct budget_key *key);
/* Returns the idle connection that a new connection of the client replaces, or NULL if all
 * connections are busy. `room` is the answer of budget_room. */
struct budget_conn *budget_victim(const struct budget *b, enum budget_room room,
                                  const struct budget_key *key);
/* Adds a connection, which is idle. */
void budget_add(struct budget *b, struct budget_conn *c, const struct budget_key *key);
void budget_remove(struct budget_conn *c); /* does nothing if c is in no pool */
void budget_set_idle(struct budget_conn *c, bool idle);
/* Tells whether the connection counts for the client. */
bool budget_is_of(const struct budget_conn *c, const struct budget_key *key);
/* Notes that the connection has shown a valid token. If `key` is not NULL, the connection counts
 * for that client from now on. */
void budget_know(struct budget_conn *c, const struct budget_key *key);

#endif
