/* door.h: the listening sockets of REST, and who comes in through each. */
#ifndef SEQD_DAEMON_HTTP_DOOR_H
#define SEQD_DAEMON_HTTP_DOOR_H

#include "daemon/http/http.h"

struct tls_server;

struct door {
    int fd; /* listening, non-blocking; -1: closed */
    enum http_peer_kind kind;
    bool local_only; /* local_only of http_options */
    bool tls;
    bool scrape;   /* opened by metrics_listen */
    bool by_proxy; /* all its clients share the proxy's address: no limit for each client */
};

#define DOORS    3 /* TCP, a Unix socket, and TCP for metrics */
#define DOOR_URL 96

struct doors {
    int n;
    struct door door[DOORS];
    struct tls_server *tls;                    /* for the doors with TLS; NULL: none has it */
    const char *socket;                        /* the path, borrowed; NULL: none */
    char url[DOOR_URL], metrics_url[DOOR_URL]; /* URLs at which TCP is served; "": none */
};

/* Opens the listening sockets of o. fails: as http_create. */
int doors_open(struct doors *d, const struct http_options *o, struct err *e);
void doors_close(struct doors *d); /* call it after a failed doors_open, too */

/* Accepts the next client: returns its socket, non-blocking, and tells who it is; -1 with errno. */
int door_accept(const struct door *d, struct http_peer *peer);
/* Takes the last address of an X-Forwarded-For, which the proxy itself wrote, as the peer's.
 * Leaves *peer as it is if the text is no address or the peer is no proxy. */
void door_forwarded(struct http_peer *peer, const char *value);
/* Writes the key by which limits count a client of TCP: an IPv4 address, or an IPv6 network of 64
 * bits, all addresses of which one owner can use. */
void door_network(const struct http_peer *peer, unsigned char out[16]);
/* Tells whether two clients share one limit: a user of the Unix socket, or one network. */
bool door_same_client(const struct http_peer *a, const struct http_peer *b);

#endif
