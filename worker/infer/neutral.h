/* neutral.h: accepts members of OpenAI requests that a batch does not use, if they have usual
 * values that do not change the answer. */
#ifndef SEQD_INFER_NEUTRAL_H
#define SEQD_INFER_NEUTRAL_H

#include <stdbool.h>
#include "api/core/jread.h"

/* Tells whether the member has a value that does not change the answer. Call this function when j
 * has returned the member's key. If it returns true, j is past the value; if false, j is
 * unchanged. */
bool neutral_member(struct jread *j);

#endif
