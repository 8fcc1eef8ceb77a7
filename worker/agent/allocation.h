/* allocation.h: finds the share of this machine that an engine (Slurm, or a container engine) gave
 * to this process (`seqw --auto`). Slurm states it in variables, and any engine in control groups
 * and the CPU set. If several sources give a value, the smallest counts. The functions are pure,
 * except that they read the files beneath root. */
#ifndef SEQD_AGENT_ALLOCATION_H
#define SEQD_AGENT_ALLOCATION_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/gpu.h"

#define ALLOCATION_NAME 64 /* same value as NODE_NAME */
/* Bytes of a word of CUDA_VISIBLE_DEVICES: an index, a UUID or its beginning. */
#define ALLOCATION_WORD 96

/* A value, and the name of the variable or the limit from which it was read:
 * "SLURM_CPUS_PER_TASK". */
struct allocation_value {
    int64_t n;
    const char *from;
};

enum allocation_rule {
    ALLOCATION_ALL,     /* all GPUs that the driver shows */
    ALLOCATION_NONE,    /* the engine gave none */
    ALLOCATION_VISIBLE, /* the words name them; an index counts the GPUs that the driver shows */
    ALLOCATION_IDS,     /* the words are indices among all GPUs of the machine, even if the driver
                         * shows only some of them */
};

struct allocation {
    struct allocation_value cores, memory; /* memory: bytes */
    struct allocation_value end;           /* UTC time in seconds; 0 if not known */
    enum allocation_rule gpus;
    int n_words;
    char word[GPU_MAX][ALLOCATION_WORD];
    const char *gpus_from;
    char name[ALLOCATION_NAME]; /* "" if the engine gave none */
    const char *name_from;
};

struct allocation_world {
    const char *root;    /* as for limits.h */
    char *const *env;    /* "NAME=value", ended by NULL */
    int n_cores;         /* cores of the CPU set */
    int64_t memory_size; /* bytes of the machine */
};

/* Finds the allocation. Fails with ERR_INVALID if a variable has an invalid value; the error names
 * this variable. */
int allocation_find(struct allocation *a, const struct allocation_world *w, struct err *e);
/* Finds the allocation's GPUs in list, which has the driver's order. out gets their positions in
 * list, in the order of the words. A word may name a part of a GPU (MIG). It then stands for the
 * whole GPU, which no rank gets. If the word does not tell to which GPU the part belongs, it
 * stands for all partitioned GPUs. Returns the number of positions. Fails with ERR_INVALID, which
 * names a word that matches no GPU, several GPUs, or a GPU that was named before. */
int allocation_match(const struct allocation *a, const struct gpu *list, int n, int out[GPU_MAX],
                     struct err *e);
/* Returns the number of slots, which is at most `most`. There is one slot for each GPU that a rank
 * may get or, if there is no such GPU, one for each core. */
struct allocation_value allocation_slots(const struct allocation *a, const struct gpu *mine, int n,
                                         int64_t most);
/* Returns the number of seconds before end_s at which jobs leave the allocation. It is margin_s,
 * but at most a quarter of the time from now_s to end_s, so that even in a short allocation some
 * work is done. */
int64_t allocation_margin_s(int64_t end_s, int64_t now_s, int64_t margin_s);
/* Logs one line with each value and its origin. `driver` tells whether there is a driver. If there
 * is none although GPUs are named, a second line warns. */
void allocation_say(const struct allocation *a, bool driver, int n_gpus,
                    const struct allocation_value *slots, const char *name);

#endif
