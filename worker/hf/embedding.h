/* embedding.h: reads how a published embedding model computes vectors from its hidden states.
 * The package sentence-transformers stores this in additional files of the model directory.
 * They are modules.json, the config.json of the module Pooling (in 1_Pooling), and
 * config_sentence_transformers.json with the prompts. tested: tests/engine/test_embed_files.c */
#ifndef SEQD_HF_EMBEDDING_H
#define SEQD_HF_EMBEDDING_H

#include "api/core/err.h"
#include "api/core/model_shape.h"

/* Fills m->pooling, m->normalizes, m->embed_module, m->prompted and m->prompt_apart. These members
 * must be 0 before the call. A member remains 0 if the directory does not state it. Fails with
 * ERR_INVALID if a file does not have the form that the package writes. Also fails with
 * ERR_TOO_LARGE or ERR_IO. */
int hf_embedding_read(const char *dir, struct model_shape *m, struct err *e);
/* Reads the prompt whose name is the parameter `name`. If name is "", reads the prompt that
 * default_prompt_name names. *text gets the prompt, which the caller frees. It is NULL if
 * there is no default prompt or if the prompt is empty. If no prompt has the name, fails with
 * ERR_INVALID and the field embed.prompt_name. If no prompt has the name in
 * default_prompt_name, fails with ERR_INVALID and the field model.path. Also fails with
 * ERR_TOO_LARGE or ERR_IO. */
int hf_embedding_prompt(const char *dir, const char *name, char **text, struct err *e);

#endif
