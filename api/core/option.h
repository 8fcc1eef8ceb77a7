/* option.h: the options of a program in one table. The command line, --help, the configuration
 * file and SIGHUP all use this table.
 *
 * A row stands for an option "--name VALUE" and for a key `name = value` of the file. Values are
 * stored in a struct of the program. If both the command line and the file give a value, the
 * command line's is used. */
#ifndef SEQD_CORE_OPTION_H
#define SEQD_CORE_OPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "api/core/err.h"

#define OPTION_ROWS      64   /* largest number of rows of one table */
#define OPTION_LIST      8    /* largest number of values of one list */
#define OPTION_TEXT_SIZE 1024 /* largest number of bytes of one value of a list */

struct option_list {
    int n;
    char text[OPTION_LIST][OPTION_TEXT_SIZE];
};

enum option_type {
    OPTION_FLAG,   /* bool: tells whether the option is given */
    OPTION_TEXT,   /* char[size] */
    OPTION_NUMBER, /* int64_t from min to max */
    OPTION_TEXTS,  /* struct option_list: the option may be repeated; the file has an array */
    OPTION_ANSWER, /* a bool for --help and --version; the file has no such key */
};

enum option_reload {
    OPTION_RESTART, /* a change needs a restart */
    OPTION_RELOADS, /* SIGHUP changes it */
    OPTION_COMMAND, /* only on the command line; the file has no such key */
};

struct option_entry {
    const char *name;
    enum option_type type;
    enum option_reload reload;
    const char *value;        /* name of the value in --help; NULL if the option has no value. A
                               * name in brackets, as "[=NAME]", is of a value that may be left out,
                               * and is the text "" then */
    const char *otherwise;    /* the default, as --help shows it. NULL if it is empty or 0, or if
                               * the text of `help` states it */
    int64_t min, max;         /* range of a number */
    size_t offset, size;      /* place in the target */
    const char *const *words; /* the allowed texts; NULL allows every text */
    const char *help;         /* sentences, without the default */
};

#define OPTION_TARGET(type, field) offsetof(type, field), sizeof(((type *)0)->field)

struct option_table {
    const char *program;       /* "seqd" */
    const char *usage, *notes; /* lines of --help before and after the rows */
    const struct option_entry *rows;
    int n_rows;
    size_t size; /* bytes of the struct in which the values are stored */
};

/* The source of each row's value. */
enum option_source { OPTION_DEFAULT, OPTION_FILE, OPTION_LINE };
struct option_sources {
    unsigned char of[OPTION_ROWS];
};

/* A value read from the file. */
enum option_kind { OPTION_IS_TEXT, OPTION_IS_NUMBER, OPTION_IS_BOOL, OPTION_IS_OTHER };
struct option_value {
    enum option_kind kind;
    const char *text; /* the text; "" for other kinds */
    int64_t number;   /* the number; 0 or 1 for a bool */
    int index, n;     /* index of the value in an array of n values. index is -1 if the value is
                       * not in an array. For an empty array, index and n are 0 */
};

/* Zeroes the target and sets the defaults. */
void option_defaults(const struct option_table *t, void *target, struct option_sources *from);
/* Reads the command line. Returns 0 if the program should continue, and 1 if --help was printed or
 * an OPTION_ANSWER was set in the target. Returns -1 if the command line is wrong. */
int option_line(const struct option_table *t, int argc, char **argv, void *target,
                struct option_sources *from, struct err *e);
/* Tells whether the command line or the file gave the option of this name. */
bool option_given(const struct option_table *t, const struct option_sources *from,
                  const char *name);
/* Stores one key of the file. If the command line gave the option, the value is only checked. An
 * unknown key is an error, which names a similar key if there is one. Fails with ERR_INVALID. */
int option_key(const struct option_table *t, const char *key, const struct option_value *v,
               void *target, struct option_sources *from, struct err *e);
void option_help(const struct option_table *t, FILE *out);

/* Compares the options that were read at SIGHUP with `now`. Calls `call` for every row whose value
 * differs. If the row can be reloaded, copies its new value into `now`. Returns the number of
 * copied values. */
typedef void option_changed(void *arg, const struct option_entry *row, bool taken);
int option_adopt(const struct option_table *t, void *now, const void *fresh, option_changed *call,
                 void *arg);

#endif
