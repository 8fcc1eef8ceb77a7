/* environment.h: selects the variables of seqw's environment that are passed on to a gang and
 * its ranks. */
#ifndef SEQD_AGENT_ENVIRONMENT_H
#define SEQD_AGENT_ENVIRONMENT_H

/* Returns the variables of `from` whose names are on the list in environment.c, in the order
 * of `from`. Secrets of the service (tokens, credentials, sockets) are not on that list. The
 * caller frees the result, which is one block. The strings are borrowed from `from`. */
char **environment_for_ranks(char **from);

#endif
