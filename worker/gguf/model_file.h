/* model_file.h: reads the texts of a model by their names. The texts are files of a directory, or
 * are made from the keys of a GGUF file.
 *
 * A model can have three forms. It can be a directory as transformers saves it. It can be a
 * GGUF file with any name, because a link of the Hub's cache leads to a file whose name does not
 * end in .gguf. It can be a directory with exactly one file *.gguf and no config.json. From a
 * GGUF file, five texts can be read: config.json, tokenizer.json, tokenizer_config.json,
 * generation_config.json and chat_template.jinja. These texts are made from the keys of the file
 * each time they are read. For a GGUF file no other texts exist. A function that reads several of
 * these texts keeps the header of the file until it has read all of them.
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
/* Finds the GGUF file of a model. If the model is a GGUF file, returns 1 and writes the path
 * of the file to `path`. Returns 0 if the model is a directory as transformers saves it.
 * Returns -1 with ERR_INVALID if a directory has several GGUF files, or with ERR_TOO_LARGE. */
int model_file_gguf(const char *model, char path[FILE_PATH_SIZE], struct err *e);

/* Returns 0 if the path exists and may be searched. Otherwise sets an error with the remedy, and
 * returns -1. */
int model_file_there(const char *model, struct err *e);
/* Tells whether a directory is an adapter's as peft saves it, and has no config.json. */
bool model_file_is_adapter(const char *dir);
/* Sets the error for a directory without a config.json. If the directory is an adapter's, the error
 * says how to name it. If it has a GGUF file whose name does not end in .gguf, the error names this
 * file. Returns -1. */
int model_file_none(const char *model, struct err *e);

/* Keeps the header of a model that is a GGUF file (gguf_keep). As long as the header is kept,
 * the model's texts, weights and faults are read from this one header. Returns NULL if the
 * model is a directory of transformers, or if gguf_keep returns NULL. */
struct gguf *model_file_keep(const char *model);
void model_file_leave(struct gguf *kept); /* accepts NULL */

struct model_text {
    char *text; /* owned, NUL-terminated; NULL if the model has no such text */
    size_t size;
    char path[FILE_PATH_SIZE]; /* path of the text, for errors */
};
/* Reads a text of at most max_size bytes. Fails as file_read and gguf_open do. If the text
 * cannot be made from the keys of a GGUF file, fails with ERR_UNSUPPORTED or ERR_CORRUPT; the
 * error names the key. After a failure out has no text. */
int model_file_read(const char *model, const char *name, int64_t max_size, struct model_text *out,
                    struct err *e);
/* Returns true if model_file_read has failed for `model` because the text cannot be made from
 * the keys of a GGUF file. A job that does not need the text continues after this error, just
 * as it continues if a text in a directory has a fault and the job does not need that text. */
bool model_file_unmade(const char *model, const struct err *e);
void model_file_free(struct model_text *t);
/* Largest number of ids that end a text. The limit is the same for GGUF files and for
 * directories. */
#define MODEL_FILE_ENDS 16
/* Lists the names of the texts of a GGUF file. Returns the number of names. */
#define MODEL_FILE_TEXTS 5
int model_file_list(const char *gguf, const char *names[MODEL_FILE_TEXTS], struct err *e);

#endif
