/* test_pairs_check: checks which jobs may learn preferences, and the errors of all others. */
#include "api/core/job.h"
#include "tests/lib/engine.h"
#include "worker/plan/check.h"

static struct job_spec legal, s; /* static because they are too large for the stack */

/* Makes a job that may learn preferences. */
static void begin(void)
{
    engine_spec(&s, 64);
    engine_legal(&s);
    s.objective.type = OBJECTIVE_DPO;
    s.data.train[0].format = DATA_JSONL;
    s.data.packing = PACKING_BEST_FIT;
    legal = s;
}

static void refused(const char *field, const char *says)
{
    struct err e = {0};
    CHECK_MSG(family_check(&s, &e) == -1 && strstr(e.text, says), "want \"%s\": %s", says, e.text);
    CHECK_STR(e.field, field);
    s = legal;
}

static void test_data(void)
{
    struct err e = {0};
    begin();
    CHECK_MSG(family_check(&s, &e) == 0, "%s", e.text);
    s.data.packing = PACKING_CONCAT;
    refused("data.packing", "cuts answers");
    s.data.overlong = OVERLONG_SPLIT;
    refused("data.overlong", "cuts answers");
    s.data.overlong = OVERLONG_TRUNCATE;
    refused("data.overlong", "set it to error or drop");
    s.data.document_mask = 0;
    refused("data.document_mask", "must not see each other");
    s.data.reset_positions = 0;
    refused("data.reset_positions", "must not see each other");
    s.data.loss_on = LOSS_ON_ALL;
    refused("data.loss_on", "leave it out");
    s.eval.n_data = 1;
    spec_source_defaults(&s.eval.data[0]);
    s.eval.data[0].path = s.data.train[0].path;
    s.eval.data[0].format = DATA_NPY;
    refused("eval.data.0", "give a jsonl file");
    s.data.train[0].format = DATA_NPY;
    refused("data.train.0", "give a jsonl file");
}

static void test_fields(void)
{
    struct err e = {0};
    begin();
    s.objective.loss = PREFERENCE_IPO;
    s.objective.label_smoothing = 0.1;
    refused("objective.label_smoothing", "leave it out with \"ipo\"");
    s.objective.z_loss = 1e-4;
    refused("objective.z_loss", "leave it out with \"dpo\"");
    s.kind = JOB_VERIFY;
    CHECK_MSG(!family_check(&s, &e), "%s", e.text);
    s = legal;
    s.verify.first_step = 1;
    CHECK_MSG(!family_check(&s, &e), "%s", e.text);
    s = legal;
    s.eval.n_data = 1;
    spec_source_defaults(&s.eval.data[0]);
    s.eval.data[0].path = s.data.train[0].path;
    s.eval.data[0].format = DATA_JSONL;
    CHECK_MSG(family_check(&s, &e) == 0, "%s", e.text);
}

int main(void)
{
    RUN(test_data);
    RUN(test_fields);
    return test_done("pairs_check");
}
