/* tls.h: one connection encrypted by TLS 1.3 with a pre-shared key, over a non-blocking socket.
 *
 * Both ends derive the pre-shared key from the attempt's key; there are no certificates and no
 * names. The key exchange is psk_dhe_ke, so that an attacker who learns the key later cannot read
 * a recorded connection. tls.c is the only user of OpenSSL in the engine. In a build without
 * OpenSSL, tls_context_open fails. */
#ifndef SEQD_COMM_TLS_H
#define SEQD_COMM_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "api/core/err.h"
#include "api/core/rank.h"

struct tls_context; /* one for an endpoint */
struct tls;         /* one connection; borrows the context and the descriptor */

/* Opens an endpoint's context. Fails with ERR_UNSUPPORTED if this build has no TLS, and with
 * ERR_INTERNAL if OpenSSL does not offer TLS 1.3. */
struct tls_context *tls_context_open(const unsigned char key[RANK_KEY_SIZE], struct err *e);
void tls_context_close(struct tls_context *x); /* NULL allowed */

struct tls *tls_open(struct tls_context *x, int fd, bool dials); /* NULL if there is no memory */
/* t may be NULL; fd is not closed */
void tls_close(struct tls *t);

/* Takes one more step of the handshake. Returns 1 if the handshake is done, 0 if it must wait for
 * the socket, and -1 if it has failed or the peer has not used the key. */
int tls_handshake(struct tls *t);
/* Write and read as send and recv do. They return -1 and set errno if they fail. errno is EAGAIN
 * if the call would have to wait. tls_read returns 0 at the end of the connection. After EAGAIN, a
 * write must be repeated with the same bytes. */
ssize_t tls_write(struct tls *t, const void *bytes, size_t size);
ssize_t tls_read(struct tls *t, void *bytes, size_t size);
/* Tells whether there are decrypted bytes. No socket event announces these bytes. */
bool tls_pending(const struct tls *t);

#endif
