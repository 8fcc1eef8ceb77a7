/* graph.h: operations that come again, by CUDA graphs: one launch for many.
 *
 * The table's operations are kept in a list, args and all, until work that is not listed needs
 * them launched: a copy, memory that is shared, a transfer, a wait, or a full list. Then the list
 * is compared with those before it. A list that was seen before, but for some operations (with
 * args that grow with a cache, or hold a step's number), is a pattern with gaps: the operations
 * between the gaps become graphs, captured from the same functions that launch otherwise; the
 * operations in gaps are always launched one by one. A graph runs only if every byte of its
 * operations' args equals the captured one.
 *
 * So no code above the table knows of graphs, and results do not depend on their use. If a graph
 * cannot be made or launched, its operations are launched one by one, and no more graphs are made
 * or launched.
 *
 *   limits  PATTERNS lists are known, of LIST_OPS operations at most: the first ones that come. A
 *           list makes room when it has not come again within AGE_NEW lists, or AGE_KNOWN if it
 *           ever did
 *   memory  4 MiB of the host's, and the driver's on the device for GRAPHS graphs */
#ifndef SEQD_CUDA_GRAPH_H
#define SEQD_CUDA_GRAPH_H

#include "kernels/cuda/cuda.h"

/* Fills in the operations' slots. An operation goes into the list if there is one (graph_open),
 * else it is launched at once. */
void graph_slots(struct be_ops *t);
/* Lists operations from now on. Returns NULL if memory is short; operations are then not
 * listed. */
const struct be_graphs *graph_open(struct cuda *c);
/* Launches the listed operations: called before any work that is not listed. */
void graph_flush(struct cuda *c);
/* Does as graph_flush, and drops all graphs. Called before memory is freed, since a graph may
 * refer to it. */
void graph_forget(struct cuda *c);
void graph_close(struct cuda *c);

#endif
