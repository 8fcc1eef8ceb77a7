/* wrapper.h: models that read pictures around a model of text that is computed here (gemma3,
 * mistral3, qwen3_5, qwen3_5_moe). The text model's half of their directories is taken: the keys
 * of text_config, and the tensors below language_model. The other half passes through (worker/hf).
 * For the rows of the text models' families. */
#ifndef SEQD_FAMILY_WRAPPER_H
#define SEQD_FAMILY_WRAPPER_H

#include <stddef.h>

/* Beginnings of the names of the other half's tensors, NULL-terminated. */
extern const char *const wrapper_half[];
/* Renames the text model's tensors, as struct family_row.rename; other names stay. */
void wrapper_rename(const char *stored, char *name, size_t size);

#endif
