/* section_paged.h: keys and values in pages (worker/plan/paged.h). It is private to
 * worker/model. */
#ifndef SEQD_MODEL_SECTION_PAGED_H
#define SEQD_MODEL_SECTION_PAGED_H

#include "worker/model/section.h"

/* Sets the memory of the pages. room is PLAN_PAGE_PARTS, or NULL. */
void section_paged_place(struct model *m, void *room);
/* Keeps the key and value of new token i, if this rank has them. Returns the keys that the token
 * sees. */
struct sp_keys section_paged_row(struct model *m, const struct here *h, const struct op *o, int i);
/* Keeps the keys and values of the piece that runs, and sets the frame for its attention. */
void section_paged_piece(struct model *m, const struct here *h, const struct op *o);
/* Runs operation `op`, which has a state, for the piece that runs: gathers its inputs, and computes
 * all pages of the piece one after another. */
int section_paged_states(struct model *m, const struct here *h, int op, struct err *e);

#endif
