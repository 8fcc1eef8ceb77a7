/* address.h: the addresses of sessions: "unix:/path/sock", "10.0.0.1:port", "[::1]:port".
 *
 * Sessions over TCP are encrypted and authenticated (rpc.h), unless the address says
 * "insecure:10.0.0.1:port". Any program that reaches an insecure port can start programs on the
 * nodes: it is for tests, and for networks where every machine is trusted. Hosts are numeric, or
 * "localhost", which is 127.0.0.1. */
#ifndef SEQD_API_ADDRESS_H
#define SEQD_API_ADDRESS_H

#include <stdbool.h>
#include "api/core/err.h"

int address_check(const char *address, struct err *e); /* checks the form. fails: ERR_INVALID */
bool address_is_plain(const char *address);            /* a Unix socket, or marked insecure */
/* Check the address of a plain session, and of one over TLS. fails: ERR_INVALID; ERR_UNSUPPORTED
 * for an address of the other kind. */
int address_plain_check(const char *address, struct err *e);
int address_tls_check(const char *address, struct err *e);
/* Checks that an address is free, by binding or connecting for a moment. fails: ERR_CONFLICT when
 * the address is in use; ERR_INVALID for a wrong form, or for a socket's path that is too long;
 * ERR_IO. Call it before gRPC binds, which unlinks an existing Unix socket and gives no reason for
 * a port in use. */
int address_free_check(const char *address, struct err *e);

/* Returns the address without "insecure:", as sockets and gRPC take it. */
const char *address_target(const char *address);
/* Writes this machine's own numeric address on the route to `address`, without a port. It is
 * 127.0.0.1 for a Unix socket, for an address of a wrong form, or if there is no route. */
#define ADDRESS_HOST_SIZE 64
void address_local(const char *address, char out[ADDRESS_HOST_SIZE]);
bool address_is_numeric(const char *host);

/* Connects to a TCP address within timeout_ms. It blocks that long: call it on a thread. Returns a
 * non-blocking descriptor, which the caller closes. fails: ERR_INVALID, ERR_IO, ERR_TIMEOUT. */
int address_connect(const char *address, int timeout_ms, struct err *e);

#endif
