/* node.h: the table of nodes, with the nodes that are up, since when, and their slots. Plain data,
 * loop thread. */
#ifndef SEQD_DAEMON_STATE_NODE_H
#define SEQD_DAEMON_STATE_NODE_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/limits.h"
#include "api/core/profile.h"
#include "api/wire.h"
#include "daemon/state/event.h"

#define NODE_LOST_MS 10000 /* default of --node-lost: a node unseen for this long is lost */
#define NODE_PAST    1024  /* past attempts of a node that are remembered: the newest */

/* An attempt that runs on a node and is over for seqd: its slots are not free yet. */
struct stale {
    int64_t job, epoch;
    int32_t ranks, slots; /* ranks that run there; slots of the ranks without a GPU */
};

struct past {
    int64_t job, epoch;
};

struct node {
    char name[NODE_NAME], version[32];
    uint32_t abi; /* version that its session speaks, or spoke last: api/wire.h */
    bool up;
    bool lost;   /* down for longer than --node-lost, and acted upon */
    bool joined; /* it has said HELLO: abi and instance are valid */
    bool held;   /* by a live job: valid between a look at all jobs and node_forget_one */
    char instance[INSTANCE_ID_SIZE];
    int64_t n_dropped; /* messages dropped, as the node may not send them */
    int64_t since_ms;  /* loop clock: up or down since */
    int64_t seen_ms;   /* time of its last message */
    int32_t n_slots, n_cores;
    int64_t memory_size;    /* 0: not reported */
    int n_described;        /* DESCRIBE questions that are under way: each is a process there */
    struct disk_use disk;   /* as it last reported */
    struct profile profile; /* its measurements of itself; zeros until it reports */
    char address[RANK_ADDRESS_SIZE]; /* its ranks listen there; "": no other node reaches it */
    bool emulated;                   /* takes jobs of the device "emulated" */
    int n_gpus;
    struct gpu gpu[GPU_MAX]; /* as it last reported */
    /* Values that LEAVING gave in this session; end_s 0: not known to end. end_ms: by the loop's
     * clock. */
    int64_t end_s, margin_s, end_ms;
    int n_stale;
    struct stale *stale; /* owns */
    int64_t n_past;      /* past attempts ever; the last NODE_PAST are kept */
    struct past *past;   /* owns */
};

struct nodes {
    int n;
    struct node node[NODE_MAX];
};

void node_instance_id(const struct msg *hello, char out[INSTANCE_ID_SIZE]);
struct node *node_find(struct nodes *t, const char *name); /* NULL: never seen */
/* Enters a node that said HELLO. NULL when the table is full. */
struct node *node_up(struct nodes *t, const struct msg *hello, int64_t now_ms);
/* Takes the GPUs that a HELLO or HEARTBEAT tells. True: their number, a uuid, a health, or whether
 * processes use a GPU has changed. */
bool node_take_gpus(struct node *n, const struct msg *m);
/* Takes a LEAVING. utc_ms: the wall clock at now_ms; m->end_s is in wall clock time. */
void node_ends(struct node *n, const struct msg *m, int64_t now_ms, int64_t utc_ms);
void node_down(struct nodes *t, const char *name, int64_t since_ms);
/* Enters a node that jobs of a previous seqd run on, or finds it. A new entry is down as of now,
 * so that the node has its time to come back. NULL when the table is full. */
struct node *node_expect(struct nodes *t, const char *name, int64_t now_ms);
/* Starts the time of expected nodes at the loop's first tick: until now none could be heard,
 * however long the replay took. */
void nodes_begin(struct nodes *t, int64_t now_ms);
/* Adds the time by which the loop was late, lag_ms, to the time that nodes have: the nodes were
 * not silent then. */
void nodes_lag(struct nodes *t, int64_t lag_ms, int64_t now_ms);
/* Returns the next node that has been down for lost_ms by now, and marks it; or NULL. */
struct node *node_next_lost(struct nodes *t, int64_t now_ms, int64_t lost_ms);

/* Forgets the node that has been down for longest and is not held. False: there is none. Moves
 * other nodes: pointers to them do not hold after it. */
bool node_forget_one(struct nodes *t);

void nodes_fini(struct nodes *t);

/* Returns the node's net. Nodes of the same net can form one gang: both speak IPv4 or both IPv6,
 * and both are this one host (loopback) or neither is. 0: its ranks reach no other node. */
int node_net(const struct node *n);

/* Attempts that a node said it runs and that are not expected there. */
void node_stale_clear(struct node *n);
void node_stale_add(struct node *n, const struct stale *stale);
void node_stale_remove(struct node *n, int64_t job, int64_t epoch); /* the node says: it is gone */
int32_t node_stale_slots(const struct node *n);

/* Attempts that this instance of the node had and that are over for seqd. Until the node is told,
 * it may send more messages about them: these are no fault, and have no effect. */
void node_past_add(struct node *n, int64_t job, int64_t epoch);
bool node_past_has(const struct node *n, int64_t job, int64_t epoch);

#endif
