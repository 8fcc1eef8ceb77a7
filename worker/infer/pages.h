/* pages.h: gives the pages of a serve job's cache to sequences, and finds the prefixes that are
 * kept in them.
 *
 * A page has the keys and values of CACHE_PAGE positions. Page k of a sequence lies in the pool of
 * rank k mod P. All ranks run the same calls in the same order, so that each knows the pools of all
 * ranks, and no rank tells another about pages. pages_sum shows whether they agree.
 *
 * A sequence gets all pages that it may need when it begins. A page is kept when all its keys are
 * computed. Kept pages form a tree, in which the way to a page spells the owner, the adapter and
 * the tokens of the sequence up to the end of the page. Tokens are compared, not their hashes
 * alone. A sequence begins with the longest kept prefix, whose pages it shares: pages are never
 * copied, and no kept page is written. A kept page that no sequence has is idle. If a pool is
 * empty, idle pages are freed, those that were used least recently first. A page is always freed
 * before the page before it. */
#ifndef SEQD_INFER_PAGES_H
#define SEQD_INFER_PAGES_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/limits.h"

struct pages_options {
    int P, rank;
    int64_t n_pages; /* pages of each rank's pool: at least those of the longest sequence */
    int n_slots;     /* most sequences at one time */
    int64_t longest; /* most positions of a sequence */
    /* Borrowed: the tables of the slots, [n_slots]. Entry j of a table is the place, in this rank's
     * pool, of page j * P + rank of the sequence. */
    int32_t *const *table;
    /* A model with states: a kept prefix ends with a page after which the states of the model are
     * kept, in one of n_states places. */
    bool states;
    int n_states;
};

struct pages_sequence {
    uint32_t owner;
    int32_t adapter;
    int64_t n, n_kept; /* number of its pages, of which the first n_kept are kept */
    int32_t *page;     /* [most]: indexes in pages.page */
    /* entries [from, to) of its table have changed since the last pages_changed */
    int64_t from, to;
    int state; /* place of the states with which it began; PAGES_NO_STATE if none */
};

#define PAGES_NO_STATE (-1)

struct pool_page;
struct page_state;
struct pages {
    struct pages_options o;
    int64_t most, n_all; /* pages of the longest sequence, and of all pools */
    /* Owned. Page i of rank q is page[q * o.n_pages + i]. */
    struct pool_page *page;
    int32_t *tokens; /* owned, [n_all, CACHE_PAGE]: tokens of kept pages */
    int32_t *bucket; /* owned, [n_buckets]: first kept page with a hash */
    int64_t n_buckets;
    int32_t free[JOB_MAX_RANKS]; /* first free page of each rank */
    int64_t n_free[JOB_MAX_RANKS], n_idle[JOB_MAX_RANKS];
    int32_t oldest, newest;          /* idle pages */
    struct pages_sequence *sequence; /* owned, [n_slots] */
    int32_t *lists;                  /* owned: the pages of all sequences */
    struct page_state *state;        /* owned, [o.n_states] */
    uint64_t n_uses;                 /* of states */
    uint64_t sum;
};

/* Allocates all memory. Fails with ERR_IO if there is none. */
int pages_init(struct pages *p, const struct pages_options *o, struct err *e);
void pages_fini(struct pages *p);

/* A sequence that wants to begin. */
struct pages_ask {
    uint32_t owner; /* kept prefixes of other owners are not used */
    int32_t adapter;
    const int32_t *tokens; /* [n_tokens >= 1]: the prompt */
    int64_t n_tokens;
    int64_t n_positions; /* positions of the prompt and of the answer, at most o.longest */
    bool whole;          /* set if all of the prompt is computed: no kept prefix is used */
};

/* Tells whether the pools have room for the sequence now. They always have room for one sequence
 * alone. */
bool pages_fit(const struct pages *p, const struct pages_ask *a);
/* Gives pages to the sequence of an idle slot, and fills its table. pages_fit must be true.
 * Returns the number of the prompt's first tokens whose keys and values are in these pages: a
 * multiple of CACHE_PAGE, and less than n_tokens. */
int64_t pages_begin(struct pages *p, int slot, const struct pages_ask *a);
/* The tokens of a sequence, as far as keys and values are computed. */
struct pages_text {
    const int32_t *prompt, *answer; /* the answer follows the prompt */
    int64_t n_prompt, n_answer;
};

/* Keeps the whole pages of `t`. If a page with these tokens is kept already, the sequence gets
 * that page in place of its own, which is freed, and its table changes. The sequence must not
 * write into these pages from now on. */
void pages_keep(struct pages *p, int slot, const struct pages_text *t);
/* Returns the number of entries of a slot's table that have changed since the last call, or that
 * lie between such entries. Sets *from to the first of them. */
int64_t pages_changed(struct pages *p, int slot, int64_t *from);
/* Keeps the states after the sequence's kept pages. Returns the place to which the caller copies
 * the slot's states, which is that of the states used least recently if all are taken. Returns
 * PAGES_NO_STATE if these states are kept already or no place exists. */
int pages_keep_state(struct pages *p, int slot);
/* Returns the place of the states after the sequence's kept pages, or PAGES_NO_STATE. */
int pages_last_state(const struct pages *p, int slot);
/* Returns the place of the states with which the sequence of a slot begins, or PAGES_NO_STATE. */
int pages_state(const struct pages *p, int slot);
/* Ends the sequence of a slot. Its kept pages become idle, and its other pages are freed. Does
 * nothing for an idle slot. */
void pages_end(struct pages *p, int slot);

/* Returns a sum of all calls that have changed the pages. */
uint64_t pages_sum(const struct pages *p);
/* Returns how many pages of all ranks sequences have. */
int64_t pages_used(const struct pages *p);

#endif
