/* files.h: the files of a model directory beside its weights: tokenizer, chat template,
 * generation_config.json, code, a licence. They are copied unchanged.
 *
 * Every regular file of the top level is copied if it has at most HF_FILE_SIZE bytes and a name of
 * printable ASCII without "..", shorter than HF_FILE_NAME, except weights in any format and their
 * indexes. At most HF_FILES - 3 are copied: the byte tokenizer may add three. Links are not
 * followed. config.json is left out: hf_config_write makes a new one from it.
 * tested: tests/engine/test_model_files.c */
#ifndef SEQD_HF_FILES_H
#define SEQD_HF_FILES_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/err.h"

#define HF_FILES     96 /* most files of one directory */
#define HF_FILE_NAME 96 /* bytes of a name, its NUL included */
#define HF_FILE_SIZE ((int64_t)64 << 20)

/* Names in ascending order, and a text that lists files left out. */
struct hf_files {
    int n, n_left;
    char name[HF_FILES][HF_FILE_NAME];
    char left[256]; /* the first few: "a.json (a link), b.bin2 (over 64 MiB)" */
};

/* Lists the files to copy. fails: ERR_IO, ERR_NOT_FOUND naming dir. */
int hf_list_files(const char *dir, struct hf_files *out, struct err *e);
/* hf_take_files copies the files that hf_list_files lists from `from` into `to`, which is made if
 * it is missing, and fsyncs them. */
struct hf_take {
    const char *from, *to;
    bool tokenizer;           /* also copies the tokenizer's files (hf_is_tokenizer) */
    void (*still)(void *arg); /* called during long copies; NULL: not called */
    void *arg;
};
int hf_take_files(const struct hf_take *t, struct hf_files *taken, struct err *e);

/* Tells whether the meaning of ids depends on the file: tokenizer, special tokens, chat template,
 * generation_config.json. */
bool hf_is_tokenizer(const char *name);
/* Reads eos_token_id of generation_config.json in dir, else of config.json: a number or a list.
 * *out is empty if neither has one, and if a GGUF file's keys do not make it: ids need no
 * tokenizer, and a job of text is told why by tokenizer_open. fails: ERR_INVALID; ERR_TOO_LARGE for
 * more than TOKEN_ENDS; else as model_file_read. */
struct token_ends;
int hf_read_ends(const char *dir, struct token_ends *out, struct err *e);
/* Does the same, and fails for keys of a GGUF file that do not make it. */
int hf_check_ends(const char *dir, struct token_ends *out, struct err *e);
/* Returns pad_token_id of config.json in dir; -1: it has no valid id. */
int32_t hf_read_pad(const char *dir);
/* Finds the enum tokenizer_id of a directory. BYTE: tokenizer.json equals the file of seqd's byte
 * tokenizer. */
int hf_tokenizer_of(const char *dir, int32_t *out, struct err *e);

#endif
