/* checkpoint.h: the members that describe a checkpoint in its event and in REST. The rank that
 * saved the checkpoint writes them, seqd stores them without reading them, and api/openapi.yaml
 * describes them as the schema Checkpoint. tested: tests/engine/test_stored_state.c,
 * tests/daemon/test_seqd_schema.c */
#ifndef SEQD_CORE_CHECKPOINT_H
#define SEQD_CORE_CHECKPOINT_H

#include <stdint.h>
#include "api/core/field.h"
#include "api/core/file.h"
#include "api/core/sha256.h"

struct checkpoint_record {
    int64_t step;
    char path[FILE_PATH_SIZE]; /* its directory */
    int64_t size;              /* bytes of all files */
    char weights_sha256[SHA256_HEX];
    int64_t save_ms; /* time that writing took; 0 means that neither this time nor mb_s is known */
    double mb_s;
};

extern const struct field checkpoint_fields[]; /* rows in the order of the JSON members */

#endif
