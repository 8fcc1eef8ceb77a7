/* text.h: makes strings for people. It removes control characters, and writes sizes, durations and
 * tables. A function that returns char * writes into the caller's buffer and returns it, so that
 * it can be used as an argument of printf. */
#ifndef SEQD_CLIENT_TEXT_H
#define SEQD_CLIENT_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define TEXT_SHORT 48

/* Copies s, and replaces control characters (C0, DEL, C1), bidirectional overrides, U+2028,
 * U+2029, U+FEFF and bytes that are not UTF-8 by '?'. `keep` lists the characters of C0 that are
 * not replaced, such as "\n\t". The result always ends with NUL. */
char *text_clean(char *out, size_t size, const char *s, size_t len, const char *keep);
/* Cleans a whole NUL-terminated string as text_clean does. All characters of C0 are replaced. */
char *text_safe(char *out, size_t size, const char *s);
/* returns the number of columns on a terminal; a wide letter takes two, a mark takes none */
int text_width(const char *s);
/* Returns how many bytes of s fit into `columns`. Never splits a code point. */
size_t text_cut(const char *s, int columns);

char *text_bytes(char out[TEXT_SHORT], int64_t n);   /* "213.4 MiB" */
char *text_count(char out[TEXT_SHORT], double n);    /* "8,123" */
char *text_duration(char out[TEXT_SHORT], double s); /* "1m 30s" */

/* A table whose columns are as wide as their widest cell. */
#define TABLE_COLUMNS 15
struct table {
    int n_columns;
    const char *head[TABLE_COLUMNS];
    char **cell;
    size_t n_cells, room;
    /* columns, color_column and color are for a terminal, and are set after text_table_init. */
    int columns; /* width to which lines are shortened; 0 means that they are not shortened */
    int color_column;
    /* returns a colour's escape or NULL for a cell; if color is NULL, no cell has a colour */
    const char *(*color)(const char *cell);
};
void text_table_init(struct table *t, const char *const *head); /* NULL-terminated */
/* adds the next cell, which is copied and cleaned */
void text_table_add(struct table *t, const char *s);
void text_table_print(struct table *t, FILE *out); /* prints and frees */

#endif
