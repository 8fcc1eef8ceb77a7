/* model_file.h: reads the texts of a model by their names: from a directory, or made from the keys
 * of a GGUF file.
 *
 * A model is a directory as transformers saves it, a GGUF file of any name (a link of the Hub's
 * cache leads to one without an end), or a directory with exactly one file *.gguf and no
 * config.json. A GGUF file has config.json,
 * tokenizer.json, tokenizer_config.json, generation_config.json and chat_template.jinja, made
 * again from its keys at each reading; its other files are absent. Functions that read several of
 * them keep its header meanwhile.
 *
 * tested: tests/engine/test_gguf.c */
#ifndef SEQD_GGUF_MODEL_FILE_H
#define SEQD_GGUF_MODEL_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/file.h"

struct gguf;

/* Tells whether a name in a directory is that of a GGUF file. */
bool model_file_is_gguf(const char *name);
/* Finds the GGUF file of a model. Returns 1 with its path; 0 if the model is a directory as
 * transformers saves it; -1 with ERR_INVALID for a directory with several GGUF files, or
 * ERR_TOO_LARGE. */
int model_file_gguf(const char *model, char path[FILE_PATH_SIZE], struct err *e);

/* Refuses a path that is not there or may not be searched, with the fix. Returns 0 or -1. */
int model_file_there(const char *model, struct err *e);
/* Fails for a directory without a config.json: names a GGUF file of another name that it has.
 * Returns -1. */
int model_file_none(const char *model, struct err *e);

/* Keeps the header of a model that is a GGUF file (gguf_keep): its texts, its weights and its
 * faults are then read from one header. NULL: a directory of transformers, or as gguf_keep. */
struct gguf *model_file_keep(const char *model);
void model_file_leave(struct gguf *kept); /* NULL allowed */

struct model_text {
    char *text; /* owned, NUL-terminated; NULL: the model has no such text */
    size_t size;
    char path[FILE_PATH_SIZE]; /* path of the text, for errors */
};
/* Reads a text of at most max_size bytes. fails: as file_read and gguf_open; ERR_UNSUPPORTED and
 * ERR_CORRUPT naming a key of a GGUF file that does not fit. After a failure out has no text. */
int model_file_read(const char *model, const char *name, int64_t max_size, struct model_text *out,
                    struct err *e);
/* Tells whether the error of model_file_read for `model` is that a GGUF file's keys do not make the
 * text. Jobs that need no such text continue, as beside a text of a directory that has a fault. */
bool model_file_unmade(const char *model, const struct err *e);
void model_file_free(struct model_text *t);
/* Most ids that end a text, of a GGUF file or of a directory. */
#define MODEL_FILE_ENDS 16
/* Lists the names of a GGUF file's texts. Returns their number. */
#define MODEL_FILE_TEXTS 5
int model_file_list(const char *gguf, const char *names[MODEL_FILE_TEXTS], struct err *e);

#endif
