/* checkpoint.h: the members of a checkpoint in its event and in REST. The rank that saved it
 * writes them, seqd stores them unread, and api/openapi.yaml has them as the schema Checkpoint.
 * tested: tests/engine/test_stored_state.c, tests/daemon/test_seqd_schema.c */
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
    int64_t save_ms; /* time that writing took; 0: not known, nor is mb_s */
    double mb_s;
};

extern const struct field checkpoint_fields[]; /* in the order of the JSON */

#endif
