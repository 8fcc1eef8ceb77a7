/* rule_loss.c: the rules of the losses XENT, MSE and NOISE, one of which is the last operation of
 * a model. */
#include "worker/program/rule.h"

/* Asks for room for the statistics of a chunk's rows, which ranks exchange. Also asks for room for
 * the bias in fp32 and for the bias's gradient from each chunk. */
static void scratch_xent(struct op_ask *a)
{
    if (a->x->tp > 1) ask_bytes(a, OP_LOGIT_STAT * a->x->tp * a->x->loss_chunk);
    if (!a->op->n_bias) return;
    if (ask_narrow(a)) ask_bytes(a, 4 * a->x->vocab);
    if (ask_back(a)) ask_bytes(a, 4 * a->x->parts * a->x->vocab);
}

/* Counts the product for the logits. In backward, also counts the products for the gradients of
 * both operands. */
static void work_xent(const struct op_site *s, struct op_work *w)
{
    const double T = work_rows(s, s->op->in[0]);
    for (int i = 0; i < work_times(s) + s->back; i++)
        work_product(w, T, (double)s->p->value[s->op->in[0]].cols, s->vocab);
    work_elements(w, TERM_POINT, T * s->vocab, 1);
}

const struct op_rule rule_xent = {
    .name = "cross-entropy",
    .n_in = 1,
    .loss = true,
    .logits = true,
    .check = rule_check_loss,
    .reads = READS_A,
    .reads_weights = true,
    .operands = true,
    .joint = READS_A,
    .scratch = scratch_xent,
    .need = rule_need_nothing,
    .cache = CACHE_NOTHING,
    .moves = MOVES_LOGITS,
    .along = ALONG_BATCH,
    .work = work_xent,
};

/* Asks for room for the squared errors. In backward, also asks for room for their gradients. */
static void scratch_mse(struct op_ask *a)
{
    for (int i = 0; i <= ask_back(a); i++) ask_bytes(a, 4 * ask_elements(a, a->op->in[0]));
}

const struct op_rule rule_noise = {
    .name = "noise and variance",
    .n_in = 1,
    .loss = true,
    .check = rule_check_loss,
    .reads = READS_A,
    .joint = READS_A,
    .scratch = scratch_mse,
    .need = rule_need_nothing,
    .cache = CACHE_NOTHING,
    .moves = MOVES_NOTHING,
    .along = ALONG_BATCH,
    .work = work_once,
};

const struct op_rule rule_mse = {
    .name = "squared error",
    .n_in = 1,
    .loss = true,
    .check = rule_check_loss,
    .reads = READS_A,
    .joint = READS_A,
    .scratch = scratch_mse,
    .need = rule_need_nothing,
    .cache = CACHE_NOTHING,
    .moves = MOVES_NOTHING,
    .along = ALONG_BATCH,
    .work = work_once,
};
