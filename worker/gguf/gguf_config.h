/* gguf_config.h: writes a config.json from the keys of a GGUF file. Used only inside
 * worker/gguf. */
#ifndef SEQD_GGUF_GGUF_CONFIG_H
#define SEQD_GGUF_GGUF_CONFIG_H

#include "api/core/jwrite.h"
#include "worker/gguf/gguf.h"

/* Writes the object of the config.json. Refuses a key of the architecture that gguf_config.c does
 * not know, because the key may change the computation. Fails with ERR_UNSUPPORTED or ERR_CORRUPT;
 * the error names the key. Also fails with ERR_IO. */
int gguf_config_write(const struct gguf *g, struct jwrite *w, struct err *e);

#endif
