/* form.h: chooses the form of ring attention if a spec leaves it open ("auto").
 *
 * The answer depends on where documents begin and end in the samples, which is known only when the
 * data has been prepared. So the rank that prepares the data computes the traffic of each form for
 * the samples it has made (form_count), by the formulas of volume.h. seqd weighs this traffic with
 * the machine that it knows (form_choose), and writes the answer into the job's spec before any
 * rank is placed. All ranks read the answer there.
 *
 *   blockwise   keys and values pass from rank to rank in whole blocks, up to the last rank that
 *               needs them
 *   all_gather  each rank gets only the rows that its queries see, but has room for the rows of
 *               all ranks
 *
 * A sample costs the traffic of its busiest rank, because the other ranks wait for this rank. So a
 * single document, whose last row sees everything, moves as many bytes in both forms; the ring is
 * then better, because it needs no room for all keys and values. */
#ifndef SEQD_PLAN_FORM_H
#define SEQD_PLAN_FORM_H

#include "worker/plan/machine.h"
#include "worker/plan/reach.h"

#define FORM_SAMPLES 64 /* samples counted, at most */
/* share that all_gather must save, because it holds P times the keys and values */
#define FORM_GAIN 0.01

/* Sums over n_samples samples and all layers. For each sample, one member counts the keys and
 * values that the busiest rank sends or receives, whichever is more. The other counts their
 * gradients in the same way. */
struct form_traffic {
    int64_t messages, bytes;
};
struct form_seen {
    int64_t n_samples;
    struct form_traffic blockwise, all_gather;
};

/* Tells whether the form is open until the data is prepared. spec must be checked. If documents
 * are not told apart and no window is set, every query sees all keys, so the form is blockwise. */
bool form_waits(const struct job_spec *spec);

/* Counts one sample of data.seq_len tokens. p must be a plan of the spec. */
void form_count(const struct job_spec *spec, const struct plan *p, const struct reach_map *map,
                struct form_seen *seen);

#define FORM_REASON_SIZE 384

/* Returns the cheaper one of the forms that fit, and writes the reason, with the bytes, to reason.
 * seen is as a rank sent it, so any value may be in it. */
enum form_id form_choose(const struct job_spec *spec, const struct machine *m,
                         const struct form_seen *seen, char reason[FORM_REASON_SIZE]);

#endif
