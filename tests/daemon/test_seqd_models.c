/* GET /v1/models: every node that is up is asked, and what it answers is checked and passed on. */
#include "tests/lib/rest.h"

static struct msg listed(const char *text)
{
    return (struct msg){.type = MSG_FETCHED,
                        .request = w.fetch.request,
                        .data = text,
                        .size = strlen(text),
                        .total = (int64_t)strlen(text)};
}

static void test_of_a_node(void)
{
    static const struct {
        const char *answer, *reply;
    } v[] = {
        {"{\"models\":[{\"path\":\"/m\",\"loads\":true}],\"incomplete\":null}",
         "{\"data\":[{\"node\":\"n1\",\"models\":[{\"path\":\"/m\",\"loads\":true}],"
         "\"incomplete\":null,\"error\":null}],\"next_cursor\":null,\"has_more\":false}"},
        {"{\"incomplete\":\"took \\\"long\\\"\",\"x\":{\"models\":[1]},\"models\":[]}\n",
         "\"models\":[],\"incomplete\":\"took \\\"long\\\"\",\"error\":null"},
        {"{\"models\":[1,{\"a\":[", "the node answered no list of models"},
        {"{\"models\":{}}", "the node answered no list of models"},
        {"{\"models\":null,\"incomplete\":\"x\"}", "\"incomplete\":null,\"error\":\"the node"},
        {"{\"models\":[]} []", "the node answered no list of models"},
        {"[]", "the node answered no list of models"},
        {"", "the node answered no list of models"},
    };
    begin();
    node_joins();
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        w.fetch.type = 0;
        const int fd = get_begin("/v1/models");
        wait_question();
        CHECK(w.fetch.type == MSG_DESCRIBE && w.fetch.models && !*w.fetch.path);
        struct msg m = listed(v[i].answer);
        control_link_calls.message(w.control, "n1", &m);
        CHECK(answer_of(fd) == 200);
        CHECK_MSG(strstr(reply, v[i].reply), "%s: %s", v[i].answer, reply);
    }
    CHECK(get("/v1/models?node=n2") == 404 && strstr(reply, "node \\\"n2\\\" is not up"));
    CHECK(get("/v1/models?nodes=n1") == 400);
    finish();
}

/* One answers, one fails, one goes away: one list. */
static void test_of_nodes(void)
{
    begin();
    CHECK(get("/v1/models") == 200 && strstr(reply, "{\"data\":[],"));
    node_joins_as("n1", 0);
    node_joins_as("n2", 0);
    node_joins_as("n3", 0);
    const int fd = get_begin("/v1/models");
    wait_question();
    const int64_t last = w.fetch.request; /* of n3 */
    struct msg m = listed("{\"models\":[7]}");
    m.request = last - 1;
    control_link_calls.message(w.control, "n1", &m); /* not its question: counts for nothing */
    control_link_calls.message(w.control, "n2", &m);
    control_link_calls.down(w.control, "n1", "gone", 0);
    m = (struct msg){.type = MSG_FETCHED, .request = last};
    err_set(&m.err, ERR_NOT_FOUND, "node n3 has no roots");
    control_link_calls.message(w.control, "n3", &m);
    CHECK(answer_of(fd) == 200);
    CHECK_MSG(
        strstr(reply, "{\"node\":\"n2\",\"models\":[7],\"incomplete\":null,\"error\":null}") &&
            strstr(reply, "\"error\":\"node n1 went away\"") &&
            strstr(reply, "\"error\":\"node n3 has no roots\""),
        "%s", reply);
    finish();
}

int main(void)
{
    seqd_test_init();
    RUN(test_of_a_node);
    RUN(test_of_nodes);
    return test_done("seqd_models");
}
