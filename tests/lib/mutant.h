/* mutant.h: what a test says about an injected fault (built with SEQD_MUTANTS). tests/mutants.sh
 * gathers the lines into a table in which every fault must have been caught by something. */
#ifndef SEQD_TESTS_MUTANT_H
#define SEQD_TESTS_MUTANT_H

#include "tests/lib/test.h"
#include "worker/sp/sp.h"

#ifdef SEQD_MUTANTS
/* by: what noticed it, or should have: "dkv of 3 ranks". One line for each fault and `by`. */
static inline void mutant_report(int mutant, bool caught, const char *by)
{
    printf("mutant %s %s %s\n", sp_mutant_names[mutant], caught ? "caught" : "missed", by);
    CHECK_MSG(caught, "mutant %s passes: %s", sp_mutant_names[mutant], by);
}

/* Of a fault that no proof sees: verify computes one step and no update. */
static inline void verify_blind(int mutant)
{
    printf("verify %s blind one step, and no update\n", sp_mutant_names[mutant]);
}

/* The same of a proof. by: the tensor it names, and of what: "layers.1.k_proj (llama, ring, P 3)". */
static inline void verify_report(int mutant, bool named, const char *by)
{
    printf("verify %s %s %s\n", sp_mutant_names[mutant], named ? "names" : "misses", by);
    CHECK_MSG(named, "verify does not name what %s makes wrong: %s", sp_mutant_names[mutant], by);
}
#endif

#endif
