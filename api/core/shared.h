/* shared.h: the id of a directory that nodes share (worker/agent/shared.h). It has at most 53 bits,
 * so that every reader of JSON keeps it as a number. */
#ifndef SEQD_CORE_SHARED_H
#define SEQD_CORE_SHARED_H

#include <stdint.h>

#define SHARED_FILE    ".seqd-shared"
#define SHARED_ID_MAX  ((INT64_C(1) << 53) - 1)
#define SHARED_ID      "%014llx" /* of an unsigned long long */
#define SHARED_ID_SIZE 15        /* with its NUL */

#endif
