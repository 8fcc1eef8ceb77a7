/* address.c: parses numeric hosts and Unix paths, checks whether an address is free by binding it,
 * resolves names, and connects within a time limit. */
#include "api/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Checks that no process serves a socket, by connecting to it. Without this check gRPC would
 * unlink the socket and report no error. */
static int unix_check(const char *path, struct err *e)
{
    struct sockaddr_un sun = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof sun.sun_path)
        return err_set(e, ERR_INVALID, "socket path %s has %zu bytes, at most %zu are possible",
                       path, strlen(path), sizeof sun.sun_path - 1);
    memcpy(sun.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return err_errno(e, "socket");
    int rc = connect(fd, (struct sockaddr *)&sun, sizeof sun);
    bool taken = rc == 0 || errno == EAGAIN || errno == EINPROGRESS;
    close(fd);
    if (taken) return err_set(e, ERR_CONFLICT, "%s is in use by another process", path);
    return 0;
}

/* Parses "127.0.0.1", "10.0.0.1" or "fe80::1" into an address with the port in network order. */
static int host_parse(const char *host, bool is_v6, uint16_t port, struct sockaddr_storage *out,
                      socklen_t *size)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)out;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)out;
    memset(out, 0, sizeof *out);
    if (!is_v6) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port);
        *size = sizeof *v4;
        return inet_pton(AF_INET, strcmp(host, "localhost") ? host : "127.0.0.1", &v4->sin_addr);
    }
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    *size = sizeof *v6;
    return inet_pton(AF_INET6, host, &v6->sin6_addr);
}

/* Splits "127.0.0.1:50051" or "[::1]:50051". */
static int tcp_parse(const char *address, struct sockaddr_storage *out, socklen_t *size,
                     struct err *e)
{
    char host[64];
    const char *target = address_target(address);
    const char *colon = strrchr(target, ':');
    char *end = NULL;
    long port = colon ? strtol(colon + 1, &end, 10) : -1;
    if (!colon || end == colon + 1 || *end || port < 0 || port > 65535)
        return err_set(e, ERR_INVALID, "address %s: want unix:/path or 10.0.0.1:port", address);
    bool is_v6 = target[0] == '[' && colon[-1] == ']';
    int len = (int)(colon - target) - (is_v6 ? 2 : 0);
    snprintf(host, sizeof host, "%.*s", len, target + (is_v6 ? 1 : 0));
    if (host_parse(host, is_v6, (uint16_t)port, out, size) == 1) return 0;
    return err_set(
        e, ERR_INVALID,
        "address %s: \"%s\" is not a numeric address; write unix:/path, 10.0.0.1:port or "
        "[fd00::1]:port",
        address, host);
}

static int tcp_check(const char *address, struct err *e)
{
    struct sockaddr_storage sa;
    socklen_t size;
    int one = 1;
    if (tcp_parse(address, &sa, &size, e) < 0) return -1;
    int fd = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return err_errno(e, "socket");
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    int rc = bind(fd, (struct sockaddr *)&sa, size);
    int saved = errno;
    close(fd);
    if (rc == 0) return 0;
    errno = saved;
    err_errno(e, "cannot listen on %s", address);
    if (saved == EADDRINUSE && e) e->code = ERR_CONFLICT;
    return -1;
}

static bool is_unix(const char *address)
{
    return !strncmp(address, "unix:", 5);
}

bool address_is_plain(const char *address)
{
    return is_unix(address) || address_target(address) != address;
}

int address_check(const char *address, struct err *e)
{
    struct sockaddr_storage sa;
    socklen_t size;
    return is_unix(address) ? 0 : tcp_parse(address, &sa, &size, e);
}

int address_free_check(const char *address, struct err *e)
{
    return is_unix(address) ? unix_check(address + 5, e) : tcp_check(address, e);
}

const char *address_target(const char *address)
{
    static const char prefix[] = "insecure:";
    return strncmp(address, prefix, sizeof prefix - 1) ? address : address + sizeof prefix - 1;
}

bool address_is_numeric(const char *host)
{
    unsigned char any[sizeof(struct in6_addr)];
    return inet_pton(AF_INET, host, any) == 1 || inet_pton(AF_INET6, host, any) == 1;
}

int address_plain_check(const char *address, struct err *e)
{
    if (address_check(address, e) < 0) return -1;
    if (address_is_plain(address)) return 0;
    return err_set(e, ERR_UNSUPPORTED,
                   "address %s: sessions over TCP are encrypted and need certificates; "
                   "insecure:%s is for tests, and for networks where every machine is trusted",
                   address, address);
}

int address_tls_check(const char *address, struct err *e)
{
    if (address_check(address, e) < 0) return -1;
    if (!address_is_plain(address)) return 0;
    return err_set(e, ERR_UNSUPPORTED, "address %s is of a plain session: it has no certificates",
                   address);
}

/* ---- lists and names ------------------------------------------------------------------------- */

int address_count(const char *list)
{
    int n = 1;
    for (; *list; list++) n += *list == ',';
    return n;
}

void address_nth(const char *list, int i, char out[ADDRESS_SIZE])
{
    for (i %= address_count(list); i > 0; i--) list += strcspn(list, ",") + 1;
    snprintf(out, ADDRESS_SIZE, "%.*s", (int)strcspn(list, ","), list);
}

/* Splits "name:port". Returns false if `address` has another form. */
static bool name_split(const char *address, char host[256], char port[8])
{
    static const char legal[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-";
    const char *target = address_target(address), *colon = strrchr(target, ':');
    const size_t n = colon ? (size_t)(colon - target) : 0;
    if (!n || n > 255 || n != strspn(target, legal) || !strpbrk(target, legal + 10)) return false;
    const size_t digits = strspn(colon + 1, "0123456789");
    if (!digits || digits > 5 || colon[1 + digits] || atoi(colon + 1) > 65535) return false;
    snprintf(host, 256, "%.*s", (int)n, target);
    snprintf(port, 8, "%s", colon + 1);
    return strspn(host, "0123456789.") < n;
}

/* Resolves one address, which blocks if it is a name. The caller frees the result with
 * freeaddrinfo. Returns NULL with *e. */
static struct addrinfo *resolve(const char *address, struct err *e)
{
    struct sockaddr_storage sa;
    socklen_t size;
    char host[256], port[8];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *out = NULL;
    if (!tcp_parse(address, &sa, &size, e)) {
        hints.ai_flags |= AI_NUMERICHOST;
        if (getnameinfo((struct sockaddr *)&sa, size, host, sizeof host, port, sizeof port,
                        NI_NUMERICHOST | NI_NUMERICSERV))
            return NULL;
    } else if (!name_split(address, host, port)) {
        return NULL;
    }
    const int rc = getaddrinfo(host, port, &hints, &out);
    if (!rc) return out;
    err_set(e, ERR_IO, "%s does not resolve: %s", host, gai_strerror(rc));
    return NULL;
}

/* Checks the addresses of a list, which are all of plain sessions or all of sessions over TLS. */
static int dial_check(const char *list, bool plain, struct err *e)
{
    char one[ADDRESS_SIZE], host[256], port[8];
    if (strlen(list) >= ADDRESS_SIZE)
        return err_set(e, ERR_TOO_LARGE,
                       "the list of addresses has %zu bytes, at most %d are "
                       "possible",
                       strlen(list), ADDRESS_SIZE - 1);
    for (int i = 0; i < address_count(list); i++) {
        address_nth(list, i, one);
        if (address_is_plain(one) != plain && address_is_plain(list) == plain)
            return err_set(e, ERR_INVALID,
                           "%s: addresses of plain sessions and of sessions over TLS cannot be in "
                           "one list",
                           list);
        const bool is_name = name_split(one, host, port) && address_is_plain(one) == plain;
        if (!is_name && (plain ? address_plain_check(one, e) : address_tls_check(one, e)))
            return -1;
    }
    return 0;
}

int address_dial_plain_check(const char *list, struct err *e)
{
    return dial_check(list, true, e);
}

int address_dial_tls_check(const char *list, struct err *e)
{
    return dial_check(list, false, e);
}

/* Connects a datagram socket. The kernel then looks up the route, but sends no packet. */
static bool local_of(const struct addrinfo *at, char out[ADDRESS_HOST_SIZE])
{
    struct sockaddr_storage sa;
    socklen_t size = sizeof sa;
    const int fd = socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return false;
    const bool found = !connect(fd, at->ai_addr, at->ai_addrlen) &&
                       !getsockname(fd, (struct sockaddr *)&sa, &size);
    if (found) {
        const void *host = sa.ss_family == AF_INET
                               ? (const void *)&((struct sockaddr_in *)&sa)->sin_addr
                               : (const void *)&((struct sockaddr_in6 *)&sa)->sin6_addr;
        inet_ntop(sa.ss_family, host, out, ADDRESS_HOST_SIZE);
    }
    close(fd);
    return found;
}

void address_local(const char *list, char out[ADDRESS_HOST_SIZE])
{
    char one[ADDRESS_SIZE];
    bool found = false;
    snprintf(out, ADDRESS_HOST_SIZE, "127.0.0.1");
    for (int i = 0; i < address_count(list) && !found && !is_unix(list); i++) {
        struct err e;
        address_nth(list, i, one);
        struct addrinfo *all = resolve(one, &e);
        for (const struct addrinfo *at = all; at && !found; at = at->ai_next)
            found = local_of(at, out);
        if (all) freeaddrinfo(all);
    }
}

static int connect_one(const struct addrinfo *at, const char *address, int timeout_ms,
                       struct err *e)
{
    socklen_t n = sizeof(int);
    int why = 0;
    int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return err_errno(e, "socket");
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    if (!connect(fd, at->ai_addr, at->ai_addrlen)) return fd;
    if (errno != EINPROGRESS)
        err_errno(e, "connect to %s", address);
    else if (poll(&p, 1, timeout_ms) != 1)
        err_set(e, ERR_TIMEOUT, "connect to %s: no answer for %d ms", address, timeout_ms);
    else if (!getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &n) && !why)
        return fd;
    else
        errno = why, err_errno(e, "connect to %s", address);
    close(fd);
    return -1;
}

int address_connect(const char *list, int timeout_ms, struct err *e)
{
    char one[ADDRESS_SIZE];
    int fd = -1;
    for (int i = 0; i < address_count(list) && fd < 0; i++) {
        address_nth(list, i, one);
        struct addrinfo *all = resolve(one, e);
        for (const struct addrinfo *at = all; at && fd < 0; at = at->ai_next)
            fd = connect_one(at, one, timeout_ms, e);
        if (all) freeaddrinfo(all);
    }
    return fd;
}
