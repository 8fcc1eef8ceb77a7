/* join.h: join tokens and certificates of nodes. */
#ifndef SEQD_CLIENT_JOIN_H
#define SEQD_CLIENT_JOIN_H

#include "client/cli.h"

/* join_token, join_tokens and join_token_revoke return an enum cli_exit, with the message
 * printed. */
int join_token(struct cli *c);                        /* makes one with --names, --uses, --ttl */
int join_tokens(struct cli *c);                       /* lists the tokens */
int join_token_revoke(struct cli *c, const char *id); /* revokes a token and lists the others */

#endif
