/* embedding.h: reads how a published embedding model computes vectors from its states. The package
 * sentence-transformers writes this in files beside the model: modules.json, the config.json of
 * its Pooling (1_Pooling), and the prompts in config_sentence_transformers.json.
 * tested: tests/engine/test_embed_files.c */
#ifndef SEQD_HF_EMBEDDING_H
#define SEQD_HF_EMBEDDING_H

#include "api/core/err.h"
#include "api/core/model_shape.h"

/* Fills m->pooling, m->normalizes, m->embed_module, m->prompted and m->prompt_apart, which are 0
 * before the call and stay 0 if the directory does not state them. fails: ERR_INVALID for a file
 * that the package does not write; ERR_TOO_LARGE, ERR_IO. */
int hf_embedding_read(const char *dir, struct model_shape *m, struct err *e);
/* Reads the prompt `name`; "": the prompt of default_prompt_name. The caller frees *text; NULL: no
 * default, or an empty prompt. fails: ERR_INVALID, with field embed.prompt_name for an unknown
 * name, with field model.path for an unknown default; ERR_TOO_LARGE, ERR_IO. */
int hf_embedding_prompt(const char *dir, const char *name, char **text, struct err *e);

#endif
