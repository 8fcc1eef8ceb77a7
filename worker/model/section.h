/* section.h: runs the sections of a family's program in the places that the plan gives them. It
 * is private to worker/model.
 *
 * Sections are numbered as buckets are: 0 is `in`, 1 to L are the layers, and L + 1 is `out`.
 * Section b reads the residual stream at border b - 1 and writes it at border b. */
#ifndef SEQD_MODEL_SECTION_H
#define SEQD_MODEL_SECTION_H

#include "worker/model/op.h"
#include "worker/model/section_offload.h"
#include "worker/plan/plan.h"

#define SECTION_MAX 1026 /* HF_MAX_LAYERS, `in` and `out` */

struct model;

/* The search for the first NaN or infinity. It checks the result of each operation of the forward
 * pass (finite.h). */
struct section_watch {
    bool on;
    /* number of operations so far; place of the first NaN or infinity, as FIND() of finite.c packs
     * it */
    int64_t n_ops, first;
};

/* The new token of one sequence that is decoded. */
struct section_row {
    int slot; /* index of the sequence's cache */
    int32_t token, adapter;
    int64_t pos;
    bool own; /* this rank keeps the key and value of the token */
};

/* Keys and values in pages: the page tables and ranges of PLAN_PAGE_TABLES, PLAN_PAGE_LO and
 * PLAN_PAGE_HI. */
struct section_paged {
    int32_t *table; /* of slot 0 */
    int64_t stride; /* bytes from a table to the next table */
    int64_t *lo, *hi, *host_lo, *host_hi;
    int64_t window; /* window of the layer for which lo and hi are set; -1 if they are not set */
    void *room;
    const struct model_piece *piece; /* borrowed while a piece runs, else NULL */
};

/* The part of struct model that sections use. */
struct section_state {
    struct frame frame;           /* frame of the section that runs now */
    int64_t weights[SECTION_MAX]; /* index of each section's first element in the flat layout */
    /* with weights in blocks: byte offset in model.params of each section that this rank has */
    int64_t places[SECTION_MAX];
    struct sp_linear linear;
    struct sp_carry carry;
    struct dsp dsp;
    /* index of the buffer that has the residual stream at each border */
    int stream_of[SECTION_MAX];
    int d_stream_of[SECTION_MAX];
    double *slopes;         /* [L, H] */
    double *nll, *inv_freq; /* the same as in struct frame */
    char *stage;            /* PLAN_STAGE; NULL if the plan does not have it */
    int64_t stage_size;
    /* decode: the new tokens. The first batch is read by operations, and the second by the
     * host. */
    struct batch one[2];
    int32_t token[JOB_MAX_BATCH];
    int64_t pos[JOB_MAX_BATCH];
    const struct section_row *row; /* [n_rows], borrowed while the rows are decoded */
    int n_rows;
    struct section_paged paged;
    int64_t grid[2];            /* grid of the current sequence */
    char *carries, *carry_pass; /* LASP in time: PLAN_CARRY, PLAN_CARRY_PASS */
    float *velocity, *plane;    /* sampling: PLAN_VELOCITY, PLAN_PLANE */
    float *spread, *d_spread;   /* PLAN_SPREAD on the host and the device */
    struct section_watch watch;
    struct section_copies copies;
    char *streams, *kept; /* memory of the current slot */
    int64_t stored;       /* bytes of the store before this slot's part */
    char *d_streams, *work, *caches, *shared, *d_shared;
    char *logits; /* NULL if there are no logits, or if they are on a different stage */
    /* This is the last member, because model_init() clears only the bytes before it. It fills only
     * the programs that the model uses, so that the memory of the other programs (megabytes) is
     * never touched. */
    struct sections all;
};

/* A section with its index, program and places. */
struct here {
    int b; /* index of the section */
    const struct program *p;
    const struct section *s;
    bool one; /* the rows are one new token of each sequence */
};
struct here section_at(const struct model *m, int b);

/* Tells whether some layer's attention has a window. */
bool section_windowed(const struct model *m);
/* Returns the host's copy of an item that is mirrored, or the item itself if it is not mirrored.
 * Returns NULL if the plan does not have the item. */
void *section_host(const struct model *m, enum plan_id id);
/* Sets the pointers to the items of the plan that this rank has. */
void section_place(struct model *m, char *arena, char *segment);
/* Selects a slot (plan.slots). A sequence has a slot from its forward pass to its backward
 * pass. */
void section_slot(struct model *m, int slot);
/* Returns the stream with which the stage begins, or the stream with which it ends if `end` is
 * set. If `grad` is set, returns the gradient of that stream. */
char *section_border(const struct model *m, bool end, bool grad);
/* Tells the sections that the shard or the grid has changed. */
void section_resize(struct model *m);

/* Runs `in` and the layers of the stage. If to_loss is set, also runs `out` up to the loss. In a
 * training step `to_loss` is false, because section_backward runs `out`. */
int section_forward(struct model *m, const struct batch *b, bool to_loss, struct err *e);
/* Computes the loss and the whole backward pass. Call it after section_forward without to_loss.
 * Also writes the nll of every row. */
int section_backward(struct model *m, const struct batch *b, float scale, struct err *e);
/* section_loss computes the nll of every row. section_normed returns the input of the loss, and
 * section_logits its logits. Call them after section_forward with to_loss. Ranks that share layers
 * (parallel.tp) must call section_head before section_normed and section_logits, because
 * section_head gathers the input of the loss. */
int section_loss(struct model *m, const struct batch *b, struct err *e);
int section_head(struct model *m, struct err *e);
struct tensor section_states(struct model *m);
struct tensor section_normed(struct model *m, int64_t row0, int64_t n);
struct tensor section_logits(struct model *m, int64_t row0, int64_t n);
struct tensor section_hidden(struct model *m);
/* Returns state k of layer l in cache m->slot (generate). It is the state after the context. Sets
 * *size to the state's bytes. Returns NULL if the layer has at most k states. */
char *section_state(struct model *m, int l, int k, int64_t *size);

/* Return the memory of a place of a section, and of the state of an operation in the cache of a
 * slot. Return NULL if the section does not have it. */
char *section_address(const struct model *m, const struct here *h, const struct place *x,
                      bool grad);
char *section_state_at(const struct model *m, const struct here *h, int op, int slot);
/* Sets the number of rows of each kind on this rank, for the current shard. */
void section_set_rows(struct model *m, int64_t T);
/* Sets the members of a section's frame that do not change between the steps of the section. */
void section_open_frame(struct model *m, const struct here *h, const struct batch *b, bool grads);
/* Runs the forward list. For section `out`, the list ends with the loss. */
int section_run(struct model *m, const struct here *h, struct err *e);

/* ---- new tokens (section_decode.c) ----------------------------------------------------------- */

/* Decodes the next token of n sequences, each of which has its own cache. */
int section_decode(struct model *m, const struct section_row *row, int n, struct err *e);
/* Returns the row index at which new keys and values are written. If there is one sequence, this
 * is the final place of the new keys and values. If there are several sequences, the new rows are
 * written after the caches, and each new row is then copied to the cache of its sequence. */
int64_t section_new_rows(const struct model *m);
/* Runs an operation that reads keys and values of a cache. Each row reads the cache of its own
 * sequence. The ranks exchange the data of all rows together. */
int section_decode_rows(struct model *m, const struct here *h, const struct op *o, struct err *e);
/* Runs an operation that has a state. It runs once for each row, with the state of the row's
 * sequence. */
int section_decode_each(struct model *m, const struct here *h, int op, struct err *e);

#endif
