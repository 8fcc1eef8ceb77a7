/* environment.h: which variables of seqw's environment a gang and its ranks get. */
#ifndef SEQD_AGENT_ENVIRONMENT_H
#define SEQD_AGENT_ENVIRONMENT_H

/* Those of `from` that are on the list, in its order, in one block that the caller frees; the
 * strings stay from's. Secrets of the service (tokens, credentials, sockets) are not listed. */
char **environment_for_ranks(char **from);

#endif
