/* engine.h: whole trainings and forward passes for tests: P ranks as threads on the real transport,
 * each with its own arena and backend, on synthetic sequences. */
#ifndef SEQD_TESTS_ENGINE_H
#define SEQD_TESTS_ENGINE_H

#include <math.h>
#include <stdlib.h>
#include "tests/lib/pages.h"
#include "tests/lib/ranks.h"
#include "worker/train/train.h"

#define ENGINE_STEPS 256

/* A training of a tiny model; change fields before use. */
void engine_spec(struct job_spec *s, int64_t S);

/* Makes a job that family_check() accepts of a training: the model's sizes, lengths, axes, memory,
 * precision, determinism and device stay, other fields get their defaults. */
void engine_legal(struct job_spec *s);

/* ---- synthetic samples: a pure function of (sample, position) -------------------------------- */

struct synth {
    int64_t S, doc_len; /* documents of doc_len tokens; 0: one document */
    int32_t vocab;
    int64_t bare_from; /* tokens from here on have no target; 0: all have one */
    int32_t mirror;    /* id i becomes mirror - 1 - i; 0: ids stay */
};

uint32_t synth_hash(uint64_t x);

int32_t synth_token(const struct synth *y, int64_t n, int64_t pos);

int64_t synth_start(const struct synth *y, int64_t n, int64_t pos);

int64_t synth_targets(void *arg, int64_t n, struct err *e);

int synth_batch(void *arg, const struct shard *sh, int64_t n, struct batch *b, struct err *e);

/* ---- a rank ---------------------------------------------------------------------------------- */

/* Returns the name of the device that tests of the whole engine run on. */
const char *engine_device(void);

/* The memory in which a rank runs a plan. */
struct engine_memory {
    struct be *be;
    char *arena, *host;      /* host: NULL if the plan needs no host memory */
    void *segment;           /* a device with memory of its own; else NULL: comm has it */
    struct offload *offload; /* NULL: the plan offloads nothing */
};

/* Allocates memory as a job's rank does, for timings; false: small pages, for tests that ask which
 * pages were touched. */
extern bool engine_as_job;
struct engine_memory engine_open(const struct job_spec *spec, const struct plan *p,
                                 const char *isa);

void engine_close(struct engine_memory *m, const struct plan *p);

/* Read and write a rank's memory for a test. */
void engine_read(struct be *be, void *to, const void *from, int64_t size);

void engine_write(struct be *be, void *to, const void *from, int64_t size);

/* Fills memory with NaN, so that a read before the first write shows. */
void engine_poison(struct be *be, void *at, int64_t size);

/* Runs body(g, rank, arg) on the plan's ranks, whose memory is mem[rank]. With one rank g is
 * NULL. */
void engine_ranks(const struct job_spec *spec, const struct plan *p, const char *isa,
                  const struct comm_options *extra, struct engine_memory *mem,
                  void (*body)(struct ranks *, int, void *), void *arg);

/* A run of `steps` optimizer steps on dp rings of P ranks. weights (the master copy), moments and
 * grad (absent if fused) have param_count() elements each, gathered from all ranks. The caller
 * frees them with engine_free. */
struct engine_run {
    const struct job_spec *spec;
    struct train_source source;
    int P, dp, pp, tp; /* ranks of a ring, rings, stages, ranks that share layers; 0: one */
    int64_t steps, first_step;
    const char *isa;
    const float *initial; /* NULL: model_random */
    const float *m, *v;   /* moments to start from; NULL: zero */
    int64_t memory_limit;
    int64_t delay_us, bytes_per_ms; /* as comm_options has them */
    enum transport_id transport;    /* likewise; TRANSPORT_AUTO: the transport of ranks.h */
    struct guard *guard;            /* [P], one for each rank; NULL: none */
    bool ledger_differs; /* a hook has falsified a plan: all ranks report it in the last step */
    void (*before_step)(struct train *, int rank, void *arg); /* NULL: nothing */
    void (*after_step)(struct train *, int rank, void *arg);
    void *arg;
    struct engine_memory *mem; /* [ranks]; engine_go has it */
    bool alone; /* the steps alone, for figures: no array is put together, and gradients are not
                 * filled with NaN before a step */
    /* out */
    struct plan plan; /* plan of the stage that needs most */
    int64_t n;        /* elements of the whole model; other than plan.n_params with tp */
    double loss[ENGINE_STEPS], norm[ENGINE_STEPS];
    float *weights, *grad, *adam_m, *adam_v; /* grad: the first step's, without loss scale */
    double scale;                            /* the loss scale of the first step */
};

void engine_keep(float **out, const float *from, int64_t n);

/* Copies the elements that this rank owns, if it is of its stage's first group, to arrays that all
 * threads share. */
void engine_collect(const struct train *t, enum sharded_array which, float *out);

void engine_steps(struct train *t, struct engine_run *r, int rank, struct err *e);

/* Sets the device of a training, engine_device(), in its spec. */
void engine_on_device(struct job_spec *s);

/* Runs r. Sets the numbers of ranks in *spec: pass a copy, so that one spec serves every P. */
void engine_go(struct engine_run *r, struct job_spec *spec);

void engine_free(struct engine_run *r);

/* Returns |a - b| / |b| over n elements, in double. */
double rel_l2(const float *a, const float *b, int64_t n);

#endif
