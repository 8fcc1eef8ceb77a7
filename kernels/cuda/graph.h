/* graph.h: uses CUDA graphs for operations that are repeated, so that one launch starts many
 * operations.
 *
 * Operations are kept in a list, together with their args, until they must be launched because of
 * work that is not listed (a copy, memory that is shared, a transfer, a wait) or because the list
 * is full. Then the list is compared with earlier lists. If the list equals an earlier list except
 * for some operations, the list is a pattern, and these operations are its gaps. (Their args grow
 * with a cache, or contain the index of a step.) The operations between the gaps become graphs,
 * which are captured from the same functions that otherwise launch the operations. The operations
 * in gaps are always launched one by one. A graph runs only if every byte of its operations' args
 * equals the byte that was captured.
 *
 * So only the functions of this table know about graphs, and results do not depend on their use.
 * If a graph cannot be made or launched, its operations are launched one by one, and no more
 * graphs are made or launched.
 *
 *   limits  the first PATTERNS lists are kept, of at most LIST_OPS operations each. A kept list
 *           may be replaced if none of the last AGE_NEW lists was equal to it. If the list has
 *           been repeated before, the limit is AGE_KNOWN lists
 *   memory  4 MiB of the host's memory, and the memory that the driver needs on the device for
 *           GRAPHS graphs */
#ifndef SEQD_CUDA_GRAPH_H
#define SEQD_CUDA_GRAPH_H

#include "kernels/cuda/cuda.h"

/* Fills in the slots of the operations. If there is a list (graph_open), an operation is added to
 * the list; otherwise it is launched immediately. */
void graph_slots(struct be_ops *t);
/* Lists operations from now on. Returns NULL if there is not enough memory; operations are then
 * not listed. */
const struct be_graphs *graph_open(struct cuda *c);
/* Launches the listed operations. Called before any work that is not listed. */
void graph_flush(struct cuda *c);
/* Does the same as graph_flush, and then drops all graphs. Called before memory is freed, because
 * a graph may refer to that memory. */
void graph_forget(struct cuda *c);
void graph_close(struct cuda *c);

#endif
