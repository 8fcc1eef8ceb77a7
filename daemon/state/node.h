/* node.h: the table of nodes. It has each node's state (up or down), the time of the last change
 * of this state, the slots and the GPUs. It is plain data of the loop thread. */
#ifndef SEQD_DAEMON_STATE_NODE_H
#define SEQD_DAEMON_STATE_NODE_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/limits.h"
#include "api/core/profile.h"
#include "api/wire.h"
#include "daemon/state/event.h"

/* default of --node-lost, the time without a message after which a node is lost */
#define NODE_LOST_MS 10000
#define NODE_PAST                                                                                  \
    1024 /* number of past attempts of a node that are remembered; these are the
                           * newest attempts */

/* An attempt that runs on a node although it is over for seqd. Its slots are not free yet. */
struct stale {
    int64_t job, epoch;
    int32_t ranks, slots; /* number of ranks that run there; number of slots of those ranks that
                           * have no GPU */
};

struct past {
    int64_t job, epoch;
};

struct node {
    char name[NODE_NAME], version[32];
    uint32_t abi; /* ABI (api/wire.h) that its present or last session speaks */
    bool up;
    bool lost;   /* the node has been down for longer than --node-lost, and seqd has acted on
                  * this */
    bool joined; /* it has sent HELLO, so abi and instance are valid */
    bool held;   /* a live job needs it; set just before nodes_forget */
    char instance[INSTANCE_ID_SIZE];
    int64_t n_dropped; /* messages dropped because the node may not send them */
    int64_t since_ms;  /* time, by the loop's clock, at which the node came up or went down */
    int64_t seen_ms;   /* time of its last message */
    int32_t n_slots, n_cores;
    int64_t memory_size; /* 0 if the node has not reported it */
    /* unanswered DESCRIBE questions; each is a process on the node */
    int n_described;
    struct disk_use disk;   /* the disk as the node last reported it */
    struct profile profile; /* the measured speed of the node; zeros until the node has reported
                             * it */
    char address[RANK_ADDRESS_SIZE]; /* address on which its ranks listen; "" if no other node can
                                      * reach it */
    char sandbox[WIRE_SANDBOX];      /* the parts of its ranks' sandbox; "" if it does not say */
    int64_t shared;                  /* id of its shared directory (api/core/shared.h), or 0 */
    bool shared_away;                /* it cannot reach its shared directory now */
    bool emulated;                   /* it accepts jobs of the device "emulated" */
    int n_gpus;
    struct gpu gpu[GPU_MAX]; /* the GPUs as the node last reported them */
    /* Values of the LEAVING of this session. end_s is 0 if no end was reported. end_ms is the same
     * time by the loop's clock. */
    int64_t end_s, margin_s, end_ms;
    int n_stale;
    struct stale *stale; /* owns */
    int64_t n_past;      /* number of all past attempts; the last NODE_PAST are kept */
    struct past *past;   /* owns */
};

/* largest number of nodes that one call of nodes_forget forgets */
#define NODE_FORGET (NODE_MAX / 4)

/* Zeros are an empty table. It grows to NODE_MAX nodes. A call that adds or forgets a node may move
 * all nodes, so pointers to nodes are invalid afterwards. */
struct nodes {
    int n, room;
    struct node *node; /* owns [room] */
    /* Owns [4 * room]: 1 + the index of a node, or 0. The search for a name begins at the name's
     * hash and ends at a 0. */
    uint16_t *at;
};

void node_instance_id(const struct msg *hello, char out[INSTANCE_ID_SIZE]);
struct node *node_find(struct nodes *t, const char *name); /* returns the node, or NULL if the
                                                            * table has no node of that name */
/* Notes that a node has sent HELLO, and adds the node to the table if it is new. Returns NULL if
 * the table is full. */
struct node *node_up(struct nodes *t, const struct msg *hello, int64_t now_ms);
/* Stores the GPUs that a HELLO or HEARTBEAT reports. Returns true if the number of GPUs has
 * changed. Also returns true if the uuid or the health of a GPU has changed, or if processes have
 * begun or ceased to use a GPU. */
bool node_take_gpus(struct node *n, const struct msg *m);
/* Stores the values of a LEAVING. m->end_s is a wall clock time, so utc_ms, the wall clock at
 * now_ms, is needed to convert it. */
void node_ends(struct node *n, const struct msg *m, int64_t now_ms, int64_t utc_ms);
void node_down(struct nodes *t, const char *name, int64_t since_ms);
/* Finds a node on which jobs ran before a restart of seqd, or adds it to the table. A new entry
 * counts as down from now on, so that the node has the usual time to connect. Returns NULL if the
 * table is full. */
struct node *node_expect(struct nodes *t, const char *name, int64_t now_ms);
/* Starts the time within which expected nodes must connect. It is called at the loop's first tick,
 * because no node could send a message before, however long the replay took. */
void nodes_begin(struct nodes *t, int64_t now_ms);
/* Adds lag_ms to the time within which nodes must send a message. lag_ms is the time by which the
 * loop was late and in which it could receive no messages. */
void nodes_lag(struct nodes *t, int64_t lag_ms, int64_t now_ms);
/* Returns the next node that has been down for lost_ms by now, and marks it as lost. Returns NULL
 * if there is no such node. */
struct node *node_next_lost(struct nodes *t, int64_t now_ms, int64_t lost_ms);

/* Forgets the nodes that have been down for the longest time, among the nodes whose member `held`
 * is false. Forgets at most NODE_FORGET nodes, and returns their number. */
int nodes_forget(struct nodes *t);

/* Tells whether the node is up and reaches the shared directory of that id. */
bool node_shares(const struct node *n, int64_t shared);
/* Notes whether a HEARTBEAT reports the shared directory. Returns true if that has changed. */
bool node_take_shared(struct node *n, const struct msg *m);
/* Returns a node that has the files of a shared directory now: `name` if it shares the directory,
 * and otherwise any other node that does. Returns NULL if there is none, or if `shared` is 0. */
const struct node *node_sharing(const struct nodes *t, int64_t shared, const char *name);

void nodes_fini(struct nodes *t);

/* Returns the node's net. Only nodes of the same net can form one gang. There are nets for IPv4
 * and for IPv6, and for both a separate net of loopback addresses. Returns 0 if the node's ranks
 * can reach no other node. */
int node_net(const struct node *n);

/* Stale attempts: the node reported that these attempts run, but seqd does not expect them on the
 * node. */
void node_stale_clear(struct node *n);
void node_stale_add(struct node *n, const struct stale *stale);
/* called when the node has reported that the attempt is gone */
void node_stale_remove(struct node *n, int64_t job, int64_t epoch);
int32_t node_stale_slots(const struct node *n);

/* Past attempts: this instance of the node had them, and they are over for seqd. Until the node is
 * told, it may send more messages about them. Such messages are not counted as faults, and have no
 * effect. */
void node_past_add(struct node *n, int64_t job, int64_t epoch);
bool node_past_has(const struct node *n, int64_t job, int64_t epoch);

#endif
