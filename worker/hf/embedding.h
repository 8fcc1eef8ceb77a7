/* embedding.h: reads how a published embedding model computes vectors from its states. The package
 * sentence-transformers stores this in files beside the model: modules.json, the config.json of
 * its Pooling (1_Pooling), and the prompts in config_sentence_transformers.json. tested:
 * tests/engine/test_embed_files.c */
#ifndef SEQD_HF_EMBEDDING_H
#define SEQD_HF_EMBEDDING_H

#include "api/core/err.h"
#include "api/core/model_shape.h"

/* Fills m->pooling, m->normalizes, m->embed_module, m->prompted and m->prompt_apart. These members
 * must be 0 before the call. A member remains 0 if the directory does not state it. Fails with
 * ERR_INVALID if a file is not one that the package writes, or with ERR_TOO_LARGE or ERR_IO. */
int hf_embedding_read(const char *dir, struct model_shape *m, struct err *e);
/* Reads the prompt `name`, or, if name is "", the prompt of default_prompt_name. The caller frees
 * *text, which is NULL if there is no default or if the prompt is empty. Fails with ERR_INVALID
 * and the field embed.prompt_name if no prompt has the name, or with ERR_INVALID and the field
 * model.path if there is no prompt of the name in default_prompt_name. Also fails with
 * ERR_TOO_LARGE or ERR_IO. */
int hf_embedding_prompt(const char *dir, const char *name, char **text, struct err *e);

#endif
