/* prepared.h: keeps prepared data as long as their limits allow. The data that were used longest
 * ago are removed first, and data that an attempt here uses are never removed. A job that needs
 * removed data prepares them again from the same files.
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

/* Default limits: a fifth of the disk, and a month. The rest of a node's disk is for
 * checkpoints. */
#define PREPARED_KEEP "20%,30d"

struct prepared_policy {
    int64_t size;  /* most bytes; if it is 0, percent decides */
    int percent;   /* share of the file system; 0 means no limit */
    int64_t age_s; /* time since the last use; 0 means no limit */
};
/* Reads "200G", "20%", "30d", or two of them with a comma between, or "never". Fails with
 * ERR_INVALID. */
int prepared_policy_read(struct prepared_policy *p, const char *text, struct err *e);

struct prepared_entry {
    char id[PREPARED_ID];
    int64_t size, used_s;
    bool in_use;
    bool goes; /* result: whether the tree is to be removed */
};
/* Sorts the list by the time of the last use, oldest first. In this order it marks entries for
 * removal, until the remaining entries have at most `size` bytes (0 means any size) and were all
 * used in the last age_s seconds before now_s (0 means at any time). Entries in use are not
 * marked. Returns the number of marked entries. Pure. */
int prepared_pick(struct prepared_entry *list, int n, int64_t size, int64_t age_s, int64_t now_s);

struct prepared_calls {
    /* Tells whether an attempt here uses the data or may use them. An attempt whose data are not
     * known yet may use data of any id. */
    bool (*in_use)(void *arg, const char *id);
    int64_t (*utc_s)(void); /* returns UTC seconds; NULL means the machine's clock */
};

struct prepared;
/* Begins the watch over dir, whose name is copied. */
struct prepared *prepared_create(struct loop *l, struct trees *t, const char *dir,
                                 const struct prepared_policy *policy,
                                 const struct prepared_calls *calls, void *arg);
void prepared_destroy(struct prepared *p); /* called after the trees are destroyed; accepts NULL */
/* Records that an attempt begins to use the data of this id. */
void prepared_use(struct prepared *p, const char *id);

#endif
