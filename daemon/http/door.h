/* door.h: the listening sockets of REST, and the clients that connect to each. */
#ifndef SEQD_DAEMON_HTTP_DOOR_H
#define SEQD_DAEMON_HTTP_DOOR_H

#include "daemon/http/budget.h"
#include "daemon/http/http.h"

struct tls_server;

struct door {
    int fd; /* listening and non-blocking; -1 if it is closed */
    enum http_peer_kind kind;
    bool local_only; /* local_only of http_options */
    bool tls;
    bool scrape; /* opened by metrics_listen */
    /* the clients come through a proxy and share its address, so that no client has a limit of its
     * own */
    bool by_proxy;
};

#define DOORS    3 /* sockets for TCP, for Unix, and for metrics over TCP */
#define DOOR_URL 96

struct doors {
    int n;
    struct door door[DOORS];
    /* used by the sockets with TLS; NULL if no socket has TLS */
    struct tls_server *tls;
    /* path of the Unix socket, borrowed; NULL if there is none */
    const char *socket;
    /* URLs of the TCP sockets; "" for a socket that is not open */
    char url[DOOR_URL], metrics_url[DOOR_URL];
};

/* Opens the listening sockets of o. Fails as http_create does. */
int doors_open(struct doors *d, const struct http_options *o, struct err *e);
void doors_close(struct doors *d); /* must be called after a failed doors_open, too */

/* Accepts the next client. Returns its non-blocking socket and fills *peer, or returns -1 with
 * errno set. */
int door_accept(const struct door *d, struct http_peer *peer);
/* Sets the peer's address to the last entry of an X-Forwarded-For header, which the proxy itself
 * wrote. If this entry is not an address, or if the peer is not a proxy, *peer is unchanged. */
void door_forwarded(struct http_peer *peer, const char *value);
/* Writes the key by which limits count a client of TCP. The key is an IPv4 address or an IPv6
 * network of 64 bits. A whole network counts as one client, because one owner can use all its
 * addresses. */
void door_network(const struct http_peer *peer, unsigned char out[16]);
/* Returns the key by which connections are counted: the user of the Unix socket, or the network. */
struct budget_key door_client(const struct http_peer *peer);

#endif
