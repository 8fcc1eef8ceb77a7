/* listen.h: opens listening sockets, and tells whether only this machine can reach an address. */
#ifndef SEQD_DAEMON_HTTP_LISTEN_H
#define SEQD_DAEMON_HTTP_LISTEN_H

#include <stdbool.h>
#include <stddef.h>
#include "api/core/err.h"

/* Opens a TCP socket. `address` is, for example, "127.0.0.1:7433", "localhost:0" or "[::1]:7433";
 * port 0 stands for any free port. `scheme` is "http" or "https". Returns the fd, and writes the
 * socket's URL to url. Fails with ERR_INVALID, with ERR_CONFLICT if the port is in use, or with
 * ERR_IO. */
int listen_open(const char *address, const char *scheme, char *url, size_t url_size, struct err *e);
/* Opens a Unix socket at path. Its mode is 0666, because the mode of its directory decides who can
 * reach it. The kernel tells the server which user has connected. A socket that a dead server left
 * is replaced. Returns the fd. Fails with ERR_INVALID if the path is empty or too long, and with
 * ERR_NOT_FOUND if the directory does not exist. Fails with ERR_CONFLICT if a server answers at
 * path, if the file is not a socket, or if a second process is making a socket in the same
 * directory. Other failures are ERR_NO_SPACE and ERR_IO. */
int listen_open_unix(const char *path, struct err *e);
void listen_close_unix(int fd, const char *path); /* also removes the socket's file */
/* Returns 1 if only this machine can reach the address, 0 if other machines can, and -1 if the
 * text is not an address. */
int listen_is_loopback(const char *address);

#endif
