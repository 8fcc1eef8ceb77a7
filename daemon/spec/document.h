/* document.h: loads JSON text into Jansson's documents, within bounds. Only this folder includes
 * it. */
#ifndef SEQD_DAEMON_SPEC_DOCUMENT_H
#define SEQD_DAEMON_SPEC_DOCUMENT_H

#include <jansson.h>
#include <stddef.h>
#include "api/core/err.h"

/* Reads a text that is one JSON object with at most JSON_DEPTH levels and no duplicate keys. The
 * caller frees the object with json_decref. Fails with ERR_INVALID, and returns NULL then. */
json_t *document_load(const char *text, size_t size, struct err *e);

#endif
