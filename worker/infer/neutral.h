/* neutral.h: members of OpenAI requests whose usual values change nothing. Requests with these
 * values pass, though a batch has no use for the members. */
#ifndef SEQD_INFER_NEUTRAL_H
#define SEQD_INFER_NEUTRAL_H

#include <stdbool.h>
#include "api/core/jread.h"

/* Tells whether the member's value changes nothing. j has just returned its key. True: j is past
 * the value. False: j is as it was. */
bool neutral_member(struct jread *j);

#endif
