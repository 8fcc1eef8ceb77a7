/* gguf_config.h: writes the config.json to which the keys of a GGUF file correspond. Used only
 * inside worker/gguf. */
#ifndef SEQD_GGUF_GGUF_CONFIG_H
#define SEQD_GGUF_GGUF_CONFIG_H

#include "api/core/jwrite.h"
#include "worker/gguf/gguf.h"

/* Writes the object. A key of the architecture that gguf_config.c does not know is refused,
 * because it may change the computation. Fails with ERR_UNSUPPORTED or ERR_CORRUPT, which name the
 * key, or with ERR_IO. */
int gguf_config_write(const struct gguf *g, struct jwrite *w, struct err *e);

#endif
