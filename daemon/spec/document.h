/* document.h: JSON text to Jansson's documents, within bounds. Private to this folder. */
#ifndef SEQD_DAEMON_SPEC_DOCUMENT_H
#define SEQD_DAEMON_SPEC_DOCUMENT_H

#include <jansson.h>
#include <stddef.h>
#include "api/core/err.h"

/* Reads the object that the text is: at most JSON_DEPTH levels, no key twice. The caller gives it
 * to json_decref. NULL with *e. fails: ERR_INVALID. */
json_t *document_load(const char *text, size_t size, struct err *e);

#endif
