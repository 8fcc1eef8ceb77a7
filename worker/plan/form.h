/* form.h: chooses the form of ring attention where a spec leaves it open ("auto").
 *
 * The answer depends on how documents lie in the samples, which is known only when the data are
 * prepared. So the rank that prepares them counts the traffic of each form on the samples it has
 * made (form_count), by the formulas of volume.h. seqd weighs that with the machine it knows
 * (form_choose), and writes the answer into the job's spec before any rank is placed. All ranks
 * read it there.
 *
 *   blockwise   keys and values go round in whole blocks, to the last rank that meets them
 *   all_gather  each rank gets just the rows that its queries see, and holds those of all ranks
 *
 * A sample costs the traffic of its busiest rank: the ranks wait for it. So a single document,
 * whose last row sees everything, moves as many bytes in both forms, and the ring needs no room
 * for all keys and values. */
#ifndef SEQD_PLAN_FORM_H
#define SEQD_PLAN_FORM_H

#include "worker/plan/machine.h"
#include "worker/plan/reach.h"

#define FORM_SAMPLES 64   /* samples counted, at most */
#define FORM_GAIN    0.01 /* share all_gather must save: it holds P times the keys and values */

/* Sums over n_samples samples, in all layers: keys and values that the busiest rank of a sample
 * sends or receives, whichever is more, and their gradients, counted the same way. */
struct form_traffic {
    int64_t messages, bytes;
};
struct form_seen {
    int64_t n_samples;
    struct form_traffic blockwise, all_gather;
};

/* Tells whether the form is open until the data are prepared. spec: checked. If documents are not
 * told apart and no window is set, every query sees all keys: the form is blockwise. */
bool form_waits(const struct job_spec *spec);

/* Counts one sample of data.seq_len tokens. p: made of the spec. */
void form_count(const struct job_spec *spec, const struct plan *p, const struct reach_map *map,
                struct form_seen *seen);

#define FORM_REASON_SIZE 384

/* Returns the cheaper form of those that fit; reason: why, with the bytes. seen: as a rank sent it,
 * so any value may be in it. */
enum form_id form_choose(const struct job_spec *spec, const struct machine *m,
                         const struct form_seen *seen, char reason[FORM_REASON_SIZE]);

#endif
