/* csv.h: rows of JSON objects as RFC 4180. A nested member is a column named by its path
 * ("last_metrics.loss"); a list is one cell of JSON. */
#ifndef SEQD_CLIENT_CSV_H
#define SEQD_CLIENT_CSV_H

#include <stdio.h>
#include "client/json.h"

/* Prints rows: a list of objects, or one object. The columns are those of all rows, in the order
 * in which they occur. clean: control characters but LF and tab become '?', for a terminal. */
void csv_print(FILE *out, const struct jv *rows, bool clean);

#endif
