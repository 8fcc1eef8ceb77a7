/* openai.h: the paths beneath /openai/v1. A request is routed by its `model` to a running job of
 * the kind serve, which answers it. seqd reads no other member of the body. */
#ifndef SEQD_DAEMON_HTTP_OPENAI_H
#define SEQD_DAEMON_HTTP_OPENAI_H

#include "daemon/http/routes.h"

/* Ends from now on the requests whose tokens are revoked or expire. Call openai_drop at the end. */
void openai_open(struct routes *R, struct loop *l);
/* Frees the open requests. Call it only when neither the HTTP server nor control can call back any
 * more. */
void openai_drop(struct routes *R);

#endif
