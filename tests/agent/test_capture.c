/* Programs that are asked and do not answer: the blame for each end. */
#include "api/core/rank.h"
#include "tests/lib/test.h"
#include "worker/agent/capture.h"

static struct {
    bool over;
    struct err e;
    char text[64];
} got;

static void done(void *arg, int64_t request, const char *text, size_t size, const struct err *why)
{
    got.over = true;
    got.e = *why;
    snprintf(got.text, sizeof got.text, "%.*s", (int)size, text);
}

static int start(struct loop *l, const char *program, const char *script, struct err *e)
{
    char *argv[] = {"sh", "-c", (char *)script, NULL};
    const struct capture_options o = {.loop = l,
                                      .program = program,
                                      .argv = argv,
                                      .request = 7,
                                      .limit_ms = 60000,
                                      .max_size = 16,
                                      .done = done};
    got.over = false;
    return capture_start(&o, e) ? 0 : -1;
}

static void test_ends(void)
{
    static const struct {
        const char *script;
        enum err_code code;
        const char *text;
    } ends[] = {
        {"echo yes", ERR_NONE, ""},
        {"echo config.json: no hidden_size >&2; exit 4", ERR_INVALID,
         "config.json: no hidden_size"},
        {"exit 4", ERR_INTERNAL, "sh -c ended with status 4: it says nothing"},
        {"echo a library is missing >&2; exit 127", ERR_INTERNAL,
         "sh -c ended with status 127: a library is missing"},
        {"exit 1", ERR_INTERNAL, "ended with status 1"},
        {"kill -SEGV $$", ERR_INTERNAL, "sh -c was ended by signal 11 (SIGSEGV, "},
        {"kill -ILL $$", ERR_INTERNAL, "SIGILL"},
        {"kill -KILL $$", ERR_PEER, "sh -c was ended by signal 9 (SIGKILL, "},
        {"echo a sentence >&2; kill -TERM $$", ERR_PEER, "SIGTERM"},
        {"echo 0123456789abcdefgh", ERR_INTERNAL, "printed more than 16 bytes"},
    };
    CHECK(RANK_EXIT_REFUSED == 4);
    struct loop *l = loop_create(NULL, NULL, NULL);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        struct err e = {0};
        CHECK(!start(l, "/bin/sh", ends[i].script, &e));
        while (!got.over) loop_turn(l, 1000);
        CHECK_MSG(got.e.code == ends[i].code && strstr(got.e.text, ends[i].text), "%s: %s, %s",
                  ends[i].script, err_name(got.e.code), got.e.text);
        CHECK(!*got.e.field);
    }
    struct err e = {0};
    CHECK(start(l, "/nowhere/sh", "echo", &e) < 0);
    CHECK_MSG(e.code == ERR_INTERNAL && strstr(e.text, "cannot run /nowhere/sh"), "%s", e.text);
    loop_destroy(l);
}

int main(void)
{
    RUN(test_ends);
    return test_done("capture");
}
