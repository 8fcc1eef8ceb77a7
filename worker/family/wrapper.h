/* wrapper.h: models that read pictures and contain a text model (gemma3, mistral3, qwen3_5,
 * qwen3_5_moe). Only the text model is computed. It has its own part of the directory: the keys of
 * text_config, and the tensors whose names begin with language_model. The rest of the directory is
 * copied (worker/hf). The rows of the text models' families use these functions. */
#ifndef SEQD_FAMILY_WRAPPER_H
#define SEQD_FAMILY_WRAPPER_H

#include <stddef.h>

/* Prefixes of the names of tensors of the other part, NULL-terminated. */
extern const char *const wrapper_half[];
/* Renames the text model's tensors, for family_row.rename. Other names are not changed. */
void wrapper_rename(const char *stored, char *name, size_t size);

#endif
