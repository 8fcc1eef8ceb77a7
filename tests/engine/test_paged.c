/* test_paged.c: checks models with pages (tests/lib/paged_model.h), and the rows that ranks have of
 * pages. */
#include "api/core/log.h"
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

int main(void)
{
    log_init("test_paged");
    RUN(test_rows);
    RUN(test_models);
    return test_done("paged");
}
