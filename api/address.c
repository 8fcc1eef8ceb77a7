/* address.c: parses numeric hosts and Unix paths, checks whether an address is free by binding it,
 * and connects within a time limit. */
#include "api/address.h"

#include <arpa/inet.h>
#include <errno.h>
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

/* Connects a datagram socket. The kernel then looks up the route, but sends no packet. */
void address_local(const char *address, char out[ADDRESS_HOST_SIZE])
{
    struct sockaddr_storage sa;
    socklen_t size;
    snprintf(out, ADDRESS_HOST_SIZE, "127.0.0.1");
    if (is_unix(address) || tcp_parse(address, &sa, &size, NULL)) return;
    int fd = socket(sa.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return;
    if (!connect(fd, (struct sockaddr *)&sa, size) &&
        !getsockname(fd, (struct sockaddr *)&sa, &size)) {
        const void *host = sa.ss_family == AF_INET
                               ? (const void *)&((struct sockaddr_in *)&sa)->sin_addr
                               : (const void *)&((struct sockaddr_in6 *)&sa)->sin6_addr;
        inet_ntop(sa.ss_family, host, out, ADDRESS_HOST_SIZE);
    }
    close(fd);
}

bool address_is_numeric(const char *host)
{
    unsigned char any[sizeof(struct in6_addr)];
    return inet_pton(AF_INET, host, any) == 1 || inet_pton(AF_INET6, host, any) == 1;
}

int address_connect(const char *address, int timeout_ms, struct err *e)
{
    struct sockaddr_storage sa;
    socklen_t size, n = sizeof(int);
    int why = 0;
    if (tcp_parse(address, &sa, &size, e) < 0) return -1;
    int fd = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return err_errno(e, "socket");
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    if (!connect(fd, (struct sockaddr *)&sa, size)) return fd;
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
