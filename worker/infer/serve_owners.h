/* serve_owners.h: gives each user who asks a number, by which kept prefixes know their owner. */
#ifndef SEQD_INFER_SERVE_OWNERS_H
#define SEQD_INFER_SERVE_OWNERS_H

#include <stdint.h>
#include "api/core/rank.h"

/* Most users that have a number for all of their requests. */
#define SERVE_OWNERS 4096

struct serve_owners {
    char (*name)[RANK_USER_SIZE]; /* owned, [room] */
    int n, room;
    uint32_t n_others; /* numbers that were given to other users */
};

void serve_owners_fini(struct serve_owners *s);
/* Returns the number of a user. A user gets the same number each time. If there are too many users
 * or there is no memory, a new user gets a number that no other call returns. */
uint32_t serve_owners_number(struct serve_owners *s, const char *user);

#endif
