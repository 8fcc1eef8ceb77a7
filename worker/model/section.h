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

/* The search for NaN and infinity, which checks the result of each operation of the forward pass
 * (finite.h). */
struct section_watch {
    bool on;
    /* number of operations so far, and the place of the first find, as finite.c packs it */
    int64_t n_ops, first;
};

/* The new token of one sequence, for decoding. */
struct section_row {
    int slot; /* number of its cache */
    int32_t token;
    int64_t pos;
    bool own; /* this rank keeps the key and value of the token */
};

/* The part of struct model that sections use. */
struct section_state {
    struct frame frame;           /* frame of the section that runs now */
    int64_t weights[SECTION_MAX]; /* index of each section's first element in the flat layout */
    /* with blocks: offset of its first byte in model.params, if this rank has it */
    int64_t places[SECTION_MAX];
    struct sp_linear linear;
    struct sp_carry carry;
    struct dsp dsp;
    /* index of the buffer that has the residual stream at each border */
    int stream_of[SECTION_MAX];
    int d_stream_of[SECTION_MAX];
    double *slopes;         /* [L, H] */
    double *nll, *inv_freq; /* as in struct frame */
    char *stage;            /* PLAN_STAGE; NULL if the plan has none */
    int64_t stage_size;
    /* decode: the new tokens, as operations read them and as the host reads them */
    struct batch one[2];
    int32_t token[JOB_MAX_BATCH];
    int64_t pos[JOB_MAX_BATCH];
    const struct section_row *row; /* [n_rows], borrowed while they are decoded */
    int n_rows;
    int64_t grid[2];            /* grid of the current sequence */
    char *carries, *carry_pass; /* LASP in time: PLAN_CARRY, PLAN_CARRY_PASS */
    float *velocity, *plane;    /* sampling: PLAN_VELOCITY, PLAN_PLANE */
    float *spread, *d_spread;   /* PLAN_SPREAD on the host and the device */
    struct section_watch watch;
    struct section_copies copies;
    char *streams, *kept; /* memory of the current slot */
    int64_t stored;       /* bytes in the store that precede this slot's part */
    char *d_streams, *work, *caches, *shared, *d_shared;
    char *logits; /* NULL if there are no logits, or another stage has them */
    /* This must be the last member, because model_init() clears only the bytes before it. It
     * fills the programs that the model uses, so the memory of the unused ones (megabytes) is
     * never touched. */
    struct sections all;
};

/* A section with its index, program and places. */
struct here {
    int b; /* number of the section */
    const struct program *p;
    const struct section *s;
    bool one; /* the rows are a single new token of each sequence */
};
struct here section_at(const struct model *m, int b);

/* Tells whether some layer's attention has a window. */
bool section_windowed(const struct model *m);
/* Returns the host's copy of a mirrored item, or the item itself if it is not mirrored, or NULL if
 * the plan has no such item. */
void *section_host(const struct model *m, enum plan_id id);
/* Sets the pointers to those items of the plan that this rank has. */
void section_place(struct model *m, char *arena, char *segment);
/* Selects the slot of one of several sequences that are between their passes (plan.slots). */
void section_slot(struct model *m, int slot);
/* Returns the stream with which the stage begins, or with which it ends if `end` is set. With
 * `grad`, returns that stream's gradient. */
char *section_border(const struct model *m, bool end, bool grad);
/* Tells the sections that the shard or the grid has changed. */
void section_resize(struct model *m);

/* Runs the stage's part of `in` and the layers and, with to_loss, also `out` up to the loss. A
 * training step leaves `out` to section_backward. */
int section_forward(struct model *m, const struct batch *b, bool to_loss, struct err *e);
/* Computes the loss and the whole backward pass, after section_forward without to_loss. Also
 * writes nll of every row. */
int section_backward(struct model *m, const struct batch *b, float scale, struct err *e);
/* section_loss computes nll of every row, section_normed returns the loss's input, and
 * section_logits its logits. They are called after section_forward with to_loss. Ranks that share
 * layers (parallel.tp) must call section_head, which gathers the loss's input, before
 * section_normed and section_logits. */
int section_loss(struct model *m, const struct batch *b, struct err *e);
int section_head(struct model *m, struct err *e);
struct tensor section_states(struct model *m);
struct tensor section_normed(struct model *m, int64_t row0, int64_t n);
struct tensor section_logits(struct model *m, int64_t row0, int64_t n);
struct tensor section_hidden(struct model *m);
/* Returns state k of layer l in cache m->slot (generate), as it is after the context. Sets *size
 * to the state's bytes. Returns NULL if the layer has at most k states. */
char *section_state(struct model *m, int l, int k, int64_t *size);
/* Decodes the next token of n sequences, of which each has its own cache. */
int section_decode(struct model *m, const struct section_row *row, int n, struct err *e);

#endif
