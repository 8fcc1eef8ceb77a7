/* mutant.h: chooses an injected fault (api/core/mutant.h), and reports a test's verdict on it.
 * tests/mutants.sh gathers the lines into a table in which every fault must have been caught by a
 * test. */
#ifndef SEQD_TESTS_MUTANT_H
#define SEQD_TESTS_MUTANT_H

#include "api/core/mutant.h"
#include "tests/lib/test.h"

#ifdef SEQD_MUTANTS
extern const char *const mutant_names[]; /* "grad_over_p": enum mutant_id's, in lower case */
/* Choose the fault (enum mutant_id), and the tensor of GRAD_DROPPED, for all threads from now on.
 * Call them while no rank runs. */
void mutant_choose(int id);
void mutant_choose_tensor(int tensor);

/* Reports a verdict, in one line for each fault and `by`. by: the check that noticed the fault, or
 * should have: "dkv of 3 ranks". */
static inline void mutant_report(int mutant, bool caught, const char *by)
{
    printf("mutant %s %s %s\n", mutant_names[mutant], caught ? "caught" : "missed", by);
    CHECK_MSG(caught, "mutant %s passes: %s", mutant_names[mutant], by);
}

/* Reports a fault that no proof sees: verify computes one step and no update, and the control plane
 * computes nothing. */
static inline void verify_blind(int mutant)
{
    printf("verify %s blind %s\n", mutant_names[mutant],
           mutant < MUTANT_CONTROL ? "one step, and no update"
                                   : "the control plane: it computes nothing");
}

/* Reports the verdict of a proof. by: the tensor that it names, and the run:
 * "layers.1.k_proj (llama, ring, P 3)". */
static inline void verify_report(int mutant, bool named, const char *by)
{
    printf("verify %s %s %s\n", mutant_names[mutant], named ? "names" : "misses", by);
    CHECK_MSG(named, "verify does not name what %s makes wrong: %s", mutant_names[mutant], by);
}
#else
/* A build without faults. */
static inline void mutant_choose(int id)
{
}
static inline void mutant_choose_tensor(int tensor)
{
}
#endif

#endif
