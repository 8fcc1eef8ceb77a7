/* config.h: reads config.json, as the Python package transformers writes it, into a model's sizes. */
#ifndef SEQD_FAMILY_CONFIG_H
#define SEQD_FAMILY_CONFIG_H

#include <stddef.h>
#include "api/core/err.h"
#include "api/core/job.h"

/* Reads the text of a config.json. path is for the sentence only. fails: ERR_INVALID (missing or
 * malformed key), ERR_UNSUPPORTED (a key asks for what we do not compute); both name the key. */
int hf_config_parse(const char *text, size_t size, const char *path, struct model_shape *m,
                    struct err *e);
/* DIR/config.json. */
int hf_config_read(const char *dir, struct model_shape *m, struct err *e);
/* As it stands, from directory to directory. */
int hf_config_copy(const char *from, const char *to, struct err *e);

#endif
