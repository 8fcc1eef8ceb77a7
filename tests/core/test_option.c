/* test_option: tests a table of options. The options are read from the command line, and from a
 * file whose keys name them. The file is read again after it has changed. */
#include "tests/lib/test.h"

#include "api/core/option.h"

struct target {
    bool flag, help;
    char word[16], level[8];
    int64_t number;
    struct option_list list;
};

#define AT(field) OPTION_TARGET(struct target, field)

static const char *const levels[] = {"low", "high", NULL};
static const struct option_entry rows[] = {
    {"flag", OPTION_FLAG, OPTION_RESTART, NULL, NULL, 0, 0, AT(flag), NULL, "A flag."},
    {"word", OPTION_TEXT, OPTION_RESTART, "TEXT", "none", 0, 0, AT(word), NULL, "A word."},
    {"level", OPTION_TEXT, OPTION_RELOADS, "LEVEL", NULL, 0, 0, AT(level), levels, "Low or high."},
    {"number", OPTION_NUMBER, OPTION_RELOADS, "N", "7", -3, 9, AT(number), NULL, "A number."},
    {"list", OPTION_TEXTS, OPTION_RESTART, "TEXT", NULL, 0, 0, AT(list), NULL, "Words."},
    {"help", OPTION_ANSWER, OPTION_COMMAND, NULL, NULL, 0, 0, AT(help), NULL, "This."},
};
static const struct option_table table = {
    "prog", "before\n", "after\n", rows, sizeof rows / sizeof *rows, sizeof(struct target)};

static struct target t;
static struct option_sources from;
static struct err e;

static int line(char *a, char *b)
{
    char *argv[] = {"prog", a, b, NULL};
    option_defaults(&table, &t, &from);
    memset(&e, 0, sizeof e);
    return option_line(&table, !a ? 1 : b ? 3 : 2, argv, &t, &from, &e);
}

static void line_fails(char *a, char *b, const char *why)
{
    CHECK(line(a, b) == -1);
    CHECK_STR(e.text, why);
}

static int key(const char *name, enum option_kind kind, const char *text, int64_t number, int index,
               int n)
{
    const struct option_value v = {kind, text, number, index, n};
    return option_key(&table, name, &v, &t, &from, &e);
}

static void test_line(void)
{
    CHECK(line(NULL, NULL) == 0 && !t.flag && t.number == 7 && t.list.n == 0);
    CHECK_STR(t.word, "none");
    CHECK(line("--flag", "--number=-3") == 0 && t.flag && t.number == -3);
    CHECK(line("--list=a", "--list=b") == 0 && t.list.n == 2 && !strcmp(t.list.text[1], "b"));
    CHECK(line("--word", "abc") == 0 && !strcmp(t.word, "abc"));
    line_fails("--number", "10", "--number 10: want a number from -3 to 9");
    line_fails("--number", "2x", "--number 2x: want a number from -3 to 9");
    line_fails("--number", "", "--number : want a number from -3 to 9");
    line_fails("--number", NULL, "--number needs a value: see prog --help");
    line_fails("--level", "loud", "--level loud: want one of low, high");
    line_fails("--word", "sixteen letters.", "--word sixteen letters.... is longer than 15 bytes");
    line_fails("--wrod=x", NULL, "unknown option --wrod: did you mean --word? See prog --help");
    line_fails("--nothing-like-it", NULL, "unknown option --nothing-like-it: see prog --help");
    line_fails("--flag", "word", "word is not an option: see prog --help");
}

static void test_line_limits(void)
{
    char *argv[OPTION_LIST + 3] = {"prog"};
    for (int i = 0; i <= OPTION_LIST; i++) argv[i + 1] = "--list=x";
    option_defaults(&table, &t, &from);
    CHECK(option_line(&table, OPTION_LIST + 2, argv, &t, &from, &e) == -1);
    CHECK_STR(e.text, "--list may be given 8 times: leave some out");
}

static void test_key(void)
{
    line("--word", "mine");
    /* the value of the command line is kept */
    CHECK(key("word", OPTION_IS_TEXT, "theirs", 0, -1, 0) == 0);
    CHECK_STR(t.word, "mine");
    /* the file must be correct as well */
    CHECK(key("word", OPTION_IS_NUMBER, "", 3, -1, 0) == -1);
    CHECK_STR(e.text, "word: want a string");
    CHECK(key("number", OPTION_IS_NUMBER, "", 9, -1, 0) == 0 && t.number == 9);
    CHECK(key("number", OPTION_IS_NUMBER, "", 10, -1, 0) == -1 && t.number == 9);
    CHECK_STR(e.text, "number 10: want a number from -3 to 9");
    CHECK(key("number", OPTION_IS_TEXT, "9", 0, -1, 0) == -1);
    CHECK_STR(e.text, "number: want a whole number");
    CHECK(key("flag", OPTION_IS_BOOL, "", 1, -1, 0) == 0 && t.flag);
    CHECK(key("flag", OPTION_IS_BOOL, "", 0, -1, 0) == 0 && !t.flag);
    CHECK(key("flag", OPTION_IS_NUMBER, "", 1, -1, 0) == -1);
    CHECK(key("level", OPTION_IS_TEXT, "high", 0, -1, 0) == 0 && !strcmp(t.level, "high"));
    CHECK(key("level", OPTION_IS_TEXT, "high", 0, 0, 1) == -1); /* an array */
    CHECK(key("help", OPTION_IS_BOOL, "", 1, -1, 0) == -1);
    CHECK_STR(e.text, "help belongs to the command line");
    CHECK(key("nubmer", OPTION_IS_NUMBER, "", 1, -1, 0) == -1);
    CHECK_STR(e.text, "unknown key nubmer: did you mean number?");
    /* the error must not suggest an option that is not allowed in a file */
    CHECK(key("hepl", OPTION_IS_NUMBER, "", 1, -1, 0) == -1);
    CHECK_STR(e.text, "unknown key hepl: the keys are the options of prog --help");
}

static void test_key_list(void)
{
    line(NULL, NULL);
    CHECK(key("list", OPTION_IS_TEXT, "a", 0, 0, 2) == 0 &&
          key("list", OPTION_IS_TEXT, "b", 0, 1, 2) == 0);
    CHECK(t.list.n == 2 && !strcmp(t.list.text[0], "a"));
    CHECK(key("list", OPTION_IS_TEXT, "c", 0, 0, 1) == 0 && t.list.n == 1);
    CHECK(key("list", OPTION_IS_OTHER, "", 0, 0, 0) == 0 && t.list.n == 0);
    CHECK(key("list", OPTION_IS_TEXT, "a", 0, -1, 0) == -1);
    CHECK_STR(e.text, "list: want an array of strings");
    CHECK(key("list", OPTION_IS_NUMBER, "", 3, 0, 1) == -1);
    line("--list=mine", NULL);
    CHECK(key("list", OPTION_IS_TEXT, "a", 0, 0, 1) == 0 && t.list.n == 1);
    CHECK_STR(t.list.text[0], "mine");
}

static int n_taken, n_restart;
static void count(void *arg, const struct option_entry *row, bool taken)
{
    if (taken)
        n_taken++;
    else
        n_restart++;
}

static void test_adopt(void)
{
    line("--word", "old");
    struct target now = t;
    line("--word", "new");
    t.number = 2;
    CHECK(option_adopt(&table, &now, &t, count, NULL) == 1 && n_taken == 1 && n_restart == 1);
    CHECK(now.number == 2);
    CHECK_STR(now.word, "old");
    n_taken = n_restart = 0;
    line("--word", "old");
    CHECK(option_adopt(&table, &t, &t, count, NULL) == 0 && n_taken + n_restart == 0);
}

static void test_help(void)
{
    char text[4096] = "";
    FILE *f = fmemopen(text, sizeof text, "w");
    option_help(&table, f);
    fclose(f);
    CHECK(strstr(text, "before\n  --flag") == text && strstr(text, "after\n"));
    CHECK(strstr(text, "  --word TEXT             A word. (default none)\n"));
    CHECK(strstr(text, "  --level LEVEL           Low or high. [SIGHUP]\n"));
    for (const char *p = text, *end; (end = strchr(p, '\n')); p = end + 1) CHECK(end - p <= 100);
    for (int i = 0; i < table.n_rows; i++) CHECK(strstr(text, rows[i].name));
}

int main(void)
{
    RUN(test_line);
    RUN(test_line_limits);
    RUN(test_key);
    RUN(test_key_list);
    RUN(test_adopt);
    RUN(test_help);
    return test_done("option");
}
