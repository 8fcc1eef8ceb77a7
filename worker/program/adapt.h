/* adapt.h: the adapters of a section's products, and modules that are trained whole beside
 * them. */
#ifndef SEQD_PROGRAM_ADAPT_H
#define SEQD_PROGRAM_ADAPT_H

#include "worker/program/program.h"

/* Adds n adapters to the products of a section. Each product with a chosen weight is followed by an
 * ADAPT, whose weights come after all others, and later operations read the ADAPT's output. A row
 * is computed with one of the adapters, or with none. */
struct program_adapt {
    const uint64_t *on; /* [FREEZE_WORDS] a bit for each weight that gets an adapter */
    int64_t rank;
    float scale;
    bool drops;
    bool random_b; /* the initial B is not 0, but random (INIT_NORMAL) */
};
/* the number of rows whose dropout is computed at a time */
#define ADAPT_TILE 1024
/* the number that dropout gives the first part of a layer's adapters; heads of attention have the
 * numbers below it */
#define ADAPT_HEADS 0x8000
void prog_adapt(struct program *p, const struct program_adapt *a, int n);
/* Tells whether prog_adapt can adapt weight i, which must be a matrix of a LINEAR whose name ends
 * with ".weight". */
bool prog_adapts(const struct program *p, int i);
/* prog_embedding returns the index of the weight of the tokens' embedding in section `in`, and
 * prog_head that of the head in section `out`. They return PROG_NONE if the section has none of its
 * own. prog_save marks the weight of a module that is trained whole, and the module's bias. Their
 * numbers are not in blocks. */
int prog_embedding(const struct program *in);
int prog_head(const struct program *out);
void prog_save(struct program *p, int weight);
/* Returns the length of the name of the weight's module, which is the name without its last part
 * ".weight". Returns -1 if the weight has another last part. */
int prog_module_size(const struct weight *w);
/* Returns the length of the module's name in the whole name of a weight, as prog_module_size
 * does. */
int prog_module_in(const char *name);

#endif
