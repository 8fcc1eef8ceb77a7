/* variants.h: runs problems on several numbers of ranks and with several forms of attention, one
 * after the other. Each result is compared with float64 (ring.h). The largest errors of the whole
 * test program are kept. */
#ifndef SEQD_TESTS_VARIANTS_H
#define SEQD_TESTS_VARIANTS_H

#include "tests/lib/ring.h"

static const int degrees[] = {1, 2, 3, 4, 5, 8};
enum { N_DEGREES = 6 };

static struct errors worst; /* the largest errors of all calls of check_variant */

static inline void check_variant(const struct problem *p, const struct variant *v)
{
    struct result out = result_make(p);
    const int64_t n_bad = run(p, v, &out);
    const struct errors e = compare(p, &out);
    worst = (struct errors){fmax(worst.o, e.o), fmax(worst.dq, e.dq), fmax(worst.dk, e.dk),
                            fmax(worst.dv, e.dv), fmax(worst.sink, e.sink)};
    CHECK_MSG(within(e) && n_bad == 0,
              "S %lld H %lld:%lld D %lld docs %d causal %d window %lld P %d layout %d form %d maps "
              "%d: o %.2e dq %.2e dk %.2e dv %.2e sinks %.2e, %lld bad",
              (long long)p->S, (long long)p->H, (long long)p->Hk, (long long)p->D, p->docs,
              p->causal, (long long)p->window, v->P, v->layout, v->form, v->maps, e.o, e.dq, e.dk,
              e.dv, e.sink, (long long)n_bad);
    result_free(&out);
}

struct heads {
    int64_t H, Hk, D;
};

/* Calls `call` for each combination of one of the n entries of h, one of the ways in which
 * documents can divide S tokens, and causal or bidirectional attention. */
static inline void each_problem(int64_t S, const struct heads *h, int n,
                                void (*call)(struct problem))
{
    for (int i = 0; i < n; i++)
        for (int docs = 0; docs < DOCS_N; docs++)
            for (int causal = 0; causal < 2; causal++)
                call(problem_make(S, h[i].H, h[i].Hk, h[i].D, (enum docs)docs, causal));
}

/* Ends a suite. main calls it in its last line and returns its result. */
static inline int variants_done(const char *suite)
{
    devices_close();
    printf("  worst: o %.2e dq %.2e dk %.2e dv %.2e sinks %.2e\n", worst.o, worst.dq, worst.dk,
           worst.dv, worst.sink);
    return test_done(suite);
}

#endif
