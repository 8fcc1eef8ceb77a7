/* rope.h: the frequencies of the rotary embedding (2104.09864), by the rules of transformers v5 for
 * rope_type: default, linear, dynamic (NTK), llama3, yarn (2309.00071), longrope (2402.13753).
 *
 * With d rotary columns of a head, theta the base, f the factor and b[j] = theta^(-2j/d):
 *   default   b[j]
 *   linear    b[j] / f
 *   dynamic   of S tokens, S > max_position_embeddings M: theta (f S / M - (f - 1))^(d / (d - 2))
 *             takes the place of theta
 *   llama3    by wavelength w = 2 pi / b[j]: b[j] / f where w > original / low_freq_factor, b[j]
 *             where w < original / high_freq_factor, between them a mean by original / w
 *   yarn      a mean of b[j] / f and b[j] by a ramp over j
 *   longrope  b[j] / long_factor[j] of more than `original` tokens, else b[j] / short_factor[j] */
#ifndef SEQD_PROGRAM_ROPE_H
#define SEQD_PROGRAM_ROPE_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/model_shape.h"

extern const char *const rope_words[]; /* by enum rope_id, NULL-terminated */

/* Fills in the parameters of m->rope that config.json may leave out, and checks that its rule has
 * those that it needs. The heads of m are complete. fails: ERR_INVALID naming the key. */
int rope_complete(struct model_shape *m, struct err *e);
/* Tells whether a and b have different rules. model.rope.compute is not compared: it is the
 * job's. */
bool rope_differs(const struct model_shape *a, const struct model_shape *b);
/* Tells whether yarn's factor differs from max_position_embeddings /
 * original_max_position_embeddings, which goes to *ratio. The factor counts, as in transformers v5;
 * older versions took the ratio. */
bool rope_disagrees(const struct model_shape *m, double *ratio);
/* Counts the tables of frequencies, which lie one after another, whichever of them a rank's layers
 * read: the second is that of m->rope_local, for layers with a window. */
int rope_tables(const struct model_shape *m);
/* Counts the rotary columns of a head. */
int64_t rope_columns(const struct model_shape *m);
/* Returns the positions for which a model is meant. INFINITY: a base that follows the length.
 * asked: the rule is the job's, and lengthens the model: max_position_embeddings or the rule's
 * factor times the length the model was trained on, whichever is more. The max_position_embeddings
 * of a model with a rule of its own counts the factor already, except YaRN's, which publishers tell
 * users to add to a config.json. */
double rope_positions(const struct model_shape *m, bool asked);
/* Tells whether the frequencies depend on the length of the sequence. */
bool rope_by_length(const struct model_shape *m);
/* Computes the frequencies [dim / 2] for a sequence of S tokens. theta: m->rope_theta, or that of
 * a stage. Returns the factor of cosines and sines. Under model.rope.compute "hf" operations on
 * the frequencies are rounded to fp32, as transformers' are; yarn's borders of its ramp stay
 * double. */
double rope_frequencies(const struct model_shape *m, double theta, int64_t S, int64_t dim,
                        double *inv_freq);
/* Computes the frequencies of layers with a window, whose base is m->rope_local: the default rule,
 * with factor 1. */
void rope_local_frequencies(const struct model_shape *m, int64_t dim, double *inv_freq);

#endif
