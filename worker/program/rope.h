/* rope.h: the frequencies of the rotary embedding (2104.09864), by the rules of transformers v5
 * for rope_type: default, linear, dynamic (NTK), llama3, yarn (2309.00071), longrope (2402.13753).
 *
 * With d rotary columns of a head, theta the base, f the factor and b[j] = theta^(-2j/d):
 *   default   b[j]
 *   linear    b[j] / f
 *   dynamic   for S > M tokens, where M is max_position_embeddings, the base is
 *             theta (f S / M - (f - 1))^(d / (d - 2)) instead of theta
 *   llama3    with the wavelength w = 2 pi / b[j]: b[j] / f if w > original / low_freq_factor,
 *             b[j] if w < original / high_freq_factor, and otherwise a mean of the two, weighted
 *             by original / w
 *   yarn      a mean of b[j] / f and b[j], weighted by a ramp in j
 *   longrope  b[j] / long_factor[j] for more than `original` tokens, otherwise
 *             b[j] / short_factor[j] */
#ifndef SEQD_PROGRAM_ROPE_H
#define SEQD_PROGRAM_ROPE_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/model_shape.h"

extern const char *const rope_words[]; /* by enum rope_id, NULL-terminated */

/* Sets the parameters of m->rope that config.json may omit. Checks that m->rope has every
 * parameter that the rule needs. The heads of m must be complete. Fails with ERR_INVALID; the
 * error names the key. */
int rope_complete(struct model_shape *m, struct err *e);
/* Tells whether a and b have different rules. model.rope.compute is not compared, because it
 * belongs to the job and not to the model. */
bool rope_differs(const struct model_shape *a, const struct model_shape *b);
/* Tells whether yarn's factor differs from max_position_embeddings /
 * original_max_position_embeddings. *ratio gets this quotient. seqd uses the factor, as
 * transformers v5 does. Older versions of transformers used the quotient. */
bool rope_disagrees(const struct model_shape *m, double *ratio);
/* Returns the number of tables of frequencies. The tables follow each other in memory. All ranks
 * have this number of tables, even if the layers of a rank use only one table. The second table
 * has the base m->rope_local, for layers with a window. */
int rope_tables(const struct model_shape *m);
/* Returns the number of rotary columns of a head. */
int64_t rope_columns(const struct model_shape *m);
/* Returns the number of positions that a model can use, or INFINITY if the base grows with the
 * length. `asked` means that the rule comes from the job and makes the model's sequences longer.
 * The result is then max_position_embeddings, or the rule's factor times the length with which the
 * model was trained if that is more. If `asked` is false, the result is max_position_embeddings,
 * because it already includes the factor. YaRN is an exception, because publishers tell users to
 * add YaRN to a config.json. */
double rope_positions(const struct model_shape *m, bool asked);
/* Tells whether the frequencies depend on the length of the sequence. */
bool rope_by_length(const struct model_shape *m);
/* Computes the frequencies [dim / 2] for a sequence of S tokens. theta is m->rope_theta, or the
 * rope_theta of a stage. Returns the factor by which cosines and sines are multiplied. If
 * model.rope.compute is "hf", operations on the frequencies are rounded to fp32, as in
 * transformers. Only the borders of yarn's ramp are double. */
double rope_frequencies(const struct model_shape *m, double theta, int64_t S, int64_t dim,
                        double *inv_freq);
/* Computes the frequencies of layers with a window. The base is m->rope_local, the rule is the
 * default, and the factor is 1. */
void rope_local_frequencies(const struct model_shape *m, int64_t dim, double *inv_freq);

#endif
