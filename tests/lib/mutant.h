/* mutant.h: chooses an injected fault (api/core/mutant.h), and reports whether a test has caught
 * it. tests/mutants.sh collects the reports in a table. Every fault must be caught by at least one
 * test. */
#ifndef SEQD_TESTS_MUTANT_H
#define SEQD_TESTS_MUTANT_H

#include "api/core/mutant.h"
#include "tests/lib/test.h"

#ifdef SEQD_MUTANTS
/* the names of enum mutant_id in lower case, such as "grad_over_p" */
extern const char *const mutant_names[];
/* mutant_choose chooses the fault (enum mutant_id), and mutant_choose_tensor the tensor that the
 * fault GRAD_DROPPED drops. Each choice applies to all threads until the next call. Call these
 * functions only while no rank runs. */
void mutant_choose(int id);
void mutant_choose_tensor(int tensor);

/* Prints one line that reports whether a fault was caught. `by` names the check that noticed the
 * fault or should have noticed it, such as "dkv of 3 ranks". */
static inline void mutant_report(int mutant, bool caught, const char *by)
{
    printf("mutant %s %s %s\n", mutant_names[mutant], caught ? "caught" : "missed", by);
    CHECK_MSG(caught, "mutant %s passes: %s", mutant_names[mutant], by);
}

/* Reports a fault that no verify job can see. Verify computes a single step and no update, and
 * runs nothing of the control plane. */
static inline void verify_blind(int mutant)
{
    printf("verify %s blind %s\n", mutant_names[mutant],
           mutant < MUTANT_CONTROL ? "one step, and no update"
                                   : "the control plane: it computes nothing");
}

/* Reports whether a verify job named the right tensor for a fault. `by` consists of that tensor
 * and the run, such as "layers.1.k_proj (llama, ring, P 3)". */
static inline void verify_report(int mutant, bool named, const char *by)
{
    printf("verify %s %s %s\n", mutant_names[mutant], named ? "names" : "misses", by);
    CHECK_MSG(named, "verify does not name what %s makes wrong: %s", mutant_names[mutant], by);
}
#else
/* In a build without faults, these functions do nothing. */
static inline void mutant_choose(int id)
{
}
static inline void mutant_choose_tensor(int tensor)
{
}
#endif

#endif
