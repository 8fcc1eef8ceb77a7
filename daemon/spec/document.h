/* document.h: JSON text to Jansson's documents, within bounds. Private to this folder. */
#ifndef SEQD_DAEMON_SPEC_DOCUMENT_H
#define SEQD_DAEMON_SPEC_DOCUMENT_H

#include <jansson.h>
#include <stddef.h>
#include "api/core/err.h"

/* Reads a text that is one JSON object, of at most JSON_DEPTH levels and without a key twice. The
 * caller frees the object with json_decref. Returns NULL with *e on failure. fails:
 * ERR_INVALID. */
json_t *document_load(const char *text, size_t size, struct err *e);

#endif
