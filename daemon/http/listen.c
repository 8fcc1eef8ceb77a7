/* listen.c: opens listening TCP sockets and Unix sockets. */
#include "daemon/http/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 4096 /* clients that connect while others take all connections wait here */

/* Reads "host:port" or "[v6]:port" with a numeric host. */
static int parse_listen(const char *text, struct sockaddr_storage *sa, socklen_t *size,
                        struct err *e)
{
    char host[64];
    const char *colon = strrchr(text, ':');
    char *end = NULL;
    long port = colon ? strtol(colon + 1, &end, 10) : -1;
    if (!colon || end == colon + 1 || *end || port < 0 || port > 65535)
        return err_set(e, ERR_INVALID, "%s: write host:port, for example 127.0.0.1:7433", text);
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
        return err_set(e, ERR_INVALID, "%s: \"%s\" is not a numeric address", text, host);
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

static void write_url(const struct sockaddr_storage *sa, const char *scheme, char *url, size_t size)
{
    char host[INET6_ADDRSTRLEN];
    bool v6 = sa->ss_family == AF_INET6;
    const struct sockaddr_in *in = (const struct sockaddr_in *)sa;
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)sa;
    inet_ntop(sa->ss_family, v6 ? (const void *)&in6->sin6_addr : &in->sin_addr, host, sizeof host);
    snprintf(url, size, v6 ? "%s://[%s]:%d" : "%s://%s:%d", scheme, host,
             ntohs(v6 ? in6->sin6_port : in->sin_port));
}

int listen_open(const char *address, const char *scheme, char *url, size_t url_size, struct err *e)
{
    struct sockaddr_storage sa;
    socklen_t size;
    int one = 1;
    if (parse_listen(address, &sa, &size, e)) return -1;
    int fd = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return err_errno(e, "socket");
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (!bind(fd, (struct sockaddr *)&sa, size) && !listen(fd, BACKLOG) &&
        !getsockname(fd, (struct sockaddr *)&sa, &size)) {
        write_url(&sa, scheme, url, url_size);
        return fd;
    }
    if (errno != EADDRINUSE)
        err_errno(e, "listen on %s", address);
    else
        err_set(e, ERR_CONFLICT, "port %s is in use: another seqd? choose another one", address);
    close(fd);
    return -1;
}

/* ---- Unix sockets ---------------------------------------------------------------------------- */

static int unix_address(const char *path, struct sockaddr_un *un, struct err *e)
{
    *un = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (!*path || strlen(path) >= sizeof un->sun_path)
        return err_set(e, ERR_INVALID,
                       "--socket %s: the path has %zu bytes; from 1 to %zu: use one such as "
                       "/run/seqd/seqd.sock",
                       path, strlen(path), sizeof un->sun_path - 1);
    memcpy(un->sun_path, path, strlen(path));
    return 0;
}

/* Locks the socket's directory. Otherwise, if two servers started at the same time, the second
 * could mistake the socket of the first for the socket of a dead server, and replace it. */
static int lock_parent(const char *path, struct err *e)
{
    char copy[sizeof(((struct sockaddr_un *)0)->sun_path)];
    snprintf(copy, sizeof copy, "%s", path);
    const int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return err_errno(e, "--socket %s: its directory", path);
    if (!flock(fd, LOCK_EX | LOCK_NB)) return fd;
    err_set(e, ERR_CONFLICT, "--socket %s: another process is making a socket there: start again",
            path);
    close(fd);
    return -1;
}

static int remove_stale(int fd, const struct sockaddr_un *un, struct err *e)
{
    struct stat st;
    if (lstat(un->sun_path, &st)) return 0; /* there is no file; bind reports any other fault */
    if (!S_ISSOCK(st.st_mode))
        return err_set(e, ERR_CONFLICT, "--socket %s: something else than a socket lies there",
                       un->sun_path);
    if (connect(fd, (const struct sockaddr *)un, sizeof *un) && errno == ECONNREFUSED)
        return unlink(un->sun_path) ? err_errno(e, "--socket %s", un->sun_path) : 0;
    return err_set(e, ERR_CONFLICT,
                   "--socket %s is in use: another seqd? choose one with --socket PATH",
                   un->sun_path);
}

static int bind_unix(int fd, const struct sockaddr_un *un, struct err *e)
{
    if (remove_stale(fd, un, e)) return -1;
    if (bind(fd, (const struct sockaddr *)un, sizeof *un))
        return err_errno(e, "--socket %s", un->sun_path);
    if (!chmod(un->sun_path, 0666) && !listen(fd, BACKLOG)) return 0;
    err_errno(e, "--socket %s", un->sun_path);
    unlink(un->sun_path);
    return -1;
}

int listen_open_unix(const char *path, struct err *e)
{
    struct sockaddr_un un;
    if (unix_address(path, &un, e)) return -1;
    const int lock = lock_parent(path, e);
    if (lock < 0) return -1;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        err_errno(e, "socket");
    } else if (bind_unix(fd, &un, e)) {
        close(fd);
        fd = -1;
    }
    close(lock);
    return fd;
}

void listen_close_unix(int fd, const char *path)
{
    unlink(path);
    close(fd);
}
