/* gguf_config.h: writes the config.json that the keys of a GGUF file stand for. Inside
 * worker/gguf. */
#ifndef SEQD_GGUF_GGUF_CONFIG_H
#define SEQD_GGUF_GGUF_CONFIG_H

#include "api/core/jwrite.h"
#include "worker/gguf/gguf.h"

/* Writes the object. A key of the architecture that changes the computation, and that this file
 * does not know, is refused. fails: ERR_UNSUPPORTED, ERR_CORRUPT naming the key; ERR_IO. */
int gguf_config_write(const struct gguf *g, struct jwrite *w, struct err *e);

#endif
