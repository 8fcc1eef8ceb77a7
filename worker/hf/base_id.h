/* base_id.h: tells the base of an adapter, which is the model that the adapter was trained on, from
 * every other model. The digest of a base is stored in DIR/seqd.json beside an adapter's files.
 * peft ignores this file.
 *
 *   {"version":1,"base":"/models/llama","base_sha256":".."}
 *
 * The digest of a model that is read from files covers the name and the dimensions of each tensor,
 * all elements of a tensor of at most 4,096 elements, and 1,024 elements of each larger tensor: 16
 * stretches at equal distances. The elements are those of the files, widened to fp32, under the
 * names that they have in the flat layout. For this reason the digest does not depend on the job,
 * on shards, or on the type and the form of files that have the same values. An exception is a copy
 * whose experts were unpacked from MXFP4, since their elements then have another order. A model
 * that was trained further has another digest, since its training changed many elements of some
 * tensors. A copy that was rounded to another type has another digest, too. A change of a few rows
 * of a large tensor alone may stay unseen. The digest of random weights covers names, dimensions
 * and the seed. tested: tests/engine/test_base_id.c */
#ifndef SEQD_HF_BASE_ID_H
#define SEQD_HF_BASE_ID_H

#include <stdint.h>
#include "api/core/err.h"
#include "api/core/model_shape.h"
#include "api/core/sha256.h"

#define BASE_ID_FILE "seqd.json"

struct base_id {
    char name[1280]; /* names the base in errors, such as "/models/llama" */
    /* The field of the job that gives the base, or "" if several do. It is not in the file. */
    const char *field;
    char sha256[SHA256_HEX];
};

/* Compute the digest of a model, whose whole shape is m, into out->sha256. Adapters of m are not
 * part of it. base_id_model reads the files of the model `dir`, which must have passed
 * hf_load_pieces. Fails as hf_load_pieces does. */
int base_id_model(const char *dir, const struct model_shape *m, struct base_id *out, struct err *e);
int base_id_random(const struct model_shape *m, int64_t seed, struct base_id *out, struct err *e);

/* Writes DIR/seqd.json and syncs it. */
int base_id_write(const char *dir, const struct base_id *id, struct err *e);
/* Reads DIR/seqd.json. Returns 1 if it has read the file, and 0 if there is no such file. Fails
 * with ERR_CORRUPT if the file is not as base_id_write writes it, or with ERR_IO. */
int base_id_read(const char *dir, struct base_id *out, struct err *e);

/* Checks that the adapter in DIR was trained on the base *own, as far as DIR names its base. Fails
 * with ERR_CONFLICT if it was trained on another. The error has own->field and the names of both,
 * and ends with `more` if own->field is not "". Also fails as base_id_read does. */
int base_id_check(const char *dir, const struct base_id *own, const char *more, struct err *e);

#endif
