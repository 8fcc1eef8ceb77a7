/* meta.h: meta.json of a prepared directory, which data_prepare writes and data_open reads. */
#ifndef SEQD_DATA_META_H
#define SEQD_DATA_META_H

#include "api/core/sha256.h"
#include "worker/data/data.h"

#define META_SOURCES (2 * SPEC_SOURCES)

enum meta_part_id { PART_TOKENS, PART_DOCUMENTS, PART_LOSS, PART_ORIGINS, PART_BYTES, PART_N };

struct meta_part { /* one binary file of the directory */
    int64_t size;  /* size of the file; -1 if the file is absent, which is possible for
                    * loss.bin and bytes.bin */
    char sha256[SHA256_HEX];
};

struct meta_source {
    struct data_source range;
    char *path; /* owned: the path as given in the spec */
    int format;
    int64_t n_tokens;
};

struct meta_file { /* one file that was read */
    char *path;    /* owned */
    char sha256[SHA256_HEX];
    int64_t size;
    int source;
};

struct meta {
    struct data_stats stats;    /* all members of this struct except id and made_mb_s are stored */
    int width;                  /* bytes of a token: 2 or 4 */
    char tokenizer[SHA256_HEX]; /* digest of the tokenizer.json that was used for text; "" if
                                 * each byte of text is a token */
    int max_file; /* the place at which max_token first occurs: max_file is the index of the
                   * file, and max_pos is the position among the tokens of that file */
    int64_t max_pos;
    struct meta_part part[PART_N];
    int n_sources;
    struct meta_source source[META_SOURCES];
    int n_files;
    struct meta_file *file; /* owned */
};

const char *meta_part_name(int part); /* returns a name like "tokens.bin" */
/* Writes <dir>/meta.json. */
int meta_write(const struct meta *m, const char *dir, struct err *e);
/* Reads <dir>/meta.json. Call meta_fini on *m even after an error. Fails with ERR_CORRUPT if the
 * text, a count or a range is wrong. Also fails as file_read does. */
int meta_read(const char *dir, struct meta *m, struct err *e);
void meta_fini(struct meta *m);

#endif
