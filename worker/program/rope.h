/* rope.h: the frequencies of the rotary embedding (2104.09864), by the rules of transformers v5
 * for rope_type: default, linear, dynamic (NTK), llama3, yarn (2309.00071), longrope (2402.13753).
 *
 * With d rotary columns of a head, theta the base, f the factor and b[j] = theta^(-2j/d):
 *   default   b[j]
 *   linear    b[j] / f
 *   dynamic   for S > M tokens, where M is max_position_embeddings, the base is
 *             theta (f S / M - (f - 1))^(d / (d - 2)) instead of theta
 *   llama3    for the wavelength w = 2 pi / b[j]: b[j] / f if w > original / low_freq_factor,
 *             b[j] if w < original / high_freq_factor, and between these a mean weighed by
 *             original / w
 *   yarn      a mean of b[j] / f and b[j], weighed by a ramp over j
 *   longrope  b[j] / long_factor[j] beyond `original` tokens, else b[j] / short_factor[j] */
#ifndef SEQD_PROGRAM_ROPE_H
#define SEQD_PROGRAM_ROPE_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/model_shape.h"

extern const char *const rope_words[]; /* by enum rope_id, NULL-terminated */

/* Fills in the parameters of m->rope that config.json may leave out. Checks that no parameter that
 * the rule needs is missing. The heads of m must be complete. Fails with ERR_INVALID; the error
 * names the key. */
int rope_complete(struct model_shape *m, struct err *e);
/* Tells whether a and b have different rules. model.rope.compute is not compared, because it
 * belongs to the job. */
bool rope_differs(const struct model_shape *a, const struct model_shape *b);
/* Tells whether yarn's factor differs from the ratio max_position_embeddings /
 * original_max_position_embeddings, which it writes to *ratio. seqd uses the factor, as
 * transformers v5 does; older versions of transformers used the ratio. */
bool rope_disagrees(const struct model_shape *m, double *ratio);
/* Counts the tables of frequencies, which follow each other in memory. The count does not depend
 * on which of them a rank's layers read. The second table is that of m->rope_local, for layers
 * with a window. */
int rope_tables(const struct model_shape *m);
/* Counts the rotary columns of a head. */
int64_t rope_columns(const struct model_shape *m);
/* Returns how many positions a model can use, or INFINITY if the base grows with the length.
 * `asked` means that the rule comes from the job and lengthens the model. The result is then
 * max_position_embeddings or, if that is more, the rule's factor times the length with which the
 * model was trained. If the rule is the model's own, max_position_embeddings already includes the
 * factor. YaRN is an exception, because publishers tell users to add it to a config.json. */
double rope_positions(const struct model_shape *m, bool asked);
/* Tells whether the frequencies depend on the length of the sequence. */
bool rope_by_length(const struct model_shape *m);
/* Computes the frequencies [dim / 2] for a sequence of S tokens. theta is m->rope_theta, or that
 * of a stage. Returns the factor of cosines and sines. If model.rope.compute is "hf", operations
 * on the frequencies are rounded to fp32, as transformers' are, except that the borders of yarn's
 * ramp are double. */
double rope_frequencies(const struct model_shape *m, double theta, int64_t S, int64_t dim,
                        double *inv_freq);
/* Computes the frequencies of layers with a window, whose base is m->rope_local, by the default
 * rule with factor 1. */
void rope_local_frequencies(const struct model_shape *m, int64_t dim, double *inv_freq);

#endif
