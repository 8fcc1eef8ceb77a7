/* passes.h: a model of 124 M parameters, and the forward passes of inference on one rank or
 * several, each as a function that a bench can time. */
#ifndef SEQD_BENCH_PASSES_H
#define SEQD_BENCH_PASSES_H

#include "api/core/job.h"
#include "tests/bench/pin.h"
#include "tests/lib/engine.h"
#include "tests/lib/llama_1b.h"
#include "worker/model/stored.h"

static const struct model_shape llama_124m = {.n_layers = 12,
                                              .width = 768,
                                              .n_heads = 12,
                                              .n_kv_heads = 12,
                                              .head_dim = 64,
                                              .ffn_width = 2048,
                                              .vocab = 50257,
                                              .tied = true,
                                              .norm_eps = 1e-5,
                                              .rope_theta = 10000,
                                              .max_pos = 8192};

static const struct model_shape llama_1b = {LLAMA_1B, .max_pos = 8192};

/* The ways in which a pass is timed. */
static const struct way {
    const char *name;
    int P, threads;
} ways[] = {{"1 rank x 2 threads", 1, 2}, {"2 ranks x 1 thread", 2, 1}};
/* fp16 is left out, because the CPU widens it, so that it is no faster than fp32. */
enum { PRECISIONS = PRECISION_BF16 + 1 };
static const char *const words[PRECISIONS] = {"fp32", "bf16"};

struct passes {
    const struct job_spec *spec; /* a job whose kind infers, with parallel.sp ranks */
    /* A function that is called on every rank. The model has random weights, and its input is a
     * sequence of synth.h. */
    int (*run)(struct model *m, int rank, void *arg, struct err *e);
    void *arg;
    struct plan plan; /* out */
    struct synth synth;
};

static inline void passes_on_rank(struct ranks *g, int rank, void *arg)
{
    struct passes *p = arg;
    struct err e = {0};
    pin_rank(rank);
    struct model *m = calloc(1, sizeof *m);
    struct engine_memory mem = engine_open(p->spec, &p->plan, NULL);
    struct comm *comm = g ? g->comm[rank] : NULL;
    struct model_options o = {.shape = &p->spec->model.shape,
                              .plan = &p->plan,
                              .arena = mem.arena,
                              .segment = comm ? comm_segment(comm) : NULL,
                              .be = mem.be,
                              .comm = comm,
                              .rank = rank,
                              .n_ranks = p->plan.sp};
    if (!m || model_init(m, &o, &e)) goto out;
    model_random(m, 1);
    stored_turn(m);
    synth_batch(&p->synth, &m->sp.shard, 0, &m->batch, &e);
    p->run(m, rank, p->arg, &e);
out:
    if (e.code != ERR_NONE) fprintf(stderr, "rank %d: %s\n", rank, e.text);
    engine_close(&mem, &p->plan);
    free(m);
}

/* Runs the passes. Ends the process if there is no plan. */
static inline void passes_run(struct passes *p, int64_t S)
{
    struct err e = {0};
    p->synth = (struct synth){.S = S, .vocab = (int32_t)p->spec->model.shape.vocab};
    if (plan_make(p->spec, 0, &p->plan, &e)) {
        fprintf(stderr, "plan: %s\n", e.text);
        exit(1);
    }
    if (p->plan.sp == 1) {
        passes_on_rank(NULL, 0, p);
        return;
    }
    struct ranks g;
    ranks_open(&g, p->plan.sp, p->plan.segment_size, &(struct comm_options){0});
    ranks_run(&g, passes_on_rank, p);
    ranks_close(&g);
}

#endif
