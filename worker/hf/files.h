/* files.h: the files of a model directory beside its weights: tokenizer, chat template,
 * generation_config.json, code, a licence. They are copied unchanged.
 *
 * A regular file of the top level is copied if it has at most HF_FILE_SIZE bytes and a name of
 * printable ASCII without "..", shorter than HF_FILE_NAME. Weights in any format and their indexes
 * are not copied. At most HF_FILES - 3 files are copied, because the byte tokenizer may add three.
 * Links are not followed. config.json is left out, because hf_config_write makes a new one from
 * it. tested: tests/engine/test_model_files.c */
#ifndef SEQD_HF_FILES_H
#define SEQD_HF_FILES_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/err.h"

#define HF_FILES     96 /* most files of one directory */
#define HF_FILE_NAME 96 /* bytes of a name, including its NUL */
#define HF_FILE_SIZE ((int64_t)64 << 20)

/* The names in ascending order, and a text that lists files that were left out. */
struct hf_files {
    int n, n_left;
    char name[HF_FILES][HF_FILE_NAME];
    char left[256]; /* the first few files that were left out: "a.json (a link), b.bin2 (over 64
                     * MiB)" */
};

/* Lists the files to copy. Fails with ERR_IO or ERR_NOT_FOUND, which name dir. */
int hf_list_files(const char *dir, struct hf_files *out, struct err *e);
/* hf_take_files copies the files that hf_list_files finds in `from` to `to`, which is made if it
 * is missing, and fsyncs them. */
struct hf_take {
    const char *from, *to;
    bool tokenizer;           /* whether the tokenizer's files are copied as well
                               * (hf_is_tokenizer) */
    void (*still)(void *arg); /* called during long copies; may be NULL */
    void *arg;
};
int hf_take_files(const struct hf_take *t, struct hf_files *taken, struct err *e);

/* Tells whether the meaning of ids depends on the file, which is true of the tokenizer, special
 * tokens, chat template and generation_config.json. */
bool hf_is_tokenizer(const char *name);
/* Reads eos_token_id, which is a number or a list, from generation_config.json in dir or, if that
 * file does not have it, from config.json. If neither file has it, *out is empty. *out is also
 * empty if the keys of a GGUF file do not give these texts, because a job of ids needs no
 * tokenizer, and tokenizer_open reports the reason to a job of text. Fails with ERR_INVALID, with
 * ERR_TOO_LARGE for more than TOKEN_ENDS ids, and otherwise as model_file_read does. */
struct token_ends;
int hf_read_ends(const char *dir, struct token_ends *out, struct err *e);
/* Does the same as hf_read_ends, but fails if the keys of a GGUF file do not give these texts. */
int hf_check_ends(const char *dir, struct token_ends *out, struct err *e);
/* Sets the error for ends->id[i], which is not an id of the model's vocabulary. It names the file
 * to mend. Returns -1. */
int hf_unknown_end(const struct token_ends *ends, int i, int64_t vocab, struct err *e);
/* Returns pad_token_id of config.json in dir, or -1 if the file has no valid id under this key. */
int32_t hf_read_pad(const char *dir);
/* Finds the enum tokenizer_id of a directory. BYTE means that tokenizer.json equals the file of
 * seqd's byte tokenizer. */
int hf_tokenizer_of(const char *dir, int32_t *out, struct err *e);

#endif
