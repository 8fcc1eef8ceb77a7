/* test_seqd_refs: tests references job:ID of models and of adapters: the part of a checkpoint that
 * each takes, the job whose checkpoints do not have it, and files that lie on two nodes. */
#include "api/core/job_state.h"
#include "tests/lib/rest.h"

#define CONFIG                                                                                     \
    "\"config\":{\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4,"            \
    "\"intermediate_size\":128}"
#define LORA ",\"adapter\":{\"type\":\"lora\"}"

static const struct made {
    int id;
    const char *node, *model, *more; /* more is NULL for a merge */
} jobs[] = {
    {39, "n1", "\"path\":\"job:40/step-5/hf\",\"adapter\":\"job:41/step-5/adapter\"", NULL},
    {40, "n1", CONFIG, ""},
    {41, "n1", "\"path\":\"job:40/step-5/hf\"", LORA},
    {42, "n2", CONFIG, LORA},
    {43, "n2", CONFIG, ""},
};
enum { JOBS = sizeof jobs / sizeof *jobs };

/* Writes a spec of a training, or of a merge if `more` is NULL. `more` are members beside the
 * model. */
static const char *spec_of(const char *model, const char *more)
{
    static char text[1024];
    if (!more) snprintf(text, sizeof text, "{\"kind\":\"merge\",\"model\":{%s}}", model);
    if (!more) return text;
    snprintf(text, sizeof text,
             "{\"kind\":\"train\",\"model\":{%s},\"data\":{\"train\":[{\"path\":\"/x\"}],"
             "\"seq_len\":100},\"train\":{\"steps\":5}%s}",
             model, more);
    return text;
}

/* Writes the rows of the jobs, each with a checkpoint of step 5 and an artifact on its node. */
static void fill(void)
{
    for (int i = 0; i < JOBS; i++) {
        const struct made *m = &jobs[i];
        char doc[128], assign[64];
        snprintf(doc, sizeof doc, "\"id\":%d,\"state\":\"succeeded\"", m->id);
        snprintf(assign, sizeof assign, "{\"node\":\"%s\",\"ranks\":1}", m->node);
        const char *data[] = {"{}", assign, "{\"step\":5,\"detail\":{\"path\":\"/x\"}}",
                              "{\"detail\":{\"name\":\"a\",\"size\":7}}"};
        static const int type[] = {EV_SUBMIT, EV_ASSIGN, EV_CHECKPOINT, EV_ARTIFACT};
        struct store_txn *t = store_begin();
        store_job_new(t, m->id, 1000, spec_of(m->model, m->more), NULL, doc, "tester");
        for (int n = 0; n < 4; n++)
            store_event_add(
                t, &(struct store_event){10 * m->id + n, m->id, 1, 1000, type[n], data[n]});
        store_job_set(t, m->id, JOB_SUCCEEDED, doc);
        commit(t);
    }
}

static void begin_with_jobs(void)
{
    rest_away = true;
    begin();
    fill();
    close_server();
    begin_in(false, 0); /* the ids of the new seqd continue after these jobs */
}

/* Submits a training. Returns the text of the refusal, or "" if the references are resolved. The
 * next thing that seqd does is to ask a node, and no node is connected. */
static const char *refusal(const char *model, const char *more)
{
    w.fetch.path[0] = 0;
    const int status = post("/v1/jobs", spec_of(model, more));
    CHECK_MSG(status == 201 || status == 400 || status == 503, "%s: %s", model, reply);
    return status == 400 ? reply : "";
}

/* Checks that a job names the part `want` of a checkpoint, in its spec or in the question to the
 * node. */
static void takes(const char *model, const char *more, const char *want)
{
    CHECK_MSG(!*refusal(model, more), "%s: %s", model, reply);
    CHECK_MSG(strstr(reply, want) || !strcmp(w.fetch.path, want), "%s: %s", want, reply);
}

static void test_parts(void)
{
    begin_with_jobs();
    takes("\"path\":\"job:40\"", "", "job:40/step-5/hf");
    takes("\"path\":\"job:40/step-5/hf\"", "", "job:40/step-5/hf");
    takes(CONFIG ",\"adapter\":\"job:41\"", LORA, "job:41/step-5/adapter");
    takes(CONFIG ",\"adapter\":\"job:41/step-5/adapter\"", LORA, "job:41/step-5/adapter");
    takes("\"path\":\"job:41/artifacts/a\"", "", "job:41/artifacts/a");
    takes("\"path\":\"job:39\"", "", "job:39/step-5/hf");
    finish();
    rest_away = false;
}

/* Checks the refusal of a job whose checkpoints lack the part, which says how to name the job. */
static void test_other_part(void)
{
    static const char *const adapters[] = {"job:41", "job:41/step-5", "job:41/step-5/hf",
                                           "job:41/step-5/adapter"};
    begin_with_jobs();
    for (size_t i = 0; i < sizeof adapters / sizeof *adapters; i++) {
        char model[96];
        snprintf(model, sizeof model, "\"path\":\"%s\"", adapters[i]);
        const char *said = refusal(model, "");
        CHECK_MSG(strstr(said, "model.path: job 41 trained an adapter and has no whole model "
                               "(checkpoint.merge): name "
                               "the job in model.adapter, and its base, job:40/step-5/hf, in "
                               "model.path"),
                  "%s: %s", adapters[i], said);
        CHECK_MSG(strstr(said, "\"pointer\":\"/model/path\""), "%s", said);
    }
    CHECK_MSG(strstr(refusal("\"path\":\"job:42\"", ""), "give model.config and seed of that job"),
              "%s", reply);
    CHECK_MSG(strstr(refusal("\"path\":\"job:40\",\"adapter\":\"job:40\"", LORA),
                     "model.adapter: job 40 trained a whole model and no adapter: name it in "
                     "model.path"),
              "%s", reply);
    CHECK_MSG(strstr(refusal("\"path\":\"job:40\",\"adapter\":\"job:39\"", LORA),
                     "model.adapter: job 39 merged an adapter into its model, and left no adapter: "
                     "name the job in model.path"),
              "%s", reply);
    CHECK_MSG(strstr(refusal(CONFIG, ",\"checkpoint\":{\"resume\":\"job:39\"}"),
                     "checkpoint.resume: job 39 merged an adapter into its model, and left nothing "
                     "to resume from"),
              "%s", reply);
    finish();
    rest_away = false;
}

/* Checks a training that resumes the checkpoint of another with adapters of another form. */
static void test_other_adapter(void)
{
#define RESUMES(members)                                                                           \
    ",\"adapter\":{" members "},\"checkpoint\":{\"resume\":\"job:42\",\"changes\":true}"
    static const char *const rows[][2] = {
        {RESUMES("\"type\":\"lora\",\"rank\":4"), "has adapter.rank 8, and this job has 4: give"},
        {RESUMES("\"type\":\"lora\",\"alpha\":16"), "has adapter.alpha 8, and this job has 16"},
        {RESUMES("\"type\":\"lora\",\"rslora\":true"), "has adapter.rslora false, and this"},
        {RESUMES("\"type\":\"none\""), "has adapter.type \\\"lora\\\", and this job has"}};
    begin_with_jobs();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        CHECK_MSG(strstr(refusal(CONFIG, rows[i][0]), rows[i][1]), "%zu: %s", i, reply);
    CHECK_MSG(!*refusal(CONFIG, RESUMES("\"type\":\"lora\",\"rank\":8,\"alpha\":8")), "%s", reply);
    CHECK_MSG(!*refusal(CONFIG, RESUMES("\"type\":\"lora\"")), "%s", reply);
    finish();
    rest_away = false;
}

/* Submits a job, for which the node is asked about the path, and answers with the text. Returns the
 * status. */
static int submit(const char *model, const char *more, const char *node, const char *path,
                  const char *answer)
{
    w.fetch.type = 0;
    const int fd = post_begin("/v1/jobs", "", spec_of(model, more));
    wait_question();
    CHECK_STR(w.asked, node);
    CHECK_STR(w.fetch.path, path);
    struct msg m = {.type = MSG_DESCRIBED, .request = w.fetch.request};
    snprintf(m.config, sizeof m.config, "%s", answer);
    control_link_calls.message(w.control, node, &m);
    return answer_of(fd);
}

static void begin_with_nodes(void)
{
    begin_with_jobs();
    rest_away = false;
    node_joins_as("n1", 0);
    node_joins_as("n2", 0);
}

/* Checks files that a job reads on one node, where rank 0 runs. Rank 0 reads model.path also when
 * it resumes a checkpoint. */
static void test_two_nodes(void)
{
    static const char from_43[] = ",\"checkpoint\":{\"resume\":\"job:43\"}";
    static const char lora_42[] = LORA ",\"checkpoint\":{\"resume\":\"job:42\"}";
    static const struct {
        const char *model, *more, *says;
    } rows[] = {
        {"\"path\":\"job:40\",\"adapter\":\"job:42\"", LORA,
         "model.adapter: the files of job:42 lie on node n2 and those of model.path, "
         "job:40/step-5/hf, on node n1"},
        {"\"path\":\"job:40\"", lora_42,
         "checkpoint.resume: the files of job:42 lie on node n2 and those of model.path, "},
        {"\"path\":\"job:40\",\"adapter\":\"job:41\"", lora_42,
         "checkpoint.resume: the files of job:42 lie on node n2 and those of model.path, "},
        {"\"path\":\"job:40\"", from_43,
         "checkpoint.resume: the files of job:43 lie on node n2 and those of model.path, "}};
    begin_with_nodes();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        CHECK_MSG(strstr(refusal(rows[i].model, rows[i].more), rows[i].says), "%s", reply);
        CHECK_MSG(strstr(reply, "upload:NAME"), "%s", reply);
    }
    finish();
}

/* Checks which node is asked about an adapter. A checkpoint that is resumed on another node takes
 * the place of its directory, and the job runs there. */
static void test_adapter_node(void)
{
    static const char model[] = CONFIG ",\"adapter\":\"job:41\"";
    static const char facts[] =
        "{\"rank\":8,\"alpha\":8,\"rslora\":false,\"dropout\":0,\"targets\":["
        "\"self_attn.q_proj\"]}";
    static const char adapter[] = "job:41/step-5/adapter";
    static const char resumed[] = ",\"checkpoint\":{\"resume\":\"job:42\"}";
    static const char all[] =
        ",\"adapter\":{\"type\":\"lora\",\"rank\":8,\"alpha\":8,\"rslora\":false,"
        "\"dropout\":0,\"targets\":[\"all-linear\"],\"modules_to_save\":[]}";
    char more[256];
    begin_with_nodes();
    CHECK_MSG(submit(model, "", "n1", adapter, facts) == 201, "%s", reply);
    CHECK_MSG(strstr(reply, adapter), "%s", reply);
    CHECK_STR(control_job(w.control, 44)->source, "n1");
    CHECK_MSG(submit(model, resumed, "n1", adapter, facts) == 201, "%s", reply);
    CHECK_STR(control_job(w.control, 45)->source, "n2");
    /* no process reads the directory of an adapter whose fields the job names */
    snprintf(more, sizeof more, "%s%s", all, resumed);
    w.fetch.type = 0;
    CHECK_MSG(post("/v1/jobs", spec_of(model, more)) == 201 && !w.fetch.type, "%s", reply);
    CHECK_STR(control_job(w.control, 46)->source, "n2");
    finish();
}

int main(void)
{
    json_init();
    RUN(test_parts);
    RUN(test_other_part);
    RUN(test_other_adapter);
    RUN(test_two_nodes);
    RUN(test_adapter_node);
    return test_done("seqd_refs");
}
