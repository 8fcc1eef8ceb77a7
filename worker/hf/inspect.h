/* inspect.h: inspects a whole model directory, for its contents and for every fault of its
 * config.json, its index, its shards and its tensors.
 * tested: tests/engine/test_inspect.c */
#ifndef SEQD_HF_INSPECT_H
#define SEQD_HF_INSPECT_H

#include <stdbool.h>
#include "api/core/faults.h"
#include "api/core/model_shape.h"
#include "worker/hf/tokenizer.h"

struct hf_summary {
    struct model_shape shape;
    bool known;               /* shape is set, because config.json has no fault */
    char family[24];          /* name of the model's family; "" if it is not known */
    char model_type[32];      /* the value in config.json */
    int64_t n_params;         /* number of elements of all tensors of the shape; 0 if not known */
    int64_t weights_size;     /* bytes of the tensors in the files that can be read */
    struct err weights_fault; /* why weights_size lacks files; ERR_NONE if it lacks no file */
    char dtypes[32];          /* element types of the tensors with two dimensions or more: "BF16" */
    bool unreadable;   /* set if the model does not exist, or if the header of a GGUF file has a
                           * fault. There is then no other fault */
    bool loads;        /* config.json and weights have no fault */
    int32_t tokenizer; /* enum tokenizer_id */
    struct err tokenizer_fault; /* why `tokenizer` is not known; ERR_NONE if it is */
    bool ends_known;            /* the files that name end ids could be read */
    struct token_ends ends;
};

/* Reads the headers of all shards, but no weights, so that it reads only some megabytes for
 * weights of any size. Every fault names its file, and the tensor or key. */
void hf_inspect(const char *dir, struct hf_summary *s, struct faults *f);

#endif
