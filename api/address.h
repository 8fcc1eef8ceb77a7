/* address.h: where a session may be: "unix:/path/sock", "127.0.0.1:port", "[::1]:port". */
#ifndef SEQD_API_ADDRESS_H
#define SEQD_API_ADDRESS_H

#include "api/core/err.h"

/* Is it one of these? fails: ERR_INVALID; ERR_UNSUPPORTED for an address beyond this machine,
 * because sessions are not encrypted. */
int address_check(const char *address, struct err *e);
/* And could we listen there? fails: ERR_CONFLICT when it is in use, ERR_IO. Asked before gRPC is,
 * which unlinks a Unix socket that lies in its way and has no reason for a port it cannot have. */
int address_free_check(const char *address, struct err *e);

#endif
