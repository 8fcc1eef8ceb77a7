/* label.h: chooses the dimension along which each operation's values are spread over the ranks,
 * such that as little data as possible moves between operations (2403.10266).
 *
 * A label of a value is either a dimension along which the value is spread, or LABEL_WHOLE, which
 * means that every rank has the whole value. An operation has one or more ways in which it can be
 * computed; each way asks for a certain label of every input and gives a label to the output. If
 * an input lacks the label, it is moved to that label from the one of its labels from which the
 * move is cheapest. The value then has the new label in addition to its earlier labels, and later
 * operations may use any of them. Only a value with one_label loses its earlier label.
 *
 * The choice is made by dynamic programming over the operations in their order, whose state is the
 * set of labels of each value that a later operation reads. The result is exact, because to drop a
 * label early never saves a move. Pure arithmetic. */
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
    /* elements that all ranks together send: [label that the value has][new label] */
    int64_t moved[LABELS][LABELS];
    /* All operations read the value with the same label, which is not LABEL_WHOLE, because they
     * read windows that together cover the value. */
    bool one_label;
};
struct label_way {
    signed char in[LABEL_INS], out;
};
/* The graph's input is the output of an operation that has no inputs. The graph's output, at the
 * wanted label, is the input of an operation that has no output. */
struct label_op {
    int in[LABEL_INS], out; /* values; -1 if there is none */
    int n_ways;
    struct label_way way[LABEL_WAYS];
};
struct label_graph {
    int n_ops, n_values;
    struct label_op op[LABEL_OPS];
    /* each is the output of one operation, which comes before the operations that read it */
    struct label_value value[LABEL_VALUES];
};

struct label_cost {
    int64_t moved; /* number of elements that move */
    int n_moves;
    uint64_t early; /* bit 63 - i is set if something moves before operation i */
};

/* Chooses the way of each operation, such that the fewest elements move. Among choices that move
 * equally many elements, one with the fewest moves wins. If the moves are equal too, the choices
 * are compared at the first operation before which only one of them moves something, and the
 * choice that moves nothing there wins. Returns false if no choice is possible. This is so if an
 * operation has no way, or if an operation needs LABEL_WHOLE or a second label from a value with
 * one_label. */
bool label_solve(const struct label_graph *g, int way[LABEL_OPS], struct label_cost *cost);

#endif
