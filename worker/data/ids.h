/* ids.h: reads an array of integers in a file as token ids, and divides the array into
 * documents at the end ids. */
#ifndef SEQD_DATA_IDS_H
#define SEQD_DATA_IDS_H

#include "worker/data/format.h"

struct ids_type {
    int width; /* bytes: 1, 2, 4 or 8, little-endian */
    bool is_signed;
};

struct ids_in {
    struct reader *r;
    struct encode *c;
    struct ids_type type;
    int64_t header; /* bytes before the first number */
    int64_t index;  /* numbers read so far */
};

/* ids_take reads the next n numbers (at most IDS_CHUNK) into out. Fails with ERR_CORRUPT if the
 * file ends before n numbers were read. Fails with ERR_INVALID if a number cannot be an id, and
 * the error has the index of the number. Also fails with ERR_IO. */
#define IDS_CHUNK 4096
int ids_take(struct ids_in *in, uint32_t *out, size_t n, struct err *e);

enum ids_end {
    IDS_END_LAST, /* a document ends with its end id, as in nanoGPT and most other files */
    IDS_END_FIRST /* a document begins with its end id, as in llm.c */
};

/* Reads n ids and adds them to the encoder. Each occurrence of the id `eod` ends a document or
 * begins one, and is itself a token of that document. If `eod` is -1, all n ids are one
 * document. Fails as ids_take and encode_ids do. */
int ids_documents(struct ids_in *in, int64_t n, int64_t eod, enum ids_end end, struct err *e);

#endif
