/* test_paged.c: checks models with pages (tests/lib/paged_model.h), and the rows that ranks have of
 * pages. */
#include "api/core/log.h"
#include "tests/lib/mutant.h"
#include "tests/lib/paged_model.h"

/* Checks the rows that ranks have of pages against a count by hand. */
static void test_rows(void)
{
    for (int P = 1; P <= 5; P++) {
        int64_t n[5] = {0};
        for (int64_t pos = 0; pos < 700; pos++) {
            const int owner = (int)(pos / CACHE_PAGE % P);
            for (int r = 0; r < P; r++) CHECK(paged_before(P, r, pos) == n[r]);
            CHECK(paged_owner(P, pos) == owner && paged_pos(P, owner, n[owner]) == pos);
            n[owner]++;
        }
    }
    CHECK(paged_most(3, 64, 200) == 72 && paged_most(1, 0, 5) == 5 && paged_most(4, 192, 64) == 64);
}

static void test_models(void)
{
    for (int i = 0; i < N_MODELS; i++) check_model(&models[i], 4);
}

#ifdef SEQD_MUTANTS
static void test_mutant(void)
{
    struct job *j = open_model(&models[0]);
    job_of(j, &models[0], 3, true);
    mutant_choose(MUTANT_PARTS_ORDER);
    reading_run(&j->spec, 3, serve_body, j);
    mutant_choose(MUTANT_NONE);
    mutant_report(MUTANT_PARTS_ORDER, !compare_ways(j, 3, false), "pieces beside decoding");
    verify_blind(MUTANT_PARTS_ORDER);
    free_model(j);
}
#endif

int main(void)
{
    log_init("test_paged");
    RUN(test_rows);
    RUN(test_models);
#ifdef SEQD_MUTANTS
    RUN(test_mutant);
#endif
    return test_done("paged");
}
