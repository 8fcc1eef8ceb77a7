/* listen.h: listening sockets, and whether an address is this machine's alone. */
#ifndef SEQD_DAEMON_HTTP_LISTEN_H
#define SEQD_DAEMON_HTTP_LISTEN_H

#include <stdbool.h>
#include <stddef.h>
#include "api/core/err.h"

/* Opens a socket of TCP. address: "127.0.0.1:7433", "localhost:0" or "[::1]:7433"; port 0: any
 * free one. Returns the fd and writes the URL it serves, of scheme "http" or "https". fails:
 * ERR_INVALID; ERR_CONFLICT when the port is in use; ERR_IO. */
int listen_open(const char *address, const char *scheme, char *url, size_t url_size, struct err *e);
/* Opens a Unix socket at path, of mode 0666: a directory's mode decides who can reach it, and the
 * server asks the kernel who did. A socket that a dead server left is replaced. Returns the fd.
 * fails: ERR_INVALID for a path that is empty or too long; ERR_CONFLICT when a server answers
 * there, when something else than a socket lies there, or while another process makes a socket in
 * that directory; ERR_NOT_FOUND without the directory; ERR_NO_SPACE; ERR_IO. */
int listen_open_unix(const char *path, struct err *e);
void listen_close_unix(int fd, const char *path); /* removes the socket, too */
/* Returns -1: no address; 0: other machines can reach it; 1: loopback only. */
int listen_is_loopback(const char *address);

#endif
