/* rule.h: functions with which the rows of op_rules.h are made. It is private to
 * worker/program. */
#ifndef SEQD_PROGRAM_RULE_H
#define SEQD_PROGRAM_RULE_H

#include "worker/program/op_rules.h"

/* ---- shapes ---------------------------------------------------------------------------------- */

/* Returns input i, or NULL if the operation does not have it. */
const struct value *rule_in(const struct program *p, const struct op *op, int i);
/* tells whether a and b have the same rows and columns */
bool rule_alike(const struct value *a, const struct value *b);
/* Returns the number of rows of n joined weights together. w is the first of them. */
int64_t rule_weight_rows(const struct program *p, int w, int n);
int64_t rule_max(int64_t a, int64_t b);

void rule_check_nothing(const struct program *p, const struct op *op, const struct value *out);
/* Asserts that there is no output. */
void rule_check_loss(const struct program *p, const struct op *op, const struct value *out);
/* Asserts that the output has the shape of in[0] and, if there is an in[1], also of in[1]. */
void rule_check_alike(const struct program *p, const struct op *op, const struct value *out);

int rule_alias_first(const struct op *op); /* in[0] */

/* ---- scratch --------------------------------------------------------------------------------- */

/* Ask for a piece of scratch. ask_bytes asks for `size` bytes. ask_act asks for values of the
 * model's precision. ask_twin asks for bytes that the host writes (struct twin of
 * worker/model/op.h). ask_stage asks for bytes only in the host's memory. */
void ask_bytes(struct op_ask *a, int64_t size);
void ask_act(struct op_ask *a, int64_t elements);
void ask_twin(struct op_ask *a, int64_t size);
void ask_stage(struct op_ask *a, int64_t size);

bool ask_back(const struct op_ask *a); /* tells whether it is a backward step */
/* tells whether the model's precision is less than fp32 */
bool ask_narrow(const struct op_ask *a);
int64_t ask_rows(const struct op_ask *a, int value);
int64_t ask_elements(const struct op_ask *a, int value);
int64_t ask_grad_elements(const struct op_ask *a, int value);

/* Asks for the room of frame_dy. If the gradient of the output is fp32, this is room for a copy
 * that is rounded to the model's precision. */
void ask_dy(struct op_ask *a);
/* Asks for the room of op_back_begin. If the gradient of input k is fp32, this is room for a
 * second gradient in the model's precision. */
void ask_dx(struct op_ask *a, int k);
/* Asks for the room of op_back_begin_new. If the gradient of input k is not fp32, or already has
 * values, this is room for a separate fp32 gradient. */
void ask_dx_new(struct op_ask *a, int k);

void rule_scratch_nothing(struct op_ask *a);
void rule_scratch_dy(struct op_ask *a); /* backward: ask_dy */
/* in backward, calls ask_dy, and ask_dx for each input */
void rule_scratch_rows_of(struct op_ask *a);

void rule_need_nothing(const struct program *p, const struct op *op, struct op_need *n);

/* ---- work ------------------------------------------------------------------------------------ */

double work_rows(const struct op_site *s, int value);
double work_size(const struct op_site *s, int value);
void work_add(struct op_work *w, const struct op_term *t);
/* Returns the number of products of an operation whose rule has `operands`. It is 1 in forward. In
 * backward it is the number of gradients that are computed. */
int work_times(const struct op_site *s);
void work_product(struct op_work *w, double rows, double inner, double cols);
/* Adds n elements. Each takes `slow` times as long as the rate says. */
void work_elements(struct op_work *w, enum op_term_id id, double n, double slow);
/* Adds `passes` passes over the output. If the operation is a loss, the passes are over the
 * input. */
void work_points(const struct op_site *s, struct op_work *w, double passes);

void work_nothing(const struct op_site *s, struct op_work *w);
/* adds one pass in forward, and one in backward */
void work_once(const struct op_site *s, struct op_work *w);

#endif
