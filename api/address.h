/* address.h: the addresses of sessions: "unix:/path/sock", "10.0.0.1:port", "[::1]:port". Sessions
 * over TCP are encrypted and authenticated (rpc.h), unless the address begins with "insecure:", as
 * in "insecure:10.0.0.1:port". Any program that reaches an insecure port can start programs on the
 * nodes. Use such a port only in tests, or in a network in which every machine is trusted. Hosts
 * are numeric, or "localhost", which is 127.0.0.1.
 *
 * A client may also dial a name, as "seqd.lab:7434", which is resolved again for each attempt,
 * and a list of addresses that commas part, of which it takes the next after each failure. */
#ifndef SEQD_API_ADDRESS_H
#define SEQD_API_ADDRESS_H

#include <stdbool.h>
#include "api/core/err.h"

int address_check(const char *address, struct err *e); /* checks the form; fails with
                                                        * ERR_INVALID */
bool address_is_plain(const char *address);            /* whether it is a Unix socket or begins
                                                        * with "insecure:" */
/* address_plain_check accepts only addresses of plain sessions, and address_tls_check only
 * addresses of sessions over TLS. Both functions fail with ERR_INVALID if the address has a wrong
 * form. They fail with ERR_UNSUPPORTED if they do not accept the address. */
int address_plain_check(const char *address, struct err *e);
int address_tls_check(const char *address, struct err *e);
/* Checks that an address is free, by binding it or connecting to it for a moment. Fails with
 * ERR_CONFLICT if the address is in use. Fails with ERR_INVALID if the address has a wrong form or
 * if the path of a socket is too long. Other failures are ERR_IO. Call this function before gRPC
 * binds the address, because gRPC unlinks an existing Unix socket and gives no reason for a port
 * that is in use. */
int address_free_check(const char *address, struct err *e);

/* The same as address_plain_check and address_tls_check, for clients: each address of a list, and
 * names. All addresses of a list are for the same kind of session. */
int address_dial_plain_check(const char *list, struct err *e);
int address_dial_tls_check(const char *list, struct err *e);
#define ADDRESS_SIZE 1024 /* largest list, with its NUL */
/* Copies the address at position `i` of a list. Positions past the end begin again. */
void address_nth(const char *list, int i, char out[ADDRESS_SIZE]);
int address_count(const char *list);

/* Returns the address without "insecure:", which is the form that sockets and gRPC accept. */
const char *address_target(const char *address);
/* Writes the numeric address, without a port, that this machine uses to reach the first of a list
 * that resolves, which may block. Writes 127.0.0.1 if this is a Unix socket or has a wrong form, or
 * if no route leads to it. */
#define ADDRESS_HOST_SIZE 64
void address_local(const char *address, char out[ADDRESS_HOST_SIZE]);
bool address_is_numeric(const char *host);

/* Connects to the first of a list of TCP addresses that answers, each within timeout_ms. It
 * blocks for up to that time, and while names are resolved, so call it on a thread. Returns a
 * non-blocking descriptor, which the caller closes. Fails with ERR_INVALID, ERR_IO or
 * ERR_TIMEOUT. */
int address_connect(const char *address, int timeout_ms, struct err *e);

#endif
