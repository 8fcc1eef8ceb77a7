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
    refused("data.packing", "needs whole: set it to best_fit, which is the default here, or");
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

/* Checks fields that only other objectives read, and those that only preferences read. A field that
 * has its default is taken, because an effective spec has every field. */
static void test_other_objectives(void)
{
    struct err e = {0};
    begin();
    s.objective.mask_prob = 0.2;
    refused("objective.mask_prob", "objective.mask_prob 0.2: objective.type \"dpo\" does not read");
    s.objective.mask_token = 3;
    refused("objective.mask_token", "objective.mask_token 3: ");
    s.objective.timestep = TIMESTEP_UNIFORM;
    refused("objective.timestep", "objective.timestep \"uniform\": ");
    s.objective.transform = 0;
    refused("objective.transform", "objective.transform false: ");
    s.objective.text_dropout = 0;
    refused("objective.text_dropout", "leave it out");
    s.objective.frame_mask[3] = 0.5;
    refused("objective.frame_mask.head_tail", "leave it out");
    CHECK(!spec_intern(&s, "body", 4, &s.data.train[0].text_key));
    refused("data.train.0.text_key",
            "data.train.0.text_key \"body\": objective.type \"dpo\" reads");
    CHECK(!spec_intern(&s, "text", 4, &s.data.train[0].text_key));
    CHECK_MSG(!family_check(&s, &e), "%s", e.text);
    for (int type = OBJECTIVE_AUTO; type <= OBJECTIVE_CAUSAL_LM; type++) {
        s = legal;
        s.objective.type = type;
        CHECK_MSG(!family_check(&s, &e), "%s", e.text);
        legal = s;
        s.objective.beta = 0.3;
        refused("objective.beta",
                "objective.beta 0.3 goes with objective.type \"dpo\" alone, and the "
                "type is \"causal_lm\": set objective.type to \"dpo\", or leave");
        s.objective.loss = PREFERENCE_IPO;
        refused("objective.loss", "objective.loss \"ipo\" goes with");
        s.objective.sft_weight = 1;
        refused("objective.sft_weight", "objective.sft_weight 1 goes with");
    }
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
    RUN(test_other_objectives);
    RUN(test_fields);
    return test_done("pairs_check");
}
