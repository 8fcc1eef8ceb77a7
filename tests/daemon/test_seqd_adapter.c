/* test_seqd_adapter: tests jobs that name an adapter's directory. A node describes the directory,
 * and the job gets the values that it leaves out. Checks values that differ, answers that are none,
 * older nodes, plans for other hardware, and batches. */
#include "api/core/job.h"
#include "tests/lib/rest.h"

#define JOB(more)                                                                                  \
    "{\"kind\":\"generate\",\"model\":{\"path\":\"/m\",\"adapter\":\"/a\"},\"input\":{\"prompt\":" \
    "\"x\"}" more "}"
#define ALL                                                                                        \
    "\"self_attn.q_proj\",\"self_attn.k_proj\",\"self_attn.v_proj\",\"self_attn.o_proj\","         \
    "\"mlp.gate_proj\",\"mlp.up_proj\",\"mlp.down_proj\""
#define FACTS(targets)                                                                             \
    "{\"rank\":4,\"alpha\":9,\"rslora\":true,\"dropout\":0.25,\"targets\":[" targets "]}"

/* Answers the present question with the text, or with an error if `why` is not NULL. */
static void tell(const char *config, const struct err *why)
{
    struct msg m = {.type = MSG_DESCRIBED, .request = w.fetch.request};
    snprintf(m.config, sizeof m.config, "%s", config);
    if (why) m.err = *why;
    w.fetch.type = 0;
    control_link_calls.message(w.control, "n1", &m);
}

static void tell_model(void)
{
    const struct msg m = described("byte");
    CHECK(!w.fetch.adapter && !strcmp(w.fetch.path, "/m"));
    tell(m.config, NULL);
}

static int begin_request(const char *path, const char *body)
{
    w.fetch.type = 0;
    const int fd = post_begin(path, "", body);
    wait_question();
    CHECK(w.fetch.type == MSG_DESCRIBE && w.fetch.adapter && !w.fetch.models);
    CHECK_STR(w.fetch.path, "/a");
    return fd;
}

/* Submits a job whose adapter is described by this text. If asks_model is true, the model is
 * described next. Returns the status. */
static int submit(const char *body, const char *facts, bool asks_model)
{
    const int fd = begin_request("/v1/jobs", body);
    tell(facts, NULL);
    if (asks_model) {
        wait_question();
        tell_model();
    }
    return answer_of(fd);
}

/* ---- values ---------------------------------------------------------------------------------- */

static void test_alone(void)
{
    begin();
    node_joins();
    CHECK_MSG(submit(JOB(""), FACTS(ALL), true) == 201, "%s", reply);
    close_server();
    begin_in(false, 0); /* the values are stored, so that no node is asked again */
    CHECK(get("/v1/jobs/1") == 200);
    CHECK_MSG(strstr(reply, "\"adapter\":{\"type\":\"lora\",\"rank\":4,\"alpha\":9,\"rslora\":true,"
                            "\"targets\":[" ALL "]}"),
              "%s", reply);
    const struct job_spec *s = job_spec(control_job(w.control, 1));
    CHECK(s->model.shape.adapter.rank == 4 && s->adapter.dropout == 0);
    finish();
}

/* Checks fields that the job names beside model.adapter. */
static void test_named(void)
{
    static const struct {
        const char *body;
        int status;
        const char *pointer, *says;
    } rows[] = {
        {JOB(",\"adapter\":{\"type\":\"lora\",\"rank\":4,\"alpha\":9,\"rslora\":true}"), 201, NULL,
         NULL},
        {JOB(",\"adapter\":{\"rank\":5}"), 400, "/adapter/rank",
         "adapter.rank is 5, and that of model.adapter is 4: leave adapter.rank out"},
        {JOB(",\"adapter\":{\"alpha\":8.5}"), 400, "/adapter/alpha", "is 8.5"},
        {JOB(",\"adapter\":{\"rslora\":false}"), 400, "/adapter/rslora", "is false"},
        {JOB(",\"adapter\":{\"type\":\"none\"}"), 400, "/adapter/type", "leave adapter.type out"},
        {JOB(",\"adapter\":{\"targets\":[\"all-linear\"]}"), 201, NULL, NULL},
        {JOB(",\"adapter\":{\"targets\":[\"mlp\",\"attention\"]}"), 201, NULL, NULL},
        {JOB(",\"adapter\":{\"targets\":[\"mlp\"]}"), 400, "/adapter/targets",
         "names other products than model.adapter has, which are self_attn.q_proj"}};
    begin();
    node_joins();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const bool late = rows[i].status == 201 || strstr(rows[i].body, "targets");
        CHECK_MSG(submit(rows[i].body, FACTS(ALL), late) == rows[i].status, "%s: %s", rows[i].body,
                  reply);
        if (!rows[i].pointer) continue;
        CHECK_MSG(strstr(reply, rows[i].pointer) && strstr(reply, rows[i].says), "%s: %s",
                  rows[i].body, reply);
    }
    finish();
}

/* Checks a directory that has whole modules. */
static void test_saved(void)
{
#define SAVED(list)                                                                                \
    "{\"rank\":4,\"alpha\":9,\"rslora\":true,\"dropout\":0.25,\"targets\":[" ALL                   \
    "],\"modules_to_save\":[" list "]}"
    static const struct {
        const char *more, *facts;
        int status;
        const char *pointer, *says;
    } rows[] = {
        {"", SAVED("\"lm_head\""), 201, NULL, NULL},
        {",\"adapter\":{\"modules_to_save\":[\"lm_head\"]}", SAVED("\"lm_head\""), 201, NULL, NULL},
        {",\"adapter\":{\"modules_to_save\":\"lm_head\"}", SAVED("\"lm_head\""), 201, NULL, NULL},
        {",\"adapter\":{\"modules_to_save\":[\"lm_head\",\"embed_tokens\"]}",
         SAVED("\"embed_tokens\",\"lm_head\""), 201, NULL, NULL},
        {",\"adapter\":{\"modules_to_save\":[\"embed_tokens\"]}", SAVED("\"lm_head\""), 400,
         "/adapter/modules_to_save",
         "names other modules than model.adapter has, which are lm_head"},
        {",\"adapter\":{\"modules_to_save\":[]}", SAVED("\"lm_head\""), 400,
         "/adapter/modules_to_save", "which are lm_head: leave"},
        {",\"adapter\":{\"modules_to_save\":[\"lm_head\"]}", FACTS(ALL), 400,
         "/adapter/modules_to_save", "which are none: leave"},
        {"", SAVED("\"score\""), 400, "/model/adapter", "lm_head: save the adapter again without"},
        {",\"adapter\":{\"modules_to_save\":[\"\"]}", NULL, 400, "/adapter/modules_to_save/0",
         "is empty"}};
    static const char body[] =
        "{\"kind\":\"train\",\"model\":{\"config\":{\"hidden_size\":64,\"num_hidden_layers\":2,"
        "\"num_attention_heads\":4,\"intermediate_size\":128,\"tie_word_embeddings\":false},"
        "\"adapter\":\"/a\"},\"data\":{\"train\":[{\"path\":\"/x\"}],\"seq_len\":100},"
        "\"train\":{\"steps\":5}%s}";
    begin();
    node_joins();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[800];
        snprintf(text, sizeof text, body, rows[i].more);
        const int is = rows[i].facts ? submit(text, rows[i].facts, false) : post("/v1/jobs", text);
        CHECK_MSG(is == rows[i].status, "%s: %s", rows[i].more, reply);
        if (rows[i].pointer)
            CHECK_MSG(strstr(reply, rows[i].pointer) && strstr(reply, rows[i].says), "%s: %s",
                      rows[i].more, reply);
    }
    CHECK(get("/v1/jobs/1") == 200);
    CHECK_MSG(strstr(reply, "\"modules_to_save\":[\"lm_head\"]"), "%s", reply);
    finish();
}

/* Checks a training, which continues with the dropout of the directory unless it names its own. */
static void test_dropout(void)
{
    static const char body[] =
        "{\"kind\":\"train\",\"model\":{\"config\":{\"hidden_size\":%d,\"num_hidden_layers\":2,"
        "\"num_attention_heads\":%d,\"intermediate_size\":128},\"adapter\":\"/a\"},\"data\":{"
        "\"train\":[{\"path\":\"/x\"}],\"seq_len\":100},\"train\":{\"steps\":5%s}%s}";
    static const struct {
        const char *more;
        double is;
    } rows[] = {
        {"", 0.25}, {",\"adapter\":{\"dropout\":0}", 0}, {",\"adapter\":{\"dropout\":0.5}", 0.5}};
    begin();
    node_joins();
    char text[600];
    for (int i = 0; i < 3; i++) {
        snprintf(text, sizeof text, body, 64, 4, "", rows[i].more);
        CHECK_MSG(submit(text, FACTS(ALL), false) == 201, "%s", reply);
        CHECK(job_spec(control_job(w.control, i + 1))->adapter.dropout == rows[i].is);
    }
    /* a dropout that the job cannot have, but does not name itself */
    snprintf(text, sizeof text, body, 80000, 40000, ",\"attention_dropout\":0.1", "");
    CHECK(submit(text, FACTS(ALL), false) == 400 && strstr(reply, "/adapter/dropout"));
    CHECK_MSG(strstr(reply, "it is the dropout of model.adapter: adapter.dropout 0"), "%s", reply);
    finish();
}

/* Checks a training that resumes a checkpoint, which has the weights of the adapter. The directory
 * is needed only for the fields that the job leaves out. */
static void test_resumed(void)
{
    static const char body[] =
        "{\"kind\":\"train\",\"model\":{\"config\":{\"hidden_size\":64,\"num_hidden_layers\":2,"
        "\"num_attention_heads\":4,\"intermediate_size\":128},\"adapter\":\"/a\"},\"data\":{"
        "\"train\":[{\"path\":\"/x\"}],\"seq_len\":100},\"train\":{\"steps\":5},"
        "\"checkpoint\":{\"resume\":\"%s\"},\"adapter\":{\"type\":\"lora\",\"rank\":4,\"alpha\":9,"
        "\"rslora\":true,\"targets\":[\"all-linear\"]%s}}";
    char text[600];
    begin();
    node_joins();
    snprintf(text, sizeof text, body, "/c", ",\"dropout\":0,\"modules_to_save\":[]");
    w.fetch.type = 0;
    CHECK_MSG(post("/v1/jobs", text) == 201 && !w.fetch.type, "%s", reply);
    snprintf(text, sizeof text, body, "/c", ",\"modules_to_save\":[]");
    CHECK_MSG(submit(text, FACTS(ALL), false) == 201, "%s", reply);
    CHECK(job_spec(control_job(w.control, 2))->adapter.dropout == 0.25);
    snprintf(text, sizeof text, body, "/c", ",\"dropout\":0");
    CHECK_MSG(submit(text, FACTS(ALL), false) == 201, "%s", reply);
    snprintf(text, sizeof text, body, "auto", ",\"dropout\":0,\"modules_to_save\":[]");
    CHECK_MSG(submit(text, FACTS(ALL), false) == 201, "%s", reply);
    finish();
}

/* ---- answers --------------------------------------------------------------------------------- */

static void test_answers(void)
{
    struct err e = {0};
    begin();
    node_joins();
    CHECK_MSG(submit(JOB(""), FACTS("\"mixer.x_proj\""), true) == 400, "%s", reply);
    CHECK_MSG(strstr(reply, "\"pointer\":\"/model/adapter\"") && strstr(reply, "mixer.x_proj"),
              "%s", reply);
    CHECK_MSG(submit(JOB(""), "{\"rank\":\"4\"}", false) == 503, "%s", reply);
    CHECK_MSG(submit(JOB(""), "{\"rank\":4096,\"alpha\":1,\"targets\":[\"a\"]}", false) == 400,
              "%s", reply);
    CHECK(strstr(reply, "\"pointer\":\"/model/adapter\"") && strstr(reply, "1024"));
    int fd = begin_request("/v1/jobs", JOB(""));
    err_set(&e, ERR_NOT_FOUND, "/a does not exist on this node");
    tell("", &e);
    CHECK(answer_of(fd) == 400 && strstr(reply, "\"pointer\":\"/model/adapter\""));
    fd = begin_request("/v1/jobs", JOB(""));
    err_set(&e, ERR_INTERNAL, "seqrank was ended by signal 11");
    tell("", &e);
    CHECK(answer_of(fd) >= 500 && !strstr(reply, "/model/adapter"));
    finish();
}

/* Checks a node whose version does not describe adapters. */
static void test_older_node(void)
{
    begin();
    node_joins();
    node_find((struct nodes *)control_nodes(w.control), "n1")->abi = WIRE_ABI_BEFORE;
    w.fetch.type = 0;
    CHECK_MSG(post("/v1/jobs", JOB("")) == 503 && !w.fetch.type, "%s", reply);
    CHECK_MSG(strstr(reply, "does not know this question: upgrade seqw there"), "%s", reply);
    finish();
}

/* ---- plans and batches ----------------------------------------------------------------------- */

static void test_plans(void)
{
#define HARDWARE ",\"hardware\":{\"devices\":1,\"memory_gib\":8}"
    struct err e = {0};
    begin();
    node_joins();
    int fd = begin_request("/v1/plan", JOB(""));
    tell(FACTS(ALL), NULL);
    wait_question();
    tell_model();
    CHECK_MSG(answer_of(fd) == 200, "%s", reply);
    fd = begin_request("/v1/plan", JOB(",\"adapter\":{\"rank\":5}"));
    tell(FACTS(ALL), NULL);
    CHECK(answer_of(fd) == 400 && strstr(reply, "/adapter/rank"));
    /* For other hardware the directory need not exist, if the plan names its fields. */
    fd = begin_request("/v1/plan", JOB(HARDWARE));
    err_set(&e, ERR_NOT_FOUND, "/a does not exist on this node");
    tell("", &e);
    CHECK(answer_of(fd) == 400);
    CHECK_MSG(strstr(reply, "plans without it") && strstr(reply, "/model/adapter"), "%s", reply);
    fd = post_begin("/v1/plan", "", JOB(HARDWARE ",\"adapter\":{\"type\":\"lora\",\"rank\":5}"));
    wait_question();
    tell_model();
    CHECK_MSG(answer_of(fd) == 200, "%s", reply);
    finish();
}

/* Checks that a batch asks once about a directory that several of its jobs name. */
static void test_batch(void)
{
    begin();
    node_joins();
    const int fd = begin_request("/v1/jobs:batch", "{\"jobs\":[" JOB("") "," JOB("") "]}");
    tell(FACTS(ALL), NULL);
    wait_question();
    tell_model();
    CHECK_MSG(answer_of(fd) == 201, "%s", reply);
    CHECK(job_spec(control_job(w.control, 2))->model.shape.adapter.rank == 4);
    finish();
}

/* ---- model.adapters -------------------------------------------------------------------------- */

#define LIST(adapters)                                                                             \
    "{\"kind\":\"generate\",\"model\":{\"path\":\"/m\",\"adapters\":" adapters                     \
    "},\"data\":{\"seq_len\":64},\"input\":{\"path\":\"/b\",\"format\":\"openai_batch\"}}"
#define TWO "{\"b.2\":\"/a\",\"x\":\"/c\"}"

/* Answers the question about the directory `path`. */
static void tell_one(const char *path, const char *facts, const struct err *why)
{
    CHECK(w.fetch.type == MSG_DESCRIBE && w.fetch.adapter);
    CHECK_STR(w.fetch.path, path);
    tell(facts, why);
}

/* Submits a job of two adapters, the second of which is described by this text or this error.
 * Returns the status. */
static int submit_two(const char *facts, const struct err *why, bool asks_model)
{
    const int fd = begin_request("/v1/jobs", LIST(TWO));
    tell_one("/a", FACTS(ALL), NULL);
    wait_question();
    tell_one("/c", facts, why);
    if (asks_model) {
        wait_question();
        tell_model();
    }
    return answer_of(fd);
}

#define SMALL                                                                                      \
    "{\"rank\":2,\"alpha\":1,\"rslora\":false,\"dropout\":0,\"layers\":1,\"targets\":["            \
    "\"self_attn.q_proj\"]}"

/* Checks that a node is asked about each of them, and that their facts outlive a restart. */
static void test_list(void)
{
    begin();
    node_joins();
    CHECK_MSG(submit_two(SMALL, NULL, true) == 201, "%s", reply);
    close_server();
    begin_in(false, 0);
    CHECK(get("/v1/jobs/1") == 200);
    CHECK_MSG(strstr(reply, "\"adapters\":" TWO) && !strstr(reply, "facts"), "%s", reply);
    const struct shape_adapters *of = &job_spec(control_job(w.control, 1))->model.shape.adapters;
    CHECK(of->n == 2 && of->of[0].rank == 4 && of->of[1].rank == 2);
    CHECK(of->of[0].rslora && of->of[1].scale == 0.5 && of->of[0].on[0] == 127);
    CHECK(of->of[1].on[0] == 1);
    finish();
}

/* Checks that errors name the adapter. */
static void test_list_refused(void)
{
    static const struct {
        const char *facts, *says;
    } rows[] = {
        {"{\"rank\":2,\"alpha\":1,\"targets\":[\"mixer.x_proj\"]}",
         "names no product of the model"},
        {"{\"rank\":2,\"alpha\":1,\"layers\":99,\"targets\":[\"q_proj\"]}", "adapter of layer 98"},
        {"{\"rank\":2,\"alpha\":1,\"targets\":[\"q_proj\"],\"modules_to_save\":[\"lm_head\"]}",
         "whole modules"}};
    struct err e = {0};
    begin();
    node_joins();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const bool late = i < 2;
        CHECK_MSG(submit_two(rows[i].facts, NULL, late) == 400, "%s", reply);
        CHECK_MSG(strstr(reply, "\"pointer\":\"/model/adapters/x\"") &&
                      strstr(reply, "\"detail\":\"model.adapters.x") &&
                      !strstr(reply, "model.adapter ") && strstr(reply, rows[i].says),
                  "%s", reply);
    }
    err_field(&e, ERR_NOT_FOUND, "model.adapter", "/c does not exist on this node");
    CHECK(submit_two("", &e, false) == 400);
    CHECK_MSG(strstr(reply, "\"pointer\":\"/model/adapters/x\"") &&
                  strstr(reply, "model.adapters.x: /c does not exist"),
              "%s", reply);
    /* The dots of a name are no slashes of the pointer. */
    const int fd = begin_request("/v1/jobs", LIST(TWO));
    tell_one("/a", "", &e);
    CHECK_MSG(answer_of(fd) == 400 && strstr(reply, "\"pointer\":\"/model/adapters/b.2\""), "%s",
              reply);
    /* Names are checked before a node is asked. */
    w.fetch.type = 0;
    CHECK(post("/v1/jobs", LIST("{\"X\":\"/a\"}")) == 400 && !w.fetch.type);
    CHECK_MSG(strstr(reply, "\"pointer\":\"/model/adapters\"") && strstr(reply, "byte 0x58"), "%s",
              reply);
    finish();
}

int main(void)
{
    seqd_test_init();
    RUN(test_list);
    RUN(test_list_refused);
    RUN(test_alone);
    RUN(test_named);
    RUN(test_saved);
    RUN(test_dropout);
    RUN(test_resumed);
    RUN(test_answers);
    RUN(test_older_node);
    RUN(test_plans);
    RUN(test_batch);
    return test_done("seqd_adapter");
}
