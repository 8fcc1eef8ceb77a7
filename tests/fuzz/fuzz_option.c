/* sources: api/core/option.c api/core/nearest.c api/core/err.c
 * Sets a key of a configuration file and an argument of a command line to any text, for targets of
 * any size. An accepted value must be within the range of its row. Every text must end within its
 * target. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/option.h"

struct target {
    bool flag;
    char word[9];
    int64_t number;
    struct option_list list;
};

#define AT(field) OPTION_TARGET(struct target, field)

static const struct option_entry rows[] = {
    {"flag", OPTION_FLAG, OPTION_RESTART, NULL, NULL, 0, 0, AT(flag), NULL, ""},
    {"word", OPTION_TEXT, OPTION_RESTART, "W", NULL, 0, 0, AT(word), NULL, ""},
    {"number", OPTION_NUMBER, OPTION_RESTART, "N", NULL, -5, 5, AT(number), NULL, ""},
    {"list", OPTION_TEXTS, OPTION_RESTART, "W", NULL, 0, 0, AT(list), NULL, ""},
};
static const struct option_table table = {"p", "", "", rows, 4, sizeof(struct target)};

static void check(const struct target *t)
{
    if (t->number < -5 || t->number > 5 || t->list.n < 0 || t->list.n > OPTION_LIST) abort();
    if (!memchr(t->word, 0, sizeof t->word)) abort();
    for (int i = 0; i < t->list.n; i++)
        if (!memchr(t->list.text[i], 0, OPTION_TEXT_SIZE)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct target t;
    struct option_sources from;
    struct err e;
    char text[4097], *argv[3] = {"p", text, NULL};
    if (size < 4 || size > 4096) return 0;
    memcpy(text, data + 3, size - 3);
    text[size - 3] = 0;
    option_defaults(&table, &t, &from);
    if (!option_line(&table, 2, argv, &t, &from, &e)) check(&t);
    const struct option_value v = {data[1] % 4, text, (int8_t)data[2], data[0] % 12 - 1,
                                   data[0] % 7};
    const char *key = data[0] & 128 ? text : rows[data[0] / 16 % 4].name;
    for (int i = 0; i < 12; i++)
        if (!option_key(&table, key, &v, &t, &from, &e)) check(&t);
    return 0;
}
