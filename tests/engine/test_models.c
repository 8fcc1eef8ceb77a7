/* test_models.c: checks which models seqrank --models finds beneath roots, and the limits for
 * hostile models. */
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include "api/core/jread.h"
#include "tests/lib/model_dir.h"
#include "worker/rank/models.h"

static char out[MODELS_SIZE];

/* each reading of the test's clock is tick_ms later than the previous reading; 0 means that the
 * machine's clock is used */
static int64_t tick_ms;

int clock_gettime(clockid_t id, struct timespec *t)
{
    static int64_t ahead_ms;
    const int rc = (int)syscall(SYS_clock_gettime, id, t);
    ahead_ms += tick_ms;
    t->tv_sec += ahead_ms / 1000;
    return rc;
}

/* Lists models, beginning with the model whose index is `first`. The limits are *l, or the limits
 * of seqrank if l is NULL. Under a sanitizer, which needs much memory itself, the process that
 * examines a model has no limit of memory. */
static void list_from(const char *root, int64_t first, const struct models_limits *l)
{
    const char *roots[] = {in_dir(root, ""), in_dir(root, "")}; /* the same root is given twice */
    struct models_limits own = models_limits;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    own.memory_size = 0;
#endif
    const int64_t n = models_write(roots, 2, first, l ? l : &own, out, sizeof out);
    struct jread j;
    CHECK(n > 0);
    jread_init(&j, out, (size_t)n);
    CHECK(jread_next(&j) == J_OBJECT && !jread_skip(&j) && jread_next(&j) == J_END);
    if (getenv("V")) printf("    %.2000s\n", out);
}

static void list(const char *root, const struct models_limits *l)
{
    list_from(root, 0, l);
}

static int count(const char *what)
{
    int n = 0;
    for (const char *p = out; (p = strstr(p, what)); p++) n++;
    return n;
}

static void test_found(void)
{
    char deep[256] = "found", far[300];
    make_own("found/a");
    /* is within model a, which is not searched for more models */
    put("found/a/inside", "model.safetensors", "");
    put("found/b", "config.json", "{}"); /* a config with any contents */
    put("found/c", "config.json", "{");
    put("found/c", "tokenizer_config.json", "{}");
    put("found/d/e", "model.safetensors.index.json", "{}");
    CHECK(!symlink("../d", in_dir("found", "d/loop")) && !symlink("..", in_dir("found", "up")));
    for (int i = 0; i < MODELS_DEPTH; i++) strcat(deep, "/x");
    snprintf(far, sizeof far, "%s/x", deep);
    CHECK(!file_make_dir(in_dir("found", ""), &e));
    put(deep, "model.safetensors", "");
    list("found", NULL);
    CHECK_MSG(count("\"path\":") == 4 && strstr(out, "\"incomplete\":null"), "%s", out);
    CHECK(count("/found/a\",\"loads\":true,\"model_type\":\"llama\"") == 1);
    CHECK(count("/found/c\",\"loads\":false") == 1 && count("/found/d/e\",\"loads\":false") == 1);
    CHECK(strstr(out, "/a\"") < strstr(out, "/c\"") && strstr(out, "/c\"") < strstr(out, "/d/e\""));
    CHECK(!file_remove(in_dir(deep, ""), &e));
    put(far, "model.safetensors", ""); /* one level deeper than the limit */
    list("found", NULL);
    CHECK_MSG(count("\"path\":") == 3, "%s", out);
    list("nowhere", NULL);
    CHECK_STR(out, "{\"models\":[],\"incomplete\":null}");
}

/* Checks GGUF files. If a directory has one such file, the directory is the model. If it has
 * several, each file is a model. */
static void test_ggufs(void)
{
    put("ggufs/one", "a.gguf", "GGUF");
    put("ggufs/two", "a.gguf", "GGUF");
    put("ggufs/two", "b.gguf", "");
    put("ggufs/two", ".c.gguf", "");
    put("ggufs/two", "a\x1b.gguf", ""); /* an error could not show it */
    put("ggufs/hidden", "a\x1b.gguf", "GGUF");
    put("ggufs/two/deeper", "d.gguf", "");
    put("ggufs/not", "config.json", "{}");
    put("ggufs/not", "a.gguf", "GGUF");
    list("ggufs", NULL);
    CHECK_MSG(count("\"path\":") == 4 && count("\"n_faults\":1}") == 4, "%s", out);
    CHECK(count("/ggufs/one\"") && count("/ggufs/two/a.gguf\"") && count("/ggufs/two/b.gguf\"") &&
          count("/ggufs/two/deeper\""));
    CHECK_MSG(count("the file is truncated here: fetch the file again\"") == 3 * 4, "%s", out);
}

/* Checks that an adapter's directory is not listed as a model, even with files of its base, and
 * that the directories in it are searched. */
static void test_adapters(void)
{
    put("adapters/bare", "adapter_config.json", "{}");
    put("adapters/bare", "adapter_model.safetensors", "");
    put("adapters/bare", "tokenizer.json", "{}");
    put("adapters/based", "adapter_config.json", "{}");
    put("adapters/based", "config.json", "{}");
    put("adapters/based", "generation_config.json", "{}");
    put("adapters/based/step", "model.safetensors", "");
    put("adapters/both", "adapter_config.json", "{}");
    put("adapters/both", "model.safetensors", "");
    list("adapters", NULL);
    CHECK_MSG(count("\"path\":") == 2, "%s", out);
    CHECK(count("/adapters/based/step\"") == 1 && count("/adapters/both\"") == 1);
}

/* Returns the index of the first model on the next page, or 0 if this was the last page. */
static int64_t next_page(void)
{
    const char *at = strstr(out, ",\"next\":");
    return at ? strtoll(at + 8, NULL, 10) : 0;
}

static void test_too_many(void)
{
    char name[64];
    for (int i = 0; i < MODELS_MAX + 3; i++) {
        snprintf(name, sizeof name, "many/%d", i);
        put(name, "model.safetensors", "12345678");
    }
    list("many", NULL);
    CHECK_MSG(count("\"path\":") == MODELS_MAX, "%d", count("\"path\":"));
    CHECK(strstr(out, "\"incomplete\":null") && next_page() == MODELS_MAX);
    CHECK(count("has no config.json") == MODELS_MAX);
    list_from("many", MODELS_MAX, NULL);
    CHECK_MSG(count("\"path\":") == 3 && !next_page() && count("/many/99\"") == 1, "%s", out);
    list_from("many", MODELS_MAX + 3, NULL);
    CHECK_STR(out, "{\"models\":[],\"incomplete\":null}");
    list_from("many", INT64_MAX, NULL);
    CHECK_STR(out, "{\"models\":[],\"incomplete\":null}");
}

/* Checks a directory with more GGUF files than fit into one answer. Each file must be on exactly
 * one page. */
static void test_pages(void)
{
    char name[64];
    int n = 0, pages = 0;
    int64_t first = 0;
    for (int i = 0; i < MODELS_MAX + 44; i++) {
        snprintf(name, sizeof name, "%03d.gguf", i);
        put("pages", name, "");
    }
    do {
        list_from("pages", first, NULL);
        snprintf(name, sizeof name, "/pages/%03d.gguf\"", (int)first);
        CHECK_MSG(count(name) == 1, "%s", name);
        n += count("\"path\":");
        first = next_page();
    } while (first && ++pages < 10);
    CHECK(n == MODELS_MAX + 44 && pages == 1);
}

/* Checks a search that ends early because of a limit. The models that it finds must be the first
 * models of a complete search, so that the indices on later pages remain right. GGUF files are
 * sorted among the directories. */
static void test_order(void)
{
    static const char *const order[] = {"/order/a/z\"",    "/order/a.b\"", "/order/a0/m\"",
                                        "/order/b.gguf\"", "/order/c\"",   "/order/d.gguf\""};
    enum { N = sizeof order / sizeof *order };
    static char whole[MODELS_SIZE];
    struct models_limits l = {0, 1000000, 1000000000, 0};
    const char *last = out;
    int most = 0, cut = 0;
    put("order/a/z", "model.safetensors", "");
    put("order/a.b", "model.safetensors", "");
    put("order/a0/m", "model.safetensors", "");
    put("order/c", "model.safetensors", "");
    put("order", "b.gguf", "");
    put("order", "d.gguf", "");
    list("order", NULL);
    for (int i = 0; i < N; i++) {
        const char *at = strstr(out, order[i]);
        CHECK_MSG(at && at > last, "%s: %s", order[i], out);
        last = at;
    }
    memcpy(whole, out, sizeof whole);
    tick_ms = 5000;
    for (int i = 0; i < N; i++) {
        l.walk_ms = 5000 * i + 2000;
        list("order", &l);
        char *end = strstr(out, "],\"incomplete\":");
        CHECK(end && !strncmp(out, whole, (size_t)(end - out)));
        cut += !strstr(end, ":null");
        most = count("\"path\":") > most ? count("\"path\":") : most;
    }
    tick_ms = 0;
    CHECK_MSG(cut == N && most == 2, "%d models, %d walks", most, cut);
}

/* Checks a directory with very many names. The time limit of the search must also end the reading
 * of the directory. */
static void test_slow_names(void)
{
    const struct models_limits l = {7000, 1000000, 1000000000, 0};
    char name[32];
    for (int i = 0; i < 300; i++) {
        snprintf(name, sizeof name, "%03d.gguf", i);
        put("slow", name, "");
    }
    tick_ms = 5000;
    list("slow", &l);
    tick_ms = 0;
    CHECK_STR(out, "{\"models\":[],\"incomplete\":\"looking for directories took too long\"}");
}

/* Checks limits of time and memory. If a limit is too small for a model, the answer must name this
 * model, and must list all other models. */
static void test_limits(void)
{
    const struct models_limits no_time = {6000, 0, 24000, 0}, none_at_all = {6000, 6000, 0, 0},
                               no_walk = {-1, 6000, 24000, 0}, too_little = {6000, 30000, 24000, 0};
    make_own("limits/a");
    make_own("limits/b");
    list("limits", &no_time);
    CHECK_MSG(count("looking at it took longer than 0 s") == 3 * 2 && count("\"loads\":false") >= 2,
              "%s", out);
    list("limits", &none_at_all);
    CHECK_MSG(count("limits/a\",\"loads\":true") == 1 && !count("limits/b") && next_page() == 1,
              "%s", out); /* a page always has one model, whatever its time limit */
    list_from("limits", 1, &none_at_all);
    CHECK_MSG(!count("limits/a") && count("limits/b\",\"loads\":true") == 1 && !next_page(), "%s",
              out);
    /* if less time remains than the limit for one model, the model is left to the next page */
    list("limits", &too_little);
    CHECK_MSG(count("limits/a\",\"loads\":true") == 1 && !count("limits/b") && next_page() == 1,
              "%s", out);
    list("limits", &no_walk);
    CHECK_STR(out, "{\"models\":[],\"incomplete\":\"looking for directories took too long\"}");
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    const struct models_limits small = {6000, 6000, 24000, 48 << 20};
    /* the file really has a header of this size, but the header does not fit in the memory */
    const size_t size = 64 << 20;
    char *text = calloc(1, size + 8);
    for (int i = 0; i < 8; i++) text[i] = (char)(size >> 8 * i & 255);
    memset(text + 8, ' ', size);
    CHECK(!file_write(in_dir("limits/b", "model.safetensors"), text, size + 8, &e));
    free(text);
    list("limits", &small);
    CHECK_MSG(count("limits/a\",\"loads\":true") == 1 && count("limits/b\",\"loads\":false") == 1 &&
                  (count("model.safetensors: out of memory") == 2 || count("died of signal") == 3),
              "%s", out);
#endif
}

int main(void)
{
    model_dir_begin("test_models");
    RUN(test_found);
    RUN(test_ggufs);
    RUN(test_adapters);
    RUN(test_too_many);
    RUN(test_pages);
    RUN(test_order);
    RUN(test_slow_names);
    RUN(test_limits);
    model_dir_end();
    return test_done("models");
}
