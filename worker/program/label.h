/* label.h: chooses the dimension along which each operation's values are spread over the ranks, so
 * that as little as possible is moved between operations (2403.10266).
 *
 * A label is a dimension that a value is spread along, or LABEL_WHOLE: it is whole on every rank.
 * An operation has one or more ways to be computed; each asks for a label of every input and gives
 * one to the output. An input without that label is moved to it from the label from which the move
 * costs least. It keeps its other labels for all later operations; a value with one_label has only
 * the new one.
 *
 * Dynamic programming over the operations in their order: the state is the labels of each value
 * that a later operation reads. The result is exact, since to drop a label early never saves a
 * move. Pure arithmetic. */
#ifndef SEQD_PROGRAM_LABEL_H
#define SEQD_PROGRAM_LABEL_H

#include <stdbool.h>
#include <stdint.h>

#define LABEL_WHOLE  3 /* dimensions are 0 .. 2 */
#define LABELS       4
#define LABEL_OPS    63
#define LABEL_VALUES 80
#define LABEL_INS    3
#define LABEL_WAYS   4
#define LABEL_STATES 512 /* most states of one operation */

struct label_value {
    int64_t moved[LABELS][LABELS]; /* elements that all ranks send: [label that it has][new one] */
    /* All operations read the value with one label, which is not LABEL_WHOLE: they read windows,
     * which tile it. */
    bool one_label;
};
struct label_way {
    signed char in[LABEL_INS], out;
};
/* The graph's input is the output of an operation without inputs. The graph's output, at the label
 * that is wanted, is the input of an operation without output. */
struct label_op {
    int in[LABEL_INS], out; /* values; -1: none */
    int n_ways;
    struct label_way way[LABEL_WAYS];
};
struct label_graph {
    int n_ops, n_values;
    struct label_op op[LABEL_OPS];
    struct label_value value[LABEL_VALUES]; /* each is the output of one operation, before others
                                             * read it */
};

struct label_cost {
    int64_t moved; /* number of elements that move */
    int n_moves;
    uint64_t early; /* bit 63 - i: something moves before operation i */
};

/* Chooses the way of each operation, such that the fewest elements move. Among choices that move
 * as few, one with the fewest moves wins. If these are equal, too, the one wins that moves nothing
 * before the first operation at which they differ. Returns false if no choice is possible (an
 * operation without a way; LABEL_WHOLE or a second label asked of a value with one_label). */
bool label_solve(const struct label_graph *g, int way[LABEL_OPS], struct label_cost *cost);

#endif
