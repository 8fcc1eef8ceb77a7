/* filter.h: the options that select jobs: --state, --name and --label, and in a query also
 * --owner. */
#ifndef SEQD_CLIENT_FILTER_H
#define SEQD_CLIENT_FILTER_H

#include "client/cli.h"
#include "client/json.h"

bool filter_given(const struct cli *c);
/* Makes "&state=queued&name=n&owner=u&label.team=x", malloc'd. On failure prints a message and
 * returns NULL. */
char *filter_query(const struct cli *c);
/* Makes {"team": "x"} from --label. On failure prints a message and returns NULL. */
struct jv *filter_labels(const struct cli *c);
/* Makes {"state": ["queued"], "name": "n", "labels": {"team": "x"}}. Returns an enum cli_exit. */
int filter_body(const struct cli *c, struct jv **out);

#endif
