/* allocation.h: the share of this machine that an engine (Slurm, or a container engine) gave this
 * process (`seqw --auto`). Slurm states it in variables, any engine in control groups and the CPU
 * set. The smallest value counts. The functions are pure but for the files beneath root. */
#ifndef SEQD_AGENT_ALLOCATION_H
#define SEQD_AGENT_ALLOCATION_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/gpu.h"

#define ALLOCATION_NAME 64 /* same value as NODE_NAME */
#define ALLOCATION_WORD 96 /* a word of CUDA_VISIBLE_DEVICES: an index, a UUID or its beginning */

/* A value, and the variable or the limit that it came from: "SLURM_CPUS_PER_TASK". */
struct allocation_value {
    int64_t n;
    const char *from;
};

enum allocation_rule {
    ALLOCATION_ALL,     /* all GPUs that the driver shows */
    ALLOCATION_NONE,    /* the engine gave none */
    ALLOCATION_VISIBLE, /* the words name them; an index counts the GPUs that the driver shows */
    ALLOCATION_IDS,     /* the words are indices of the machine's GPUs; the driver may show
                         * fewer */
};

struct allocation {
    struct allocation_value cores, memory; /* memory: bytes */
    struct allocation_value end;           /* UTC, seconds; 0: not known */
    enum allocation_rule gpus;
    int n_words;
    char word[GPU_MAX][ALLOCATION_WORD];
    const char *gpus_from;
    char name[ALLOCATION_NAME]; /* "": the engine gave none */
    const char *name_from;
};

struct allocation_world {
    const char *root;    /* as for limits.h */
    char *const *env;    /* "NAME=value", ended by NULL */
    int n_cores;         /* cores of the CPU set */
    int64_t memory_size; /* bytes of the machine */
};

/* Finds the allocation. fails: ERR_INVALID naming a variable with an invalid value. */
int allocation_find(struct allocation *a, const struct allocation_world *w, struct err *e);
/* Finds the allocation's GPUs in list, which has the driver's order. out: their positions in list,
 * in the order of the words. A part of a GPU (MIG) stands for the whole GPU, which no rank then
 * gets. A part whose name does not tell its GPU stands for all partitioned GPUs. Returns the
 * number of positions. fails: ERR_INVALID naming a word that matches no GPU, several, or a GPU
 * that was named before. */
int allocation_match(const struct allocation *a, const struct gpu *list, int n, int out[GPU_MAX],
                     struct err *e);
/* Returns the number of slots: one for each GPU that a rank may get; if there is no such GPU, one
 * for each core; at most `most`. */
struct allocation_value allocation_slots(const struct allocation *a, const struct gpu *mine, int n,
                                         int64_t most);
/* Returns how many seconds before end_s jobs leave the allocation: margin_s, but at most a quarter
 * of the time from now_s to end_s, so that a short allocation does some work. */
int64_t allocation_margin_s(int64_t end_s, int64_t now_s, int64_t margin_s);
/* Writes one line of the log: each value, and its origin. driver: there is a driver. If there is
 * none and GPUs are named, a second line warns. */
void allocation_say(const struct allocation *a, bool driver, int n_gpus,
                    const struct allocation_value *slots, const char *name);

#endif
