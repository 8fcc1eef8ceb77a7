/* flow.h: verify's code for diffusion models, which makes their batches and compares predictions
 * instead of logits. It is private to worker/verify; verify.h lists the comparisons.
 *
 * The ranks and the reference get sample 0 of the order with the time, noise and clean frames that
 * a training draws for it. worker/data/flow_fill.c computes the places of the values for the
 * ranks. This code computes them again for the reference, one value at a time, from the definition
 * of a patch. */
#ifndef SEQD_VERIFY_FLOW_H
#define SEQD_VERIFY_FLOW_H

#include "worker/data/flow_batch.h"
#include "worker/verify/verify.h"

struct flow_source verify_flow_source(const struct verify_args *a, const struct data_order *order);

/* Sets the ranks' model for the sample and fills its batch. `want` includes the counts of a pass
 * over the plan's largest sample; these are replaced by the counts of a pass over this sample. */
int verify_flow_ranks(const struct verify_args *a, const struct flow_source *s,
                      struct comm_count want[PURPOSE_N], struct err *e);
/* Sets the reference's model for the sample and fills its batch, from the definition of a
 * patch. */
int verify_flow_reference(const struct flow_source *s, struct model *ref, struct err *e);
/* Compares the predictions of the ranks and of the reference, row by row. Sets v->logits_rel_l2
 * and v->logits_max_abs, and adds the expected counts to v->gathered. ref is NULL on ranks that
 * have no reference. Collective. */
int verify_flow_compare(struct model *m, struct model *ref, struct verify *v, struct err *e);

#endif
