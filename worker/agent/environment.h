/* environment.h: selects the variables of seqw's environment that a gang and its ranks get. */
#ifndef SEQD_AGENT_ENVIRONMENT_H
#define SEQD_AGENT_ENVIRONMENT_H

/* Returns those variables of `from` that are on the list, in the order of `from`, in one block
 * that the caller frees. The strings are borrowed from `from`. Secrets of the service (tokens,
 * credentials, sockets) are not on the list. */
char **environment_for_ranks(char **from);

#endif
