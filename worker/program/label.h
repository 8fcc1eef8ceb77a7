/* label.h: chooses the dimension along which the values of each operation are spread over the
 * ranks. The choice moves as little data as possible between operations (2403.10266).
 *
 * A value has one or more labels. A label is a dimension along which the value is spread, or
 * LABEL_WHOLE, which means that every rank has the whole value. An operation can be computed in
 * one or more ways. Each way needs a certain label of every input, and gives one label to the
 * output. If an input does not have the needed label, the input is moved to that label. The move
 * starts from the label from which it is cheapest. The value then has the new label and its
 * earlier labels, and later operations may use any of them. Only a value with one_label loses its
 * earlier label.
 *
 * The choice is made by dynamic programming over the operations in their order. A state is the set
 * of labels of each value that a later operation reads. The result is exact, because it never
 * saves a move to drop a label early. Pure arithmetic. */
#ifndef SEQD_PROGRAM_LABEL_H
#define SEQD_PROGRAM_LABEL_H

#include <stdbool.h>
#include <stdint.h>

#define LABEL_WHOLE  3 /* dimensions are 0, 1 and 2 */
#define LABELS       4
#define LABEL_OPS    63
#define LABEL_VALUES 80
#define LABEL_INS    3
#define LABEL_WAYS   4
#define LABEL_STATES 512 /* largest number of states before or after one operation */

struct label_value {
    /* number of elements that all ranks together send to move a value, as [label that the value
     * has][new label] */
    int64_t moved[LABELS][LABELS];
    /* All operations must read the value with the same label, which is not LABEL_WHOLE. The reason
     * is that they read windows that together cover the value. */
    bool one_label;
};
struct label_way {
    signed char in[LABEL_INS], out;
};
/* An operation of the graph. The input of the graph is the output of an operation without inputs.
 * The output of the graph, with the label that it must have, is the input of an operation without
 * an output. */
struct label_op {
    int in[LABEL_INS], out; /* indices of values; -1 if there is no value */
    int n_ways;
    struct label_way way[LABEL_WAYS];
};
struct label_graph {
    int n_ops, n_values;
    struct label_op op[LABEL_OPS];
    /* each value is the output of one operation, and only later operations read it */
    struct label_value value[LABEL_VALUES];
};

struct label_cost {
    int64_t moved; /* number of elements that are moved */
    int n_moves;
    uint64_t early; /* bit 63 - i is set if a value is moved before operation i */
};

/* Chooses the way of each operation such that the number of moved elements is the smallest. If two
 * choices move equally many elements, the choice with fewer moves wins. If their numbers of moves
 * are equal too, consider the first operation before which only one of the two choices moves a
 * value. The choice that moves no value before that operation wins. Returns false if no choice is
 * possible, for one of two reasons. Either an operation has no way, or an operation needs
 * LABEL_WHOLE, or a second label, of a value with one_label. */
bool label_solve(const struct label_graph *g, int way[LABEL_OPS], struct label_cost *cost);

#endif
