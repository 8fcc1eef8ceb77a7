/* err_names.h: the names of error codes as a list of words, for rows of records. */
#ifndef SEQD_CORE_ERR_NAMES_H
#define SEQD_CORE_ERR_NAMES_H

#include "api/core/err.h"

extern const char *const err_names[ERR_N + 1]; /* by enum err_code, NULL-terminated */

#endif
