/* listen.h: a listening TCP socket, and whether an address is this machine's alone. */
#ifndef SEQD_DAEMON_LISTEN_H
#define SEQD_DAEMON_LISTEN_H

#include <stdbool.h>
#include <stddef.h>
#include "api/core/err.h"

/* address: "127.0.0.1:7433", "localhost:0" or "[::1]:7433"; port 0: any free one. Returns the fd
 * and writes the URL it serves. fails: ERR_INVALID; ERR_CONFLICT when the port is in use. */
int listen_open(const char *address, char *url, size_t url_size, struct err *e);
/* -1: not an address; 0: other machines can reach it; 1: loopback only. */
int listen_is_loopback(const char *address);

#endif
