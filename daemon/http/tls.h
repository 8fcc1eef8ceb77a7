/* tls.h: the server's side of TLS on non-blocking sockets. The only user of GnuTLS.
 *
 * TLS 1.3 and 1.2 with forward secrecy and AEAD ciphers, tickets, HTTP/1.1 alone by ALPN, no
 * renegotiation, no early data, no client certificates. A session keeps the certificate that it
 * began with. All functions are called on front's thread, or while it does not run. They never
 * wait for a client. tls_server_open and tls_server_look read files. */
#ifndef SEQD_DAEMON_HTTP_TLS_H
#define SEQD_DAEMON_HTTP_TLS_H

#include <stdbool.h>
#include <sys/types.h>
#include "api/core/err.h"

struct tls_server;

/* Opens a server with two PEM files: the certificate with its chain, and its key. fails:
 * ERR_INVALID naming the fault; ERR_NOT_FOUND, ERR_TOO_LARGE and ERR_IO for a file; ERR_INTERNAL
 * when GnuTLS does not start. */
struct tls_server *tls_server_open(const char *cert, const char *key, struct err *e);
void tls_server_close(struct tls_server *s); /* call after its sessions are closed; NULL allowed */
/* Reads the files again if they have changed, or in any case if `anyway` is set. Files that are no
 * good are logged, and the certificate before them stays. */
void tls_server_look(struct tls_server *s, bool anyway);

struct tls_conn;

/* Begins a session on fd, which is connected and non-blocking and stays the caller's. NULL: no
 * memory. */
struct tls_conn *tls_accept(struct tls_server *s, int fd);
void tls_free(struct tls_conn *t); /* says nothing to the client; NULL allowed */
/* Continues the handshake. 1: done, 0: not yet, -1: failed; the client was told why, if
 * possible. */
int tls_shake(struct tls_conn *t);
bool tls_wants_write(const struct tls_conn *t); /* after a 0 of tls_shake; false: waits to read */

/* tls_recv and tls_send work as recv and send of a non-blocking socket: -1 with EAGAIN or EPROTO.
 * recv returns 0 only after the client's close_notify; for a cut connection it fails with EPROTO.
 * After EAGAIN send must be called again with the same bytes. */
ssize_t tls_recv(struct tls_conn *t, void *bytes, size_t n);
ssize_t tls_send(struct tls_conn *t, const void *bytes, size_t n);
bool tls_holds(const struct tls_conn *t); /* bytes that recv returns though the socket has none */
int tls_bye(struct tls_conn *t);          /* sends close_notify. 1: sent or given up, 0: not yet */

#endif
