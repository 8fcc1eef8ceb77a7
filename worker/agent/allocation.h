/* allocation.h: the share of this machine that an engine gave us (`seqw --auto`). A step of Slurm
 * is read from its variables, any container from its control groups and its CPU set. The least
 * value holds. Pure but for the files below root. */
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
    ALLOCATION_VISIBLE, /* words; an index counts the GPUs that the driver shows */
    ALLOCATION_IDS,     /* indices of the machine's GPUs; the driver may show fewer */
};

struct allocation {
    struct allocation_value cores, memory; /* memory: bytes */
    struct allocation_value end;           /* UTC, seconds; 0: none is known */
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

/* Finds the allocation. fails: ERR_INVALID naming the variable whose value is impossible. */
int allocation_find(struct allocation *a, const struct allocation_world *w, struct err *e);
/* Finds our GPUs in list, which has the driver's order. out: their places in it, in the order of
 * the words. Parts of a GPU (MIG) stand for the whole GPU, which no rank then gets; a part whose
 * name does not tell its GPU stands for all divided GPUs. Returns how many are ours. fails:
 * ERR_INVALID naming the word that stands for no GPU, for several, or for a GPU named before. */
int allocation_match(const struct allocation *a, const struct gpu *list, int n, int out[GPU_MAX],
                     struct err *e);
/* Returns a slot for each GPU that a rank may get, else one for each core; at most `most`. */
struct allocation_value allocation_slots(const struct allocation *a, const struct gpu *mine, int n,
                                         int64_t most);
/* Returns how many seconds before its end an allocation is left: margin_s, but at most a quarter
 * of the time that it still has at now_s, so that a short allocation does some work. */
int64_t allocation_margin_s(int64_t end_s, int64_t now_s, int64_t margin_s);
/* Writes one line of the log: each value, and its origin. driver: whether there is a driver; a
 * second line warns if there is none and GPUs are named. */
void allocation_say(const struct allocation *a, bool driver, int n_gpus,
                    const struct allocation_value *slots, const char *name);

#endif
