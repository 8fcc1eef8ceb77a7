/* rule.h: functions from which the rows of op_rules.h are made. It is private to
 * worker/program. */
#ifndef SEQD_PROGRAM_RULE_H
#define SEQD_PROGRAM_RULE_H

#include "worker/program/op_rules.h"

/* ---- shapes ---------------------------------------------------------------------------------- */

/* Returns input i, or NULL if the operation does not have it. */
const struct value *rule_in(const struct program *p, const struct op *op, int i);
bool rule_alike(const struct value *a, const struct value *b); /* same rows and columns */
/* Returns the rows of n joined weights together, of which w is the first. */
int64_t rule_weight_rows(const struct program *p, int w, int n);
int64_t rule_max(int64_t a, int64_t b);

void rule_check_nothing(const struct program *p, const struct op *op, const struct value *out);
/* Asserts that there is no output. */
void rule_check_loss(const struct program *p, const struct op *op, const struct value *out);
/* Asserts that the output has the shape of in[0], and of in[1] if there is one. */
void rule_check_alike(const struct program *p, const struct op *op, const struct value *out);

int rule_alias_first(const struct op *op); /* in[0] */

/* ---- scratch --------------------------------------------------------------------------------- */

/* Ask for a piece of scratch: ask_bytes for `size` bytes, ask_act for values of the model's
 * precision, ask_twin for bytes that the host fills (struct twin of worker/model/op.h), ask_stage
 * for bytes in the host's memory only. */
void ask_bytes(struct op_ask *a, int64_t size);
void ask_act(struct op_ask *a, int64_t elements);
void ask_twin(struct op_ask *a, int64_t size);
void ask_stage(struct op_ask *a, int64_t size);

bool ask_back(const struct op_ask *a);   /* it is a backward step */
bool ask_narrow(const struct op_ask *a); /* the model's precision is below fp32 */
int64_t ask_rows(const struct op_ask *a, int value);
int64_t ask_elements(const struct op_ask *a, int value);
int64_t ask_grad_elements(const struct op_ask *a, int value);

/* Asks for the room that frame_dy needs: the output's gradient, rounded to the model's precision,
 * if it is fp32. */
void ask_dy(struct op_ask *a);
/* Asks for the room that op_back_begin needs: a second gradient of input k in the model's narrower
 * precision, if the gradient is kept in fp32. */
void ask_dx(struct op_ask *a, int k);
/* Asks for the room that op_back_begin_new needs: a separate gradient of input k in fp32, if the
 * wanted gradient is not fp32 or already has values. */
void ask_dx_new(struct op_ask *a, int k);

void rule_scratch_nothing(struct op_ask *a);
void rule_scratch_dy(struct op_ask *a);      /* backward: ask_dy */
void rule_scratch_rows_of(struct op_ask *a); /* backward: ask_dy, and ask_dx of each input */

void rule_need_nothing(const struct program *p, const struct op *op, struct op_need *n);

/* ---- work ------------------------------------------------------------------------------------ */

double work_rows(const struct op_site *s, int value);
double work_size(const struct op_site *s, int value);
void work_add(struct op_work *w, const struct op_term *t);
/* Returns the number of products that an operation whose rule has `operands` computes. It is 1 in
 * forward; in backward it is the number of operands whose gradient is computed. */
int work_times(const struct op_site *s);
void work_product(struct op_work *w, double rows, double inner, double cols);
/* Adds n elements, which take `slow` times as long as the rate says. */
void work_elements(struct op_work *w, enum op_term_id id, double n, double slow);
/* Adds passes over the output, or over the input if the operation is a loss. */
void work_points(const struct op_site *s, struct op_work *w, double passes);

void work_nothing(const struct op_site *s, struct op_work *w);
void work_once(const struct op_site *s, struct op_work *w); /* one pass forward and one backward */

#endif
