/* test_seqd_rest: tests the REST surface over raw sockets. Checks every route, the form of errors,
 * pages, streams, and resumed streams. test_seqd_http.c tests the form of requests. */
#include <arpa/inet.h>
#include <errno.h>
#include <ftw.h>
#include <poll.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>
#include "api/core/field.h"
#include "api/core/job.h"
#include "api/core/version.h"
#include "daemon/http/routes.h"
#include "daemon/state/quarantine.h"
#include "tests/lib/profile.h"
#include "tests/lib/rest.h"
#include "tests/lib/test.h"
#include "worker/family/config_table.h"
#include "worker/family/shape.h"

/* ---- routes ---------------------------------------------------------------------------------- */

/* Checks that api/openapi.yaml has the paths and methods of the table of routes, and no others. */
static void test_openapi_matches(void)
{
    int n_doc = 0, n_table = 0;
    char path[128] = "";
    bool in_paths = false;
    for (const char *p = routes_document(), *end; *p; p = end) {
        char line[256];
        end = strchr(p, '\n');
        end = end ? end + 1 : p + strlen(p);
        snprintf(line, sizeof line, "%.*s", (int)(end - p), p);
        line[strcspn(line, "\r\n")] = 0;
        size_t n = strlen(line);
        if (line[0] != ' ') in_paths = !strcmp(line, "paths:");
        if (!in_paths || n < 6 || line[n - 1] != ':') continue;
        line[n - 1] = 0;
        if (!strncmp(line, "  /", 3)) snprintf(path, sizeof path, "%.120s", line + 2);
        static const char *const methods[] = {"    get", "    post", "    patch", "    delete"};
        bool method = false;
        for (int i = 0; i < 4; i++) method |= !strcmp(line, methods[i]);
        if (!method) continue;
        n_doc++;
        bool found = false;
        for (const struct route *t = route_table; t->method; t++)
            found |= !strcmp(t->path, path) && !strcasecmp(t->method, line + 4);
        CHECK_MSG(found, "%s %s is documented and not served", line + 4, path);
    }
    for (const struct route *t = route_table; t->method; t++) n_table++;
    CHECK_MSG(n_doc == n_table, "%d documented, %d served", n_doc, n_table);
}

/* Tells whether a list [a, b] has the word. */
static bool listed(const char *list, const char *word)
{
    const char *end = list ? strchr(list, ']') : NULL;
    const size_t n = strlen(word);
    for (const char *p = list; end && (p = strstr(p, word)) && p < end; p++)
        if (strchr("[ ", p[-1]) && strchr(",]", p[n])) return true;
    return false;
}

/* Checks that the schema in api/openapi.yaml has every field of the spec, and no others. */
static void test_openapi_fields(void)
{
    static char have[300][96];
    char key[16][64] = {""};
    int n = 0, n_fields = 0;
    const char *p = strstr(strstr(routes_document(), "\n  schemas:\n"), "\n    Spec:\n");
    CHECK(p != NULL);
    if (!p) return;
    p = strstr(p, "\n      properties:\n") + 19;
    for (const char *end; *p; p = end) {
        end = strchr(p, '\n');
        end = end ? end + 1 : p + strlen(p);
        int indent = (int)strspn(p, " ");
        size_t len = strcspn(p + indent, ":");
        int depth = (indent - 8) / 4;
        if (indent < 8) break;
        if (indent % 4 || depth > 8) continue; /* lines such as type: and properties: */
        snprintf(key[depth], sizeof key[0], "%.*s", (int)len, p + indent);
        if (p[indent + len + 1] == '\n' || n == 300) continue;
        have[n][0] = 0;
        for (int d = 0; d <= depth; d++) {
            size_t at = strlen(have[n]);
            snprintf(have[n] + at, sizeof have[n] - at, "%s%s", d ? "." : "", key[d]);
        }
        n++;
    }
    const struct field *tables[] = {spec_fields, spec_constants, shape_fields};
    for (int t = 0; t < 3; t++)
        for (const struct field *f = tables[t]; f->path; f++) {
            char want[96];
            bool found = false;
            if (!f->kinds || !strcmp(f->path, "optim.betas.1")) continue;
            /* the document has one array for these rows */
            if (!strncmp(f->path, "sampling.stop.", 14)) continue;
            if (!strncmp(f->path, "train.freeze.", 13)) continue;
            if (!strncmp(f->path, "adapter.targets.", 16)) continue;
            if (!strncmp(f->path, "adapter.modules_to_save.", 24)) continue;
            if (!strncmp(f->path, "model.config.layer_mask.", 24)) continue;
            if (!strncmp(f->path, "model.config.dense_mask.", 24)) continue;
            snprintf(want, sizeof want, "%s", f->path);
            if (!strcmp(want, "optim.betas.0")) want[11] = 0;
            for (int i = 0; i < n; i++) found |= !strcmp(have[i], want);
            CHECK_MSG(found, "%s is not in openapi.yaml", want);
            n_fields++;
        }
    const char *types = strstr(routes_document(), "model_type: {type: string, enum: [");
    for (const char *const *f = family_words; *f; f++) {
        const struct model_shape m = {.family = (int32_t)(f - family_words)};
        const struct hf_model *t = family_row(&m)->config->models;
        CHECK_STR(t->type, *f);
        for (; t->type; t++) CHECK_MSG(listed(types, t->type), "model_type lacks %s", t->type);
    }
    for (const struct hf_wrapper *hw = wrapper_rows; hw->model.type; hw++)
        CHECK_MSG(listed(types, hw->model.type), "model_type lacks %s", hw->model.type);
    const char *source = strstr(routes_document(), "\n    Source:\n");
    for (const struct field *f = source_fields; f->path; f++) {
        char want[96];
        snprintf(want, sizeof want, "\n        %s: {", f->path);
        const char *at = source ? strstr(source, want) : NULL;
        CHECK_MSG(at && at < strstr(source, "\n    Stage:\n"), "Source lacks %s", f->path);
    }
    const char *stage = strstr(routes_document(), "\n    Stage:\n");
    for (const struct field *f = stage_fields; f->path; f++) {
        char want[96];
        snprintf(want, sizeof want, "\n        %s: {", f->path);
        const char *at = stage ? strstr(stage, want) : NULL;
        CHECK_MSG(at && at < strstr(stage, "\n    Spec:\n"), "Stage lacks %s", f->path);
    }
    const char *hardware = strstr(routes_document(), "\n    Hardware:\n");
    for (const struct field *f = hardware_fields; f->path; f++) {
        char want[96];
        snprintf(want, sizeof want, "\n        %s: {", f->path);
        const char *at = hardware ? strstr(hardware, want) : NULL;
        CHECK_MSG(at && at < strstr(hardware, "\n    Source:\n"), "Hardware lacks %s", f->path);
    }
    /* The 22 are labels, after, after_any, stages, hardware, data.train, eval.data, four of
     * input, two aliases of train, model.adapters, sampling.stop, train.freeze, adapter.targets,
     * adapter.modules_to_save, two masks of layers and two lists of RoPE. */
    CHECK_MSG(n == n_fields + 22, "%d in the document, %d in the table and 22 more", n, n_fields);
}

/* Checks that api/openapi.yaml has the words of each enum field, in the order of the table of
 * fields. */
static void test_openapi_words(void)
{
    const char *parallel = strstr(routes_document(), "\n        parallel:\n");
    for (const struct field *f = spec_fields; f->path; f++) {
        char want[256];
        size_t n = 0;
        if (strncmp(f->path, "parallel.", 9) || f->type != FIELD_ENUM) continue;
        n = (size_t)snprintf(want, sizeof want, "\n            %s: {type: string, enum: [%s",
                             f->path + 9, f->words[0]);
        for (int i = 1; f->words[i]; i++)
            n += (size_t)snprintf(want + n, sizeof want - n, ", %s", f->words[i]);
        snprintf(want + n, sizeof want - n, "]");
        CHECK_MSG(parallel && strstr(parallel, want), "openapi.yaml lacks%s", want);
    }
}

/* Checks the HTML page. It must need no token, must be cached by its entity tag, and may run only
 * its own script. */
static void test_page(void)
{
    static const char head[] = "Host: localhost\r\nConnection: close\r\n";
    char again[256];
    begin();
    snprintf(again, sizeof again, "GET / HTTP/1.1\r\n%s\r\n", head);
    CHECK(talk(again) == 200 && strstr(reply, "Content-Type: text/html; charset=utf-8\r\n"));
    CHECK(strstr(reply, "\r\n\r\n<!doctype html>") && strstr(reply, "</html>"));
    CHECK(strstr(reply, "default-src 'none'; script-src 'sha256-"));
    CHECK(strstr(reply, "nosniff") && strstr(reply, "Referrer-Policy: no-referrer"));
    CHECK(strstr(reply, "Cache-Control: no-cache\r\n") &&
          /* only the text of the script contains this word */
          strstr(reply, "no-store") > strstr(reply, "<!doctype html>"));
    const char *tag = strstr(reply, "ETag: ");
    CHECK(tag != NULL);
    if (!tag) return;
    snprintf(again, sizeof again, "GET / HTTP/1.1\r\n%sIf-None-Match: %.34s\r\n\r\n", head,
             tag + 6);
    CHECK(talk(again) == 304 && !strstr(reply, "<!doctype"));
    CHECK(get("/?x=1") == 400 && get("//") == 404 && get("/index.html") == 404);
    CHECK(post("/", "") == 405);
    finish();
}

/* Checks the HTML reference of the API. It must need no token and run no script, and must have
 * every operation of the table of routes. */
static void test_docs(void)
{
    static const char ask[] = "GET /docs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    char want[256];
    begin();
    CHECK(talk(ask) == 200 && strstr(reply, "Content-Type: text/html; charset=utf-8\r\n"));
    CHECK(strstr(reply, "default-src 'none'; style-src 'sha256-") && !strstr(reply, "script-src"));
    CHECK(strstr(reply, "\r\n\r\n<!doctype html>") && strstr(reply, "</html>"));
    CHECK(!strstr(reply, "<script"));
    for (const struct route *t = route_table; t->method; t++) {
        snprintf(want, sizeof want, "<h3><b>%s</b> <code>%s</code></h3>", t->method, t->path);
        CHECK_MSG(strstr(reply, want), "/docs lacks %s %s", t->method, t->path);
    }
    CHECK(get("/docs?x=1") == 400 && get("/docs/") == 404 && post("/docs", "") == 405);
    finish();
}

static void test_plain_routes(void)
{
    begin();
    CHECK(get("/livez") == 200 && strstr(reply, "nosniff"));
    CHECK(get("/readyz") == 200);
    CHECK(get("/readyz?verbose") == 200 && strstr(reply, "\"nodes_up\":0"));
    CHECK(get("/version") == 200 && strstr(reply, "\"version\":\"" SEQD_VERSION "\""));
    CHECK(get("/openapi.yaml") == 200 && strstr(reply, "openapi: 3.1.0"));
    CHECK(get("/v1/nodes") == 200 && strstr(reply, "\"data\":[]"));
    CHECK(get("/nope") == 404 && strstr(reply, "application/problem+json"));
    CHECK(get("/v1/jobs/0x1") == 404);
    CHECK(get("/v1/jobs/9999999999999999999999") == 404);
    CHECK(get("/v1/jobs/7") == 404);
    CHECK(get("/v1/jobs/7/events") == 404);
    CHECK(get("/v1/jobs/7/logs") == 404);
    CHECK(get("/v1/jobs/7/artifacts/x") == 404);
    CHECK(get("/v1/jobs?limt=1") == 400 && strstr(reply, "limt"));
    CHECK(get("/v1/jobs?limit=0") == 400 && get("/v1/jobs?limit=1001") == 400);
    CHECK(get("/v1/jobs?limit=1x") == 400 && get("/v1/jobs?cursor=-1") == 400);
    CHECK(get("/v1/jobs?state=sleeping") == 400 && strstr(reply, "queued, starting"));
    CHECK(post("/livez", "") == 405 && strstr(reply, "Allow: GET"));
    CHECK(talk("HEAD /livez HTTP/1.1\r\n" HEAD "\r\n") == 200);
    finish();
}

static void test_submit(void)
{
    begin();
    CHECK(post("/v1/jobs", job_json) == 201);
    CHECK(strstr(reply, "Location: /v1/jobs/1\r\n") && strstr(reply, "\"state\":\"queued\""));
    CHECK(strstr(reply, "\"spec_effective\":{") && strstr(reply, "\"plan\":{"));
    CHECK(get("/v1/jobs/1") == 200 && strstr(reply, "ETag: \"1-"));
    CHECK(post("/v1/jobs?dry_run=true", job_json) == 200 && strstr(reply, "\"dry_run\":true"));
    CHECK(post("/v1/jobs?dry_run=maybe", job_json) == 400);
    CHECK(get("/v1/jobs/2") == 404); /* nothing was stored */
    CHECK(post("/v1/plan", job_json) == 200 && strstr(reply, "\"memory\""));
    CHECK(post("/v1/jobs", "{\"kind\":\"train\",\"dta\":{}}") == 400);
    CHECK(strstr(reply, "\"pointer\":\"/dta\"") && strstr(reply, "did you mean data?"));
    CHECK(post("/v1/jobs", "") == 400);
    CHECK(post("/v1/plan",
               "{\"kind\":\"train\",\"model\":{\"config\":{\"hidden_size\":4096,"
               "\"num_hidden_layers\":64,\"num_attention_heads\":32,"
               "\"intermediate_size\":16384}},\"data\":{\"train\":[{\"path\":\"/x\"}],"
               "\"seq_len\":1000000},\"train\":{\"steps\":5},\"resources\":{\"memory_mib\":"
               "1000}}") == 400);
    CHECK(strstr(reply, "\"code\":\"does_not_fit\"") && strstr(reply, "\"plan\":{"));
    /* The model is on a node, and there is no node. */
    CHECK(post("/v1/plan", "{\"kind\":\"generate\",\"model\":{\"path\":\"/"
                           "m\",\"rope\":{\"compute\":\"exact\"}},\"input\":{\"prompt\":"
                           "\"x\"}}") == 503);
    CHECK(strstr(reply, "Retry-After"));
    finish();
}

/* Checks a job with more ranks than all nodes have GPUs. It must be refused before it is planned,
 * so the answer has no plan. */
static void test_too_few_gpus(void)
{
    static const char two[] =
        "{\"kind\":\"train\",\"model\":{\"config\":{\"hidden_size\":64,"
        "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"intermediate_size\":128}},"
        "\"data\":{\"train\":[{\"path\":\"/x\"}],\"seq_len\":100},\"train\":{\"steps\":5},"
        "\"resources\":{\"device\":\"cuda\",\"ranks\":2}}";
    struct gpu one = {
        .uuid = "GPU-1", .name = "X", .memory_size = (int64_t)1 << 34, .memory_free = 1 << 30};
    struct msg hello = {
        .type = MSG_HELLO, .abi = WIRE_ABI, .node = "n1", .n_slots = 8, .gpus = &one, .n_gpus = 1};
    begin();
    control_link_calls.up(w.control, "n1", &hello);
    for (int dry = 0; dry < 2; dry++) {
        CHECK(post(dry ? "/v1/jobs?dry_run=true" : "/v1/jobs", two) == 400);
        CHECK(strstr(reply, "\"code\":\"does_not_fit\"") && !strstr(reply, "\"plan\""));
        CHECK(strstr(reply, "resources.ranks 2: a rank takes a GPU, and all nodes together have 1 "
                            "(n1: 1)"));
    }
    CHECK(get("/v1/jobs/1") == 404);
    CHECK(post("/v1/jobs", job_json) == 201); /* seqd still accepts jobs */
    finish();
}

/* Checks ranks that need too much memory. A job must be refused with its plan if a rank needs more
 * memory than every node has, even if resources.memory_mib allows it. It must also be refused if
 * all nodes together have no room for its ranks. If a node does not report its memory, no job is
 * refused. */
static void test_too_little_memory(void)
{
    static const struct {
        int64_t mib;
        int ranks;
        const char *says; /* NULL if it is accepted */
    } cases[] = {
        {64, 1, "1 rank of 9"},
        {64, 1,
         " MiB of memory each; the nodes have room for 0, and the largest of them, n1, has 64.0"},
        {100, 4, "the nodes have room for 1, and the largest of them, n1, has 100.0 MiB"},
        {8192, 4, NULL},
        {0, 4, NULL},
    };
    struct msg hello = {.type = MSG_HELLO, .abi = WIRE_ABI, .node = "n1", .n_slots = 8};
    char body[512];
    begin();
    for (int i = 0; i < 5; i++) {
        hello.memory_size = cases[i].mib << 20;
        control_link_calls.up(w.control, "n1", &hello);
        snprintf(body, sizeof body,
                 "{\"kind\":\"train\",\"model\":{\"config\":{\"hidden_size\":768,"
                 "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"intermediate_size\":128}},"
                 "\"data\":{\"train\":[{\"path\":\"/"
                 "x\"}],\"seq_len\":100},\"train\":{\"steps\":5,\"global_batch\":%d},"
                 "\"parallel\":{\"pp\":1,\"dp\":%d,\"sp\":1,\"zero\":0},"
                 "\"resources\":{\"ranks\":%d,\"memory_mib\":100000}}",
                 cases[i].ranks, cases[i].ranks, cases[i].ranks);
        CHECK_MSG(post("/v1/jobs?dry_run=true", body) == (cases[i].says ? 400 : 200), "%s", reply);
        if (!cases[i].says) continue;
        CHECK_MSG(strstr(reply, "\"code\":\"does_not_fit\"") && strstr(reply, "\"plan\":{") &&
                      strstr(reply, cases[i].says),
                  "%s", reply);
    }
    finish();
}

/* Checks a training on a GPU that offloads to a node with too little memory for it. */
static void test_too_little_host_memory(void)
{
    static const char away[] =
        "{\"kind\":\"train\",\"model\":{\"config\":{\"hidden_size\":256,"
        "\"num_hidden_layers\":8,\"num_attention_heads\":4,\"intermediate_size\":512}},"
        "\"data\":{\"train\":[{\"path\":\"/x\"}],\"seq_len\":8192},\"train\":{\"steps\":5},"
        "\"memory\":{\"offload\":\"all\"},\"resources\":{\"device\":\"cuda\",\"ranks\":1}}";
    struct gpu one = {.uuid = "GPU-1", .name = "X", .memory_size = (int64_t)1 << 36};
    struct msg hello = {
        .type = MSG_HELLO, .abi = WIRE_ABI, .node = "n1", .n_slots = 8, .gpus = &one, .n_gpus = 1};
    begin();
    for (int i = 0; i < 3; i++) {
        hello.memory_size = i == 0 ? 8 << 20 : i == 1 ? (int64_t)1 << 34 : 0;
        control_link_calls.up(w.control, "n1", &hello);
        CHECK_MSG(post("/v1/jobs?dry_run=true", away) == (i ? 200 : 400), "%s", reply);
        if (i) continue;
        CHECK_MSG(strstr(reply, "\"pointer\":\"/memory/offload\"") &&
                      strstr(reply, "MiB of the host's memory each; the nodes have room for 0, and "
                                    "the largest of them, n1, has 8.0 MiB: see memory.host_bytes"),
                  "%s", reply);
    }
    finish();
}

/* ---- plans for hardware that is not here ----------------------------------------------------- */

#define PLAN_OF(more)                                                                              \
    "{\"kind\":\"train\",\"model\":{\"config\":{\"hidden_size\":1024,\"num_hidden_layers\":12,"    \
    "\"num_attention_heads\":16,\"intermediate_size\":2816}},\"data\":{\"train\":[{\"path\":\"/"   \
    "x\"}],"                                                                                       \
    "\"seq_len\":32768},\"train\":{\"steps\":5,\"global_batch\":8}" more "}"
#define CLUSTER "\"devices\":8,\"memory_gib\":16,\"tflops\":50,\"link_gbs\":100"

#define ENCODER(type, more)     ENCODER_DATA(type, more, "")
#define ENCODER_ONE(type, more) ENCODER_DATA(type, more, ",\"reset_positions\":false")
#define ENCODER_DATA(type, more, data)                                                             \
    "{\"kind\":\"train\",\"model\":{\"config\":{\"model_type\":\"" type "\",\"hidden_size\":256,"  \
    "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"intermediate_size\":512,\"vocab_size\":"  \
    "300" more "}},\"data\":{\"train\":[{\"path\":\"/x\"}],\"seq_len\":1024" data                  \
    "},\"train\":{\"steps\":5},\"hardware\":{\"devices\":2,\"memory_gib\":1}}"

static double number_at(const char *key)
{
    const char *at = strstr(reply, key);
    CHECK_MSG(at, "no %s", key);
    return at ? strtod(at + strlen(key), NULL) : 0;
}

static void test_plan_hardware(void)
{
    begin();
    CHECK(post("/v1/plan", PLAN_OF(",\"hardware\":{" CLUSTER "}")) == 200);
    CHECK(strstr(reply, "\"weighed\":[{") && strstr(reply, "\"source\":\"given\""));
    CHECK(strstr(reply, "\"choice\":\"") && strstr(reply, "\"warnings\":["));
    CHECK(number_at("\"step_s\":") > 0 && number_at("\"max_seq_len\":") > 32768);
    CHECK(number_at("\"ranks\":") == 8 && !strstr(reply, "\"strategy\":\"auto\""));
    CHECK(!strstr(reply, "\"sp\":\"auto\"") && number_at("\"memory_mib\":") == 16 * 1024);
    /* a single device has no link to another device, so link_gbs may be left out */
    CHECK(post("/v1/plan",
               PLAN_OF(",\"hardware\":{\"devices\":1,\"memory_gib\":64,\"tflops\":50}")) == 200);
    CHECK(number_at("\"step_s\":") > 0 && number_at("\"tokens_s\":") > 0);
    /* only memory and bytes are given */
    CHECK(post("/v1/plan", PLAN_OF(",\"hardware\":{\"devices\":8,\"memory_gib\":16}")) == 200);
    CHECK(!strstr(reply, "step_s") && number_at("\"max_seq_len\":") > 32768);
    /* A strategy that a job requests must not be changed, and its limits must still apply. */
    CHECK(post("/v1/plan",
               PLAN_OF(",\"parallel\":{\"strategy\":\"rsa\",\"sp\":4},\"hardware\":{" CLUSTER
                       "}")) == 200);
    CHECK(number_at("\"sp\":") == 4 && number_at("\"dp\":") == 2);
    CHECK(strstr(reply, "asked for"));
    CHECK(!strstr(reply, "\"runs\":false") && strstr(reply, "\"comm_messages\":"));
    CHECK(strstr(reply, "decides it when the data are prepared"));
    /* BERT's table of positions is as long as needed, unless the config sets its length. */
    CHECK_MSG(post("/v1/plan", ENCODER("bert", "")) == 200, "%s", reply);
    CHECK(number_at("\"max_seq_len\":") > 1024);
    CHECK(post("/v1/plan", ENCODER("bert", ",\"max_position_embeddings\":1500")) == 200);
    /* each document counts its positions from 0 */
    CHECK(number_at("\"max_seq_len\":") > 1500);
    CHECK(post("/v1/plan", ENCODER_ONE("bert", ",\"max_position_embeddings\":1500")) == 200);
    CHECK(number_at("\"max_seq_len\":") == 1500);
    CHECK_MSG(post("/v1/plan", ENCODER("roberta", "")) == 200, "%s", reply);
    CHECK(number_at("\"max_position_embeddings\":") == 1024 + 2);
    CHECK(number_at("\"max_seq_len\":") > 1024);
    CHECK(post("/v1/plan", ENCODER_ONE("roberta", ",\"max_position_embeddings\":1500")) == 200);
    CHECK(number_at("\"max_seq_len\":") == 1500 - 2);
    finish();
}

static const struct {
    const char *body, *pointer, *says;
} bad_hardware[] = {
    {PLAN_OF(",\"hardware\":{}"), "/hardware/devices", "missing"},
    {PLAN_OF(",\"hardware\":3"), "/hardware", "object"},
    {PLAN_OF(",\"hardware\":{\"devices\":8}"), "/hardware/memory_gib", "missing"},
    {PLAN_OF(",\"hardware\":{\"devices\":65,\"memory_gib\":8}"), "/hardware/devices", "64"},
    {PLAN_OF(",\"hardware\":{\"devices\":2.5,\"memory_gib\":8}"), "/hardware/devices", "integer"},
    {PLAN_OF(",\"hardware\":{\"devices\":8,\"memory_gib\":-1}"), "/hardware/memory_gib", "between"},
    {PLAN_OF(",\"hardware\":{\"devices\":8,\"memory_gib\":1e300}"), "/hardware/memory_gib",
     "between"},
    {PLAN_OF(",\"hardware\":{\"devices\":8,\"memory_gib\":8,\"nodes\":3}"), "/hardware/nodes",
     "divide"},
    {PLAN_OF(",\"hardware\":{\"devices\":8,\"memory_gib\":8,\"tflops\":1}"), "/hardware/link_gbs",
     "missing"},
    {PLAN_OF(",\"hardware\":{\"devices\":8,\"memory_gib\":8,\"gpus\":1}"), "/hardware/gpus", ""},
    {PLAN_OF(",\"hardware\":{" CLUSTER "},\"resources\":{\"ranks\":4}"), "/hardware/devices",
     "resources.ranks 4"},
};

static void test_plan_hardware_refused(void)
{
    begin();
    for (size_t i = 0; i < sizeof bad_hardware / sizeof *bad_hardware; i++) {
        const int status = post("/v1/plan", bad_hardware[i].body);
        CHECK_MSG(status == 400 && strstr(reply, bad_hardware[i].pointer) &&
                      strstr(reply, bad_hardware[i].says),
                  "%zu: %d %s", i, status, reply);
    }
    /* A job runs on the nodes of this seqd, and not on hardware that its spec describes. */
    const char *job = PLAN_OF(",\"hardware\":{" CLUSTER "}");
    CHECK(post("/v1/jobs", job) == 400 && strstr(reply, "\"pointer\":\"/hardware\""));
    CHECK(post("/v1/jobs?dry_run=true", job) == 400 && strstr(reply, "POST /v1/plan"));
    /* If no plan fits, the error lists the candidates that were compared. */
    CHECK(post("/v1/plan", PLAN_OF(",\"hardware\":{\"devices\":1,\"memory_gib\":0.1}")) == 400);
    CHECK(strstr(reply, "does_not_fit") && strstr(reply, "\"weighed\":[{"));
    finish();
}

/* Checks pieces that "auto" chose to make a job fit. They must be stored with the job, so that
 * every node uses the same pieces. A node whose version does not know pieces must not get the
 * job. */
static void test_pieces_are_kept(void)
{
#define WIDE                                                                                       \
    "{\"kind\":\"train\",\"model\":{\"config\":{\"hidden_size\":64,\"num_hidden_layers\":2,"       \
    "\"num_attention_heads\":2,\"intermediate_size\":4096}},\"data\":{\"train\":[{\"path\":\"/"    \
    "x\"}],"                                                                                       \
    "\"seq_len\":16384},\"train\":{\"steps\":5},\"resources\":{\"ranks\":1,\"memory_mib\":%d}}"
    char body[1024];
    begin();
    snprintf(body, sizeof body, WIDE, 16384);
    CHECK_MSG(post("/v1/jobs", body) == 201, "%s", reply);
    CHECK(get("/v1/jobs/1") == 200 && strstr(reply, "\"mlp_chunk_tokens\":\"auto\""));
    CHECK(!spec_needs(job_spec(control_job(w.control, 1)), WIRE_ABI_BEFORE));
    snprintf(body, sizeof body, WIDE, 1000);
    CHECK_MSG(post("/v1/jobs", body) == 201, "%s", reply);
    CHECK(get("/v1/jobs/2") == 200 && strstr(reply, "\"mlp_chunk_tokens\":2048"));
    CHECK_STR(spec_needs(job_spec(control_job(w.control, 2)), WIRE_ABI_BEFORE),
              "memory.mlp_chunk_tokens");
    finish();
}

#define DEEP                                                                                       \
    "{\"kind\":\"train\",\"model\":{\"config\":{\"hidden_size\":64,\"num_hidden_layers\":32,"      \
    "\"num_attention_heads\":2,\"intermediate_size\":64}},\"data\":{\"train\":[{\"path\":\"/"      \
    "x\"}],"                                                                                       \
    "\"seq_len\":16384},\"train\":{\"steps\":5},\"memory\":{%s},"                                  \
    "\"resources\":{\"ranks\":1,\"memory_mib\":%lld}}"

/* Returns the bytes of a rank in the plan with this memory, or 0 if there is no plan. */
static long long planned(const char *memory)
{
    char body[1024];
    snprintf(body, sizeof body, DEEP, memory, 100000ll);
    CHECK_MSG(post("/v1/plan", body) == 200, "%s", reply);
    const char *at = strstr(reply, "\"total_bytes\":");
    return at ? strtoll(at + 14, NULL, 10) : 0;
}

/* Checks that the choice of "auto" to offload activations is stored, too. If a setting for
 * offloading is wrong, the error must name this setting. */
static void test_offload_is_kept(void)
{
    char body[1024];
    begin();
    const long long full = planned("\"recompute\":\"full\",\"mlp_chunk_tokens\":2048");
    const long long away = planned("\"offload\":\"activations\",\"offload_dir\":\"/w\"");
    CHECK(strstr(reply, "\"offload\":{\"what\":\"activations\",\"where\":\"disk\",\"bytes\":"));
    CHECK(strstr(reply, "\"disk_bytes\":") && strstr(reply, "\"recompute\":\"full\""));
    CHECK_MSG(full - away > 2 << 20, "%lld bytes, offloaded %lld", full, away);
    const long long mib = (full - 1) >> 20; /* too little to keep them in memory */
    snprintf(body, sizeof body, DEEP, "", mib);
    CHECK(post("/v1/jobs", body) == 400 &&
          strstr(reply, "memory.offload \\\"activations\\\" with a memory.offload_dir needs"));
    snprintf(body, sizeof body, DEEP, "\"offload_dir\":\"/w\"", mib);
    CHECK_MSG(post("/v1/jobs", body) == 201, "%s", reply);
    CHECK(get("/v1/jobs/1") == 200 && strstr(reply, "\"offload\":\"activations\""));
    static const char *const bad[][3] = {
        {"\"offload\":\"activations\"", "/memory/offload_dir", "is missing"},
        {"\"offload\":\"weights\"", "/memory/offload", "activations"},
        {"\"offload_dir\":\"upload:x\"", "/memory/offload_dir", "writable root"},
        {"\"offload_dir\":\"/w/../x\"", "/memory/offload_dir", "writable root"},
        {"\"offload\":\"activations\",\"offload_dir\":\"/w\",\"time_chunk\":64", "/memory/", ""}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(body, sizeof body, DEEP, bad[i][0], 100000ll);
        CHECK_MSG(post("/v1/jobs", body) == 400 && strstr(reply, bad[i][1]) &&
                      strstr(reply, bad[i][2]),
                  "%s: %s", bad[i][0], reply);
    }
    finish();
}

/* Checks that the loss chunks of a training are stored, because the bits of its gradients depend
 * on them. If all tokens are in one chunk, as with a small vocabulary, they must not be stored. */
static void test_loss_chunks_are_kept(void)
{
#define WORDS                                                                                      \
    "{\"kind\":\"train\",\"model\":{\"config\":{\"hidden_size\":64,\"num_hidden_layers\":2,"       \
    "\"num_attention_heads\":2,\"intermediate_size\":64,\"vocab_size\":%d}},\"data\":{\"train\":[" \
    "{\"path\":\"/x\"}],\"seq_len\":2048},\"train\":{\"steps\":5},\"resources\":{\"ranks\":1}}"
    char body[1024];
    begin();
    snprintf(body, sizeof body, WORDS, 50257);
    CHECK_MSG(post("/v1/jobs", body) == 201, "%s", reply);
    CHECK_MSG(get("/v1/jobs/1") == 200 && strstr(reply, "\"loss_chunk_tokens\":320"), "%s", reply);
    snprintf(body, sizeof body, WORDS, 258);
    CHECK_MSG(post("/v1/jobs", body) == 201, "%s", reply);
    CHECK(get("/v1/jobs/2") == 200 && strstr(reply, "\"loss_chunk_tokens\":\"auto\""));
    finish();
}

/* Checks that the number of prompts that are answered at the same time is stored, too. If a job
 * has one prompt, the number must be one. */
static void test_batch_is_kept(void)
{
#define ASK                                                                                        \
    "{\"kind\":\"generate\",\"model\":{\"config\":{\"hidden_size\":64,\"num_hidden_layers\":8,"    \
    "\"num_attention_heads\":2,\"intermediate_size\":65536}},\"data\":{\"seq_len\":4096},"         \
    "\"input\":{%s},"                                                                              \
    "\"infer\":{%s},\"resources\":{\"ranks\":1,\"memory_mib\":%d}}"
#define FILE_OF "\"path\":\"/x.jsonl\",\"format\":\"jsonl\""
    static const struct {
        const char *input, *batch, *kept;
        int memory_mib;
    } ways[] = {
        {FILE_OF, "\"batch\":\"auto\"", "\"batch\":16", 100000},
        {FILE_OF, "", "\"batch\":16", 100000}, /* unsaid */
        {FILE_OF, "\"batch\":0", "\"batch\":16", 100000},
        {FILE_OF, "\"batch\":\"auto\"", "\"batch\":5", 0}, /* the node has room for 5 prompts */
        {"\"prompt\":\"a\"", "\"batch\":\"auto\"", "\"batch\":1", 100000},
        {"\"prompt\":\"a\"", "", "\"batch\":1", 100000},
        {FILE_OF, "\"batch\":3", "\"batch\":3", 100000},
    };
    char body[1024], id[32];
    begin();
    node_joins();
    snprintf(body, sizeof body, ASK, FILE_OF, "\"batch\":5", 100000);
    CHECK_MSG(post("/v1/plan", body) == 200, "%s", reply);
    const char *at = strstr(reply, "\"total_bytes\":");
    const int room = at ? (int)((strtoll(at + 14, NULL, 10) + (1 << 20) - 1) >> 20) : 0;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        snprintf(body, sizeof body, ASK, ways[i].input, ways[i].batch,
                 ways[i].memory_mib ? ways[i].memory_mib : room);
        CHECK_MSG(post("/v1/jobs", body) == 201, "%s", reply);
        snprintf(id, sizeof id, "/v1/jobs/%d", (int)i + 1);
        snprintf(body, sizeof body, "\"infer\":{%s}", ways[i].kept);
        CHECK_MSG(get(id) == 200 && strstr(reply, body), "%s: %s", body, reply);
    }
    finish();
}

/* Checks that "auto" chooses 1 as long as the job may be placed on a node whose version answers
 * only one prompt at a time. */
static void test_batch_waits_for_nodes(void)
{
    enum { OLD = WIRE_ABI_BEFORE };
    static const struct {
        bool here, up, lost, joined; /* `here` means that the table of nodes has n2 */
        uint32_t abi;                /* the ABI of n2 */
        bool n1_up, many;
        const char *what;
    } ways[] = {
        {false, false, false, false, 0, false, false, "no node"},
        {false, false, false, false, 0, true, true, "a new node"},
        {true, true, false, true, OLD, true, false, "an old node"},
        {true, false, false, true, OLD, true, false, "an old node that is down"},
        {true, false, true, true, OLD, true, true, "an old node that is lost"},
        {true, false, false, false, 0, true, false, "a node that has not come back"},
        {true, false, true, false, 0, true, true, "a node that has not come back in its time"},
        {true, false, false, true, WIRE_ABI, true, true, "a new node that is down"},
        {true, false, false, true, WIRE_ABI, false, false, "only a new node, down"},
    };
    char body[1024], id[32];
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        begin();
        struct nodes *t = (struct nodes *)control_nodes(w.control);
        if (ways[i].n1_up) node_joins();
        if (ways[i].here) {
            struct node *n = node_expect(t, "n2", 0);
            n->up = ways[i].up;
            n->lost = ways[i].lost;
            n->joined = ways[i].joined;
            n->abi = ways[i].abi;
        }
        snprintf(body, sizeof body, ASK, FILE_OF, "", 100000);
        CHECK_MSG(post("/v1/jobs", body) == 201, "%s: %s", ways[i].what, reply);
        snprintf(id, sizeof id, "\"infer\":{\"batch\":%d}", ways[i].many ? 16 : 1);
        CHECK_MSG(get("/v1/jobs/1") == 200 && strstr(reply, id), "%s: %s", ways[i].what, reply);
        CHECK(ways[i].many || !spec_needs(job_spec(control_job(w.control, 1)), WIRE_ABI_BEFORE));
        finish();
    }
}

/* Puts a node into quarantine as quarantine.c does: in memory, and in a row of the store. */
static void quarantine_node(const char *node, const char *reason)
{
    struct store_txn *t = store_begin();
    quarantine_load(control_cluster(w.control)->quarantine, node, 1700000000000, reason);
    /* the quarantine is not committed yet, so it must not be shown */
    CHECK(get("/v1/nodes") == 200 && !strstr(reply, reason));
    store_quarantine_add(t, node, 1700000000000, reason);
    commit(t);
}

/* Checks quarantine over REST. The name of the node contains characters that have a meaning in
 * paths. */
static void test_quarantine(void)
{
    struct quarantine *q;
    begin();
    node_joins();
    q = control_cluster(w.control)->quarantine;
    CHECK(get("/v1/nodes") == 200 && strstr(reply, "\"quarantine\":null"));
    CHECK(post("/v1/nodes/n1:release", "") == 409 && strstr(reply, "node n1 is in no quarantine"));
    CHECK(post("/v1/nodes/n2:release", "") == 404);
    CHECK(post("/v1/nodes/:release", "") == 404 && post("/v1/nodes/n1:restart", "") == 404);
    CHECK(get("/v1/nodes/n1:release") == 405);
    quarantine_node("n1", "three \"bad\" starts");
    quarantine_node("a:1/b c", "odd name");
    CHECK(get("/v1/nodes") == 200);
    CHECK(strstr(reply, "\"quarantine\":{\"since\":\"2023-11-14T22:13:20.000Z\","
                        "\"reason\":\"three \\\"bad\\\" starts\"}"));
    CHECK(post("/v1/nodes/n1:release", "") == 200 && strstr(reply, "\"quarantine\":null"));
    CHECK(post("/v1/nodes/a:1%2Fb%20c:release", "") == 200 && !quarantine_find(q, "a:1/b c"));
    CHECK(post("/v1/nodes/n1:release", "") == 409);
    finish();
}

/* Checks the longest document that seqd can write about a node. */
static void test_long_node(void)
{
    struct msg hello = {.type = MSG_HELLO, .abi = WIRE_ABI, .n_slots = 4096, .n_cores = 4096};
    struct msg m = {.type = MSG_PROFILE};
    char reason[QUARANTINE_REASON];
    begin();
    m.profile = profile_of(1e11 / 3, 1e10 / 3, 1e9 / 3, 1e-3 / 3);
    memset(hello.node, 'n', sizeof hello.node - 1);
    memset(hello.version, 1, sizeof hello.version - 1);
    memset(reason, 1, sizeof reason - 1);
    reason[sizeof reason - 1] = 0;
    control_link_calls.up(w.control, hello.node, &hello);
    control_link_calls.message(w.control, hello.node, &m);
    quarantine_node(hello.node, reason);
    CHECK(get("/v1/nodes") == 200);
    CHECK_MSG(strstr(reply, "\"has_more\":false}"), "%zu bytes: cut", reply_len);
    finish();
}

/* Checks that the strategy of a job with "auto" is chosen only once, from the measurements of the
 * nodes. The choice must be stored. */
static void test_auto_by_profile(void)
{
    static const char job[] =
        "{\"kind\":\"train\",\"model\":{\"config\":{\"hidden_size\":64,\"num_hidden_layers\":2,"
        "\"num_attention_heads\":4,\"intermediate_size\":128}},\"data\":{\"train\":[{\"path\":"
        "\"/x\"}],\"seq_len\":256},\"train\":{\"steps\":5,\"global_batch\":4},\"resources\":{"
        "\"ranks\":4}}";
    static const char ring[] =
        "{\"kind\":\"train\",\"model\":{\"config\":{\"hidden_size\":64,\"num_hidden_layers\":2,"
        "\"num_attention_heads\":4,\"intermediate_size\":128}},\"data\":{\"train\":[{\"path\":"
        "\"/x\"}],\"seq_len\":256},\"train\":{\"steps\":5},\"parallel\":{\"sp\":4}}";
    struct msg m = {.type = MSG_PROFILE, .profile = profile_of(1e11, 1e10, 1e9, 1e-3)};
    begin();
    /* no node has measured itself, so the ring has all ranks */
    CHECK(post("/v1/jobs", job) == 201);
    CHECK(strstr(reply, "\"strategy\":\"rsa\"") && number_at("\"sp\":") == 4);
    node_joins();
    control_link_calls.message(w.control, "n1", &m);
    CHECK(get("/v1/nodes") == 200 && number_at("\"hop_s\":") == 1e-3);
    /* hops are slow, so there are as few messages as possible */
    CHECK(post("/v1/jobs?dry_run=true", job) == 200);
    CHECK(strstr(reply, "\"strategy\":\"local\"") && strstr(reply, "\"pp\":2"));
    CHECK(strstr(reply, "\"products\":{\"weighed\":") && strstr(reply, "measured by a node"));
    CHECK(post("/v1/plan", ring) == 200 && strstr(reply, "\"strategy\":\"usp\""));
    struct msg old = {.type = MSG_HELLO, .abi = 6, .memory_size = (int64_t)1 << 33};
    snprintf(old.node, sizeof old.node, "n0");
    control_link_calls.up(w.control, "n0", &old); /* a node of this version does not know stages */
    /* sequences are short, so each rank has its own */
    CHECK(post("/v1/jobs", job) == 201);
    CHECK(strstr(reply, "\"strategy\":\"local\"") && number_at("\"sp\":") == 1);
    CHECK(number_at("\"dp\":") == 4 && strstr(reply, "measured by a node"));
    CHECK(!strstr(reply, "\"pp\":2"));
    char again[64];
    const char *spec = strstr(reply, "\"spec_effective\":");
    snprintf(again, sizeof again, "%.60s", spec ? spec : "none");
    CHECK(get("/v1/jobs/2") == 200 && strstr(reply, again) && number_at("\"dp\":") == 4);
    /* If a requested strategy does not help, the plan must report this before the job is
     * submitted. */
    CHECK(post("/v1/plan", ring) == 200 && strstr(reply, "will not help"));
    CHECK(!strstr(reply, "\"usp\"")); /* n0 does not know groups either */
    finish();
}

static void test_idempotency(void)
{
    begin();
    CHECK(post_with("/v1/jobs", "Idempotency-Key: abc\r\n", job_json) == 201);
    CHECK(!strstr(reply, "Idempotency-Replayed"));
    CHECK(post_with("/v1/jobs", "Idempotency-Key: abc\r\n", job_json) == 201);
    CHECK(strstr(reply, "Idempotency-Replayed: true") && strstr(reply, "Location: /v1/jobs/1\r\n"));
    CHECK(post_with("/v1/jobs", "Idempotency-Key: abc\r\n",
                    "{\"kind\":\"generate\",\"model\":{\"config\":{\"hidden_size\":64,"
                    "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"intermediate_size\":128}},"
                    "\"input\":{\"prompt\":\"x\"}}") == 422);
    close_server();
    begin_in(false, 0); /* the key must be known after a restart */
    CHECK(post_with("/v1/jobs", "Idempotency-Key: abc\r\n", job_json) == 201);
    CHECK(strstr(reply, "Idempotency-Replayed: true"));
    CHECK(get("/v1/jobs") == 200 && strstr(reply, "\"id\":1,") && !strstr(reply, "\"id\":2,"));
    finish();
}

static void test_pages(void)
{
    bool seen[8] = {false};
    char cursor[32] = "";
    begin();
    for (int i = 0; i < 7; i++) CHECK(post("/v1/jobs", job_json) == 201);
    CHECK(post("/v1/jobs/3:cancel", "") == 202 && strstr(reply, "\"state\":\"cancelled\""));
    CHECK(post("/v1/jobs/3:cancel", "") == 200); /* a second cancel does not change the job */
    CHECK(post("/v1/jobs/4:restart", "") == 409 && strstr(reply, "has no checkpoint"));
    CHECK(post("/v1/jobs/3:restart", "") == 409 && strstr(reply, "job 3 has ended"));
    CHECK(post("/v1/jobs/99:restart", "") == 404);
    for (int page = 0; page < 4; page++) {
        char path[96];
        snprintf(path, sizeof path, "/v1/jobs?limit=2%s%s", *cursor ? "&cursor=" : "", cursor);
        CHECK(get(path) == 200);
        for (int id = 1; id <= 7; id++) {
            char what[32];
            snprintf(what, sizeof what, "{\"id\":%d,", id);
            if (!strstr(reply, what)) continue;
            CHECK_MSG(!seen[id], "job %d came twice", id);
            seen[id] = true;
        }
        const char *next = strstr(reply, "\"next_cursor\":\"");
        CHECK((next != NULL) == (page < 3));
        if (next) sscanf(next + 15, "%31[0-9]", cursor);
    }
    for (int id = 1; id <= 7; id++) CHECK(seen[id]);
    CHECK(get("/v1/jobs?state=cancelled") == 200 && strstr(reply, "{\"id\":3,") &&
          !strstr(reply, "{\"id\":4,"));
    CHECK(get("/v1/jobs?state=cancelled,queued&limit=7") == 200 && strstr(reply, "{\"id\":3,") &&
          strstr(reply, "{\"id\":4,"));
    CHECK(get("/v1/jobs/3/events") == 200 && strstr(reply, "\"type\":\"cancel\""));
    CHECK(get("/v1/jobs/3/events?limit=1") == 200 && strstr(reply, "\"has_more\":true"));
    CHECK(get("/v1/jobs/3/artifacts") == 200 && strstr(reply, "\"data\":[]"));
    CHECK(get("/v1/jobs/3/metrics") == 200 && strstr(reply, "\"data\":[]"));
    finish();
}

/* ---- streams --------------------------------------------------------------------------------- */

static void test_event_stream(void)
{
    begin();
    CHECK(post("/v1/jobs", job_json) == 201);
    int fd = open_stream("/v1/jobs/1/events", NULL);
    CHECK(receive(fd, "\"type\":\"submit\"") && status_of() == 200);
    CHECK(strstr(reply, "text/event-stream") && strstr(reply, "retry: 3000"));
    static char kept[sizeof reply];
    memcpy(kept, reply, reply_len + 1);
    size_t kept_len = reply_len;
    CHECK(post("/v1/jobs/1:cancel", "") == 202);
    memcpy(reply, kept, kept_len + 1);
    reply_len = kept_len;
    receive(fd, "0\r\n\r\n"); /* the end of the chunked body */
    CHECK(strstr(reply, "\"type\":\"cancel\""));
    CHECK(strstr(reply, "event: end\ndata: {\"id\":1,\"state\":\"cancelled\"}"));
    close(fd);
    /* The stream is resumed after the first event. The job has ended in the meantime. */
    fd = open_stream("/v1/jobs/1/events", "1");
    receive(fd, "0\r\n\r\n");
    CHECK(!strstr(reply, "\"type\":\"submit\"") && strstr(reply, "\"type\":\"cancel\""));
    CHECK(strstr(reply, "event: end"));
    close(fd);
    fd = open_stream("/v1/jobs/9/events", NULL);
    CHECK(receive(fd, "there is no job 9") && status_of() == 404);
    close(fd);
    /* The first client disconnects. The second is still connected while seqd stops. */
    CHECK(post("/v1/jobs", job_json) == 201);
    fd = open_stream("/v1/jobs/2/events", NULL);
    CHECK(receive(fd, "submit"));
    close(fd);
    fd = open_stream("/v1/jobs/2/events", NULL);
    CHECK(receive(fd, "submit"));
    finish();
    close(fd);
}

static void add_metrics(int64_t job, int from, int n)
{
    char data[8192] = "[";
    for (int i = 0; i < n; i++) {
        size_t at = strlen(data);
        snprintf(data + at, sizeof data - at, "%s{\"step\":%d,\"loss\":1.5}", i ? "," : "",
                 from + i);
    }
    strcat(data, "]");
    struct store_txn *t = store_begin();
    store_metrics_add(t, job, data);
    store_commit(w.store, t, NULL, NULL);
}

static void test_metric_stream(void)
{
    begin();
    CHECK(post("/v1/jobs", job_json) == 201);
    add_metrics(1, 1, 5);
    add_metrics(1, 6, 5);
    CHECK(post("/v1/jobs/1:cancel", "") == 202);
    int fd = open_stream("/v1/jobs/1/metrics", NULL);
    receive(fd, "0\r\n\r\n");
    close(fd);
    int n = 0;
    for (const char *p = reply; (p = strstr(p, "data: {\"step\":")); p++)
        n += atoi(p + 14) == n + 1;
    CHECK_MSG(n == 10, "%d steps", n);
    CHECK(strstr(reply, "id: 1.3\ndata: {\"step\":4,") && strstr(reply, "event: end"));
    fd = open_stream("/v1/jobs/1/metrics", "1.3"); /* in the middle of a row */
    receive(fd, "0\r\n\r\n");
    close(fd);
    CHECK(!strstr(reply, "\"step\":4,") && strstr(reply, "\"step\":5,") &&
          strstr(reply, "\"step\":10,"));
    CHECK(get("/v1/jobs/1/metrics?limit=1") == 200 && strstr(reply, "\"step\":5,") &&
          !strstr(reply, "\"step\":6,") && strstr(reply, "\"has_more\":true"));
    finish();
}

/* Checks a client that stops reading. seqd must buffer only a bounded number of bytes for this
 * client. When the client reads again, it must get all events. */
static void test_stalled_reader(void)
{
    begin();
    CHECK(post("/v1/jobs", job_json) == 201);
    /* 400 rows, which are 2 MB of messages */
    for (int i = 0; i < 400; i++) add_metrics(1, 1 + 200 * i, 200);
    CHECK(post("/v1/jobs/1:cancel", "") == 202);
    int fd = open_stream("/v1/jobs/1/metrics", NULL);
    for (int i = 0; i < 100; i++) loop_turn(w.loop, 1); /* the stream fills its buffer */
    long long n = 0, want = 1;
    static char text[1 << 16];
    size_t held = 0;
    for (bool end = false; !end;) {
        loop_turn(w.loop, 1);
        struct pollfd p = {fd, POLLIN, 0};
        if (poll(&p, 1, 1) <= 0) continue;
        ssize_t got = recv(fd, text + held, sizeof text - 1 - held, 0);
        if (got <= 0) break;
        held += (size_t)got;
        text[held] = 0;
        char *line = text, *nl;
        for (; (nl = strchr(line, '\n')); line = nl + 1) {
            long long step;
            if (sscanf(line, "data: {\"step\":%lld,", &step) == 1) n++, want += step == want;
            end |= !strncmp(line, "event: end", 10);
        }
        held = strlen(line);
        memmove(text, line, held + 1);
    }
    close(fd);
    /* A line may be split over two chunks, so a few steps may not be counted. No step may be out
     * of order. */
    CHECK_MSG(n >= 79000 && want >= 2, "%lld steps", n);
    finish();
}

/* ---- things that live on a node -------------------------------------------------------------- */

static const char generate_json[] =
    "{\"kind\":\"generate\",\"model\":{\"path\":\"/"
    "m\",\"rope\":{\"compute\":\"exact\"}},\"input\":{\"prompt\":\"x\"}}";

static void test_described_model(void)
{
    begin();
    node_joins();
    /* if bad is 1, the model's directory does not exist; if bad is 2, the model has no
     * tokenizer */
    for (int bad = 0; bad < 3; bad++) {
        w.fetch.type = 0;
        int fd = post_begin("/v1/jobs", "", generate_json);
        wait_question();
        CHECK(w.fetch.type == MSG_DESCRIBE && !strcmp(w.fetch.path, "/m"));
        struct msg m = described(bad == 2 ? "none" : "byte");
        if (bad == 1) err_set(&m.err, ERR_NOT_FOUND, "/m/config.json: no such file");
        control_link_calls.message(w.control, "n1", &m);
        CHECK(answer_of(fd) == (bad ? 400 : 201));
        CHECK(strstr(
            reply,
            bad == 1 ? "\"pointer\":\"/model/path\""
            : bad == 2
                ? "\"pointer\":\"/input/prompt\""
                : "\"model\":{\"path\":\"/"
                  "m\",\"init\":\"auto\",\"weights\":\"model\",\"rope\":{\"compute\":\"exact\"}}"));
        if (bad == 2) CHECK_MSG(strstr(reply, "data.tokenizer \\\"byte\\\""), "%s", reply);
    }
    close_server();
    begin_in(false, 0); /* the shape must be known after a restart */
    CHECK(get("/v1/jobs/1") == 200 &&
          strstr(reply,
                 "\"model\":{\"path\":\"/"
                 "m\",\"init\":\"auto\",\"weights\":\"model\",\"rope\":{\"compute\":\"exact\"}}"));
    CHECK(job_spec(control_job(w.control, 1))->model.shape.n_kv_heads == 2);
    CHECK(job_spec(control_job(w.control, 1))->model.shape.tokenizer == TOKENIZER_BYTE);
    CHECK(strstr(reply, "\"tokenizer\":\"byte\"") && !strstr(reply, "hidden_size"));
    finish();
}

/* Checks that a replay is read from the store and needs no node. */
static void test_replay_without_a_node(void)
{
    static const char key[] = "Idempotency-Key: described\r\n";
    begin();
    node_joins();
    const int fd = post_begin("/v1/jobs", key, generate_json);
    wait_question();
    const struct msg m = described("byte");
    control_link_calls.message(w.control, "n1", &m);
    CHECK(answer_of(fd) == 201);
    close_server();
    begin_in(false, 0);
    CHECK_MSG(post_with("/v1/jobs", key, generate_json) == 201, "%s", reply);
    CHECK(strstr(reply, "Idempotency-Replayed: true"));
    CHECK(post("/v1/jobs", generate_json) == 503);
    finish();
}

/* Checks a directory without weights. It must be accepted only if the job sets model.init
 * "random". */
static void test_described_weightless(void)
{
    static const char named[] = "{\"kind\":\"generate\",\"model\":{\"path\":\"/m\",\"init\":"
                                "\"random\"},\"input\":{\"prompt\":\"x\"}}";
    begin();
    node_joins();
    for (int i = 0; i < 2; i++) {
        w.fetch.type = 0;
        int fd = post_begin("/v1/jobs", "", i ? named : generate_json);
        wait_question();
        struct msg m = described("byte");
        snprintf(strrchr(m.config, '}'), 32, ",\"weightless\":true}");
        control_link_calls.message(w.control, "n1", &m);
        CHECK_MSG(answer_of(fd) == (i ? 201 : 400), "%s", reply);
        if (i) continue;
        CHECK_MSG(strstr(reply, "\"pointer\":\"/model/path\""), "%s", reply);
        CHECK_MSG(strstr(reply, "model.init \\\"random\\\""), "%s", reply);
    }
    close_server();
    begin_in(false, 0); /* the description is kept over a restart */
    CHECK(get("/v1/jobs/1") == 200 && strstr(reply, "\"init\":\"random\""));
    CHECK(!strstr(reply, "weightless"));
    CHECK(job_spec(control_job(w.control, 1))->model.shape.weightless);
    finish();
    begin();
    CHECK(post("/v1/plan", "{\"kind\":\"train\",\"model\":{\"config\":{\"weightless\":true}}}") ==
          400);
    CHECK_MSG(strstr(reply, "weightless"), "%s", reply);
    finish();
}

/* Checks three nodes. The first node cannot run seqrank, and the second lacks the model, so seqd
 * must use the answer of the third. */
static void test_described_by_another(void)
{
    static const char *const names[] = {"n1", "n2", "n3"};
    for (int n_nodes = 2; n_nodes <= 3; n_nodes++) {
        begin();
        for (int i = 0; i < n_nodes; i++) node_joins_as(names[i], 0);
        int fd = post_begin("/v1/jobs", "", generate_json);
        for (int i = 1; i <= n_nodes; i++) {
            wait_question();
            struct msg m = described("auto");
            if (i == 1) err_set(&m.err, ERR_INVALID, "seqrank: cannot open libgone.so");
            if (i == 2) err_set(&m.err, ERR_NOT_FOUND, "/m does not exist on this node");
            w.fetch.type = 0;
            control_link_calls.message(w.control, names[i - 1], &m);
        }
        CHECK_MSG(answer_of(fd) == (n_nodes == 2 ? 400 : 201), "%d nodes: %s", n_nodes, reply);
        if (n_nodes == 2) CHECK(strstr(reply, "/m does not exist on this node"));
        finish();
    }
}

/* Checks a node whose version does not know DESCRIBE. If a newer node can answer, the old node
 * must be skipped. If there is only the old node, the answer must be the error about this node. */
static void test_described_by_the_newer(void)
{
    for (int n_nodes = 1; n_nodes <= 2; n_nodes++) {
        begin();
        node_joins_as("n1", 0);
        if (n_nodes == 2) node_joins_as("n2", 0);
        node_find((struct nodes *)control_nodes(w.control), "n1")->abi = WIRE_ABI_BEFORE - 1;
        w.fetch.type = 0;
        const int fd = post_begin("/v1/jobs", "", generate_json);
        if (n_nodes == 2) {
            wait_question();
            const struct msg m = described("byte");
            control_link_calls.message(w.control, "n2", &m);
        }
        CHECK_MSG(answer_of(fd) == (n_nodes == 2 ? 201 : 503), "%d nodes: %s", n_nodes, reply);
        if (n_nodes == 1) CHECK(strstr(reply, "does not know this question: upgrade seqw there"));
        finish();
    }
}

static void test_download(void)
{
    begin();
    node_joins();
    CHECK(post("/v1/jobs", job_json) == 201);
    wait_placed();
    static char chunk[WIRE_CHUNK];
    for (int bad = 0; bad < 3; bad++) {
        const char *r = "GET /v1/jobs/1/artifacts/a/b%20c HTTP/1.1\r\n" HEAD "\r\n";
        int fd = dial();
        clear();
        w.fetch.type = 0;
        send_all(fd, r, strlen(r));
        for (int i = 0; i < 4; i++) {
            wait_question();
            CHECK_STR(w.fetch.path, "a/b c");
            CHECK(w.fetch.offset == (int64_t)i * WIRE_CHUNK);
            memset(chunk, 'a' + i, sizeof chunk);
            struct msg m = {.type = MSG_FETCHED, .request = w.fetch.request, .data = chunk};
            m.size = i < 3 ? sizeof chunk : 1;
            m.offset = w.fetch.offset;
            m.total = 3 * WIRE_CHUNK + 1;
            bool fail = (bad == 1 && i == 0) || (bad == 2 && i == 2);
            if (fail) err_set(&m.err, ERR_NOT_FOUND, "no such artifact");
            w.fetch.type = 0;
            control_link_calls.message(w.control, "n1", &m);
            if (fail) break;
            for (int k = 0; k < 300 && !w.fetch.type && i < 3; k++) {
                struct pollfd p = {fd, POLLIN, 0};
                loop_turn(w.loop, 1);
                if (poll(&p, 1, 0) <= 0) continue;
                ssize_t n = recv(fd, reply + reply_len, sizeof reply - 1 - reply_len, 0);
                if (n > 0) reply_len += (size_t)n;
            }
        }
        reply[reply_len] = 0;
        receive(fd, NULL);
        close(fd);
        const char *body = strstr(reply, "\r\n\r\n");
        bool whole = body && reply + reply_len - body == 4 + 3 * WIRE_CHUNK + 1;
        CHECK(bad == 1 || strstr(reply, "Content-Length: 196609\r\n"));
        if (bad == 0) CHECK(status_of() == 200 && whole);
        if (bad == 1) CHECK(status_of() == 404);
        /* the answer ends early, and the client can notice this */
        if (bad == 2) CHECK(status_of() == 200 && !whole);
    }
    CHECK(get("/v1/jobs/1/artifacts//etc/passwd") == 400);
    finish();
}

static void test_logs_route(void)
{
    struct err e;
    begin();
    CHECK(post("/v1/jobs", job_json) == 201);
    CHECK(get("/v1/jobs/1/logs?rank=0") == 200 && strstr(reply, "Seqd-Next-Offset: 0\r\n"));
    CHECK(!strstr(reply, "Seqd-Log-End"));
    logs_append(w.logs, 1, 1, 0, 0, "line one\nline two\n", 18, &e);
    CHECK(get("/v1/jobs/1/logs?limit=4&offset=5") == 200 && strstr(reply, "\r\n\r\none\n"));
    CHECK(strstr(reply, "Seqd-Next-Offset: 9\r\n"));
    CHECK(post("/v1/jobs/1:cancel", "") == 202);
    CHECK(get("/v1/jobs/1/logs?offset=9") == 200 && strstr(reply, "line two\n"));
    CHECK(strstr(reply, "Seqd-Log-End: true"));
    CHECK(get("/v1/jobs/1/logs?rank=3") == 404);
    CHECK(get("/v1/jobs/1/logs?rank=64") == 400);
    finish();
}

/* Checks the rules of Prometheus. A name belongs to one family. The HELP and TYPE lines of a
 * family come once, before its samples. The names of counters, and no other names, end with
 * _total. Every value is a number. */
static void test_prometheus(void)
{
    char family[128] = "", seen[4096] = " ", type[16] = "";
    int n = 0;
    begin();
    CHECK(post("/v1/jobs", job_json) == 201);
    CHECK(get("/metrics") == 200 && strstr(reply, "text/plain; version=0.0.4"));
    char *text = strstr(reply, "\r\n\r\n") + 4;
    CHECK(reply[reply_len - 1] == '\n');
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        char name[128], word[160];
        if (sscanf(line, "# HELP %127s", name) == 1) {
            snprintf(family, sizeof family, "%s", name);
            snprintf(word, sizeof word, " %s ", name);
            CHECK_MSG(!strstr(seen, word), "%s twice", name);
            snprintf(seen + strlen(seen), sizeof seen - strlen(seen), "%s ", name);
            continue;
        }
        if (sscanf(line, "# TYPE %127s %15s", name, type) == 2) {
            CHECK_STR(name, family);
            const size_t len = strlen(name);
            const bool total = len > 6 && !strcmp(name + len - 6, "_total");
            CHECK_MSG(total == !strcmp(type, "counter"), "%s is a %s", name, type);
            CHECK_MSG(!strncmp(name, "seqd_", 5), "%s", name);
            continue;
        }
        const size_t len = strcspn(line, "{ ");
        CHECK_MSG(len == strlen(family) && !strncmp(line, family, len), "%s", line);
        char *end;
        const char *value = strrchr(line, ' ') + 1;
        strtod(value, &end);
        CHECK_MSG(end > value && !*end, "%s", line);
        n++;
    }
    CHECK_MSG(n > 20, "%d samples", n);
    CHECK(get("/metrics") == 200 && strstr(reply, "\nseqd_jobs{state=\"queued\"} 1\n"));
    node_joins_as("n1", 4);
    CHECK(get("/metrics") == 200 && strstr(reply, "\nseqd_nodes{state=\"up\"} 1\n"));
    CHECK(strstr(reply, "\nseqd_slots 4\n") != NULL);
    CHECK(!strstr(reply, "seqd_node_disk_free_bytes{")); /* the node has not reported it */
    CHECK(get("/v1/nodes") == 200 && strstr(reply, "\"disk\":null"));
    const struct msg beat = {.type = MSG_HEARTBEAT, .disk = {300, 20, 5000, 4000}};
    control_link_calls.message(w.control, "n1", &beat);
    CHECK(get("/metrics") == 200 && strstr(reply, "\nseqd_node_disk_bytes{node=\"n1\"} 5000\n") &&
          strstr(reply, "\nseqd_node_disk_free_bytes{node=\"n1\"} 4000\n") &&
          strstr(reply, "\nseqd_node_jobs_bytes{node=\"n1\"} 300\n") &&
          strstr(reply, "\nseqd_node_prepared_bytes{node=\"n1\"} 20\n"));
    CHECK(get("/v1/nodes") == 200 &&
          strstr(reply, "\"disk\":{\"bytes\":5000,\"free_bytes\":4000,\"jobs_bytes\":300,"
                        "\"prepared_bytes\":20}"));
    finish();
}

int main(void)
{
    seqd_test_init();
    RUN(test_openapi_matches);
    RUN(test_openapi_fields);
    RUN(test_openapi_words);
    RUN(test_page);
    RUN(test_docs);
    RUN(test_plain_routes);
    RUN(test_submit);
    RUN(test_too_few_gpus);
    RUN(test_too_little_memory);
    RUN(test_too_little_host_memory);
    RUN(test_plan_hardware);
    RUN(test_plan_hardware_refused);
    RUN(test_pieces_are_kept);
    RUN(test_loss_chunks_are_kept);
    RUN(test_batch_is_kept);
    RUN(test_batch_waits_for_nodes);
    RUN(test_offload_is_kept);
    RUN(test_auto_by_profile);
    RUN(test_quarantine);
    RUN(test_long_node);
    RUN(test_idempotency);
    RUN(test_pages);
    RUN(test_event_stream);
    RUN(test_metric_stream);
    RUN(test_stalled_reader);
    RUN(test_described_model);
    RUN(test_replay_without_a_node);
    RUN(test_described_weightless);
    RUN(test_described_by_another);
    RUN(test_described_by_the_newer);
    RUN(test_download);
    RUN(test_logs_route);
    RUN(test_prometheus);
    return test_done("seqd_rest");
}
