/* neutral.h: members of OpenAI requests that change nothing by the value that clients write for
 * them, and so pass, though no request of a batch can ask for anything by them. */
#ifndef SEQD_INFER_NEUTRAL_H
#define SEQD_INFER_NEUTRAL_H

#include <stdbool.h>
#include "api/core/jread.h"

/* j has just returned the member's key. True: the value changes nothing, and j is past it. False: j
 * is as it was. */
bool neutral_member(struct jread *j);

#endif
