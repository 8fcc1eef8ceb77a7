/* files.h: copies those files of a model directory that are not weights, such as the tokenizer,
 * the chat template, generation_config.json, code and a licence. These files are copied
 * unchanged.
 *
 * A regular file of the top level is copied if it has at most HF_FILE_SIZE bytes and a good
 * name. A good name consists of printable ASCII characters, does not contain "..", and is
 * shorter than HF_FILE_NAME. Weights in any format and their indexes are not copied. At most
 * HF_FILES - 3 files are copied, because the byte tokenizer may add three files. Links are not
 * followed. config.json is left out, because hf_config_write makes a new config.json from it.
 * tested: tests/engine/test_model_files.c */
#ifndef SEQD_HF_FILES_H
#define SEQD_HF_FILES_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/err.h"

#define HF_FILES     96 /* largest number of files of one directory */
#define HF_FILE_NAME 96 /* largest size of a name in bytes, including its NUL */
#define HF_FILE_SIZE ((int64_t)64 << 20)

/* The names of the files to copy, in ascending order, and a text that lists the files that are
 * not copied. */
struct hf_files {
    int n, n_left;
    char name[HF_FILES][HF_FILE_NAME];
    char left[256]; /* the first few files that were left out, such as "a.json (a link), b.bin2
                     * (over 64 MiB)" */
};

/* Lists the files to copy. Fails with ERR_IO or ERR_NOT_FOUND; the error names dir. */
int hf_list_files(const char *dir, struct hf_files *out, struct err *e);
/* hf_take_files copies the files that hf_list_files finds in `from` to the directory `to`, and
 * fsyncs them. If `to` is missing, it is made. */
struct hf_take {
    const char *from, *to;
    bool tokenizer;           /* whether the files of the tokenizer (hf_is_tokenizer) are
                               * copied, too */
    void (*still)(void *arg); /* called during long copies; may be NULL */
    void *arg;
};
int hf_take_files(const struct hf_take *t, struct hf_files *taken, struct err *e);

/* Returns true if the meaning of ids depends on the file with this name. This is the case for
 * the files of the tokenizer, of special tokens and of the chat template, and of
 * generation_config.json. */
bool hf_is_tokenizer(const char *name);
/* Reads eos_token_id, which is a number or a list, from generation_config.json in dir. If that
 * file has no eos_token_id, reads it from config.json. If neither file has it, *out is empty.
 * *out is also empty if these texts cannot be made from the keys of a GGUF file. This function
 * does not fail in that case, because a job that reads ids needs no tokenizer. For a job that
 * reads text, tokenizer_open reports the reason. Fails with ERR_INVALID, and with
 * ERR_TOO_LARGE for more than TOKEN_ENDS ids. Also fails as model_file_read does. */
struct token_ends;
int hf_read_ends(const char *dir, struct token_ends *out, struct err *e);
/* Does the same as hf_read_ends, but fails if the keys of a GGUF file do not contain the texts
 * of generation_config.json and config.json. */
int hf_check_ends(const char *dir, struct token_ends *out, struct err *e);
/* Sets the error for ends->id[i], which is not an id of the model's vocabulary. The error
 * names the file to mend. Returns -1. */
int hf_unknown_end(const struct token_ends *ends, int i, int64_t vocab, struct err *e);
/* Returns pad_token_id of config.json in dir, or -1 if the file has no valid id under this key. */
int32_t hf_read_pad(const char *dir);
/* Finds the kind of tokenizer of a directory (enum tokenizer_id). The kind is BYTE if
 * tokenizer.json is equal to the tokenizer.json that seqd writes for the byte tokenizer. */
int hf_tokenizer_of(const char *dir, int32_t *out, struct err *e);

#endif
