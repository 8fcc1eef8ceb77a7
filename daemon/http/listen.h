/* listen.h: opens listening sockets, and tells whether only this machine can reach an address. */
#ifndef SEQD_DAEMON_HTTP_LISTEN_H
#define SEQD_DAEMON_HTTP_LISTEN_H

#include <stdbool.h>
#include <stddef.h>
#include "api/core/err.h"

/* Opens a TCP socket. address is, for example, "127.0.0.1:7433", "localhost:0" or "[::1]:7433",
 * where port 0 stands for any free port. Returns the fd, and writes the URL that it serves, with
 * the scheme "http" or "https". Fails with ERR_INVALID, with ERR_CONFLICT if the port is in use,
 * or with ERR_IO. */
int listen_open(const char *address, const char *scheme, char *url, size_t url_size, struct err *e);
/* Opens a Unix socket at path. Its mode is 0666, because the mode of its directory decides who can
 * reach it, and the server asks the kernel which user has connected. A socket that a dead server
 * left is replaced. Returns the fd. Fails with ERR_INVALID for a path that is empty or too long;
 * with ERR_CONFLICT if a server answers there, if the file is not a socket, or while another
 * process makes a socket in that directory; with ERR_NOT_FOUND if there is no such directory; with
 * ERR_NO_SPACE or ERR_IO. */
int listen_open_unix(const char *path, struct err *e);
void listen_close_unix(int fd, const char *path); /* removes the socket, too */
/* Returns 1 if only this machine can reach the address, 0 if other machines can, and -1 if the
 * text is not an address. */
int listen_is_loopback(const char *address);

#endif
