/* model_file.h: reads the texts of a model by their names, either from a directory, or made from
 * the keys of a GGUF file.
 *
 * A model is a directory as transformers saves it, a GGUF file of any name (a link of the Hub's
 * cache leads to a file whose name does not end in .gguf), or a directory with exactly one file
 * *.gguf and no config.json. A GGUF file has config.json, tokenizer.json, tokenizer_config.json,
 * generation_config.json and chat_template.jinja, which are made from its keys at each reading;
 * other files are absent. A function that reads several of these texts keeps the header of the
 * file until it has read all of them.
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

/* Tells whether a name in a directory is that of a GGUF file. A name that an error cannot show is
 * that of none. */
bool model_file_is_gguf(const char *name);
/* Finds the GGUF file of a model. Returns 1 with its path; 0 if the model is a directory as
 * transformers saves it; or -1 with ERR_INVALID for a directory with several GGUF files, or with
 * ERR_TOO_LARGE. */
int model_file_gguf(const char *model, char path[FILE_PATH_SIZE], struct err *e);

/* Returns -1 if the path does not exist or may not be searched, and sets an error with the remedy.
 * Otherwise returns 0. */
int model_file_there(const char *model, struct err *e);
/* Sets the error for a directory without a config.json. If the directory has a GGUF file under
 * another name, the error names that file. Returns -1. */
int model_file_none(const char *model, struct err *e);

/* Keeps the header of a model that is a GGUF file (gguf_keep), so that its texts, its weights and
 * its faults are all read from one header. Returns NULL if the model is a directory of
 * transformers, or if gguf_keep returns NULL. */
struct gguf *model_file_keep(const char *model);
void model_file_leave(struct gguf *kept); /* accepts NULL */

struct model_text {
    char *text; /* owned, NUL-terminated; NULL if the model has no such text */
    size_t size;
    char path[FILE_PATH_SIZE]; /* path of the text, for errors */
};
/* Reads a text of at most max_size bytes. Fails as file_read and gguf_open do. For a GGUF file
 * whose keys do not give the text, fails with ERR_UNSUPPORTED or ERR_CORRUPT; the error names the
 * key. After a failure out has no text. */
int model_file_read(const char *model, const char *name, int64_t max_size, struct model_text *out,
                    struct err *e);
/* Tells whether model_file_read has failed for `model` because the keys of a GGUF file do not give
 * the text. A job that does not need the text continues after this error, as it does if such a
 * text in a directory has a fault. */
bool model_file_unmade(const char *model, const struct err *e);
void model_file_free(struct model_text *t);
/* Most ids that end a text, of a GGUF file or of a directory. */
#define MODEL_FILE_ENDS 16
/* Lists the names of a GGUF file's texts. Returns their number. */
#define MODEL_FILE_TEXTS 5
int model_file_list(const char *gguf, const char *names[MODEL_FILE_TEXTS], struct err *e);

#endif
