/* mlp.h: the dense MLPs of a section, which may run on pieces of the rows. */
#ifndef SEQD_PROGRAM_MLP_H
#define SEQD_PROGRAM_MLP_H

#include "worker/program/program.h"

/* Returns the number of operations of the dense MLP that begins with operation `op`, or 0 if none
 * begins there. A dense MLP is a sequence of MLP_OPS operations on the rows of a sequence: a
 * LINEAR without a base, an operation whose rule has in_mlp (ACT, GLU), and a LINEAR. Each LINEAR
 * may be followed by its ADAPT. No other operation reads the values between them. */
int prog_mlp(const struct program *p, int op);
#define MLP_OPS     3
#define MLP_OPS_MAX (MLP_OPS + 2)
/* Returns the first operation of the dense MLP that ends with operation `op`, or PROG_NONE. */
int prog_mlp_ending(const struct program *p, int op);
static inline bool prog_is_mlp(const struct program *p, int op)
{
    return prog_mlp(p, op) > 0;
}
/* The trained weights of an MLP, as elements [begin, end) of the section's layout. */
struct program_span {
    int64_t begin, end;
};
struct program_span prog_mlp_weights(const struct program *p, int op);

#endif
