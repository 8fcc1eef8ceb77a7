/* neutral.h: the members of the OpenAI API that change nothing here, and the reasons why other
 * values of them are refused. */
#ifndef SEQD_INFER_NEUTRAL_H
#define SEQD_INFER_NEUTRAL_H

#include <stdbool.h>
#include "api/core/jread.h"

/* Returns true if the member has a value that does not change the answer. Call this function
 * when j has returned the member's key. If the result is true, the position of j is after the
 * value. If the result is false, j is unchanged, and if the API has the member, *name is its name
 * and *why the reason why its value is refused. */
bool neutral_member(struct jread *j, const char **name, const char **why);

#endif
