/* help.h: the help texts of seqctl. */
#ifndef SEQD_CLIENT_HELP_H
#define SEQD_CLIENT_HELP_H

#include <stdio.h>
#include "client/cli.h"

void help_all(FILE *out, const struct verb *const *verbs);
void help_verb(FILE *out, const struct verb *v);
/* Writes the i-th operand that v requires, in the form of the usage line. If the operands of v are
 * alternatives, writes all of them. */
void help_operand(const struct verb *v, int i, char *out, size_t size);
/* Returns the verb or option that is nearest to a word, or NULL if none is near. */
const char *help_nearest(const char *word, const char *const *words, int n);

#endif
