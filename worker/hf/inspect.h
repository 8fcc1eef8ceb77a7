/* inspect.h: inspects a whole model directory. It summarizes the contents of the directory,
 * and finds every fault of config.json, of the index, of the shards and of the tensors.
 * tested: tests/engine/test_inspect.c */
#ifndef SEQD_HF_INSPECT_H
#define SEQD_HF_INSPECT_H

#include <stdbool.h>
#include "api/core/faults.h"
#include "api/core/model_shape.h"
#include "worker/hf/tokenizer.h"

struct hf_summary {
    struct model_shape shape;
    bool known;               /* whether `shape` is set; it is set if config.json has no fault */
    char family[24];          /* name of the model's family; "" if it is not known */
    char model_type[32];      /* the value in config.json */
    int64_t n_params;         /* number of elements of all tensors of the shape; 0 if not known */
    int64_t weights_size;     /* bytes of the tensors in the files that can be read */
    struct err weights_fault; /* reason why weights_size does not count all files; its code is
                               * ERR_NONE if it counts all files */
    char dtypes[32];          /* element types of the tensors with two dimensions or more: "BF16" */
    bool unreadable;   /* set if the model does not exist, or if the header of a GGUF file has
                        * a fault; no other faults are searched for in that case */
    bool loads;        /* set if config.json and the weights have no fault */
    int32_t tokenizer; /* enum tokenizer_id */
    struct err tokenizer_fault; /* reason why `tokenizer` is not known; its code is ERR_NONE if
                                 * `tokenizer` is known */
    bool ends_known;            /* set if the files that list end ids could be read */
    struct token_ends ends;
};

/* Reads the headers of all shards, but no weights. For this reason it reads only some
 * megabytes, however large the weights are. Every fault names its file, and the tensor or key
 * that is wrong. */
void hf_inspect(const char *dir, struct hf_summary *s, struct faults *f);

#endif
