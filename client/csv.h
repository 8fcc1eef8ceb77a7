/* csv.h: prints rows of JSON objects as CSV (RFC 4180). A nested member becomes a column that is
 * named by its path ("last_metrics.loss"). A list is one cell of JSON. */
#ifndef SEQD_CLIENT_CSV_H
#define SEQD_CLIENT_CSV_H

#include <stdio.h>
#include "client/json.h"

/* Prints rows, which is a list of objects, or one object. Every path of a row is a column; columns
 * are in the order in which they first occur. `clean` is set if the output is a terminal; control
 * characters other than LF and tab then become '?', and \xNN otherwise. A text that a spreadsheet
 * would take for a formula gets an apostrophe before it. */
void csv_print(FILE *out, const struct jv *rows, bool clean);

#endif
