/* test_seqd_rope.c: tests model.rope, which replaces the model's rule of RoPE. */
#include <stdio.h>
#include <string.h>
#include "api/core/job.h"
#include "daemon/spec/json.h"
#include "tests/lib/test.h"
#include "worker/plan/check.h"
#include "worker/program/rope.h"

#define SIZES                                                                                      \
    "\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4,"                        \
    "\"intermediate_size\":80,\"vocab_size\":300,\"max_position_embeddings\":512"

/* Reads a training of a new model, in the form in which a person writes it. */
static int take(struct job_spec *s, const char *config, const char *rope, struct err *e)
{
    char text[2048];
    const int n = snprintf(
        text, sizeof text,
        "{\"kind\":\"train\",\"model\":{\"rope\":%s,\"config\":{%s}},\"data\":{\"seq_len\":128,"
        "\"train\":[{\"path\":\"a.npy\",\"format\":\"npy\"}]},\"train\":{\"steps\":5}}",
        rope, config);
    return json_spec_read(text, (size_t)n, JSON_FOR_PEOPLE, s, e) || family_check(s, e) ? -1 : 0;
}

/* Checks that the keys of model.rope have the same effect on the model's shape as these keys in
 * model.config. */
static void test_of_a_job(void)
{
    static const struct {
        const char *rope, *config;
    } v[] = {{"{\"type\":\"yarn\",\"factor\":4,\"beta_fast\":16,\"truncate\":false}",
              ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4,\"beta_fast\":16,"
              "\"truncate\":false}"},
             {"{\"type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,\"high_freq_factor\":4,"
              "\"original_max_position_embeddings\":64,\"theta\":500}",
              ",\"rope_theta\":500,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,"
              "\"low_freq_factor\":1,\"high_freq_factor\":4,"
              "\"original_max_position_embeddings\":64}"},
             {"{\"type\":\"linear\",\"factor\":2}",
              ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}"},
             {"{\"theta\":2000,\"compute\":\"hf\"}", ",\"rope_theta\":2000"}};
    static struct job_spec a, b;
    struct err e;
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        char text[1024];
        snprintf(text, sizeof text, "\"model_type\":\"llama\"," SIZES "%s", v[i].config);
        CHECK_MSG(!take(&b, text, "{}", &e), "%s", e.text);
        CHECK_MSG(!take(&a, "\"model_type\":\"llama\"," SIZES, v[i].rope, &e), "%s", e.text);
        CHECK(a.model.shape.rope_theta == b.model.shape.rope_theta);
        CHECK_MSG(!rope_differs(&a.model.shape, &b.model.shape), "%s", v[i].rope);
        CHECK_STR(a.model.config, b.model.config);
        CHECK(!family_check(&a, &e) && !rope_differs(&a.model.shape, &b.model.shape));
    }
    /* All keys of the model's own rule are replaced. */
    CHECK(!take(&a,
                "\"model_type\":\"llama\"," SIZES ",\"rope_scaling\":{\"rope_type\":\"llama3\","
                "\"factor\":8,\"low_freq_factor\":1,\"high_freq_factor\":4}",
                "{\"type\":\"default\"}", &e));
    CHECK(!take(&b, "\"model_type\":\"llama\"," SIZES, "{}", &e));
    CHECK(!rope_differs(&a.model.shape, &b.model.shape));
}

static void test_of_a_job_refused(void)
{
    static const struct {
        const char *type, *rope, *field;
    } v[] = {
        {"llama", "{\"factor\":4}", "model.rope.factor"},
        {"llama", "{\"truncate\":false}", "model.rope.truncate"},
        {"llama", "{\"type\":\"linear\",\"factor\":2,\"beta_fast\":3}", "model.rope.beta_fast"},
        {"llama", "{\"type\":\"default\",\"factor\":2}", "model.rope.factor"},
        {"llama", "{\"type\":\"longrope\",\"factor\":2}", "model.rope.type"},
        {"llama", "{\"type\":\"linear\"}", "model.rope.factor"},
        {"llama", "{\"type\":\"llama3\",\"factor\":2}", "model.rope.low_freq_factor"},
        {"llama", "{\"type\":\"yarn\",\"factor\":-2}", "model.rope.factor"},
        {"phi3", "{\"type\":\"yarn\",\"factor\":2}", "model.rope.type"},
        {"minimax\",\"num_local_experts\":4,\"num_experts_per_tok\":2,\"hidden_act\":\"silu",
         "{\"type\":\"linear\",\"factor\":2}", "model.rope.type"},
        {"gpt2", "{\"theta\":500}", "model.rope.theta"},
        {"retnet", "{\"type\":\"linear\",\"factor\":2}", "model.rope.type"}};
    static struct job_spec s;
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        struct err e = {0};
        char text[1024];
        snprintf(text, sizeof text, "\"model_type\":\"%s\"," SIZES, v[i].type);
        CHECK_MSG(take(&s, text, v[i].rope, &e) == -1, "%s of %s", v[i].rope, v[i].type);
        CHECK_MSG(!strcmp(e.field, v[i].field), "%s of %s: %s: %s", v[i].rope, v[i].type, e.field,
                  e.text);
    }
}

/* Checks that a stage's base is refused if the family has none. */
static void test_of_a_stage(void)
{
    static const char *const types[] = {"llama", "gemma2", "gpt2", "retnet"};
    static struct job_spec s;
    for (int i = 0; i < 4; i++) {
        struct err e = {0};
        char text[1024];
        snprintf(text, sizeof text, "\"model_type\":\"%s\"," SIZES, types[i]);
        CHECK_MSG(!take(&s, text, "{}", &e), "%s", e.text);
        s.n_stages = 2;
        s.stages[0] = (struct spec_stage){.from_step = 2, .lr = 1e-4};
        s.stages[1] = (struct spec_stage){.from_step = 3, .rope_theta = 500};
        const int rc = family_check(&s, &e);
        CHECK_MSG(i < 2 ? rc == 0 : rc == -1 && !strcmp(e.field, "stages.1.rope_theta"), "%s: %s",
                  types[i], e.text);
    }
}

int main(void)
{
    RUN(test_of_a_job);
    RUN(test_of_a_job_refused);
    RUN(test_of_a_stage);
    return test_done("seqd_rope");
}
