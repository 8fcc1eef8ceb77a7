#include "daemon/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* "host:port" or "[v6]:port" with a numeric host. */
static int parse_listen(const char *text, struct sockaddr_storage *sa, socklen_t *size,
                        struct err *e)
{
    char host[64];
    const char *colon = strrchr(text, ':');
    char *end = NULL;
    long port = colon ? strtol(colon + 1, &end, 10) : -1;
    if (!colon || end == colon + 1 || *end || port < 0 || port > 65535)
        return err_set(e, ERR_INVALID, "--listen %s: write host:port, for example 127.0.0.1:7433",
                       text);
    size_t n = (size_t)(colon - text);
    bool v6 = n > 2 && text[0] == '[' && text[n - 1] == ']';
    snprintf(host, sizeof host, "%.*s", (int)(v6 ? n - 2 : n), v6 ? text + 1 : text);
    memset(sa, 0, sizeof *sa);
    struct sockaddr_in *in = (struct sockaddr_in *)sa;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)sa;
    if (v6 && inet_pton(AF_INET6, host, &in6->sin6_addr) == 1) {
        in6->sin6_family = AF_INET6;
        in6->sin6_port = htons((uint16_t)port);
        *size = sizeof *in6;
        return 0;
    }
    if (!strcmp(host, "localhost")) snprintf(host, sizeof host, "127.0.0.1");
    if (v6 || inet_pton(AF_INET, host, &in->sin_addr) != 1)
        return err_set(e, ERR_INVALID, "--listen %s: \"%s\" is not a numeric address", text, host);
    in->sin_family = AF_INET;
    in->sin_port = htons((uint16_t)port);
    *size = sizeof *in;
    return 0;
}

int listen_is_loopback(const char *address)
{
    struct sockaddr_storage sa;
    socklen_t size;
    if (parse_listen(address, &sa, &size, NULL)) return -1;
    const struct sockaddr_in *in = (struct sockaddr_in *)&sa;
    const struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&sa;
    if (sa.ss_family == AF_INET6) return IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr);
    return ntohl(in->sin_addr.s_addr) >> 24 == 127;
}

static void write_url(const struct sockaddr_storage *sa, char *url, size_t size)
{
    char host[INET6_ADDRSTRLEN];
    bool v6 = sa->ss_family == AF_INET6;
    const struct sockaddr_in *in = (const struct sockaddr_in *)sa;
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)sa;
    inet_ntop(sa->ss_family, v6 ? (const void *)&in6->sin6_addr : &in->sin_addr, host, sizeof host);
    snprintf(url, size, v6 ? "http://[%s]:%d" : "http://%s:%d", host,
             ntohs(v6 ? in6->sin6_port : in->sin_port));
}

int listen_open(const char *address, char *url, size_t url_size, struct err *e)
{
    struct sockaddr_storage sa;
    socklen_t size;
    int one = 1;
    if (parse_listen(address, &sa, &size, e)) return -1;
    int fd = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return err_errno(e, "socket");
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (!bind(fd, (struct sockaddr *)&sa, size) && !listen(fd, 511) &&
        !getsockname(fd, (struct sockaddr *)&sa, &size)) {
        write_url(&sa, url, url_size);
        return fd;
    }
    if (errno != EADDRINUSE)
        err_errno(e, "listen on %s", address);
    else
        err_set(e, ERR_CONFLICT,
                "port %s is in use: another seqd? choose one with --listen host:port", address);
    close(fd);
    return -1;
}
