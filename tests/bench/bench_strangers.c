/* bench_strangers.c: N strangers that connect to a port of this machine from 127.0.0.1 to
 * 127.0.0.8. They say nothing or the first bytes of a request, and connect again as soon as they
 * are closed. strangers.sh measures what others notice; without arguments the program does
 * nothing.
 * usage: bench_strangers PORT N     ends at SIGTERM, and prints its counts */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

struct stranger {
    int fd;
    bool spoke;
};

static volatile sig_atomic_t ended;
static int epoll_fd, port;
static long long n_opened, n_closed, n_refused;

static void on_term(int signo)
{
    (void)signo;
    ended = 1;
}

static void open_one(struct stranger *s, long i)
{
    struct sockaddr_in sa = {.sin_family = AF_INET};
    struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = s};
    int later = 1;
    s->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    s->spoke = false;
    if (s->fd < 0) return;
    setsockopt(s->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &later, sizeof later);
    sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK + (unsigned)(i % 8));
    if (bind(s->fd, (struct sockaddr *)&sa, sizeof sa)) n_refused++;
    sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    sa.sin_port = htons((uint16_t)port);
    if (connect(s->fd, (struct sockaddr *)&sa, sizeof sa) && errno != EINPROGRESS) n_refused++;
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, s->fd, &ev);
}

/* Every third stranger sends a part of a head when it is connected. */
static void speak(struct stranger *s, long i)
{
    if (s->spoke) return;
    s->spoke = true;
    n_opened++;
    if (i % 3 == 0 && send(s->fd, "GET /v1/jobs", 12, MSG_NOSIGNAL) < 0) n_refused++;
}

static void on_event(struct stranger *s, long i, unsigned events)
{
    char bytes[512];
    ssize_t n = -1;
    if (!(events & (EPOLLERR | EPOLLHUP)) && events & EPOLLOUT) speak(s, i);
    while ((n = recv(s->fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0) continue;
    if (n < 0 && errno == EAGAIN && !(events & (EPOLLERR | EPOLLHUP))) return;
    close(s->fd);
    n_closed++;
    open_one(s, i);
}

int main(int argc, char **argv)
{
    struct epoll_event ev[256];
    struct rlimit r;
    if (argc < 3) {
        puts("bench_strangers: run by tests/bench/strangers.sh");
        return 0;
    }
    const long n = atol(argv[2]);
    port = atoi(argv[1]);
    signal(SIGTERM, on_term);
    getrlimit(RLIMIT_NOFILE, &r);
    r.rlim_cur = r.rlim_max;
    setrlimit(RLIMIT_NOFILE, &r);
    struct stranger *all = calloc((size_t)n, sizeof *all);
    epoll_fd = epoll_create1(0);
    if (!all || epoll_fd < 0) return 1;
    for (long i = 0; i < n; i++) open_one(&all[i], i);
    while (!ended) {
        const int k = epoll_wait(epoll_fd, ev, 256, 100);
        for (int i = 0; i < k; i++) {
            struct stranger *s = ev[i].data.ptr;
            on_event(s, s - all, ev[i].events);
        }
    }
    printf("{\"bench\":\"strangers\",\"n\":%ld,\"opened\":%lld,\"closed\":%lld,\"failed\":%lld}\n",
           n, n_opened, n_closed, n_refused);
    free(all);
    return 0;
}
