/* neutral.h: recognizes members of OpenAI requests that a batch does not use and whose values do
 * not change the answer. */
#ifndef SEQD_INFER_NEUTRAL_H
#define SEQD_INFER_NEUTRAL_H

#include <stdbool.h>
#include "api/core/jread.h"

/* Returns true if the member has a value that does not change the answer. Call this function
 * when j has returned the member's key. If the result is true, the position of j is after the
 * value. If the result is false, j is unchanged. */
bool neutral_member(struct jread *j);

#endif
