/* form.h: chooses the form of ring attention if the form is "auto" in a spec.
 *
 * The answer depends on the places where documents begin and end in the samples. These are known
 * only when the data has been prepared. So the rank that prepares the data counts the traffic of
 * each form for the samples that it has made (form_count), by the formulas of volume.h. seqd
 * computes the time of this traffic on the machine that it knows (form_choose). It writes the
 * answer into the job's spec before any rank is placed. All ranks read the answer from the spec.
 *
 *   blockwise   keys and values pass from rank to rank in whole blocks, up to the last rank that
 *               needs them
 *   all_gather  each rank gets only the rows that its queries see, but has room for the rows of
 *               all ranks
 *
 * The traffic of a sample is the traffic of its busiest rank, because the other ranks wait for
 * this rank. For a sample of one document, both forms move the same number of bytes, because the
 * last row sees everything. The ring is then better, because it needs no room for all keys and
 * values. */
#ifndef SEQD_PLAN_FORM_H
#define SEQD_PLAN_FORM_H

#include "worker/plan/machine.h"
#include "worker/plan/reach.h"

#define FORM_SAMPLES 64 /* largest number of samples that are counted */
/* all_gather must save this share of the time, because it holds P times as many keys and values */
#define FORM_GAIN 0.01

/* Sums over n_samples samples and all layers. For each sample, the traffic of its busiest rank is
 * counted, which is the larger of the bytes sent and the bytes received. One member counts keys
 * and values, and the other member counts their gradients. */
struct form_traffic {
    int64_t messages, bytes;
};
struct form_seen {
    int64_t n_samples;
    struct form_traffic blockwise, all_gather;
};

/* Tells whether the form is not decided until the data is prepared. spec must be checked. If
 * documents are not told apart and no window is set, every query sees all keys, so the form is
 * blockwise. */
bool form_waits(const struct job_spec *spec);

/* Counts one sample of data.seq_len tokens. p must be a plan of the spec. */
void form_count(const struct job_spec *spec, const struct plan *p, const struct reach_map *map,
                struct form_seen *seen);

#define FORM_REASON_SIZE 384

/* Returns the cheaper of the forms that fit, and writes the reason, with the bytes, to reason.
 * `seen` comes from a rank, so its members may have any value. */
enum form_id form_choose(const struct job_spec *spec, const struct machine *m,
                         const struct form_seen *seen, char reason[FORM_REASON_SIZE]);

#endif
