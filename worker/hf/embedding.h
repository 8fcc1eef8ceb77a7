/* embedding.h: how the vectors of a published embedding model come of its states, as the package
 * sentence-transformers keeps it beside the model: modules.json, the config.json of its Pooling
 * (1_Pooling), and prompts of config_sentence_transformers.json.
 * tested: tests/engine/test_embed_files.c */
#ifndef SEQD_HF_EMBEDDING_H
#define SEQD_HF_EMBEDDING_H

#include "api/core/err.h"
#include "api/core/model_shape.h"

/* Into m->pooling, m->normalizes, m->embed_module and m->prompted; 0 where the directory says
 * nothing of them. fails: ERR_INVALID for a file that is not what it must be. */
int hf_embedding_read(const char *dir, struct model_shape *m, struct err *e);

#endif
