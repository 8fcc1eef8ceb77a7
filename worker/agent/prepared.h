/* prepared.h: keeps prepared data as long as the limits on size and age allow. The data that have
 * been unused for the longest time are removed first. Data that an attempt on this node uses are
 * never removed. If a job needs data that were removed, the data are prepared again from the
 * sources.
 *
 * Once a minute the thread of trees.h lists and measures the data. Data to be removed are first
 * renamed on the loop thread, so that no attempt can begin to use them. Then the thread of trees.h
 * removes them. Call these functions on the loop thread.
 * tested: tests/agent/test_prepared.c */
#ifndef SEQD_AGENT_PREPARED_H
#define SEQD_AGENT_PREPARED_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/loop.h"
#include "api/trees.h"

#define PREPARED_SWEEP_MS 60000
#define PREPARED_ID       80
/* In a shared directory, data that were used so recently may be in use on another node. A node
 * notes that data are in use each PREPARED_SWEEP_MS, and clocks of nodes may differ. */
#define PREPARED_RECENT_S 3600

/* Default limits. Prepared data use at most a fifth of the disk, and are removed after a month
 * without use. The rest of a node's disk is for checkpoints. */
#define PREPARED_KEEP "20%,30d"

struct prepared_policy {
    int64_t size;  /* largest number of bytes; if it is 0, the member percent is the limit */
    int percent;   /* share of the file system; 0 means no limit */
    int64_t age_s; /* time since the last use; 0 means no limit */
};
/* Reads "never", a size ("200G" or "20%"), an age ("30d"), or a size and an age with a comma
 * between them. Fails with ERR_INVALID. */
int prepared_policy_read(struct prepared_policy *p, const char *text, struct err *e);

struct prepared_entry {
    char id[PREPARED_ID];
    int64_t size, used_s;
    bool in_use;
    bool goes; /* result: whether the data must be removed */
};
/* Sorts the list by the time of the last use, oldest first. In this order it marks entries for
 * removal, until the remaining entries together have at most `size` bytes, and each of them
 * was used in the last age_s seconds before now_s. If size is 0, there is no limit on the
 * bytes. If age_s is 0, there is no limit on the age. Entries in use are not marked. Returns
 * the number of marked entries. Pure. */
int prepared_pick(struct prepared_entry *list, int n, int64_t size, int64_t age_s, int64_t now_s);

struct prepared_calls {
    /* Returns true if an attempt on this node uses the data or may use them. If it is not
     * known yet which data an attempt uses, it may use data of any id. */
    bool (*in_use)(void *arg, const char *id);
    int64_t (*utc_s)(void); /* returns UTC seconds; NULL means the machine's clock */
};

struct prepared;
/* Begins to watch the directory dir. The name dir is copied. `shared` tells whether other nodes use
 * the directory, too. */
struct prepared *prepared_create(struct loop *l, struct trees *t, const char *dir,
                                 const struct prepared_policy *policy, bool shared,
                                 const struct prepared_calls *calls, void *arg);
void prepared_destroy(struct prepared *p); /* called after the trees are destroyed; accepts NULL */
/* Records that an attempt begins to use the data of this id. */
void prepared_use(struct prepared *p, const char *id);

#endif
