/* engine.h: runs whole trainings and forward passes for tests. P ranks run as threads on the real
 * transport, each with its own arena and backend. The sequences are synthetic. */
#ifndef SEQD_TESTS_ENGINE_H
#define SEQD_TESTS_ENGINE_H

#include <math.h>
#include <stdlib.h>
#include "tests/lib/pages.h"
#include "tests/lib/ranks.h"
#include "worker/train/train.h"

#define ENGINE_STEPS 256

/* Fills in the spec of a training of a tiny model on sequences of S tokens. The caller may then
 * change its members. */
void engine_spec(struct job_spec *s, int64_t S);

/* Changes the spec of a training so that family_check() accepts it. The model's sizes, the
 * lengths, axes, memory, precision, determinism and device are unchanged. All other fields get
 * their defaults. */
void engine_legal(struct job_spec *s);

/* ---- synthetic samples: a pure function of (sample, position) -------------------------------- */

struct synth {
    /* doc_len is the length of documents in tokens; 0 means that each sequence is one document */
    int64_t S, doc_len;
    int32_t vocab;
    /* positions from this one to the end of the sequence have no target; 0 means that all
     * positions have a target */
    int64_t bare_from;
    int32_t mirror; /* id i is replaced by mirror - 1 - i; 0 means that ids are not replaced */
};

uint32_t synth_hash(uint64_t x);

int32_t synth_token(const struct synth *y, int64_t n, int64_t pos);

int64_t synth_start(const struct synth *y, int64_t n, int64_t pos);

int64_t synth_targets(void *arg, int64_t n, struct err *e);

int synth_batch(void *arg, const struct shard *sh, int64_t n, struct batch *b, struct err *e);

/* ---- a rank ---------------------------------------------------------------------------------- */

/* Returns the name of the device on which tests of the whole engine run. */
const char *engine_device(void);

/* The memory that a rank needs to run a plan. */
struct engine_memory {
    struct be *be;
    char *arena, *host; /* host is NULL if the plan needs no host memory */
    /* The segment, if the device has memory of its own. If it has none, this is NULL, because the
     * comm allocates the segment. */
    void *segment;
    struct offload *offload; /* NULL if the plan offloads nothing */
};

/* Tells engine_open to allocate memory in the same way as the rank of a job. Tests that ask which
 * pages were touched set it to false, because they need small pages. */
extern bool engine_as_job;
struct engine_memory engine_open(const struct job_spec *spec, const struct plan *p,
                                 const char *isa);

void engine_close(struct engine_memory *m, const struct plan *p);

/* Read and write a rank's memory on behalf of a test. */
void engine_read(struct be *be, void *to, const void *from, int64_t size);

void engine_write(struct be *be, void *to, const void *from, int64_t size);

/* Fills memory with NaN, so that reading a value before it is written is found. */
void engine_poison(struct be *be, void *at, int64_t size);
/* Returns the address of a trained weight's gradient. The weight is element `offset` of the flat
 * layout. If gradients are computed bucket by bucket, the address is valid until the gradient of
 * the next bucket begins. */
float *engine_gradient(const struct model *m, int64_t offset);

/* Runs body(g, rank, arg) on each rank of the plan. The memory of a rank is mem[rank]. If there is
 * only one rank, g is NULL. */
void engine_ranks(const struct job_spec *spec, const struct plan *p, const char *isa,
                  const struct comm_options *extra, struct engine_memory *mem,
                  void (*body)(struct ranks *, int, void *), void *arg);

/* A run of `steps` optimizer steps on dp rings of P ranks. The arrays weights (the master copy),
 * moments and grad are gathered from all ranks and have param_count() elements each. If the
 * optimizer is fused, there is no grad. The caller frees the arrays with engine_free. */
struct engine_run {
    const struct job_spec *spec;
    struct train_source source;
    /* P ranks form a ring, there are dp rings and pp stages, and tp ranks share each layer; 0
     * means 1 */
    int P, dp, pp, tp;
    int64_t steps, first_step;
    const char *isa;
    /* the weights at the start; NULL means the weights that model_random draws */
    const float *initial;
    const float *m, *v; /* the moments at the start; NULL means zero */
    int64_t memory_limit;
    int64_t delay_us, bytes_per_ms; /* as in struct comm_options */
    /* the transport; TRANSPORT_AUTO means the transport that ranks.h uses */
    enum transport_id transport;
    /* one guard for each rank, [P]; NULL means that there are no guards */
    struct guard *guard;
    /* set by a test whose hook falsifies a plan. All ranks then have to report a difference of the
     * ledger in the last step. */
    bool ledger_differs;
    /* each function is called if it is not NULL */
    void (*before_step)(struct train *, int rank, void *arg);
    void (*after_step)(struct train *, int rank, void *arg);
    void *arg;
    struct engine_memory *mem; /* [ranks] the memory of each rank; set by engine_go */
    /* For measurements: only the steps are run. No whole array is gathered, and gradients are not
     * filled with NaN before a step. */
    bool alone;
    /* out */
    struct plan plan; /* the plan of the stage that needs the largest amount of memory */
    /* the number of elements of the whole model; with tp, plan.n_params counts only those of one
     * rank */
    int64_t n;
    double loss[ENGINE_STEPS], norm[ENGINE_STEPS];
    /* grad is the gradient in the first step, divided by the loss scale */
    float *weights, *grad, *adam_m, *adam_v;
    double scale; /* the loss scale of the first step */
};

void engine_keep(float **out, const float *from, int64_t n);

/* Copies the elements that this rank owns into arrays that all threads share. A rank that is not
 * in the first group of its stage copies nothing. */
void engine_collect(const struct train *t, enum sharded_array which, float *out);

void engine_steps(struct train *t, struct engine_run *r, int rank, struct err *e);

/* Sets the device in the spec of a training to engine_device(). */
void engine_on_device(struct job_spec *s);

/* Runs r. The call writes the numbers of ranks of `r` into *spec. A caller that needs *spec
 * unchanged must pass a copy. */
void engine_go(struct engine_run *r, struct job_spec *spec);

void engine_free(struct engine_run *r);

/* Returns |a - b| / |b| over n elements, computed in double. */
double rel_l2(const float *a, const float *b, int64_t n);

#endif
