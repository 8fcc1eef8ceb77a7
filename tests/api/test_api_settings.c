/* test_api_settings: tests options from a TOML file, and a file that is read again. */
#include "tests/lib/test.h"

#include <unistd.h>
#include "api/core/file.h"
#include "api/settings.h"
#include "api/toml.h"

struct target {
    char file[64], name[16];
    int64_t limit;
    bool fast;
    struct option_list root;
};

#define AT(field) OPTION_TARGET(struct target, field)

static const struct option_entry rows[] = {
    {"file", OPTION_TEXT, OPTION_COMMAND, "FILE", NULL, 0, 0, AT(file), NULL, "The file."},
    {"name", OPTION_TEXT, OPTION_RESTART, "NAME", NULL, 0, 0, AT(name), NULL, "A name."},
    {"limit", OPTION_NUMBER, OPTION_RELOADS, "N", "5", 1, 9, AT(limit), NULL, "A limit."},
    {"fast", OPTION_FLAG, OPTION_RELOADS, NULL, NULL, 0, 0, AT(fast), NULL, "Faster."},
    {"root", OPTION_TEXTS, OPTION_RESTART, "DIR", NULL, 0, 0, AT(root), NULL, "Roots."},
};
static const struct option_table table = {
    "prog", "", "", rows, sizeof rows / sizeof *rows, sizeof(struct target)};

static char path[] = "/tmp/test-settings-XXXXXX";
static struct target t;
static struct err e;

static const char *path_of(const void *target)
{
    const struct target *s = target;
    return *s->file ? s->file : NULL;
}

static int check(const void *fresh, struct err *err)
{
    const struct target *s = fresh;
    return s->limit == 8 ? err_set(err, ERR_INVALID, "limit 8: not that one") : 0;
}

static char *argv_of(char *extra, char **argv)
{
    argv[0] = "prog", argv[1] = "--file", argv[2] = path, argv[3] = extra, argv[4] = NULL;
    return extra;
}

static int put(const char *text, size_t size, char *extra)
{
    char *argv[5];
    const int argc = argv_of(extra, argv) ? 4 : 3;
    CHECK(file_write(path, text, size, NULL) == 0);
    memset(&e, 0, sizeof e);
    return settings_read(&table, argc, argv, path_of, &t, NULL, &e);
}

static void fails(const char *text, const char *after_path)
{
    CHECK_MSG(put(text, strlen(text), NULL) == -1, "%s", text);
    CHECK(!strncmp(e.text, path, strlen(path)));
    CHECK_STR(e.text + strlen(path), after_path);
}

#define PUT(text, extra) put(text, sizeof text - 1, extra)

static void test_read(void)
{
    CHECK(PUT("# a comment\nname = 'n'\nlimit = 9\nfast = true\nroot = ['/a', \"/b\"]\n", NULL) ==
          0);
    CHECK(t.limit == 9 && t.fast && t.root.n == 2 && !strcmp(t.root.text[1], "/b"));
    CHECK_STR(t.name, "n");
    CHECK(PUT("limit = 9\n", "--limit=2") == 0 && t.limit == 2);
    CHECK(PUT("", NULL) == 0 && t.limit == 5 && !t.fast && t.root.n == 0);
    CHECK(PUT("root = []\n", NULL) == 0 && t.root.n == 0);
}

static void test_refused(void)
{
    fails("limit = 9\nlimt = 3\n", ":2: unknown key limt: did you mean limit?");
    fails("\nlimit = 10\n", ":2: limit 10: want a number from 1 to 9");
    fails("limit = 1.5\n", ":1: limit: want a whole number");
    fails("limit = 2020-01-01\n", ":1: limit: want a whole number");
    fails("[limit]\nx = 1\n", ":1: limit: want a whole number");
    fails("name = 3\n", ":1: name: want a string");
    fails("name = \"a\\u0000b\"\n", ":1: the text has a NUL byte");
    fails("root = ['/a', 3]\n", ":1: root: want an array of strings");
    fails("root = [['/a']]\n", ":1: root: want an array of strings");
    fails("file = 'x'\n", ":1: file belongs to the command line");
    CHECK(PUT("limit = 1\nlimit = 2\n", NULL) == -1 && strstr(e.text, ":2: "));
    CHECK(PUT("limit = \n", NULL) == -1 && strstr(e.text, ":1: "));
    CHECK(PUT("limit = 99999999999999999999\n", NULL) == -1);
    CHECK(PUT("name = \"\xff\"\n", NULL) == -1);
    CHECK(PUT("\0\n", NULL) == -1);
}

static void test_refused_deep(void)
{
    static char deep[100000];
    memset(deep, '[', sizeof deep - 1);
    memcpy(deep, "root = ", 7);
    CHECK(put(deep, sizeof deep - 1, NULL) == -1 && *e.text);
    static char large[TOML_MAX_SIZE + 1];
    memset(large, '#', sizeof large);
    CHECK(put(large, sizeof large, NULL) == -1 && e.code == ERR_TOO_LARGE);
    unlink(path);
    char *argv[5];
    argv_of(NULL, argv);
    CHECK(settings_read(&table, 3, argv, path_of, &t, NULL, &e) == -1 && strstr(e.text, path));
}

static int again(const char *text, struct target *now)
{
    char *argv[5];
    argv_of(NULL, argv);
    CHECK(file_write(path, text, strlen(text), NULL) == 0);
    return settings_reload(&table, 3, argv, path_of, check, now, &e);
}

static void test_reload(void)
{
    CHECK(PUT("limit = 2\nname = 'old'\n", NULL) == 0);
    struct target now = t;
    CHECK(again("limit = 3\nname = 'new'\nfast = true\n", &now) == 2);
    CHECK(now.limit == 3 && now.fast && !strcmp(now.name, "old"));
    CHECK(again("limit = 4\nfast = oops\n", &now) == -1 && now.limit == 3);
    CHECK(again("limit = 8\n", &now) == -1 && now.limit == 3 && now.fast);
    CHECK(again("name = 'old'\n", &now) == 2 && now.limit == 5 && !now.fast);
    CHECK(again("name = 'old'\n", &now) == 0);
}

int main(void)
{
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    close(fd);
    RUN(test_read);
    RUN(test_refused);
    RUN(test_refused_deep);
    RUN(test_reload);
    unlink(path);
    return test_done("settings");
}
