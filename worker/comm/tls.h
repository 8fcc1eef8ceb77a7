/* tls.h: one connection encrypted by TLS 1.3 with a pre-shared key, over a non-blocking socket.
 *
 * Both ends derive this key from the attempt's key; there are no certificates and no names. The
 * exchange is psk_dhe_ke: an attacker who learns the key later cannot read a recorded connection.
 * tls.c is the only user of OpenSSL in the engine. In a build without OpenSSL, tls_context_open
 * fails. */
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

/* Opens an endpoint's context. fails: ERR_UNSUPPORTED if this build has no TLS; ERR_INTERNAL if
 * OpenSSL does not give TLS 1.3. */
struct tls_context *tls_context_open(const unsigned char key[RANK_KEY_SIZE], struct err *e);
void tls_context_close(struct tls_context *x); /* NULL allowed */

struct tls *tls_open(struct tls_context *x, int fd, bool dials); /* NULL: no memory */
void tls_close(struct tls *t);                                   /* NULL allowed; fd stays open */

/* Takes one more step of the handshake. Returns 1 when it is done, 0 when it would wait for the
 * socket, -1 when it failed, or when the peer has not used the key. */
int tls_handshake(struct tls *t);
/* Write and read as send and recv do: -1 and errno, with EAGAIN where they would wait; 0 from
 * tls_read is the end. After EAGAIN repeat a write with the same bytes. */
ssize_t tls_write(struct tls *t, const void *bytes, size_t size);
ssize_t tls_read(struct tls *t, void *bytes, size_t size);
bool tls_pending(const struct tls *t); /* decrypted bytes wait; no socket event announces them */

#endif
