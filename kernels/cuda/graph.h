/* graph.h: operations that come again, by CUDA graphs: one launch for many.
 *
 * The table's operations are kept in a list, args and all, until something must see them done or
 * under way: memory that is copied or shared, a transfer, a wait, a full list. Then the list is
 * compared with those before it. One that was seen before, but for some operations (what grows with
 * a cache, what a step's number is in) is a pattern with gaps: what lies between the gaps becomes
 * graphs, captured from the same functions that launch otherwise; what lies in them is always
 * launched one by one. A graph runs only where every byte of its operations' args is what it was
 * captured with.
 *
 * So nothing above the table knows of it, and what is computed does not depend on what is a graph.
 * Where one cannot be made or launched, its operations are launched one by one, and no more are
 * made.
 *
 *   limits  PATTERNS lists are known, of LIST_OPS operations at most: the first ones that come. One
 *           makes room when it has not come again within AGE_NEW lists, or AGE_KNOWN if it ever did
 *   memory  4 MiB of the host's; of the driver's, on the device, for GRAPHS graphs */
#ifndef SEQD_CUDA_GRAPH_H
#define SEQD_CUDA_GRAPH_H

#include "kernels/cuda/cuda.h"

/* The operations' slots: what goes into the list where there is one (graph_open), and is launched
 * at once where there is none. */
void graph_slots(struct be_ops *t);
/* Operations are listed from now on. NULL: memory is short, they are not. */
const struct be_graphs *graph_open(struct cuda *c);
/* What is listed is launched: before whatever is not. */
void graph_flush(struct cuda *c);
/* And no graph is left: memory goes that one may name. */
void graph_forget(struct cuda *c);
void graph_close(struct cuda *c);

#endif
