/* node.h: the table of nodes, which tells which nodes are up, since when, and their slots. It is
 * plain data of the loop thread. */
#ifndef SEQD_DAEMON_STATE_NODE_H
#define SEQD_DAEMON_STATE_NODE_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/limits.h"
#include "api/core/profile.h"
#include "api/wire.h"
#include "daemon/state/event.h"

/* default of --node-lost, the time after which a node that sends no message is lost */
#define NODE_LOST_MS 10000
#define NODE_PAST    1024 /* the newest past attempts of a node that are remembered */

/* An attempt that runs on a node although it is over for seqd. Its slots are not free yet. */
struct stale {
    int64_t job, epoch;
    int32_t ranks, slots; /* number of ranks that run there; slots of the ranks that have no GPU */
};

struct past {
    int64_t job, epoch;
};

struct node {
    char name[NODE_NAME], version[32];
    uint32_t abi; /* version (api/wire.h) that its session speaks, or that the last one spoke */
    bool up;
    bool lost;   /* down for longer than --node-lost, which seqd has acted on */
    bool joined; /* it has sent HELLO, so abi and instance are valid */
    bool held;   /* a live job needs it; set just before node_forget_one */
    char instance[INSTANCE_ID_SIZE];
    int64_t n_dropped; /* messages dropped because the node may not send them */
    int64_t since_ms;  /* loop clock: when it went up or down */
    int64_t seen_ms;   /* time of its last message */
    int32_t n_slots, n_cores;
    int64_t memory_size; /* 0 if it is not reported */
    /* DESCRIBE questions under way, each of which is a process on the node */
    int n_described;
    struct disk_use disk;   /* as it last reported */
    struct profile profile; /* its measurements of itself, or zeros until it has reported them */
    char address[RANK_ADDRESS_SIZE]; /* its ranks listen there; "" if no other node can reach it */
    bool emulated;                   /* it accepts jobs of the device "emulated" */
    int n_gpus;
    struct gpu gpu[GPU_MAX]; /* as it last reported */
    /* Values of the LEAVING of this session. end_s is 0 if the node is not known to end. end_ms is
     * of the loop's clock. */
    int64_t end_s, margin_s, end_ms;
    int n_stale;
    struct stale *stale; /* owns */
    int64_t n_past;      /* number of all past attempts, of which the last NODE_PAST are kept */
    struct past *past;   /* owns */
};

struct nodes {
    int n;
    struct node node[NODE_MAX];
};

void node_instance_id(const struct msg *hello, char out[INSTANCE_ID_SIZE]);
struct node *node_find(struct nodes *t, const char *name); /* NULL if it was never seen */
/* Enters a node that has sent HELLO. Returns NULL if the table is full. */
struct node *node_up(struct nodes *t, const struct msg *hello, int64_t now_ms);
/* Takes the GPUs that a HELLO or HEARTBEAT reports. Returns true if their number, a uuid, a
 * health, or whether processes use a GPU has changed. */
bool node_take_gpus(struct node *n, const struct msg *m);
/* Takes a LEAVING. utc_ms is the wall clock at now_ms; it is needed because m->end_s is a wall
 * clock time. */
void node_ends(struct node *n, const struct msg *m, int64_t now_ms, int64_t utc_ms);
void node_down(struct nodes *t, const char *name, int64_t since_ms);
/* Finds a node on which jobs of a previous seqd run, or enters it. A new entry is down as of now,
 * so that the node has the usual time to come back. Returns NULL if the table is full. */
struct node *node_expect(struct nodes *t, const char *name, int64_t now_ms);
/* Starts the time of expected nodes at the loop's first tick, because until then no node could
 * send a message, no matter how long the replay took. */
void nodes_begin(struct nodes *t, int64_t now_ms);
/* Adds lag_ms, the time by which the loop was late, to the time that nodes have, because the nodes
 * were not silent during it. */
void nodes_lag(struct nodes *t, int64_t lag_ms, int64_t now_ms);
/* Returns the next node that has been down for lost_ms by now, and marks it as lost; or NULL. */
struct node *node_next_lost(struct nodes *t, int64_t now_ms, int64_t lost_ms);

/* Forgets the node that has been down for longest and is not held. Returns false if there is none.
 * Moves other nodes, so pointers to nodes are invalid afterwards. */
bool node_forget_one(struct nodes *t);

void nodes_fini(struct nodes *t);

/* Returns the node's net. Nodes of the same net can form one gang: they all speak IPv4 or all
 * speak IPv6, and they are all this one host (loopback) or none of them is. Returns 0 if the
 * node's ranks can reach no other node. */
int node_net(const struct node *n);

/* Attempts that a node reported as running and that are not expected there. */
void node_stale_clear(struct node *n);
void node_stale_add(struct node *n, const struct stale *stale);
/* the node has reported that it is gone */
void node_stale_remove(struct node *n, int64_t job, int64_t epoch);
int32_t node_stale_slots(const struct node *n);

/* Attempts that this instance of the node had and that are over for seqd. Until the node is told,
 * it may send more messages about them. These are not counted as faults, and have no effect. */
void node_past_add(struct node *n, int64_t job, int64_t epoch);
bool node_past_has(const struct node *n, int64_t job, int64_t epoch);

#endif
