/* test_seqd_models: tests requests about models without a job. For GET /v1/models, seqd asks every
 * connected node, checks the node's answer and passes it on. Also tests the plan of a published
 * config.json. */
#include "tests/lib/rest.h"

static struct msg listed(const char *text)
{
    return (struct msg){.type = MSG_FETCHED,
                        .request = w.fetch.request,
                        .offset = w.fetch.offset,
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
         "\"incomplete\":null,\"error\":null,\"no_roots\":false}],\"next_cursor\":null,"
         "\"has_more\":false}"},
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
    w.fetch.type = 0; /* a node of an older version would search for a model with an empty name */
    const int fd = get_begin("/v1/models");
    wait_question();
    struct msg m = {.type = MSG_DESCRIBED, .request = w.fetch.request};
    err_set(&m.err, ERR_NOT_FOUND, " does not exist on this node");
    control_link_calls.message(w.control, "n1", &m);
    CHECK(answer_of(fd) == 200 && strstr(reply, "node n1 lists no models: its version is older"));
    node_find((struct nodes *)control_nodes(w.control), "n1")->abi = WIRE_ABI_BEFORE;
    /* a node of the previous ABI would ignore the index at which a later page begins */
    w.fetch.type = 0;
    CHECK(get("/v1/models?cursor=n1:2") == 200 && !w.fetch.type);
    CHECK_MSG(strstr(reply, "speaks protocol 6, which does not know this question"), "%s", reply);
    CHECK(get("/v1/models?node=n2") == 404 && strstr(reply, "node \\\"n2\\\" is not up"));
    CHECK(get("/v1/models?nodes=n1") == 400);
    finish();
}

/* Checks a node that ends its list early. For the next page, seqd must ask this node for the rest
 * of its list. */
static void test_pages(void)
{
    static const char *const bad[] = {
        "",        "n1",    "n1:",       "n1:-3",          ":3",   "n1:x",     "n1:3x",
        "n1:3,,n", "a/b:3", "n1:3,n1:4", "n1:99999999999", "~",    "n1~,n2:4", "n1~:3",
        "a/b~",    "n1~x",  ",",         "n1~,n2~",        "n1:~x"};
    char target[64];
    begin();
    node_joins();
    int fd = get_begin("/v1/models");
    wait_question();
    CHECK(!w.fetch.offset);
    struct msg m = listed("{\"models\":[1,2],\"incomplete\":null,\"next\":2}");
    control_link_calls.message(w.control, "n1", &m);
    CHECK(answer_of(fd) == 200);
    CHECK_MSG(strstr(reply, "\"models\":[1,2],\"incomplete\":null,\"error\":null,"
                            "\"no_roots\":false}],\"next_cursor\":\"n1:2\",\"has_more\":true}"),
              "%s", reply);
    for (int i = 0; i < 2; i++) { /* the page without a next one is the last */
        w.fetch.type = 0;
        fd = get_begin(i ? "/v1/models?node=n1&cursor=n1%3A2" : "/v1/models?cursor=n2:7,n1:2");
        wait_question();
        CHECK(w.fetch.models && w.fetch.offset == 2);
        m = listed("{\"models\":[3]}");
        control_link_calls.message(w.control, "n1", &m);
        CHECK(answer_of(fd) == 200);
        CHECK_MSG(strstr(reply, "[3]") && strstr(reply, "\"next_cursor\":null,\"has_more\":false}"),
                  "%s", reply);
        if (!i)
            CHECK_MSG(strstr(reply, "\"node\":\"n2\"") && strstr(reply, "it is not up any more"),
                      "%s", reply);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(target, sizeof target, "/v1/models?cursor=%s", bad[i]);
        CHECK_MSG(get(target) == 400 && strstr(reply, "give next_cursor of the page before"),
                  "%s: %s", bad[i], reply);
    }
    finish();
}

enum { NODES = 40, PAGE_NODES = 16, PAGES = 20 };

static const char *nth_node(char letter, int i)
{
    static char name[NODE_NAME];
    memset(name, letter, sizeof name);
    snprintf(name + sizeof name - 3, 3, "%02d", i);
    return name;
}

/* Answers the questions with the ids `from` to `to`. Every node sends an answer to each question,
 * and seqd accepts only the answer of the node that it has asked. Each node has one model, and
 * three of four nodes have a second model on a later page. */
static void answer_as_all(char letter, int64_t from, int64_t to, bool busy)
{
    for (int64_t request = from; request <= to; request++)
        for (int i = 0; i < 2 * NODES; i++) {
            char text[64];
            const int node = i / 2, first = i % 2;
            snprintf(text, sizeof text, "{\"models\":[%d]%s}", 1000 + i,
                     node % 4 && !first ? ",\"next\":1" : "");
            struct msg m = listed(text);
            m.request = request;
            m.offset = first;
            if (busy && node == 2) err_set(&m.err, ERR_CONFLICT, "it is busy");
            control_link_calls.message(w.control, nth_node(letter, node), &m);
        }
}

static int count(const char *text, const char *what)
{
    int n = 0;
    for (; (text = strstr(text, what)); text += strlen(what)) n++;
    return n;
}

/* Writes the target of the next page's request to `target`. Escapes every character that may be
 * escaped. Returns false if there is no next page. */
static bool next_target(char target[2048])
{
    static const char key[] = "\"next_cursor\":\"", escaped[] = ":,";
    const char *at = strstr(reply, key);
    char *to = stpcpy(target, "/v1/models?cursor=");
    if (!at) return false;
    for (at += sizeof key - 1; *at != '"' && to < target + 2044; at++)
        to += sprintf(to, strchr(escaped, *at) ? "%%%02X" : "%c", *at);
    *to = 0;
    return true;
}

/* Checks more nodes than fit on a page, with the longest names. Each model must be on exactly one
 * page. A node that is busy with a list for an earlier request must be asked again. */
static void test_many_nodes(void)
{
    for (int letter = 'n'; letter; letter = letter == 'n' ? ':' : 0) {
        char target[2048] = "/v1/models";
        int n[2 * NODES] = {0}, pages = 0;
        int64_t last = 0;
        begin();
        for (int i = NODES; i--;) node_joins_as(nth_node((char)letter, i), 0);
        do {
            w.fetch.type = 0;
            const int fd = get_begin(target);
            wait_question();
            answer_as_all((char)letter, last + 1, w.fetch.request, !pages);
            last = w.fetch.request;
            CHECK_MSG(answer_of(fd) == 200, "%s", reply);
            CHECK(count(reply, "\"node\":") <= PAGE_NODES);
            for (int i = 0; i < 2 * NODES; i++) {
                char model[16];
                snprintf(model, sizeof model, "[%d]", 1000 + i);
                n[i] += count(reply, model);
            }
            CHECK(count(reply, "\"error\":\"") == !pages);
        } while (next_target(target) && ++pages < PAGES);
        CHECK(pages < PAGES);
        for (int i = 0; i < 2 * NODES; i++)
            CHECK_MSG(n[i] == (i % 2 == 0 || i / 2 % 4 != 0), "model %d: %d times", i, n[i]);
        finish();
    }
}

/* Checks a node whose "next" is not larger than the index of the page's last model. Such a node
 * would make a list without an end, so the answer must be refused. */
static void test_endless(void)
{
    static const struct {
        int n;
        const char *value;
        long long first, next;
        bool good;
    } rows[] = {{1, "[[],{\"x\":[1,2]}]", 0, 1, true},
                {2, "3", 2, 4, true},
                {RANK_MODELS_PAGE, "3", 0, RANK_MODELS_PAGE, true},
                {1, "3", RANK_MODELS - 1, RANK_MODELS, true},
                {0, "", 2, 3, false},
                {0, "", 2, 2, false},
                {1, "3", 2, 2, false},
                {1, "3", 2, 4, false},
                {2, "3", 2, 3, false},
                {1, "3", 2, 1, false},
                {1, "3", 2, -1, false},
                {RANK_MODELS_PAGE + 1, "3", 0, RANK_MODELS_PAGE + 1, false},
                {1, "3", RANK_MODELS, RANK_MODELS + 1, false}};
    static char text[64 + 4 * (RANK_MODELS_PAGE + 1)];
    begin();
    node_joins();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char target[64];
        char *at = stpcpy(text, "{\"models\":[");
        for (int k = 0; k < rows[i].n; k++) at = stpcpy(stpcpy(at, k ? "," : ""), rows[i].value);
        sprintf(at, "],\"next\":%lld}", rows[i].next);
        snprintf(target, sizeof target, "/v1/models?cursor=n1:%lld", rows[i].first);
        w.fetch.type = 0;
        const int fd = get_begin(rows[i].first ? target : "/v1/models");
        wait_question();
        struct msg m = listed(text);
        control_link_calls.message(w.control, "n1", &m);
        CHECK(answer_of(fd) == 200);
        snprintf(target, sizeof target, "\"next_cursor\":\"n1:%lld\"", rows[i].next);
        CHECK_MSG(rows[i].good == !!strstr(reply, target), "%zu: %s", i, reply);
        CHECK_MSG(rows[i].good == !strstr(reply, "the node answered no list of models"), "%zu: %s",
                  i, reply);
    }
    finish();
}

/* Checks three nodes, of which one answers, one fails and one disconnects. The reply must be a
 * single list. */
static void test_of_nodes(void)
{
    begin();
    CHECK(get("/v1/models") == 200 && strstr(reply, "{\"data\":[],"));
    node_joins_as("n1", 0);
    node_joins_as("n2", 0);
    node_joins_as("n3", 0);
    const int fd = get_begin("/v1/models");
    wait_question();
    const int64_t last = w.fetch.request; /* the id of the question to n3 */
    struct msg m = listed("{\"models\":[7]}");
    m.request = last - 1;
    /* the answer to a question to a different node, which must be ignored */
    control_link_calls.message(w.control, "n1", &m);
    control_link_calls.message(w.control, "n2", &m);
    control_link_calls.down(w.control, "n1", "gone", 0);
    m = (struct msg){.type = MSG_FETCHED, .request = last};
    err_field(&m.err, ERR_NOT_FOUND, "roots", "node n3 has no roots");
    control_link_calls.message(w.control, "n3", &m);
    CHECK(answer_of(fd) == 200);
    CHECK_MSG(strstr(reply, "{\"node\":\"n2\",\"models\":[7],\"incomplete\":null,\"error\":null,"
                            "\"no_roots\":false}") &&
                  strstr(reply, "\"error\":\"node n1 went away\",\"no_roots\":false}") &&
                  strstr(reply, "\"error\":\"node n3 has no roots\",\"no_roots\":true}"),
              "%s", reply);
    finish();
}

/* Checks that a published config.json can be used as a model.config in a plan for other hardware.
 * Keys that it leaves out must have the defaults of the package's class. */
static void test_plan_of_published(void)
{
#define JOB(config, more)                                                                          \
    "{\"kind\":\"train\",\"model\":{\"config\":" config                                            \
    "},\"data\":{\"train\":[{\"path\":\"/x/*.npy\","                                               \
    "\"format\":\"npy\"}],\"seq_len\":" more "},\"train\":{\"steps\":1},\"optim\":{\"lr\":1e-4},"  \
    "\"parallel\":{\"sp\":4},\"hardware\":{\"devices\":4,\"memory_gib\":4000}}"
#define SMOLLM3                                                                                    \
    "\"model_type\":\"smollm3\",\"eos_token_id\":128012,\"hidden_size\":2048,\"num_hidden_"        \
    "layers\":36,"                                                                                 \
    "\"num_attention_heads\":16,\"intermediate_size\":11008,\"vocab_size\":128256"
    begin();
    CHECK(post("/v1/plan", JOB("{\"architectures\":[\"GPT2LMHeadModel\"],\"model_type\":\"gpt2\"}",
                               "1024")) == 200);
    CHECK_MSG(strstr(reply, "\"parameters\":124439808,"), "%.300s", reply);
    CHECK(post("/v1/plan",
               JOB("{\"architectures\":[\"SmolLM3ForCausalLM\"]," SMOLLM3 "}", "1048576")) == 200);
    CHECK_MSG(strstr(reply, "\"parameters\":3075098624,"), "%.300s", reply);
    CHECK(strstr(reply, "\"num_key_value_heads\":4,"));
    /* The same model is also written by hand, with the size of its attention heads and a separate
     * output head. */
    CHECK(post("/v1/plan", JOB("{" SMOLLM3 "}", "1048576")) == 200);
    CHECK_MSG(!strstr(reply, "\"parameters\":3075098624,"), "%.300s", reply);
    CHECK(strstr(reply, "\"num_key_value_heads\":16,"));
    CHECK(post("/v1/plan", JOB("{\"architectures\":[],\"model_type\":\"mamba2\"}", "1024")) == 400);
    CHECK(strstr(reply, "\"pointer\":\"/model/config/model_type\"") &&
          strstr(reply, "it needs selective state spaces"));
    finish();
}

int main(void)
{
    seqd_test_init();
    RUN(test_of_a_node);
    RUN(test_pages);
    RUN(test_many_nodes);
    RUN(test_endless);
    RUN(test_of_nodes);
    RUN(test_plan_of_published);
    return test_done("seqd_models");
}
