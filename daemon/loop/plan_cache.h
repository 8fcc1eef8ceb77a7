/* plan_cache.h: the plans that were made last, by plan_key. Many users send the same job with other
 * names, seeds or paths, and such jobs are planned once. The functions may be called on any thread.
 * tested: tests/daemon/test_seqd_plan_cache.c */
#ifndef SEQD_DAEMON_LOOP_PLAN_CACHE_H
#define SEQD_DAEMON_LOOP_PLAN_CACHE_H

#include "api/core/err.h"
#include "worker/plan/choice.h"
#include "worker/plan/plan_key.h"

/* Largest numbers of plans and of bytes of their texts. Stored plans have 4 to 15 KiB, and plans
 * with alternatives at most 128 KiB. The plans that were asked for the longest time ago are dropped
 * first. */
#define PLAN_CACHE_PLANS 256
#define PLAN_CACHE_SIZE  ((size_t)8 << 20)

/* The result of planning, without the spec to which it is applied. */
struct plan_made {
    bool chosen;        /* `best` replaces every "auto" */
    struct option best; /* see choice_set */
    /* choices about memory: the plan's loss_chunk, T, mlp_chunk, plan_offload_id and batch */
    int64_t loss_chunk, T, mlp_chunk;
    int offload, batch;
    bool stores;    /* plan_stores */
    struct err why; /* its code is 0 if the job fits */
    char *text;     /* owned; the plan as JSON, or "" if there is none */
};

struct plan_cache;
struct plan_cache *plan_cache_create(void);
void plan_cache_destroy(struct plan_cache *c); /* c may be NULL */
/* Copies the plan of that key to *out; the caller frees its text. Returns false if there is none.
 * Counts the question. */
bool plan_cache_find(struct plan_cache *c, const uint8_t key[PLAN_KEY_SIZE], struct plan_made *out);
/* Keeps a copy of a plan. */
void plan_cache_keep(struct plan_cache *c, const uint8_t key[PLAN_KEY_SIZE],
                     const struct plan_made *m);
/* Numbers of plan_cache_find that found a plan, and that found none, since the cache was made. */
struct plan_cache_counts {
    int64_t found, missed;
};
struct plan_cache_counts plan_cache_counts(struct plan_cache *c);

#endif
