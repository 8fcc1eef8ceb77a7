/* neutral.h: members of OpenAI requests whose usual values change nothing. Requests with these
 * values pass, though a batch has no use for the members. */
#ifndef SEQD_INFER_NEUTRAL_H
#define SEQD_INFER_NEUTRAL_H

#include <stdbool.h>
#include "api/core/jread.h"

/* Tells whether the member's value changes nothing. Call it when j has returned the member's key.
 * If true, j is past the value; if false, j is unchanged. */
bool neutral_member(struct jread *j);

#endif
