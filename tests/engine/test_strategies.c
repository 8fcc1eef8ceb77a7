/* Checks every line of the list of strategies (api/core/strategy.h). The two tables of strategies
 * must agree about the forms of a strategy, and at least one family must support it. Attention on
 * P ranks must equal attention that is computed from the definition (tests/lib/ring.h), and the
 * formula in the strategy's row must count every byte that is sent. */
/* Not under sanitizers: test_attention, test_ulysses and test_lasp run the same code. */
#include "api/core/job.h"
#include "tests/lib/variants.h"

static void each_form(void (*call)(int id, enum form_id form))
{
    for (int id = STRATEGY_AUTO + 1; id < STRATEGY_N; id++)
        for (int form = 0; form < FORM_N; form++)
            if (strategy_row(id)->form[form]) call(id, (enum form_id)form);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void check_form(int id, enum form_id form)
{
    const struct strategy_form *f = strategy_form(id, form);
    const bool runs = sp_find((enum strategy_id)id, form) != NULL;
    const bool softmax = strategy_row(id)->splits != SPLITS_GRID && !strategy_row(id)->splits_model;
    CHECK_MSG(runs == softmax, "%s, form %d: runs %d", strategy_word(id), form, runs);
    CHECK_MSG(!f->traffic || runs, "%s, form %d counts what nothing runs", strategy_word(id), form);
    CHECK_MSG(*f->what || strategy_row(id)->splits == SPLITS_ANY, "%s says nothing of itself",
              strategy_word(id));
    if (form == FORM_BLOCKWISE || !runs) return;
    CHECK_MSG(sp_find((enum strategy_id)id, form) != sp_find((enum strategy_id)id, FORM_BLOCKWISE),
              "%s, form %d runs the default form", strategy_word(id), form);
}

static void test_halves(void)
{
    each_form(check_form);
    for (int id = STRATEGY_AUTO + 1; id < STRATEGY_N; id++) {
        int n_families = 0;
        CHECK(strategy_row(id)->form[strategy_row(id)->first_form]);
        CHECK(!strcmp(strategy_word(id), spec_field("parallel.strategy")->words[id]));
        for (int f = 0; f < FAMILY_N; f++)
            n_families += strategy_fits(id, family_row(&(struct model_shape){.family = f}));
        CHECK_MSG(n_families > 0, "no family has %s", strategy_word(id));
    }
}

/* Checks that "auto" works for every family. */
static void test_defaults(void)
{
    for (int f = 0; f < FAMILY_N; f++) {
        const struct model_shape m = {.family = f};
        const int id = strategy_default(&m, 4);
        CHECK(strategy_fits(id, family_row(&m)) && !strategy_row(id)->splits_model);
        CHECK(strategy_default(&m, 1) == STRATEGY_LOCAL);
        CHECK(strategy_takes(&m, id, strategy_layout(&m, id, 4, false), 4));
        CHECK(strategy_layout(&m, id, 4, true) == LAYOUT_CONTIGUOUS);
    }
}

/* ---- attention ------------------------------------------------------------------------------- */

static const struct heads heads[] = {{6, 2, 8}, {8, 8, 24}};
static int at_id;
static enum form_id at_form;

static void check_problem(struct problem p)
{
    static int turn;
    truth(&p);
    for (int i = 0; i < N_DEGREES; i++, turn++) {
        if (small_leaves(turn, 5)) continue;
        check_variant(&p,
                      &(struct variant){.P = degrees[i],
                                        .layout = strategy_row(at_id)->zigzag ? LAYOUT_ZIGZAG
                                                                              : LAYOUT_CONTIGUOUS,
                                        .strategy = (enum strategy_id)at_id,
                                        .form = at_form,
                                        .n_threads = 1 + i % 2});
    }
    problem_free(&p);
}

static void attend(int id, enum form_id form)
{
    if (!sp_find((enum strategy_id)id, form) || strategy_row(id)->splits == SPLITS_ANY) return;
    at_id = id, at_form = form;
    each_problem(9, heads, 2, check_problem);
    each_problem(37, heads, 2, check_problem);
}

static void test_attention(void)
{
    each_form(attend);
}

int main(void)
{
    RUN(test_halves);
    RUN(test_defaults);
    RUN(test_attention);
    return variants_done("strategies");
}
