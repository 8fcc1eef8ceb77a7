/* text.h: strings for people: without control characters; sizes, durations, tables.
 * A function that returns char * writes into the caller's buffer and returns it, so that it nests
 * in printf. */
#ifndef SEQD_CLIENT_TEXT_H
#define SEQD_CLIENT_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define TEXT_SHORT 48

/* Copies s without control characters (C0, DEL, C1), bidirectional overrides, U+2028, U+2029,
 * U+FEFF and bytes that are not UTF-8; each becomes '?'. keep: characters of C0 to leave alone
 * ("\n\t"). Always terminated. */
char *text_clean(char *out, size_t size, const char *s, size_t len, const char *keep);
/* Cleans a whole NUL-terminated string as text_clean does, and keeps no character of C0. */
char *text_safe(char *out, size_t size, const char *s);
int text_width(const char *s); /* columns of a terminal: wide letters have two, marks none */
/* Returns the bytes of s that fill at most `columns`. Never cuts a code point. */
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
    /* columns, color_column and color serve a terminal: set them after text_table_init. */
    int columns; /* width at which lines are cut; 0: never */
    int color_column;
    const char *(*color)(const char *cell); /* returns an escape or NULL; color NULL: no colours */
};
void text_table_init(struct table *t, const char *const *head); /* NULL-terminated */
void text_table_add(struct table *t, const char *s); /* adds the next cell, copied and cleaned */
void text_table_print(struct table *t, FILE *out);   /* prints and frees */

#endif
