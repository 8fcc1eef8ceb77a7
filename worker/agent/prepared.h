/* prepared.h: keeps prepared data while their limits allow. The data that were used longest ago
 * are removed first; data that an attempt here uses stay. A job that needs removed data prepares
 * them again from the same files.
 *
 * Once a minute a thread lists and measures the data. Data to be removed are renamed on the loop
 * thread, so that no attempt can begin meanwhile, and removed on the other thread. Call these
 * functions on the loop thread.
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

/* Default limits: a fifth of the disk, and a month. A node's disk is for checkpoints. */
#define PREPARED_KEEP "20%,30d"

struct prepared_policy {
    int64_t size;  /* bytes; 0: percent decides */
    int percent;   /* share of the file system; 0: no limit */
    int64_t age_s; /* time since its last use; 0: no limit */
};
/* Reads "200G", "20%", "30d", or two of them with a comma; "never". fails: ERR_INVALID. */
int prepared_policy_read(struct prepared_policy *p, const char *text, struct err *e);

struct prepared_entry {
    char id[PREPARED_ID];
    int64_t size, used_s;
    bool in_use;
    bool goes; /* out: the tree is to be removed */
};
/* Sorts the list, the entry used longest ago first. Marks entries to remove from there on, until
 * the rest takes at most `size` bytes (0: any) and was used within age_s (0: any) before now_s. An
 * entry in use stays. Returns the number of marked entries. Pure. */
int prepared_pick(struct prepared_entry *list, int n, int64_t size, int64_t age_s, int64_t now_s);

struct prepared_calls {
    /* Tells whether an attempt here uses the data or may use them. An attempt whose data are not
     * known yet may use every id. */
    bool (*in_use)(void *arg, const char *id);
    int64_t (*utc_s)(void); /* UTC, seconds; NULL: the machine's clock */
};

struct prepared;
/* Begins the watch over dir, which is copied. */
struct prepared *prepared_create(struct loop *l, struct trees *t, const char *dir,
                                 const struct prepared_policy *policy,
                                 const struct prepared_calls *calls, void *arg);
void prepared_destroy(struct prepared *p); /* after the trees; NULL allowed */
/* Notes that an attempt begins to use the data of this id. */
void prepared_use(struct prepared *p, const char *id);

#endif
