/* tls.h: the server's side of TLS on non-blocking sockets. This is the only module that uses
 * GnuTLS.
 *
 * It speaks TLS 1.3, and 1.2 with forward secrecy and AEAD ciphers. It issues tickets, offers only
 * HTTP/1.1 by ALPN, and has no renegotiation, no early data and no client certificates. A session
 * keeps the certificate with which it began. All functions are called on front's thread, or while
 * front's thread does not run. They never wait for a client. Only tls_server_open and
 * tls_server_look read files. */
#ifndef SEQD_DAEMON_HTTP_TLS_H
#define SEQD_DAEMON_HTTP_TLS_H

#include <stdbool.h>
#include <sys/types.h>
#include "api/core/err.h"

struct tls_server;

/* Opens a server with two PEM files: the certificate with its chain, and its key. Fails with
 * ERR_INVALID if the files cannot be used; the error names the fault. Fails with ERR_NOT_FOUND,
 * ERR_TOO_LARGE or ERR_IO if a file cannot be read, and with ERR_INTERNAL if GnuTLS does not
 * start. */
struct tls_server *tls_server_open(const char *cert, const char *key, struct err *e);
/* call it after all sessions are closed; s may be NULL */
void tls_server_close(struct tls_server *s);
/* Reads the files again if they have changed or if `anyway` is set. If the files cannot be used,
 * this is logged, and the previous certificate remains in use. */
void tls_server_look(struct tls_server *s, bool anyway);

struct tls_conn;

/* Begins a session on fd, which is connected and non-blocking. The caller continues to own fd.
 * Returns NULL if there is no memory. */
struct tls_conn *tls_accept(struct tls_server *s, int fd);
void tls_free(struct tls_conn *t); /* sends nothing to the client; t may be NULL */
/* Continues the handshake. Returns 1 if it is done, 0 if it is not done yet, and -1 if it failed.
 * If the handshake failed, the client was told the reason, if possible. */
int tls_shake(struct tls_conn *t);
/* After tls_shake has returned 0, tells whether the handshake waits to write. If it does not, it
 * waits to read. */
bool tls_wants_write(const struct tls_conn *t);

/* tls_recv and tls_send work like recv and send on a non-blocking socket, and return -1 with
 * EAGAIN or EPROTO. tls_recv returns 0 only after the client's close_notify, and fails with EPROTO
 * if the connection broke. After EAGAIN tls_send must be called again with the same bytes. */
ssize_t tls_recv(struct tls_conn *t, void *bytes, size_t n);
ssize_t tls_send(struct tls_conn *t, const void *bytes, size_t n);
/* tells whether tls_recv has bytes to return although the socket has none */
bool tls_holds(const struct tls_conn *t);
/* sends close_notify; returns 0 if it must be called again, otherwise 1 */
int tls_bye(struct tls_conn *t);

#endif
