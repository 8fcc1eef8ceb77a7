/* test_adapter_jobs.c: a generate job with model.adapters, run by a real seqrank, whose directories
 * change after the job was submitted.
 * tests: needs seqrank golden */
#include <stdarg.h>
#include "api/core/job_paths.h"
#include "tests/lib/gang.h"
#include "tests/lib/model_dir.h"
#include "worker/hf/adapter.h"
#include "worker/hf/base_id.h"

static struct gang g; /* off the stack */

static void shell(const char *format, ...)
{
    char command[2048];
    va_list list;
    va_start(list, format);
    vsnprintf(command, sizeof command, format, list);
    va_end(list);
    CHECK_MSG(!system(command), "%s", command);
}

/* ---- the job --------------------------------------------------------------------------------- */

/* Makes the model, and the adapters "wide" and "plain" of it. Only "wide" names its base. */
static void make_directories(void)
{
    struct base_id id = {0};
    struct model_shape m = {0};
    shell("cd '%s' && rm -rf model wide plain", scratch);
    shell("cp -r tests/golden/qwen3 '%s/model' && cp -r tests/golden/adapter/qwen3 '%s/wide'",
          scratch, scratch);
    shell("cd '%s' && rm */golden.safetensors */steps.safetensors && cp -r wide plain", scratch);
    CHECK_MSG(!hf_read_dir(in_dir("model", ""), &m, &e) && !family_complete(&m, &e) &&
                  !base_id_model(in_dir("model", ""), &m, &id, &e),
              "%s", e.text);
    snprintf(id.name, sizeof id.name, "%s", in_dir("model", ""));
    CHECK(!base_id_write(in_dir("wide", ""), &id, &e));
}

/* Describes an adapter, as a node does when the job is submitted. */
static struct spec_adapter describe(struct job_spec *s, const char *name)
{
    char json[SPEC_CONFIG_SIZE];
    CHECK_MSG(adapter_describe(in_dir(name, ""), json, sizeof json, &e) > 0, "%s", e.text);
    return (struct spec_adapter){tiny_text(s, name), tiny_text(s, in_dir(name, "")),
                                 tiny_text(s, json)};
}

static struct order *submit(const char *name, int ranks)
{
    struct order *o = order_new(JOB_GENERATE, scratch, "", name);
    struct job_spec *s = &o->spec;
    s->model.path = tiny_text(s, in_dir("model", ""));
    shape_defaults(&s->model.shape);
    CHECK_MSG(!hf_read_dir(in_dir("model", ""), &s->model.shape, &e), "%s", e.text);
    s->model.adapters[0] = describe(s, "wide");
    s->model.adapters[1] = describe(s, "plain");
    s->input.source.path = tiny_text(s, in_dir("", "ask.jsonl"));
    s->input.source.format = DATA_OPENAI_BATCH;
    s->data.seq_len = 32;
    s->sampling.max_tokens = 4;
    s->resources.ranks = ranks;
    CHECK_MSG(!family_check(s, &e), "%s: %s", e.field, e.text);
    CHECK(s->model.shape.adapters.n == 2);
    return o;
}

static bool runs(struct order *o)
{
    gang_start(&g, o->spec.resources.ranks, o);
    gang_run(&g);
    return all_ok(&g);
}

/* ---- changes --------------------------------------------------------------------------------- */

/* `change` is a command of the shell in the folder of the directories. */
struct change {
    const char *change, *field, *says;
};

/* clang-format off */
static const struct change changes[] = {
    {"sed -i 's/\"r\": 3/\"r\": 4/' plain/adapter_config.json", "model.adapters.plain",
     "the directory has changed since the job was submitted: submit the job again"},
    {"sed -i 's/\"lora_alpha\": 5/\"lora_alpha\": 7/' wide/adapter_config.json",
     "model.adapters.wide",
     "the directory has changed since the job was submitted: submit the job again"},
    {"rm -r wide", "model.adapters.wide", "wide"},
    {"rm plain/adapter_model.safetensors", "model.adapters.plain", "adapter_model.safetensors"},
    {"truncate -s -100 wide/adapter_model.safetensors", "model.adapters.wide",
     "adapter_model.safetensors"},
    {"cp wide/adapter_model.safetensors model/model.safetensors", "model.path",
     "does not fit its config.json"},
    {"cd model && truncate -s -1 model.safetensors && printf x >>model.safetensors",
     "model.adapters.wide", "has changed since"},
};
/* clang-format on */

static void test_unchanged(void)
{
    make_directories();
    for (int ranks = 1; ranks <= 2; ranks++) {
        struct order *o = submit("unchanged", ranks);
        CHECK_MSG(runs(o), "%s: %s", g.fail.field, g.fail.text);
        free(o);
    }
}

/* Checks that rank 0 names the field and the fix, and that no rank computes an answer. */
static void test_changed(void)
{
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        const struct change *c = &changes[i];
        make_directories();
        char name[24];
        snprintf(name, sizeof name, "changed%zu", i);
        struct order *o = submit(name, 1 + (int)(i % 2));
        shell("cd '%s' && %s", scratch, c->change);
        CHECK_MSG(!runs(o), "%s: the job ran", c->change);
        const struct rank_fail *f = &g.said[0];
        CHECK_MSG(!strcmp(f->field, c->field) && strstr(f->text, c->says), "%s: %s: %s", c->change,
                  f->field, f->text);
        CHECK_MSG(!*g.result && !there(o->args.job_dir, "artifacts/results.jsonl"), "%s",
                  c->change);
        free(o);
    }
}

static void put_requests(void)
{
    static const char *const models[] = {"wide", "plain", NULL};
    char line[1024] = "";
    for (int i = 0; i < 3; i++) {
        const size_t n = strlen(line);
        snprintf(line + n, sizeof line - n,
                 "{\"custom_id\":\"%d\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":"
                 "{\"prompt\":[5,25,6],\"max_tokens\":4%s%s%s}}\n",
                 i, models[i] ? ",\"model\":\"" : "", models[i] ? models[i] : "",
                 models[i] ? "\"" : "");
    }
    put("", "ask.jsonl", line);
}

int main(int argc, char **argv)
{
    (void)argc;
    gang_program(argv[0]);
    model_dir_begin("test_adapter_jobs");
    put_requests();
    RUN(test_unchanged);
    RUN(test_changed);
    model_dir_end();
    return test_done("adapter_jobs");
}
