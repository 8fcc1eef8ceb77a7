/* join.h: join tokens and certificates of nodes. */
#ifndef SEQD_CLIENT_JOIN_H
#define SEQD_CLIENT_JOIN_H

#include "client/cli.h"

/* join_token, join_tokens and join_token_revoke return an enum cli_exit, and print the message of
 * an error. */
/* makes a token with --names, --uses and --ttl */
int join_token(struct cli *c);
int join_tokens(struct cli *c); /* lists the tokens */
/* revokes a token and lists the remaining tokens */
int join_token_revoke(struct cli *c, const char *id);

#endif
