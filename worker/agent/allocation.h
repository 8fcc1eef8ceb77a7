/* allocation.h: finds the share of this machine that an engine (Slurm, or a container engine)
 * gave to this process (`seqw --auto`). Slurm states the share in environment variables. Every
 * engine states it in control groups and in the CPU set. If several sources state a value, the
 * smallest value is used. The functions are pure, except that they read the files beneath
 * root. */
#ifndef SEQD_AGENT_ALLOCATION_H
#define SEQD_AGENT_ALLOCATION_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/gpu.h"

#define ALLOCATION_NAME 64 /* same value as NODE_NAME */
/* Largest size in bytes of a word of CUDA_VISIBLE_DEVICES. Such a word is an index, a UUID or
 * the beginning of a UUID. */
#define ALLOCATION_WORD 96

/* A value, and the name of the variable or the limit from which it was read, such as
 * "SLURM_CPUS_PER_TASK". */
struct allocation_value {
    int64_t n;
    const char *from;
};

enum allocation_rule {
    ALLOCATION_ALL,  /* all GPUs that the driver shows */
    ALLOCATION_NONE, /* the engine states that the job has no GPU */
    /* the words name the GPUs; a word may be an index into the list of the GPUs that the
     * driver shows */
    ALLOCATION_VISIBLE,
    ALLOCATION_IDS, /* the words are indices among all GPUs of the machine, even if the driver
                         * shows only some of them */
};

struct allocation {
    struct allocation_value cores, memory; /* memory: bytes */
    struct allocation_value end;           /* end of the allocation as a UTC time in seconds; 0
                                            * if it is not known */
    enum allocation_rule gpus;
    int n_words;
    char word[GPU_MAX][ALLOCATION_WORD];
    const char *gpus_from;
    char name[ALLOCATION_NAME]; /* name for this node; "" if no name is known */
    const char *name_from;
};

struct allocation_world {
    const char *root;    /* the parameter `root` of limits.h */
    char *const *env;    /* "NAME=value", ended by NULL */
    int n_cores;         /* cores of the CPU set */
    int64_t memory_size; /* bytes of the machine */
};

/* Finds the allocation. Fails with ERR_INVALID if an environment variable has an invalid value. The
 * error names the variable. */
int allocation_find(struct allocation *a, const struct allocation_world *w, struct err *e);
/* Finds the allocation's GPUs in list, which has the GPUs in the driver's order. out gets the
 * positions of the found GPUs in list, in the order of the allocation's words. A word may name
 * a part of a GPU (MIG). Such a word matches the whole GPU, and no rank gets that GPU. If the
 * word does not show to which GPU the part belongs, it matches all partitioned GPUs. Returns
 * the number of positions. Fails with ERR_INVALID if a word matches no GPU, several GPUs, or a
 * GPU that was named before. The error names the word. */
int allocation_match(const struct allocation *a, const struct gpu *list, int n, int out[GPU_MAX],
                     struct err *e);
/* Returns the number of slots. It is never larger than the parameter `most`. There is one slot
 * for each GPU that a rank may get. If there is no such GPU, there is one slot for each core. */
struct allocation_value allocation_slots(const struct allocation *a, const struct gpu *mine, int n,
                                         int64_t most);
/* Returns how many seconds before end_s the jobs leave the allocation. The result is margin_s,
 * but at most a quarter of the time from now_s to end_s. This limit lets jobs do some work
 * even in a short allocation. */
int64_t allocation_margin_s(int64_t end_s, int64_t now_s, int64_t margin_s);
/* Logs one line with each value and its origin. The parameter `driver` is true if this machine
 * has a driver of GPUs. If GPUs are named but there is no driver, logs a warning, too. */
void allocation_say(const struct allocation *a, bool driver, int n_gpus,
                    const struct allocation_value *slots, const char *name);

#endif
